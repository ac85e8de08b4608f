"""Where on the ground the target is: geometry, heights, reasons, and how honest the covariance is."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from efftam_flight.angles import from_angles, product, rotated, turn_between
from efftam_flight.position.config import PositionConfig
from efftam_flight.position.estimator import PositionEstimator
from efftam_flight.position.geodesy import GeoPoint, LocalFrame
from efftam_flight.position.ground_filter import GroundFilter, Height, Ray, normalised_error
from efftam_flight.position.poses import LocalPoses, LocalSample, PlaceSample, VehiclePoses
from efftam_flight.values import NS, AttitudeSample, VehicleSample, YawFrame
from efftam_ros.core.reasons import ReasonCode
from efftam_ros.core.types import TrackState
from efftam_ros.messages.positions import HeightSource
from efftam_ros.messages.reports import MotionReport
from simulation.position import DEPRESSIONS_DEG, HEIGHTS_M, Flight, measure

HOME = GeoPoint(47.4, 8.55, 430.0)
T0 = 1000 * NS


def seen(stamp_ns: int = T0, azimuth: float = 0.0, elevation: float = 0.0, **other) -> MotionReport:
    plain = MotionReport(
        stamp_ns,
        target_id=1,
        state=TrackState.TRACKING,
        selection=1,
        measured=True,
        age_s=0.0,
        valid=True,
        has_bearing=True,
        azimuth=azimuth,
        elevation=elevation,
    )
    return replace(plain, **other)


def vehicle(
    pitch_deg: float = -30.0, yaw_deg: float = 0.0, frame: YawFrame = YawFrame.EARTH, **place
) -> VehiclePoses:
    """30 m above home, at rest, for a second before and after `T0`."""
    poses = VehiclePoses(PositionConfig())
    known = {"height_above_home": 30.0, **place}
    for i in range(-5, 6):
        poses.add_place(PlaceSample(T0 + i * NS // 5, replace(HOME, altitude=460.0), **known))
    for i in range(-45, 6):
        q = from_angles(0.0, math.radians(pitch_deg), math.radians(yaw_deg))
        poses.add_gimbal(AttitudeSample(T0 + i * NS // 50, q, frame))
    return poses


def position(poses: VehiclePoses, **report):
    return PositionEstimator(PositionConfig(), poses).answer(seen(**report))


def test_metres_and_degrees_go_both_ways():
    frame = LocalFrame(HOME)
    far = frame.to_geo(1200.0, -800.0, 25.0)
    assert frame.to_local(far) == pytest.approx((1200.0, -800.0, 25.0), abs=1e-6)
    # A minute of latitude is a sea mile, a little more in the north.
    assert frame.to_local(GeoPoint(47.4 + 1 / 60, 8.55, 430.0))[0] == pytest.approx(1852.9, abs=0.3)
    across = LocalFrame(GeoPoint(-17.0, 179.9999, 0.0)).to_geo(0.0, 100.0, 0.0)
    assert -180.0 <= across.longitude < -179.99


@pytest.mark.parametrize(("yaw_deg", "place"), [(0, (0, 51.96)), (90, (51.96, 0)), (225, (-36.74, -36.74))])
def test_a_target_on_the_axis_lies_where_the_axis_meets_the_ground(yaw_deg, place):
    found = position(vehicle(yaw_deg=yaw_deg))
    assert (found.x, found.y) == pytest.approx(place, abs=0.01)
    assert found.range == pytest.approx(60.0, abs=0.01)
    assert (found.reason, found.height_source) == ("", HeightSource.HOME)
    assert found.altitude == pytest.approx(430.0)
    back = LocalFrame(HOME).to_local(GeoPoint(found.latitude, found.longitude, found.altitude))
    assert back[:2] == pytest.approx((place[1], place[0]), abs=0.01)


def test_right_and_below_in_the_image_are_right_and_nearer_on_the_ground():
    middle, right = position(vehicle()), position(vehicle(), azimuth=0.1)
    below = position(vehicle(), elevation=0.1)
    assert right.x > middle.x + 5.0
    assert below.y < middle.y - 5.0
    assert below.x == pytest.approx(0.0, abs=1e-6)


def test_a_gimbal_that_counts_from_the_nose_takes_the_vehicles_heading():
    poses = vehicle(yaw_deg=20.0, frame=YawFrame.VEHICLE)
    assert position(poses).reason.code is ReasonCode.POSITION_NO_ATTITUDE
    for i in range(-45, 6):
        poses.add_vehicle(VehicleSample(T0 + i * NS // 50, math.radians(70.0), 0.0))
    found = position(poses)
    assert (found.x, found.y) == pytest.approx((51.96, 0.0), abs=0.01)


def test_a_fixed_camera_turns_and_tilts_with_the_vehicle():
    poses = VehiclePoses(PositionConfig(), mount=(0.0, math.radians(-20.0), 0.0))
    for i in range(-5, 6):
        poses.add_place(PlaceSample(T0 + i * NS // 5, replace(HOME, altitude=460.0), height_above_home=30.0))
        poses.add_vehicle(VehicleSample(T0 + i * NS // 10, math.radians(90.0), 0.0, 0.0, math.radians(-10.0)))
    found = position(poses)
    assert (found.x, found.y) == pytest.approx((51.96, 0.0), abs=0.01)


@pytest.mark.parametrize(
    ("known", "source", "height"),
    [
        ({"range": 50.0, "height_above_terrain": 28.0}, HeightSource.RANGE, 25.0),
        ({"height_above_terrain": 28.0}, HeightSource.TERRAIN, 28.0),
        ({}, HeightSource.HOME, 30.0),
    ],
)
def test_the_best_height_is_used_and_named(known, source, height):
    found = position(vehicle(**known))
    assert found.height_source is source
    assert found.y == pytest.approx(height / math.tan(math.radians(30.0)), rel=1e-6)
    assert found.altitude == pytest.approx(460.0 - height)


@pytest.mark.parametrize(
    ("poses", "report", "cause"),
    [
        (vehicle(), {"state": TrackState.LOST, "valid": False}, ReasonCode.POSITION_NO_TARGET),
        (vehicle(), {"state": TrackState.IDLE, "valid": False}, ReasonCode.POSITION_NO_TARGET),
        (vehicle(), {"state": TrackState.ACQUIRING, "valid": False}, ReasonCode.POSITION_NO_TARGET),
        (vehicle(), {"has_bearing": False}, ReasonCode.POSITION_NO_BEARING),
        (vehicle(), {"azimuth": math.nan}, ReasonCode.POSITION_NO_BEARING),
        (vehicle(), {"stamp_ns": T0 + NS}, ReasonCode.POSITION_NO_ATTITUDE),
        (vehicle(), {"stamp_ns": T0 - 2 * NS}, ReasonCode.POSITION_NO_ATTITUDE),
        (vehicle(height_above_home=math.nan), {}, ReasonCode.POSITION_NO_HEIGHT),
        (vehicle(height_above_home=-1.0), {}, ReasonCode.POSITION_BELOW_TARGET),
        (vehicle(pitch_deg=-4.9), {}, ReasonCode.NEAR_HORIZON),
        (vehicle(pitch_deg=20.0), {}, ReasonCode.NEAR_HORIZON),
        (vehicle(), {"elevation": math.radians(-25.1)}, ReasonCode.NEAR_HORIZON),
        (VehiclePoses(PositionConfig()), {}, ReasonCode.POSITION_NO_ATTITUDE),
    ],
)
def test_what_is_missing_is_named_and_no_number_is_given(poses, report, cause):
    found = position(poses, **report)
    assert (found.valid, found.reason.code) == (False, cause)
    assert all(math.isnan(v) for v in (found.x, found.y, found.latitude, found.altitude, found.range))


def test_the_limit_at_the_horizon_is_the_configured_one():
    assert position(vehicle(pitch_deg=-5.1)).valid
    config = PositionConfig(min_depression=math.radians(20.0))
    found = PositionEstimator(config, vehicle(pitch_deg=-19.0)).answer(seen())
    assert found.reason.code is ReasonCode.NEAR_HORIZON


def test_without_a_fix_there_is_no_position():
    poses = VehiclePoses(PositionConfig())
    poses.add_gimbal(AttitudeSample(T0, from_angles(0.0, -0.5, 0.0), YawFrame.EARTH))
    for point in (GeoPoint(0.0, 0.0, 100.0), GeoPoint(math.nan, 8.0, 1.0), GeoPoint(91.0, 8.0, 1.0)):
        assert not poses.add_place(PlaceSample(T0, point, height_above_home=30.0))
    assert position(poses).reason.code is ReasonCode.POSITION_NO_PLACE


def test_a_position_is_predicted_for_a_second_and_then_no_more():
    poses = vehicle()
    estimator = PositionEstimator(PositionConfig(), poses)
    assert estimator.answer(seen()).valid
    for i in range(6, 100):
        q = from_angles(0.0, math.radians(-30.0), 0.0)
        poses.add_gimbal(AttitudeSample(T0 + i * NS // 50, q, YawFrame.EARTH))
        poses.add_place(
            PlaceSample(T0 + NS + i * NS // 50, replace(HOME, altitude=460.0), height_above_home=30.0)
        )
    coasting = {"state": TrackState.COASTING, "measured": False}
    late = estimator.answer(seen(T0 + NS, age_s=1.0, **coasting))
    assert (late.valid, late.measured, late.age_s) == (True, False, pytest.approx(1.0))
    later = estimator.answer(seen(T0 + NS + NS // 10, age_s=1.1, **coasting))
    assert (later.valid, later.reason.code) == (False, ReasonCode.POSITION_UNSEEN)


def test_another_selection_begins_anew():
    estimator = PositionEstimator(PositionConfig(), vehicle())
    first = estimator.answer(seen(T0 - NS // 5))
    again = estimator.answer(seen(T0, azimuth=0.3))
    anew = estimator.answer(seen(T0, azimuth=0.3, selection=2))
    assert abs(again.x) < abs(anew.x)  # smoothed with what was before
    assert anew.x == pytest.approx(51.96 * math.tan(0.3) * math.cos(0) / math.cos(math.radians(30)), rel=0.2)
    assert first.x == pytest.approx(0.0, abs=1e-6)


def test_the_height_of_the_targets_middle_brings_it_nearer():
    config = PositionConfig(target_height=0.9)
    found = PositionEstimator(config, vehicle()).answer(seen())
    assert found.y == pytest.approx(29.1 / math.tan(math.radians(30.0)))
    assert found.altitude == pytest.approx(430.0)


def test_poses_in_a_local_frame_need_no_place_on_earth():
    q = from_angles(0.0, math.radians(-45.0), math.radians(90.0))
    poses = LocalPoses(PositionConfig(), ground=2.0)
    for i in range(3):
        assert poses.add(LocalSample(T0 + (i - 2) * NS // 10, (5.0, 7.0, -12.0), q))
    found = PositionEstimator(PositionConfig(), poses).answer(seen())
    assert (found.x, found.y) == pytest.approx((17.0, 5.0), abs=1e-6)
    assert found.height_source is HeightSource.LOCAL
    assert math.isnan(found.latitude)
    assert not poses.add(LocalSample(T0 + NS, (math.nan, 0.0, 0.0), q))
    assert not poses.add(LocalSample(T0 + NS, (0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 0.0)))


def test_the_turn_between_two_attitudes_is_an_angular_velocity():
    before = from_angles(0.2, -0.4, 1.0)
    after = product(from_angles(0.0, 0.0, 0.06), before)
    assert turn_between(before, after, 0.1) == pytest.approx((0.0, 0.0, 0.6))
    assert turn_between(after, before, 0.1) == pytest.approx((0.0, 0.0, -0.6))
    assert turn_between(before, before, 0.1) == pytest.approx((0.0, 0.0, 0.0))


# The filter


def ray_at(camera, target, yaw: float | None = None, **other) -> Ray:
    to = np.asarray(target, float) - np.asarray(camera, float)
    plain = Ray(
        to / np.linalg.norm(to),
        np.asarray(camera, float),
        np.zeros(3),
        math.atan2(to[1], to[0]) if yaw is None else yaw,
        np.zeros(3),
        1e-6,
    )
    return replace(plain, **other)


def turned(ray: Ray, axis: int, angle: float) -> Ray:
    """The ray as an attitude that is wrong by a turn about right, forward or down would give it."""
    c, s = math.cos(ray.yaw), math.sin(ray.yaw)
    axes = np.array([[-s, c, 0.0], [c, s, 0.0], [0.0, 0.0, 1.0]])
    half = axes[axis] * math.sin(angle / 2)
    q = (math.cos(angle / 2), *map(float, half))
    return replace(ray, direction=np.asarray(rotated(q, tuple(map(float, ray.direction)))))


@pytest.mark.parametrize("target", [(50.0, 10.0, 0.0), (3.0, -20.0, 0.0), (0.0, 0.0, 0.0), (-1.0, 0.2, 0.0)])
def test_the_first_covariance_is_that_of_the_errors_one_by_one(target):
    """Each assumed error, of one standard deviation, moves the point as the covariance says; straight down,
    too."""
    config, height = PositionConfig(), 30.0
    ray = ray_at((0.0, 0.0, -height), target, yaw=0.3)
    known = Height(height, 1.0, HeightSource.HOME)

    def place(changed: Ray, of: Height = known) -> np.ndarray:
        ground = GroundFilter(config)
        ground.update(T0, changed, of)
        return ground.state[:2]

    sizes = (config.attitude_error, config.attitude_error, config.heading_error)
    step = 1e-4  # of a standard deviation, so that the ray is straight
    moved = [(place(turned(ray, i, step * size)) - place(ray)) / step for i, size in enumerate(sizes)]
    moved.append(place(ray, replace(known, value=height + step)) - place(ray))
    moved[-1] = moved[-1] / step
    expected = sum(np.outer(m, m) for m in moved)
    ground = GroundFilter(config)
    ground.update(T0, replace(ray, noise=0.0), known)
    assert ground.covariance[:2, :2] == pytest.approx(expected, rel=0.01, abs=1e-3)


def test_a_grazing_ray_is_as_uncertain_as_the_geometry_says():
    for depression_deg, along in ((30.0, 2.09), (10.0, 17.4)):
        far = 30.0 / math.tan(math.radians(depression_deg))
        ground = GroundFilter(PositionConfig(heading_error=1e-4))
        ray = ray_at((0.0, 0.0, -30.0), (far, 0.0, 0.0), noise=0.0)
        ground.update(T0, ray, Height(30.0, 0.0, HeightSource.HOME))
        assert math.sqrt(ground.covariance[0, 0]) == pytest.approx(along, rel=0.01)


def test_a_range_along_the_axis_makes_a_grazing_ray_certain():
    far, height = 30.0 / math.tan(math.radians(10.0)), 30.0
    ray = ray_at((0.0, 0.0, -height), (far, 0.0, 0.0), noise=0.0)
    axis = tuple(map(float, ray.direction))
    ground = GroundFilter(PositionConfig(heading_error=1e-4))
    ground.update(T0, ray, Height(height, 0.05, HeightSource.RANGE, height / axis[2], axis))
    # The tilt moves the point along a circle about the camera: nearly up and down.
    assert math.sqrt(ground.covariance[0, 0]) < 1.0


def test_errors_that_last_do_not_average_out():
    """A hundred looks from one place know the target hardly better than a few."""
    ground = GroundFilter(PositionConfig())
    ray = ray_at((0.0, 0.0, -30.0), (52.0, 0.0, 0.0))
    spreads = []
    for i in range(100):
        ground.update(T0 + i * NS // 10, ray, Height(30.0, 0.0, HeightSource.HOME))
        spreads.append(math.sqrt(float(np.trace(ground.covariance[:2, :2]))))
    lasting = 0.8 * math.hypot(2.09, 1.81, 0.52)
    assert lasting * 0.97 < min(spreads) <= spreads[-1] < spreads[0]


def test_another_source_of_the_height_has_an_error_of_its_own():
    ground = GroundFilter(PositionConfig())
    ray = ray_at((0.0, 0.0, -30.0), (52.0, 0.0, 0.0))
    for i in range(30):
        ground.update(T0 + i * NS // 10, ray, Height(30.0, 3.0, HeightSource.TERRAIN))
    before = ground.covariance[0, 0]
    for i in range(30, 90):
        ground.update(T0 + i * NS // 10, ray, Height(30.0, 0.1, HeightSource.HOME))
    assert ground.covariance[0, 0] < 0.5 * before


def test_an_empty_filter_predicts_nothing():
    ground = GroundFilter(PositionConfig())
    with pytest.raises(ValueError, match="measured"):
        ground.predict(T0)


def test_a_normalised_error_counts_in_standard_deviations():
    assert normalised_error([2.0, 0.0], np.diag([4.0, 1.0])) == pytest.approx(1.0)
    assert normalised_error([0.0, 2.0], np.diag([4.0, 1.0])) == pytest.approx(4.0)


# Flights with known truth. Few flights: the bounds are those of chance.

RUNS = 24


@pytest.mark.parametrize("depression", DEPRESSIONS_DEG)
@pytest.mark.parametrize("height", HEIGHTS_M)
def test_the_truth_lies_in_the_95_percent_region_as_often_as_that_says(height, depression):
    found = measure(Flight(height, depression, 1.5), PositionConfig(), range(RUNS))
    assert found.inside >= 0.82
    assert found.said_m == pytest.approx(found.position_m, rel=0.45)


def test_30_m_high_and_30_degrees_down_a_walking_target_is_known_to_2_5_m_and_0_4_m_s():
    found = measure(Flight(30.0, 30.0, 1.5, ranged=True), PositionConfig(), range(RUNS))
    assert found.position_m < 2.5
    assert found.velocity < 0.4


def test_a_turn_with_an_unknown_delay_is_said_by_the_covariance():
    found = measure(Flight(yaw_rate=30.0, delay=0.15), PositionConfig(), range(RUNS))
    assert found.inside >= 0.82
