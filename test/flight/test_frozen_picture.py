"""A picture that stands still while the gimbal turns ends steering, and nothing else does."""

from __future__ import annotations

import math

import pytest
from flight.rig import FLAVOURS, FOCAL_PX, Chase, Rig, in_yaw, seen_at
from hypothesis import given
from hypothesis import strategies as st

from efftam_flight.control_config import ControlConfig, Instant, Phase
from efftam_flight.frozen_picture import FrozenPicture
from efftam_flight.gimbal_control import GimbalControl
from efftam_flight.values import NS, AttitudeSample, VehicleSample, YawFrame
from efftam_ros.messages.bearing import CameraModel, Intrinsics
from simulation.rotations import from_yaw_pitch

FRAME_S = 1 / 30


def held(rig: Rig) -> str:
    """Why the controller holds; empty where it does not."""
    command = rig.control.tick(rig.time.instant())
    return command.reason if command.phase is Phase.HOLDING else ""


@pytest.mark.parametrize("flavour", list(FLAVOURS))
@pytest.mark.parametrize("most_rate", [math.radians(90.0), 0.4])
@pytest.mark.parametrize("frozen_at_s", [7.0, 8.4])
def test_a_frozen_picture_ends_steering_until_it_moves(flavour, most_rate, frozen_at_s):
    rig = Rig(flavour, control=ControlConfig(max_yaw_rate=most_rate, max_pitch_rate=most_rate))
    loop = Chase(rig, in_yaw)
    rig.run(frozen_at_s)
    before, loop.is_frozen = rig.mount.yaw, True
    turned_s = None
    for _ in range(1000):
        rig.run(0.01)
        if turned_s is None and abs(rig.mount.yaw - before) > math.radians(2.0):
            turned_s = rig.time.t
        if "picture frozen" in held(rig):
            break
    assert turned_s is not None
    assert rig.time.t - turned_s <= 0.3
    rig.run(0.1)
    assert rig.wishes()[-1] == (0.0, 0.0)
    rig.run(5)
    assert "picture frozen" in held(rig)
    assert rig.yaw_rate() == pytest.approx(0.0, abs=1e-3)
    loop.is_frozen = False
    rig.run(4)
    assert held(rig) == ""
    assert loop.figures(after_s=rig.time.t - 1.0)[0] < 2.0


@given(
    rates=st.lists(st.floats(-1.5, 1.5), min_size=10, max_size=60),
    noise=st.lists(st.floats(0.01, 0.5), min_size=60, max_size=60),
    share=st.floats(0.15, 1.5),
)
def test_a_picture_that_moves_with_the_gimbal_is_never_frozen(rates, noise, share):
    """``share``: as far as attitude, focal length and distortion make the picture move."""
    picture, yaw = FrozenPicture(), 0.0
    for i, rate in enumerate(rates):
        yaw += rate * FRAME_S
        shift_px = share * FOCAL_PX * abs(rate) * FRAME_S + noise[i]
        picture.take(round(i * FRAME_S * NS), (yaw, 0.0), shift_px, FOCAL_PX)
        assert not picture.is_frozen


@pytest.mark.parametrize(
    ("turned_deg", "images", "changes", "is_frozen"),
    [
        (0.8, 5, {}, True),
        (0.8, 3, {}, False),  # too short: an attitude may be a little late
        (0.3, 5, {}, False),  # a gimbal that hardly turns moves no picture
        (0.0, 99, {}, False),  # a still scene may repeat its pixels
        (0.8, 5, {"focal_px": None}, False),
        (0.8, 5, {"shift_px": math.nan}, False),
        (0.8, 5, {"axis": None}, False),
        (0.8, 5, {"shift_px": 6.0}, False),
        (0.8, 5, {"shift_px": 0.5}, True),  # noise that looks like motion
    ],
)
def test_it_is_frozen_where_the_gimbal_turned_by_two_degrees_and_the_picture_did_not_move(
    turned_deg, images, changes, is_frozen
):
    picture = FrozenPicture()
    for i in range(images):
        given = {
            "axis": (math.radians(turned_deg * i), 0.0),
            "shift_px": 0.0,
            "focal_px": FOCAL_PX,
            **changes,
        }
        picture.take(round(i * FRAME_S * NS), **given)
    assert picture.is_frozen is is_frozen


@pytest.mark.parametrize(("shift_px", "is_frozen"), [(0.0, True), (0.02, False), (math.nan, False)])
def test_it_is_frozen_until_an_image_differs(shift_px, is_frozen):
    picture = FrozenPicture()
    for i in range(6):
        picture.take(round(i * FRAME_S * NS), (0.02 * i, 0.0), 0.0, FOCAL_PX)
    assert picture.is_frozen
    picture.take(round(6 * FRAME_S * NS), (0.1, 0.0), shift_px, FOCAL_PX)
    assert picture.is_frozen is is_frozen


@pytest.mark.parametrize(
    ("frame", "heading_rate", "is_frozen"),
    [
        (YawFrame.EARTH, None, True),
        (YawFrame.VEHICLE, 0.0, True),
        (YawFrame.VEHICLE, -0.6, False),  # the joint turns, the camera does not
        (YawFrame.VEHICLE, None, False),  # nobody knows by how much the camera turns
    ],
)
def test_the_turn_that_counts_is_the_cameras_and_not_the_joints(frame, heading_rate, is_frozen):
    control = GimbalControl(ControlConfig(first_rate=0.0))
    control.on_camera(CameraModel(Intrinsics(FOCAL_PX, FOCAL_PX, 639.5, 359.5), 1280, 720))
    control.set_enabled(True)
    for i in range(60):
        now = Instant(i * NS // 50, i * 0.02)
        q = from_yaw_pitch(0.6 * now.steady_s, 0.0)
        control.on_attitude(AttitudeSample(now.stamp_ns, q, frame), now)
        if heading_rate is not None:
            control.on_vehicle(VehicleSample(now.stamp_ns, heading_rate * now.steady_s, heading_rate))
        control.on_estimate(seen_at(now.stamp_ns, 0.01, 0.0, image_shift=0.0), now)
        command = control.tick(now)
    assert ("picture frozen" in command.reason) is is_frozen
    assert command.rates.is_zero is is_frozen
