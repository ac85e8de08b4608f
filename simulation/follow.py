"""Simulates flights, in simulated time, in which a vehicle follows a walking target by a mode of its
autopilot.

A target walks along a square of 20 m at 1.5 m/s. The stand-in of an autopilot flies the vehicle. A camera on
a gimbal looks at the target. Bearings and attitudes have the errors that the estimator of positions assumes.
The bridge sends FOLLOW_TARGET, and the vehicle flies as the source of the autopilot's mode defines.

Printed are the distance of the vehicle from the place that the mode wants, and, for each event that ends
following, the time until the vehicle is slow.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from efftam_flight.angles import from_angles, product, rotated
from efftam_flight.bridge_config import BridgeConfig
from efftam_flight.control_config import Instant
from efftam_flight.mavlink.bridge import Bridge
from efftam_flight.position.config import PositionConfig
from efftam_flight.position.estimator import PositionEstimator
from efftam_flight.position.ground_filter import FAST, FAST_S, LASTING, LASTING_S
from efftam_flight.position.poses import PlaceSample, VehiclePoses
from efftam_flight.values import (
    NS,
    AttitudeSample,
    Control,
    GimbalLimits,
    Quaternion,
    VehicleSample,
    YawFrame,
)
from efftam_ros.core.reasons import Reason
from efftam_ros.core.types import TrackState
from efftam_ros.messages.positions import PositionReport
from efftam_ros.messages.reports import MotionReport, Selection
from efftam_ros.tools.common.terminal import print_table
from simulation.autopilots.ardupilot import ArduPilot
from simulation.autopilots.autopilot import Autopilot, Port
from simulation.autopilots.following import (
    FOLLOWS,
    LOITER,
    ApFollow,
    AutoFollowTarget,
    FlyingVehicle,
    Follower,
)
from simulation.autopilots.gimbal import Mount
from simulation.autopilots.memory_link import memory_link
from simulation.autopilots.px4 import PX4
from simulation.position import Drift

Array = NDArray[np.float64]
FLAVOURS: dict[str, tuple[type[Autopilot], type[Follower]]] = {
    "ardupilot": (ArduPilot, ApFollow),
    "px4": (PX4, AutoFollowTarget),
}
SIDE_M, WALK = 20.0, 1.5
HEIGHT_M, AWAY_M = 25.0, 20.0
STEP_S, IMAGE_S, ANSWER_S = 0.02, 0.1, 0.1
EPOCH_NS = 1_700_000_000 * NS
SETTLE_S, FOLLOW_S = 20.0, 60.0
# A vehicle slower than this counts as stopped, m/s.
SLOW = 0.5
RUNS = 5


def square(t: float) -> Array:
    """Return the walking target's place at a time, [2], north and east, m."""
    way = (WALK * t) % (4 * SIDE_M)
    side, along = divmod(way, SIDE_M)
    corners = np.array([[0.0, 0.0], [SIDE_M, 0.0], [SIDE_M, SIDE_M], [0.0, SIDE_M], [0.0, 0.0]])
    first, last = corners[int(side)], corners[int(side) + 1]
    return np.asarray(first + (last - first) * along / SIDE_M)


class _Nobody:
    """Receives gimbal data and selections from the bridge and ignores them. The flight computes the camera's
    pose itself."""

    def attitude(self, sample: AttitudeSample) -> None: ...
    def vehicle(self, sample: VehicleSample) -> None: ...
    def control(self, control: Control, reason: Reason) -> None: ...
    def gimbal_alive(self, alive: bool) -> None: ...
    def limits(self, limits: GimbalLimits) -> None: ...
    def select(self, request: Selection) -> str | None:
        return None


