"""Filter of a target's position and velocity on the ground, whose covariance holds the errors that last.

State: north, east, and their rates. An image gives one direction. What is wrong with it is mostly wrong with
the next one too: a compass that points 2 degrees off, a height that is 1 m too large. A filter that takes
such errors for noise soon believes that it knows the target to a few centimetres. So they are *considered*:
the filter carries their correlation with the state (Schmidt-Kalman filter; Schmidt 1966, Jazwinski 1970,
section 8.4) and estimates none of them.

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

# Of the variance of tilt and heading this part lasts (mounting, compass), the rest changes from one moment to
# the next (vibration, rounding); times over which either stays alike, s.
LASTING, FAST = 0.8, 0.6  # 0.8^2 + 0.6^2 = 1
LASTING_S, FAST_S = 300.0, 0.2
# Considered errors, each of unit variance: tilt about the camera's right and forward, heading, lasting; the
# same, fast; height; delay.
HEIGHT, DELAY, ERRORS = 6, 7, 8
TIMES_S = np.array([LASTING_S] * 3 + [FAST_S] * 3 + [LASTING_S] * 2)
# Spread of the first velocity, m/s.
FIRST_SPEED = 6.0
# Growth of the density of acceleration with the target's speed, 1/s per square root of Hz.
SPEED_SHARE = 0.05


@dataclass(frozen=True)
class Height:
    """The camera above the ground: ``value``, m, with its ``error``. From a range of ``range_m`` along
    ``axis`` (north, east, down) the tilt's error goes into the height, too; 0 where it does not."""

    value: float
    error: float
    source: HeightSource
    range_m: float = 0.0
    axis: tuple[float, float, float] = (0.0, 0.0, 1.0)


@dataclass(frozen=True)
class Ray:
    """One look at the target, at one moment.

    ``direction``: to the target, unit vector; ``camera``: where the camera is, m; ``camera_velocity`` m/s;
    ``yaw``: of the camera's level forward axis, rad; ``turning``: the camera's angular velocity, rad/s;
    ``noise``: variance of the direction across it, rad^2. Vectors are north, east, down.
    """

    direction: Array
    camera: Array
    camera_velocity: Array
    yaw: float
    turning: Array
    noise: float


class GroundFilter:
    """Position and velocity of one target. ``state``: float64 [4], north, east, m, and rates, m/s;
    ``covariance``: float64 [4, 4]."""

    def __init__(self, config: PositionConfig) -> None:
        self._config = config
        self.state: Array = np.zeros(4)
        self.covariance: Array = np.zeros((4, 4))
        self._cross: Array = np.zeros((4, ERRORS))  # of state and considered errors
        self._source = HeightSource.UNKNOWN
        self.stamp_ns: int | None = None

    @property
    def is_empty(self) -> bool:
        return self.stamp_ns is None

    def reset(self) -> None:
        self.stamp_ns = None

    def update(self, stamp_ns: int, ray: Ray, height: Height) -> None:
        """Take in one look; its stamp is not before the last one."""
        if self.stamp_ns is None:
            self._start(ray, height)
        else:
            self._advance((stamp_ns - self.stamp_ns) / NS)
            self._correct(ray, height)
        self.stamp_ns = stamp_ns

    def predict(self, stamp_ns: int) -> tuple[Array, Array]:
        """State and covariance at a stamp. Raises ValueError while `is_empty`."""
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
        """Start at the point where the ray meets the ground, with all its errors."""
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
        if height.source is not self._source:  # its error has nothing to do with that of the last one
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
        """Return the measured direction minus the expected one, across the ray [2], rad; what it changes by
        for each metre of the position [2, 2], and for each standard deviation of the considered errors [2,
        ERRORS]."""
        to_target = np.array([*(self.state[:2] - ray.camera[:2]), height.value])
        distance = math.sqrt(float(to_target @ to_target))
        expected = to_target / distance
        measured = ray.direction
        across = _across(measured, ray.yaw)
        by_point = (np.eye(3) - np.outer(expected, expected)) / distance
        c, s = math.cos(ray.yaw), math.sin(ray.yaw)
        axes = np.array([[-s, c, 0.0], [c, s, 0.0], [0.0, 0.0, 1.0]])  # right, forward, down
        by_turn = axes @ _crossing(expected)  # of the direction, by a turn about each of these
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
    """Two unit vectors at right angles to a direction, [2, 3]: the camera's right as far as possible, and
    what is below. They do not turn where the camera looks straight down."""
    right = np.array([-math.sin(yaw), math.cos(yaw), 0.0])
    right = right - float(right @ direction) * direction
    right = right / math.sqrt(float(right @ right))
    return np.array([right, direction @ _crossing(right)])


def _crossing(v: Any) -> Array:
    """Return the matrix M of ``x @ M = x cross v``; numpy's own function takes most of an update's time."""
    return np.array([[0.0, -v[2], v[1]], [v[2], 0.0, -v[0]], [-v[1], v[0], 0.0]])


def normalised_error(error: Any, covariance: Any) -> float:
    """Return ``e^T P^-1 e``; of an honest covariance of two dimensions it is below 5.99 in 95 % of all
    cases."""
    e = np.asarray(error, float)
    return float(e @ np.linalg.solve(np.asarray(covariance, float), e))
