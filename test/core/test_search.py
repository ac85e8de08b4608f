"""The search for a lost target: where it may be, which windows come when, what detections add up to."""

from __future__ import annotations

import math
import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from efftam_ros.core.geometry import Box, View
from efftam_ros.core.motion import MotionFilter, relative_depth
from efftam_ros.core.policies.constants import FADING_S, FORGET_S
from efftam_ros.core.policies.search import (
    CandidateTrack,
    Detection,
    PositionPrior,
    Reacquisition,
    Sighting,
    Sweep,
)

SIZE = (1280, 720)
SIDE = 192
NS = 1_000_000_000
TARGET = Box.from_centre(400, 300, 30, 30)
EXTENT = 150.0  # five sizes
PAN = np.array([[1.0, 0, 200], [0, 1, 0], [0, 0, 1]])
BEHIND = np.array([[1.0, 0, 0], [0, 1, 0], [-1 / 200, 0, 1]])  # what lies more than 200 px to the right


def prior(gone_s: float = 0.0, velocity=(0.0, 0.0)) -> PositionPrior:
    one = PositionPrior(0, TARGET, velocity)
    one.advance(round(gone_s * NS))
    return one


def missed(target: Box, is_camera_known: bool = False) -> Reacquisition:
    """The search for a target at rest that is missed since stamp 0."""
    search = Reacquisition()
    search.is_camera_known, search.last_seen = is_camera_known, Sighting(0, target, (0.0, 0.0))
    search.begin(SIZE, MotionFilter(0, target))
    return search


def stretched(box: Box, across: float, down: float) -> Box:
    return Box.from_centre(box.cx, box.cy, across * box.width, down * box.height)


def middle(view: View) -> tuple[float, float]:
    return view.x + view.extent[0] / 2, view.y + view.extent[1] / 2


def at(one: PositionPrior, x: float, y: float) -> float:
    return float(one.relative_log_density(np.array([[x, y]]), SIZE)[0])


# ---- prior -------------------------------------------------------------------------------------------------


@given(st.sampled_from([30.0, 0.5]), st.floats(0, 30), st.floats(-600, 600), st.floats(-600, 600))
def test_it_is_expected_on_the_ground_where_it_is_in_the_image_or_anywhere(size, gone_s, dx, dy):
    """With 60, 20 and 20 %, relative to the likelier of the two middles. Sizes below 1 px count as 1."""
    one = PositionPrior(0, Box.from_centre(400, 300, size, size), (20.0, -10.0))
    one.follow_camera(np.array([[1.5, 0, 40], [0, 1.5, -90], [0, 0, 1]]))
    one.advance(round(gone_s * NS))

    def density(x: float, y: float) -> float:
        total = 0.2 / (SIZE[0] * SIZE[1])
        for weight, middle, growth in ((0.6, one.ground, 1.2), (0.2, (400, 300), 2.0)):
            spread = 1.5 * max(size, 1.0) * (0.7 + growth * gone_s)
            square = math.dist((x, y), middle) ** 2 / spread**2
            total += weight * math.exp(-square / 2) / (2 * math.pi * spread**2)
        return total

    peak = max(density(*one.ground), density(400, 300))
    middle = (one.ground[0] + 400) / 2, (one.ground[1] + 300) / 2  # may be likelier than either
    for x, y in ((400, 300), one.ground, middle, (400 + dx, 300 + dy)):
        assert at(one, x, y) == pytest.approx(min(0.0, math.log(density(x, y) / peak)), abs=1e-6)