class FollowFlight:
    """One simulated flight.

    Tests and the functions in `ENDINGS` change these attributes. ``state``: the target's state in the
    tracker's answers. ``answers``: whether the tracker answers. ``placed``: whether the position node runs.
    ``bridged``: whether the bridge runs.
    """

    def __init__(self, flavour: str, seed: int = 1, follow: bool = True) -> None:
        self.t = 0.0
        self._random = np.random.default_rng(seed)
        kind, mode = FLAVOURS[flavour]
        self.follower = mode(FlyingVehicle(np.array([-AWAY_M, 0.0, -HEIGHT_M])))
        self.here, self.there = memory_link("companion", self._now)
        self.autopilot = kind({"companion": Port(self.there)}, self._now, Mount())
        self.autopilot.follower = self.follower
        self._config = BridgeConfig(follow=follow)
        self.lines: list[str] = []
        self.poses = VehiclePoses(PositionConfig())
        self.estimator = PositionEstimator(PositionConfig(), self.poses)
        self.begin_bridge_anew()
        self.state, self.selection = TrackState.TRACKING, 1
        self.answers = self.placed = self.bridged = True
        self._last_measured_s = 0.0
        self._waiting: list[tuple[float, MotionReport]] = []
        self._next_image_s = 0.0
        self._errors = [[Drift(self._random, s) for _ in range(3)] for s in (LASTING_S, FAST_S)]
        self.sent_s: list[float] = []  # times at which a FOLLOW_TARGET arrived
        self.position: PositionReport | None = None
        self.far: list[float] = []  # distance from the wanted place after each step, m

    def _now(self) -> float:
        return self.t

    def _instant(self) -> Instant:
        return Instant(EPOCH_NS + round(self.t * NS), self.t)

    def begin_bridge_anew(self) -> None:
        """Replace the bridge by a new one, as if its process had been killed and started again."""
        nobody = _Nobody()
        self.bridge = Bridge(
            self._config,
            [self.here],
            nobody,
            nobody,
            self._instant,
            lambda severity, text: self.lines.append(text),
            vehicle=self._on_place,
        )

    def _on_place(self, sample: PlaceSample) -> None:
        self.poses.add_place(sample)

    def begin_positions_anew(self) -> None:
        """Replace the estimator of positions by a new one, as if its node had been killed and started
        again."""
        self.poses = VehiclePoses(PositionConfig())
        self.estimator = PositionEstimator(PositionConfig(), self.poses)

    def run(self, seconds: float) -> FollowFlight:
        for _ in range(round(seconds / STEP_S)):
            self.t += STEP_S
            self._look()
            before = self.follower.taken
            self.autopilot.step()
            if self.bridged:
                self.bridge.step()
            if self.follower.taken != before:
                self.sent_s.append(self.t)
            off = self.follower.vehicle.place[:2] - self.follower.wanted_place(square(self.t))
            self.far.append(float(np.hypot(*off)))
        return self

    def take_off(self) -> FollowFlight:
        """Enable FOLLOW_TARGET, and choose the mode that follows."""
        self.run(6.0)
        self.bridge.enable_follow(True)
        self.run(1.0)
        self.follower.choose(FOLLOWS)
        return self

    def _camera(self) -> Quaternion:
        place = self.follower.vehicle.place
        to = square(self.t) - place[:2]
        return from_angles(0.0, math.atan2(place[2], float(np.hypot(*to))), math.atan2(to[1], to[0]))

    def _look(self) -> None:
        """Measure the gimbal's attitude at each step, take an image each 0.1 s, and give the estimator the
        answers whose delay has passed."""
        config, camera = PositionConfig(), self._camera()
        sizes = (config.attitude_error, config.attitude_error, config.heading_error)
        turns = [
            size * (LASTING * a.step(STEP_S) + FAST * b.step(STEP_S))
            for size, a, b in zip(sizes, *self._errors, strict=True)
        ]
        wrong = from_angles(turns[0], turns[1], turns[2])
        measured = product(wrong, camera)
        stamp = self._instant().stamp_ns
        self.poses.add_gimbal(AttitudeSample(stamp, measured, YawFrame.EARTH))
        if self.t >= self._next_image_s:
            self._next_image_s += IMAGE_S
            self._waiting.append((self.t + ANSWER_S, self._answer(stamp, camera)))
        while self._waiting and self._waiting[0][0] <= self.t:
            report = self._waiting.pop(0)[1]
            if self.answers and self.placed:
                self.position = self.estimator.answer(report)
                if self.bridged:
                    self.bridge.locate(self.position)

    def _answer(self, stamp: int, camera: Quaternion) -> MotionReport:
        place = self.follower.vehicle.place
        north, east = square(self.t) - place[:2]
        w, x, y, z = camera
        ray = rotated((w, -x, -y, -z), (float(north), float(east), float(-place[2])))
        noise = self._random.normal(0.0, math.radians(0.1), 2)
        measured = self.state is TrackState.TRACKING
        if measured:
            self._last_measured_s = self.t
        return MotionReport(
            stamp,
            target_id=1,
            state=self.state,
            selection=self.selection,
            measured=measured,
            age_s=self.t - self._last_measured_s,
            valid=self.state in (TrackState.TRACKING, TrackState.COASTING),
            has_bearing=True,
            azimuth=math.atan2(ray[1], ray[0]) + noise[0],
            elevation=math.atan2(ray[2], math.hypot(ray[0], ray[1])) + noise[1],
        )


