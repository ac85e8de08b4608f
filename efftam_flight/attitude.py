"""The last second of attitudes, read at any stamp: the gimbal's and the vehicle's heading.

An image shows the world as the gimbal pointed when it was taken; by the time its answer arrives the gimbal
has moved on. So attitudes are kept and interpolated at the image's stamp.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import replace
from typing import Generic, TypeVar

from efftam_flight.angles import from_angles, interpolated, normalised, wrapped
from efftam_flight.values import NS, AttitudeSample, Quaternion, VehicleSample, YawFrame

KEPT_NS = NS
# How far a motion is extrapolated beyond its newest sample; beyond, the rate of two samples is too uncertain.
EXTRAPOLATED_NS = NS // 10
# How far a heading is carried on by the yaw rate that came with it.
BRIDGED_NS = NS * 3 // 10
# Apart at least, for a rate between two samples: their stamps are rounded to milliseconds.
RATE_SPAN_NS = NS * 15 // 1000


T = TypeVar("T", AttitudeSample, VehicleSample)


class _History(Generic[T]):
    """Samples of the last second in order of their stamps."""

    def __init__(self) -> None:
        self._samples: deque[T] = deque()

    @property
    def newest(self) -> T | None:
        return self._samples[-1] if self._samples else None

    def clear(self) -> None:
        self._samples.clear()

    def _append(self, sample: T) -> None:
        """Add a sample. A stamp older than the last one clears the history; an equal one is dropped."""
        if self._samples and sample.stamp_ns <= self._samples[-1].stamp_ns:
            if sample.stamp_ns == self._samples[-1].stamp_ns:
                return
            self._samples.clear()
        self._samples.append(sample)
        while sample.stamp_ns - self._samples[0].stamp_ns > KEPT_NS:
            self._samples.popleft()

    def _around(self, stamp_ns: int) -> tuple[T, T, float] | None:
        """Two samples and the share of the way between them; above 1 shortly after the newest. None where
        the stamp is older than all, or too far after the newest."""
        if not self._samples or not (
            self._samples[0].stamp_ns <= stamp_ns <= self._samples[-1].stamp_ns + EXTRAPOLATED_NS
        ):
            return None
        after = self._samples[-1]
        span = RATE_SPAN_NS if stamp_ns > after.stamp_ns else 0
        for before in reversed(self._samples):
            if before is self._samples[-1]:
                continue
            if before.stamp_ns <= stamp_ns and after.stamp_ns - before.stamp_ns >= span:
                return before, after, (stamp_ns - before.stamp_ns) / (after.stamp_ns - before.stamp_ns)
            if not span:
                after = before
        return after, after, 0.0


class GimbalHistory(_History[AttitudeSample]):
    def add(self, sample: AttitudeSample) -> bool:
        """Add a sample; False when its quaternion is no rotation. Another yaw frame clears the history."""
        q = normalised(sample.q)
        if q is None:
            return False
        newest = self.newest
        if newest is not None and newest.yaw_frame is not sample.yaw_frame:
            self.clear()
        self._append(replace(sample, q=q))
        return True

    def at(self, stamp_ns: int) -> Quaternion | None:
        """Return the attitude at a stamp, None where it is not known."""
        found = self._around(stamp_ns)
        return None if found is None else interpolated(found[0].q, found[1].q, found[2])

    @property
    def yaw_frame(self) -> YawFrame | None:
        return None if self.newest is None else self.newest.yaw_frame


class VehicleHistory(_History[VehicleSample]):
    def add(self, sample: VehicleSample) -> bool:
        """Add a sample; False when a number in it is not finite."""
        if not all(map(math.isfinite, sample[1:])):
            return False
        # A finite number may still be too large for differences.
        self._append(sample._replace(yaw=wrapped(sample.yaw)))
        return True

    def at(self, stamp_ns: int) -> float | None:
        """Return the heading at a stamp, rad, None where it is not known."""
        newest = self.newest
        if newest is not None and 0 <= stamp_ns - newest.stamp_ns <= BRIDGED_NS:
            return wrapped(newest.yaw + newest.yaw_rate * (stamp_ns - newest.stamp_ns) / NS)
        found = self._around(stamp_ns)
        if found is None:
            return None
        before, after, share = found
        return wrapped(before.yaw + share * wrapped(after.yaw - before.yaw))

    def attitude_at(self, stamp_ns: int) -> Quaternion | None:
        """Return the vehicle's attitude from north at a stamp, None where it is not known."""
        heading, newest = self.at(stamp_ns), self.newest
        if heading is None or newest is None:
            return None
        # After the newest sample its tilt stays: nobody sends how fast it changes.
        found = self._around(min(stamp_ns, newest.stamp_ns))
        assert found is not None
        before, after, share = found
        roll = before.roll + share * wrapped(after.roll - before.roll)
        pitch = before.pitch + share * (after.pitch - before.pitch)
        return from_angles(roll, pitch, heading)