@given(
    *(st.floats(-300, 300), st.floats(-200, 200), st.floats(-math.pi, math.pi), st.floats(0.5, 2.0)),
    *(st.floats(-3e-3, 3e-3), st.floats(-3e-3, 3e-3)),
    *(st.sampled_from([30.0, 0.5]), st.floats(0, 5) | st.just(-4000.0), st.floats(0, 5)),
)
def test_a_recognised_place_is_where_the_steps_of_the_camera_would_have_led(
    dx, dy, roll, zoom, tilt_x, tilt_y, size, gone_s, later_s
):
    """Also as it moves on: its velocity turns and grows with the image, as its size does. It may come to lie
    behind the camera; the steps that were told may have been wrong, and stamps may have gone back."""
    c, s = zoom * math.cos(roll), zoom * math.sin(roll)
    moved = np.array([[c, -s, dx], [s, c, dy], [tilt_x, tilt_y, 1.0]])
    assume(abs(relative_depth(moved, TARGET.cx, TARGET.cy)) > 0.05)
    target, velocity = Box.from_centre(TARGET.cx, TARGET.cy, size, size), (20.0, 10.0)
    told, untold = PositionPrior(0, target, velocity), PositionPrior(0, target, velocity)
    told.follow_camera(moved)
    untold.follow_camera(np.array([[1.0, 0, 0], [0, 1, 0], [0, -0.1, 1]]))
    for one in (told, untold):
        for share in (0.5, 1.0):
            one.advance(round(share * gone_s * NS))
    untold.recognise_place(moved, Sighting(0, target, velocity))
    for passed_s in (gone_s, gone_s + later_s):
        for one in (told, untold):
            one.advance(round(passed_s * NS))
        assert (untold.ground is None) == (told.ground is None)
        assert untold.ground is None or untold.ground == pytest.approx(told.ground, rel=1e-5, abs=1e-5)
        assert untold.size == pytest.approx(told.size)


def test_what_came_behind_the_camera_has_no_place_in_the_image_until_it_turns_back():
    one = prior()
    one.follow_camera(BEHIND)
    assert one.ground is None
    assert at(one, 400, 300) == pytest.approx(0, abs=0.1)  # if the image stays, and that alone
    assert at(one, -400, -300) < -5
    one.follow_camera(np.linalg.inv(BEHIND))
    assert one.ground == pytest.approx((400, 300))
    assert one.size == pytest.approx(30)


@pytest.mark.parametrize(("tilt", "left"), [((0, -1 / 390), 1), ((-1 / 390, 0), 0)])
def test_a_track_that_comes_behind_the_camera_is_dropped(tilt, left):
    """At (400, 300): before the camera is what lies less than 390 px down, or to the right."""
    searching = Searching()
    searching.show((TARGET, 1.5))
    searching.loss.follow_camera(np.array([[1, 0, 0], [0, 1, 0], [*tilt, 1.0]]))
    assert len(searching.loss.tracks) == left


# ---- sweep -------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.sampled_from([(1280, 720), (640, 360), (320, 240), (1920, 1080)]), st.floats(60, 900))
def test_the_windows_cover_the_image_and_a_target_at_any_place_is_whole_in_one(size, extent):
    sweep = Sweep(size, extent, SIDE)
    views = sweep.next(len(sweep), None)
    half = extent / 5 / 2  # of the target
    for x in np.linspace(half, size[0] - half, 23):
        for y in np.linspace(half, size[1] - half, 19):
            assert any(
                view.x <= x - half + 1e-6
                and x + half <= view.x + view.extent[0] + 1e-6
                and view.y <= y - half + 1e-6
                and y + half <= view.y + view.extent[1] + 1e-6
                for view in views
            ), (x, y)


def test_a_tiny_target_in_a_huge_image_is_searched_for_in_64_windows_along_its_longer_side():
    sweep = Sweep((8192, 2048), 5.0, SIDE)
    assert len(sweep) == 64 * 16
    lefts, width = sorted({view.x for view in sweep.next(len(sweep), None)}), sweep.next(1, None)[0].extent[0]
    assert width == pytest.approx(8192 / 64 / 0.8)
    assert lefts[0] == pytest.approx(0)
    assert lefts[-1] + width == pytest.approx(8192)
    assert np.diff(lefts).max() <= 0.8 * width


def test_a_window_far_larger_than_the_image_is_one_around_its_middle():
    (view,) = Sweep((320, 240), 2000.0, SIDE).next(9, None)
    assert middle(view) == pytest.approx((160, 120))


def test_no_window_comes_again_before_all_others_came_as_often():
    sweep = Sweep(SIZE, EXTENT, SIDE)
    seen = Counter(middle(sweep.next(1, prior(2.0))[0]) for _ in range(3 * len(sweep)))
    assert list(seen.values()) == [3] * len(sweep)


