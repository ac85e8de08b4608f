"""Simulates flights with a known target, estimates its position, and prints a table of the errors.

A target stands, walks or drives straight on. A drone sways and moves with the target, and its gimbal camera
keeps the target in view. Attitude, heading, height and bearing have errors of the sizes that the estimator
assumes. A part of the errors lasts over the flight. Printed are, for each height and depression, the errors,
and how often the true position lies in the region that should contain it in 95 % of all cases.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from efftam_flight.angles import Vector, from_angles, product, rotated
from efftam_flight.position.config import PositionConfig
from efftam_flight.position.estimator import PositionEstimator
from efftam_flight.position.geodesy import GeoPoint, LocalFrame
from efftam_flight.position.ground_filter import FAST, FAST_S, LASTING, LASTING_S, normalised_error
from efftam_flight.position.poses import PlaceSample, VehiclePoses
from efftam_flight.values import NS, AttitudeSample, Quaternion, VehicleSample, YawFrame
from efftam_ros.core.errors import InputError
from efftam_ros.core.types import TrackState
from efftam_ros.messages.positions import PositionReport
from efftam_ros.messages.reports import MotionReport
from efftam_ros.tools.common.terminal import print_table, progress_bar

Array = NDArray[np.float64]
HEIGHTS_M, DEPRESSIONS_DEG, SPEEDS = (10.0, 30.0, 100.0), (10.0, 30.0, 60.0), (0.0, 1.5, 8.0)
# Distance between the first seeds of two kinds of flights, so that no seed is used twice.
SEEDS = 100_000
WITHIN_95 = 5.991  # 95 % quantile of the normalised error in two dimensions (chi-squared)
IMAGE_S, ATTITUDE_S, PLACE_S = 0.2, 0.1, 0.2
HOME = GeoPoint(47.4, 8.55, 430.0)
# A gimbal never points exactly at the target. So the optical axis circles around the target at this angle,
# rad, with this frequency, rad/s.
OFF_AXIS, OFF_AXIS_RATE = math.radians(3.0), 0.7


@dataclass(frozen=True)
class Flight:
    """The kind of a flight.

    ``height``: m. ``depression``: of the target below the horizon, degrees. ``speed``: of the target, m/s.
    ``delay``: unknown delay of the images, s. ``yaw_rate``: if it is not 0, the camera is fixed to a vehicle
    that yaws to and fro at this rate, degrees/s; 0: the camera is on a gimbal. ``ranged``: whether a range
    finder measures along the camera's axis. ``lasts``: whether the errors of attitude and heading are
    constant during the flight.
    """

    height: float = 30.0
    depression: float = 30.0
    speed: float = 0.0
    delay: float = 0.0
    yaw_rate: float = 0.0
    ranged: bool = False
    lasts: bool = False
    seconds: float = 11.5


class Drift:
    """A random value with unit variance, whose correlation with its earlier values decays with the time
    constant ``time_s``."""

    def __init__(self, random: np.random.Generator, time_s: float) -> None:
        self._random, self._time_s, self.value = random, time_s, float(random.normal())

    def step(self, dt: float) -> float:
        kept = math.exp(-dt / self._time_s)
        self.value = kept * self.value + math.sqrt(1 - kept * kept) * float(self._random.normal())
        return self.value


class SimulatedFlight:
    """One simulated flight: the true motions, and measurements with errors."""

    def __init__(self, flight: Flight, config: PositionConfig, seed: int) -> None:
        self._flight, self._config = flight, config
        self._random = np.random.default_rng(seed)
        drifts = (LASTING_S, FAST_S)
        self._errors = [[Drift(self._random, time_s) for _ in range(3)] for time_s in drifts]
        self._height_error = float(self._random.normal())
        self._course = float(self._random.uniform(0, 2 * math.pi))
        self._bearing = float(self._random.uniform(0, 2 * math.pi))
        self._phase = float(self._random.uniform(0, 2 * math.pi))
        self._local = LocalFrame(HOME)

    def target(self, t: float) -> tuple[Array, Array]:
        """Return the target's true place [2], north and east, m, and velocity [2], m/s."""
        velocity = self._flight.speed * np.array([math.cos(self._course), math.sin(self._course)])
        return velocity * t, velocity

    def vehicle(self, t: float) -> tuple[Array, Array]:
        """Return the vehicle's true place [3], north, east, down, m, and velocity [3], m/s. The vehicle moves
        with the target and sways by 3 m."""
        flight = self._flight
        distance = flight.height / math.tan(math.radians(flight.depression))
        away = -distance * np.array([math.cos(self._bearing), math.sin(self._bearing)])
        place, velocity = self.target(t)
        w, a = 0.5, 3.0
        sway = a * np.array([math.sin(w * t + self._phase), math.sin(0.7 * w * t)])
        rate = a * w * np.array([math.cos(w * t + self._phase), 0.7 * math.cos(0.7 * w * t)])
        return np.array([*(place + away + sway), -flight.height]), np.array([*(velocity + rate), 0.0])

    def camera(self, t: float) -> Quaternion:
        """Return the camera's true attitude."""
        place, _ = self.vehicle(t)
        to = np.array([*(self.target(t)[0] - place[:2]), -place[2]])
        yaw, pitch = math.atan2(to[1], to[0]), -math.atan2(to[2], math.hypot(to[0], to[1]))
        rate = math.radians(self._flight.yaw_rate)
        if rate:  # the camera yaws to and fro by 20 degrees at a constant rate
            return from_angles(0.0, self._mount_pitch, self._bearing + _triangle(t, rate, math.radians(20.0)))
        off = OFF_AXIS * np.array([math.sin(OFF_AXIS_RATE * t), math.cos(OFF_AXIS_RATE * t)])
        return from_angles(0.0, max(pitch + off[1], -math.pi / 2), yaw + off[0])

    @property
    def _mount_pitch(self) -> float:
        return -math.radians(self._flight.depression)

    def fly(self) -> Iterator[tuple[float, PositionReport]]:
        """Fly. Yield each position that the estimator returns, with the stamp of its image, s."""
        flight, config = self._flight, self._config
        poses = VehiclePoses(config, mount=(0.0, self._mount_pitch, 0.0) if flight.yaw_rate else None)
        estimator = PositionEstimator(config, poses)
        next_place = next_image = 0.0
        waiting: list[MotionReport] = []
        for step in range(round(flight.seconds / ATTITUDE_S)):
            t = step * ATTITUDE_S
            measured = product(self._error(ATTITUDE_S if step else 0.0), self.camera(t))
            if flight.yaw_rate:
                poses.add_vehicle(self._vehicle_sample(t, measured))
            else:
                poses.add_gimbal(AttitudeSample(_ns(t), measured, YawFrame.EARTH))
            if t >= next_place:
                next_place += PLACE_S
                poses.add_place(self._place(t, measured))
            if t >= next_image and t > flight.delay:
                next_image += IMAGE_S
                waiting.append(self._look(t))
            # The estimator gets an answer only after the attitudes around its image have been added.
            while waiting and waiting[0].stamp_ns <= _ns(t - ATTITUDE_S):
                report = waiting.pop(0)
                yield report.stamp_ns / NS, estimator.answer(report)

    def _error(self, dt: float) -> Quaternion:
        """Return the rotation from the true attitude to the measured one. It is made of small turns about the
        camera's level right axis, its level forward axis, and down."""
        config = self._config
        sizes = (config.attitude_error, config.attitude_error, config.heading_error)
        lasting, fast = self._errors
        if self._flight.lasts:
            turns = [size * one.value for size, one in zip(sizes, lasting, strict=True)]
        else:
            turns = [
                size * (LASTING * a.step(dt) + FAST * b.step(dt))
                for size, a, b in zip(sizes, lasting, fast, strict=True)
            ]
        c, s = math.cos(self._bearing), math.sin(self._bearing)
        right, forward, down = turns
        v = np.array([-s * right + c * forward, c * right + s * forward, down]) / 2
        return math.sqrt(1 - float(v @ v)), float(v[0]), float(v[1]), float(v[2])

    def _vehicle_sample(self, t: float, camera: Quaternion) -> VehicleSample:
        """Return the vehicle's attitude with which a fixed camera has this attitude."""
        q = product(camera, _inverse(from_angles(0.0, self._mount_pitch, 0.0)))
        forward, right = rotated(q, (1.0, 0.0, 0.0)), rotated(q, (0.0, 1.0, 0.0))
        down = rotated(q, (0.0, 0.0, 1.0))
        roll, pitch = math.atan2(right[2], down[2]), -math.asin(forward[2])
        return VehicleSample(_ns(t), math.atan2(forward[1], forward[0]), 0.0, roll, pitch)

    def _place(self, t: float, camera: Quaternion) -> PlaceSample:
        flight, config = self._flight, self._config
        place, velocity = self.vehicle(t)
        point = self._local.to_geo(place[0], place[1], -place[2])
        known: dict[str, float] = {
            "height_above_home": flight.height + config.home_error * self._height_error
        }
        if flight.ranged:
            axis = rotated(self.camera(t), (1.0, 0.0, 0.0))
            if axis[2] > 0.0:
                known["range"] = flight.height / axis[2] + config.range_error * self._height_error
        north, east, down = map(float, velocity)
        return PlaceSample(_ns(t), point, (north, east, down), **known)

    def _look(self, t: float) -> MotionReport:
        """Return the tracker's answer to an image taken at ``t``, whose stamp is too late by ``delay``."""
        place, _ = self.vehicle(t)
        to: Vector = (*(float(v) for v in self.target(t)[0] - place[:2]), float(-place[2]))  # type: ignore[assignment]
        x, y, z = rotated(_inverse(self.camera(t)), to)
        noise = self._random.normal(0.0, self._config.bearing_error, 2)
        return MotionReport(
            _ns(t + self._flight.delay),
            target_id=1,
            state=TrackState.TRACKING,
            selection=1,
            measured=True,
            age_s=0.0,
            valid=x > 0.0,
            has_bearing=True,
            azimuth=math.atan2(y, x) + noise[0],
            elevation=math.atan2(z, math.hypot(x, y)) + noise[1],
        )


