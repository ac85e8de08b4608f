"""Base class of both stand-in autopilots: links, forwarding between links, message intervals, commands."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from efftam_flight.mavlink.dialect import ATTITUDE, MANAGER_STATUS, VEHICLE_ATTITUDE, Message, mav
from efftam_flight.mavlink.framing import Decoder, Encoder
from efftam_flight.mavlink.links.connection import Connection
from simulation.autopilots.following import FlyingVehicle, Follower
from simulation.autopilots.gimbal import Mount
from simulation.rotations import from_yaw_pitch

SYSTEM, COMPONENT = 1, 1
GIMBAL = mav.MAV_COMP_ID_GIMBAL
ACCEPTED: int = mav.MAV_RESULT_ACCEPTED
DENIED: int = mav.MAV_RESULT_DENIED
UNSUPPORTED: int = mav.MAV_RESULT_UNSUPPORTED
FAILED: int = mav.MAV_RESULT_FAILED
SET_ATTITUDE = "GIMBAL_MANAGER_SET_ATTITUDE"
SET_PITCHYAW = "GIMBAL_MANAGER_SET_PITCHYAW"
TRACKING_COMMANDS = (2004, 2005, 2010)
YAW_LOCK = mav.GIMBAL_MANAGER_FLAGS_YAW_LOCK

POSITION = mav.MAVLINK_MSG_ID_GLOBAL_POSITION_INT

# Time since boot that a new stand-in has, s.
UP_S = 40.0

Sender = tuple[int, int]


class CrashError(RuntimeError):
    """Raised when a received message would crash the real autopilot's process."""


@dataclass
class Port:
    """One link of the autopilot."""

    connection: Connection
    budget_bytes_s: float = math.inf  # largest rate of the streamed messages; forwarded ones do not count
    components: set[Sender] = field(default_factory=set)
    spoken: bool = False  # whether messages are forwarded to this link; see `Autopilot.opens`
    intervals: dict[int, float] = field(default_factory=dict)
    due: dict[int, float] = field(default_factory=dict)
    saved_bytes: float = 0.0

    def __post_init__(self) -> None:
        self.encoder = Encoder(SYSTEM, COMPONENT)
        self.decoders: dict[str, Decoder] = {}

    def receive(self) -> list[Message]:
        messages = []
        for peer, data in self.connection.receive():
            decoder = self.decoders.setdefault(peer, Decoder(self.connection.datagrams))
            messages += decoder.feed(data)
        return messages


