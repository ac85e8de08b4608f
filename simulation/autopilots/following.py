"""Simulated vehicles and the flight modes that follow the target of FOLLOW_TARGET.

The modes are computed as in the autopilots' source code: libraries/AP_Follow of ArduPilot 4.7-dev, and
AutoFollowTarget with its TargetEstimator of PX4 1.17. The vehicle is a point whose velocity approaches the
commanded velocity with a limited acceleration. Vectors are north, east, down, m from home.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from efftam_flight.angles import axis_direction
from efftam_flight.mavlink.dialect import Message, mav
from efftam_flight.position.geodesy import GeoPoint, LocalFrame

Array = NDArray[np.float64]
HOME = GeoPoint(47.4, 8.55, 430.0)
LOITER, FOLLOWS = "loiter", "follow"
# Largest acceleration of the vehicle, m/s^2, and the lag with which it approaches a commanded velocity, s.
ACCELERATION, LAG_S = 2.5, 0.3


class FlyingVehicle:
    """A flying point. ``place``, ``velocity``: float64 [3], north, east, down, m and m/s."""

    def __init__(self, place: Array) -> None:
        self.place: Array = np.asarray(place, float)
        self.velocity: Array = np.zeros(3)
        self.frame = LocalFrame(HOME)

    def step(self, wish: Array, dt: float) -> None:
        """Fly for ``dt`` s. ``wish``: the commanded velocity, [3], m/s."""
        change = (wish - self.velocity) * min(dt / LAG_S, 1.0)
        size = float(np.linalg.norm(change))
        if size > ACCELERATION * dt:
            change *= ACCELERATION * dt / size
        self.velocity = self.velocity + change
        self.place = self.place + self.velocity * dt

    @property
    def speed(self) -> float:
        return float(np.linalg.norm(self.velocity[:2]))

    def position_message(self, boot_ms: int) -> Message:
        """Return GLOBAL_POSITION_INT with the vehicle's place and velocity."""
        point = self.frame.to_geo(self.place[0], self.place[1], -self.place[2])
        return mav.MAVLink_global_position_int_message(
            boot_ms,
            round(point.latitude * 1e7),
            round(point.longitude * 1e7),
            round(point.altitude * 1e3),
            round(-self.place[2] * 1e3),
            *(round(float(v) * 100) for v in self.velocity),
            65535,
        )


class Follower(ABC):
    """The flight modes of an autopilot with this ``system_id``. ``mode``: the present mode, "loiter" or
    "follow"."""

    numbers: ClassVar[dict[str, int]]
    """The value of the heartbeat's custom_mode for each mode."""

    def __init__(self, vehicle: FlyingVehicle, system_id: int = 1) -> None:
        self.vehicle, self._system_id = vehicle, system_id
        self.mode, self.armed = LOITER, True
        self.taken = 0  # number of FOLLOW_TARGET messages that were used
        self._time_s: float | None = None

    def choose(self, mode: str) -> None:
        """Change the mode, as the pilot does."""
        self.mode = mode

    def step(self, now_s: float) -> None:
        dt = 0.0 if self._time_s is None else now_s - self._time_s
        self._time_s = now_s
        wish = self.wish(now_s, dt) if self.mode == FOLLOWS else np.zeros(3)
        self.vehicle.step(wish, dt)

    @abstractmethod
    def take(self, message: Message, now_s: float) -> None:
        """Handle a FOLLOW_TARGET that has arrived."""

    @abstractmethod
    def wish(self, now_s: float, dt: float) -> Array:
        """Return the velocity that the follow mode commands now, [3], m/s. ``dt``: time since the last call,
        s."""

    @abstractmethod
    def wanted_place(self, target: Array) -> Array:
        """Return where the mode would keep the vehicle, [2], north and east, m, if it knew the target's true
        place ``target``, [2], exactly."""

    def _place_in(self, message: Message) -> Array:
        point = GeoPoint(message.lat / 1e7, message.lon / 1e7, message.alt)
        north, east, up = self.vehicle.frame.to_local(point)
        return np.array([north, east, -up])


