"""The motion filter: real time steps, honest uncertainty, a camera that moves; places under that motion."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from efftam_ros.core.geometry import Box
from efftam_ros.core.motion import (
    ACCELERATION,
    COASTING_FACTOR,
    EDGE,
    EDGE_PX,
    INITIAL_SPEED,
    MIN_CAMERA_S,
    MIN_DEPTH,
    SIZE_RATE_S,
    SIZE_WALK,
    MotionFilter,
    TargetMotion,
    linearised,
    moved_box,
    moved_point,
    relative_depth,
    zoom,
)

SECOND = 1_000_000_000
Array = NDArray[np.float64]


# ---- places under the camera's motion ----------------------------------------------------------------------


def near(least: float, most: float):
    return st.floats(least, most).map(lambda value: round(value, 6))


@st.composite
def homographies(draw) -> Array:
    """As a camera's; some take places behind it. Their scale means nothing."""
    turned = [[draw(near(-0.3, 0.3)) + (i == j) for j in range(2)] + [draw(near(-60, 60))] for i in range(2)]
    tilted = [draw(near(-3e-3, 3e-3)), draw(near(-3e-3, 3e-3)), 1.0]
    return draw(st.sampled_from([1.0, 0.4, -3.0])) * np.array([*turned, tilted])


def derivative(matrix: Array, x: float, y: float) -> Array:
    """[2, 2], by complex steps, which lose no digits."""
    moved = matrix @ np.array([[x + 1e-20j, x], [y, y + 1e-20j], [1, 1]])
    return np.asarray((moved[:2] / moved[2]).imag / 1e-20)


def depth(matrix: Array, x: float, y: float) -> float:
    """Relative to that of the image's corner. Close to 0 nothing has a place."""
    found = float(matrix[2] @ (x, y, 1.0) / matrix[2, 2])
    assume(abs(found) > 0.05)
    return found


@given(homographies(), near(-400, 800), near(-400, 800))
def test_a_place_moves_with_its_surroundings_whatever_the_homographys_scale(matrix, x, y):
    assert relative_depth(matrix, x, y) == pytest.approx(depth(matrix, x, y))
    (*moved, divisor), (point, change) = matrix @ (x, y, 1.0), linearised(matrix, x, y)
    assert moved_point(matrix, x, y) == pytest.approx(np.array(moved) / divisor)
    assert point == pytest.approx(moved_point(matrix, x, y))
    np.testing.assert_allclose(change, derivative(matrix, x, y), rtol=1e-7, atol=1e-9)
    growth = math.sqrt(abs(np.linalg.det(change)))
    assert zoom(matrix, x, y) == pytest.approx(growth)
    box = moved_box(matrix, Box.from_centre(x, y, 30, 40))
    assert box.xywh() == pytest.approx(Box.from_centre(*point, 30 * growth, 40 * growth).xywh())


# ---- the filter against one as in textbooks ----------------------------------------------------------------


START = Box(280.0, 180.0, 60.0, 40.0)
SHIFT = np.array([[1.0, 0, 20], [0, 1, -10], [0, 0, 1]])


