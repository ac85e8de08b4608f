"""Stand-in for PX4 1.17, which obeys only the component in control, and stops the gimbal two seconds after
the last message of that component."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import astuple

from efftam_flight.mavlink.dialect import ATTITUDE, MANAGER_INFORMATION, MANAGER_STATUS, Message, mav
from efftam_flight.mavlink.gimbal.stop_sequence import ROI
from simulation.autopilots.autopilot import (
    ACCEPTED,
    COMPONENT,
    DENIED,
    GIMBAL,
    SET_PITCHYAW,
    SYSTEM,
    UNSUPPORTED,
    YAW_LOCK,
    Autopilot,
    Port,
    Sender,
)

WISH_S = 0.05  # interval of message 284, which is sent at 20 Hz
SERVO_S = 0.02
SHORTEST_US = 20000.0
SILENCE_S = 2.0
HEARD_S = 0.5
# Time from the boot during which message 281 names no gimbal, s. At 5 Hz two messages are sent in this time.
NONE_YET_S = 0.35
# Time from the boot until the gimbal is found and message 280 is made, s.
FOUND_S = 0.4


class PX4(Autopilot):
    """Behaves as PX4 with the parameters MNT_MODE_IN 4 and MNT_MODE_OUT 0 (servo) or 2 (MAVLink device)."""

    kind = mav.MAV_AUTOPILOT_PX4
    timesync_s = 1.0

    def parameter_message(self, name: str, value: float) -> Message:
        # PX4 sends the four bytes of a whole number in the float field.
        raw = struct.unpack("<f", struct.pack("<i", int(value)))[0]
        return mav.MAVLink_param_value_message(
            name.encode(), raw, mav.MAV_PARAM_TYPE_INT32, len(self.parameters), 0
        )

    def restart(self) -> None:
        super().restart()
        # (pitch rate, yaw rate, flags), rad/s, or a direction (pitch, yaw), rad. None: no command has
        # arrived.
        self._wish: tuple[float, float, int] | tuple[float, float] | None = None
        self._wish_s = -math.inf
        self._next_wish_s = -math.inf

    def default_intervals(self) -> Mapping[int, float]:
        # With a MAVLink gimbal the gimbal's own attitudes are forwarded, and the autopilot sends no copies.
        return {MANAGER_STATUS: 2.0, **({ATTITUDE: 1.0} if self._gimbal_port is None else {})}

    def opens(self, message: Message) -> bool:
        return True

    def answers_for(self, target: Sender) -> bool:
        return False

    def servo_attitude(self, now_s: float) -> tuple[tuple[float, ...], int]:
        # The flags 28 contain YAW_LOCK, and 12 do not. No flag names the yaw frame, so YAW_LOCK decides it.
        if self.mount.lock:
            return self.servo_quaternion(self.mount.heading(now_s)), 28
        return self.servo_quaternion(self.mount.yaw), 12

    def gimbal_number(self) -> int:
        if self._clock() - self.booted_s < NONE_YET_S:
            return 0
        return 1 if self._gimbal_port is None else GIMBAL

    def status_time(self, now_s: float) -> float:
        # While the gimbal is silent, PX4 repeats the last status with the same time.
        if self._gimbal_port is not None and self.gimbal_heard_s > self.booted_s:
            return min(now_s, self.gimbal_heard_s + HEARD_S)
        return now_s

    def on_gimbal_wish(self, message: Message) -> None:
        if message.get_type() == SET_PITCHYAW:
            return
        if (message.get_srcSystem(), message.get_srcComponent()) != self.primary:
            return
        rates = (message.angular_velocity_y, message.angular_velocity_z)
        finite = [rate if math.isfinite(rate) else 0.0 for rate in rates]
        self._wish = (finite[0], finite[1], 12 | (int(message.flags) & YAW_LOCK))
        self._wish_s = self._clock()

    def move(self, now_s: float) -> None:
        if now_s < self._next_wish_s:
            return
        interval_s = SERVO_S if self._gimbal_port is None else WISH_S
        self._next_wish_s = max(self._next_wish_s + interval_s, now_s)
        if self._wish is None:
            # Before the first command PX4 sends NaN as rates. They do not change the rates that the gimbal
            # device keeps.
            if self._gimbal_port is not None:
                self.command_gimbal(math.nan, math.nan, 0)
            return
        if len(self._wish) == 2:
            self.point_gimbal(*self._wish)
            return
        pitch_rate, yaw_rate, flags = self._wish
        if now_s - self._wish_s > SILENCE_S:
            pitch_rate = yaw_rate = 0.0
        self.command_gimbal(pitch_rate, yaw_rate, flags)

    def on_command(self, port: Port, message: Message) -> None:
        number = message.command
        if number == mav.MAV_CMD_SET_MESSAGE_INTERVAL:
            self.acknowledge(port, message, self.set_interval(port, message, SHORTEST_US))
        elif number == mav.MAV_CMD_DO_GIMBAL_MANAGER_CONFIGURE:
            self._configure(message)
            self.acknowledge(port, message, ACCEPTED)
        elif number == mav.MAV_CMD_DO_GIMBAL_MANAGER_PITCHYAW:
            if (message.get_srcSystem(), message.get_srcComponent()) != self.primary:
                self.acknowledge(port, message, DENIED)
                return
            self._wish = (math.radians(message.param3), math.radians(message.param4), 12)
            self._wish_s = self._clock()
            self.acknowledge(port, message, ACCEPTED)
        elif number in ROI:
            # PX4 obeys this command of any component. The command does not change who is in control.
            self._wish = self.roi
            self.acknowledge(port, message, ACCEPTED)
        elif number == mav.MAV_CMD_DO_MOUNT_CONTROL:
            self._wish = (math.radians(message.param1), math.radians(message.param3))
            self.acknowledge(port, message, ACCEPTED)
        elif number == mav.MAV_CMD_REQUEST_MESSAGE:
            self._request(port, message)
        elif number == mav.MAV_CMD_REQUEST_CAMERA_INFORMATION:
            return
        else:
            self.acknowledge(port, message, UNSUPPORTED)

    def _configure(self, message: Message) -> None:
        sender = (message.get_srcSystem(), message.get_srcComponent())
        asked = (int(message.param1), int(message.param2)) if _are_numbers(message) else (-1, -1)
        system, component = self.primary
        for place, value in enumerate(asked):
            if value == -2:
                # By the protocol -2 means the sender of the command, but PX4 inserts its own ids.
                new = (SYSTEM, COMPONENT)[place]
            elif value == -3:
                new = 0 if self.primary == sender else (system, component)[place]
            elif value == -1:
                continue
            else:
                new = value
            system, component = (new, component) if place == 0 else (system, new)
        self.primary = (system, component)

    def _request(self, port: Port, message: Message) -> None:
        if not math.isfinite(message.param1) or int(message.param1) != MANAGER_INFORMATION:
            self.acknowledge(port, message, DENIED)
            return
        self.acknowledge(port, message, ACCEPTED)
        if self._gimbal_port is None:
            # For a servo mount PX4 sends limits in degrees, and random roll limits from uninitialised memory.
            numbers = (3e-41, 3e-41, -90.0, 90.0, -360.0, 360.0)
        else:
            numbers = (0.0, 0.0, *astuple(self.mount.limits))
        self.send(
            port,
            mav.MAVLink_gimbal_manager_information_message(
                # The message carries the time at which it was made, not that at which it is sent.
                self.boot_ms(min(self.booted_s + FOUND_S, self._clock())),
                0,
                1 if self._gimbal_port is None else 154,
                *numbers,
            ),
        )


def _are_numbers(message: Message) -> bool:
    return math.isfinite(message.param1) and math.isfinite(message.param2)
