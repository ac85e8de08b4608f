"""Pixels to angles and rates: against OpenCV's lens model, closed forms and numeric derivatives."""

import math
import re
from contextlib import suppress

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box
from efftam_ros.core.types import Motion
from efftam_ros.messages.bearing import CameraModel, Intrinsics, bearing_of, make_distortion

K = [800.0, 0.0, 639.5, 0.0, 780.0, 359.5, 0.0, 0.0, 1.0]
LENSES = {
    "none": ("plumb_bob", [0.0] * 5),
    "plumb_bob": ("plumb_bob", [-0.28, 0.09, 0.0012, -0.0007, -0.013]),
    "rational": ("rational_polynomial", [1.2, 0.31, 0.0005, -0.0004, 0.02, 1.5, 0.62, 0.06]),
    "equidistant": ("equidistant", [-0.02, 0.004, -0.003, 0.0006]),
}
COVARIANCE = np.array(
    [[4.0, 0.5, 3.0, 0.2], [0.5, 3.0, 0.1, 2.0], [3.0, 0.1, 90.0, 5.0], [0.2, 2.0, 5.0, 70.0]]
)

lens_names = st.sampled_from(sorted(LENSES))
points = st.tuples(st.floats(100, 1180), st.floats(60, 660))
speeds = st.tuples(st.floats(-900, 900), st.floats(-900, 900))


def camera(lens: str, **kwargs) -> Intrinsics:
    model, d = LENSES[lens]
    return Intrinsics.from_camera_info(K, d, model, **kwargs)


def angles(intrinsics: Intrinsics, u: float, v: float) -> np.ndarray:
    """Azimuth and elevation by their definition: the ray's direction in the optical frame."""
    x, y = intrinsics.ray(u, v)
    return np.array([math.atan2(x, 1.0), math.asin(y / math.sqrt(1 + x * x + y * y))])


def test_the_principal_point_is_straight_ahead():
    # Calibrations count pixel centres as whole numbers, this package counts edges: half a pixel between them.
    seen = camera("plumb_bob").bearing((640.0, 360.0), (0.0, 0.0))
    assert (seen.azimuth, seen.elevation) == pytest.approx((0.0, 0.0), abs=1e-15)


@pytest.mark.parametrize("lens", sorted(LENSES))
def test_rates_straight_ahead_are_those_of_a_pinhole(lens):
    seen = camera(lens).bearing((640.0, 360.0), (80.0, 78.0))
    assert (seen.azimuth_rate, seen.elevation_rate) == pytest.approx((0.1, 0.1))


def test_right_and_down_are_positive():
    seen = camera("none").bearing((640.0 + 800.0, 360.0), (80.0, 78.0))
    assert seen.azimuth == pytest.approx(math.pi / 4)
    assert seen.elevation == pytest.approx(0.0)
    assert seen.azimuth_rate == pytest.approx(0.1 / 2)  # x' / (1 + x^2)
    assert seen.elevation_rate == pytest.approx(0.1 / math.sqrt(2))
    assert camera("none").bearing((640.0, 361.0), (0.0, 0.0)).elevation > 0


@settings(max_examples=60, deadline=None)
@given(lens=lens_names, point=points)
def test_rays_are_those_of_opencv(lens, point):
    model, d = LENSES[lens]
    pixel_centre = np.array([[[point[0] - 0.5, point[1] - 0.5]]])
    matrix = np.reshape(K, (3, 3))
    ray = camera(lens).ray(*point)
    # Forwards, because the inverse of OpenCV stops early: the ray must be seen at the point it was made from.
    project = cv2.fisheye.projectPoints if model == "equidistant" else cv2.projectPoints
    seen = project(np.array([[[*ray, 1.0]]]), np.zeros(3), np.zeros(3), matrix, np.array(d))[0]
    assert np.ravel(seen) == pytest.approx(np.ravel(pixel_centre), abs=1e-6)


