"""A camera that does not fit its gimbal is noticed by the picture's answer to the gimbal's motion."""

from __future__ import annotations

import math

import pytest
from flight.rig import FLAVOURS, Chase, Rig, Time, in_yaw, seen_at
from hypothesis import given
from hypothesis import strategies as st

from efftam_flight.angles import ray_of, unrolled
from efftam_flight.bridge_config import BridgeConfig
from efftam_flight.control_config import ControlConfig, Phase
from efftam_flight.mavlink.clock_map import ClockMap
from efftam_flight.mavlink.dialect import Severity, mav
from efftam_flight.mavlink.tracking_status import LandingTarget
from efftam_flight.values import NS

both = pytest.mark.parametrize("flavour", list(FLAVOURS))


@both
@pytest.mark.parametrize(("roll_deg", "within_s"), [(45, 1.5), (90, 1.0), (-90, 1.0), (180, 1.0), (35, 4.0)])
@pytest.mark.parametrize("away", [(0.2, 0.1), (-0.1, -0.2)], ids=["right and up", "left and down"])
def test_a_rolled_camera_ends_steering_with_the_reason(flavour, roll_deg, within_s, away):
    rig = Rig(flavour)
    Chase(rig, lambda t: away, camera_roll=math.radians(roll_deg))
    rig.control.set_enabled(False)
    rig.run(4)
    rig.control.set_enabled(True)
    begun_s, most = rig.time.t, 0.0
    while rig.control.enabled and rig.time.t < begun_s + 10:
        rig.run(0.02)
        most = max(most, *(abs(rate) for rates in rig.wishes()[-2:] for rate in rates))
    assert rig.time.t - begun_s <= within_s + 0.3  # from the first motion on
    command = rig.control.tick(rig.time.instant())
    assert command.phase is Phase.OFF
    assert "rolled by" in command.reason
    assert "camera_roll" in command.reason
    found = float(command.reason.split("rolled by ")[1].split()[0])
    assert abs(math.remainder(found - roll_deg, 360)) < 25
    if within_s == 1.0:
        assert most <= 0.21  # small rates
    rig.bridge.take_control(False)
    rig.run(2)
    assert rig.yaw_rate() == pytest.approx(0.0, abs=1e-3)


@both
@pytest.mark.parametrize("roll_deg", [0, 20, 90, -135, 180])
def test_a_camera_whose_roll_is_told_is_followed_as_an_upright_one(flavour, roll_deg):
    """What is left of 20 degrees, say, is borne."""
    told = 0 if roll_deg == 20 else roll_deg
    rig = Rig(flavour, control=ControlConfig(camera_roll=math.radians(told)))
    loop = Chase(rig, in_yaw, camera_roll=math.radians(roll_deg))
    rig.run(12)
    assert rig.control.tick(rig.time.instant()).phase is Phase.FOLLOWING
    assert loop.figures()[0] < (1.1 if roll_deg != 20 else 2.0)


def circle(t: float) -> tuple[float, float]:
    return 0.2 * math.sin(2 * t), 0.15 * math.cos(2 * t)


def steps(t: float) -> tuple[float, float]:
    return 0.15 * round(t / 2 % 1), 0.1 * round(t / 3 % 1)


def accelerating(t: float) -> tuple[float, float]:
    return 0.02 * t * t, 0.01 * t


@both
@pytest.mark.parametrize("target", [in_yaw, circle, steps, accelerating], ids=lambda f: f.__name__)
@pytest.mark.parametrize("turn", [0.0, 0.5])
def test_an_upright_camera_is_never_taken_for_a_rolled_one(flavour, target, turn):
    """Whatever target and vehicle do, also where the bearings have much noise."""
    rig = Rig(flavour, vehicle=lambda t: (turn * math.sin(t), turn * math.cos(t)))
    Chase(rig, target, noise_rad=math.radians(0.2))
    rig.run(10)
    assert rig.control.enabled, rig.control.tick(rig.time.instant()).reason


angles = st.floats(-1.0, 1.0)


@given(angles, angles, st.floats(-math.pi, math.pi))
def test_to_take_a_roll_out_and_to_put_it_in_cancel(azimuth, elevation, roll):
    assert unrolled(*unrolled(azimuth, elevation, roll), -roll) == pytest.approx(
        (azimuth, elevation), abs=1e-9
    )


def test_a_camera_rolled_clockwise_sees_to_its_right_what_lies_below():
    """Its right side points down."""
    assert ray_of(*unrolled(0.3, 0.0, math.pi / 2)) == pytest.approx(ray_of(0.0, 0.3))


def test_the_angles_of_a_landing_target_are_those_of_the_vehicle():
    """The image's top points to the right of the nose by 90 degrees: what is seen there lies to the right."""
    config, time = BridgeConfig(camera_roll=math.pi / 2), Time()
    landing = LandingTarget(1, config.camera_roll, lambda severity, text: severity is Severity.ERROR)
    now = time.instant()
    seen = seen_at(now.stamp_ns - NS // 10, 0.0, -0.2)  # towards the image's top
    message = landing.message(seen, ClockMap(), now)
    assert message.get_msgId() == mav.MAVLINK_MSG_ID_LANDING_TARGET
    assert (message.angle_x, message.angle_y) == pytest.approx((0.2, 0.0), abs=1e-6)
