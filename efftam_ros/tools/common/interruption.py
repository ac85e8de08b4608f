"""Ends a command cleanly on SIGINT, SIGTERM and SIGHUP (sent when a remote terminal is disconnected)."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer, current_thread, main_thread
from types import SimpleNamespace
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def interruptible() -> Iterator[SimpleNamespace]:
    """Raise KeyboardInterrupt in a ``with`` block when the process receives one of `SIGNALS`.

    Signals that the process ignores (nohup) are still ignored. The value of the ``with`` statement has the
    attribute ``pending``: whether a signal was received. Further signals are ignored, because a terminal may
    send two at once.
    """
    came, hook = SimpleNamespace(pending=False, timer=Timer(0.0, int)), sys.unraisablehook

    def interrupt(*_: Any) -> None:
        if not came.pending:
            came.pending = True
            raise KeyboardInterrupt

    def again(problem: Any) -> None:
        # Python discards an exception that is raised in __del__ or in a callback of a C library. If that was
        # the KeyboardInterrupt, the signal is raised again a moment later.
        if not issubclass(problem.exc_type, KeyboardInterrupt):
            return hook(problem)
        came.pending, came.timer = False, Timer(0.05, signal.raise_signal, [signal.SIGINT])
        came.timer.start()

    handled = SIGNALS if current_thread() is main_thread() else ()
    former = {n: signal.signal(n, interrupt) for n in handled if signal.getsignal(n) is not signal.SIG_IGN}
    sys.unraisablehook = again if former else hook
    try:
        yield came
    finally:
        came.timer.cancel()
        sys.unraisablehook = hook
        for number, handler in former.items():
            signal.signal(number, handler)
