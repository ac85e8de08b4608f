"""The published box of a network that gives boxes at several levels: edges where those of the object are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.geometry import Box, View
from efftam_ros.core.policies.constants import EXTENT_FRAMES, MAX_OFFSET
from efftam_ros.core.policies.default import DefaultPolicy
from efftam_ros.core.policies.drawn_box import PlacedExtent, PromptedExtent, TargetExtent
from efftam_ros.core.types import BoxHead, Candidates, Motion, PipelineSpec

HEAD = BoxHead(0.5, 0.4)
SIZE = (640, 480)


def candidates(box: Box, outer: float = 4.0, inner: float = 4.0) -> Candidates:
    """One mask whose box at the outer level is larger by ``outer`` px at each side, at the inner smaller."""
    edges = np.array(box.edges())
    out = np.array([-1.0, -1.0, 1.0, 1.0])
    levels = np.stack([edges + outer * out, edges, edges - inner * out])[None].astype(np.float32)
    ones = np.ones(1, np.float32)
    return Candidates(edges[None].astype(np.float32), ones * box.area, ones, 5.0, levels)


def placed(head: BoxHead, drawn: Box, prompted: Box | None, mask: Box, size: tuple[int, int] = SIZE) -> Box:
    """The box after as many images with this mask as are compared."""
    one = PlacedExtent(head, drawn, prompted)
    found = candidates(mask)
    while not one.is_settled:
        one.add(found, 0)
    return one.shown(found, 0, mask, mask, size)[1]


def test_an_object_with_thin_parts_gets_the_edges_of_the_level_at_which_it_is_as_large_as_drawn() -> None:
    """A rotor that the mask leaves out: the drawn box is wider by what the outer level adds."""
    mask = Box.from_centre(300, 200, 40, 30)
    box = placed(BoxHead(1.0, 0.0), Box.from_centre(300, 200, 48, 30), mask, mask)
    assert (box.width, box.height) == pytest.approx((48, 30), abs=1e-3)
    half = placed(BoxHead(0.5, 0.0), Box.from_centre(300, 200, 48, 30), mask, mask)
    assert (half.width, half.height) == pytest.approx((44, 30), abs=1e-3)


def test_a_mask_that_is_larger_than_what_was_drawn_gets_smaller_but_never_beyond_the_levels() -> None:
    mask = Box.from_centre(300, 200, 40, 40)
    box = placed(BoxHead(1.0, 0.0), Box.from_centre(300, 200, 10, 36), mask, mask)
    assert box.width == pytest.approx(32)
    assert box.height == pytest.approx(36, abs=0.3)  # sizes are compared by their logarithms


def test_what_bars_hide_below_the_mask_is_added_where_it_was_drawn() -> None:
    """Of a dog behind a gate the mask holds the part above the bar: the box reaches down, and not up."""
    prompted = Box(100, 100, 60, 40)
    drawn = Box(100, 100, 60, 60)
    one = PlacedExtent(BoxHead(0.0, 1.0), drawn, prompted)
    mask = Box(200, 120, 30, 20)  # further away
    box = one.shown(candidates(mask), 0, mask, mask, SIZE)[1]
    assert box.edges() == pytest.approx((200, 120, 230, 150))


def test_a_prompted_mask_that_misses_most_of_the_target_moves_no_edge_further_than_a_size() -> None:
    one = PlacedExtent(BoxHead(0.0, 1.0), Box(0, 0, 400, 400), Box(200, 200, 10, 10))
    mask = Box(300, 300, 10, 10)
    box = one.shown(candidates(mask), 0, mask, mask, SIZE)[1]
    assert box.width == pytest.approx(10 * (1 + 2 * MAX_OFFSET))


@pytest.mark.parametrize("x", [0.0, 600.0])
def test_a_target_at_the_border_ends_exactly_there(x: float) -> None:
    mask = Box(x, 440, 40, 40)
    drawn = Box.from_edges(mask.x - 10, 420, mask.x1 + 10, 500).clipped(*SIZE)
    box = placed(BoxHead(1.0, 1.0), drawn, mask, mask)
    left, _, right, bottom = box.edges()
    assert bottom == 480
    assert left == 0 if x == 0 else right == 640


def test_shares_of_zero_leave_the_masks_box() -> None:
    mask = Box(100, 100, 30, 20)
    assert placed(BoxHead(0.0, 0.0), Box(90, 90, 60, 50), mask, mask).edges() == pytest.approx(mask.edges())


def test_a_target_whose_prompted_mask_is_empty_is_placed_by_the_levels_alone() -> None:
    mask = Box.from_centre(300, 200, 40, 30)
    box = placed(BoxHead(1.0, 1.0), Box.from_centre(300, 200, 48, 30), None, mask)
    assert (box.width, box.height) == pytest.approx((48, 30), abs=1e-3)


def test_a_mask_whose_logits_hardly_change_moves_no_edge_by_more_than_half_a_size() -> None:
    mask = Box.from_centre(300, 200, 40, 40)
    one = PlacedExtent(BoxHead(1.0, 0.0), Box.from_centre(300, 200, 400, 400), mask)
    flat = candidates(mask, outer=150.0)
    one.add(flat, 0)
    box = one.shown(flat, 0, mask, mask, SIZE)[1]
    assert (box.width, box.height) == pytest.approx((80, 80))


def test_a_network_without_a_head_and_a_target_without_a_box_have_none() -> None:
    drawn, prompted = Box(200, 200, 80, 60), Box(205, 202, 70, 55)
    plain = DefaultPolicy(PipelineSpec("plain", 192), TrackerConfig())
    with_head = DefaultPolicy(PipelineSpec("with head", 192, box_head=HEAD), TrackerConfig())
    assert isinstance(plain.extent(drawn, prompted, SIZE), PromptedExtent)
    assert isinstance(with_head.extent(drawn, prompted, SIZE), PlacedExtent)
    assert type(with_head.extent(None, prompted, SIZE)) is TargetExtent


def test_only_the_first_images_are_compared_because_the_target_may_come_closer() -> None:
    one = PlacedExtent(HEAD, Box(0, 0, 24, 24), None)
    for _ in range(EXTENT_FRAMES):
        one.add(candidates(Box(0, 0, 20, 20)), 0)
    before = one.cues.levels
    assert one.is_settled
    one.add(candidates(Box(0, 0, 90, 90)), 0)
    assert one.cues.levels == before
    assert before == pytest.approx((-0.5, -0.5), abs=0.06)


shifts = st.floats(-40, 40)


@given(shifts, shifts, st.floats(0.3, 3.0))
def test_a_scene_that_is_moved_and_scaled_moves_and_scales_the_box(
    dx: float, dy: float, scale: float
) -> None:
    drawn, prompted, mask = Box(100, 100, 44, 40), Box(102, 101, 36, 30), Box(110, 120, 38, 31)

    def moved(box: Box) -> Box:
        return Box(scale * box.x + dx, scale * box.y + dy, scale * box.width, scale * box.height)

    found = candidates(mask)
    view = View(-dx / scale, -dy / scale, scale, scale, 192)
    assert found.levels is not None
    far = Candidates.in_view(
        View(0.0, 0.0, 1.0, 1.0, 192),
        np.array([view.to_network(mask).edges()], np.float32),
        found.areas,
        found.ious,
        5.0,
        np.array(
            [[view.to_network(Box.from_edges(*edges)).edges() for edges in found.levels[0, ::2]]], np.float32
        ),
    )
    wide = (10_000, 10_000)
    one, other = PlacedExtent(HEAD, drawn, prompted), PlacedExtent(HEAD, moved(drawn), moved(prompted))
    one.add(found, 0)
    other.add(far, 0)
    here = one.shown(found, 0, mask, mask, wide)[1]
    there = other.shown(far, 0, moved(mask), moved(mask), wide)[1]
    inside = moved(here)
    assert there.x1 == pytest.approx(inside.x1, abs=1e-2)
    assert there.x == pytest.approx(max(inside.x, min(0.0, moved(mask).x)), abs=1e-2)
    assert there.y1 == pytest.approx(inside.y1, abs=1e-2)


def test_the_motions_box_is_placed_as_the_measured_one_and_its_size_grows_as_fast() -> None:
    mask, drawn = Box(100, 100, 40, 20), Box(96, 98, 48, 24)
    one = PlacedExtent(BoxHead(0.0, 1.0), drawn, mask)
    motion = Motion(0, Box(200, 200, 80, 40), (1.0, 2.0), np.eye(4), (8.0, 4.0))
    assert one.grown_motion(motion) is motion
    _, box = one.shown(candidates(mask), 0, mask, mask, SIZE)
    assert box.edges() == pytest.approx(drawn.edges())
    grown = one.grown_motion(motion)
    assert grown.box.edges() == pytest.approx((192, 196, 288, 244))
    assert grown.size_rate == pytest.approx((8.0 * 1.2, 4.0 * 1.2))
    assert grown.velocity == motion.velocity
