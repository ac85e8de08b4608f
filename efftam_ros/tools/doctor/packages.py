"""Report sections on Python packages and on the network that ships."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import platform
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import efftam_ros
from efftam_ros.core.errors import InputError, one_line
from efftam_ros.runtime.bundle import MANIFEST, default_bundle, file_sha256
from efftam_ros.runtime.pipeline import TABLE
from efftam_ros.tools.common.packages import OPTIONAL
from efftam_ros.tools.doctor.finding import Finding

SECTION = "Python"


def python_findings() -> Iterator[Finding]:
    """What every command needs, and the network."""
    yield Finding(SECTION, "python", "ok", f"{platform.python_version()} ({sys.executable})")
    where = Path(efftam_ros.__file__).parent
    yield Finding(SECTION, "efftam_ros", "ok", f"{efftam_ros.__version__} ({where})")
    for module, pip in (("numpy", "numpy"), ("cv2", "opencv-python-headless")):
        if problem := loads(module):
            yield Finding(SECTION, module, "wrong", problem, f"pip install {pip}")
        else:
            yield Finding(SECTION, module, "ok", sys.modules[module].__version__)
    both = [name for name in ("onnxruntime", "onnxruntime-gpu") if version(name)]
    if len(both) > 1:
        found = f"{' and '.join(both)} are both installed and overwrite each other"
        remedy = next(row for row in TABLE if row.gpu).install.here()
        yield Finding(SECTION, "onnxruntime", "wrong", found, remedy)
    try:
        folder = default_bundle().folder
        found = f"{folder.name}, sha256 of {MANIFEST} {file_sha256(folder / MANIFEST)[:16]}"
        yield Finding(SECTION, "network", "ok", found)
    except InputError as error:
        yield Finding(SECTION, "network", "wrong", str(error), "install the package again")


def tool_findings() -> Iterator[Finding]:
    """What single commands and nodes need; nothing is imported, which could take seconds."""
    for package in OPTIONAL:
        if importlib.util.find_spec(package.module) is not None:
            yield Finding("tools", package.pip, "ok", version(package.pip) or "unknown version")
        else:
            found = f"needed by {package.purpose}"
            yield Finding("tools", package.pip, "absent", found, package.install)


def version(distribution: str) -> str:
    """Version of an installed pip package, "" where it is not installed."""
    with suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(distribution)
    return ""


def loads(module: str) -> str:
    """Import a module; returns the error's text, "" if it succeeds."""
    try:
        importlib.import_module(module)
        return ""
    except Exception as error:  # a broken binary package may raise anything
        return one_line(error)
