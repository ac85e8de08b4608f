"""SIGINT and SIGTERM as a flag, so that a process ends only after finishing its work."""

from __future__ import annotations

import signal
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopFlag:
    """Context manager in which both signals only set ``asked``.

    They are ignored after the context: with the default handlers restored, a signal during interpreter
    shutdown would kill the process.
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