@dataclass(frozen=True)
class Ending:
    """What happens after an event that ends following. ``silent_s``: time until the last FOLLOW_TARGET.
    ``slow_s``: time until the vehicle stays slower than 0.5 m/s; infinite if that takes longer than 30 s."""

    silent_s: float
    slow_s: float


def _lose(flight: FollowFlight) -> None:
    """Hide the target: the state is COASTING for a second, then LOST."""
    flight.state = TrackState.COASTING
    flight.run(1.0)
    flight.state = TrackState.LOST


def _kill_bridge(flight: FollowFlight) -> None:
    flight.bridged = False


ENDINGS: dict[str, Callable[[FollowFlight], object]] = {
    "target hidden: COASTING, then LOST": _lose,
    "disabled": lambda flight: flight.bridge.enable_follow(False),
    "tracker killed": lambda flight: setattr(flight, "answers", False),
    "position node killed": lambda flight: setattr(flight, "placed", False),
    "bridge killed": _kill_bridge,
    "link cut": lambda flight: setattr(flight.here, "cut", True),
    "the pilot chooses another mode": lambda flight: flight.follower.choose(LOITER),
}


def ending(flavour: str, what: str, seed: int = 1) -> Ending:
    """Fly, follow the target for 20 s, then end following by the event ``what``, a key of `ENDINGS`. Return
    the times, which count from the start of this event."""
    flight = FollowFlight(flavour, seed).take_off().run(SETTLE_S)
    began_s = flight.t
    slow_s = math.inf
    ENDINGS[what](flight)
    while flight.t < began_s + 30.0:
        flight.run(0.05)
        if flight.follower.vehicle.speed > SLOW:
            slow_s = math.inf
        elif math.isinf(slow_s):
            slow_s = flight.t - began_s
    return Ending(max(flight.sent_s[-1] - began_s, 0.0), slow_s)


def distance_rms(flavour: str, seed: int = 1) -> float:
    """Return the RMS distance of the vehicle from the wanted place, m, over a minute that begins 10 s after
    the mode was chosen."""
    flight = FollowFlight(flavour, seed).take_off().run(10.0)
    flight.far.clear()
    flight.run(FOLLOW_S)
    return float(np.sqrt(np.mean(np.square(flight.far))))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the figures as JSON instead of a table")


def run(args: argparse.Namespace) -> int:
    """Fly all flights with both stand-ins and print the figures. Return the exit code."""
    distances = {flavour: [distance_rms(flavour, seed) for seed in range(RUNS)] for flavour in FLAVOURS}
    endings = {what: [ending(flavour, what) for flavour in FLAVOURS] for what in ENDINGS}
    if args.json:
        told = {what: list(map(asdict, each)) for what, each in endings.items()}
        json.dump({"distance_rms_m": distances, "endings": told}, sys.stdout, indent=1)
        print()
        return 0
    shown = [", ".join(f"{m:.1f}" for m in distances[flavour]) for flavour in FLAVOURS]
    rows = [("distance from the wanted place, RMS of five flights, m", *shown)]
    rows += [
        (what, *(f"{one.silent_s:.1f} s, {one.slow_s:.1f} s" for one in each))
        for what, each in endings.items()
    ]
    print_table(("ending: no FOLLOW_TARGET after, vehicle slow after", *FLAVOURS), rows)
    return 0
