"""The picture's motion from attitudes, and the signs of directions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from efftam_ros.core.bearing import Intrinsics
from efftam_ros.core.errors import InputError
from efftam_ros.core.types import Image
from efftam_ros.flight.angles import (
    axis_direction,
    from_yaw_pitch,
    interpolated,
    multiplied,
    rotated,
    target_direction,
    wrapped,
)
from efftam_ros.flight.attitude_motion import CameraAttitude, GuidedMotion
from efftam_ros.flight.values import NS, AttitudeSample, VehicleSample, YawFrame
from efftam_ros.images.camera_motion import ImageCameraMotion

CAMERA = Intrinsics(900.0, 900.0, 639.5, 359.5)
IMAGE = Image.from_array(np.zeros((720, 1280, 3), np.uint8))
FRAME_S = 1 / 30
angle = st.floats(-3.0, 3.0)
tilt = st.floats(-1.4, 1.4)


def moved(h: np.ndarray, u: float, v: float) -> tuple[float, float]:
    x, y, w = h @ (u, v, 1.0)
    return x / w, y / w


def pixel(q: tuple, yaw: float, pitch: float) -> tuple[float, float]:
    """Where the camera of attitude ``q`` sees a direction, by its own sums."""
    flat = math.cos(pitch)
    world = (flat * math.cos(yaw), flat * math.sin(yaw), -math.sin(pitch))
    forward, right, down = rotated((q[0], -q[1], -q[2], -q[3]), world)
    return 640.0 + 900.0 * right / forward, 360.0 + 900.0 * down / forward


class Fed:
    """The tracker's source, fed as the node feeds it."""

    def __init__(self, calibrated: bool = True) -> None:
        self.motion = self.feed = CameraAttitude()
        if calibrated:
            self.feed.set_camera(CAMERA)

    def homography(self, t: float) -> np.ndarray | None:
        return self.motion.estimate(IMAGE, round(t * NS), ()).matrix