@dataclass(frozen=True)
class FollParameters:
    """The parameters FOLL_* of ArduCopter, with its defaults."""

    enable: int = 1
    sysid: int = 0
    dist_max: float = 100.0
    ofs_type: int = 0  # axes of `ofs`: 0: north, east, down; 1: relative to the target's heading
    # Offset of the vehicle from the target, m. All 0: the offset at the begin of the mode is kept.
    ofs: tuple[float, float, float] = (0.0, 0.0, 0.0)


class ApFollow(Follower):
    """The modes of ArduCopter."""

    numbers: ClassVar = {LOITER: 5, FOLLOWS: 23}
    TIMEOUT_S, SYSID_TIMEOUT_S = 3.0, 10.0
    POSITION_GAIN, MAX_SPEED = 0.6, 10.0

    def __init__(
        self, vehicle: FlyingVehicle, parameters: FollParameters | None = None, system_id: int = 1
    ) -> None:
        super().__init__(vehicle, system_id)
        self.parameters = parameters or FollParameters()
        self._sysid = self.parameters.sysid
        self._target: tuple[Array, Array] | None = None
        self._heading = 0.0
        self._updated_s = -math.inf
        self._offset = np.array(self.parameters.ofs)

    def choose(self, mode: str) -> None:
        super().choose(mode)
        self._offset = np.array(self.parameters.ofs)  # if all are 0, `wish` measures the offset again

    def take(self, message: Message, now_s: float) -> None:
        sender = message.get_srcSystem()
        if now_s - self._updated_s > self.SYSID_TIMEOUT_S:
            self._sysid = self.parameters.sysid
        if not self.parameters.enable or sender == self._system_id or self._sysid not in (0, sender):
            return
        if (message.lat, message.lon) == (0, 0) or not message.est_capabilities & 1:
            return
        has_attitude = bool(message.est_capabilities & 8)
        if self.parameters.ofs_type == 1 and not has_attitude:
            return
        velocity = np.array(message.vel if message.est_capabilities & 2 else (0.0, 0.0, 0.0))
        self._target = self._place_in(message), velocity
        if has_attitude:
            self._heading = axis_direction(tuple(message.attitude_q))[0]
        self._sysid, self._updated_s = sender, now_s
        self.taken += 1

    def wish(self, now_s: float, dt: float) -> Array:
        age_s = now_s - self._updated_s
        if self._target is None or age_s > self.TIMEOUT_S:
            return np.zeros(3)
        place, velocity = self._target
        to_target = place - self.vehicle.place
        if 0 < self.parameters.dist_max < float(np.linalg.norm(to_target)):
            return np.zeros(3)
        if not self._offset.any():
            self._offset = -to_target
        error = place + velocity * age_s + self._turned(self._offset) - self.vehicle.place
        wish = velocity + self.POSITION_GAIN * error
        size = float(np.linalg.norm(wish))
        return wish if size <= self.MAX_SPEED else wish * (self.MAX_SPEED / size)

    def wanted_place(self, target: Array) -> Array:
        return target + self._turned(self._offset)[:2]

    def _turned(self, offset: Array) -> Array:
        if self.parameters.ofs_type == 0:
            return offset
        c, s = math.cos(self._heading), math.sin(self._heading)
        return np.array([c * offset[0] - s * offset[1], s * offset[0] + c * offset[1], offset[2]])


@dataclass(frozen=True)
class FlwParameters:
    """The parameters FLW_TGT_* of PX4, with its defaults. ``fa``: direction from the target to the vehicle,
    degrees from the target's motion; 180 is behind the target."""

    dst: float = 8.0
    ht: float = 8.0
    max_vel: float = 5.0
    fa: float = 180.0
    rs: float = 0.1


