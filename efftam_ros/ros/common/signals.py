"""SIGINT, SIGTERM and SIGHUP as a flag, so that a process ends only after finishing its work."""

from __future__ import annotations

import signal
from typing import Any

# SIGHUP: the terminal went, mostly a broken connection to the vehicle's computer.
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopFlag:
    """Context manager in which these signals only set ``asked``. A SIGHUP that is ignored (nohup) stays so.

    They are ignored after the context: with the default handlers restored, a signal during interpreter
    shutdown would kill the process.
    """

    def __init__(self) -> None:
        self.asked = False

    def __enter__(self) -> StopFlag:
        for number in SIGNALS:
            if number is not signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._ask)
        return self

    def __exit__(self, *exception: Any) -> None:
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)

    def _ask(self, number: int, frame: Any) -> None:
        self.asked = True
