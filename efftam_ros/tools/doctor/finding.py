"""One line of the report of `efftam doctor`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """A finding of `efftam doctor`.

    Attributes:
        section: Section of the report.
        name: What was examined.
        state: "ok", "absent" (optional, missing), "wrong" (missing or misconfigured) or "untried" (would take
            minutes).
        found: Description of the state.
        remedy: How to fix it.
        install: Commands for this platform.
    """

    section: str
    name: str
    state: str
    found: str
    remedy: str = ""
    install: str = ""
