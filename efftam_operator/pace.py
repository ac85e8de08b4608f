"""How large the next picture for a page may be, from the page's acknowledgements alone."""

from __future__ import annotations

import math
from collections import deque

MAX_UNACKNOWLEDGED = 2
# A level is a JPEG quality and a width, px: quality is given up first, then size by half a step, both sides
# by the square root of 2. A picture is never enlarged.
LEVELS = (
    *((quality, 1 << 16) for quality in (100, 50, 35)),
    *((35, round(320 * 2 ** (k / 2))) for k in range(8, -3, -1)),
)
WHOLE = 2  # up to this level pictures have the camera's size
FLOOR = LEVELS.index((35, 320))
# Longest time that a picture may occupy the link: ten a second; below `FLOOR` only beyond the other.
WANTED_S, CARRIED_S = 0.1, 0.7
# Two of the last three pictures decide. A step up is taken so long after another step at the earliest, s.
LOOKED_AT, AGREED = 3, 2
UP_S = 0.25
# Assumed growth of a picture's bytes from one quality or size to the next larger one, before it was measured.
USUAL_RATIOS = (1.4, 2.0)


class Pace:
    """One page's link. ``now_s`` of every call: one monotonic clock. ``level``: index in `LEVELS` of the next
    picture.

    Bounding what is under way bounds the delay: whatever the socket and the network would buffer, the newest
    picture waits for two others at most. What is measured is how long a picture occupies the link: its way
    without the link's own delay and without waiting behind another. As in TCP, pictures start small and grow
    with each quick answer; later a median decides, so that one outlier changes nothing.
    """

    def __init__(self) -> None:
        self.level = FLOOR
        self.newest_seq = 0
        self._delay_s = math.inf  # of the link: the least way seen
        self._under_way: deque[tuple[int, float]] = deque()
        self._taken_s: deque[float] = deque(maxlen=LOOKED_AT)
        self._acknowledged_s = self._changed_s = -math.inf
        self._is_starting = True
        self._whole_px = self._nbytes = 0
        # By level: how much longer its pictures are than those of the next.
        self._ratios: dict[int, float] = {}
        self._left: tuple[int, int] | None = None  # level and length of the last picture before a change

    @property
    def is_slow(self) -> bool:
        """Whether one picture at a time is all that the link can take."""
        return bool(self._taken_s) and self._taken_s[-1] > WANTED_S

    @property
    def is_thin(self) -> bool:
        """Whether what comes more often than pictures would take room from them."""
        return self.is_slow or (self.level > WHOLE and not self._is_starting)

    @property
    def is_ready(self) -> bool:
        return len(self._under_way) < (1 if self.is_slow else MAX_UNACKNOWLEDGED)

    @property
    def is_under_way(self) -> bool:
        """Whether a picture was sent and not acknowledged yet."""
        return bool(self._under_way)

    def greeted(self, way_s: float) -> None:
        """Note how long a short message to the page and its answer took."""
        self._delay_s = min(self._delay_s, way_s)

    def sent(self, seq: int, nbytes: int, whole_px: int, now_s: float) -> None:
        """Note that a picture of the present level was sent; ``whole_px``: width of the camera's, 0 where
        that is not known."""
        if self._left is not None:
            level, length = self._left
            ratio = length / nbytes if level < self.level else nbytes / length
            self._ratios[min(level, self.level)] = max(1.0, ratio)
            self._left = None
        self._under_way.append((seq, now_s))
        self.newest_seq, self._nbytes = seq, nbytes
        self._whole_px = whole_px or self._whole_px

    def acknowledged(self, seq: int, now_s: float) -> None:
        """Note that the page has handled picture ``seq`` and all before it. Numbers never sent change
        nothing."""
        if all(seq != sent for sent, _ in self._under_way):
            return
        sent, sent_s = self._under_way.popleft()
        while sent != seq:
            sent, sent_s = self._under_way.popleft()
        self._delay_s = min(self._delay_s, now_s - sent_s)
        taken_s = min(now_s - sent_s - self._delay_s, now_s - self._acknowledged_s)
        self._acknowledged_s = now_s
        if sent_s < self._changed_s:  # of an older level
            return
        self._taken_s.append(taken_s)
        if sum(taken > _most_s(self.level) for taken in self._taken_s) >= AGREED:
            self._is_starting = False
            self._change(self._beside(self.level, 1), now_s)
            self._taken_s.append(taken_s)  # one more slow picture is one more step
        elif (level := self._grown(now_s)) != self.level:
            self._change(level, now_s)
        elif len(self._taken_s) == LOOKED_AT:
            self._is_starting = False

    def _grown(self, now_s: float) -> int:
        """Return the level for which the measured link has room: half a step up, several at the start."""
        level, taken_s = self.level, sorted(self._taken_s)[len(self._taken_s) // 2]
        if not self._is_starting and (len(self._taken_s) < AGREED or now_s - self._changed_s < UP_S):
            return level
        while (larger := self._beside(level, -1)) != level:
            taken_s *= self._ratios.get(larger, USUAL_RATIOS[level > WHOLE])
            if taken_s > 0.9 * _most_s(larger):
                break
            level = larger
            if not self._is_starting:
                break
        return level

    def _beside(self, level: int, step: int) -> int:
        """Return the next level that makes another picture of the camera's; the given one where there is
        none."""
        beside = level + step
        while WHOLE < beside < len(LEVELS) and LEVELS[beside][1] > 0.95 * self._whole_px:
            beside += step
        return beside if 0 <= beside < len(LEVELS) else level

    def _change(self, level: int, now_s: float) -> None:
        if level != self.level and level in (self._beside(self.level, 1), self._beside(self.level, -1)):
            self._left = self.level, self._nbytes
        self.level, self._changed_s = level, now_s
        self._taken_s.clear()


def _most_s(level: int) -> float:
    """Return how long a picture of this level may occupy the link before smaller ones are sent."""
    return WANTED_S if level < FLOOR else CARRIED_S
