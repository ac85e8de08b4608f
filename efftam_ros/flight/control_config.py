"""Settings of the gimbal controller, and the types of its commands."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from efftam_ros.flight.law import ImageGains, LineOfSightGains
from efftam_ros.flight.values import GimbalLimits, Rates


class Phase(Enum):
    """What the controller does."""

    OFF = "off"  # not enabled
    WAITING = "waiting"  # enabled, no target selected
    FOLLOWING = "following"  # the target is measured
    PREDICTING = "predicting"  # by the prediction, for a short time
    FADING = "fading"  # the prediction is old: the rates go down to zero
    HOLDING = "holding"  # zero rates, for a reason
    CONTROL_LOST = "control lost"  # another component moves the gimbal: nothing is sent


class Law(Enum):
    """The control law that gave the rates."""

    NONE = "none"
    LINE_OF_SIGHT = "line of sight"
    IMAGE_ONLY = "image only"


@dataclass(frozen=True)
class ControlConfig:
    """Limits and times of the controller: rates rad/s, times s, angles rad."""

    line_of_sight: LineOfSightGains = field(default_factory=LineOfSightGains)
    image_only: ImageGains = field(default_factory=lambda: ImageGains.for_latency(0.1))
    max_rate: Rates = field(default_factory=lambda: Rates(math.radians(90.0), math.radians(90.0)))
    max_acceleration: float = 10.0  # rad/s^2; stopping is not limited
    yaw_lock: bool = True  # yaw rates count from north; False: from the vehicle, less its own turn
    limits: GimbalLimits = field(default_factory=GimbalLimits)
    acceleration_density: float = math.radians(60.0)  # of the target, rad/s^2 per sqrt(Hz)
    bearing_noise: float = math.radians(0.1)
    attitude_offset_s: float = 0.0  # added to the attitudes' stamps
    closed_loop_age_s: float = 0.15
    silence_s: float = 0.5  # without an answer, or with answers older than this: zero rates
    coast_s: float = 1.0  # the prediction counts fully
    fade_s: float = 1.0  # then the rates fade for so long
    attitude_age_s: float = 0.2  # older: image-only control
    cautious_share: float = 0.3  # of max_rate while acquiring and at a return
    cautious_s: float = 0.3
    # A tracker that has just started may take a jerk of the image for motion of the target; rad/s^2.
    cautious_acceleration: float = 1.5
    zero_s: float = 1.0  # zero rates are sent for so long, then nothing
    stop_margin: float = math.radians(0.5)


class Instant(NamedTuple):
    """One moment on both clocks: the images' clock, which may be set, and one that never jumps, s."""

    stamp_ns: int
    steady_s: float


@dataclass(frozen=True)
class GimbalCommand:
    """The answer of one tick. ``rates`` are to be sent when ``send``; ``reason`` is one line, empty when all
    is well; ``at_stop`` names the axes that stand at a mechanical stop."""

    rates: Rates
    send: bool
    phase: Phase
    law: Law = Law.NONE
    reason: str = ""
    at_stop: tuple[str, ...] = ()