def turned(before: tuple, after: tuple) -> np.ndarray:
    """The picture's motion from one attitude to another 0.1 s later, as the tracker is told it."""
    fed = Fed()
    fed.feed.add_attitude(AttitudeSample(0, before, YawFrame.EARTH))
    assert fed.homography(0.0) is None
    fed.feed.add_attitude(AttitudeSample(NS // 10, after, YawFrame.EARTH))
    return fed.homography(0.1)


# Signs: yaw right, pitch up; azimuth right, elevation down


def test_the_camera_yawed_right_moves_a_fixed_point_left_and_pitched_up_moves_it_down():
    level = from_yaw_pitch(0.0, 0.0)
    right = turned(level, from_yaw_pitch(math.radians(2), 0.0))
    assert np.subtract(moved(right, 640.0, 360.0), (640.0, 360.0)) == pytest.approx((-31.4, 0.0), abs=0.05)
    up = turned(level, from_yaw_pitch(0.0, math.radians(2)))
    assert np.subtract(moved(up, 640.0, 360.0), (640.0, 360.0)) == pytest.approx((0.0, 31.4), abs=0.05)


def test_a_target_right_of_the_axis_lies_at_more_yaw_and_one_below_at_less_pitch():
    assert target_direction(from_yaw_pitch(0.5, 0.0), 0.1, 0.0) == pytest.approx((0.6, 0.0))
    assert target_direction(from_yaw_pitch(0.5, -0.2), 0.0, 0.1) == pytest.approx((0.5, -0.3))


def test_seen_steeply_the_same_bearing_is_more_yaw():
    yaw, _ = target_direction(from_yaw_pitch(0.0, math.radians(-60)), math.radians(1), 0.0)
    assert yaw == pytest.approx(math.radians(2), rel=0.01)


@given(yaw=angle, pitch=tilt, roll=st.floats(-0.5, 0.5))
def test_yaw_and_pitch_come_back_out_of_a_quaternion(yaw, pitch, roll):
    back = axis_direction(from_yaw_pitch(yaw, pitch, roll))
    assert wrapped(back[0] - yaw) == pytest.approx(0.0, abs=1e-9)
    assert back[1] == pytest.approx(pitch, abs=1e-9)


@given(yaw=angle, pitch=tilt, share=st.floats(0.0, 1.5), turn=st.floats(-0.5, 0.5))
def test_interpolation_goes_at_a_constant_rate_also_beyond(yaw, pitch, share, turn):
    a = from_yaw_pitch(yaw, pitch)
    step = (math.cos(turn / 2), 0.0, 0.0, math.sin(turn / 2))
    part = (math.cos(share * turn / 2), 0.0, 0.0, math.sin(share * turn / 2))
    mixed = interpolated(a, multiplied(a, step), share)
    assert abs(sum(p * q for p, q in zip(mixed, multiplied(a, part), strict=True))) == pytest.approx(1.0)


# Homography


@given(
    yaw=angle,
    pitch=tilt,
    roll=st.floats(-0.05, 0.05),
    turn=st.floats(-0.08, 0.08),
    rise=st.floats(-0.08, 0.08),
    u=st.floats(100, 1180),
    v=st.floats(100, 620),
)
def test_every_direction_is_found_again(yaw, pitch, roll, turn, rise, u, v):
    before = from_yaw_pitch(yaw, pitch, roll)
    after = from_yaw_pitch(yaw + turn, pitch + rise, -roll)
    azimuth = math.atan((u - 640.0) / 900.0)
    elevation = math.atan2((v - 360.0) / 900.0, math.hypot(1.0, (u - 640.0) / 900.0))
    direction = target_direction(before, azimuth, elevation)
    assert pixel(before, *direction) == pytest.approx((u, v), abs=1e-6)
    there = pixel(after, *direction)
    assert moved(turned(before, after), u, v) == pytest.approx(there, abs=1e-5)


def test_there_and_back_is_the_identity():
    a, b = from_yaw_pitch(0.3, -0.4, 0.02), from_yaw_pitch(0.35, -0.36)
    both = turned(b, a) @ turned(a, b)
    assert both / both[2, 2] == pytest.approx(np.eye(3), abs=1e-9)


def pan(t: float) -> float:
    """A pan of 60 deg/s at its fastest."""
    return math.radians(60) / (2 * math.pi * 0.25) * math.sin(2 * math.pi * 0.25 * t)


def pan_error(fed: Fed, feed, delay_s: float = 0.0) -> tuple[float, float]:
    """RMS px of a fixed point predicted one frame ahead, with the motion and without; what is fed arrives
    ``delay_s`` late."""
    errors, still = [], []
    due = 0.0
    for i in range(120):
        t = i * FRAME_S
        while due <= t - delay_s:
            feed(fed, due)
            due += 0.005
        h = fed.homography(t)
        if i < 5:
            continue
        before, after = from_yaw_pitch(pan(t - FRAME_S), -0.3), from_yaw_pitch(pan(t), -0.3)
        point = target_direction(before, 0.2, 0.1)
        u, v = pixel(before, *point)
        true = pixel(after, *point)
        assert h is not None
        errors.append(math.dist(moved(h, u, v), true))
        still.append(math.dist((u, v), true))
    return float(np.sqrt(np.mean(np.square(errors)))), float(np.sqrt(np.mean(np.square(still))))


def attitudes_at_50_hz(fed: Fed, t: float) -> None:
    if round(t * 200) % 4 == 0:
        # Stamps of whole milliseconds, as MAVLink has them.
        stamp_ns = round(t * 1000) * NS // 1000
        fed.feed.add_attitude(AttitudeSample(stamp_ns, from_yaw_pitch(pan(t), -0.3), YawFrame.EARTH))


def test_a_pan_of_60_degrees_per_second_is_taken_out_by_attitudes_at_50_hz():
    with_it, without = pan_error(Fed(), attitudes_at_50_hz)
    assert without > 15.0
    assert with_it < 0.5


def test_attitudes_that_arrive_after_the_image_are_continued_to_its_stamp():
    with_it, _ = pan_error(Fed(), attitudes_at_50_hz, delay_s=0.03)
    assert with_it < 2.0


def test_a_gimbal_that_turns_with_its_vehicle_needs_the_heading():
    level, fed = from_yaw_pitch(0.0, 0.0), Fed()
    with pytest.raises(InputError, match="vehicle_heading"):
        fed.feed.add_attitude(AttitudeSample(0, level, YawFrame.VEHICLE))
    for i in range(11):
        fed.feed.add_vehicle(VehicleSample(i * NS // 50, 0.02 * i, 1.0))
        fed.feed.add_attitude(AttitudeSample(i * NS // 50, level, YawFrame.VEHICLE))
    assert fed.homography(0.0) is None
    want = turned(level, from_yaw_pitch(0.1, 0.0))
    assert fed.homography(0.1) == pytest.approx(want, abs=1e-9)


def test_numbers_that_are_none_are_refused():
    fed = Fed()
    with pytest.raises(InputError, match="no rotation"):
        fed.feed.add_attitude(AttitudeSample(3 * NS, (math.nan,) * 4, YawFrame.EARTH))
    with pytest.raises(InputError, match="finite"):
        fed.feed.add_vehicle(VehicleSample(0, math.inf, 0.0))


def test_without_a_calibration_nothing_is_known_and_camera_info_is_named():
    fed = Fed(calibrated=False)
    for t in (0.0, 0.02, 0.04):
        attitudes_at_50_hz(fed, t)
    told = fed.motion.estimate(IMAGE, 0, ())
    assert told.matrix is None
    assert "camera_info" in told.reason


def test_an_offset_moves_the_stamps():
    motion = feed = CameraAttitude(offset_s=0.5)
    feed.set_camera(CAMERA)
    for i in range(11):
        feed.add_attitude(AttitudeSample(i * NS // 50, from_yaw_pitch(0.02 * i, 0.0), YawFrame.EARTH))
    motion.estimate(IMAGE, NS // 2, ())
    want = turned(from_yaw_pitch(0.0, 0.0), from_yaw_pitch(0.1, 0.0))
    assert motion.estimate(IMAGE, NS * 6 // 10, ()).matrix == pytest.approx(want, abs=1e-9)


def test_a_second_sequence_of_images_has_the_same_attitudes_and_leaves_the_first_as_it_is():
    """Also those that come later; for images beside them too."""
    fed = Fed()
    both = GuidedMotion(fed.motion, ImageCameraMotion())
    for i in range(6):
        fed.feed.add_attitude(AttitudeSample(i * NS // 50, from_yaw_pitch(0.02 * i, 0.0), YawFrame.EARTH))
    both.estimate(IMAGE, NS // 10, ())
    other = both.another()
    for i in range(6, 11):
        fed.feed.add_attitude(AttitudeSample(i * NS // 50, from_yaw_pitch(0.02 * i, 0.0), YawFrame.EARTH))
    assert other.estimate(IMAGE, 0, ()).matrix is None
    turn = turned(from_yaw_pitch(0.0, 0.0), from_yaw_pitch(0.04, 0.0))
    for source, stamp in ((other, 4), (both, 14), (other, 8), (both, 18)):
        assert source.estimate(IMAGE, stamp * NS // 100, ()).matrix == pytest.approx(turn, abs=1e-6)
