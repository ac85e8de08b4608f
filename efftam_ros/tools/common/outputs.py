"""Writes output files atomically: under a temporary name in the same folder, then renamed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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

    If the block raises, the temporary file is removed and ``path`` stays unchanged.
    """
    part = beside(path)
    try:
        yield part
        put_in_place(part, path)
    except BaseException:
        discard(part, path)
        raise


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically. Raises OSError."""
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")
