"""Signs and rates of directions: yaw right, pitch up; azimuth right, elevation down."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from efftam_ros.flight.angles import axis_direction, interpolated, target_direction, wrapped
from efftam_ros.flight.direction_filter import DirectionFilter
from efftam_ros.flight.values import NS
from simulation.rotations import from_yaw_pitch

angle = st.floats(-3.0, 3.0)
tilt = st.floats(-1.4, 1.4)


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


def multiplied(a, b):
    """The rotation ``b`` within the frame that ``a`` has turned."""
    return (
        a[0] * b[0] - a[1] * b[1] - a[2] * b[2] - a[3] * b[3],
        a[0] * b[1] + a[1] * b[0] + a[2] * b[3] - a[3] * b[2],
        a[0] * b[2] - a[1] * b[3] + a[2] * b[0] + a[3] * b[1],
        a[0] * b[3] + a[1] * b[2] - a[2] * b[1] + a[3] * b[0],
    )


@given(yaw=angle, pitch=tilt, share=st.floats(0.0, 1.5), turn=st.floats(-0.5, 0.5))
def test_interpolation_goes_at_a_constant_rate_also_beyond(yaw, pitch, share, turn):
    a = from_yaw_pitch(yaw, pitch)
    step = (math.cos(turn / 2), 0.0, 0.0, math.sin(turn / 2))
    part = (math.cos(share * turn / 2), 0.0, 0.0, math.sin(share * turn / 2))
    mixed = interpolated(a, multiplied(a, step), share)
    assert abs(sum(p * q for p, q in zip(mixed, multiplied(a, part), strict=True))) == pytest.approx(1.0)


@given(pitch=tilt, angles=st.lists(st.floats(-0.1, 0.1), min_size=2, max_size=20), ahead=st.integers(0, NS))
def test_a_steep_direction_is_believed_in_yaw_as_a_level_one_of_more_noise(pitch, angles, ahead):
    """The same error of a bearing is more yaw there; of the pitch it is as much."""
    steep, level = DirectionFilter(0.3, 0.002), DirectionFilter(0.3, 0.002 / math.cos(pitch))
    rising, low = DirectionFilter(0.3, 0.002), DirectionFilter(0.3, 0.002)
    for number, angle in enumerate(angles):
        steep.update(number * NS // 30, angle, pitch)
        level.update(number * NS // 30, angle, 0.0)
        rising.update(number * NS // 30, 0.0, pitch + angle)
        low.update(number * NS // 30, 0.0, angle)
    found, yawed, raised, pitched = (
        each.predict(steep.stamp_ns + ahead) for each in (steep, level, rising, low)
    )
    assert (found.yaw, found.yaw_rate) == pytest.approx((yawed.yaw, yawed.yaw_rate), abs=1e-9)
    assert raised.pitch - pitch == pytest.approx(pitched.pitch, abs=1e-9)
