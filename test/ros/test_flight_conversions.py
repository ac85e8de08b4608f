"""What the bridge and the gimbal controller take from sensor_msgs/CameraInfo."""

from __future__ import annotations

import math

import pytest
from sensor_msgs.msg import CameraInfo

from efftam_ros.core.errors import InputError
from efftam_ros.messages.bearing import camera_model
from efftam_ros.ros.common.conversions import camera_of


def camera_info(focal: float = 500.0) -> CameraInfo:
    info = CameraInfo(width=640, height=480, distortion_model="plumb_bob")
    info.k = [focal, 0.0, 319.5, 0.0, focal, 239.5, 0.0, 0.0, 1.0]
    return info


def test_an_unknown_distortion_model_does_not_matter():
    info = camera_info()
    info.distortion_model, info.d = "unheard_of", [0.1, 0.2]
    with pytest.raises(InputError, match="unheard_of"):
        camera_model(info)
    assert (camera_of(info).intrinsics.fx, camera_of(info).width) == (500.0, 640)


@pytest.mark.parametrize("focal", [0.0, -500.0, math.nan, math.inf])
def test_an_absurd_focal_length_is_no_calibration_and_leaves_the_size(focal):
    info = camera_info(focal)
    info.binning_x = 2
    found = camera_of(info)
    assert found.intrinsics is None
    assert (found.width, found.height) == (320, 480)