@pytest.mark.parametrize(("factor", "is_anew"), [(0.6, True), (0.8, False), (1.2, False), (1.4, True)])
def test_the_image_is_divided_anew_for_a_window_of_clearly_another_size(factor, is_anew):
    search = missed(TARGET)
    first, second = (
        search.windows(stamp, SIZE, extent, SIDE, 6)[-1].extent[0]
        for stamp, extent in ((NS // 10, EXTENT), (NS // 5, factor * EXTENT))
    )
    assert second == pytest.approx(first * (factor if is_anew else 1.0))


def test_the_first_windows_are_where_the_target_is_expected():
    assert math.dist(middle(Sweep(SIZE, EXTENT, SIDE).next(1, prior(0.5))[0]), (400, 300)) < EXTENT


@pytest.mark.parametrize(("x", "y"), [(3, 4), (1277, 4), (3, 716), (1277, 716)])
def test_a_window_at_the_border_lies_inside_the_image(x, y):
    search = missed(Box.from_centre(x, y, 30, 30))
    expected = search.windows(NS // 30, SIZE, EXTENT, SIDE, 6)[0]
    width, height = expected.extent
    assert (width, height) == pytest.approx((1.4 * EXTENT, 1.4 * EXTENT))
    assert expected.x == pytest.approx(0 if x < 640 else 1280 - width)
    assert expected.y == pytest.approx(0 if y < 360 else 720 - height)


@pytest.mark.parametrize(("windows", "frames"), [(6, 12), (16, 4)])
def test_a_1280_image_is_searched_for_a_target_of_30_px_within_so_many_frames(windows, frames):
    """Nothing like the target shows: all windows but one, and the frame's own, belong to the sweep."""
    loss = missed(TARGET)
    shown = set()
    for i in range(1, frames + 1):
        views = loss.windows(i * NS // 10, SIZE, EXTENT, SIDE, windows)
        assert len(views) == windows
        loss.observe(i * NS // 10, [(view, []) for view in views])
        shown |= {(view.x, view.y) for view in (*views[1:], loss.view(SIZE, EXTENT, SIDE))}
    assert len(shown) == len(Sweep(SIZE, EXTENT, SIDE))


# ---- candidate tracks --------------------------------------------------------------------------------------


def window(box: Box) -> View:
    return View.window(box.cx, box.cy, EXTENT, SIDE)


class Searching:
    """A loss of 1 s, shown detections every tenth of a second."""

    def __init__(self) -> None:
        self.loss = missed(TARGET)
        self.stamp = NS

    def show(self, *boxes: tuple[Box, float | None]) -> bool:
        """Show boxes with the LLR of their detections (None: not seen there); returns whether the best
        track is accepted."""
        self.stamp += NS // 10
        shown = [(window(box), [] if odds is None else [Detection(box, 0.9, odds)]) for box, odds in boxes]
        self.loss.observe(self.stamp, shown)
        return self.loss.accepted is not None

    def velocity(self) -> tuple[float, float]:
        """Of the best track, px/s."""
        motion = self.loss.tracks[0].motion
        return motion.at(motion.stamp_ns).velocity


NEAR, FAR, OTHER = TARGET.moved(10, 0), TARGET.moved(700, 300), TARGET.moved(300, 0)


@given(st.lists(st.lists(st.sampled_from([1.5, 0.5, 0.0, -1.0]), max_size=3), max_size=8))
@example([[1.5], [], [1.5]])
@example([[-1.0, 1.5], [0.5, 1.5, -1.0]])
def test_of_each_image_the_best_detection_counts_and_good_ones_in_a_row(images):
    """65 % of what was known before, and a miss against it; at least -2."""
    track, evidence, row = CandidateTrack(NS, NEAR), 0.0, 0
    for number, llrs in enumerate(images, 2):
        for llr in llrs:
            track.detect(number * NS, Detection(NEAR, 0.9, llr))
        if not llrs:
            track.miss(number * NS)
        evidence = max(0.65 * evidence + max(llrs, default=-1.5), -2.0)
        row = row + 1 if max(llrs, default=-1.5) > 0 else 0
        assert (track.llr, track.good) == (pytest.approx(evidence), row)


@pytest.mark.parametrize(
    ("box", "is_same"),
    [
        *((NEAR.moved(23, 0), True), (NEAR.moved(0, -25), False)),  # 0.8 of the larger size
        *((stretched(NEAR, 2, 2).moved(47, 0), True), (stretched(NEAR, 2, 2).moved(0, 49), False)),
        *((stretched(NEAR, 4, 0.5).moved(51, 0), True), (stretched(NEAR, 4, 0.5).moved(52, 0), False)),
    ],
)
def test_what_overlaps_a_place_or_is_beside_it_belongs_to_it(box, is_same):
    searching = Searching()
    searching.show((NEAR, 0.5))
    searching.show((box, 0.5))
    assert len(searching.loss.tracks) == (1 if is_same else 2)


@pytest.mark.parametrize(("shift", "nearest"), [(17, 0), (23, 40)])
def test_a_detection_belongs_to_the_nearest_place(shift, nearest):
    searching = Searching()
    searching.show((TARGET, 0.5), (TARGET.moved(40, 0), 1.0))
    searching.show((TARGET.moved(shift, 0), 1.5))
    best, other = searching.loss.tracks
    assert (best.seen_ns, other.seen_ns) == (searching.stamp, searching.stamp - NS // 10)
    assert other.box.x == pytest.approx(TARGET.x + 40 - nearest)


def test_of_many_places_the_best_twelve_are_kept():
    searching = Searching()
    searching.show(*((TARGET.moved(60 * i, 300), 1.0 + 0.5 * i) for i in range(15)))
    assert [round(place.llr, 3) for place in searching.loss.tracks] == [
        1.0 + 0.5 * i for i in range(14, 2, -1)
    ]


@pytest.mark.parametrize(("dx", "dy"), [(59, 0), (0, -59), (61, 0), (-61, 0), (0, 61), (0, -61)])
def test_a_place_must_lie_well_inside_a_window_to_be_missed_there(dx, dy):
    """Within the inner 80 % of 150 px. What is missed accelerates three times as much."""
    searching, is_missed = Searching(), max(abs(dx), abs(dy)) < 60
    searching.show((NEAR, 1.5))
    searching.show((NEAR.moved(dx, dy), None))
    (track,) = searching.loss.tracks
    assert (track.missed_ns == searching.stamp) is is_missed
    now, later = (track.motion.at(searching.stamp + passed_ns).covariance[2, 2] for passed_ns in (0, NS))
    assert later - now == pytest.approx((9 if is_missed else 1) * TARGET.size**2)


def test_the_windows_and_the_frames_own_view_of_an_image_are_told_one_after_the_other():
    """What is seen again in the view is the better of the two, at the same place; what was missed in a window
    is not missed again."""
    searching = Searching()
    searching.show((NEAR, 1.5), (FAR, 1.5))
    searching.show((NEAR, 1.5), (FAR, None))
    again = Detection(NEAR.moved(9, 0), 0.9, 2.0)
    searching.loss.observe(searching.stamp, [(window(NEAR), [again]), (window(FAR), [])])
    near, far = searching.loss.tracks
    assert (near.good, near.llr, near.box.x) == (2, pytest.approx(0.65 * 1.5 + 2.0), pytest.approx(NEAR.x))
    assert (far.good, far.llr) == (0, pytest.approx(0.65 * 1.5 - 1.5))


@pytest.mark.parametrize(
    ("shown", "accepted"),
    [
        ([(NEAR, 10.0)], "-"),  # one detection is never enough
        ([(NEAR, 1.5)] * 2, "-+"),
        ([(NEAR, -5.0)] * 30 + [(NEAR, 1.8)] * 2, "-" * 31 + "+"),  # what hid it does not bar its place
        ([(NEAR, 1.5), (NEAR, None), (NEAR, 1.5)], "---"),  # good detections in a row count
        ([(FAR, 2.2)] * 4, "----"),  # far away more are needed
    ],
)
def test_so_many_detections_in_a_row_are_needed(shown, accepted):
    searching = Searching()
    assert "".join("-+"[searching.show(one)] for one in shown) == accepted


@pytest.mark.parametrize("budget", [1, 2, 3])
def test_promising_places_leave_a_window_of_several_to_the_sweep(budget: int):
    searching, last = Searching(), set()
    for _ in range(4):
        searching.show((NEAR, 1.5), (FAR, 1.2))
        views = searching.loss.windows(searching.stamp, SIZE, EXTENT, SIDE, budget)
        assert len(views) == budget
        last.add((views[-1].x, views[-1].y))
    assert len(last) == (1 if budget == 1 else 4)


def test_the_search_tells_how_many_windows_and_places_there_were():
    searching = Searching()
    for _ in range(2):
        searching.loss.windows(searching.stamp, SIZE, EXTENT, SIDE, 3)
    searching.show((NEAR, -1.1))
    searching.loss.view(SIZE, EXTENT, SIDE)  # where nothing likely is seen, of the sweep, too
    searching.show((NEAR, 1.5), (FAR, 1.2))
    searching.loss.view(SIZE, EXTENT, SIDE)
    assert re.findall(r"\w+: \d+", searching.loss.summary) == ["searched: 7", "places: 2"]


def test_far_away_it_is_taken_in_the_end():
    searching = Searching()
    assert [searching.show((FAR, 2.2)) for _ in range(20)][-1]


@pytest.mark.parametrize(
    ("better", "other", "is_taken"), [(2.0, 0.5, True), (2.0, 1.2, False), (2.2, 2.2, False)]
)
def test_of_two_the_better_one_is_taken_only_with_a_clear_lead(better, other, is_taken):
    """In places that are equally likely, by evidence alone: e^3 to 1. A third one is hardly seen."""
    searching = Searching()
    shown = (TARGET.moved(-60, 0), better), (TARGET.moved(60, 0), other), (TARGET.moved(0, 60), -0.5)
    assert any(searching.show(*shown) for _ in range(20)) is is_taken


def test_the_best_place_is_seen_by_the_frames_own_view_and_its_rival_by_a_window():
    """The rival's where it will be."""
    searching, rival = Searching(), TARGET.moved(500, 200)
    for shift in (0, 20):
        searching.show((NEAR, 1.5), (rival.moved(shift, 0), 1.2))
    own = searching.loss.view(SIZE, EXTENT, SIDE)
    _, second, *_ = searching.loss.windows(searching.stamp + NS // 10, SIZE, EXTENT, SIDE, 6)
    for view, place in ((own, NEAR), (second, rival.moved(40, 0))):
        assert middle(view) == pytest.approx((place.cx, place.cy), abs=6)
        assert view.extent == pytest.approx((EXTENT, EXTENT))


def test_several_windows_of_one_image_are_one_detection_by_the_best():
    searching = Searching()
    assert not searching.show((NEAR, 0.5), (NEAR, 1.5), (NEAR.moved(1, 0), 1.2))
    assert [place.llr for place in searching.loss.tracks] == [1.5]


def test_a_target_seen_where_something_else_was_seen_before_starts_its_motion_anew():
    """What hid it does not tell how it moves: the box is that of the detection, not one between the two."""
    searching = Searching()
    for shift in (-10, 0):
        searching.show((NEAR.moved(shift, 0), -1.0))
    assert searching.velocity()[0] > 10
    searching.show((NEAR.moved(15, 0), 1.5))
    assert searching.loss.tracks[0].box.xywh() == pytest.approx(NEAR.moved(15, 0).xywh())
    searching.show((NEAR.moved(25, 0), 1.5))
    assert searching.velocity()[0] > 10


def test_a_doubtful_detection_moves_a_place_less():
    moved = []
    for quality in (0.9, 0.2):
        track = CandidateTrack(0, NEAR)
        for stamp_ns, shift in ((0, 0), (NS // 10, 12)):
            track.detect(stamp_ns, Detection(NEAR.moved(shift, 0), quality, 1.0))
        moved.append(track.box.x - NEAR.x)
    assert 0 < moved[1] < moved[0]


def test_a_place_without_detections_is_forgotten():
    searching = Searching()
    searching.show((FAR, 0.5))
    for _ in range(round(FORGET_S * 10) + 1):
        searching.show((OTHER, 0.1))
    assert len(searching.loss.tracks) == 1


def test_places_move_with_the_camera():
    searching = Searching()
    searching.show((NEAR, 1.5))
    searching.loss.follow_camera(PAN)
    assert searching.show((NEAR.moved(200, 0), 1.5))


# ---- since when a place has been in sight ------------------------------------------------------------------

BESIDE = TARGET.moved(150, 0)  # five sizes off


class Watching(Searching):
    """As `Searching`, from 0.1 s after the loss on, by a camera that rests. ``unknown_at``: the image to
    which its motion is not known, 0: that of the loss."""

    def __init__(self, unknown_at: int | None = None) -> None:
        super().__init__()
        self.loss = missed(TARGET, is_camera_known=unknown_at != 0)
        self.stamp = 0
        self._unknown_ns = None if unknown_at is None else unknown_at * NS // 10

    def show(self, *boxes: tuple[Box, float | None]) -> bool:
        known = self.stamp + NS // 10 != self._unknown_ns
        self.loss.follow_camera(np.eye(3) if known else None)
        return super().show(*boxes)

    def images_until_taken(self, box: Box) -> int:
        return next(i for i in range(1, 100) if self.show((box, 1.8)))


def test_what_was_in_sight_elsewhere_when_the_target_vanished_is_not_taken_when_the_prior_spreads_to_it():
    """A distractor: five sizes off from the first image on. What comes there 2 s later may be the target, and
    what was gone in between may be another thing. If nothing else is found it is taken in the end."""
    late, gone = Watching(), Watching()
    for _ in range(20):
        late.show()
        gone.show((BESIDE, 1.8))
    gone.show((BESIDE, None))
    assert late.images_until_taken(BESIDE) <= 3
    assert gone.images_until_taken(BESIDE) <= 4
    assert 20 + 10 < Watching().images_until_taken(BESIDE) < 60
    assert Watching().images_until_taken(NEAR) == 2  # where the target can be from the first image on


@given(st.lists(st.floats(-20, 0), min_size=1, max_size=20))
def test_no_place_is_weighed_higher_than_by_the_present_prior(log_odds):
    """What moves away from where the target is expected keeps nothing of having been there."""
    thing = CandidateTrack(0, TARGET)
    for i, now in enumerate(log_odds):
        thing.weigh(i * NS // 10, now, is_motion_known=True)
        assert thing.prior <= now + 1e-9


@pytest.mark.parametrize("unknown_at", [0, 1, 3])
def test_after_a_motion_of_the_camera_that_is_not_known_the_target_may_have_seemed_elsewhere(unknown_at):
    never_known = Searching()
    never_known.stamp = 0
    expected = next(i for i in range(1, 60) if never_known.show((BESIDE, 1.8)))
    assert Watching(unknown_at).images_until_taken(BESIDE) == expected


def test_a_recognised_place_makes_up_for_a_motion_that_is_not_known_from_then_on():
    """What was in sight before the jerk counts as if it had come into sight after it."""
    late, early = Watching(unknown_at=10), Watching(unknown_at=10)
    for _ in range(10):
        late.show()
        early.show((BESIDE, -1.8))
    for watching in (late, early):
        watching.loss.recognise_place(np.eye(3), watching.stamp)
        watching.show((BESIDE, 1.8))
    for _ in range(5):
        assert early.loss.tracks[0].prior == pytest.approx(late.loss.tracks[0].prior)
        late.show((BESIDE, 1.8))
        early.show((BESIDE, 1.8))
    watching = Watching(unknown_at=1)
    watching.show()
    watching.loss.recognise_place(np.eye(3), watching.stamp)
    assert watching.images_until_taken(BESIDE) > 20


@pytest.mark.parametrize("unknown_at", [None, 1, 3])
def test_a_recognised_place_that_the_prior_had_wrong_speaks_for_what_is_seen_there(unknown_at):
    """The prior was five sizes off: that the target was in sight beside it is nothing against it."""
    watching = Watching(unknown_at)
    for _ in range(3):
        watching.show((BESIDE, 1.8))
    there = np.array([[1.0, 0, 150], [0, 1, 0], [0, 0, 1]])
    watching.loss.recognise_place(there, watching.stamp)
    assert watching.images_until_taken(BESIDE) == 1


def test_a_recognised_place_that_confirms_the_prior_changes_nothing():
    watching = Watching()
    for _ in range(20):
        assert not watching.show((BESIDE, 1.8))
        watching.loss.recognise_place(np.eye(3), watching.stamp)
    assert watching.images_until_taken(BESIDE) > 10


def test_the_kept_image_is_compared_every_90_ms_and_at_once_after_stamps_that_went_back():
    search, asked = Reacquisition(), (0, 89, 90, 179, 180, 100, 189, 190)
    compared = [ms for ms in asked if search.compares(ms * 1_000_000)]
    assert compared == [0, 90, 180, 100, 190]


def test_a_recognised_place_counts_for_150_ms_and_only_of_a_target_that_was_seen():
    """It goes on moving from there, slower and slower."""

    def place(passed_s: float) -> tuple[float, float]:
        return pytest.approx((600 + 100 * FADING_S * (1 - math.exp(-passed_s / FADING_S)), 300))

    search = missed(TARGET)
    search.last_seen = Sighting(0, TARGET, (100.0, 0.0))
    assert search.expected(NS) is None
    search.recognise_place(PAN, NS)
    expected = [search.expected(NS + ms * 1_000_000) for ms in (-1, 0, 150, 151)]
    assert expected == [None, place(1.0), place(1.15), None]
    assert middle(search.windows(3 * NS // 2, SIZE, EXTENT, SIDE, 2)[0]) == place(1.5)
    search.recognise_place(BEHIND, 2 * NS)
    assert search.expected(2 * NS) is None
    views = search.windows(2 * NS, SIZE, EXTENT, SIDE, 2)
    assert [view.extent[0] < 1.3 * EXTENT for view in views] == [True, True]  # both of the sweep
    search.recognise_place(PAN, 3 * NS)
    assert search.expected(3 * NS) == place(3.0)
    search.last_seen = None
    search.recognise_place(PAN, 4 * NS)
    assert search.expected(4 * NS) is None


def test_the_prior_starts_once_with_the_first_motion_that_is_known():
    search = Reacquisition()
    search.last_seen = Sighting(0, TARGET, (0.0, 0.0))
    for motion in (None, MotionFilter(0, TARGET), MotionFilter(0, FAR)):
        search.begin(SIZE, motion)
        search.recognise_place(np.eye(3), NS)
        assert (search.prior is None) == (motion is None)
    # The second motion's place is as improbable as any other.
    assert at(search.prior, FAR.cx, FAR.cy) == pytest.approx(at(search.prior, 900, 100))


def test_in_images_of_another_size_the_search_starts_anew_from_where_the_target_was_seen():
    search = missed(TARGET)
    search.last_seen = Sighting(0, TARGET, (20.0, 10.0))
    search.resize(np.diag([2.0, 0.5, 1.0]))
    assert (search.is_running, search.prior) == (False, None)
    assert search.last_seen.box.xywh() == pytest.approx(Box.from_centre(800, 150, 30, 30).xywh())
    assert search.last_seen.velocity == pytest.approx((40, 5))
    Reacquisition().resize(np.eye(3))  # of one that was not seen yet


def test_a_search_that_has_ended_leaves_nothing_to_the_next_one():
    """Not the places, nor what was recognised; only what belongs to the images stays."""
    watching = Watching(unknown_at=1)
    watching.loss.windows(watching.stamp, SIZE, EXTENT, SIDE, 6)
    for _ in range(3):
        watching.show((BESIDE, 1.8))
    watching.loss.recognise_place(np.eye(3), watching.stamp)
    assert watching.loss.expected(watching.stamp) is not None
    watching.loss.stop()
    fresh = vars(Reacquisition())
    stays = {"last_seen", "is_camera_known", "_compared_ns"}
    assert {name: vars(watching.loss)[name] for name in fresh.keys() - stays} == {
        name: fresh[name] for name in fresh.keys() - stays
    }
