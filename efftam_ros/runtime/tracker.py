"""Opens a tracker with its sources beside the network: camera motion, colours, points."""

from __future__ import annotations

from typing import TYPE_CHECKING

from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.errors import InputError
from efftam_ros.core.tracker import Tracker
from efftam_ros.runtime.image.appearance import ColourAppearance
from efftam_ros.runtime.image.camera_motion import ImageCameraMotion
from efftam_ros.runtime.image.target_points import FlowPoints

if TYPE_CHECKING:
    from efftam_ros.core.contract import CameraMotionSource, Pipeline


def open_tracker(
    pipeline: Pipeline, config: TrackerConfig | None = None, attitude: CameraMotionSource | None = None
) -> Tracker:
    """``attitude``: the source of the camera's motion for ``camera_motion`` "topic"; raises InputError when
    it is None then."""
    config = config or TrackerConfig()
    source: CameraMotionSource | None = None
    if config.camera_motion == "auto":
        source = ImageCameraMotion()
    elif config.camera_motion == "topic":
        if attitude is None:
            raise InputError(
                "camera_motion is 'topic', but nothing here tells the camera's attitude; choose auto or off"
            )
        source = attitude
    return Tracker(pipeline, config, source, ColourAppearance(), FlowPoints())
