"""Settings of the gimbal controller, and the types of its commands."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from efftam_flight.values import GimbalLimits, Rates
from efftam_ros.core.config import SHARE, CheckedSettings, setting
from efftam_ros.core.reasons import NO_REASON, Reason

# A configured stop at this angle or beyond means that the axis has no stop, rad.
NO_STOP = 10.0


class Phase(Enum):
    """What the gimbal controller does at present."""

    OFF = "off"  # steering is not enabled
    WAITING = "waiting"  # steering is enabled, but there is no target
    FOLLOWING = "following"  # the target is measured
    PREDICTING = "predicting"  # the target is not measured: the prediction is followed for a short time
    FADING = "fading"  # the prediction is old: the rates fall to zero
    # `GimbalCommand.reason` gives the cause. Rates are zero, or small ones that test whether a stalled gimbal
    # moves again.
    HOLDING = "holding"
    CONTROL_LOST = "control lost"  # another component moves the gimbal: nothing is sent


class Law(Enum):
    """The control law that computed the rates."""

    NONE = "none"
    LINE_OF_SIGHT = "line of sight"
    IMAGE_ONLY = "image only"


@dataclass(frozen=True)
class ControlConfig(CheckedSettings):
    """Gains, limits and times of the gimbal controller."""

    # In steering by line of sight the latency of the images is outside the control loop. The loop contains
    # the delay of the command (30 ms) and the gimbal's lag. At a lag of 50 ms a gain of 7 leaves a phase
    # margin of 58 degrees. If the stamps of attitudes may be wrong by more than 20 ms, use a gain of 2.5 and
    # a feed-forward of 0.5.
    kp: float = setting(
        7.0,
        "gain on the angle between target and optical axis, 1/s; 2.5 to 4 for a gimbal with 150 ms lag",
        within=(0.0, 30.0),
    )
    feed_forward: float = setting(
        1.0,
        "share of the target's own rate that is added; 0.5 if the stamps of attitudes are uncertain",
        within=(0.0, 1.5),
    )
    image_latency: float = setting(
        0.1,
        "time from an image's stamp to its answer, s; it decides the gains for steering without attitude",
        within=(0.0, 2.0),
    )
    max_pitch_rate: float = setting(
        math.radians(90.0), "largest pitch rate that is sent, rad/s", within=(0.0, 20.0)
    )
    max_yaw_rate: float = setting(
        math.radians(90.0), "largest yaw rate that is sent, rad/s", within=(0.0, 20.0)
    )
    max_acceleration: float = setting(
        10.0,
        "largest increase of a rate per second, rad/s^2; slowing down is not limited",
        within=(0.01, 1000.0),
    )
    first_rate: float = setting(
        0.05,
        "largest rate until the attitude shows that the gimbal moves, rad/s; after that, four times this rate"
        " for 1 s, or until the picture moves as expected; 0: not limited",
        within=(0.0, 20.0),
    )
    camera_roll: float = setting(
        0.0,
        "roll of the camera against the gimbal, clockwise seen from behind, rad. The same as in"
        " efftam_mavlink",
        within=(-math.pi, math.pi),
    )
    yaw_lock: bool = setting(
        True, "yaw rates count from north; false: from the vehicle's nose. The same as in efftam_mavlink"
    )
    pitch_min: float = setting(
        -NO_STOP,
        "lower stop of the mount, up positive, rad; -10: there is no stop",
        within=(-NO_STOP, NO_STOP),
    )
    pitch_max: float = setting(
        NO_STOP, "upper stop of the mount, up positive, rad; 10: there is no stop", within=(-NO_STOP, NO_STOP)
    )
    yaw_min: float = setting(
        -NO_STOP,
        "left stop of the mount from the vehicle's nose, right positive, rad; -10: there is no stop",
        within=(-NO_STOP, NO_STOP),
    )
    yaw_max: float = setting(
        NO_STOP,
        "right stop of the mount from the vehicle's nose, right positive, rad; 10: there is no stop",
        within=(-NO_STOP, NO_STOP),
    )
    stop_margin: float = setting(
        math.radians(0.5), "distance from a stop at which rates towards it end, rad", within=(0.0, 1.0)
    )
    attitude_offset: float = setting(
        0.0, "added to the stamps of attitude and heading, s", within=(-1.0, 1.0)
    )
    attitude_age: float = setting(
        0.2,
        "largest age of an attitude, s; an older one is not used, and steering is by the image alone",
        within=(0.02, 2.0),
    )
    acceleration_density: float = setting(
        math.radians(60.0),
        "how freely a fast target is expected to turn, rad/s^2 per square root of Hz",
        within=(0.001, 1000.0),
    )
    bearing_noise: float = setting(
        math.radians(0.1), "standard deviation of a bearing, rad", within=(1e-6, 0.5)
    )
    closed_loop_age: float = setting(
        0.15,
        "largest age of an answer that counts as measured, s; older ones count as predicted",
        within=(0.0, 2.0),
    )
    silence: float = setting(
        0.5,
        "time without an answer of the tracker, or age of the image of its newest answer, after which rates"
        " are zero, s",
        within=(0.05, 2.0),
    )
    coast: float = setting(
        1.0,
        "how long steering uses the prediction of a COASTING target, s; when the target becomes LOST"
        " (lost_after of efftam_tracker), rates are zero at once",
        within=(0.0, 30.0),
    )
    fade: float = setting(
        1.0, "time in which the rates fall to zero after the time coast, s", within=(0.01, 30.0)
    )
    cautious_share: float = setting(
        0.3, "share of the largest rates that is allowed during cautious_time", within=SHARE
    )
    cautious_time: float = setting(
        0.3, "how long rates are smaller after a selection or a return, s", within=(0.0, 10.0)
    )
    # Just after a selection the tracker may take a jerk of the image for motion of the target. So rates may
    # grow only slowly then.
    cautious_acceleration: float = setting(
        1.5, "largest increase of a rate per second during cautious_time, rad/s^2", within=(0.01, 1000.0)
    )
    zero_time: float = setting(
        1.0,
        "how long zero rates are published after the last motion, s; after that nothing is published",
        within=(0.1, 10.0),
    )

    @property
    def max_rate(self) -> Rates:
        return Rates(self.max_pitch_rate, self.max_yaw_rate)

    @property
    def limits(self) -> GimbalLimits:
        """The configured stops, rad; infinite where an axis has no stop."""
        stops = (self.pitch_min, self.pitch_max, self.yaw_min, self.yaw_max)
        return GimbalLimits(*(v if abs(v) < NO_STOP else math.copysign(math.inf, v) for v in stops))


class Instant(NamedTuple):
    """One moment on two clocks. ``stamp_ns``: on the images' clock, which jumps when somebody sets it.
    ``steady_s``: on a clock that never jumps, s."""

    stamp_ns: int
    steady_s: float


@dataclass(frozen=True)
class GimbalCommand:
    """The controller's command for one tick.

    ``rates``: the rates to send if ``send`` is true. ``reason``: what limits or prevents steering, empty if
    nothing does. ``at_stop``: the axes ("pitch", "yaw") that are at a mechanical stop.
    """

    rates: Rates
    send: bool
    phase: Phase
    law: Law = Law.NONE
    reason: Reason = NO_REASON
    at_stop: tuple[str, ...] = ()
