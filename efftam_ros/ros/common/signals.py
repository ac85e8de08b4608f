"""SIGINT and SIGTERM as a flag: a process ends when it has finished, not where it was."""

from __future__ import annotations

import signal
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopFlag:
    """As a context: both signals only set ``asked``, however often they come.

    Afterwards they stay ignored: between the end of the context and that of the process Python would restore
    what kills it.
    """

    def __init__(self) -> None:
        self.asked = False

    def __enter__(self) -> StopFlag:
        for number in SIGNALS:
            signal.signal(number, self._ask)
        return self

    def __exit__(self, *exception: Any) -> None:
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)

    def _ask(self, number: int, frame: Any) -> None:
        self.asked = True
