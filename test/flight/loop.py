"""A gimbal, a target and a tracker that is late, in simulated time: the ground for closed-loop tests."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from efftam_ros.core.types import TrackState
from efftam_ros.flight.angles import wrapped
from efftam_ros.flight.control_config import ControlConfig, GimbalCommand, Instant
from efftam_ros.flight.gimbal_control import GimbalControl
from efftam_ros.flight.values import NS, AttitudeSample, YawFrame
from efftam_ros.messages.reports import MotionReport
from simulation.rotations import from_yaw_pitch

EPOCH_NS = 1_700_000_000 * NS
STEP_S = 0.002


def sine(t: float) -> tuple[float, float]:
    """20 degrees at 0.1 Hz and 5 at 0.37 Hz of yaw, half of it in pitch; rad."""
    angle = math.radians(20 * math.sin(2 * math.pi * 0.1 * t) + 5 * math.sin(2 * math.pi * 0.37 * t))
    return angle, 0.5 * angle


def instant(t: float) -> Instant:
    return Instant(EPOCH_NS + round(t * NS), t)


@dataclass
class Loop:
    """Runs a controller against a simple gimbal: delay 20 ms, 90 deg/s, lag 50 ms, attitude at 50 Hz.

    ``attitude_error_s``: the attitudes' stamps are late by so much: the angle is read too early against the
    image.
    """

    control: GimbalControl
    target: Callable[[float], tuple[float, float]] = sine
    latency_s: float = 0.1
    noise_rad: float = math.radians(0.1)
    attitude: bool = True
    attitude_error_s: float = 0.0
    seen: Callable[[float], TrackState] = lambda t: TrackState.TRACKING
    yaw: float = 0.0
    pitch: float = 0.0
    errors: list[tuple[float, float]] = field(default_factory=list)
    commands: list[tuple[float, GimbalCommand]] = field(default_factory=list)

    def run(self, seconds: float) -> Loop:
        rng = np.random.default_rng(5)
        rates = [0.0, 0.0]
        delayed: deque[tuple[float, tuple[float, float]]] = deque()
        wish = (0.0, 0.0)
        answers: deque[tuple[float, MotionReport]] = deque()
        last_seen = 0.0
        for i in range(round(seconds / STEP_S)):
            t = i * STEP_S
            while delayed and delayed[0][0] <= t:
                wish = delayed.popleft()[1]
            for axis in (0, 1):
                limited = min(max(wish[axis], -math.radians(90)), math.radians(90))
                rates[axis] += (limited - rates[axis]) * STEP_S / 0.05
            self.pitch += rates[0] * STEP_S
            self.yaw += rates[1] * STEP_S
            yaw, pitch = self.target(t)
            off = (wrapped(yaw - self.yaw), pitch - self.pitch)
            self.errors.append((t, math.hypot(*off)))
            if i % 10 == 0 and self.attitude:
                stamp = EPOCH_NS + round((t + self.attitude_error_s) * NS)
                sample = AttitudeSample(stamp, from_yaw_pitch(self.yaw, self.pitch), YawFrame.EARTH)
                self.control.on_attitude(sample, instant(t))
            if i % 17 == 0:
                state = self.seen(t)
                if state is TrackState.TRACKING:
                    last_seen = t
                noise = rng.normal(0, self.noise_rad, 2)
                answers.append(
                    (
                        t + self.latency_s,
                        MotionReport(
                            stamp_ns=EPOCH_NS + round(t * NS),
                            state=state,
                            valid=state in (TrackState.TRACKING, TrackState.COASTING),
                            measured=state is TrackState.TRACKING,
                            age_s=t - last_seen,
                            has_bearing=True,
                            azimuth=off[0] + noise[0],
                            elevation=-off[1] + noise[1],
                        ),
                    )
                )
            while answers and answers[0][0] <= t:
                self.control.on_estimate(answers.popleft()[1], instant(t))
            if i % 10 == 5:
                command = self.control.tick(instant(t))
                self.commands.append((t, command))
                if command.send:
                    delayed.append((t + 0.02, (command.rates.pitch, command.rates.yaw)))
        return self

    def figures(self, after_s: float = 6.0) -> tuple[float, float]:
        """RMS and 99th percentile of the angle between target and optical axis, degrees."""
        off = np.degrees([e for t, e in self.errors if t >= after_s])
        return float(np.sqrt(np.mean(off**2))), float(np.quantile(off, 0.99))


def enabled(config: ControlConfig | None = None) -> GimbalControl:
    control = GimbalControl(config)
    control.set_enabled(True)
    return control
