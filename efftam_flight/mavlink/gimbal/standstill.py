"""Decides from the gimbal's attitudes whether the gimbal stands, and how it turns."""

from __future__ import annotations

import math
from collections import deque
from itertools import pairwise

from efftam_flight.angles import axis_direction, normalised, rotated, wrapped
from efftam_flight.attitude import VehicleHistory
from efftam_flight.values import AttitudeSample, VehicleSample, YawFrame
from efftam_flight.waits import ATTITUDE_PAUSE_S, CREEP_S, LAG_S, STANDS_S

# The gimbal stands if its angles stay within SPREAD (rad) in at least MIN_SAMPLES attitudes.
SPREAD, MIN_SAMPLES = math.radians(0.25), 3
# How long angles are stored, s.
KEPT_S = CREEP_S + STANDS_S
# The gimbal's motion is computed for PARTS equal parts of the last half second, if at least
# MIN_SAMPLES_OF_PARTS attitudes arrived in this time. Otherwise it is computed for the whole half second.
PARTS, MIN_SAMPLES_OF_PARTS = 4, 13
# Two rates are different if their difference is more than half of the wished rate, and more than this, rad/s.
OTHERWISE = math.radians(1.0)

# Mean rates, rad/s: of pitch, of yaw in the attitude's yaw frame, of yaw in the other yaw frame. NaN:
# unknown.
Motion = tuple[float, float, float]
# Arrival in s, pitch, yaw in the attitude's yaw frame, yaw in the other yaw frame (NaN: unknown), rad.
Sample = tuple[float, float, float, float]


class GimbalMotion:
    """Stores the gimbal's angles of the last seconds. Times are arrival times on a steady clock, s."""

    def __init__(self) -> None:
        self._vehicle = VehicleHistory()
        self._seen: deque[Sample] = deque()

    def turned(self, sample: VehicleSample) -> None:
        """Add the vehicle's heading. It is needed to convert between yaw from north and yaw from the
        vehicle's nose."""
        self._vehicle.add(sample)

    def take(self, sample: AttitudeSample, now_s: float) -> None:
        q = normalised(sample.q)
        if q is None:
            return
        yaw, pitch = axis_direction(q)
        # A camera that tilts beyond straight down is upside down. Its pitch counts on beyond 90 degrees,
        # since otherwise it would seem to turn back.
        if rotated(q, (0.0, 0.0, 1.0))[2] < 0.0:
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
        """Return whether enough attitudes of the last 0.5 s are stored to judge the gimbal's motion. All of
        this time must be after ``since_s``."""
        return len(self._window(since_s, now_s)) >= MIN_SAMPLES

    def stands(self, since_s: float, now_s: float) -> bool:
        """Return whether the gimbal stood for all of the last 0.5 s, which must be after ``since_s``. Yaw
        needs to stand in one yaw frame only, from north or from the vehicle's nose: on a turning vehicle it
        can't stand in both."""
        seen = self._window(since_s, now_s)
        if len(seen) < MIN_SAMPLES:
            return False
        pitch, yaw, other = (_spread([angles[axis] for angles in seen]) for axis in (1, 2, 3))
        return pitch <= SPREAD and (yaw <= SPREAD or other <= SPREAD)

    def motion(self, since_s: float, now_s: float) -> Motion | None:
        """Return the gimbal's mean motion in the last 0.5 s, which must be after ``since_s``. Return None if
        the gimbal stood, or if its motion is unknown."""
        seen = self._window(since_s, now_s)
        if len(seen) < MIN_SAMPLES or self.stands(since_s, now_s):
            return None
        return _mean(seen[0], seen[-1])

    def parts(self, since_s: float, now_s: float) -> list[Motion]:
        """Return the mean motion in each quarter of the last 0.5 s. Quarters that begin less than `LAG_S`
        after ``since_s`` are left out, because the gimbal may still be changing to the rate sent then. If
        attitudes arrive rarely, return one motion for the whole period."""
        seen = self._window(since_s, now_s)
        count = PARTS if len(seen) >= MIN_SAMPLES_OF_PARTS else 1
        borders = [round(i * (len(seen) - 1) / count) for i in range(count + 1)]
        return [
            _mean(seen[a], seen[b])
            for a, b in pairwise(borders)
            if count == 1 or seen[a][0] >= since_s + LAG_S
        ]

    def moved(self, since_s: float, now_s: float) -> Motion:
        """Return the mean motion since ``since_s``, or since the oldest stored angles if they are later."""
        after = [angles for angles in self._seen if angles[0] >= since_s]
        return _mean(after[0], after[-1])

    def _window(self, since_s: float, now_s: float) -> list[Sample]:
        """Return the samples of the last 0.5 s and the one before them, all after ``since_s``. Return an
        empty list if the samples do not reach back that far."""
        if not self.is_known(now_s):
            return []
        after = [
            angles for angles in self._seen if angles[0] >= max(since_s, self._seen[-1][0] - 2 * STANDS_S)
        ]
        if not after:
            return []
        # The returned half second ends at the newest sample. If it ended at the present time, it would
        # contain too few samples after a pause.
        older = [angles for angles in after if after[-1][0] - angles[0] >= STANDS_S]
        return after[len(older) - 1 :] if older else []


def _mean(first: Sample, last: Sample) -> Motion:
    pitch, yaw, other = (wrapped(last[axis] - first[axis]) / (last[0] - first[0]) for axis in (1, 2, 3))
    return pitch, yaw, other


def _spread(angles: list[float]) -> float:
    """Return the largest difference of an angle from the first one, rad; infinite if an angle is NaN."""
    if any(map(math.isnan, angles)):
        return math.inf
    return max(abs(wrapped(angle - angles[0])) for angle in angles)


def resembles(motion: Motion, wish: Motion, otherwise: float = OTHERWISE) -> bool:
    """Return whether a motion agrees with a wished motion, in pitch and in at least one of the two yaw
    frames.

    Two rates agree if they differ by at most half of the wished rate or by at most ``otherwise``, rad/s. An
    unknown rate (NaN) agrees with none.
    """
    pitch, yaw, other = (
        abs(rate - wished) <= max(0.5 * abs(wished), otherwise)
        for rate, wished in zip(motion, wish, strict=True)
    )
    return pitch and (yaw or other)
