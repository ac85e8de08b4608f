"""Converts the tracker's answers to the messages CAMERA_TRACKING_IMAGE_STATUS and LANDING_TARGET."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from efftam_flight.angles import unrolled
from efftam_flight.control_config import Instant
from efftam_flight.mavlink.clock_map import ClockMap, image_clock
from efftam_flight.mavlink.dialect import Message, Severity, mav
from efftam_flight.mavlink.ground.vehicle_state import measured_range
from efftam_flight.values import NS
from efftam_ros.core.geometry import Box
from efftam_ros.core.types import TrackState
from efftam_ros.messages.bearing import CameraModel
from efftam_ros.messages.reports import BoxReport, MotionReport

IDLE: int = mav.CAMERA_TRACKING_STATUS_FLAGS_IDLE
ACTIVE: int = mav.CAMERA_TRACKING_STATUS_FLAGS_ACTIVE
ERROR: int = mav.CAMERA_TRACKING_STATUS_FLAGS_ERROR
COASTING: int = mav.CAMERA_TRACKING_STATUS_FLAGS_COASTING
NAN = math.nan
DOWNWARD = mav.MAV_SENSOR_ROTATION_PITCH_270
RANGE_AGE_S = 1.0


@dataclass(frozen=True)
class StreamView:
    """The part of the tracker's image that the operator's video shows, in 0..1 of the image. To make the
    video, this part is cut out and turned clockwise by ``quarter_turns`` times 90 degrees."""

    left: float = 0.0
    top: float = 0.0
    width: float = 1.0
    height: float = 1.0
    quarter_turns: int = 0

    def to_image(self, u: float, v: float) -> tuple[float, float]:
        """Convert a point of the video (0..1 of its size) to a point of the image (0..1 of its size)."""
        for _ in range(self.quarter_turns % 4):
            u, v = v, 1.0 - u
        return self.left + u * self.width, self.top + v * self.height

    def to_video(self, x: float, y: float) -> tuple[float, float]:
        """Convert a point of the image (0..1 of its size) to a point of the video. The result is outside 0..1
        if the video does not show the point."""
        u, v = (x - self.left) / self.width, (y - self.top) / self.height
        for _ in range(self.quarter_turns % 4):
            u, v = 1.0 - v, u
        return u, v

    def box_to_image(self, box: Box) -> Box:
        edges = box.edges()
        return between(self.to_image(*edges[:2]), self.to_image(*edges[2:]))

    def box_to_video(self, box: Box) -> Box:
        edges = box.edges()
        return between(self.to_video(*edges[:2]), self.to_video(*edges[2:]))


def between(a: tuple[float, float], b: tuple[float, float]) -> Box:
    """Return the box that has these two points as opposite corners."""
    return Box.from_edges(min(a[0], b[0]), min(a[1], b[1]), max(a[0], b[0]), max(a[1], b[1]))


def box_in_image(report: BoxReport) -> Box | None:
    """Return the target's box in 0..1 of the image; None if the target is IDLE or LOST, or if box or image
    size are missing."""
    (width, height), box = report.image_size, report.box
    if report.state in (TrackState.IDLE, TrackState.LOST) or box is None or not (width and height):
        return None
    return Box(box.x / width, box.y / height, box.width / width, box.height / height)


def status_flags(state: TrackState, lost: str) -> int:
    """Return the CAMERA_TRACKING_STATUS_FLAGS for a state. ``lost``: "error" or "idle", how LOST is
    reported."""
    return {
        TrackState.IDLE: IDLE,
        TrackState.ACQUIRING: ACTIVE,
        TrackState.TRACKING: ACTIVE,
        TrackState.COASTING: ACTIVE | COASTING,
        TrackState.LOST: ERROR if lost == "error" else IDLE,
    }[state]


def tracking_message(
    status: BoxReport, view: StreamView, lost: str = "error", rendered: bool = False
) -> Message:
    """Return CAMERA_TRACKING_IMAGE_STATUS (275) with the target's box in the video.

    The mode is RECTANGLE even if the target was selected by a point, since the tracker answers with a box.
    ``lost``: see `status_flags`. ``rendered``: whether the video already contains the box.
    """
    box = box_in_image(status)
    box = None if box is None else view.box_to_video(box).clipped(1.0, 1.0)
    shown = box is not None and not box.is_empty
    data = mav.CAMERA_TRACKING_TARGET_DATA_IN_STATUS if shown else 0
    if rendered:
        data |= mav.CAMERA_TRACKING_TARGET_DATA_RENDERED
    left, top, right, bottom = box.edges() if box is not None and shown else (NAN,) * 4
    return mav.MAVLink_camera_tracking_image_status_message(
        tracking_status=status_flags(status.state, lost),
        tracking_mode=mav.CAMERA_TRACKING_MODE_RECTANGLE if shown else mav.CAMERA_TRACKING_MODE_NONE,
        target_data=data,
        point_x=NAN,
        point_y=NAN,
        radius=NAN,
        rec_top_x=left,
        rec_top_y=top,
        rec_bottom_x=right,
        rec_bottom_y=bottom,
    )


class LandingTarget:
    """Builds LANDING_TARGET (149), with angles to the target, for a camera that looks down.

    ``camera_roll``: how far the top of the image is turned to the right of the vehicle's nose, rad. The
    newest calibration ``camera`` and the newest answer ``status`` give the target's size; set both when they
    change.
    """

    def __init__(self, system_id: int, camera_roll: float, report: Callable[[Severity, str], object]) -> None:
        self.camera: CameraModel | None = None
        self.status: BoxReport | None = None
        self._system_id, self._camera_roll, self._report = system_id, camera_roll, report
        self._range: tuple[float, float] = (0.0, -math.inf)  # measured distance in m, and its arrival in s
        self._clock: str | None = ""  # name of the images' clock that was logged last; None: unknown clock

    def measure(self, message: Message, now: Instant) -> None:
        """Store the distance of a DISTANCE_SENSOR, if the sensor belongs to this vehicle and looks down."""
        if message.get_srcSystem() != self._system_id or message.orientation != DOWNWARD:
            return
        distance_m = measured_range(message)
        self._range = (0.0, -math.inf) if distance_m is None else (distance_m, now.steady_s)

    def _age_s(self, stamp_ns: int, now: Instant) -> float | None:
        """Return the age of an image, s; None if the clock of its stamp is unknown. The name of the clock is
        logged when it changes."""
        clock = image_clock(stamp_ns, now)
        name = None if clock is None else clock[0]
        if name != self._clock:
            self._clock = name
            if name is None:
                off_s = (stamp_ns - now.stamp_ns) / NS
                self._report(
                    Severity.WARNING,
                    f"no LANDING_TARGET: image stamps are {off_s:+.1f} s off the system's clock; correct the"
                    " camera's stamps",
                )
            elif name:
                self._report(
                    Severity.INFO, f"image stamps are in {name}; they are converted for LANDING_TARGET"
                )
        return None if clock is None else (clock[1] - stamp_ns) / NS

    def message(self, estimate: MotionReport, autopilot: ClockMap, now: Instant) -> Message | None:
        """Return LANDING_TARGET with the bearing and the time of its image on the autopilot's clock. Return
        None if the bearing was not measured, or if the clock of the images is unknown."""
        if not (
            estimate.state is TrackState.TRACKING
            and estimate.valid
            and estimate.measured
            and estimate.has_bearing
            and math.isfinite(estimate.azimuth)
            and math.isfinite(estimate.elevation)
        ):
            return None
        age_s = self._age_s(estimate.stamp_ns, now)
        if age_s is None:
            return None
        camera, status, size = self.camera, self.status, (0.0, 0.0)
        lens = None if camera is None else camera.intrinsics
        if lens is not None and status is not None and status.box is not None and box_in_image(status):
            box = status.box
            size = (2 * math.atan(box.width / 2 / lens.fx), 2 * math.atan(box.height / 2 / lens.fy))
        time_s = now.stamp_ns / NS - age_s
        if autopilot.is_known:
            time_s = autopilot.to_theirs(now.steady_s - age_s)
        time_usec = round(time_s * 1e6)
        distance_m, measured_s = self._range
        azimuth, elevation = unrolled(estimate.azimuth, estimate.elevation, self._camera_roll)
        return mav.MAVLink_landing_target_message(
            time_usec=max(time_usec, 0),
            target_num=0,
            frame=mav.MAV_FRAME_BODY_FRD,
            angle_x=azimuth,
            # The elevation of a bearing is the angle from the level plane of the camera, at the bearing's
            # azimuth. LANDING_TARGET needs the angle in the vertical plane through the optical axis.
            angle_y=math.atan2(math.tan(elevation), math.cos(azimuth)),
            distance=distance_m if now.steady_s - measured_s <= RANGE_AGE_S else 0.0,
            size_x=size[0],
            size_y=size[1],
            position_valid=0,
        )
