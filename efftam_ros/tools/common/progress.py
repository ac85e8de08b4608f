"""A progress bar that shows only where somebody looks."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tqdm import tqdm


def progress_bar(total: int | None, text: str, *, unit: str = "frame", quiet: bool = False) -> tqdm:
    """A tqdm bar on stderr; silent with ``quiet`` and when stderr is not a terminal. ``total`` None:
    unknown."""
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
