"""Files of a commit of a git repository: of a clone that is there, or of a partial one from a host."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from efftam_ros.core.errors import InputError

HOST = "https://github.com"
LFS_POINTER = b"version https://git-lfs.github.com/spec/"


class Commit:
    """The files of one commit. A context manager; it holds a process of git."""

    def __init__(self, git_dir: Path, repository: str, commit: str) -> None:
        """Raises InputError when the clone does not have the commit."""
        self._name = f"{repository} at {commit[:10]}"
        run_git("cat-file", "-e", f"{commit}^{{commit}}", git_dir=git_dir, what=self._name)
        self._git_dir, self._commit = git_dir, commit
        command = ["git", *_options(git_dir), "cat-file", "--batch"]
        pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=nowhere, env=_environment())

    def paths(self) -> list[str]:
        """The paths of all its files."""
        command = ["git", *_options(self._git_dir), "ls-tree", "-r", "-z", "--name-only", self._commit]
        done = subprocess.run(command, capture_output=True, check=True, env=_environment())
        return [path.decode(errors="surrogateescape") for path in done.stdout.split(b"\0") if path]

    def read(self, path: str) -> bytes:
        """The content of a file. Raises InputError when the commit or the clone lacks it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{self._commit}:{path}\n".encode())
        self._process.stdin.flush()
        words = self._process.stdout.readline().split()  # OBJECT TYPE SIZE, or: NAME missing
        if len(words) < 3 or words[-2] not in (b"blob", b"tree") or not words[-1].isdigit():
            raise InputError(f"{path} is not in {self._name}")
        content = self._process.stdout.read(int(words[-1]) + 1)[:-1]
        if words[-2] != b"blob":
            raise InputError(f"{path} is a folder in {self._name}")
        if content.startswith(LFS_POINTER):
            raise InputError(f"{path} is kept in Git LFS by {self._name}; give another repository")
        return content

    def __enter__(self) -> Commit:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()


@contextmanager
def cloned(repository: str, commit: str, paths: Iterable[str], host: str = HOST) -> Iterator[Path]:
    """A clone of one commit with the files of some paths (folders end in /), removed on exit: its git folder.

    Raises InputError when there is no such repository or commit.
    """
    with tempfile.TemporaryDirectory(prefix="efftam_clone_") as folder:
        what = f"{repository} at {commit[:10]}"
        git_dir = Path(folder) / ".git"
        run_git("init", "--quiet", folder, what=what)
        for words in (
            ("remote", "add", "origin", f"{host}/{repository}"),
            ("sparse-checkout", "set", "--no-cone", *(f"/{_literal(path)}" for path in paths)),
            ("fetch", "--quiet", "--depth", "1", "--filter=blob:none", "origin", commit),
            # Fetches the files that are wanted all at once; git would else ask for each one that is read.
            ("checkout", "--quiet", "--detach", commit),
        ):
            run_git("-C", folder, *words, what=what)
        yield git_dir


def find_clone(folder: Path, repository: str) -> Path:
    """The git folder of the clone OWNER+NAME, or OWNER+NAME/repo, in a folder of clones, bare or not.

    Raises InputError when there is none.
    """
    clone = folder / repository.replace("/", "+")
    for path in (clone / ".git", clone, clone / "repo" / ".git", clone / "repo"):
        if (path / "HEAD").is_file() and (path / "objects").is_dir():
            return path
    raise InputError(f"{repository} has no clone {clone}")


def run_git(*words: str, what: str, git_dir: Path | None = None) -> None:
    """Run git without asking for a password. Raises InputError with the last line that it printed."""
    command = ["git", *(_options(git_dir) if git_dir else []), *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", env=_environment())
    except FileNotFoundError:
        raise InputError("git is not installed") from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or ["not found"]
        raise InputError(f"{what}: git says {lines[-1].strip()!r}")


def _options(git_dir: Path) -> list[str]:
    # A clone that another user made is only read.
    return ["-c", "safe.directory=*", "--git-dir", str(git_dir)]


def _environment() -> dict[str, str]:
    return {**os.environ, "GIT_TERMINAL_PROMPT": "0", "GIT_LFS_SKIP_SMUDGE": "1"}


def _literal(path: str) -> str:
    """A path as a sparse-checkout pattern that matches it alone."""
    return re.sub(r"([\\*?\[\]])", r"\\\1", path)