class AutoFollowTarget(Follower):
    """The modes of PX4, with a constant height (FLW_TGT_ALT_M 0)."""

    numbers: ClassVar = {LOITER: 4 << 16 | 3 << 24, FOLLOWS: 4 << 16 | 8 << 24}
    STALE_S = 1.5
    POSITION_FUSION_S, VELOCITY_FUSION_S = 0.5, 0.1
    # Time constants of the low-pass filters of the target's position and of the direction to the vehicle, s.
    # The direction of motion of a target slower than MIN_SPEED, m/s, is kept.
    POSITION_FILTER_S, DIRECTION_FILTER_S, MIN_SPEED = 1.5, 3.0, 0.25
    POSITION_GAIN = 0.95

    def __init__(
        self, vehicle: FlyingVehicle, parameters: FlwParameters | None = None, system_id: int = 1
    ) -> None:
        super().__init__(vehicle, system_id)
        self.parameters = parameters or FlwParameters()
        beta = self.parameters.rs ** (1 / 3)
        beta_v = 0.9 * beta
        self._of_position = 1 - beta**3, 1.5 * (1 - beta) ** 2 * (1 + beta), 0.5 * (1 - beta) ** 3
        self._of_velocity = 1 - beta_v**2, (1 - beta_v) ** 2
        self._state: tuple[Array, Array, Array] | None = None  # the target's place, velocity, acceleration
        self._received_s = self._position_s = self._velocity_s = -math.inf
        self._filtered: Array | None = None
        self._direction = np.array([1.0, 0.0])
        self._motion = np.array([1.0, 0.0])

    def choose(self, mode: str) -> None:
        super().choose(mode)
        self._filtered = None

    def take(self, message: Message, now_s: float) -> None:
        place, velocity = self._place_in(message), np.array(message.vel)
        if self._state is None:
            self._state = place, velocity, np.zeros(3)
        p, v, a = self._state
        if now_s - self._position_s > self.POSITION_FUSION_S:
            dt, innovation = min(now_s - self._position_s, 20.0), place - p
            g, h, k = self._of_position
            p, v, a = p + g * innovation, v + h / dt * innovation, a + 2 * k / dt**2 * innovation
            self._position_s = now_s
        if velocity.any() and now_s - self._velocity_s > self.VELOCITY_FUSION_S:
            dt, innovation = min(now_s - self._velocity_s, 20.0), velocity - v
            g, h = self._of_velocity
            v, a = v + g * innovation, a + h / dt * innovation
            self._velocity_s = now_s
        self._state, self._received_s = (p, v, np.clip(a, -0.5, 0.5)), now_s
        self.taken += 1

    def wish(self, now_s: float, dt: float) -> Array:
        if self._state is None:
            return np.zeros(3)
        p, v, a = self._state
        p, v = p + dt * v + dt * dt / 2 * a, v + dt * a
        if now_s - self._received_s >= self.STALE_S:
            v, a = np.zeros(3), np.zeros(3)
        self._state = p, v, a
        ahead = p + self.POSITION_FILTER_S * v
        self._filtered = p if self._filtered is None else self._filtered
        share = dt / (self.POSITION_FILTER_S + dt)
        before = self._filtered
        self._filtered = self._filtered + share * (ahead - self._filtered)
        speed = float(np.linalg.norm(v[:2]))
        if speed > self.MIN_SPEED:
            self._motion = v[:2] / speed
        angle = math.radians(self.parameters.fa)
        c, s = math.cos(angle), math.sin(angle)
        offset = np.array(
            [c * self._motion[0] - s * self._motion[1], s * self._motion[0] + c * self._motion[1]]
        )
        self._direction = self._direction + dt / (self.DIRECTION_FILTER_S + dt) * (offset - self._direction)
        error = self.wanted_place(self._filtered[:2]) - self.vehicle.place[:2]
        forward = (self._filtered - before)[:2] / dt if dt and speed > self.MIN_SPEED else np.zeros(2)
        wish = forward + self.POSITION_GAIN * error
        size = float(np.linalg.norm(wish))
        if size > self.parameters.max_vel:
            wish = wish * (self.parameters.max_vel / size)
        climb = min(0.0, -self.parameters.ht - self.vehicle.place[2])
        return np.array([*wish, max(climb, -1.0)])

    def wanted_place(self, target: Array) -> Array:
        size = float(np.linalg.norm(self._direction))
        unit = self._direction / size if size > 1e-6 else np.zeros(2)
        return target + self.parameters.dst * unit
