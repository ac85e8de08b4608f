"""The gimbal: a two-axis mount with lag, rate limit and stops, and the MAVLink device that moves it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import astuple, dataclass

from efftam_flight.angles import axis_direction, wrapped
from efftam_flight.mavlink.dialect import Message, mav
from efftam_flight.mavlink.framing import Decoder, Encoder
from efftam_flight.mavlink.links.connection import Connection
from efftam_flight.values import GimbalLimits
from simulation.rotations import from_yaw_pitch

ATTITUDE_S = 0.02
POINTING_GAIN = 4.0  # of a mount that turns to a direction, 1/s
YAW_LOCK = mav.GIMBAL_DEVICE_FLAGS_YAW_LOCK
LIMITS = GimbalLimits(math.radians(-135), math.radians(45), math.radians(-160), math.radians(160))


def level(time_s: float) -> tuple[float, float]:
    """A vehicle that keeps its heading: north, no turn."""
    return 0.0, 0.0


@dataclass
class Mount:
    """``yaw``: of the joint, from the vehicle's nose, and ``pitch``, rad. ``vehicle`` gives heading and yaw
    rate at a time. A wish is a rate, from north (``lock``) or from the vehicle, or a direction."""

    vehicle: Callable[[float], tuple[float, float]] = level
    limits: GimbalLimits = LIMITS
    lag_s: float = 0.05
    max_rate: float = math.radians(90.0)
    yaw: float = 0.0
    pitch: float = 0.0
    lock: bool = False

    def __post_init__(self) -> None:
        self._wish = (0.0, 0.0)
        self._direction: tuple[float, float] | None = None  # pitch and yaw of the joint, rad
        self._rate = [0.0, 0.0]
        self._time_s: float | None = None

    def wish(self, pitch_rate: float, yaw_rate: float, lock: bool) -> None:
        """Set the commanded rates, rad/s."""
        self._wish, self._direction = (pitch_rate, yaw_rate), None
        self.lock = lock

    def point(self, pitch: float, yaw: float) -> None:
        """Turn to a direction and stay there; rad, yaw from the vehicle's nose."""
        self._direction, self.lock = (pitch, yaw), False

    def step(self, time_s: float) -> None:
        """Advance to this time."""
        if self._time_s is None:
            self._time_s = time_s
        while self._time_s < time_s - 1e-9:
            dt = min(0.002, time_s - self._time_s)
            self._time_s += dt
            for axis, wish in enumerate(self._wanted_rates()):
                bounded = min(max(wish, -self.max_rate), self.max_rate)
                self._rate[axis] += (bounded - self._rate[axis]) * (
                    dt / self.lag_s if self.lag_s > dt else 1.0
                )
            # A stabilised mount compensates the vehicle's rotation itself.
            own = self.vehicle(self._time_s)[1] if self.lock else 0.0
            limits = self.limits
            self.pitch = min(max(self.pitch + self._rate[0] * dt, limits.pitch_min), limits.pitch_max)
            self.yaw = min(max(self.yaw + (self._rate[1] - own) * dt, limits.yaw_min), limits.yaw_max)

    def _wanted_rates(self) -> tuple[float, float]:
        if self._direction is None:
            return self._wish
        pitch, yaw = self._direction
        return POINTING_GAIN * (pitch - self.pitch), POINTING_GAIN * wrapped(yaw - self.yaw)

    def heading(self, time_s: float) -> float:
        """Yaw of the optical axis from north, rad."""
        return wrapped(self.vehicle(time_s)[0] + self.yaw)


