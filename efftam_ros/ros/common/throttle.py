"""Limits how often repeated lines are logged."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

PERIOD_S = 5.0


class Throttle:
    """Passes ``burst`` lines per kind and period to ``write``, with the number of lines of that kind
    suppressed since."""

    def __init__(self, write: Callable[[str], object], burst: int = 1, period_s: float = PERIOD_S) -> None:
        self._write, self._burst, self._period_s = write, burst, period_s
        self._lock = threading.Lock()
        self._passed: dict[str, deque[float]] = {}  # when the last lines of a kind were passed
        self._held: dict[str, int] = {}

    def __call__(self, kind: str, text: str) -> None:
        now = time.monotonic()
        with self._lock:
            passed = self._passed.setdefault(kind, deque(maxlen=self._burst))
            if len(passed) == self._burst and now - passed[0] < self._period_s:
                self._held[kind] = self._held.get(kind, 0) + 1
                return
            passed.append(now)
            held = self._held.pop(kind, 0)
        self._write(f"{text} ({held} more like it)" if held else text)


class ThrottledLog:
    """A node's log, of which each kind of line appears once per period; of information, ten lines.

    Thread-safe. ``remind`` is for warnings of what lasts.
    """

    def __init__(self, logger: Any) -> None:
        # rclpy ties each logging call site to one severity, so each severity needs its own.
        self.fail = Throttle(lambda text: logger.error(text))
        self.warn = Throttle(lambda text: logger.warning(text))
        self.remind = Throttle(lambda text: logger.warning(text), period_s=30.0)
        self.inform = Throttle(lambda text: logger.info(text), burst=10)
