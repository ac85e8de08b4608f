"""Constant-velocity filter of the direction from the camera to the target, in a frame that does not turn with
the camera."""

from __future__ import annotations

import math
from dataclasses import dataclass

from efftam_flight.angles import wrapped
from efftam_flight.values import NS

# Standard deviation of the unknown first rate, rad/s: that of a car at 20 m/s seen from 40 m.
FIRST_RATE_SPREAD = 0.5
# A target at FREE_RATE (rad/s) or faster gets the configured density of acceleration. A slower one gets less,
# at least the share MIN_SHARE: otherwise its estimated rate would be mostly noise, and the gimbal would
# shiver.
FREE_RATE, MIN_SHARE = math.radians(6.0), 0.03


@dataclass(frozen=True)
class Direction:
    """Yaw and pitch of a direction, rad, and their rates, rad/s."""

    yaw: float
    pitch: float
    yaw_rate: float
    pitch_rate: float


class _Axis:
    """A Kalman filter of one angle, rad, and its rate, rad/s. The acceleration is white noise."""

    def __init__(self, angle: float, variance: float) -> None:
        self.angle, self.rate = angle, 0.0
        self._aa, self._ar, self._rr = variance, 0.0, FIRST_RATE_SPREAD**2

    def step(self, dt: float, density: float, measured: float, variance: float) -> None:
        """Predict over ``dt`` seconds, then correct with an angle.

        ``density``: power density of the angle's acceleration, (rad/s^2)^2/Hz. It is reduced while the rate
        is below `FREE_RATE`. ``measured``: the measured angle, rad. ``variance``: variance of ``measured``,
        rad^2.
        """
        density *= min(max((self.rate / FREE_RATE) ** 2, MIN_SHARE), 1.0)
        angle = self.angle + self.rate * dt
        aa = self._aa + dt * (2 * self._ar + dt * self._rr) + density * dt**3 / 3
        ar = self._ar + dt * self._rr + density * dt**2 / 2
        rr = self._rr + density * dt
        surprise = wrapped(measured - angle)
        total = aa + variance
        self.angle = angle + aa / total * surprise
        self.rate += ar / total * surprise
        self._aa, self._ar, self._rr = aa * (1 - aa / total), ar * (1 - aa / total), rr - ar * ar / total


class DirectionFilter:
    """Filters the yaw and the pitch of the direction to the target.

    ``acceleration``: amplitude density of the target's angular acceleration, rad/s^2 per sqrt(Hz).
    ``noise``: standard deviation of a measured direction, rad.
    """

    def __init__(self, acceleration: float, noise: float) -> None:
        self._density, self._variance = acceleration**2, noise**2
        self._yaw: _Axis | None = None
        self._pitch: _Axis | None = None
        self.stamp_ns = 0

    @property
    def is_empty(self) -> bool:
        return self._yaw is None

    def reset(self) -> None:
        self._yaw = self._pitch = None

    def update(self, stamp_ns: int, yaw: float, pitch: float) -> None:
        """Correct the filter with a measured direction, rad. Its stamp must be later than the last one's."""
        # The steeper the pitch, the less a direction changes when its yaw changes by one degree. So the same
        # error of the direction is a larger error of the yaw.
        yaw_variance = self._variance / max(math.cos(pitch), 0.05) ** 2
        if self._yaw is None or self._pitch is None:
            self._yaw, self._pitch = _Axis(yaw, yaw_variance), _Axis(pitch, self._variance)
        else:
            dt = (stamp_ns - self.stamp_ns) / NS
            self._yaw.step(dt, self._density, yaw, yaw_variance)
            self._pitch.step(dt, self._density, pitch, self._variance)
        self.stamp_ns = stamp_ns

    def predict(self, stamp_ns: int) -> Direction:
        """Return the predicted direction at a stamp. Raise ValueError while no direction was measured."""
        if self._yaw is None or self._pitch is None:
            raise ValueError("no direction has been measured yet")
        dt = (stamp_ns - self.stamp_ns) / NS
        return Direction(
            wrapped(self._yaw.angle + self._yaw.rate * dt),
            self._pitch.angle + self._pitch.rate * dt,
            self._yaw.rate,
            self._pitch.rate,
        )