class Textbook:
    """Noise by integration, derivatives of the mapping itself, the plain update: slow, and it rounds more."""

    def __init__(self, box: Box) -> None:
        size = max(box.size, 1.0)
        edge, speed = EDGE * size + EDGE_PX, INITIAL_SPEED * size
        self.x = np.array([box.cx, box.cy, 0, 0, box.width, box.height])
        self.p = np.diag([edge, edge, speed, speed, 2 * edge, 2 * edge]) ** 2
        self.is_seen, self.size_rate, self.sized, self.sized_ns = True, np.zeros(2), self.x[4:], 0
        self.camera, self.shift, self.shift_s = np.zeros(2), np.zeros(2), 0.0

    def ahead(self, dt: float) -> tuple[Array, Array]:
        """State and covariance after this time, s."""

        def over(t: float) -> Array:
            return np.eye(6) + np.diag([t, t, 0, 0], k=2)

        acceleration = ACCELERATION * (1.0 if self.is_seen else COASTING_FACTOR)
        walks = np.array([0, 0, acceleration, acceleration, SIZE_WALK, SIZE_WALK])
        density = np.diag(walks**2) * np.prod(np.maximum(self.x[4:], 1.0))
        moments = [
            share * over((1 + t) * dt / 2) @ density @ over((1 + t) * dt / 2).T
            for t, share in zip(*np.polynomial.legendre.leggauss(3), strict=True)
        ]
        return over(dt) @ self.x, over(dt) @ self.p @ over(dt).T + sum(moments) * dt / 2

    def sigma(self, box: Box, quality: float) -> float:
        """Standard deviation of an edge, px."""
        return (EDGE * max(box.size, 1.0) + EDGE_PX) * (3 - 2 * np.clip(quality, 0, 1))

    def see(self, stamp_ns: int, box: Box, quality: float) -> None:
        edges = np.hstack([np.eye(4, 2), np.zeros((4, 2)), np.eye(4, 2) * -0.5])
        edges[2:] = np.hstack([np.eye(2), np.zeros((2, 2)), np.eye(2) * 0.5])
        off = np.array(box.edges()) - edges @ self.x
        inside = np.maximum(off * (1, 1, -1, -1), 0)
        noise = np.diag(self.sigma(box, quality) ** 2 + inside**2)
        gain = self.p @ edges.T @ np.linalg.inv(edges @ self.p @ edges.T + noise)
        self.x, self.p = self.x + gain @ off, (np.eye(6) - gain @ edges) @ self.p
        self.x[4:] = np.maximum(self.x[4:], 1.0)
        passed_s = (stamp_ns - self.sized_ns) / SECOND
        if self.is_seen and passed_s > 0:
            kept = np.exp(-passed_s / SIZE_RATE_S)
            self.size_rate = kept * self.size_rate + (1 - kept) * (self.x[4:] - self.sized) / passed_s
        self.is_seen, self.sized, self.sized_ns = True, self.x[4:].copy(), stamp_ns

    def turn(self, matrix: Array, dt: float) -> None:
        change, place = derivative(matrix, *self.x[:2]), moved_point(matrix, *self.x[:2])
        growth = math.sqrt(abs(np.linalg.det(change))) * np.eye(2)
        self.shift, self.shift_s = self.shift + place - self.x[:2], self.shift_s + dt
        whole = np.kron(np.diag([1, 1, 0]), change) + np.kron(np.diag([0, 0, 1]), growth)
        self.x, self.p = np.concatenate([place, (whole @ self.x)[2:]]), whole @ self.p @ whole.T
        if self.shift_s >= MIN_CAMERA_S:
            self.camera, self.shift, self.shift_s = self.shift / self.shift_s, np.zeros(2), 0.0

    def distance(self, box: Box, quality: float) -> float:
        """Of the nearest centre that a box which is hidden in part may have; squared."""
        free = np.maximum(self.x[4:] - (box.width, box.height), 0) / 2
        off = np.array([box.cx, box.cy]) - self.x[:2]
        off = off - np.clip(off, -free, free)
        spread = self.p[:2, :2] + np.eye(2) * self.sigma(box, quality) ** 2 / 2
        return float(off @ np.linalg.inv(spread) @ off)


def agree(found: object, expected: object) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


def relative(box: Box, dx: float, dy: float, across: float, down: float) -> Box:
    return Box.from_centre(
        box.cx + dx * box.width, box.cy + dy * box.height, across * box.width, down * box.height
    )


