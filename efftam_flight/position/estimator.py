"""Estimates the position of each target from the tracker's answers, or gives the reason why there is none."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from efftam_flight.angles import ray_of, rotated
from efftam_flight.position.config import PositionConfig
from efftam_flight.position.ground_filter import GroundFilter, Height, Ray
from efftam_flight.position.poses import CameraPose, CameraPoses
from efftam_flight.values import NS
from efftam_ros.core.reasons import NO_REASON, Reason, ReasonCode
from efftam_ros.core.types import TrackState
from efftam_ros.messages.positions import HeightSource, PositionReport
from efftam_ros.messages.reports import MotionReport

# The position filter of a target that was not measured for longer than this starts again, s.
FORGOTTEN_S = 5.0


@dataclass
class _GroundTarget:
    """The position filter of one target, and the source of its height."""

    filter: GroundFilter
    selection: int
    source: HeightSource = HeightSource.UNKNOWN
    ground: float = math.nan  # height of the ground at the target in the local frame, m
    measured_ns: int | None = field(default=None)  # stamp of the last measurement; None: not measured yet


class PositionEstimator:
    """Estimates the positions of all targets. ``poses`` gives the camera's pose at each stamp. Not
    thread-safe: only one thread may call it at a time."""

    def __init__(self, config: PositionConfig, poses: CameraPoses) -> None:
        self._config, self._poses = config, poses
        self._targets: dict[int, _GroundTarget] = {}

    def answer(self, report: MotionReport) -> PositionReport:
        """Return the target's position at the stamp of the answer's image. Without a position, the report is
        not valid and contains the reason."""
        if report.state in (TrackState.IDLE, TrackState.LOST) or not report.valid:
            if report.state in (TrackState.IDLE, TrackState.LOST):
                self._targets.pop(report.target_id, None)
            return self._without(report, report.reason or ReasonCode.POSITION_NO_TARGET.reason())
        target = self._target(report)
        pose = self._poses.at(report.stamp_ns, ray_of(report.azimuth, report.elevation))
        if isinstance(pose, Reason):
            return self._without(report, pose)
        if report.measured:
            lack = self._measure(target, report, pose)
            if lack:
                return self._without(report, lack)
        if target.measured_ns is None:
            return self._without(report, ReasonCode.POSITION_NOT_MEASURED.reason())
        age_s = (report.stamp_ns - target.measured_ns) / NS
        if age_s > self._config.coast:
            return self._without(report, ReasonCode.POSITION_UNSEEN.reason(age_s=age_s))
        return self._found(report, target, pose, age_s)

    def _target(self, report: MotionReport) -> _GroundTarget:
        target = self._targets.get(report.target_id)
        if target is not None and target.selection == report.selection:
            measured_ns = target.measured_ns
            if measured_ns is None or 0 <= report.stamp_ns - measured_ns <= FORGOTTEN_S * NS:
                return target
        target = _GroundTarget(GroundFilter(self._config), report.selection)
        self._targets[report.target_id] = target
        return target

    def _measure(self, target: _GroundTarget, report: MotionReport, pose: CameraPose) -> Reason:
        """Correct the filter with the bearing. Return an empty reason, or why the bearing can't be used."""
        if not report.has_bearing or not (math.isfinite(report.azimuth) and math.isfinite(report.elevation)):
            return ReasonCode.POSITION_NO_BEARING.reason()
        if pose.height is None:
            return ReasonCode.POSITION_NO_HEIGHT.reason()
        height = self._above_target(pose.height)
        if not height.value > 0.0:
            return ReasonCode.POSITION_BELOW_TARGET.reason(height=height.value)
        direction = np.asarray(rotated(pose.q, ray_of(report.azimuth, report.elevation)))
        depression = math.asin(max(-1.0, min(1.0, float(direction[2]))))
        if depression < self._config.min_depression:
            least = math.degrees(self._config.min_depression)
            return ReasonCode.NEAR_HORIZON.reason(depression=math.degrees(depression), least=least)
        ray = Ray(
            direction,
            np.asarray(pose.place),
            np.asarray(pose.velocity),
            _yaw(pose),
            np.asarray(pose.turning),
            max(self._config.bearing_error**2, _variance(report)),
        )
        target.filter.update(report.stamp_ns, ray, height)
        target.source, target.measured_ns = height.source, report.stamp_ns
        target.ground = -pose.place[2] - pose.height.value
        return NO_REASON

    def _above_target(self, height: Height) -> Height:
        """Return the camera's height above the middle of the target. ``height``: above the ground."""
        above = height.value - self._config.target_height
        return Height(above, height.error, height.source, height.range_m, height.axis)

    def _found(
        self, report: MotionReport, target: _GroundTarget, pose: CameraPose, age_s: float
    ) -> PositionReport:
        state, covariance = target.filter.predict(report.stamp_ns)
        order = [1, 0, 3, 2]  # the report's axes are x east, y north
        north, east = float(state[0]), float(state[1])
        camera_n, camera_e, camera_up = pose.place[0], pose.place[1], -pose.place[2]
        frame = self._poses.frame
        geo = None if frame is None else frame.to_geo(north, east, target.ground)
        return PositionReport(
            **_common(report),
            measured=report.measured,
            age_s=age_s,
            valid=True,
            latitude=math.nan if geo is None else geo.latitude,
            longitude=math.nan if geo is None else geo.longitude,
            altitude=math.nan if geo is None else geo.altitude,
            x=east,
            y=north,
            velocity_x=float(state[3]),
            velocity_y=float(state[2]),
            covariance=tuple(map(float, covariance[np.ix_(order, order)].ravel())),
            range=math.hypot(north - camera_n, east - camera_e, camera_up - target.ground),
            height_source=target.source,
            camera_x=camera_e,
            camera_y=camera_n,
            camera_z=camera_up,
        )

    def _without(self, report: MotionReport, reason: Reason) -> PositionReport:
        return PositionReport(**_common(report), valid=False, reason=reason)


def _common(report: MotionReport) -> dict[str, Any]:
    return {
        "stamp_ns": report.stamp_ns,
        "target_id": report.target_id,
        "selection": report.selection,
        "state": report.state,
        "steered": report.steered,
    }


def _yaw(pose: CameraPose) -> float:
    """Return the camera's yaw, rad, computed from the direction of its right axis, which is defined even if
    the camera looks straight down."""
    right = rotated(pose.q, (0.0, 1.0, 0.0))
    return math.atan2(-right[0], right[1])


def _variance(report: MotionReport) -> float:
    """Return the larger of the variances of azimuth and elevation, rad^2; 0 if they are unknown."""
    variances = report.bearing_covariance[0], report.bearing_covariance[3]
    return max(variances) if all(map(math.isfinite, variances)) else 0.0