def _ns(t: float) -> int:
    return NS + round(t * NS)


def _inverse(q: Quaternion) -> Quaternion:
    return q[0], -q[1], -q[2], -q[3]


def _triangle(t: float, rate: float, most: float) -> float:
    """Return a value that starts at 0 and moves to and fro between -most and most at a constant rate."""
    return most * (2 / math.pi) * math.asin(math.sin(math.pi / 2 * rate * t / most))


@dataclass(frozen=True)
class Errors:
    """Errors over many flights.

    ``position_m``: RMS of the horizontal error 5 s and 10 s after the flight's begin. ``velocity``: RMS error
    of the velocity after 10 s, m/s. ``inside``: share of the true positions inside the 95 % region.
    ``said_m``: RMS of the horizontal error that the covariance gives.
    """

    position_m: float
    velocity: float
    inside: float
    said_m: float


def measure(flight: Flight, config: PositionConfig, seeds: Sequence[int]) -> Errors:
    """Fly this flight once for each seed, and return the errors 5 s and 10 s after its begin."""
    position: list[float] = []
    velocity: list[float] = []
    normalised: list[float] = []
    said: list[float] = []
    for seed in seeds:
        simulated = SimulatedFlight(flight, config, seed)
        due = [5.0, 10.0]
        for t, answer in simulated.fly():
            t -= 1.0
            if not due or t < due[0] or not answer.valid:
                continue
            looked = due.pop(0)
            place, speed = simulated.target(t)
            error = np.array([answer.x, answer.y]) - (place[::-1] - _origin(simulated)[::-1])
            covariance = np.reshape(answer.covariance, (4, 4))
            position.append(float(error @ error))
            said.append(float(np.trace(covariance[:2, :2])))
            normalised.append(normalised_error(error, covariance[:2, :2]))
            if looked == 10.0:
                off = np.array([answer.velocity_x, answer.velocity_y]) - speed[::-1]
                velocity.append(float(off @ off))
    return Errors(
        math.sqrt(float(np.mean(position))),
        math.sqrt(float(np.mean(velocity))),
        float(np.mean(np.array(normalised) < WITHIN_95)),
        math.sqrt(float(np.mean(said))),
    )


