"""Signs and rates of directions: yaw right, pitch up; azimuth right, elevation down."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from efftam_flight.angles import axis_direction, interpolated, target_direction, wrapped
from efftam_flight.attitude import GimbalHistory, VehicleHistory
from efftam_flight.direction_filter import DirectionFilter
from efftam_flight.values import NS, AttitudeSample, VehicleSample, YawFrame
from simulation.rotations import from_yaw_pitch

angle = st.floats(-3.0, 3.0)
tilt = st.floats(-1.4, 1.4)
signs = st.sampled_from([1.0, -1.0])


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


@given(yaw=angle, pitch=tilt, share=st.floats(0.0, 1.5), turn=st.floats(-0.5, 0.5), sign=signs)
def test_interpolation_goes_at_a_constant_rate_also_beyond_and_the_short_way(yaw, pitch, share, turn, sign):
    """A quaternion with all signs changed is the same rotation: a gimbal may send either."""
    a = tuple(sign * number for number in from_yaw_pitch(yaw, pitch))
    step = (math.cos(turn / 2), 0.0, 0.0, math.sin(turn / 2))
    part = (math.cos(share * turn / 2), 0.0, 0.0, math.sin(share * turn / 2))
    mixed = interpolated(a, multiplied(from_yaw_pitch(yaw, pitch), step), share)
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


def test_a_constant_rate_is_known_after_a_second_and_the_noise_of_bearings_hardly_moves_it():
    rng, found, rates = np.random.default_rng(0), DirectionFilter(0.3, 0.002), []
    for number in range(150):
        t = number / 30
        yaw, pitch = np.array([0.1 * t, -0.2 + 0.05 * t]) + rng.normal(0, 0.002, 2)
        found.update(round(t * NS), yaw, pitch)
        rates.append((found.predict(round(t * NS)).yaw_rate, found.predict(round(t * NS)).pitch_rate))
    ahead = found.predict(round((t + 0.2) * NS))
    assert (ahead.yaw, ahead.pitch) == pytest.approx((0.1 * (t + 0.2), -0.2 + 0.05 * (t + 0.2)), abs=0.01)
    assert np.mean(rates[30:], axis=0) == pytest.approx((0.1, 0.05), abs=0.01)
    assert np.std(rates[30:], axis=0).max() < 0.04


def turned(t: float, yaw: float, frame: YawFrame = YawFrame.EARTH) -> AttitudeSample:
    return AttitudeSample(round(t * NS), from_yaw_pitch(yaw, 0.0), frame)


def test_what_comes_after_the_newest_attitude_is_right_where_stamps_are_in_whole_milliseconds():
    """Of two samples at 150 Hz alone the rate would be a tenth off."""
    history, off = GimbalHistory(), []
    for t in np.arange(60) / 150:
        history.add(turned(round(t, 3), t))
        if t > 0.1:
            off.append(axis_direction(history.at(round((t + 0.08) * NS)))[0] - t - 0.08)
    assert np.abs(off).max() < 2e-3


@pytest.mark.parametrize(
    ("then", "known"),
    [
        ([], {0.3: 0.3, 0.55: 0.55, 0.61: None, -0.01: None}),
        ([turned(0.5, 9.0)], {0.3: 0.3, 0.5: 0.5}),  # an equal stamp is dropped
        ([turned(0.2, 2.0)], {0.1: None, 0.2: 2.0, 0.4: None}),  # stamps went back
        ([turned(0.6, 2.0, YawFrame.VEHICLE)], {0.5: None, 0.6: 2.0}),  # another frame
        ([turned(1.3, 1.3)], {0.2: None, 0.3: 0.3, 0.9: 0.9}),  # a second is kept
        (None, {0.3: None}),
    ],
)
def test_what_is_known_of_the_last_second_after_what(then, known):
    """Of a gimbal that turned by 1 rad/s for half a second; None: it is cleared."""
    history = GimbalHistory()
    for t in np.arange(0.0, 0.51, 0.1):
        history.add(turned(t, t))
    if then is None:
        history.clear()
    for sample in then or ():
        history.add(sample)
    for t, yaw in known.items():
        found = history.at(round(t * NS))
        assert (found if found is None else axis_direction(found)[0]) == (
            yaw and pytest.approx(yaw, abs=1e-6)
        )


@given(first=st.floats(2.8, 3.5), rate=st.floats(-2.0, 2.0), share=st.floats(0.0, 1.0))
def test_a_heading_is_read_between_its_messages_and_carried_on_by_its_rate_also_across_south(
    first, rate, share
):
    history, step_s = VehicleHistory(), 0.2
    for t in (0.0, step_s):
        assert history.add(VehicleSample(round(t * NS), wrapped(first + rate * t), rate))
    for t, is_known in ((share * step_s, True), (step_s + 0.3 * share, True), (step_s + 0.31, False)):
        found = history.at(round(t * NS))
        assert (found is not None) is is_known
        if found is not None:
            assert abs(found) <= math.pi
            assert wrapped(found - first - rate * t) == pytest.approx(0.0, abs=1e-6)
