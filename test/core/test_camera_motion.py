"""The camera's motion: what it does to places, to the filter, and which matrices are no camera's."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from efftam_ros.core.geometry import Box
from efftam_ros.core.motion import MotionFilter, moved_box, moved_point, rejection, rotation_motion
from efftam_ros.core.types import CameraMotion, Image
from efftam_ros.flight.attitude_motion import AttitudeMotion, GuidedMotion

SIZE = (1280, 720)
K = np.array([[1000.0, 0, 640], [0, 1000.0, 360], [0, 0, 1]])
IMAGE = Image.from_array(np.zeros((720, 1280, 3), np.uint8))
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


def test_the_filters_covariance_turns_with_the_image():
    """A quarter turn swaps the variances of x and y and keeps the matrix symmetric and positive."""
    filter_ = MotionFilter(0, Box.from_centre(0, 0, 40, 30))
    filter_.predict(NS)
    filter_.update(Box.from_centre(5, 0, 40, 30))
    before = filter_.motion.covariance
    filter_.follow_camera(np.array([[0.0, -1, 0], [1, 0, 0], [0, 0, 1]]))
    after = filter_.motion.covariance
    assert after[0, 0] == pytest.approx(before[1, 1])
    assert after[2, 2] == pytest.approx(before[3, 3])
    assert np.linalg.eigvalsh(after).min() > 0


def test_without_the_cameras_motion_known_the_camera_rests():
    filter_ = MotionFilter(0, Box.from_centre(300, 200, 40, 30))
    filter_.follow_camera(shift(30, 0), 0.1)
    filter_.camera_unknown()
    assert filter_.at(NS).velocity == pytest.approx(filter_.ground.velocity)


@pytest.mark.parametrize(
    ("matrix", "word"),
    [
        (np.full((3, 3), np.nan), "finite"),
        (np.zeros((3, 3)), "finite"),
        (np.diag([-1.0, 1.0, 1.0]), "mirrors"),
        (np.diag([2.0, 2.0, 1.0]), "zooms"),
        (shift(900, 0), "shifts"),
        (np.array([[1.0, 0, 0], [0, 1, 0], [-1e-3, 0, 1]]), "infinity"),
        (np.array([[1.0, 0, 0], [0, 1, 0], [4e-4, 0, 1]]), "perspective"),
    ],
)
def test_what_no_camera_does_between_two_images_is_refused(matrix, word):
    assert word in rejection(matrix, *SIZE)


@given(st.floats(-0.2, 0.2), st.floats(0.8, 1.25))
def test_pans_and_zooms_are_not_refused(angle, zoom):
    centre = shift(640, 360) @ np.diag([zoom, zoom, 1.0]) @ shift(-640, -360)
    assert rejection(centre @ rotation_motion(K, yaw(angle)), *SIZE) == ""


@given(st.floats(-math.pi, math.pi))
def test_a_roll_shifts_what_is_not_in_its_centre(angle):
    """What counts is where the middle of the image goes."""
    c, s = math.cos(angle), math.sin(angle)
    roll = np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])
    assert rejection(shift(640, 360) @ roll @ shift(-640, -360), *SIZE) == ""
    moved = 2 * abs(math.sin(angle / 2)) * math.hypot(640, 360)
    around_the_corner = rejection(roll, *SIZE, most_shift=0.4)
    assert ("shifts" in around_the_corner) == (moved / 1280 > 0.4)


@pytest.mark.parametrize("factor", [0.2, 5.0, -3.0])
def test_the_scale_of_a_homography_means_nothing(factor):
    for matrix in (shift(300, -200), shift(1200, 0), shift(0, 1200), rotation_motion(K, yaw(0.02))):
        assert rejection(factor * matrix, *SIZE) == rejection(matrix, *SIZE)


def test_a_gyro_at_60_degrees_per_second_leaves_under_a_pixel_and_a_half():
    """33 ms of a 60 deg/s pan: the target would be 35 px from where it is expected without the gyro."""
    source = AttitudeMotion(K)
    rate, fps = np.radians(60), 30
    for i in range(200):  # samples at 200 Hz, as a gyro's
        source.add(i * NS // 200, yaw(rate * i / 200))
    errors, blind = [], []
    place = np.array([0.1, 0.05, 1.0])
    for i in range(int(fps * 0.5)):
        stamp = i * NS // fps
        told = source.estimate(IMAGE, stamp, ())
        now, before = (K @ yaw(rate * j / fps) @ place for j in (i, i - 1))
        now, before = now[:2] / now[2], before[:2] / before[2]
        if i:
            errors.append(np.hypot(*(moved_point(told.matrix, *before) - now)))
            blind.append(np.hypot(*(before - now)))
    assert max(errors) < 1.4
    assert min(blind) > 30


def test_a_gyro_knows_the_way_back_to_a_kept_image_after_any_turn():
    """Half a radian away, which leaves nothing of the image, and back to within a tenth of a radian."""
    source = AttitudeMotion(K)
    for i, angle in enumerate((0.0, 0.25, 0.5, 0.3, 0.1)):
        source.add(i * NS // 10, yaw(angle))
        source.estimate(IMAGE, i * NS // 10, ())
        if i == 0:
            place = source.keep([])
    assert source.since(place).matrix == pytest.approx(rotation_motion(K, yaw(0.1)))


def test_a_gyro_without_a_kept_image_says_so():
    source = AttitudeMotion(K)
    source.add(0, yaw(0))
    source.estimate(IMAGE, 0, ())
    assert source.since(None).matrix is None
    assert "kept" in source.since(None).reason


def test_a_gyro_that_does_not_know_the_present_image_knows_no_way_back():
    source = AttitudeMotion(K)
    told = source.since(None)
    assert told.matrix is None
    assert "attitude" in told.reason


def test_between_two_samples_far_apart_an_image_near_one_of_them_is_told():
    source = AttitudeMotion(K)
    source.add(0, yaw(0.0))
    source.add(3 * NS // 10, yaw(0.3))
    source.estimate(IMAGE, 0, ())
    told = source.estimate(IMAGE, NS // 20, ())
    assert told.matrix == pytest.approx(rotation_motion(K, yaw(0.05)), abs=1e-9)
    assert source.estimate(IMAGE, 3 * NS // 20, ()).matrix is None


def test_the_sample_that_is_named_is_the_nearest():
    source = AttitudeMotion(K)
    for second in (0, 1):
        source.add(second * NS, yaw(0))
    assert "-4.00 s" in source.estimate(IMAGE, 5 * NS, ()).reason


def test_a_gyro_with_another_clock_is_no_motion_and_says_how_far_off_it_is():
    source = AttitudeMotion(K)
    source.add(0, yaw(0))
    source.estimate(IMAGE, 0, ())
    told = source.estimate(IMAGE, 5 * NS, ())
    assert told.matrix is None
    assert "-5.00 s" in told.reason
    assert "0.05 s" in told.reason


def test_a_gyro_that_never_spoke_is_no_motion_and_says_so():
    told = AttitudeMotion(K).estimate(IMAGE, 0, ())
    assert told.matrix is None
    assert "no attitude" in told.reason


def test_a_clock_that_was_set_back_starts_over():
    source = AttitudeMotion(K)
    for i in range(10):
        source.add((100 * 50 + i) * NS // 50, yaw(0.01 * i))
    for i in range(10):
        source.add(i * NS // 50, yaw(0.01 * i))
    source.estimate(IMAGE, 0, ())
    told = source.estimate(IMAGE, NS // 10, ())
    assert told.matrix == pytest.approx(rotation_motion(K, yaw(0.05)), abs=1e-9)


def test_beyond_the_newest_sample_the_turn_goes_on_for_a_twentieth_of_a_second():
    source = AttitudeMotion(K)
    for i in range(11):
        source.add(i * NS // 50, yaw(0.02 * i))
    source.estimate(IMAGE, NS // 5, ())
    later = source.estimate(IMAGE, NS * 25 // 100, ())
    assert later.matrix == pytest.approx(rotation_motion(K, yaw(0.05)), abs=1e-9)
    assert source.estimate(IMAGE, NS * 26 // 100, ()).matrix is None


class Scripted:
    """A source that tells the same motion each time, and remembers what it was told to look near."""

    def __init__(self, matrix, reason=""):
        self.matrix, self.reason = matrix, reason
        self.guesses, self.calls = [], []

    def estimate(self, image, stamp_ns, targets, guess=None):
        self.guesses.append(guess)
        return CameraMotion(self.matrix, self.reason)

    def keep(self, targets):
        self.calls.append(("keep", targets))

    def since(self, kept):
        return CameraMotion(self.matrix, self.reason)

    def reset(self):
        self.calls.append("reset")


def guided(told, seen, images=12):
    """The last motion of an attitude and images, and the one since the kept image."""
    motion = GuidedMotion(told, seen)
    answers = [motion.estimate(IMAGE, i, ()) for i in range(images)]
    return answers[-1], motion.since(motion.keep([]))


def test_the_images_are_told_where_to_look_and_what_they_find_there_holds():
    """They know how the camera travelled, too."""
    told, seen = Scripted(shift(20, 1)), Scripted(shift(23, 0))
    for motion in guided(told, seen):
        assert motion == CameraMotion(seen.matrix)
    assert seen.guesses[-1] is told.matrix


def test_where_the_images_tell_nothing_the_attitude_stands_in():
    told = Scripted(shift(20, 1))
    for motion in guided(told, Scripted(None, "no corners")):
        assert motion == CameraMotion(told.matrix)


def test_without_an_attitude_the_images_are_used_and_its_reason_is_told():
    seen = Scripted(shift(20, 0))
    for motion in guided(Scripted(None, "no calibration"), seen):
        assert motion == CameraMotion(seen.matrix, "no calibration")
    for motion in guided(Scripted(None, "no calibration"), Scripted(None, "no corners")):
        assert motion == CameraMotion(None, "no calibration")


@pytest.mark.parametrize("told", [shift(0, 20), shift(-20, 0), shift(-12, 9)], ids=["axes", "sign", "both"])
def test_an_attitude_that_contradicts_the_images_is_not_used_and_both_are_told(told):
    images = Scripted(shift(20, 0))
    motion = GuidedMotion(Scripted(told), images)
    answers = [motion.estimate(IMAGE, i, ()) for i in range(12)]
    assert [bool(one.reason) for one in answers] == [False] * 9 + [True] * 3
    assert answers[-1].matrix is images.matrix
    assert f"({told[0, 2]:.0f}, {told[1, 2]:.0f})" in answers[-1].reason
    assert "(20, 0)" in answers[-1].reason
    images.matrix = None
    assert motion.estimate(IMAGE, 12, ()).matrix is None
    assert motion.since(motion.keep([])).matrix is None


@pytest.mark.parametrize(
    ("told", "seen"),
    [
        (shift(0, 0), shift(15, 0)),  # it flies past and does not turn
        (shift(15, 0), shift(0, 0)),  # it turns to keep a place in its middle
        (shift(15, 0), shift(30, 3)),
        (shift(15, 0), shift(6, -5)),
    ],
)
def test_a_camera_that_also_travels_is_no_contradiction(told, seen):
    motion, _ = guided(Scripted(told), Scripted(seen), images=30)
    assert motion == CameraMotion(seen)


def test_both_keep_and_forget_an_image():
    told, seen, target = Scripted(shift(1, 1)), Scripted(shift(1, 1)), Box(1, 2, 3, 4)
    motion = GuidedMotion(told, seen)
    motion.keep([target])
    motion.reset()
    assert told.calls == seen.calls == [("keep", [target]), "reset"]
