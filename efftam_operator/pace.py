"""Chooses the size and quality of the next picture for a page, from the page's acknowledgements alone."""

from __future__ import annotations

import math
from collections import deque

MAX_UNACKNOWLEDGED = 2
# A level is a JPEG quality and a largest width, px. Along the levels first the quality falls; then both sides
# shrink by the square root of 2 from each level to the next. A picture is never enlarged.
LEVELS = (
    *((quality, 1 << 16) for quality in (100, 50, 35)),
    *((35, round(320 * 2 ** (k / 2))) for k in range(8, -3, -1)),
)
WHOLE = 2  # last index in LEVELS at which pictures have the camera's full size
FLOOR = LEVELS.index((35, 320))
# Longest time that one picture may occupy the link, s. WANTED_S, which allows ten pictures a second, holds
# for pictures larger than level FLOOR. CARRIED_S holds for FLOOR and smaller pictures, so that a slow link
# still carries a picture.
WANTED_S, CARRIED_S = 0.1, 0.7
# The level falls when AGREED of the last LOOKED_AT pictures were slow. It rises at the earliest UP_S seconds
# after the last change.
LOOKED_AT, AGREED = 3, 2
UP_S = 0.25
# Assumed ratio of a picture's bytes to those at the next smaller level, before it was measured: for a level
# that differs in quality, and for one that differs in size.
USUAL_RATIOS = (1.4, 2.0)


class Pace:
    """Measures the link to one page, and chooses the level of the next picture.

    At most `MAX_UNACKNOWLEDGED` pictures are under way, which bounds the delay: the newest picture waits for
    two others at most, however much the socket and the network could buffer. The measured quantity is how
    long a picture occupies the link: the time from sending to acknowledgement, without the link's own delay
    and without the time that the picture waits for an earlier one. As in TCP, pictures start small and grow
    with each quick acknowledgement. Later the median of several pictures decides, so that one outlier changes
    nothing.

    ``level``: index in `LEVELS` of the next picture. ``newest_seq``: number of the last picture sent.
    ``now_s`` of every method comes from one monotonic clock.
    """

    def __init__(self) -> None:
        self.level = FLOOR
        self.newest_seq = 0
        self._delay_s = math.inf  # the link's own delay: the shortest time from sending to acknowledgement
        self._under_way: deque[tuple[int, float]] = deque()
        self._taken_s: deque[float] = deque(maxlen=LOOKED_AT)
        self._acknowledged_s = self._changed_s = -math.inf
        self._is_starting = True
        self._whole_px = self._nbytes = 0
        # By level: ratio of a picture's bytes at this level to the bytes at the next smaller one.
        self._ratios: dict[int, float] = {}
        # Level and bytes of the last picture before the level changed. None once the next picture is sent.
        self._left: tuple[int, int] | None = None

    @property
    def is_slow(self) -> bool:
        """Whether the last picture occupied the link for more than `WANTED_S`.

        If so, only one picture at a time is sent.
        """
        return bool(self._taken_s) and self._taken_s[-1] > WANTED_S

    @property
    def is_thin(self) -> bool:
        """Whether the link is so slow that messages between pictures would slow the pictures down."""
        return self.is_slow or (self.level > WHOLE and not self._is_starting)

    @property
    def is_ready(self) -> bool:
        """Whether another picture may be sent now."""
        return len(self._under_way) < (1 if self.is_slow else MAX_UNACKNOWLEDGED)

    @property
    def is_under_way(self) -> bool:
        """Whether a picture was sent that is not acknowledged yet."""
        return bool(self._under_way)

    def greeted(self, way_s: float) -> None:
        """Note that the page answered a short message after ``way_s`` seconds."""
        self._delay_s = min(self._delay_s, way_s)

    def sent(self, seq: int, nbytes: int, whole_px: int, now_s: float) -> None:
        """Note that picture ``seq`` was sent at the current level.

        ``whole_px``: width of the camera's image, px; 0: unknown.
        """
        if self._left is not None:
            level, length = self._left
            ratio = length / nbytes if level < self.level else nbytes / length
            self._ratios[min(level, self.level)] = max(1.0, ratio)
            self._left = None
        self._under_way.append((seq, now_s))
        self.newest_seq, self._nbytes = seq, nbytes
        self._whole_px = whole_px or self._whole_px

    def acknowledged(self, seq: int, now_s: float) -> None:
        """Note that the page has handled picture ``seq`` and all before it; adapt the level.

        A number that is not under way is ignored.
        """
        if all(seq != sent for sent, _ in self._under_way):
            return
        sent, sent_s = self._under_way.popleft()
        while sent != seq:
            sent, sent_s = self._under_way.popleft()
        self._delay_s = min(self._delay_s, now_s - sent_s)
        taken_s = min(now_s - sent_s - self._delay_s, now_s - self._acknowledged_s)
        self._acknowledged_s = now_s
        if sent_s < self._changed_s:  # sent before the last change of the level
            return
        self._taken_s.append(taken_s)
        if sum(taken > _most_s(self.level) for taken in self._taken_s) >= AGREED:
            self._is_starting = False
            self._change(self._beside(self.level, 1), now_s)
            # This slow picture also counts at the new level, so one more slow picture lowers the level again.
            self._taken_s.append(taken_s)
        elif (level := self._grown(now_s)) != self.level:
            self._change(level, now_s)
        elif len(self._taken_s) == LOOKED_AT:
            self._is_starting = False

    def _grown(self, now_s: float) -> int:
        """Return a level with larger pictures for which the link is fast enough, else the current level.

        At the start the step may be several levels, later it is one.
        """
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
        """Return the nearest level in the direction ``step`` that changes the picture, else ``level``.

        Levels that are not clearly smaller than the camera's image are skipped: they would not reduce it.
        """
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
