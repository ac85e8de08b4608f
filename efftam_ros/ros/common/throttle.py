"""Keeps a warning that repeats itself from filling the log."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

PERIOD_S = 5.0


class Throttle:
    """Passes one line per kind and period to ``write``, with the number of lines of that kind held back
    since."""

    def __init__(self, write: Callable[[str], object], period_s: float = PERIOD_S) -> None:
        self._write, self._period_s = write, period_s
        self._lock = threading.Lock()
        self._last: dict[str, float] = {}
        self._held: dict[str, int] = {}

    def __call__(self, kind: str, text: str) -> None:
        now = time.monotonic()
        with self._lock:
            if now - self._last.get(kind, -self._period_s) < self._period_s:
                self._held[kind] = self._held.get(kind, 0) + 1
                return
            self._last[kind] = now
            held = self._held.pop(kind, 0)
        self._write(f"{text} ({held} more like it)" if held else text)
