"""Filter of a target's position and velocity on the ground. Its covariance includes lasting errors.

The state is the position (north, east) and its rates. Each image gives one direction to the target. The error
of a direction is mostly the same in the next image: the compass is off by 2 degrees, or the height is 1 m too
large. If a filter treated such errors as noise, its covariance would soon shrink to a few centimetres, which
is wrong. So these errors are *considered*: the filter keeps their correlation with the state, but does not
estimate them (Schmidt-Kalman filter; Schmidt 1966, Jazwinski 1970, section 8.4).

Axes: north, east, down; angles as in `efftam_flight.angles`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from efftam_flight.position.config import PositionConfig
from efftam_flight.values import NS
from efftam_ros.messages.positions import HeightSource

Array = NDArray[np.float64]

# The error of tilt and heading has two parts: a lasting one (mounting, compass) and a fast one (vibration,
# rounding). These are their shares of the standard deviation.
LASTING, FAST = 0.8, 0.6  # the squares add up to 1, the whole variance
# Correlation times of the lasting and of the fast errors, s.
LASTING_S, FAST_S = 300.0, 0.2
# The considered errors, each of unit variance. 0 to 2: lasting error of tilt about the camera's right axis,
# of tilt about its forward axis, of heading. 3 to 5: the fast errors of these three. 6: height. 7: delay.
HEIGHT, DELAY, ERRORS = 6, 7, 8
TIMES_S = np.array([LASTING_S] * 3 + [FAST_S] * 3 + [LASTING_S] * 2)
# Standard deviation of a target's unknown first velocity, along each axis, m/s.
FIRST_SPEED = 6.0
# The density of the target's acceleration grows with its speed by this factor, 1/s per square root of Hz.
SPEED_SHARE = 0.05


@dataclass(frozen=True)
class Height:
    """The camera's height above the ground: ``value``, m, with its standard deviation ``error``, m.

    ``range_m``: the measured range along ``axis``, if the height was computed from it, m; 0 otherwise. If the
    height was computed from a range, an error of the tilt is an error of the height, too. ``axis``: unit
    vector, north, east, down.
    """

    value: float
    error: float
    source: HeightSource
    range_m: float = 0.0
    axis: tuple[float, float, float] = (0.0, 0.0, 1.0)


@dataclass(frozen=True)
class Ray:
    """One measured direction to the target, with the camera's pose at that moment.

    ``direction``: unit vector to the target. ``camera``: the camera's position, m. ``camera_velocity``: m/s.
    ``yaw``: the camera's heading from north, rad. ``turning``: the camera's angular velocity, rad/s.
    ``noise``: variance of the direction along each axis at right angles to it, rad^2. Vectors are float64
    [3]: north, east, down.
    """

    direction: Array
    camera: Array
    camera_velocity: Array
    yaw: float
    turning: Array
    noise: float


class GroundFilter:
    """Estimates position and velocity of one target. ``state``: float64 [4], position north and east, m, and
    velocity north and east, m/s. ``covariance``: float64 [4, 4], of the state."""

    def __init__(self, config: PositionConfig) -> None:
        self._config = config
        self.state: Array = np.zeros(4)
        self.covariance: Array = np.zeros((4, 4))
        self._cross: Array = np.zeros((4, ERRORS))  # covariance of the state with the considered errors
        self._source = HeightSource.UNKNOWN
        self.stamp_ns: int | None = None

    @property
    def is_empty(self) -> bool:
        return self.stamp_ns is None

    def reset(self) -> None:
        self.stamp_ns = None

    def update(self, stamp_ns: int, ray: Ray, height: Height) -> None:
        """Correct the state with a measured direction. If the filter is empty, compute the first state from
        it. Stamps must not go back. ``height``: the camera's height above the target."""
        if self.stamp_ns is None:
            self._start(ray, height)
        else:
            self._advance((stamp_ns - self.stamp_ns) / NS)
            self._correct(ray, height)
        self.stamp_ns = stamp_ns

    def predict(self, stamp_ns: int) -> tuple[Array, Array]:
        """Return the predicted state [4] and its covariance [4, 4] at a stamp. Raise ValueError if the filter
        is empty."""
        if self.stamp_ns is None:
            raise ValueError("nothing has been measured yet")
        transition, noise = self._motion(max((stamp_ns - self.stamp_ns) / NS, 0.0))
        return transition @ self.state, transition @ self.covariance @ transition.T + noise

    def _motion(self, dt: float) -> tuple[Array, Array]:
        transition = np.eye(4)
        transition[0, 2] = transition[1, 3] = dt
        density = (self._config.target_acceleration + SPEED_SHARE * math.hypot(*self.state[2:])) ** 2
        noise = np.zeros((4, 4))
        for axis in (0, 1):
            noise[axis, axis] = density * dt**3 / 3
            noise[axis, axis + 2] = noise[axis + 2, axis] = density * dt**2 / 2
            noise[axis + 2, axis + 2] = density * dt
        return transition, noise

    def _advance(self, dt: float) -> None:
        transition, noise = self._motion(dt)
        self.state = transition @ self.state
        self.covariance = transition @ self.covariance @ transition.T + noise
        self._cross = transition @ self._cross * np.exp(-dt / TIMES_S)

    def _start(self, ray: Ray, height: Height) -> None:
        """Set the first state: the point where the ray meets the level plane of the target. Its covariance
        follows from the considered errors and the noise of the direction."""
        scale = height.value / ray.direction[2]
        self.state = np.array([*(ray.camera[:2] + scale * ray.direction[:2]), 0.0, 0.0])
        _, by_place, by_errors = self._model(ray, height)
        spread = -np.linalg.inv(by_place)
        errors = spread @ by_errors
        self._cross = np.zeros((4, ERRORS))
        self.covariance = np.diag([0.0, 0.0, FIRST_SPEED**2, FIRST_SPEED**2])
        self.covariance[:2, :2] = errors @ errors.T + ray.noise * spread @ spread.T
        self._cross[:2] = errors
        self._source = height.source

    def _correct(self, ray: Ray, height: Height) -> None:
        if height.source is not self._source:  # heights of different sources have independent errors
            self._source = height.source
            self._cross[:, HEIGHT] = 0.0
        residual, by_place, by_errors = self._model(ray, height)
        observed = np.zeros((2, 4))
        observed[:, :2] = by_place
        gained = self.covariance @ observed.T + self._cross @ by_errors.T
        of_errors = by_errors + observed @ self._cross
        total = observed @ gained + by_errors @ of_errors.T + ray.noise * np.eye(2)
        gain = np.linalg.solve(total, gained.T).T
        self.state = self.state + gain @ residual
        self.covariance = self.covariance - gain @ total @ gain.T
        self.covariance = (self.covariance + self.covariance.T) / 2
        self._cross = self._cross - gain @ of_errors

    def _model(self, ray: Ray, height: Height) -> tuple[Array, Array, Array]:
        """Return the residual of a direction and the derivatives of the expected direction.

        All are components along two axes at right angles to the measured direction. The residual [2] is the
        measured minus the expected direction, rad. The derivatives are [2, 2] by the target's position
        (north, east), rad/m, and [2, ERRORS] by the considered errors, rad per standard deviation.
        """
        to_target = np.array([*(self.state[:2] - ray.camera[:2]), height.value])
        distance = math.sqrt(float(to_target @ to_target))
        expected = to_target / distance
        measured = ray.direction
        across = _across(measured, ray.yaw)
        by_point = (np.eye(3) - np.outer(expected, expected)) / distance
        c, s = math.cos(ray.yaw), math.sin(ray.yaw)
        axes = np.array([[-s, c, 0.0], [c, s, 0.0], [0.0, 0.0, 1.0]])  # rows: right, forward, down
        by_turn = axes @ _crossing(expected)  # change of the direction by a turn about each of the three axes
        if height.range_m:
            by_turn = by_turn - np.outer(
                height.range_m * (axes @ _crossing(height.axis))[:, 2], by_point[:, 2]
            )
        config = self._config
        sizes = np.array([config.attitude_error, config.attitude_error, config.heading_error])
        turns = (sizes[:, None] * by_turn).T
        velocity = np.array([*self.state[2:], 0.0])
        by_delay = by_point @ (velocity - ray.camera_velocity) - ray.turning @ _crossing(expected)
        errors = np.empty((3, ERRORS))
        errors[:, :3], errors[:, 3:6] = LASTING * turns, FAST * turns
        errors[:, HEIGHT] = -height.error * by_point[:, 2]
        errors[:, DELAY] = config.delay_error * by_delay
        return across @ (measured - expected), across @ by_point[:, :2], across @ errors


def _across(direction: Array, yaw: float) -> Array:
    """Return two unit vectors at right angles to a direction, [2, 3]: one to the right, one below it.

    Right comes from the camera's yaw, so that the vectors are defined even for a direction straight down.
    """
    right = np.array([-math.sin(yaw), math.cos(yaw), 0.0])
    right = right - float(right @ direction) * direction
    right = right / math.sqrt(float(right @ right))
    return np.array([right, direction @ _crossing(right)])


def _crossing(v: Any) -> Array:
    """Return the matrix M with ``x @ M`` equal to the cross product of x and v. The function numpy.cross
    would take most of the time of an update."""
    return np.array([[0.0, -v[2], v[1]], [v[2], 0.0, -v[0]], [-v[1], v[0], 0.0]])


def normalised_error(error: Any, covariance: Any) -> float:
    """Return ``e^T P^-1 e`` for an error e [n] and its covariance P [n, n]. If n is 2 and the covariance is
    right, this is below 5.99 in 95 % of all cases."""
    e = np.asarray(error, float)
    return float(e @ np.linalg.solve(np.asarray(covariance, float), e))
