"""Chooses which of several streams of gimbal attitude is used.

The attitude of a gimbal (message 285) may arrive twice: from the gimbal itself (component 154 or 171 to 175)
and as a copy from the autopilot. The two have different clocks. If the gimbal fails, the autopilot continues
to send copies of the last attitude. So if the gimbal itself has ever sent its attitude, copies are not used.
"""

from __future__ import annotations

import math

from efftam_flight.bridge_config import GIMBAL_COMPONENTS
from efftam_flight.control_config import Instant
from efftam_flight.mavlink.clock_map import ClockMap
from efftam_flight.mavlink.dialect import Message
from efftam_flight.values import NS, AttitudeSample, YawFrame, device_sample
from efftam_flight.waits import GIMBAL_SILENT_S


def mount_of(number: int) -> int:
    """Return the number of the mount, from 1, that a gimbal_device_id names. The id is this number itself or
    the gimbal's component id. 0 names no mount, and 0 is returned."""
    return GIMBAL_COMPONENTS.index(number) + 1 if number in GIMBAL_COMPONENTS else number


class _AttitudeStream:
    """The stream of attitudes from one component."""

    def __init__(self) -> None:
        self.clock = ClockMap()
        self.time_boot_ms = -1
        self.advanced_s = -math.inf

    @property
    def is_timeless(self) -> bool:
        return self.time_boot_ms == 0

    def take(self, message: Message, now_s: float) -> bool:
        """Record a message. Return False if the message carries the same time as the last one, so that it
        contains nothing new. A time of 0 means that the gimbal sends no time; then each message is new."""
        if message.time_boot_ms == self.time_boot_ms and not self.is_timeless:
            return False
        self.time_boot_ms, self.advanced_s = message.time_boot_ms, now_s
        return True


class AttitudeSources:
    """Chooses among the streams of attitude of one vehicle's gimbal."""

    def __init__(self, manager_component: int, gimbal_device_id: int = 0) -> None:
        self._manager = manager_component
        mount = mount_of(gimbal_device_id)
        self._gimbals = GIMBAL_COMPONENTS[mount - 1 : mount] if mount else GIMBAL_COMPONENTS
        self._streams: dict[int, _AttitudeStream] = {}
        self.yaw_frame: YawFrame | None = None  # yaw frame of the last attitude that was used

    @property
    def device(self) -> int | None:
        """The component id of the gimbal that has sent its own attitude; None if no gimbal has."""
        return next((component for component in self._gimbals if component in self._streams), None)

    @property
    def is_timeless(self) -> bool:
        """Whether a source sends its attitude without a time."""
        return any(stream.is_timeless for stream in self._streams.values())

    def device_sends(self, now: Instant) -> bool:
        device = self.device
        return device is not None and now.steady_s - self._streams[device].advanced_s <= GIMBAL_SILENT_S

    def is_dead(self, now: Instant) -> bool:
        """Return whether a gimbal has stopped sending its own attitude. The autopilot's copies do not count,
        because they continue when the gimbal has failed."""
        return self.device is not None and not self.device_sends(now)

    def take(self, message: Message, now: Instant) -> AttitudeSample | None:
        """Return the attitude in a message 285, with its stamp on the images' clock. Return None if another
        source is used, or if the message contains nothing new."""
        component = message.get_srcComponent()
        if component != self._manager and component not in self._gimbals:
            return None
        stream = self._streams.setdefault(component, _AttitudeStream())
        if not stream.take(message, now.steady_s):
            return None
        made_s = now.steady_s
        if not stream.is_timeless:
            made_s = stream.clock.to_ours(message.time_boot_ms / 1000.0, now.steady_s)
        if component == self._manager:
            if self.device is not None:
                return None
        elif component != self.device:
            return None
        stamp_ns = now.stamp_ns - round((now.steady_s - made_s) * NS)
        q = message.q
        sample = device_sample(stamp_ns, (q[0], q[1], q[2], q[3]), message.flags, message.failure_flags)
        self.yaw_frame = sample.yaw_frame
        return sample
