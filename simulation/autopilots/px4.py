"""Simulates PX4 1.17: obeys only the component in control, and stops two seconds after its last message."""

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

WISH_S = 0.05  # message 284 goes out at 20 Hz
SERVO_S = 0.02
SHORTEST_US = 20000.0
SILENCE_S = 2.0
HEARD_S = 0.5
# For so long after a boot message 281 names no gimbal: two of them at 5 Hz.
NONE_YET_S = 0.35
# Then its gimbal is found, and message 280 is made.
FOUND_S = 0.4


class PX4(Autopilot):
    """The stand-in's parameters: MNT_MODE_IN 4, MNT_MODE_OUT 0 (servo) or 2 (MAVLink device)."""

    kind = mav.MAV_AUTOPILOT_PX4
    timesync_s = 1.0

    def parameter_message(self, name: str, value: float) -> Message:
        # Whole numbers stand in the bytes of a float.
        raw = struct.unpack("<f", struct.pack("<i", int(value)))[0]
        return mav.MAVLink_param_value_message(
            name.encode(), raw, mav.MAV_PARAM_TYPE_INT32, len(self.parameters), 0
        )

    def restart(self) -> None:
        super().restart()
        # Rates with flags, or a direction: pitch and yaw. None: nobody has commanded anything.
        self._wish: tuple[float, float, int] | tuple[float, float] | None = None
        self._wish_s = -math.inf
        self._next_wish_s = -math.inf

    def default_intervals(self) -> Mapping[int, float]:
        # With a MAVLink gimbal the device's own messages come through, and none of the autopilot's.
        return {MANAGER_STATUS: 2.0, **({ATTITUDE: 1.0} if self._gimbal_port is None else {})}

    def opens(self, message: Message) -> bool:
        return True

    def answers_for(self, target: Sender) -> bool:
        return False

    def servo_attitude(self, now_s: float) -> tuple[tuple[float, ...], int]:
        # No bit names the frame: yaw lock decides.
        if self.mount.lock:
            return self.servo_quaternion(self.mount.heading(now_s)), 28
        return self.servo_quaternion(self.mount.yaw), 12

    def gimbal_number(self) -> int:
        if self._clock() - self.booted_s < NONE_YET_S:
            return 0
        return 1 if self._gimbal_port is None else GIMBAL

    def status_time(self, now_s: float) -> float:
        # While its gimbal is silent the last status is repeated as it is.
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
            # To a device that keeps its last rate NaN changes nothing.
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
            # Obeyed whoever is in control; who is stays.
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
                # "Self" is read as the autopilot, not as the sender.
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
            # A servo mount reports its limits in degrees, and those of roll from uninitialised memory.
            numbers = (3e-41, 3e-41, -90.0, 90.0, -360.0, 360.0)
        else:
            numbers = (0.0, 0.0, *astuple(self.mount.limits))
        self.send(
            port,
            mav.MAVLink_gimbal_manager_information_message(
                # Of when it was made, not of when it is sent.
                self.boot_ms(min(self.booted_s + FOUND_S, self._clock())),
                0,
                1 if self._gimbal_port is None else 154,
                *numbers,
            ),
        )


def _are_numbers(message: Message) -> bool:
    return math.isfinite(message.param1) and math.isfinite(message.param2)
