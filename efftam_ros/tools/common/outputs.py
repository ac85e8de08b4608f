"""Checks before the work whether the output files can be written, and writes files atomically.

Atomically: a file is written under a temporary name, and renamed when it is complete.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from efftam_ros.core.errors import InputError

SUFFIXES = {"video": (".mp4", ".m4v", ".mov"), "recording": (".rrd",), "picture": (".png", ".svg", ".pdf")}


@dataclass(frozen=True)
class Output:
    """A file or folder that a command will write.

    Attributes:
        option: The command line option that names the output, for error texts.
        path: None if the option was not given; "-" means stdout.
        kind: A "folder" is made, with its parents, if it does not exist. A "new folder" (a bag) must not
            exist, but its parent must. All other kinds are files, whose folder must exist.
    """

    option: str
    path: Path | None
    kind: Literal["file", "video", "picture", "recording", "folder", "new folder"] = "file"

    def __str__(self) -> str:
        return f"{self.option} {self.path}".strip()


def check_outputs(outputs: Iterable[Output], inputs: Iterable[str | Path | None] = ()) -> None:
    """Raise InputError if an output can't be written, or would overwrite an input or another output.

    ``inputs``: the files and folders that the command reads. Links are followed.
    """
    taken = {Path(given).resolve(): "the input" for given in inputs if given is not None}
    for output in outputs:
        path = output.path
        if path is None or str(path) == "-" or (path.exists() and not (path.is_file() or path.is_dir())):
            continue  # there is nothing to check for stdout, a device or a pipe
        place = path.resolve()
        for other, what in taken.items():
            # A new folder inside an input folder is allowed: it replaces nothing.
            if other in (place, *place.parents) and (output.kind, what) != ("new folder", "the input"):
                raise InputError(f"{output} is the same as {what} or lies in it; give another name")
        taken[place] = str(output)
        if fault := _fault(output.kind, path):
            raise InputError(f"{output} {fault}")
        above = path.absolute().parents
        there = next(p for p in ((path, *above) if output.kind == "folder" else above) if p.exists())
        try:
            # Make a temporary folder as a test: permission bits do not show a read-only disk, a name that is
            # too long or a full quota.
            with tempfile.TemporaryDirectory(prefix=f".{path.absolute().name}.", suffix=".part", dir=there):
                pass
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise InputError(f"{output} can't be written ({reason}); write it elsewhere") from None


def _fault(kind: str, path: Path) -> str:
    endings = SUFFIXES.get(kind, ())
    if kind == "folder":
        return "is a file; give a folder" if path.is_file() else ""
    if kind == "new folder" and path.exists():
        return "exists already; give another name or remove the old one"
    if path.is_dir():
        return "is a folder; give the name of a file"
    if endings and path.suffix.lower() not in endings:
        return f"is no {kind}; give a name that ends in {' or '.join(endings)}"
    if not path.parent.is_dir():
        return f"can't be written: {path.parent} does not exist; make that folder first"
    return "is write-protected; give another name" if path.exists() and not os.access(path, os.W_OK) else ""


@contextmanager
def replacing(path: Path, keep: bool = False) -> Iterator[Path]:
    """Yield a temporary path with the same suffix. After the ``with`` block the file there replaces ``path``.

    For a device or a pipe ``path`` itself is yielded. If the block raises an error, the temporary file is
    removed and ``path`` stays unchanged. With ``keep`` this applies only to OSError; after other errors the
    file still replaces ``path``. An OSError on the temporary file is raised with ``path`` as the file's name.
    """
    target = path.resolve()  # if `path` is a symbolic link, its target is replaced, not the link
    is_stream = path.exists() and not path.is_file()
    part = path if is_stream else target.with_name(f".{target.stem}.{os.getpid()}.part{target.suffix}")
    is_wanted = keep
    try:
        try:
            yield part
            is_wanted = True
        except OSError:
            is_wanted = False
            raise
        finally:
            if is_wanted and not is_stream and part.exists():
                with part.open("rb") as file:
                    os.fsync(file.fileno())
                part.replace(target)
    except OSError as error:
        if error.filename is None or Path(error.filename) == part:
            raise OSError(error.errno, error.strerror or str(error), str(path)) from None
        raise
    finally:
        with suppress(OSError):
            if not is_stream:
                part.unlink()


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically. Raises OSError."""
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")
