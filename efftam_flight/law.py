"""The two control laws: line of sight, used while the gimbal's attitude is known, and image only.

Line of sight: the target's direction in space is the gimbal's attitude *at the image's stamp* plus the
bearing. So the latency of camera and tracker is outside the loop, and only the gimbal's own lag is inside.
Image only: the latency is inside the loop, so the gains must be lower the longer it is.
"""

from __future__ import annotations

import math

from efftam_flight.angles import wrapped
from efftam_flight.control_config import ControlConfig
from efftam_flight.direction_filter import Direction
from efftam_flight.values import Rates

# Delay in the loop besides the latency, s: half a frame at 30 Hz, half a tick at 50 Hz, and the gimbal's
# delay of 20 ms.
LOOP_DELAY_S = 0.047
GIMBAL_LAG_S = 0.05
# The product of kp and the loop's whole delay and lag, for control by the image alone. A value of 0.35 is
# calm, 0.7 is the largest sensible one, and with 1 the loop oscillates.
GAIN = 0.5
# Between the pitches STEEP and NADIR, rad, the yaw rate falls to zero: the yaw of a camera that looks
# straight down is undefined.
STEEP = math.radians(75.0)
NADIR = math.radians(88.0)


def nadir_factor(pitch: float) -> float:
    """Return the factor on the yaw rate for a pitch of the camera, rad: 1 up to 75 degrees from level, 0 from
    88 degrees on."""
    return min(max((NADIR - abs(pitch)) / (NADIR - STEEP), 0.0), 1.0)


def line_of_sight(target: Direction, axis: tuple[float, float], gains: ControlConfig) -> Rates:
    """Return rates that bring the optical axis onto the target and keep it there. ``axis``: yaw and pitch of
    the optical axis, rad, at the same moment and in the same frame as ``target``."""
    yaw, pitch = axis
    return Rates(
        pitch=gains.kp * (target.pitch - pitch) + gains.feed_forward * target.pitch_rate,
        yaw=gains.kp * wrapped(target.yaw - yaw) + gains.feed_forward * target.yaw_rate,
    )


class ImageOnly:
    """Proportional-integral control of the bearing. The integral of an axis settles at the target's rate.

    The open loop is kp e^(-sD) / (s (1 + s lag)), with D the delay and lag that of the gimbal. It crosses
    over near kp. The phase margin is 90 degrees - 57.3 kp (D + lag) - atan(ki / kp^2), which is 54 degrees
    here. ``latency_s``: time from an image's stamp to its answer, s. It decides ``kp``, 1/s, and ``ki``,
    1/s^2.
    """

    def __init__(self, latency_s: float) -> None:
        self.kp = GAIN / (latency_s + LOOP_DELAY_S + GIMBAL_LAG_S)
        self.ki = self.kp * self.kp / 8
        self._pitch = self._yaw = 0.0

    def reset(self) -> None:
        self._pitch = self._yaw = 0.0

    def rates(
        self, azimuth: float, elevation: float, dt_s: float, most: Rates, hold_pitch: bool, hold_yaw: bool
    ) -> Rates:
        """Return rates for the present bearing, rad.

        ``dt_s``: time since the last call. ``most``: the largest size of the integrals, rad/s.
        ``hold_pitch``, ``hold_yaw``: whether this axis keeps its integral, because the axis is at a stop or
        the target is only predicted.
        """
        if not hold_pitch:
            self._pitch = bounded(self._pitch - self.ki * elevation * dt_s, most.pitch)
        if not hold_yaw:
            self._yaw = bounded(self._yaw + self.ki * azimuth * dt_s, most.yaw)
        return Rates(-self.kp * elevation + self._pitch, self.kp * azimuth + self._yaw)


def bounded(value: float, most: float) -> float:
    return min(max(value, -most), most)
