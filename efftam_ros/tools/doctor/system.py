"""Access to the machine for `efftam doctor`: files, programs, installed Python packages."""

from __future__ import annotations

import importlib.machinery
import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Output:
    """Result of a program.

    Attributes:
        code: Exit code, -1 for a program that could not be run to its end.
        text: Its stdout.
        error: Its stderr.
    """

    code: int
    text: str
    error: str


@dataclass(frozen=True)
class System:
    """A machine, by default this one.

    Attributes:
        root: Root of the file system.
        environment: Environment variables, also of the programs that it runs.
        packages: Folders of Python packages.
        machine: As `platform.machine`.
    """

    root: Path = Path("/")
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    packages: Sequence[str] = field(default_factory=lambda: list(sys.path))
    machine: str = field(default_factory=platform.machine)

    def read(self, path: str) -> str | None:
        """Content of a file, without trailing line end or NUL; None where it can't be read."""
        try:
            return (self.root / path.lstrip("/")).read_text(errors="replace").rstrip("\0\n")
        except OSError:
            return None

    def program(self, name: str) -> str | None:
        return shutil.which(name, path=self.environment.get("PATH", ""))

    def run(self, command: Sequence[str], seconds: float = 20) -> Output:
        """Run a program; the code is -1 if it does not start or does not end in time."""
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=seconds,
                check=False,
                env=dict(self.environment),
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return Output(-1, "", str(error))
        return Output(done.returncode, done.stdout, done.stderr)

    def version(self, *distributions: str) -> str | None:
        """The version of the first of these pip packages that is installed."""
        for name in distributions:
            for found in importlib.metadata.distributions(name=name, path=list(self.packages)):
                return found.version
        return None

    def module_file(self, name: str) -> Path | None:
        """The file of a top-level module or package, found without importing it."""
        spec = importlib.machinery.PathFinder.find_spec(name, list(self.packages))
        return None if spec is None or spec.origin is None else Path(spec.origin)

    def wheel_libraries(self, name: str) -> list[Path]:
        """Copies of a shared library inside the nvidia-* and tensorrt* pip packages."""
        patterns = (f"nvidia/*/lib/{name}", f"tensorrt*_libs/{name}")
        return [
            path for folder in self.packages for pattern in patterns for path in Path(folder).glob(pattern)
        ]


@dataclass(frozen=True)
class Platform:
    """Kind of machine.

    ``kind``: "desktop" (any PC or server), "JetPack 6", "JetPack 7" or "old JetPack"; ``text``: for the
    report; ``board``: "Orin", "Thor" or "".
    """

    kind: str
    text: str
    board: str = ""


def platform_of(system: System) -> Platform:
    """Detect the platform, which determines the install commands."""
    release = system.read("/etc/nv_tegra_release")
    if release is None:
        return Platform("desktop", system.machine)
    found = re.search(r"R(\d+).*?REVISION:\s*([\d.]+)", release)
    if found is None:
        return Platform("old JetPack", f"unknown release: {release.partition(chr(10))[0]}")
    major, minor = int(found[1]), int(found[2].partition(".")[0])
    if major < 36:
        kind = name = "old JetPack"
    elif major == 36:
        kind, name = "JetPack 6", "JetPack 6.0" if minor < 4 else "JetPack 6.1 or 6.2"
    else:
        kind, name = "JetPack 7", "JetPack 7.0 or 7.1" if major == 38 else "JetPack 7.2 or newer"
    model = system.read("/proc/device-tree/model") or ""
    board = next((board for board in ("Orin", "Thor") if board in model), "")
    return Platform(kind, f"{name} (L4T {found[1]}.{found[2]}){', ' if model else ''}{model}", board)
