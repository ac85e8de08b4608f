"""SIGINT and SIGTERM as an exception that is not lost where Python can't raise.

Python discards an exception raised in a ``__del__`` or in a callback of a C library, and libraries discard
what they did not expect: a signal handled at such a moment would leave no trace, and the command would run
on. An `Interruption` that is destroyed before the command has ended because of it is therefore raised again.
"""

from __future__ import annotations

import _thread
import functools
import math
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)

ONE_REQUEST_S = 0.2
"""Signals that follow the first within this time add nothing: a terminal and `timeout` may send two."""


class Interruption(KeyboardInterrupt):
    """Raised in the main thread by a signal."""

    def __init__(self, source: Interruptions) -> None:
        super().__init__()
        self._source = source

    # A property that returns a function written in C which only notes the signal: one raised by Python code
    # would be handled inside this finalizer, where the next exception would be discarded as well.
    @property
    def __del__(self) -> Callable[[], object]:
        return self._source.discarded()


class Interruptions:
    """Context manager in which both signals raise `Interruption`; outside the main thread it does nothing. A
    signal that the process was started to ignore stays ignored: SIGINT in a job that a shell runs in the
    background. ``pending``: a signal came and nothing has ended because of it yet."""

    def __init__(self) -> None:
        self.pending = False
        self._asked_s = -math.inf
        self._active = False
        self._again = False
        self._number = signal.SIGINT
        self._former: dict[signal.Signals, Any] = {}
        self._former_hook = sys.unraisablehook

    def __enter__(self) -> Interruptions:
        if threading.current_thread() is threading.main_thread():
            self._active = True
            self._former_hook = sys.unraisablehook
            sys.unraisablehook = self._report_unraisable
            for number in SIGNALS:
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._former[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *exception: Any) -> None:
        if self._active:
            self._active = False
            for number, handler in self._former.items():
                signal.signal(number, handler)
            sys.unraisablehook = self._former_hook

    def discarded(self) -> Callable[[], object]:
        """What the finalizer of an `Interruption` calls: sends the signal again if nothing has ended yet."""
        if not (self._active and self.pending):
            return int
        self._again = True
        return functools.partial(_thread.interrupt_main, self._number)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        now_s = time.monotonic()
        if self._again:
            self._again = False
        elif now_s - self._asked_s < ONE_REQUEST_S:
            return
        else:
            self.pending, self._asked_s, self._number = True, now_s, signal.Signals(number)
        # Not kept in a variable: the traceback would keep this frame, and the frame the exception.
        raise Interruption(self)

    def _report_unraisable(self, problem: sys.UnraisableHookArgs) -> None:
        if not issubclass(problem.exc_type, Interruption):
            self._former_hook(problem)