@settings(max_examples=60, deadline=None)
@given(lens=lens_names, point=points, speed=speeds)
def test_rates_are_the_derivative_of_the_angles(lens, point, speed):
    intrinsics, dt = camera(lens), 1e-5
    seen = intrinsics.bearing(point, speed)
    after = angles(intrinsics, point[0] + speed[0] * dt, point[1] + speed[1] * dt)
    before = angles(intrinsics, point[0] - speed[0] * dt, point[1] - speed[1] * dt)
    numeric = (after - before) / (2 * dt)
    assert (seen.azimuth_rate, seen.elevation_rate) == pytest.approx(numeric, rel=1e-5, abs=1e-7)
    assert (seen.azimuth, seen.elevation) == pytest.approx(angles(intrinsics, *point), abs=1e-12)


@settings(max_examples=40, deadline=None)
@given(lens=lens_names, point=points, speed=speeds)
def test_covariance_of_the_rates_is_that_of_the_state_under_their_jacobian(lens, point, speed):
    intrinsics = camera(lens)
    state = np.array([*point, *speed])

    def rates(s):
        seen = intrinsics.bearing((s[0], s[1]), (s[2], s[3]))
        return np.array([seen.azimuth_rate, seen.elevation_rate])

    steps = np.diag([1e-3, 1e-3, 1e-2, 1e-2])
    jacobian = np.column_stack([(rates(state + h) - rates(state - h)) / (2 * h.sum()) for h in steps])
    found = intrinsics.bearing(point, speed, COVARIANCE).rate_covariance
    assert found == pytest.approx(jacobian @ COVARIANCE @ jacobian.T, rel=1e-4, abs=1e-12)
    assert (np.linalg.eigvalsh(found) > 0).all()


@settings(max_examples=60, deadline=None)
@given(lens=lens_names, point=points)
def test_covariance_of_the_angles_is_that_of_the_position_under_their_jacobian(lens, point):
    intrinsics, step = camera(lens), 1e-3
    ahead = [angles(intrinsics, point[0] + dx, point[1] + dy) for dx, dy in ((step, 0), (0, step))]
    behind = [angles(intrinsics, point[0] - dx, point[1] - dy) for dx, dy in ((step, 0), (0, step))]
    jacobian = (np.array(ahead) - np.array(behind)).T / (2 * step)
    found = intrinsics.bearing(point, (0.0, 0.0), COVARIANCE).covariance
    assert found == pytest.approx(jacobian @ COVARIANCE[:2, :2] @ jacobian.T, rel=1e-4, abs=1e-15)
    assert not intrinsics.bearing(point, (0.0, 0.0)).covariance.any()


def test_spread_of_sampled_states_agrees_with_the_covariance():
    intrinsics = camera("plumb_bob")
    rng = np.random.default_rng(3)
    states = rng.multivariate_normal([900.0, 200.0, 300.0, -150.0], COVARIANCE, size=4000)
    rates = [intrinsics.bearing(s[:2], s[2:]) for s in states]
    sampled = np.cov([[r.azimuth_rate for r in rates], [r.elevation_rate for r in rates]])
    found = intrinsics.bearing((900.0, 200.0), (300.0, -150.0), COVARIANCE).rate_covariance
    assert found == pytest.approx(sampled, rel=0.1, abs=0.05 * float(np.max(sampled)))


