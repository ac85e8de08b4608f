"""Where the camera was and how it looked when an image was taken: by the autopilot, or by poses of its own.

Vectors are north, east, down, m; attitudes turn forward-right-down axes into them (`efftam_flight.angles`).
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
# Autopilots send their position five times a second; it is carried on by its velocity for so long.
CARRIED_NS = NS * 6 // 10
# Time between two attitudes whose difference gives the camera's turning.
TURN_NS = NS // 10
# A range finder that looks this little downwards measures no ground.
MIN_RANGE_SINE = math.sin(math.radians(5.0))


class CameraPose(NamedTuple):
    """The camera at one moment. ``place``, ``velocity``: m, m/s in the local frame; ``turning``: its angular
    velocity, rad/s; ``height``: above the ground, None where it is not known."""

    place: Vector
    velocity: Vector
    q: Quaternion
    turning: Vector
    height: Height | None


class CameraPoses(Protocol):
    """Where poses come from."""

    @property
    def frame(self) -> LocalFrame | None:
        """The local frame on Earth, None where that is not known."""

    def at(self, stamp_ns: int, ray: Vector) -> CameraPose | Reason:
        """Return the pose at a stamp, or what is missing. ``ray``: in which direction the ground is looked
        for, forward, right, down of the camera."""


@dataclass(frozen=True)
class PlaceSample:
    """The vehicle's position at a stamp. ``velocity``: north, east, down, m/s. The heights above home and
    above the terrain below it, and the ``range`` along the camera's axis, are in m and NaN where they are not
    known."""

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
    """A camera's pose in a local frame at a stamp."""

    stamp_ns: int
    place: Vector
    q: Quaternion


S = TypeVar("S", PlaceSample, LocalSample)


class _PoseSamples(Generic[S]):
    """Samples of the last seconds in order of their stamps."""

    def __init__(self) -> None:
        self._samples: deque[S] = deque()

    def add(self, sample: S) -> None:
        """Add a sample. A stamp that goes back clears the others: the clock was set, or a recording begins
        again."""
        if self._samples and sample.stamp_ns <= self._samples[-1].stamp_ns:
            if sample.stamp_ns == self._samples[-1].stamp_ns:
                return
            self._samples.clear()
        self._samples.append(sample)
        while sample.stamp_ns - self._samples[0].stamp_ns > KEPT_NS:
            self._samples.popleft()

    def around(self, stamp_ns: int) -> tuple[S, S] | None:
        """Return the samples before and after a stamp; the newest twice after it; None where the stamp is
        before all of them or too long after."""
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
    """By the vehicle's position and heading, and the gimbal's attitude or a fixed mounting.

    ``mount``: roll, pitch, yaw of a camera that is fixed to the vehicle, rad; None with a gimbal. The local
    frame's origin is the first position, at home's height where that is known.
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
        """Add the gimbal's attitude; False when it is no rotation."""
        return self._gimbal.add(sample)

    def add_vehicle(self, sample: VehicleSample) -> bool:
        """Add the vehicle's heading and tilt; False when a number in it is not finite."""
        return self._vehicle.add(sample)

    def add_place(self, sample: PlaceSample) -> bool:
        """Add the vehicle's position; False when it is no place on Earth."""
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
        # Above the ground the vehicle is now higher or lower than at the sample by its climb.
        climbed = -(place[2] - self._local(before)[2])
        return CameraPose(place, velocity, q, turning, self._height(before, climbed, q))

    def _attitude(self, stamp_ns: int) -> Quaternion | None:
        """Return the camera's attitude, from north."""
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
        """Place and velocity between two samples, or after the newest one by its velocity."""
        start = self._local(before)
        if after is before:
            dt = (stamp_ns - before.stamp_ns) / NS
            return moved(start, before.velocity, dt), before.velocity
        share = (stamp_ns - before.stamp_ns) / (after.stamp_ns - before.stamp_ns)
        return between(start, self._local(after), share), between(before.velocity, after.velocity, share)

    def _height(self, sample: PlaceSample, climbed: float, q: Quaternion) -> Height | None:
        """Return the best known height, and its source."""
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
    """By poses of the camera itself in a local frame: visual odometry, motion capture, a simulator.

    ``origin``: of the frame on Earth, where it is known; ``ground``: height of the ground in it, m.
    """

    def __init__(self, config: PositionConfig, origin: GeoPoint | None = None, ground: float = 0.0) -> None:
        self._config, self._ground = config, ground
        self._frame = None if origin is None else LocalFrame(origin)
        self._samples: _PoseSamples[LocalSample] = _PoseSamples()

    @property
    def frame(self) -> LocalFrame | None:
        return self._frame

    def add(self, sample: LocalSample) -> bool:
        """Add a pose; False when it is no place, or its quaternion no rotation."""
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
    """Return where a velocity leads in ``dt`` s."""
    return place[0] + dt * velocity[0], place[1] + dt * velocity[1], place[2] + dt * velocity[2]


def _scaled(v: Vector, by: float) -> Vector:
    return v[0] * by, v[1] * by, v[2] * by


def between(a: Vector, b: Vector, share: float) -> Vector:
    """Return the point ``share`` of the way from ``a`` to ``b``."""
    return moved(a, moved(b, a, -1.0), share)
