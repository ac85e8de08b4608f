"""One line of the report of `efftam doctor`."""

from __future__ import annotations

from typing import NamedTuple


class Finding(NamedTuple):
    """``state``: "ok", "absent" (optional), "wrong" (missing or misconfigured), "untried" (takes minutes).
    ``remedy``: the one command or step that mends it, "" where nothing is to be mended."""

    section: str
    name: str
    state: str
    found: str
    remedy: str = ""
