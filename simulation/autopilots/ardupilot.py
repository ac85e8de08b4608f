"""Stand-in for ArduPilot 4.7, which keeps the last rates without a time-out, and answers commands to any
component of its own system, even to cameras from which it has received no message."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import astuple

from efftam_flight.mavlink.dialect import ATTITUDE, MANAGER_INFORMATION, Message, mav
from efftam_flight.mavlink.gimbal.stop_sequence import ROI
from simulation.autopilots.autopilot import (
    ACCEPTED,
    DENIED,
    FAILED,
    SET_PITCHYAW,
    SYSTEM,
    TRACKING_COMMANDS,
    UNSUPPORTED,
    YAW_LOCK,
    Autopilot,
    CrashError,
    Port,
    Sender,
)

WISH_S = 0.02  # interval of message 284, which is sent at 50 Hz
# Message 284 is sent this long after each multiple of 20 ms, s. For a client that sends its rates at these
# multiples, the delay is then about the 13 ms that were measured with the real ArduPilot.
WISH_PHASE_S = 0.011
SHORTEST_US = 4000.0
# Time after boot until ArduPilot moves its gimbal, s. It then begins with the last command that it received.
AWAKE_S = 9.0
# RC channel of the gimbal's yaw stick, and the yaw rate of the full stick, rad/s.
STICK, STICK_RATE = 7, 0.5
# RC channel of the switch that retracts the gimbal, and the retracted direction (pitch, yaw), rad.
RETRACT = 8
RETRACTED = (math.radians(-80.0), 0.0)
# Jump of the gimbal's yaw after a message in which one rate is NaN, as measured with the real ArduPilot.
JUMP = math.radians(-23.0)


class ArduPilot(Autopilot):
    """Behaves as ArduPilot with the parameters MNT1_TYPE 1 (servo) or 6 (MAVLink device) and CAM1_TYPE 0."""

    kind = mav.MAV_AUTOPILOT_ARDUPILOTMEGA
    timesync_s = 10.0

    def restart(self) -> None:
        super().restart()
        # The last command: (pitch rate, yaw rate, the flag YAW_LOCK or 0), rad/s, or a direction (pitch,
        # yaw), rad. None: no command has arrived.
        self._wish: tuple[float, float, int] | tuple[float, float] | None = None
        self._next_wish_s = math.ceil(self._clock() / WISH_S) * WISH_S + WISH_PHASE_S
        self._next_timesync_s = self._clock() + self.timesync_s

    def default_intervals(self) -> Mapping[int, float]:
        return {}

    def opens(self, message: Message) -> bool:
        return bool(message.get_type() == "HEARTBEAT")

    def answers_for(self, target: Sender) -> bool:
        return target[0] == SYSTEM

    def gimbal_number(self) -> int:
        return 1

    def servo_attitude(self, now_s: float) -> tuple[tuple[float, ...], int]:
        # The reported yaw counts from the vehicle's nose even if the gimbal keeps its yaw from north.
        return self.servo_quaternion(self.mount.yaw), 44 | (YAW_LOCK if self.mount.lock else 0)

    def on_gimbal_wish(self, message: Message) -> None:
        if message.gimbal_device_id not in (0, 1):
            return
        if message.get_type() == SET_PITCHYAW:
            rates = (message.pitch_rate, message.yaw_rate)
            angles = (message.pitch, message.yaw)
            if not all(map(math.isfinite, rates)) or all(map(math.isfinite, angles)):
                return
        else:
            rates = (message.angular_velocity_y, message.angular_velocity_z)
            if all(map(math.isfinite, message.q)) and all(map(math.isfinite, rates)):
                return
            if not all(map(math.isfinite, rates)):
                self.mount.yaw += JUMP
                return
        self._wish = (*rates, int(message.flags) & YAW_LOCK)

    def stick(self, yaw: float) -> None:
        """Move the pilot's yaw stick for the gimbal to a position from -1 to 1. The gimbal obeys it until the
        next command by a message."""
        self.channels[STICK - 1] = round(1500 + 400 * yaw)
        self._wish = (0.0, yaw * STICK_RATE, 0)

    def retract(self) -> None:
        """Set the pilot's switch that retracts the gimbal. The gimbal obeys it until the next command by a
        message."""
        self.channels[RETRACT - 1] = 1900
        self._wish = RETRACTED

    def move(self, now_s: float) -> None:
        if now_s < self._next_wish_s:
            return
        self._next_wish_s += WISH_S
        if self._wish is None or now_s - self.booted_s < AWAKE_S:
            return
        if len(self._wish) == 2:
            self.point_gimbal(*self._wish)
            return
        pitch_rate, yaw_rate, lock = self._wish
        # With yaw lock a gimbal device gets the flags 28, otherwise none.
        self.command_gimbal(pitch_rate, yaw_rate, 28 if lock else 0)

    def on_command(self, port: Port, message: Message) -> None:
        number = message.command
        if number == mav.MAV_CMD_SET_MESSAGE_INTERVAL:
            if math.isnan(message.param3):
                raise CrashError("floating point exception: NaN in parameter 3 of command 511")
            self.acknowledge(port, message, self.set_interval(port, message, SHORTEST_US))
        elif number == mav.MAV_CMD_DO_GIMBAL_MANAGER_CONFIGURE:
            if math.isnan(message.param1) or math.isnan(message.param7):
                raise CrashError("floating point exception: NaN in parameter 1 or 7 of command 1001")
            self._configure(message)
            self.acknowledge(port, message, ACCEPTED)
        elif number == mav.MAV_CMD_DO_GIMBAL_MANAGER_PITCHYAW:
            if message.param7 not in (0, 1):
                self.acknowledge(port, message, FAILED)
                return
            if math.isfinite(message.param1) and math.isfinite(message.param2):
                self._wish = (math.radians(message.param1), math.radians(message.param2))
            else:
                self._wish = (math.radians(message.param3), math.radians(message.param4), 0)
            self.acknowledge(port, message, ACCEPTED)
        elif number in ROI:
            # The point in the command is ignored. The gimbal points in the direction ``roi``.
            self._wish = self.roi
            self.acknowledge(port, message, ACCEPTED)
        elif number == mav.MAV_CMD_DO_MOUNT_CONTROL:
            self._wish = (math.radians(message.param1), math.radians(message.param3))
            self.acknowledge(port, message, ACCEPTED)
        elif number == mav.MAV_CMD_REQUEST_MESSAGE:
            self._request(port, message)
        elif number in TRACKING_COMMANDS:
            self.acknowledge(port, message, UNSUPPORTED)
        elif number == mav.MAV_CMD_REQUEST_CAMERA_INFORMATION:
            self.acknowledge(port, message, ACCEPTED)
        else:
            self.acknowledge(port, message, UNSUPPORTED)

    def _configure(self, message: Message) -> None:
        """Store who is in control, as command 1001 demands. This is reported in message 281, and has no other
        effect."""
        sender = (message.get_srcSystem(), message.get_srcComponent())
        system, component = int(message.param1), int(message.param2)
        if system == -3 and component == -3:
            if self.primary == sender:
                self.primary = (0, 0)
        elif system == -2:
            self.primary = sender
        elif system >= 0 and component >= 0:
            self.primary = (system, component)

    def _request(self, port: Port, message: Message) -> None:
        wanted = int(message.param1)
        if wanted == MANAGER_INFORMATION:
            self.acknowledge(port, message, ACCEPTED)
            self.send(
                port,
                mav.MAVLink_gimbal_manager_information_message(
                    self.boot_ms(self._clock()),
                    0,
                    1,
                    0.0,
                    0.0,
                    *astuple(self.mount.limits),
                ),
            )
        elif wanted == mav.MAVLINK_MSG_ID_GIMBAL_DEVICE_INFORMATION:
            self.acknowledge(port, message, FAILED)
        elif wanted in (mav.MAVLINK_MSG_ID_CAMERA_INFORMATION, ATTITUDE):
            self.acknowledge(port, message, ACCEPTED)
        else:
            self.acknowledge(port, message, DENIED)
