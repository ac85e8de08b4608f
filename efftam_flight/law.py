"""The two control laws: by line of sight where the gimbal's attitude is known, by the image alone elsewhere.

Line of sight: the target's direction in space is the gimbal's attitude *at the image's stamp* plus the
bearing, so the latency of camera and tracker is outside the loop and what remains is the gimbal's own lag.
Image only: the latency sits inside the loop; the gains follow from it.
"""

from __future__ import annotations

import math

from efftam_flight.angles import wrapped
from efftam_flight.control_config import ControlConfig
from efftam_flight.direction_filter import Direction
from efftam_flight.values import Rates

# Half a frame at 30 Hz, half a tick at 50 Hz and the gimbal's own delay, s.
LOOP_DELAY_S = 0.047
GIMBAL_LAG_S = 0.05
# kp (D + lag) of control by the image alone: 0.35 is calm, 0.7 the most one should, 1 rings.
GAIN = 0.5
# The yaw rate fades to zero between these pitches, rad: at nadir yaw is undefined.
STEEP = math.radians(75.0)
NADIR = math.radians(88.0)


def nadir_factor(pitch: float) -> float:
    """Factor on the yaw rate by the camera's pitch: 1 up to 75 degrees, 0 from 88 on."""
    return min(max((NADIR - abs(pitch)) / (NADIR - STEEP), 0.0), 1.0)


def line_of_sight(target: Direction, axis: tuple[float, float], gains: ControlConfig) -> Rates:
    """Rates that bring the optical axis (yaw, pitch) onto the target and keep it there, both at this moment
    and in the same frame."""
    yaw, pitch = axis
    return Rates(
        pitch=gains.kp * (target.pitch - pitch) + gains.feed_forward * target.pitch_rate,
        yaw=gains.kp * wrapped(target.yaw - yaw) + gains.feed_forward * target.yaw_rate,
    )


class ImageOnly:
    """Proportional-integral control of the bearing; its integrals are the target's steady rate.

    The loop is kp e^(-sD) / (s (1 + s lag)), crossover near kp: the phase margin is 90 degrees
    - 57.3 kp (D + lag) - atan(ki / kp^2), 54 degrees. ``latency_s``: from an image's stamp to its answer;
    ``kp`` 1/s and ``ki`` 1/s^2 follow from it.
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
        """Rates for a bearing of this moment.

        ``dt_s``: since the last call; ``most``: the integrals' bounds; ``hold_pitch``, ``hold_yaw``: the
        integral stays (at a stop, while the target is only predicted).
        """
        if not hold_pitch:
            self._pitch = bounded(self._pitch - self.ki * elevation * dt_s, most.pitch)
        if not hold_yaw:
            self._yaw = bounded(self._yaw + self.ki * azimuth * dt_s, most.yaw)
        return Rates(-self.kp * elevation + self._pitch, self.kp * azimuth + self._yaw)


def bounded(value: float, most: float) -> float:
    return min(max(value, -most), most)
