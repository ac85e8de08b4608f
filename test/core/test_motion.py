"""The motion filter: real time steps, honest uncertainty."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from efftam_ros.core.geometry import Box
from efftam_ros.core.motion import EDGE, EDGE_PX, MotionFilter

SECOND = 1_000_000_000


def follow(velocity, *, size=(50, 35), fps=30, seconds=1.0, jitter=2.0, dropped=0.0, seed=0):
    """Feed a target of constant velocity; returns the filter and the truth's centre at its stamp."""
    rng = np.random.default_rng(seed)
    motion, centre = None, np.zeros(2)
    for i in range(int(seconds * fps) + 1):
        if i and rng.random() < dropped:
            continue
        t = i / fps
        centre = np.array([300.0, 200.0]) + np.array(velocity) * t
        seen = centre + rng.uniform(-jitter, jitter, 2) if jitter else centre
        box = Box.from_centre(*seen, *size)
        if motion is None:
            motion = MotionFilter(0, box)
        else:
            motion.predict(round(t * SECOND))
            motion.update(box, 0.9)
    return motion, centre


@pytest.mark.parametrize("dropped", [0.0, 0.3])
def test_velocity_is_right_within_five_percent_after_half_a_second(dropped):
    velocity = (200.0, -120.0)
    errors = []
    for seed in range(40):
        motion, _ = follow(velocity, seconds=0.5, dropped=dropped, seed=seed)
        errors.append(np.hypot(*np.subtract(motion.motion.velocity, velocity)) / np.hypot(*velocity))
    assert np.mean(errors) < 0.05


@settings(max_examples=50)
@given(st.lists(st.integers(1, 200_000_000), min_size=1, max_size=6))
def test_predicting_in_pieces_equals_predicting_at_once(pieces):
    whole, _ = follow((90, 40))
    parts, _ = follow((90, 40))
    start = whole.stamp_ns
    whole.predict(start + sum(pieces))
    for end in np.cumsum(pieces):
        parts.predict(start + int(end))
    assert parts.box.edges() == pytest.approx(whole.box.edges(), abs=1e-6)
    assert parts.motion.covariance == pytest.approx(whole.motion.covariance, rel=1e-9)


