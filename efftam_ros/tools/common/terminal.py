"""Progress bars on a terminal, and tables as text."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from tqdm import tqdm


def progress_bar(total: int | None, text: str, *, unit: str = "frame", quiet: bool = False) -> tqdm:
    """Return a progress bar on stderr. It is invisible with ``quiet`` and if stderr is not a terminal.

    ``total``: number of units, None if unknown; ``text``: label of the bar; ``unit``: name of a unit.
    """
    from tqdm import tqdm

    return tqdm(
        total=total,
        desc=text,
        unit=unit,
        file=sys.stderr,
        disable=quiet or not sys.stderr.isatty(),
        dynamic_ncols=True,
        leave=False,
    )


Cell = str | int | float | None


def print_table(
    headers: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    *,
    digits: int = 3,
    title: str = "",
    file: TextIO | None = None,
) -> None:
    """Print a table.

    Floats have ``digits`` decimals; None, NaN and infinity are printed as a dash. ``title``: a line above the
    table; ``file``: where to print (default: stdout).
    """
    out = file or sys.stdout
    if title:
        print(title, file=out)
    for line in table_lines(headers, rows, digits=digits):
        print(line, file=out)


def table_lines(headers: Sequence[str], rows: Sequence[Sequence[Cell]], *, digits: int = 3) -> list[str]:
    """Return a table as lines of text: the headers, a ruler, and the rows.

    A column is right-aligned if its cells are numbers, texts that are numbers, or None. ``digits``: decimals
    of floats.
    """
    cells = [[_text(cell, digits) for cell in row] for row in rows]
    widths = [
        max([len(header)] + [len(row[column]) for row in cells]) for column, header in enumerate(headers)
    ]
    numeric = [bool(rows) and all(_is_number(row[column]) for row in rows) for column in range(len(headers))]

    def line(values: Sequence[str]) -> str:
        parts = [
            value.rjust(width) if right else value.ljust(width)
            for value, width, right in zip(values, widths, numeric, strict=True)
        ]
        return "  ".join(parts).rstrip()

    return [line(headers), "  ".join("-" * width for width in widths), *(line(row) for row in cells)]


def _is_number(cell: Cell) -> bool:
    return not isinstance(cell, str) or re.fullmatch(r"[-+]?[0-9.]+", cell) is not None


def _text(cell: Cell, digits: int) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, float):
        return f"{cell:.{digits}f}" if math.isfinite(cell) else "-"
    return str(cell)
