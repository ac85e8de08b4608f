"""The mechanics of a two-axis gimbal under a vehicle that turns: lag, rate limit, stops."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from efftam_ros.flight.angles import wrapped
from efftam_ros.flight.values import GimbalLimits

LIMITS = GimbalLimits(math.radians(-135), math.radians(45), math.radians(-160), math.radians(160))


def level(time_s: float) -> tuple[float, float]:
    """A vehicle that keeps its heading: north, no turn."""
    return 0.0, 0.0


@dataclass
class Mount:
    """``yaw``: of the joint, from the vehicle's nose, and ``pitch``, rad. ``vehicle`` gives heading and yaw
    rate at a time. A wish is a rate, from north (``lock``) or from the vehicle."""

    vehicle: Callable[[float], tuple[float, float]] = level
    limits: GimbalLimits = LIMITS
    lag_s: float = 0.05
    max_rate: float = math.radians(90.0)
    yaw: float = 0.0
    pitch: float = 0.0
    lock: bool = False

    def __post_init__(self) -> None:
        self._wish = (0.0, 0.0)
        self._rate = [0.0, 0.0]
        self._time_s: float | None = None

    def wish(self, pitch_rate: float, yaw_rate: float, lock: bool) -> None:
        """Set the commanded rates, rad/s."""
        self._wish = (pitch_rate, yaw_rate)
        self.lock = lock

    def step(self, time_s: float) -> None:
        """Advance to this time."""
        if self._time_s is None:
            self._time_s = time_s
        while self._time_s < time_s - 1e-9:
            dt = min(0.002, time_s - self._time_s)
            self._time_s += dt
            for axis, wish in enumerate(self._wish):
                bounded = min(max(wish, -self.max_rate), self.max_rate)
                self._rate[axis] += (bounded - self._rate[axis]) * (
                    dt / self.lag_s if self.lag_s > dt else 1.0
                )
            # A stabilised mount compensates the vehicle's rotation itself.
            own = self.vehicle(self._time_s)[1] if self.lock else 0.0
            limits = self.limits
            self.pitch = min(max(self.pitch + self._rate[0] * dt, limits.pitch_min), limits.pitch_max)
            self.yaw = min(max(self.yaw + (self._rate[1] - own) * dt, limits.yaw_min), limits.yaw_max)

    def heading(self, time_s: float) -> float:
        """Yaw of the optical axis from north, rad."""
        return wrapped(self.vehicle(time_s)[0] + self.yaw)