def test_coasting_keeps_the_velocity_and_grows_the_uncertainty():
    motion, centre = follow((150, 60))
    variance, size = motion.motion.covariance[0, 0], motion.box.xywh()[2:]
    motion.predict(motion.stamp_ns + SECOND // 2)
    assert motion.box.cx == pytest.approx(centre[0] + 75, abs=8)
    assert motion.box.cy == pytest.approx(centre[1] + 30, abs=8)
    assert motion.motion.covariance[0, 0] > 9 * variance
    assert motion.box.xywh()[2:] == size


def test_a_measured_box_ends_the_noise_of_coasting():
    """Until then the variance of the velocity grows nine times as fast: three times the acceleration."""
    seen, hidden, found = (follow((150, 60))[0] for _ in range(3))
    hidden.coast()
    found.coast()
    growth = []
    for motion in (seen, hidden, found):
        if motion is not hidden:
            motion.update(seen.box if motion is seen else found.box)
        before = motion.motion.covariance[2, 2]
        growth.append(motion.at(motion.stamp_ns + SECOND).covariance[2, 2] - before)
    assert growth[1] == pytest.approx(9 * growth[0], rel=1e-6)
    assert growth[2] == pytest.approx(growth[0], rel=1e-12)


def test_the_claimed_uncertainty_covers_the_error():
    """Normalised errors of position and velocity stay below the 99 % bound in at least 95 % of runs."""
    inside = 0
    for seed in range(100):
        motion, centre = follow((120, -80), seed=seed, seconds=0.7)
        m = motion.motion
        error = np.array(
            [m.box.cx - centre[0], m.box.cy - centre[1], m.velocity[0] - 120, m.velocity[1] + 80]
        )
        inside += error @ np.linalg.solve(m.covariance, error) < 13.28
    assert inside >= 95


@given(
    st.lists(
        st.tuples(
            st.integers(1, 3 * SECOND),
            st.floats(-500, 2000),
            st.floats(1, 900),
            st.floats(1, 900),
            st.floats(0, 1),
        ),
        min_size=1,
        max_size=30,
    )
)
@settings(max_examples=60, deadline=None)
def test_the_covariance_stays_symmetric_and_positive(steps):
    motion = MotionFilter(0, Box(10, 10, 20, 20))
    for dt, x, w, h, quality in steps:
        motion.predict(motion.stamp_ns + dt)
        motion.update(Box(x, x / 2, w, h), quality)
        p = motion.motion.covariance
        assert np.allclose(p, p.T)
        assert np.linalg.eigvalsh(p).min() > 0
        assert motion.box.width >= 1
        assert motion.box.height >= 1


def test_a_doubtful_box_moves_the_belief_less():
    sure, _ = follow((0, 0), jitter=0)
    unsure, _ = follow((0, 0), jitter=0)
    jumped = sure.box.moved(10, 0)
    for motion, quality in ((sure, 1.0), (unsure, 0.2)):
        motion.predict(motion.stamp_ns + SECOND // 30)
        motion.update(jumped, quality)
    assert unsure.box.cx < sure.box.cx


def test_distance_tells_the_target_from_a_distractor():
    motion, _ = follow((100, 0), seconds=1)
    motion.predict(motion.stamp_ns + SECOND // 30)
    here = motion.box
    assert motion.mahalanobis(here.moved(3, 2)) < 9.21
    assert motion.mahalanobis(here.moved(60, 0)) > 9.21


def test_a_smaller_box_may_lie_off_centre_by_half_of_what_is_hidden_and_no_more():
    """A box of 20 x 30 within one of 60 x 40: 20 px to either side and 5 px up or down are free."""
    motion = MotionFilter(0, Box.from_centre(100, 100, 60, 40))
    variance = motion.motion.covariance[0, 0] + (EDGE * np.sqrt(20 * 30) + EDGE_PX) ** 2 / 2
    for dx, dy, beyond in ((20, 5, 0), (-20, -5, 0), (30, 0, 10), (-30, 0, 10), (0, 12, 7), (0, -12, 7)):
        seen = Box.from_centre(100 + dx, 100 + dy, 20, 30)
        assert motion.mahalanobis(seen) == pytest.approx(beyond**2 / variance)


@pytest.mark.parametrize("box", [Box(0, 0, 0, 0), Box(float("nan"), 0, 5, 5), Box(0, 0, 5, -5)])
def test_an_empty_or_non_finite_box_is_never_measured(box):
    motion = MotionFilter(0, Box(10, 10, 20, 20))
    with pytest.raises(ValueError, match="empty"):
        motion.update(box)


def test_the_past_cannot_be_predicted():
    motion = MotionFilter(5, Box(10, 10, 20, 20))
    with pytest.raises(ValueError, match="past"):
        motion.predict(4)


def test_what_covers_the_target_does_not_drag_the_motion_along():
    """A target at 150 px/s slides behind a wall at x = 300: what is visible shrinks at its edge."""
    motion = MotionFilter(0, Box(100, 100, 60, 40))
    for i in range(1, 53):
        motion.predict(i * SECOND // 30)
        left = 100 + 5 * i
        visible = min(left + 60, 300) - left
        if visible > 6:
            motion.update(Box(left, 100, visible, 40), 0.8)
    seen_last = motion.box
    assert seen_last.width > 40
    assert motion.motion.velocity[0] > 110
    hidden_since = motion.at(motion.stamp_ns + SECOND // 3).box
    assert hidden_since.cx > 300


def approach(seconds, rate=0.3, jitter=0.0, fps=30, seed=0):
    """A filter that saw a box of 60 x 40 px grow by ``rate`` of that per second."""
    rng = np.random.default_rng(seed)
    motion = MotionFilter(0, Box.from_centre(300, 200, 60, 40))
    for i in range(1, round(seconds * fps) + 1):
        grown = (1 + rate * i / fps) * np.array([60.0, 40.0]) + rng.normal(0, jitter or 1e-9, 2)
        motion.predict(round(i * SECOND / fps))
        motion.update(Box.from_centre(300, 200, *grown), 0.9)
    return motion


@pytest.mark.parametrize("fps", [10, 30])
def test_the_rate_of_the_size_is_that_of_an_approach(fps):
    assert approach(3.0, fps=fps).motion.size_rate == pytest.approx((18.0, 12.0), rel=0.1)


def test_the_rate_of_the_size_is_that_in_the_image_when_the_camera_approaches_too():
    """The ground and the target on it grow by 20 % a second: nothing changes over the ground."""
    motion = MotionFilter(0, Box.from_centre(300, 200, 60, 40))
    for i in range(1, 91):
        now, before = 1 + 0.2 * i / 30, 1 + 0.2 * (i - 1) / 30
        motion.follow_camera(np.diag([now / before, now / before, 1.0]), 1 / 30)
        motion.predict(round(i * SECOND / 30))
        motion.update(Box.from_centre(300 * now, 200 * now, 60 * now, 40 * now), 0.9)
    assert motion.motion.size_rate == pytest.approx((12.0, 8.0), rel=0.05)


def test_breathing_edges_are_not_an_approach():
    rates = [approach(2.0, rate=0.0, jitter=1.5, seed=seed).motion.size_rate for seed in range(20)]
    assert np.std(rates) < 4.0  # px/s; from one image to the next the edges move by 60 px/s


def test_an_unseen_target_has_a_size_and_no_rate_of_it():
    motion = approach(2.0)
    before = motion.box
    motion.predict(motion.stamp_ns + SECOND // 10)
    motion.coast()
    assert motion.motion.size_rate == (0.0, 0.0)
    motion.predict(motion.stamp_ns + SECOND)
    assert (motion.box.width, motion.box.height) == (before.width, before.height)
    # Seen again at another size: across the gap nothing is known of how it got there.
    motion.update(Box.from_centre(300, 200, 180, 120), 0.9)
    assert motion.motion.size_rate == (0.0, 0.0)
    # What it shrinks by from there counts, though it is larger than before.
    motion.predict(motion.stamp_ns + SECOND // 30)
    motion.update(Box.from_centre(300, 200, 120, 80), 0.9)
    assert max(motion.motion.size_rate) < 0


def pan(step_s, images):
    """The velocity while the camera turns: everything shifts by 3 px from each image to the next."""
    shift = np.array([[1.0, 0.0, 3.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    motion = MotionFilter(0, Box.from_centre(300, 200, 60, 40))
    for i in range(1, images + 1):
        motion.follow_camera(shift, step_s)
        motion.predict(round(i * step_s * SECOND))
        motion.update(Box.from_centre(300 + 3 * i, 200, 60, 40), 0.9)
    return motion.motion.velocity[0]


@pytest.mark.parametrize(
    ("step_s", "images", "velocity"),
    [
        *((1 / 30, 1, 90.0), (0.01, 1, 300.0)),  # that of each step, up to 100 images per second
        *((1e-6, 10, 0.0), (0.004, 9, 750.0)),  # 3 million px/s are none; 3 px in 4 ms are
    ],
)
def test_the_cameras_velocity_is_that_over_at_least_a_hundredth_of_a_second(step_s, images, velocity):
    assert pan(step_s, images) == pytest.approx(velocity, abs=1e-3)


def test_the_motion_within_a_burst_of_images_counts_for_the_time_until_the_next():
    shift = np.array([[1.0, 0.0, 3.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    motion = MotionFilter(0, Box.from_centre(300, 200, 60, 40))
    for dt_s in (1e-6,) * 9 + (0.3,):
        motion.follow_camera(shift, dt_s)
    assert motion.motion.velocity == pytest.approx((100.0, 0.0), rel=1e-3)
    motion.follow_camera(shift, 1e-6)
    motion.camera_unknown()
    motion.follow_camera(shift, 0.03)
    assert motion.motion.velocity == pytest.approx((100.0, 0.0))


def test_a_predicted_copy_is_what_predict_makes_and_leaves_the_filter_alone():
    motion = MotionFilter(0, Box(100, 80, 30, 20))
    motion.predict(SECOND // 30)
    motion.update(Box(102, 81, 30, 20))
    before = motion.motion
    ahead = motion.predicted(SECOND // 10)
    ahead.update(Box(110, 84, 28, 20))
    ahead.coast()
    after = motion.motion
    assert (before.box, before.velocity, before.size_rate) == (after.box, after.velocity, after.size_rate)
    assert np.array_equal(before.covariance, after.covariance)
    again = motion.predicted(SECOND // 10)
    motion.predict(SECOND // 10)
    assert again.motion.box == motion.motion.box
    assert np.array_equal(again.motion.covariance, motion.motion.covariance)


def test_under_a_camera_that_rolls_the_uncertainty_turns_with_the_image():
    """A hidden right edge leaves more of it along x."""
    found = MotionFilter(0, Box(90.0, 90.0, 20.0, 20.0))
    found.predict(100_000_000)
    found.update(Box(95.0, 90.0, 12.0, 20.0))
    before, (c, s) = found.motion.covariance[:2, :2], (math.cos(0.5), math.sin(0.5))
    turn = np.array([[c, -s], [s, c]])
    found.follow_camera(np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]]))
    assert found.motion.covariance[:2, :2] == pytest.approx(turn @ before @ turn.T)
