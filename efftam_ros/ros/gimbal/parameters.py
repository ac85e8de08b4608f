"""The gimbal node's parameters."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from efftam_ros.core.config import SHARE, CheckedSettings, setting
from efftam_ros.flight.control_config import ControlConfig
from efftam_ros.flight.law import ImageGains, LineOfSightGains
from efftam_ros.flight.values import GimbalLimits, Rates
from efftam_ros.ros.common.parameters import ParameterSet

DEFAULT = ControlConfig()
# Beyond it a stop can't be reached, rad.
NO_STOP = 10.0


@dataclass(frozen=True)
class GimbalParameters(CheckedSettings):
    """The controller's settings as a user gives them."""

    kp: float = setting(
        DEFAULT.line_of_sight.kp,
        "gain on the angle between target and axis, 1/s; a gimbal with 150 ms lag takes 2.5 to 4",
        within=(0.0, 30.0),
    )
    feed_forward: float = setting(
        DEFAULT.line_of_sight.feed_forward,
        "share of the target's own rate that is added; 0.5 where the attitude's time is uncertain",
        within=(0.0, 1.5),
    )
    image_latency: float = setting(
        0.1, "image's stamp to its answer, s; the gains without attitude follow from it", within=(0.0, 2.0)
    )
    max_pitch_rate: float = setting(
        DEFAULT.max_rate.pitch, "largest pitch rate that is sent, rad/s", within=(0.0, 20.0)
    )
    max_yaw_rate: float = setting(
        DEFAULT.max_rate.yaw, "largest yaw rate that is sent, rad/s", within=(0.0, 20.0)
    )
    max_acceleration: float = setting(
        DEFAULT.max_acceleration,
        "fastest growth of a rate, rad/s^2; slowing down is not limited",
        within=(0.01, 1000.0),
    )
    yaw_lock: bool = setting(
        DEFAULT.yaw_lock,
        "yaw rates count from north; false: from the vehicle's nose. The same as in efftam_mavlink",
    )
    pitch_min: float = setting(
        -NO_STOP,
        "lower stop of the mount, up positive, rad; -10: none of its own",
        within=(-NO_STOP, NO_STOP),
    )
    pitch_max: float = setting(
        NO_STOP, "upper stop of the mount, rad; 10: none of its own", within=(-NO_STOP, NO_STOP)
    )
    yaw_min: float = setting(
        -NO_STOP,
        "left stop from the vehicle's nose, right positive, rad; -10: none of its own",
        within=(-NO_STOP, NO_STOP),
    )
    yaw_max: float = setting(NO_STOP, "right stop, rad; 10: none of its own", within=(-NO_STOP, NO_STOP))
    stop_margin: float = setting(
        DEFAULT.stop_margin, "distance from a stop at which rates towards it end, rad", within=(0.0, 1.0)
    )
    attitude_offset: float = setting(
        DEFAULT.attitude_offset_s, "added to the stamps of attitude and heading, s", within=(-1.0, 1.0)
    )
    attitude_age: float = setting(
        DEFAULT.attitude_age_s,
        "an older attitude is not used: steering by the image alone, s",
        within=(0.02, 2.0),
    )
    acceleration_density: float = setting(
        DEFAULT.acceleration_density,
        "how freely the target is expected to turn, rad/s^2 per square root of Hz",
        within=(0.001, 1000.0),
    )
    bearing_noise: float = setting(
        DEFAULT.bearing_noise, "standard deviation of a bearing, rad", within=(1e-6, 0.5)
    )
    closed_loop_age: float = setting(
        DEFAULT.closed_loop_age_s, "an older answer is followed by prediction only, s", within=(0.0, 2.0)
    )
    silence: float = setting(
        DEFAULT.silence_s,
        "without an answer, or with older ones, for so long: zero rates, s",
        within=(0.05, 2.0),
    )
    coast: float = setting(
        DEFAULT.coast_s, "how long a target that is not seen is followed by prediction, s", within=(0.0, 30.0)
    )
    fade: float = setting(DEFAULT.fade_s, "then the rates fade to zero for so long, s", within=(0.01, 30.0))
    cautious_share: float = setting(
        DEFAULT.cautious_share, "of the largest rates after a selection or a return", within=SHARE
    )
    cautious_time: float = setting(
        DEFAULT.cautious_s, "for so long after a selection or a return, s", within=(0.0, 10.0)
    )
    cautious_acceleration: float = setting(
        DEFAULT.cautious_acceleration, "fastest growth of a rate meanwhile, rad/s^2", within=(0.01, 1000.0)
    )
    zero_time: float = setting(
        DEFAULT.zero_s, "zero rates are repeated for so long, then nothing is sent, s", within=(0.1, 10.0)
    )
    autostart: bool = setting(True, "configure and activate when the node starts; steering stays off")

    def control(self) -> ControlConfig:
        """What the controller takes."""
        return ControlConfig(
            line_of_sight=LineOfSightGains(self.kp, self.feed_forward),
            image_only=ImageGains.for_latency(self.image_latency),
            max_rate=Rates(self.max_pitch_rate, self.max_yaw_rate),
            max_acceleration=self.max_acceleration,
            yaw_lock=self.yaw_lock,
            limits=GimbalLimits(
                _stop(self.pitch_min), _stop(self.pitch_max), _stop(self.yaw_min), _stop(self.yaw_max)
            ),
            acceleration_density=self.acceleration_density,
            bearing_noise=self.bearing_noise,
            attitude_offset_s=self.attitude_offset,
            closed_loop_age_s=self.closed_loop_age,
            silence_s=self.silence,
            coast_s=self.coast,
            fade_s=self.fade,
            attitude_age_s=self.attitude_age,
            cautious_share=self.cautious_share,
            cautious_s=self.cautious_time,
            cautious_acceleration=self.cautious_acceleration,
            zero_s=self.zero_time,
            stop_margin=self.stop_margin,
        )


def _stop(angle: float) -> float:
    return angle if abs(angle) < NO_STOP else math.copysign(math.inf, angle)


READ_ONLY = ("autostart",)
# A controller is made anew when the node is configured: gains don't change under a moving gimbal.
FIXED = tuple(f.name for f in fields(GimbalParameters) if f.name not in READ_ONLY)
PARAMETERS = ParameterSet((("Steering", GimbalParameters),), READ_ONLY, FIXED)
