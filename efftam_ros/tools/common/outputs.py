"""Output files that are whole or not touched: written beside their place and renamed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def beside(path: Path) -> Path:
    """The name under which a file for ``path`` is written until it is whole, with the same suffix; ``path``
    itself where that is a device or a pipe."""
    if path.exists() and not path.is_file():
        return path
    target = path.resolve()  # a link stays one
    return target.with_name(f".{target.stem}.{os.getpid()}.part{target.suffix}")


def put_in_place(part: Path, path: Path) -> None:
    """Let the whole file ``part``, named by `beside`, take the place of ``path``. Raises OSError, leaving
    ``path`` as it was."""
    if part == path:
        return
    with part.open("rb") as file:
        os.fsync(file.fileno())
    part.replace(path.resolve())


def discard(part: Path, path: Path) -> None:
    """Remove what was written of a file that will not become whole."""
    if part != path:
        part.unlink(missing_ok=True)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """The name to write the new ``path`` under; it takes its place when the block ends well, else it is
    removed and ``path`` stays as it was."""
    part = beside(path)
    try:
        yield part
        put_in_place(part, path)
    except BaseException:
        discard(part, path)
        raise


def write_text(path: Path, text: str) -> None:
    """Write a text file, whole or not at all. Raises OSError."""
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")
