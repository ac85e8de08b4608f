"""Histories of the gimbal's and of the vehicle's attitude over the last second, read at any stamp.

An image was taken with the attitude that the gimbal had at the image's stamp. When the tracker's answer for
this image arrives, the gimbal has turned further. So attitudes are stored and interpolated at the image's
stamp.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import replace
from typing import Generic, TypeVar

from efftam_flight.angles import from_angles, interpolated, normalised, wrapped
from efftam_flight.values import NS, AttitudeSample, Quaternion, VehicleSample, YawFrame

KEPT_NS = NS
# How far the gimbal's attitude is extrapolated beyond the newest sample, ns. For a longer time the angular
# rate, which comes from two samples, is too uncertain.
EXTRAPOLATED_NS = NS // 10
# How far the vehicle's heading is extrapolated beyond the newest sample, ns, by the yaw rate in this sample.
BRIDGED_NS = NS * 3 // 10
# Least time between two samples from which an angular rate is computed, ns. Stamps are rounded to
# milliseconds, so a rate over a shorter time would have a large error.
RATE_SPAN_NS = NS * 15 // 1000


T = TypeVar("T", AttitudeSample, VehicleSample)


class _History(Generic[T]):
    """The samples of the last second, in the order of their stamps."""

    def __init__(self) -> None:
        self._samples: deque[T] = deque()

    @property
    def newest(self) -> T | None:
        return self._samples[-1] if self._samples else None

    def clear(self) -> None:
        self._samples.clear()

    def _append(self, sample: T) -> None:
        """Add a sample. A stamp older than the newest one clears the history first. A sample with the stamp
        of the newest one is dropped."""
        if self._samples and sample.stamp_ns <= self._samples[-1].stamp_ns:
            if sample.stamp_ns == self._samples[-1].stamp_ns:
                return
            self._samples.clear()
        self._samples.append(sample)
        while sample.stamp_ns - self._samples[0].stamp_ns > KEPT_NS:
            self._samples.popleft()

    def _around(self, stamp_ns: int) -> tuple[T, T, float] | None:
        """Return the two samples from which the value at a stamp is interpolated or extrapolated, and the
        share of the second sample: 0 at the first sample, 1 at the second one, above 1 after the second one.
        Return None if the stamp is before the oldest sample, or more than `EXTRAPOLATED_NS` after the newest
        one."""
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
        """Add a sample. Return False, and drop the sample, when its quaternion is no rotation. A sample whose
        yaw frame differs from the last one's clears the history first."""
        q = normalised(sample.q)
        if q is None:
            return False
        newest = self.newest
        if newest is not None and newest.yaw_frame is not sample.yaw_frame:
            self.clear()
        self._append(replace(sample, q=q))
        return True

    def at(self, stamp_ns: int) -> Quaternion | None:
        """Return the gimbal's attitude at a stamp; None where no samples are near enough."""
        found = self._around(stamp_ns)
        return None if found is None else interpolated(found[0].q, found[1].q, found[2])

    @property
    def yaw_frame(self) -> YawFrame | None:
        return None if self.newest is None else self.newest.yaw_frame


class VehicleHistory(_History[VehicleSample]):
    def add(self, sample: VehicleSample) -> bool:
        """Add a sample. Return False, and drop the sample, when a number in it is not finite."""
        if not all(map(math.isfinite, sample[1:])):
            return False
        # Wrapped, because the difference of two huge finite angles would be inexact.
        self._append(sample._replace(yaw=wrapped(sample.yaw)))
        return True

    def at(self, stamp_ns: int) -> float | None:
        """Return the vehicle's heading from north at a stamp, rad; None where no samples are near enough."""
        newest = self.newest
        if newest is not None and 0 <= stamp_ns - newest.stamp_ns <= BRIDGED_NS:
            return wrapped(newest.yaw + newest.yaw_rate * (stamp_ns - newest.stamp_ns) / NS)
        found = self._around(stamp_ns)
        if found is None:
            return None
        before, after, share = found
        return wrapped(before.yaw + share * wrapped(after.yaw - before.yaw))

    def attitude_at(self, stamp_ns: int) -> Quaternion | None:
        """Return the vehicle's attitude at a stamp, with yaw from north; None where the heading is
        unknown."""
        heading, newest = self.at(stamp_ns), self.newest
        if heading is None or newest is None:
            return None
        # Roll and pitch are not extrapolated: samples carry no roll rate and no pitch rate.
        found = self._around(min(stamp_ns, newest.stamp_ns))
        assert found is not None
        before, after, share = found
        roll = before.roll + share * wrapped(after.roll - before.roll)
        pitch = before.pitch + share * (after.pitch - before.pitch)
        return from_angles(roll, pitch, heading)
