"""Reads files of one commit of a git repository: from a clone, or partially from a host."""

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
    """Reads the files of one commit through a process of git, which ends with the context."""

    def __init__(self, git_dir: Path, repository: str, commit: str) -> None:
        """Start git. Raises InputError if the clone does not contain the commit."""
        self._name = f"{repository} at {commit[:10]}"
        run_git("cat-file", "-e", f"{commit}^{{commit}}", git_dir=git_dir, what=self._name)
        self._git_dir, self._commit = git_dir, commit
        command = ["git", *_options(git_dir), "cat-file", "--batch"]
        pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=nowhere, env=_environment())

    def paths(self) -> list[str]:
        """Return the paths of all files of the commit."""
        command = ["git", *_options(self._git_dir), "ls-tree", "-r", "-z", "--name-only", self._commit]
        done = subprocess.run(command, capture_output=True, check=True, env=_environment())
        return [path.decode(errors="surrogateescape") for path in done.stdout.split(b"\0") if path]

    def read(self, path: str) -> bytes:
        """Return the content of a file. Raises InputError if the commit or the clone does not contain it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{self._commit}:{path}\n".encode())
        self._process.stdin.flush()
        words = self._process.stdout.readline().split()  # git answers "OBJECT TYPE SIZE" or "NAME missing"
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
    """Clone one commit with the files ``paths`` (folders end in /) and yield the clone's git folder.

    The clone is removed when the context ends. Raises InputError if the repository or the commit does not
    exist.
    """
    with tempfile.TemporaryDirectory(prefix="efftam_clone_") as folder:
        what = f"{repository} at {commit[:10]}"
        git_dir = Path(folder) / ".git"
        run_git("init", "--quiet", folder, what=what)
        for words in (
            ("remote", "add", "origin", f"{host}/{repository}"),
            ("sparse-checkout", "set", "--no-cone", *(f"/{_literal(path)}" for path in paths)),
            ("fetch", "--quiet", "--depth", "1", "--filter=blob:none", "origin", commit),
            # Fetches all wanted files at once. Otherwise git would fetch each file when it is read.
            ("checkout", "--quiet", "--detach", commit),
        ):
            run_git("-C", folder, *words, what=what)
        yield git_dir


def find_clone(folder: Path, repository: str) -> Path:
    """Return the git folder of the clone OWNER+NAME or OWNER+NAME/repo in ``folder``; clones may be bare.

    Raises InputError if there is none.
    """
    clone = folder / repository.replace("/", "+")
    for path in (clone / ".git", clone, clone / "repo" / ".git", clone / "repo"):
        if (path / "HEAD").is_file() and (path / "objects").is_dir():
            return path
    raise InputError(f"{repository} has no clone {clone}")


def run_git(*words: str, what: str, git_dir: Path | None = None) -> None:
    """Run git without asking for a password. Raises InputError with the last line that git printed."""
    command = ["git", *(_options(git_dir) if git_dir else []), *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", env=_environment())
    except FileNotFoundError:
        raise InputError("git is not installed") from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or ["not found"]
        raise InputError(f"{what}: git reports {lines[-1].strip()!r}")


def _options(git_dir: Path) -> list[str]:
    # Allows reading a clone that another user made.
    return ["-c", "safe.directory=*", "--git-dir", str(git_dir)]


def _environment() -> dict[str, str]:
    return {**os.environ, "GIT_TERMINAL_PROMPT": "0", "GIT_LFS_SKIP_SMUDGE": "1"}


def _literal(path: str) -> str:
    """Return the path as a sparse-checkout pattern that matches this path only."""
    return re.sub(r"([\\*?\[\]])", r"\\\1", path)