class GimbalDevice:
    """Component 154: moves a mount by message 284 and sends its attitude as 285.

    Speaks on one link, with a clock that started at its own time. ``powered`` off: it falls silent and
    stands still."""

    def __init__(
        self, mount: Mount, link: Connection, clock: Callable[[], float], booted_s: float = -40.0
    ) -> None:
        self.mount = mount
        self.powered = True
        self.tells_time = True
        self.attitude_s = ATTITUDE_S  # command 511 is obeyed
        self._link, self._clock, self._booted_s = link, clock, booted_s
        self._decoder = Decoder(link.datagrams)
        self._encoder = Encoder(1, mav.MAV_COMP_ID_GIMBAL)
        self._next_heartbeat_s = self._next_attitude_s = -math.inf

    def step(self) -> None:
        """Read messages, move the mount, send heartbeat and attitude."""
        now_s = self._clock()
        messages = [m for _, data in self._link.receive() for m in self._decoder.feed(data)]
        if not self.powered:
            self.mount.wish(0.0, 0.0, False)
            return
        for message in messages:
            self._handle(message, now_s)
        self.mount.step(now_s)
        if now_s >= self._next_heartbeat_s:
            self._next_heartbeat_s = now_s + 1.0
            self._send(mav.MAVLink_heartbeat_message(mav.MAV_TYPE_GIMBAL, 8, 0, 0, 4, 3))
        if now_s >= self._next_attitude_s:
            self._next_attitude_s = max(self._next_attitude_s + self.attitude_s, now_s)
            self._send_attitude(now_s)

    def _handle(self, message: Message, now_s: float) -> None:
        kind = message.get_type()
        if kind == "GIMBAL_DEVICE_SET_ATTITUDE":
            if all(map(math.isfinite, message.q)):
                yaw, pitch = axis_direction(message.q)
                self.mount.point(pitch, yaw)
            elif all(map(math.isfinite, (message.angular_velocity_y, message.angular_velocity_z))):
                lock = bool(message.flags & YAW_LOCK)
                self.mount.wish(message.angular_velocity_y, message.angular_velocity_z, lock)
        elif (
            kind == "COMMAND_LONG"
            and message.target_component == mav.MAV_COMP_ID_GIMBAL
            and message.command == mav.MAV_CMD_SET_MESSAGE_INTERVAL
            and message.param1 == mav.MAVLINK_MSG_ID_GIMBAL_DEVICE_ATTITUDE_STATUS
            and message.param2 > 0
        ):
            self.attitude_s = message.param2 / 1e6
        elif (
            kind == "COMMAND_LONG"
            and message.command == mav.MAV_CMD_REQUEST_MESSAGE
            and message.param1 == mav.MAVLINK_MSG_ID_GIMBAL_DEVICE_INFORMATION
        ):
            self._send(
                mav.MAVLink_command_ack_message(
                    message.command,
                    0,
                    target_system=message.get_srcSystem(),
                    target_component=message.get_srcComponent(),
                )
            )
            self._send(
                mav.MAVLink_gimbal_device_information_message(
                    self._boot_ms(now_s),
                    b"simulated",
                    b"gimbal",
                    b"",
                    1,
                    1,
                    1,
                    0,
                    0,
                    0.0,
                    0.0,
                    *astuple(self.mount.limits),
                )
            )

    def _send_attitude(self, now_s: float) -> None:
        mount = self.mount
        yaw = mount.heading(now_s) if mount.lock else mount.yaw
        flags = mav.GIMBAL_DEVICE_FLAGS_ROLL_LOCK | mav.GIMBAL_DEVICE_FLAGS_PITCH_LOCK
        self._send(
            mav.MAVLink_gimbal_device_attitude_status_message(
                target_system=0,
                target_component=0,
                time_boot_ms=self._boot_ms(now_s),
                flags=flags | (YAW_LOCK if mount.lock else 0),
                q=from_yaw_pitch(yaw, mount.pitch),
                angular_velocity_x=0.0,
                angular_velocity_y=0.0,
                angular_velocity_z=0.0,
                failure_flags=0,
            )
        )

    def _boot_ms(self, now_s: float) -> int:
        return round((now_s - self._booted_s) * 1000) if self.tells_time else 0

    def _send(self, message: Message) -> None:
        self._link.send(self._encoder.encode(message))