SAME, LEFT_HALF = (0.0, 0.0, 1.0, 1.0), (-0.25, 0.0, 0.5, 1.0)  # relative to a box
boxes = st.tuples(near(-0.8, 0.8), near(-0.8, 0.8), near(0.3, 1.8), near(0.3, 1.8))
events = st.one_of(
    st.tuples(st.just("wait"), st.sampled_from([0, 1, SECOND // 200, SECOND // 30, SECOND])),
    st.tuples(st.just("see"), boxes, near(-0.5, 1.5)),
    st.tuples(st.just("turn"), homographies(), st.sampled_from([1e-6, 0.004, 0.03, math.inf])),
    st.tuples(st.sampled_from(["coast", "camera unknown", "look ahead"])),
)


@settings(max_examples=80)
@example(START, [("turn", SHIFT, 1e-6), ("camera unknown",), ("turn", SHIFT, 0.03)], SAME, 0)
@given(
    st.sampled_from([START, Box(280.0, 180.0, 0.6, 0.8)]),
    st.lists(events, min_size=1, max_size=14),
    boxes,
    st.integers(0, SECOND),
)
def test_whatever_happens_the_filter_is_the_one_of_the_textbook(start, events, seen, later_ns):
    motion, model = MotionFilter(0, start), Textbook(start)
    for name, *given_ in [("wait", SECOND // 30), *events]:
        if name == "wait":
            model.x, model.p = model.ahead(given_[0] / SECOND)
            motion.predict(motion.stamp_ns + given_[0])
        elif name == "see":
            box = relative(motion.box, *given_[0])
            model.see(motion.stamp_ns, box, given_[1])
            motion.update(box, given_[1])
        elif name == "turn":
            depth(given_[0], *model.x[:2])
            model.turn(*given_)
            motion.follow_camera(*given_)
        elif name == "coast":
            model.is_seen, model.size_rate = False, np.zeros(2)
            motion.coast()
        elif name == "camera unknown":
            model.camera, model.shift, model.shift_s = np.zeros(2), np.zeros(2), 0.0
            motion.camera_unknown()
        else:  # leaves the filter as it is, whatever becomes of what it gave
            copy = motion.predicted(motion.stamp_ns + later_ns)
            copy.update(relative(copy.box, *seen))
            copy.follow_camera(np.diag([2.0, 2.0, 1.0]), 1.0)
            copy.coast()
            motion.at(motion.stamp_ns).covariance[:] = 7.0
        assume(model.x[4:].max() < 1e4)
        later_s, told = later_ns / SECOND, motion.at(motion.stamp_ns + later_ns)
        x, p = model.ahead(later_s)
        agree((told.box.cx, told.box.cy), x[:2] + model.camera * later_s)
        agree((told.box.width, told.box.height), x[4:])
        agree(told.velocity, x[2:4] + model.camera)
        agree(motion.ground.velocity, model.x[2:4])
        agree(told.size_rate, model.size_rate)
        scale = np.sqrt(np.outer(np.diag(p)[:4], np.diag(p)[:4]))
        agree(told.covariance / scale, p[:4, :4] / scale)
        agree(motion.predicted(told.stamp_ns).at(told.stamp_ns).covariance / scale, p[:4, :4] / scale)
        other = relative(motion.box, *seen)
        agree(motion.mahalanobis(other, 0.7), model.distance(other, 0.7))


# ---- the filter of the target, and that of when all of it was visible --------------------------------------


target_events = st.one_of(
    st.tuples(st.just("see"), boxes, st.booleans(), st.booleans()),
    st.tuples(st.just("coast"), st.booleans()),
    st.tuples(st.just("start")),
    st.tuples(st.just("turn"), st.none() | homographies(), st.sampled_from([0.0, 0.03])),
    st.tuples(st.just("resize"), st.sampled_from([np.diag([2.0, 2, 1]), np.diag([0.5, 0.25, 1])])),
)


WHOLE, PART, MISSED = ("see", SAME, False, False), ("see", LEFT_HALF, False, True), ("coast", True)


@example([(WHOLE, 30), (("turn", SHIFT, 0.03), 0), (PART, 30), (("turn", SHIFT, 0.03), 0), (MISSED, 30)])
@example([(WHOLE, 30), (PART, 30), (MISSED, 970)])
@example([(WHOLE, 30), (("start",), 30), (MISSED, 30)])
@example([(WHOLE, 30), (MISSED, 30), (PART, 30), (MISSED, 30)])
@example([(WHOLE, 30), (PART, 30), (("resize", np.diag([2.0, 2, 1])), 30), (MISSED, 30)])
@given(st.lists(st.tuples(target_events, st.sampled_from([30, 400, 999, 1000])), max_size=10))
def test_a_target_that_is_missed_goes_on_as_when_all_of_it_was_last_visible(events):
    """Within a second, in the first image that misses it; the camera moves what is known of then, too."""
    target, now_ns = TargetMotion(), 0
    target.start(0, START)
    now, whole = MotionFilter(0, START), None
    for (name, *given_), passed_ms in events:
        now_ns += passed_ms * SECOND // 1000
        if name == "turn":
            matrix, dt_s = given_
            if matrix is not None:
                assert target.is_behind(matrix) == (depth(matrix, now.box.cx, now.box.cy) < MIN_DEPTH)
            for one in (now, whole):
                if one is not None and matrix is not None and dt_s:
                    depth(matrix, one.box.cx, one.box.cy)
                    one.follow_camera(matrix, dt_s)
                elif one is not None:
                    one.camera_unknown()
            target.follow_camera(matrix, dt_s)
        if name == "resize":
            now.predict(now_ns)
            now.follow_camera(given_[0])
            whole = None
            target.resize(given_[0], now_ns)
        now.predict(now_ns)
        target.filter = target.filter.predicted(now_ns)  # as the tracker does
        if name == "start":
            now, whole = MotionFilter(now_ns, START), None
            target.start(now_ns, START)
        elif name == "see":
            box, restart, partial = relative(now.box, *given_[0]), *given_[1:]
            target.measure(now_ns, box, 0.8, restart, partial)
            if restart:
                now = MotionFilter(now_ns, box)
            else:
                now.update(box, 0.8)
            whole = whole if partial else now.predicted(now_ns)
        elif name == "coast":
            if given_[0] and whole is not None and now_ns - whole.stamp_ns < SECOND:
                now, whole = whole.predicted(now_ns), None
            now.coast()
            target.coast(now_ns, was_seen=given_[0])
        told, expected = target.filter.at(target.filter.stamp_ns), now.at(now.stamp_ns)
        assert (told.stamp_ns, told.box, told.velocity) == (now_ns, expected.box, expected.velocity)
        assert np.array_equal(told.covariance, expected.covariance)
    target.measure(now_ns, START, 0.8, restart=True, partial=False)
    target.lose()
    target.coast(now_ns, was_seen=True)
    assert (target.filter, target.is_behind(-np.eye(3))) == (None, False)


# ---- what that means ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dropped", [0.0, 0.3])
def test_after_half_a_second_the_velocity_is_right_within_five_percent_and_its_uncertainty_honest(dropped):
    """Of 100 targets of constant velocity, also where images are lost: normalised errors of position and
    velocity stay below the 99 % bound in at least 95."""
    velocity, errors, distances = np.array([200.0, -120.0]), [], []
    for seed in range(100):
        rng, motion = np.random.default_rng(seed), MotionFilter(0, Box.from_centre(300, 200, 50, 35))
        for i in range(1, 16):
            centre = np.array([300.0, 200.0]) + velocity * i / 30
            if rng.random() >= dropped:
                motion.predict(i * SECOND // 30)
                motion.update(Box.from_centre(*(centre + rng.uniform(-2, 2, 2)), 50, 35), 0.9)
        found = motion.at(SECOND // 2)
        errors.append(np.hypot(*(found.velocity - velocity)) / np.hypot(*velocity))
        off = np.array([found.box.cx, found.box.cy, *found.velocity]) - (*centre, *velocity)
        distances.append(off @ np.linalg.solve(found.covariance, off))
    assert np.mean(errors) < 0.05
    assert np.count_nonzero(np.array(distances) < 13.28) >= 95


@pytest.mark.parametrize("box", [Box(0, 0, 0, 0), Box(float("nan"), 0, 5, 5), Box(0, 0, 5, -5)])
def test_an_empty_or_non_finite_box_is_never_measured(box):
    motion = MotionFilter(0, Box(10, 10, 20, 20))
    with pytest.raises(ValueError, match="empty"):
        motion.update(box)


def test_the_past_cannot_be_predicted():
    motion = MotionFilter(5, Box(10, 10, 20, 20))
    with pytest.raises(ValueError, match="before the state"):
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
    assert motion.at(motion.stamp_ns).velocity[0] > 110
    hidden_since = motion.at(motion.stamp_ns + SECOND // 3).box
    assert hidden_since.cx > 300