def test_region_of_interest_and_binning_see_the_same_direction():
    # Full-resolution point (900, 500) as a camera delivers it after cropping 200, 100 and binning 2 x 4.
    (model, d), k = LENSES["plumb_bob"], [*K[:1], 24.0, *K[2:]]
    full = Intrinsics.from_camera_info(k, d, model).bearing((900.0, 500.0), (120.0, -60.0), COVARIANCE)
    binned = Intrinsics.from_camera_info(k, d, model, offset=(200, 100), binning=(2, 4))
    share = np.diag([1 / 2, 1 / 4, 1 / 2, 1 / 4])
    place = (900.0 - 200) / 2, (500.0 - 100) / 4
    small = binned.bearing(place, (60.0, -15.0), share @ COVARIANCE @ share)
    assert (small.azimuth, small.elevation) == pytest.approx((full.azimuth, full.elevation), abs=1e-12)
    assert (small.azimuth_rate, small.elevation_rate) == pytest.approx(
        (full.azimuth_rate, full.elevation_rate)
    )
    assert small.covariance == pytest.approx(full.covariance)
    assert small.rate_covariance == pytest.approx(full.rate_covariance, rel=1e-3)


@given(point=points, speed=speeds, skew=st.floats(-30, 30))
def test_skewed_pixels_are_those_of_the_matrix(point, speed, skew):
    k = np.reshape([*K[:1], skew, *K[2:]], (3, 3))
    lens = Intrinsics.from_camera_info(list(k.flat))
    x, y, _ = np.linalg.solve(k, (point[0] - 0.5, point[1] - 0.5, 1.0))
    assert lens.ray(*point) == pytest.approx((x, y), abs=1e-12)
    dx, dy = np.linalg.solve(k[:2, :2], speed)
    assert lens.bearing(point, speed).azimuth_rate == pytest.approx(dx / (1 + x * x), abs=1e-12)
    assert np.reshape(lens.ray_slope(*point), (2, 2)) @ speed == pytest.approx((dx, dy), abs=1e-12)


def test_binning_of_zero_means_one():
    assert camera("none", binning=(0, 0)) == camera("none", binning=(1, 1))


def test_rectified_images_go_by_the_projection_matrix():
    p = [700.0, 0.0, 600.0, 0.0, 0.0, 690.0, 340.0, 0.0, 0.0, 0.0, 1.0, 0.0]
    seen = Intrinsics.from_camera_info(K, [-0.3, 0.1, 0, 0, 0], "plumb_bob", p=p).ray(600.5 + 70, 340.5 + 69)
    assert seen == pytest.approx((0.1, 0.1))


def test_an_uncalibrated_camera_has_no_intrinsics():
    assert Intrinsics.from_camera_info([0.0] * 9) is None


def test_a_motion_has_the_bearing_of_its_centre_by_the_calibration_of_this_image_size():
    motion = Motion(0, Box(880.0, 190.0, 40.0, 20.0), (300.0, -150.0), COVARIANCE, (0.0, 0.0))
    lens = camera("plumb_bob")
    seen, expected = (
        bearing_of(motion, (1280, 720), CameraModel(lens, 1280, 720)),
        lens.bearing((900.0, 200.0), (300.0, -150.0), COVARIANCE),
    )
    assert (seen.azimuth, seen.elevation_rate) == (expected.azimuth, expected.elevation_rate)
    assert np.array_equal(seen.rate_covariance, expected.rate_covariance)
    for unknown in ((None, CameraModel(lens, 1280, 720)), (motion, None), (motion, CameraModel(None, 9, 9))):
        assert bearing_of(unknown[0], (1280, 720), unknown[1]) is None
    for width, height in ((1280, 719), (640, 720), (720, 1280)):
        with pytest.raises(InputError, match=f"for 1280 x 720 px, the image has {width} x {height}"):
            bearing_of(motion, (width, height), CameraModel(lens, 1280, 720))


@pytest.mark.parametrize(
    ("model", "d", "words"),
    [
        ("thin_prism", [0.1] * 12, "distortion model 'thin_prism' is not known; use plumb_bob"),
        ("", [0.1, 0, 0, 0, 0], "distortion model '' is not known"),
        ("plumb_bob", [0.1, 0.2], "plumb_bob has 2 coefficients; the model takes 5"),
        ("plumb_bob", [0.1, 0, 0, 0, 0, 0.3, 0, 0], "plumb_bob has 8 coefficients; the model takes 5"),
        ("equidistant", [math.nan, 0, 0, 0], "calibrate the camera again"),
    ],
)
def test_unusable_lenses_are_refused_with_their_numbers(model, d, words):
    with pytest.raises(InputError, match=words.replace("(", r"\(")):
        Intrinsics.from_camera_info(K, d, model)


