"""Whether the gimbal stands, by its own attitude."""

from __future__ import annotations

import math
from collections import deque

from efftam_flight.angles import axis_direction, normalised, rotated, wrapped
from efftam_flight.attitude import VehicleHistory
from efftam_flight.values import AttitudeSample, VehicleSample, YawFrame

# It stands when its angles stayed within this for so long; at least so many attitudes say so, none later.
STANDS_S, SPREAD, LEAST = 0.5, math.radians(0.25), 3
# A slow link brings two attitudes a second: a longer pause is no word.
PAUSE_S = 0.6
# Rates that differ by half and by so much are not the same, rad/s.
OTHERWISE = math.radians(1.0)

# Mean rates of pitch, of yaw in the attitude's frame and in the other one, rad/s; NaN: not known.
Motion = tuple[float, float, float]


class Standstill:
    """The last second of the gimbal's angles. Times are steady ones, of arrival."""

    def __init__(self) -> None:
        self._vehicle = VehicleHistory()
        self._seen: deque[tuple[float, float, float, float]] = deque()  # when, pitch, yaw, the other yaw

    def turned(self, sample: VehicleSample) -> None:
        """The vehicle's heading: it tells the yaw of the frame that the attitude does not count in."""
        self._vehicle.add(sample)

    def take(self, sample: AttitudeSample, now_s: float) -> None:
        q = normalised(sample.q)
        if q is None:
            return
        yaw, pitch = axis_direction(q)
        if rotated(q, (0.0, 0.0, 1.0))[2] < 0.0:  # beyond the pole: turning on is no turning back
            yaw, pitch = yaw + math.pi, math.pi - pitch
        heading = self._vehicle.at(sample.stamp_ns)
        other = math.nan
        if heading is not None:
            other = yaw - heading if sample.yaw_frame is YawFrame.EARTH else yaw + heading
        self._seen.append((now_s, pitch, yaw, other))
        while now_s - self._seen[0][0] > 2 * STANDS_S:
            self._seen.popleft()

    def is_known(self, now_s: float) -> bool:
        return bool(self._seen) and now_s - self._seen[-1][0] <= PAUSE_S

    def reaches(self, since_s: float, now_s: float) -> bool:
        """Whether the last 0.5 s, all of it after ``since_s``, are known."""
        return len(self._window(since_s, now_s)) >= LEAST

    def stands(self, since_s: float, now_s: float) -> bool:
        """Whether it stood for all of the last 0.5 s, after ``since_s``. It stands towards the
        vehicle's nose or towards north: under a turning vehicle one of both angles turns."""
        seen = self._window(since_s, now_s)
        if len(seen) < LEAST:
            return False
        pitch, yaw, other = (_spread([angles[axis] for angles in seen]) for axis in (1, 2, 3))
        return pitch <= SPREAD and (yaw <= SPREAD or other <= SPREAD)

    def motion(self, since_s: float, now_s: float) -> Motion | None:
        """How it turned for the last 0.5 s after ``since_s``; None where it stood, or that is not known."""
        seen = self._window(since_s, now_s)
        if len(seen) < LEAST or self.stands(since_s, now_s):
            return None
        first, last = seen[0], seen[-1]
        pitch, yaw, other = (wrapped(last[axis] - first[axis]) / (last[0] - first[0]) for axis in (1, 2, 3))
        return pitch, yaw, other

    def _window(self, since_s: float, now_s: float) -> list[tuple[float, float, float, float]]:
        """What was seen in the last 0.5 s with one before; empty where that does not reach back so far."""
        after = [angles for angles in self._seen if angles[0] >= since_s]
        if not after or not self.is_known(now_s):
            return []
        # Counted from the newest: what a pause leaves of the last half second says nothing.
        older = [angles for angles in after if after[-1][0] - angles[0] >= STANDS_S]
        return after[len(older) - 1 :] if older else []


def _spread(angles: list[float]) -> float:
    """How far they lie from the first; infinite where one is not known."""
    if any(map(math.isnan, angles)):
        return math.inf
    return max(abs(wrapped(angle - angles[0])) for angle in angles)


def resembles(motion: Motion, wish: Motion) -> bool:
    """Whether they agree in pitch and in one of both frames of the yaw; what is not known does not."""
    pitch, yaw, other = (
        abs(rate - wished) <= max(0.5 * abs(wished), OTHERWISE)
        for rate, wished in zip(motion, wish, strict=True)
    )
    return pitch and (yaw or other)
