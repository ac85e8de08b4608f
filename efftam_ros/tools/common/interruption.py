"""SIGINT, SIGTERM and SIGHUP (the connection to the vehicle's computer broke) end a command in order."""

from __future__ import annotations

import signal
import sys
import threading
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interruptions:
    """Context manager in which they raise KeyboardInterrupt; outside the main thread it does nothing. One
    that the process was started to ignore stays ignored (SIGHUP by nohup). ``pending``: one came, and nothing
    has ended because of it yet; more of them add nothing, as a terminal and `timeout` may send two."""

    pending = False

    def __enter__(self) -> Interruptions:
        self._former: dict[signal.Signals, Any] = {}
        self._hook, self._timer = sys.unraisablehook, threading.Timer(0.0, int)
        if threading.current_thread() is threading.main_thread():
            wanted = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
            self._former = {number: signal.signal(number, self._raise) for number in wanted}
            sys.unraisablehook = self._again
        return self

    def __exit__(self, *exception: Any) -> None:
        for number, handler in self._former.items():
            signal.signal(number, handler)
        sys.unraisablehook = self._hook
        self._timer.cancel()

    def _raise(self, number: int, frame: Any) -> None:
        if not self.pending:
            self.pending = True
            raise KeyboardInterrupt

    def _again(self, problem: sys.UnraisableHookArgs) -> None:
        """Python discards what is raised in ``__del__`` or in a callback of a C library: raise it again."""
        if not issubclass(problem.exc_type, KeyboardInterrupt):
            return self._hook(problem)
        self.pending = False
        self._timer = threading.Timer(0.05, signal.raise_signal, [signal.SIGINT])
        self._timer.start()