def test_coefficients_padded_with_zeros_are_the_shorter_model():
    plain = Intrinsics.from_camera_info(K, [-0.2, 0.05, 0, 0, 0], "plumb_bob").ray(900, 500)
    padded = Intrinsics.from_camera_info(K, [-0.2, 0.05, 0, 0, 0, 0, 0, 0], "plumb_bob").ray(900, 500)
    assert plain == padded


@pytest.mark.parametrize("model", ["equidistant", "fisheye"])
@pytest.mark.parametrize("d", [(), (0.0, 0.0, 0.0, 0.0)])
def test_a_fisheye_lens_without_coefficients_is_ideal_and_no_pinhole(model, d):
    lens = make_distortion(model, d)
    assert lens is not None
    (x, y), _ = lens(1.0, 0.0)  # 45 degrees to the right
    assert (x, y) == pytest.approx((math.pi / 4, 0.0))


@pytest.mark.parametrize("model", ["", "plumb_bob", "rational_polynomial"])
def test_other_lenses_without_coefficients_are_pinholes(model):
    assert make_distortion(model, (0.0,) * 5) is None


@pytest.mark.parametrize("focal", [-800.0, math.nan, math.inf, 1e-308, 1e300])
def test_impossible_focal_lengths_are_refused(focal):
    with pytest.raises(InputError, match=re.escape(f"focal lengths {focal:g}, 780")):
        Intrinsics.from_camera_info([focal, *K[1:]])


@pytest.mark.parametrize(
    ("index", "words"), [(2, "principal point (nan, 359.5)"), (5, "(639.5, nan)"), (1, "skew nan px")]
)
def test_the_number_that_makes_a_calibration_unusable_is_named(index, words):
    k = list(K)
    k[index] = math.nan
    with pytest.raises(InputError, match=re.escape(words)):
        Intrinsics.from_camera_info(k)


def test_a_pole_of_the_lens_model_has_no_bearing():
    # The denominator 1 - r^2 is 0 at x = 1: 45 degrees to the right.
    lens = Intrinsics.from_camera_info(K, [0, 0, 0, 0, 0, -1.0, 0, 0], "rational_polynomial")
    with pytest.raises(InputError, match=r"divides by zero at \(1440, 360\) px"):
        lens.bearing((640.0 + 800.0, 360.0), (80.0, 0.0))


finite = st.floats(allow_nan=False, allow_infinity=False)


@given(
    lens_names, st.lists(finite.map(abs), min_size=2, max_size=2), st.lists(finite, min_size=3, max_size=3)
)
def test_no_calibration_of_finite_numbers_gives_an_angle_that_is_not_finite(lens, focal, rest):
    k = [focal[0], rest[0], rest[1], 0.0, focal[1], rest[2], 0.0, 0.0, 1.0]
    model, d = LENSES[lens]
    with suppress(InputError):
        intrinsics = Intrinsics.from_camera_info(k, d, model)
        if intrinsics is not None:
            seen = intrinsics.bearing((900.0, 200.0), (80.0, -40.0), COVARIANCE)
            angles = (seen.azimuth, seen.elevation, seen.azimuth_rate, seen.elevation_rate)
            assert np.isfinite([*angles, *seen.covariance.flat, *seen.rate_covariance.flat]).all()


def test_a_point_where_the_lens_model_folds_is_refused():
    strong = Intrinsics.from_camera_info(
        [300.0, 0, 639.5, 0, 300.0, 359.5, 0, 0, 1], [-0.4, 0, 0, 0, 0], "plumb_bob"
    )
    with pytest.raises(InputError, match="outside the calibrated view"):
        strong.ray(1270, 700)