class Autopilot(ABC):
    """The stand-in for one vehicle's autopilot. `step` must be called whenever the clock has advanced.

    ``gimbal_port``: name of the link to a MAVLink gimbal device. None: ``mount`` is a servo gimbal that the
    autopilot moves itself.
    """

    kind: int
    timesync_s: float  # time between two TIMESYNC requests

    def __init__(
        self,
        ports: Mapping[str, Port],
        clock: Callable[[], float],
        mount: Mount,
        gimbal_port: str | None = None,
    ) -> None:
        self.ports = dict(ports)
        self.mount = mount
        self.clock_rate = 1.0  # speed of the autopilot's clock; 1 is right
        self.roi = (math.radians(-20.0), math.radians(-30.0))  # pitch and yaw of the region of interest, rad
        self.channels = [1500] * 8  # values of the RC channels, us
        self.parameters: dict[str, float] = {}  # the parameters that can be read, by name
        self.follower: Follower | None = None  # flies the vehicle; None: the vehicle does not fly
        self._standing = FlyingVehicle(np.zeros(3))
        self._clock, self._gimbal_port = clock, gimbal_port
        self.restart()
        self.booted_s -= UP_S

    def restart(self) -> None:
        """Restart the autopilot: discard all state and begin a new time since boot."""
        self.booted_s = self._clock()
        self._last_step_s = self._clock()
        self._next_heartbeat_s = self._next_timesync_s = -math.inf
        self.gimbal_heard_s = -math.inf
        self.primary: Sender = (0, 0)
        if self._gimbal_port is None:  # at a restart a servo gimbal stops, but a gimbal device keeps turning
            self.mount.wish(0.0, 0.0, False)
        self.attitude: tuple[tuple[float, ...], int] = ((1.0, 0.0, 0.0, 0.0), 12)
        for port in self.ports.values():
            port.components.clear()
            port.spoken = False
            port.intervals = dict(self.default_intervals())
            port.due = {}

    # Behaviour that differs between autopilots

    @abstractmethod
    def default_intervals(self) -> Mapping[int, float]:
        """Return the ids of the messages that are streamed without a request, with their intervals, s."""

    @abstractmethod
    def opens(self, message: Message) -> bool:
        """Return whether, after this message, messages of other links are forwarded to the link by which it
        arrived."""

    @abstractmethod
    def on_gimbal_wish(self, message: Message) -> None:
        """Handle a message 282 or 287, with which a client commands the gimbal."""

    @abstractmethod
    def on_command(self, port: Port, message: Message) -> None:
        """Handle a command to the autopilot, or to a component that the autopilot answers for."""

    @abstractmethod
    def move(self, now_s: float) -> None:
        """Send the commanded rates or direction to the gimbal, if that is due."""

    @abstractmethod
    def answers_for(self, target: Sender) -> bool:
        """Return whether the autopilot answers a command to this component, from which no message has ever
        arrived."""

    @abstractmethod
    def gimbal_number(self) -> int:
        """Return the gimbal_device_id for message 281; 0 while no gimbal has been found."""

    def status_time(self, now_s: float) -> float:
        """Return the time for message 281, on the simulation's clock, s."""
        return now_s

    # Common behaviour

    def step(self) -> None:
        """Read and forward messages, move the gimbal and the vehicle, and send the messages that are due."""
        now_s = self._clock()
        for name, port in self.ports.items():
            for message in port.receive():
                self._take(name, port, message, now_s)
        self.move(now_s)
        if self.follower is not None:
            self.follower.step(now_s)
        if self._gimbal_port is None:
            self.mount.step(now_s)
            self.attitude = self.servo_attitude(now_s)
        if now_s >= self._next_heartbeat_s:
            self._next_heartbeat_s = now_s + 1.0
            for port in self.ports.values():
                self.send(port, self._heartbeat())
        if now_s >= self._next_timesync_s:
            self._next_timesync_s = now_s + self.timesync_s
            for port in self.ports.values():
                self.send(port, mav.MAVLink_timesync_message(0, self.boot_ms(now_s) * 1_000_000))
        self._stream(now_s, now_s - self._last_step_s)
        self._last_step_s = now_s

    def _heartbeat(self) -> Message:
        follower, mode, flags = self.follower, 0, 0
        if follower is not None:
            mode = follower.numbers[follower.mode]
            flags = mav.MAV_MODE_FLAG_CUSTOM_MODE_ENABLED
            flags |= mav.MAV_MODE_FLAG_SAFETY_ARMED if follower.armed else 0
        return mav.MAVLink_heartbeat_message(mav.MAV_TYPE_QUADROTOR, self.kind, flags, mode, 4, 3)

    @abstractmethod
    def servo_attitude(self, now_s: float) -> tuple[tuple[float, ...], int]:
        """Return the quaternion and the flags for the attitude of a servo gimbal."""

    def send(self, port: Port, message: Message) -> int:
        frame = port.encoder.encode(message)
        port.connection.send(frame)
        return len(frame)

    def boot_ms(self, now_s: float) -> int:
        return round((now_s - self.booted_s) * 1000 * self.clock_rate)

    def acknowledge(self, port: Port, command: Message, result: int) -> None:
        self.send(
            port,
            mav.MAVLink_command_ack_message(
                command.command,
                result,
                target_system=command.get_srcSystem(),
                target_component=command.get_srcComponent(),
            ),
        )

    def hears(self, target: Sender) -> bool:
        return any(target in port.components for port in self.ports.values())

    def _take(self, name: str, port: Port, message: Message, now_s: float) -> None:
        sender = (message.get_srcSystem(), message.get_srcComponent())
        port.components.add(sender)
        port.spoken = port.spoken or self.opens(message)
        target = (getattr(message, "target_system", 0), getattr(message, "target_component", 0))
        for other_name, other in self.ports.items():
            if other_name != name and other.spoken and self._wants(other, target):
                other.connection.send(bytes(message.get_msgbuf()))
        kind = message.get_type()
        if kind == "GIMBAL_DEVICE_ATTITUDE_STATUS" and name == self._gimbal_port:
            self.attitude = (tuple(message.q), message.flags)
            self.gimbal_heard_s = now_s
        elif kind == "PARAM_REQUEST_READ" and target in ((SYSTEM, COMPONENT), (SYSTEM, 0)):
            self._tell_parameter(port, message)
        elif kind == "FOLLOW_TARGET" and self.follower is not None:
            self.follower.take(message, now_s)
        elif kind in (SET_ATTITUDE, SET_PITCHYAW) and target[0] in (0, SYSTEM):
            self.on_gimbal_wish(message)
        elif kind == "COMMAND_LONG" and target[0] in (0, SYSTEM):
            unheard = target[1] not in (0, COMPONENT) and not self.hears(target)
            if target[1] in (0, COMPONENT) or (unheard and self.answers_for(target)):
                self.on_command(port, message)

    def _tell_parameter(self, port: Port, message: Message) -> None:
        """Answer a request for a parameter. A request for an unknown parameter gets no answer."""
        name = message.param_id
        if name in self.parameters:
            self.send(port, self.parameter_message(name, self.parameters[name]))

    def parameter_message(self, name: str, value: float) -> Message:
        return mav.MAVLink_param_value_message(
            name.encode(), value, mav.MAV_PARAM_TYPE_REAL32, len(self.parameters), 0
        )

    def _wants(self, port: Port, target: Sender) -> bool:
        """Return whether a message to this target must be forwarded to a link: the target is behind the link,
        or the message is a broadcast."""
        if target[0] == 0:
            return True
        if target == (SYSTEM, COMPONENT):
            return False
        return any(
            system == target[0] and target[1] in (0, component) for system, component in port.components
        )

    def _stream(self, now_s: float, passed_s: float) -> None:
        for port in self.ports.values():
            port.saved_bytes = (
                min(port.saved_bytes + port.budget_bytes_s * passed_s, 300.0) if passed_s else 0.0
            )
            for message_id, interval_s in port.intervals.items():
                due_s = port.due.get(message_id, -math.inf)
                if now_s < due_s or (port.budget_bytes_s < math.inf and port.saved_bytes < 60.0):
                    continue
                message = self._message(message_id, now_s)
                port.due[message_id] = max(due_s + interval_s, now_s)
                if message is not None:
                    port.saved_bytes -= self.send(port, message)

    def _message(self, message_id: int, now_s: float) -> Message | None:
        boot_ms = self.boot_ms(now_s)
        if message_id == ATTITUDE:
            q, flags = self.attitude
            return mav.MAVLink_gimbal_device_attitude_status_message(
                0, 0, boot_ms, flags, q, math.nan, math.nan, math.nan, 0
            )
        if message_id == MANAGER_STATUS:
            boot_ms = self.boot_ms(self.status_time(now_s))
            return mav.MAVLink_gimbal_manager_status_message(
                boot_ms, 12, self.gimbal_number(), *self.primary, 0, 0
            )
        if message_id == mav.MAVLINK_MSG_ID_RC_CHANNELS:
            return mav.MAVLink_rc_channels_message(boot_ms, 8, *self.channels, *[65535] * 10, 255)
        if message_id == POSITION:
            vehicle = self._standing if self.follower is None else self.follower.vehicle
            return vehicle.position_message(boot_ms)
        if message_id == VEHICLE_ATTITUDE:
            heading, rate = self.mount.vehicle(now_s)
            return mav.MAVLink_attitude_message(boot_ms, 0.0, 0.0, heading, 0.0, 0.0, rate)
        return None

    def set_interval(self, port: Port, message: Message, shortest_us: float) -> int:
        """Carry out command 511 for the link by which it arrived. Return its MAV_RESULT."""
        message_id, interval_us = int(message.param1), message.param2
        known = (ATTITUDE, MANAGER_STATUS, VEHICLE_ATTITUDE, POSITION, mav.MAVLINK_MSG_ID_RC_CHANNELS)
        if message_id not in known:
            return DENIED
        if 0 < interval_us < shortest_us:
            return DENIED
        if interval_us < 0:
            port.intervals.pop(message_id, None)
        else:
            port.intervals[message_id] = interval_us / 1e6 or 1.0
            port.due.pop(message_id, None)
        return ACCEPTED

    def command_gimbal(self, pitch_rate: float, yaw_rate: float, flags: int) -> None:
        """Turn the gimbal by rates, rad/s: move the servo mount, or send message 284 to the gimbal device."""
        if self._gimbal_port is None:
            self.mount.wish(pitch_rate, yaw_rate, bool(flags & YAW_LOCK))
            return
        self.send(
            self.ports[self._gimbal_port],
            mav.MAVLink_gimbal_device_set_attitude_message(
                SYSTEM, GIMBAL, flags, (math.nan,) * 4, 0.0, pitch_rate, yaw_rate
            ),
        )

    def point_gimbal(self, pitch: float, yaw: float) -> None:
        """Turn the gimbal to a direction, rad, yaw from the vehicle's nose: move the servo mount, or send
        message 284 to the gimbal device."""
        if self._gimbal_port is None:
            self.mount.point(pitch, yaw)
            return
        self.send(
            self.ports[self._gimbal_port],
            mav.MAVLink_gimbal_device_set_attitude_message(
                SYSTEM, GIMBAL, 0, from_yaw_pitch(yaw, pitch), math.nan, math.nan, math.nan
            ),
        )

    def servo_quaternion(self, yaw: float) -> tuple[float, ...]:
        return from_yaw_pitch(yaw, self.mount.pitch)
