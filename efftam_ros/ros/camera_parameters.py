"""The parameters of the node `efftam_camera`."""

from __future__ import annotations

from dataclasses import dataclass, fields

from efftam_ros.core.config import CheckedSettings, setting
from efftam_ros.images.camera import CameraOptions
from efftam_ros.ros.common.parameters import ParameterSet


@dataclass(frozen=True)
class CameraConfig(CheckedSettings):
    """Settings of the node `efftam_camera`. They are read once, when the node starts."""

    stream: str = setting(
        "",
        "source of the images: rtsp://..., udp://@:PORT (MPEG-TS, or H.264 or H.265 without a container),"
        " FILE.sdp (RTP), http://..., /dev/video0 or a video file",
    )
    calibration: str = setting("", "calibration file as camera_calibration writes it (YAML); empty: none")
    frame_id: str = setting("camera_optical_frame", "frame_id of image and camera_info")
    latency: float = setting(
        0.0,
        "time from exposure to arrival of an image, s; it is subtracted from the stamps",
        within=(0.0, 5.0),
    )
    diagnostics_period: float = setting(1.0, "time between two diagnostics, s", within=(0.1, 60.0))


SECTIONS = (("The node", CameraConfig), ("The stream", CameraOptions))
PARAMETERS = ParameterSet(SECTIONS, tuple(f.name for _, kind in SECTIONS for f in fields(kind)))
