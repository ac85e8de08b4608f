"""The simulated gimbal: a two-axis mount with lag, rate limit and stops, and the MAVLink device that moves
it."""

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
POINTING_GAIN = 4.0  # ratio of rate to remaining angle while the mount turns to a direction, 1/s
YAW_LOCK = mav.GIMBAL_DEVICE_FLAGS_YAW_LOCK
LIMITS = GimbalLimits(math.radians(-135), math.radians(45), math.radians(-160), math.radians(160))


def level(time_s: float) -> tuple[float, float]:
    """Return heading and yaw rate of a vehicle that does not turn: (0, 0), rad and rad/s."""
    return 0.0, 0.0


@dataclass
class Mount:
    """A two-axis mount. It is commanded by rates or by a direction.

    ``vehicle``: returns the vehicle's heading from north, rad, and yaw rate, rad/s, at a time. ``yaw``: the
    yaw of the joint, from the vehicle's nose, rad. ``pitch``: rad. ``lock``: whether yaw rates count from
    north rather than from the vehicle.
    """

    vehicle: Callable[[float], tuple[float, float]] = level
    limits: GimbalLimits = LIMITS
    lag_s: float = 0.05
    max_rate: float = math.radians(90.0)
    yaw: float = 0.0
    pitch: float = 0.0
    lock: bool = False

    def __post_init__(self) -> None:
        self._wish = (0.0, 0.0)
        # Commanded direction (pitch, yaw), rad; None while the mount is commanded by rates.
        self._direction: tuple[float, float] | None = None
        self._rate = [0.0, 0.0]
        self._time_s: float | None = None

    def wish(self, pitch_rate: float, yaw_rate: float, lock: bool) -> None:
        """Command rates, rad/s. ``lock``: whether the yaw rate counts from north rather than from the
        vehicle."""
        self._wish, self._direction = (pitch_rate, yaw_rate), None
        self.lock = lock

    def point(self, pitch: float, yaw: float) -> None:
        """Command a direction, rad, yaw from the vehicle's nose. The mount turns to it and stays there."""
        self._direction, self.lock = (pitch, yaw), False

    def step(self, time_s: float) -> None:
        """Simulate the mount's motion up to this time, s."""
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
            # A mount whose yaw is locked to north compensates the vehicle's turn.
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
        """Return the yaw of the optical axis from north, rad."""
        return wrapped(self.vehicle(time_s)[0] + self.yaw)


class GimbalDevice:
    """The MAVLink gimbal device (component 154). It moves a mount as message 284 commands, and sends the
    mount's attitude as message 285.

    ``booted_s``: time of its boot, at which its own clock started. ``powered``: if false, it sends nothing
    and the mount stands. ``tells_time``: if false, its attitudes carry the time 0.
    """

    def __init__(
        self, mount: Mount, link: Connection, clock: Callable[[], float], booted_s: float = -40.0
    ) -> None:
        self.mount = mount
        self.powered = True
        self.tells_time = True
        self.attitude_s = ATTITUDE_S  # interval of message 285; command 511 changes it
        self._link, self._clock, self._booted_s = link, clock, booted_s
        self._decoder = Decoder(link.datagrams)
        self._encoder = Encoder(1, mav.MAV_COMP_ID_GIMBAL)
        self._next_heartbeat_s = self._next_attitude_s = -math.inf

    def step(self) -> None:
        """Read messages, move the mount, and send heartbeat and attitude if they are due."""
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