def _origin(simulated: SimulatedFlight) -> Array:
    """Return the origin of the estimator's local frame [2], north and east, m: the vehicle's first
    position."""
    return simulated.vehicle(0.0)[0][:2]


SPECIAL = {
    "range finder, standing": Flight(ranged=True),
    "range finder, walking": Flight(ranged=True, speed=1.5),
    "height above home, standing": Flight(),
    "height above home, walking": Flight(speed=1.5),
    "errors that last, standing": Flight(lasts=True),
    "vehicle yaws at 30 degrees/s": Flight(yaw_rate=30.0),
    "the same, 50 ms unknown delay": Flight(yaw_rate=30.0, delay=0.05),
    "the same, 150 ms unknown delay": Flight(yaw_rate=30.0, delay=0.15),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=100, help="flights of each speed (default 100)")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON instead of a table")


def run(args: argparse.Namespace) -> int:
    """Fly all kinds of flights and print their errors. Return the exit code."""
    if not 2 <= args.runs <= 10_000:
        raise InputError(f"--runs is {args.runs}; give 2 to 10000")
    config = PositionConfig()
    kinds: dict[str, list[Flight]] = {
        f"{height:.0f} m high, {depression:.0f} degrees down": [
            Flight(height, depression, speed) for speed in SPEEDS
        ]
        for height in HEIGHTS_M
        for depression in DEPRESSIONS_DEG
    }
    kinds.update({name: [flight] for name, flight in SPECIAL.items()})
    found: dict[str, Errors] = {}
    number = 0
    with progress_bar(len(kinds), "flying", unit="kind", quiet=args.json) as bar:
        for name, flights in kinds.items():
            runs = args.runs * len(SPEEDS) // len(flights)
            seeds = [range(SEEDS * n, SEEDS * n + runs) for n in range(number, number + len(flights))]
            number += len(flights)
            each = [measure(flight, config, of) for flight, of in zip(flights, seeds, strict=True)]
            found[name] = replace(each[0], **{key: _pooled(each, key) for key in asdict(each[0])})
            bar.update()
    if args.json:
        json.dump({name: asdict(errors) for name, errors in found.items()}, sys.stdout, indent=1)
        print()
    else:
        rows = [
            (name, f"{e.position_m:.2f}", f"{e.said_m:.2f}", f"{e.velocity:.2f}", f"{100 * e.inside:.1f}")
            for name, e in found.items()
        ]
        head = ("flight", "error m", "estimated error m", "velocity error m/s", "inside 95 % region")
        print_table(head, rows)
    return 0


def _pooled(each: Sequence[Any], key: str) -> float:
    values = [getattr(errors, key) for errors in each]
    if key == "inside":
        return float(np.mean(values))
    return math.sqrt(float(np.mean(np.square(values))))
