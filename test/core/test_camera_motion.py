"""The camera's motion: what it does to places and to the filter."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.rotation import rotation_motion

from efftam_ros.core.geometry import Box
from efftam_ros.core.motion import MotionFilter, moved_box, moved_point

K = np.array([[1000.0, 0, 640], [0, 1000.0, 360], [0, 0, 1]])
NS = 1_000_000_000


def yaw(radians: float) -> np.ndarray:
    c, s = np.cos(radians), np.sin(radians)
    return np.array([[c, 0, s], [0, 1, 0], [-s, 0, c]])


def shift(dx: float, dy: float) -> np.ndarray:
    return np.array([[1.0, 0, dx], [0, 1, dy], [0, 0, 1]])


@given(st.floats(-0.05, 0.05), st.floats(0, 1280), st.floats(0, 720))
def test_rotation_moves_pixels_as_the_rotated_ray_projects(angle, x, y):
    ray = yaw(angle) @ np.linalg.inv(K) @ [x, y, 1.0]
    projected = K @ ray
    assert moved_point(rotation_motion(K, yaw(angle)), x, y) == pytest.approx(projected[:2] / projected[2])


def test_a_box_moves_by_its_centre_and_grows_with_the_zoom():
    zoomed = np.diag([2.0, 2.0, 1.0])
    assert moved_box(zoomed, Box(10, 20, 30, 40)).xywh() == pytest.approx((20, 40, 60, 80))


def test_the_filter_follows_a_pan_that_its_target_does_not_make():
    """The ground and a target at rest on it move by 30 px an image: with that told, none is left over."""
    filter_ = MotionFilter(0, Box.from_centre(300, 200, 40, 30))
    for i in range(1, 11):
        filter_.follow_camera(shift(30, 0), 0.1)
        filter_.predict(i * NS // 10)
        filter_.update(Box.from_centre(300 + 30 * i, 200, 40, 30))
    assert filter_.box.cx == pytest.approx(600, abs=0.1)
    assert filter_.ground.velocity == pytest.approx((0, 0), abs=1.0)
    assert filter_.at(filter_.stamp_ns).velocity[0] == pytest.approx(300, abs=1.0)
    assert filter_.at(filter_.stamp_ns + NS // 10).box.cx == pytest.approx(630, abs=0.5)


def test_the_velocity_over_the_ground_is_without_the_cameras():
    """The ground moves by 30 px an image of 0.1 s, the target by 35 to the right and 4 up."""
    filter_ = MotionFilter(0, Box.from_centre(300, 200, 40, 30))
    for i in range(1, 21):
        filter_.follow_camera(shift(30, 0), 0.1)
        filter_.predict(i * NS // 10)
        filter_.update(Box.from_centre(300 + 35 * i, 200 - 4 * i, 40, 30))
    assert filter_.ground.velocity == pytest.approx((50, -40), abs=2.0)


def test_without_the_cameras_motion_known_the_camera_rests():
    filter_ = MotionFilter(0, Box.from_centre(300, 200, 40, 30))
    filter_.follow_camera(shift(30, 0), 0.1)
    filter_.camera_unknown()
    assert filter_.at(NS).velocity == pytest.approx(filter_.ground.velocity)
