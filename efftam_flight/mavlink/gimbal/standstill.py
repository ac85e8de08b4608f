"""Whether the gimbal stands, by its own attitude."""

from __future__ import annotations

import math
from collections import deque
from itertools import pairwise

from efftam_flight.angles import axis_direction, normalised, rotated, wrapped
from efftam_flight.attitude import VehicleHistory
from efftam_flight.values import AttitudeSample, VehicleSample, YawFrame
from efftam_flight.waits import ATTITUDE_PAUSE_S, CREEP_S, LAG_S, STANDS_S

# It stands when its angles stay within this, rad, by at least so many attitudes.
SPREAD, MIN_SAMPLES = math.radians(0.25), 3
# How long angles are kept, s.
KEPT_S = CREEP_S + STANDS_S
# The last half second is compared in so many parts, where each has a few attitudes.
PARTS, MIN_SAMPLES_OF_PARTS = 4, 13
# Rates that differ by half and by so much are not the same, rad/s.
OTHERWISE = math.radians(1.0)

# Mean rates of pitch, of yaw in the attitude's frame and in the other one, rad/s; NaN: not known.
Motion = tuple[float, float, float]
Sample = tuple[float, float, float, float]  # when, pitch, yaw, yaw in the other frame


class GimbalMotion:
    """The gimbal's angles of the last seconds. Times are steady ones, of arrival."""

    def __init__(self) -> None:
        self._vehicle = VehicleHistory()
        self._seen: deque[Sample] = deque()

    def turned(self, sample: VehicleSample) -> None:
        """Add the vehicle's heading, which relates a yaw from north to one from the vehicle's nose."""
        self._vehicle.add(sample)

    def take(self, sample: AttitudeSample, now_s: float) -> None:
        q = normalised(sample.q)
        if q is None:
            return
        yaw, pitch = axis_direction(q)
        if rotated(q, (0.0, 0.0, 1.0))[2] < 0.0:  # beyond the pole: to keep turning is not to turn back
            yaw, pitch = yaw + math.pi, math.pi - pitch
        heading = self._vehicle.at(sample.stamp_ns)
        other = math.nan
        if heading is not None:
            other = yaw - heading if sample.yaw_frame is YawFrame.EARTH else yaw + heading
        self._seen.append((now_s, pitch, yaw, other))
        while now_s - self._seen[0][0] > KEPT_S:
            self._seen.popleft()

    def is_known(self, now_s: float) -> bool:
        return bool(self._seen) and now_s - self._seen[-1][0] <= ATTITUDE_PAUSE_S

    def reaches(self, since_s: float, now_s: float) -> bool:
        """Return whether the last 0.5 s, all of it after ``since_s``, are known."""
        return len(self._window(since_s, now_s)) >= MIN_SAMPLES

    def stands(self, since_s: float, now_s: float) -> bool:
        """Return whether it stood for all of the last 0.5 s, after ``since_s``. It stands towards the
        vehicle's nose or towards north: under a turning vehicle one of both angles turns."""
        seen = self._window(since_s, now_s)
        if len(seen) < MIN_SAMPLES:
            return False
        pitch, yaw, other = (_spread([angles[axis] for angles in seen]) for axis in (1, 2, 3))
        return pitch <= SPREAD and (yaw <= SPREAD or other <= SPREAD)

    def motion(self, since_s: float, now_s: float) -> Motion | None:
        """Return how it turned for the last 0.5 s after ``since_s``; None where it stood, or that is not
        known."""
        seen = self._window(since_s, now_s)
        if len(seen) < MIN_SAMPLES or self.stands(since_s, now_s):
            return None
        return _mean(seen[0], seen[-1])

    def parts(self, since_s: float, now_s: float) -> list[Motion]:
        """Return how it turned in each part of that half second; without the parts that begin while it
        changes over to the rate sent at ``since_s``. In one piece where attitudes come rarely."""
        seen = self._window(since_s, now_s)
        count = PARTS if len(seen) >= MIN_SAMPLES_OF_PARTS else 1
        borders = [round(i * (len(seen) - 1) / count) for i in range(count + 1)]
        return [
            _mean(seen[a], seen[b])
            for a, b in pairwise(borders)
            if count == 1 or seen[a][0] >= since_s + LAG_S
        ]

    def moved(self, since_s: float, now_s: float) -> Motion:
        """Return how it turned on average since then, as far back as its angles are kept."""
        after = [angles for angles in self._seen if angles[0] >= since_s]
        return _mean(after[0], after[-1])

    def _window(self, since_s: float, now_s: float) -> list[Sample]:
        """Return the samples of the last 0.5 s and the one before; empty where they do not reach back so
        far."""
        if not self.is_known(now_s):
            return []
        after = [
            angles for angles in self._seen if angles[0] >= max(since_s, self._seen[-1][0] - 2 * STANDS_S)
        ]
        if not after:
            return []
        # Counted from the newest: what a pause leaves of the last half second is too short.
        older = [angles for angles in after if after[-1][0] - angles[0] >= STANDS_S]
        return after[len(older) - 1 :] if older else []


def _mean(first: Sample, last: Sample) -> Motion:
    pitch, yaw, other = (wrapped(last[axis] - first[axis]) / (last[0] - first[0]) for axis in (1, 2, 3))
    return pitch, yaw, other


def _spread(angles: list[float]) -> float:
    """Return how far they lie from the first; infinite where one is not known."""
    if any(map(math.isnan, angles)):
        return math.inf
    return max(abs(wrapped(angle - angles[0])) for angle in angles)


def resembles(motion: Motion, wish: Motion, otherwise: float = OTHERWISE) -> bool:
    """Return whether they agree within half or within ``otherwise``, rad/s, in pitch and in one of both
    frames of the yaw; what is not known does not."""
    pitch, yaw, other = (
        abs(rate - wished) <= max(0.5 * abs(wished), otherwise)
        for rate, wished in zip(motion, wish, strict=True)
    )
    return pitch and (yaw or other)
