"""Checks outputs before the work; writes files atomically: under a temporary name, then renamed."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from efftam_ros.core.errors import InputError

VIDEO_SUFFIXES = (".mp4", ".m4v", ".mov")


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
    """Raises InputError, before the work, when an output can't be written, is one of the ``inputs`` (also
    through a link), lies in a folder of them, or is another output."""
    sources = [Path(given) for given in inputs if given is not None]
    before: list[Output] = []
    for output in outputs:
        path = output.path
        if path is None or (output.kind == "file" and str(path) == "-"):
            continue
        if path.exists() and not (path.is_file() or path.is_dir()):
            continue  # a device or a pipe
        if output.kind != "new folder":  # which replaces nothing
            _check_apart(output, path, sources)
        for other in before:
            if other.path is not None and _same(path, other.path):
                raise InputError(f"{output} is also what {other} names; give each its own name")
        before.append(output)
        _check_kind(output, path)
        _check_writable(output, path)


def _check_apart(output: Output, path: Path, sources: list[Path]) -> None:
    for source in sources:
        if _same(path, source):
            raise InputError(f"{output} is the input, which it would replace; give another name")
        if source.is_dir() and source.resolve() in path.resolve().parents:
            raise InputError(f"{output} lies in the folder {source}, which is read; write it elsewhere")


def _same(one: Path, other: Path) -> bool:
    return one.resolve() == other.resolve() or (one.exists() and other.exists() and one.samefile(other))


def _check_kind(output: Output, path: Path) -> None:
    if output.kind == "folder":
        if path.exists() and not path.is_dir():
            raise InputError(f"{output} is a file; give a folder")
        return
    if path.exists() and output.kind == "new folder":
        raise InputError(f"{output} exists already; give another name or remove the old one")
    if path.is_dir():
        raise InputError(f"{output} is a folder; give the name of a file")
    if output.kind == "video" and path.suffix.lower() not in VIDEO_SUFFIXES:
        raise InputError(f"{output} can't be played by browsers; give a name that ends in .mp4")
    if output.kind == "recording" and path.suffix != ".rrd":
        raise InputError(f"{output} can't be opened by the viewer; give a name that ends in .rrd")
    if output.kind == "picture":
        from matplotlib.backend_bases import FigureCanvasBase

        if path.suffix.lower().removeprefix(".") not in FigureCanvasBase.get_supported_filetypes():
            raise InputError(f"{output} is no picture; give a name that ends in .png, .svg or .pdf")
    if not path.parent.is_dir():
        raise InputError(f"{path.parent} does not exist; make the folder first ({output})")


def _check_writable(output: Output, path: Path) -> None:
    """By writing, as permissions alone do not tell: of a read-only disk, a name too long, a full quota."""
    try:
        if output.kind in ("folder", "new folder"):
            there = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
            with tempfile.TemporaryDirectory(prefix=f".{path.absolute().name}.", suffix=".part", dir=there):
                pass
            return
        if path.exists() and not os.access(path, os.W_OK):
            raise InputError(f"{output} is write-protected; give another name")
        part = beside(path)
        part.touch()
        part.unlink()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise InputError(f"{output} can't be written ({reason}); write it elsewhere") from None


def beside(path: Path) -> Path:
    """Temporary name for writing ``path``, with the same suffix; ``path`` itself if it is a device or a
    pipe."""
    if path.exists() and not path.is_file():
        return path
    target = path.resolve()  # a symbolic link stays one
    return target.with_name(f".{target.stem}.{os.getpid()}.part{target.suffix}")


def put_in_place(part: Path, path: Path) -> None:
    """Replace ``path`` by the complete file ``part``, named by `beside`. Raises OSError, leaving ``path``
    unchanged."""
    if part == path:
        return
    with part.open("rb") as file:
        os.fsync(file.fileno())
    part.replace(path.resolve())


def discard(part: Path, path: Path) -> None:
    """Remove an incomplete file."""
    if part != path:
        part.unlink(missing_ok=True)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary name; at the end of the block that file replaces ``path``.

    If the block raises, the temporary file is removed and ``path`` stays unchanged; an OSError of the
    temporary file names ``path``.
    """
    part = beside(path)
    try:
        yield part
        put_in_place(part, path)
    except BaseException as error:
        if isinstance(error, OSError) and error.filename is not None and Path(error.filename) == part:
            error.filename = str(path)
        discard(part, path)
        raise


@contextmanager
def plotted(path: Path) -> Iterator[Any]:
    """Yield matplotlib's axes; at the end of the block their picture replaces ``path``."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6.4, 4.8), layout="constrained")
    yield axes
    axes.grid(alpha=0.3)
    with replacing(path) as part:
        figure.savefig(part, dpi=120)
    pyplot.close(figure)


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically. Raises OSError."""
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")
