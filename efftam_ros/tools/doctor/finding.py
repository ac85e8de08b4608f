"""One line of `efftam doctor`'s page."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """``state``: "ok", "absent" (optional, not there), "wrong" (needed or set wrongly) or "untried" (can't be
    told without minutes of work). ``remedy``: what mends it; ``install``: the commands for this platform."""

    section: str
    name: str
    state: str
    found: str
    remedy: str = ""
    install: str = ""
