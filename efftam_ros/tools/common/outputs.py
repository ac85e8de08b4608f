"""Checks outputs before the work; writes files atomically: under a temporary name, then renamed."""

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
    """What a command will write: the option that names it and its path, None where it was not asked for.

    ``kind``: a "folder" is made with its parents where it is missing; a "new folder" (a bag) may not exist,
    its parent must; the others are files in an existing folder, "-" being stdout.
    """

    option: str
    path: Path | None
    kind: Literal["file", "video", "picture", "recording", "folder", "new folder"] = "file"

    def __str__(self) -> str:
        return f"{self.option} {self.path}".strip()


def check_outputs(outputs: Iterable[Output], inputs: Iterable[str | Path | None] = ()) -> None:
    """Raises InputError, before the work, when an output can't be written, is or lies in one of the
    ``inputs`` (also through a link), or is another output."""
    taken = {Path(given).resolve(): "the input" for given in inputs if given is not None}
    for output in outputs:
        path = output.path
        if path is None or str(path) == "-" or (path.exists() and not (path.is_file() or path.is_dir())):
            continue  # stdout, a device or a pipe
        place = path.resolve()
        for other, what in taken.items():
            # A new folder replaces no input.
            if other in (place, *place.parents) and (output.kind, what) != ("new folder", "the input"):
                raise InputError(f"{output} is {what} or lies in it; give another name")
        taken[place] = str(output)
        if fault := _fault(output.kind, path):
            raise InputError(f"{output} {fault}")
        above = path.absolute().parents
        there = next(p for p in ((path, *above) if output.kind == "folder" else above) if p.exists())
        try:
            # Test by writing: permission bits do not reveal a read-only disk, an over-long name or a full
            # quota.
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
    """Yield a temporary name with the same suffix; at the end of the block that file, if there is one,
    replaces ``path``. A device or a pipe is its own name.

    If the block raises, the temporary file is removed and ``path`` stays unchanged, with ``keep`` only for an
    OSError; that of writing it names ``path``.
    """
    target = path.resolve()  # a symbolic link stays one
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
