"""The camera's calibration from a CameraInfo, and the bearing that it gives a track."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from efftam_ros.core.errors import InputError
from efftam_ros.core.types import Motion
from efftam_ros.messages.bearing import Bearing, Intrinsics

TRANSPORT_SUFFIXES = ("/compressed", "/ffmpeg", "/foxglove")
"""Of topics, as image_transport names them."""
OFF_CENTRE = 0.3
"""Least share of the sensor's width and height at which the principal point of a binned camera lies."""
LEAST_VIEW_DEG, MOST_VIEW_DEG = 1.0, 170.0
"""Field of view of a side that a calibration can have."""


@dataclass(frozen=True)
class CameraModel:
    """Content of a camera_info: the calibration (None: uncalibrated) and the image size it is for, px."""

    intrinsics: Intrinsics | None
    width: int
    height: int


def bearing_of(
    motion: Motion | None, image_size: tuple[int, int], camera: CameraModel | None
) -> Bearing | None:
    """Compute the bearing of a motion; None without a motion or a calibrated camera.

    Raises InputError when the calibration is for another image size, or the distortion has no inverse there.
    """
    if camera is None or camera.intrinsics is None or motion is None:
        return None
    if (camera.width, camera.height) != tuple(image_size):
        width, height = image_size
        raise InputError(
            f"no bearing: camera_info is for {camera.width} x {camera.height} px, the image has"
            f" {width} x {height}; send the camera_info of this image topic"
        )
    try:
        centre = (motion.box.cx, motion.box.cy)
        return camera.intrinsics.bearing(centre, motion.velocity, motion.covariance)
    except InputError as refusal:
        raise InputError(f"no bearing: {refusal}") from None


def camera_model(msg: Any, rectified: bool = False, with_distortion: bool = True) -> CameraModel:
    """Read the camera model from a sensor_msgs/CameraInfo.

    ``rectified``: the images are rectified, so the projection matrix is used and the distortion is not.
    ``with_distortion``: False if it is not wanted; then an unknown distortion model does not matter.
    Raises InputError as `Intrinsics.from_camera_info` does.
    """
    _check_calibration(msg, rectified)
    intrinsics = Intrinsics.from_camera_info(
        [float(v) for v in msg.k],
        [float(v) for v in msg.d] if with_distortion else (),
        msg.distortion_model if with_distortion else "",
        p=[float(v) for v in msg.p] if rectified else None,
        offset=(int(msg.roi.x_offset), int(msg.roi.y_offset)),
        binning=(int(msg.binning_x), int(msg.binning_y)),
    )
    model = CameraModel(intrinsics, *delivered_size(msg))
    if intrinsics is not None:
        _check_lens(intrinsics, model.width, model.height)
    return model


def _check_calibration(msg: Any, rectified: bool) -> None:
    """Raise InputError where region, binning and principal point of a CameraInfo contradict each other."""
    roi, cx, cy = msg.roi, *((msg.p[2], msg.p[6]) if rectified else (msg.k[2], msg.k[5]))
    if (
        roi.width
        and roi.height
        and (roi.x_offset + roi.width > msg.width or roi.y_offset + roi.height > msg.height)
    ):
        raise InputError(
            f"camera_info has the region of interest {roi.width} x {roi.height} px at ({roi.x_offset},"
            f" {roi.y_offset}), outside its image of {msg.width} x {msg.height} px: correct the region"
        )
    binning = max(int(msg.binning_x), int(msg.binning_y))
    # A lens is centred on its sensor, so a principal point this far off is that of the binned image.
    is_off = min(cx / max(1, msg.width), cy / max(1, msg.height)) < OFF_CENTRE
    if binning > 1 and msg.k[0] and is_off:
        raise InputError(
            f"camera_info has the principal point ({cx:g}, {cy:g}) px, binning {binning} and"
            f" {msg.width} x {msg.height} px: K and P must be of the full resolution; correct them, or set"
            " binning to 0"
        )


def _check_lens(lens: Intrinsics, width: int, height: int) -> None:
    """Raise InputError for a camera that can't be: for the delivered image of this size."""
    if not (-0.5 <= lens.cx <= width - 0.5 and -0.5 <= lens.cy <= height - 0.5) or (lens.cx, lens.cy) == (
        0,
        0,
    ):
        raise InputError(
            f"camera_info has the principal point ({lens.cx:g}, {lens.cy:g}) px in an image of"
            f" {width} x {height} px: calibrate the camera again"
        )
    for side, focal_px in ((width, lens.fx), (height, lens.fy)):
        view_deg = math.degrees(2 * math.atan(side / 2 / focal_px))
        if not LEAST_VIEW_DEG <= view_deg <= MOST_VIEW_DEG:
            raise InputError(
                f"camera_info has the focal length {focal_px:g} px for a side of {side} px, a field of view"
                f" of {view_deg:.1f} degrees; {LEAST_VIEW_DEG:g} to {MOST_VIEW_DEG:g} can be: calibrate again"
            )


def camera_info_beside(image_topic: str) -> str:
    """The calibration's topic beside an image topic, as in image_transport: /camera/image_raw and
    /camera/image_raw/compressed -> /camera/camera_info."""
    for suffix in TRANSPORT_SUFFIXES:
        image_topic = image_topic.removesuffix(suffix)
    folder, slash, _ = image_topic.rpartition("/")
    return f"{folder}{slash}camera_info"


def delivered_size(msg: Any) -> tuple[int, int]:
    """Width and height, px, of the images that a sensor_msgs/CameraInfo belongs to: region of interest and
    binning applied."""
    roi = msg.roi
    # A region of zero size stands for the whole image.
    width, height = (roi.width, roi.height) if roi.width and roi.height else (msg.width, msg.height)
    return int(width) // max(1, int(msg.binning_x)), int(height) // max(1, int(msg.binning_y))
