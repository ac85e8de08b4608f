"""Gives the camera's pose at the stamp of an image, from the autopilot's messages or from poses of the
camera.

Vectors are north, east, down, m. Attitudes transform from forward-right-down axes to north-east-down axes
(`efftam_flight.angles`).
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, replace
from typing import Generic, NamedTuple, Protocol, TypeVar

from efftam_flight.angles import (
    Vector,
    from_angles,
    interpolated,
    normalised,
    product,
    rotated,
    turn_between,
)
from efftam_flight.attitude import GimbalHistory, VehicleHistory
from efftam_flight.position.config import PositionConfig
from efftam_flight.position.geodesy import GeoPoint, LocalFrame
from efftam_flight.position.ground_filter import Height
from efftam_flight.values import NS, AttitudeSample, Quaternion, VehicleSample, YawFrame
from efftam_ros.core.reasons import Reason, ReasonCode
from efftam_ros.messages.positions import HeightSource

NAN = math.nan
KEPT_NS = 5 * NS
# Autopilots send their position five times a second. A position is extrapolated by its velocity for at most
# this time, ns.
CARRIED_NS = NS * 6 // 10
# Time between two attitudes whose difference gives the camera's angular velocity, ns.
TURN_NS = NS // 10
# Sine of the smallest angle below the horizon at which a range finder is assumed to measure the ground.
MIN_RANGE_SINE = math.sin(math.radians(5.0))


class CameraPose(NamedTuple):
    """The camera's pose and motion at one moment.

    ``place``: position in the local frame, m. ``velocity``: m/s. ``q``: attitude. ``turning``: angular
    velocity, rad/s. ``height``: height above the ground, None if unknown.
    """

    place: Vector
    velocity: Vector
    q: Quaternion
    turning: Vector
    height: Height | None


class CameraPoses(Protocol):
    """Interface of a source of camera poses."""

    @property
    def frame(self) -> LocalFrame | None:
        """The local frame with its origin on Earth; None if the origin is unknown."""

    def at(self, stamp_ns: int, ray: Vector) -> CameraPose | Reason:
        """Return the pose at a stamp, or the reason why it is unknown. ``ray``: direction to the target in
        the camera's forward-right-down axes. A source with terrain data computes the height where this ray
        meets the ground."""


@dataclass(frozen=True)
class PlaceSample:
    """The vehicle's position at one stamp.

    ``velocity``: north, east, down, m/s. ``height_above_home``, ``height_above_terrain`` (of the terrain
    below the vehicle) and ``range`` (along the camera's axis) are in m, and NaN if unknown.
    """

    stamp_ns: int
    point: GeoPoint
    velocity: Vector = (0.0, 0.0, 0.0)
    height_above_home: float = NAN
    height_above_terrain: float = NAN
    range: float = NAN

    @property
    def is_usable(self) -> bool:
        return self.point.is_place and all(map(math.isfinite, self.velocity))


class LocalSample(NamedTuple):
    """The camera's pose in a local frame at one stamp: position north, east, down, m, and attitude."""

    stamp_ns: int
    place: Vector
    q: Quaternion


S = TypeVar("S", PlaceSample, LocalSample)


class _PoseSamples(Generic[S]):
    """The samples of the last 5 s, in the order of their stamps."""

    def __init__(self) -> None:
        self._samples: deque[S] = deque()

    def add(self, sample: S) -> None:
        """Add a sample. A stamp that goes back removes all earlier samples, because the clock was set or a
        recording starts again. A sample with the stamp of the newest one is dropped."""
        if self._samples and sample.stamp_ns <= self._samples[-1].stamp_ns:
            if sample.stamp_ns == self._samples[-1].stamp_ns:
                return
            self._samples.clear()
        self._samples.append(sample)
        while sample.stamp_ns - self._samples[0].stamp_ns > KEPT_NS:
            self._samples.popleft()

    def around(self, stamp_ns: int) -> tuple[S, S] | None:
        """Return the samples before and after a stamp. For a stamp after the newest sample, return that
        sample twice. Return None if the stamp is before all samples, or more than `CARRIED_NS` after the
        newest."""
        if not self._samples or not (
            self._samples[0].stamp_ns <= stamp_ns <= self._samples[-1].stamp_ns + CARRIED_NS
        ):
            return None
        after = self._samples[-1]
        for before in reversed(self._samples):
            if before.stamp_ns <= stamp_ns:
                return before, after
            after = before
        return None


class VehiclePoses:
    """Camera poses from the vehicle's position and heading, and the gimbal's attitude or a fixed mounting.

    ``mount``: roll, pitch, yaw of a camera that is fixed to the vehicle, rad; None for a camera on a gimbal.
    The origin of the local frame is below or at the first position: at the height of home, if that is known.
    """

    def __init__(self, config: PositionConfig, mount: Vector | None = None) -> None:
        self._config = config
        self._mount = None if mount is None else from_angles(*mount)
        self._gimbal, self._vehicle = GimbalHistory(), VehicleHistory()
        self._places: _PoseSamples[PlaceSample] = _PoseSamples()
        self._frame: LocalFrame | None = None

    @property
    def frame(self) -> LocalFrame | None:
        return self._frame

    def add_gimbal(self, sample: AttitudeSample) -> bool:
        """Add the gimbal's attitude. Return False, and drop it, if its quaternion is no rotation."""
        return self._gimbal.add(sample)

    def add_vehicle(self, sample: VehicleSample) -> bool:
        """Add the vehicle's heading and tilt. Return False, and drop them, if a number is not finite."""
        return self._vehicle.add(sample)

    def add_place(self, sample: PlaceSample) -> bool:
        """Add the vehicle's position. Return False, and drop it, if it is no place on Earth."""
        if not sample.is_usable:
            return False
        if self._frame is None:
            home = sample.height_above_home if math.isfinite(sample.height_above_home) else 0.0
            self._frame = LocalFrame(replace(sample.point, altitude=sample.point.altitude - home))
        self._places.add(sample)
        return True

    def at(self, stamp_ns: int, ray: Vector) -> CameraPose | Reason:
        q = self._attitude(stamp_ns)
        if q is None:
            return ReasonCode.POSITION_NO_ATTITUDE.reason()
        found = self._places.around(stamp_ns)
        if found is None or self._frame is None:
            return ReasonCode.POSITION_NO_PLACE.reason()
        before, after = found
        place, velocity = self._carried(before, after, stamp_ns)
        earlier = self._attitude(stamp_ns - TURN_NS)
        turning = (0.0, 0.0, 0.0) if earlier is None else turn_between(earlier, q, TURN_NS / NS)
        # The heights above home and terrain are those at the stamp of `before`. The vehicle has climbed
        # since.
        climbed = -(place[2] - self._local(before)[2])
        return CameraPose(place, velocity, q, turning, self._height(before, climbed, q))

    def _attitude(self, stamp_ns: int) -> Quaternion | None:
        """Return the camera's attitude with yaw from north; None if unknown."""
        if self._mount is not None:
            vehicle = self._vehicle.attitude_at(stamp_ns)
            return None if vehicle is None else product(vehicle, self._mount)
        q = self._gimbal.at(stamp_ns)
        if q is None or self._gimbal.yaw_frame is YawFrame.EARTH:
            return q
        heading = self._vehicle.at(stamp_ns)
        return None if heading is None else product(from_angles(0.0, 0.0, heading), q)

    def _local(self, sample: PlaceSample) -> Vector:
        assert self._frame is not None
        north, east, up = self._frame.to_local(sample.point)
        return north, east, -up

    def _carried(self, before: PlaceSample, after: PlaceSample, stamp_ns: int) -> tuple[Vector, Vector]:
        """Return place and velocity at a stamp, interpolated between two samples. If both are the newest
        sample, extrapolate by its velocity."""
        start = self._local(before)
        if after is before:
            dt = (stamp_ns - before.stamp_ns) / NS
            return moved(start, before.velocity, dt), before.velocity
        share = (stamp_ns - before.stamp_ns) / (after.stamp_ns - before.stamp_ns)
        return between(start, self._local(after), share), between(before.velocity, after.velocity, share)

    def _height(self, sample: PlaceSample, climbed: float, q: Quaternion) -> Height | None:
        """Return the best known height above the ground: from the range, else from the terrain, else from
        home. Return None if all are unknown. ``climbed``: climb of the vehicle since the sample, m."""
        config, axis = self._config, rotated(q, (1.0, 0.0, 0.0))
        if sample.range > 0.0 and math.isfinite(sample.range) and axis[2] > MIN_RANGE_SINE:
            value, error = sample.range * axis[2], config.range_error * axis[2]
            return Height(value, error, HeightSource.RANGE, sample.range, axis)
        for value, error, source in (
            (sample.height_above_terrain, config.terrain_error, HeightSource.TERRAIN),
            (sample.height_above_home, config.home_error, HeightSource.HOME),
        ):
            if math.isfinite(value):
                return Height(value + climbed, error, source)
        return None


class LocalPoses:
    """Camera poses that are measured in a local frame, by visual odometry, motion capture or a simulator.

    ``origin``: the frame's origin on Earth, None if unknown. ``ground``: height of the ground in the frame,
    m.
    """

    def __init__(self, config: PositionConfig, origin: GeoPoint | None = None, ground: float = 0.0) -> None:
        self._config, self._ground = config, ground
        self._frame = None if origin is None else LocalFrame(origin)
        self._samples: _PoseSamples[LocalSample] = _PoseSamples()

    @property
    def frame(self) -> LocalFrame | None:
        return self._frame

    def add(self, sample: LocalSample) -> bool:
        """Add a pose. Return False, and drop it, if its position is not finite or its quaternion is no
        rotation."""
        q = normalised(sample.q)
        if q is None or not all(map(math.isfinite, sample.place)):
            return False
        self._samples.add(sample._replace(q=q))
        return True

    def at(self, stamp_ns: int, ray: Vector) -> CameraPose | Reason:
        found = self._samples.around(stamp_ns)
        if found is None:
            return ReasonCode.POSITION_NO_PLACE.reason()
        before, after = found
        if after is before:
            earlier = self._samples.around(before.stamp_ns - 1)
            if earlier is None:
                return self._pose(before.place, (0.0, 0.0, 0.0), before.q, (0.0, 0.0, 0.0))
            before, after = earlier
        span_s = (after.stamp_ns - before.stamp_ns) / NS
        share = (stamp_ns - before.stamp_ns) / (after.stamp_ns - before.stamp_ns)
        velocity = _scaled(moved(after.place, before.place, -1.0), 1.0 / span_s)
        return self._pose(
            between(before.place, after.place, share),
            velocity,
            interpolated(before.q, after.q, share),
            turn_between(before.q, after.q, span_s),
        )

    def _pose(self, place: Vector, velocity: Vector, q: Quaternion, turning: Vector) -> CameraPose:
        height = Height(-place[2] - self._ground, self._config.home_error, HeightSource.LOCAL)
        return CameraPose(place, velocity, q, turning, height)


def moved(place: Vector, velocity: Vector, dt: float) -> Vector:
    """Return the place that is reached from ``place`` after ``dt`` s at this velocity."""
    return place[0] + dt * velocity[0], place[1] + dt * velocity[1], place[2] + dt * velocity[2]


def _scaled(v: Vector, by: float) -> Vector:
    return v[0] * by, v[1] * by, v[2] * by


def between(a: Vector, b: Vector, share: float) -> Vector:
    """Interpolate linearly from ``a`` (share 0) to ``b`` (share 1)."""
    return moved(a, moved(b, a, -1.0), share)
