"""Parameters of the node `efftam_tracker`, and which of them may change while the node runs."""

from __future__ import annotations

from dataclasses import dataclass

from efftam_ros.core.config import MAX_TARGETS, TrackerConfig, setting
from efftam_ros.core.tracker import FIXED_SETTINGS
from efftam_ros.images.headers import MAX_PIXELS
from efftam_ros.images.levels import AUTO, fixed_range
from efftam_ros.ros.common.parameters import ParameterSet
from efftam_ros.ros.common.transports import TRANSPORTS
from efftam_ros.runtime.backends import PipelineConfig

CLICKS = ("off", "point_stamped", "point")
RELIABILITIES = ("auto", "reliable", "best_effort")


@dataclass(frozen=True)
class NodeConfig(PipelineConfig):
    """Settings of the node itself: network, images, selections, diagnostics. Times are in seconds."""

    # The base class also has this field. So the parameter file lists it among the settings of the pipeline.
    max_targets: int = setting(
        4, "largest number of targets; each needs memory, also on a GPU", within=(1, MAX_TARGETS)
    )
    image_transport: str = setting(
        "raw",
        "type of the topic image: sensor_msgs/Image, CompressedImage, or video (H.264, H.265) as"
        " ffmpeg_image_transport or Foxglove sends it",
        choices=tuple(TRANSPORTS),
    )
    image_reliability: str = setting(
        "auto",
        "reliability of the image subscription; auto: reliable if every publisher offers it",
        choices=RELIABILITIES,
    )
    max_image_pixels: int = setting(
        MAX_PIXELS,
        "largest number of pixels of an image or of a selection's mask; larger ones are refused",
        within=(1024, 2**30),
    )
    image_range: str = setting(
        AUTO,
        "pixel values of 16-bit images that become black and white: LOW,HIGH; auto: percentiles of the image,"
        " smoothed over time",
        check=fixed_range,
    )
    rectified: bool = setting(
        False,
        "true: the images are rectified, so P of camera_info is used and no distortion; false: they are"
        " rectified only if the name of their topic shows it, such as image_rect",
    )
    image_timeout: float = setting(
        0.25,
        "time without an image after which the last answers are published again with valid = false, s",
        within=(0.02, 60.0),
    )
    selection_buffer: float = setting(
        8.0,
        "greatest age of a selection's image, s; images of the last 1.5 s are all kept, older ones at about 5"
        " per second",
        within=(0.0, 60.0),
    )
    selection_buffer_bytes: int = setting(
        256 * 2**20, "largest memory for kept images, bytes", within=(2**20, 2**36)
    )
    publish_detections: bool = setting(
        True, "publish vision_msgs/Detection2DArray on detections, if vision_msgs is installed"
    )
    clicks: str = setting(
        "off",
        "take points in image px on the topic click as selections: geometry_msgs/PointStamped or Point",
        choices=CLICKS,
    )
    diagnostics_period: float = setting(1.0, "time between two diagnostics, s", within=(0.1, 60.0))
    autostart: bool = setting(True, "configure and activate when the node starts")


# Parameters that are read once, at start-up.
READ_ONLY = ("autostart",)
# Parameters that are read when the node is configured, because the network and the subscriptions can't be
# replaced while they are in use.
FIXED = (
    "bundle",
    "backend",
    "precision",
    "max_targets",
    "threads",
    "verify",
    "zero_copy",
    "image_transport",
    "image_reliability",
    "publish_detections",
    "clicks",
    *FIXED_SETTINGS,
)

PARAMETERS = ParameterSet((("The node", NodeConfig), ("Tracking", TrackerConfig)), READ_ONLY, FIXED)


def as_yaml() -> str:
    """Return a parameter file with every parameter, its description and its default."""
    head = (
        "# Every parameter of efftam_tracker, with its default. Written by:\n"
        "# python -m efftam_ros.ros.tracker.parameters\n"
        "# For one platform: copy the lines that differ, as desktop.yaml and jetson.yaml do.\n"
    )
    return head + PARAMETERS.as_yaml()


if __name__ == "__main__":
    print(as_yaml(), end="")
