"""From another machine's clock to ours: the smallest delay seen in the last ten seconds counts as none."""

from __future__ import annotations

import math

WINDOW_S = 5.0
# The other clock went back or ahead by more: it was started anew, s. A longer delay is no sign of that: a
# message that merely arrives late must not look young.
JUMP_S = 1.0


class ClockMap:
    """One source's clock. Feed it every message's time; both clocks in seconds, ours one that never jumps."""

    def __init__(self) -> None:
        self._offset = math.inf  # ours - theirs, of the message that was fastest
        self._before = math.inf  # the same of the window before
        self._window_start_s = -math.inf
        self._last_remote_s = -math.inf
        self.restarts = 0

    @property
    def is_known(self) -> bool:
        return math.isfinite(self._best)

    @property
    def _best(self) -> float:
        return min(self._offset, self._before)

    def restart(self) -> None:
        """The other clock was started anew."""
        self.restarts += 1
        self._offset = self._before = math.inf

    def when(self, remote_s: float) -> float:
        """A known clock's time on ours."""
        return remote_s + self._best

    def to_ours(self, remote_s: float, arrival_s: float) -> float:
        """When a message was made, on our clock; never later than its arrival."""
        offset = arrival_s - remote_s
        if self.is_known and (remote_s < self._last_remote_s - JUMP_S or self._best - offset > JUMP_S):
            self.restart()
        if arrival_s - self._window_start_s > WINDOW_S:
            self._before, self._offset = self._offset, math.inf
            self._window_start_s = arrival_s
        self._offset = min(self._offset, offset)
        self._last_remote_s = remote_s
        return remote_s + self._best

    def to_theirs(self, ours_s: float) -> float:
        """The source's clock at one of our times. Raises ValueError before the first message."""
        if not self.is_known:
            raise ValueError("nothing was heard from this clock yet")
        return ours_s - self._best
