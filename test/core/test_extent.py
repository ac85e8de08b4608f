"""What the operator drew around a small target corrects the boxes of its masks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.geometry import Box
from efftam_ros.core.policies.drawn_box import EXTENT_FRAMES, LARGEST_PX, MOST, DrawnExtent
from efftam_ros.core.tracker import Tracker
from efftam_ros.core.types import Candidates, Frame, Image, Motion, PipelineSpec, Prompt
from efftam_ros.tools.bench.scripted_pipeline import ScriptedPipeline

sides = st.floats(0.5, 200)


def test_a_target_drawn_twice_as_wide_as_its_mask_grows_by_two_to_the_power_of_0_7():
    extent = DrawnExtent(Box.from_centre(100, 100, 20, 12))
    extent.add(Box.from_centre(103, 98, 10, 12))
    grown = extent.grown(Box.from_centre(50, 60, 11, 12))
    assert grown.width == pytest.approx(11 * 1.6245, rel=1e-4)
    assert (grown.cx, grown.cy, grown.height) == pytest.approx((50, 60, 12))


def test_one_bad_mask_among_the_first_changes_nothing():
    extent = DrawnExtent(Box(0, 0, 16, 16))
    for size in (12, 12, 2, 12, 12):
        extent.add(Box(0, 0, size, size))
    assert extent.factors[0] == pytest.approx((16 / 12) ** 0.7)


def test_later_boxes_do_not_count_because_the_target_may_come_closer():
    extent = DrawnExtent(Box(0, 0, 16, 16))
    for _ in range(EXTENT_FRAMES):
        extent.add(Box(0, 0, 12, 12))
    before = extent.factors
    extent.add(Box(0, 0, 30, 30))
    assert extent.factors == before


@pytest.mark.parametrize("drawn", [None, Box(0, 0, LARGEST_PX, LARGEST_PX)])
def test_large_targets_and_those_without_a_drawn_box_keep_the_box_of_their_mask(drawn):
    extent = DrawnExtent(drawn)
    extent.add(Box(0, 0, 10, 10))
    assert extent.grown(Box(3, 4, 10, 11)) == Box(3, 4, 10, 11)


@settings(deadline=None)
@given(sides, sides, st.lists(st.tuples(sides, sides), max_size=8), sides, sides)
def test_a_box_never_shrinks_nor_more_than_doubles_and_keeps_its_centre(width, height, seen, w, h):
    extent = DrawnExtent(Box.from_centre(0, 0, width, height))
    for one in seen:
        extent.add(Box.from_centre(0, 0, *one))
    grown = extent.grown(Box.from_centre(40, 30, w, h))
    assert w * (1 - 1e-9) <= grown.width <= MOST * w * (1 + 1e-9)
    assert h * (1 - 1e-9) <= grown.height <= MOST * h * (1 + 1e-9)
    assert (grown.cx, grown.cy) == pytest.approx((40, 30))


def test_the_rate_of_the_size_is_that_of_the_box_it_comes_with():
    extent = DrawnExtent(Box.from_centre(100, 100, 20, 18))
    extent.add(Box.from_centre(100, 100, 10, 12))
    seen = Motion(0, Box.from_centre(50, 60, 11, 12), (3.0, 4.0), np.eye(4), (2.2, 3.6))
    grown = extent.grown_motion(seen)
    assert grown.box == extent.grown(seen.box)
    assert grown.size_rate[0] / grown.box.width == pytest.approx(0.2)
    assert grown.size_rate[1] / grown.box.height == pytest.approx(0.3)
    assert grown.velocity == (3.0, 4.0)


def follow(policy: str, frames: int = 10):
    """A target of 8 x 8 px that the operator drew 16 x 16, at 30 Hz; gone in the last frame."""

    def script(i, view):
        box = Box.from_centre(200 + i, 300, 8, 8)
        edges = np.array([box.edges(), (np.nan,) * 4, (np.nan,) * 4], np.float32)
        logit = -4.0 if i == frames - 1 else 5.0
        return Candidates(
            edges, np.array([64, 0, 0], np.float32), np.array([0.9, 0.1, 0.1], np.float32), logit
        )

    tracker = Tracker(
        ScriptedPipeline(script, PipelineSpec(name="scripted", image_side=1024)),
        TrackerConfig(policy=policy, view="full"),
    )
    picture = Image.from_array(np.zeros((1024, 1024, 3), np.uint8))
    prompt = Prompt(box=Box.from_centre(200, 300, 16, 16))
    tracks = [
        tracker.step(Frame(picture, 10**9 + i * 10**9 // 30), prompt if i == 0 else None)
        for i in range(frames)
    ]
    return tracks, tracker


def test_measured_predicted_and_coasted_boxes_are_all_of_the_target():
    tracks, tracker = follow("default")
    expected = 8 * 2**0.7
    for track in tracks[2:]:
        assert track.box.width == pytest.approx(expected, rel=0.1)
        assert track.motion.box.width == pytest.approx(expected, rel=0.1)
    assert not tracks[-1].measured
    assert tracker.predict(tracks[-1].stamp_ns).box == tracks[-1].motion.box


@pytest.mark.parametrize("policy", ["samurai", "efficienttam"])
def test_the_reference_policies_publish_the_boxes_of_their_masks(policy):
    tracks, _ = follow(policy)
    assert all(track.box.width == pytest.approx(8) for track in tracks[:-1])
