"""Looks at whole images with a frozen memory: windows, ranking, and the images that are looked at."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.clip import clip as demo_clip
from support.clip import write_sequence
from support.scripted_pipeline import ScriptedPipeline

from efftam_ros.core.geometry import Box
from efftam_ros.core.tracker import TargetTracker
from efftam_ros.core.types import Candidates, PipelineSpec
from training.reacquisition import whole_image as look
from training.reacquisition.footage import Footage, find_footage

SPEC = PipelineSpec(name="scripted", image_side=192)


def seen(presence_logit: float, *boxes: tuple[Box, float]) -> Candidates:
    edges = np.array([box.edges() for box, _ in boxes], np.float32)
    areas = np.array([box.area for box, _ in boxes], np.float32)
    return Candidates(edges, areas, np.array([iou for _, iou in boxes], np.float32), presence_logit)


@given(st.integers(50, 1500), st.integers(50, 1500), st.floats(20, 400))
def test_the_windows_cover_the_image_and_overlap_by_two_fifths(width, height, extent):
    views = look.windows_over((width, height), extent, 192)
    for axis, length in ((0, width), (1, height)):
        starts = sorted({(view.x, view.y)[axis] for view in views})
        assert starts[0] <= 1e-6
        assert starts[-1] + extent >= length - 1e-6
        assert np.diff(starts).max(initial=0.0) <= 0.6 * extent + 1e-6


def test_things_are_ranked_by_presence_times_predicted_iou_and_named_once():
    a, b, c = Box(0, 0, 40, 40), Box(100, 0, 40, 40), Box(200, 0, 40, 40)
    found = [seen(0.5, (a, 0.9)), seen(8.0, (b, 0.8)), seen(8.0, (b.moved(4, 0), 0.7)), seen(-0.1, (c, 1.0))]
    things = look.things_in(found)
    assert [thing.box for thing in things] == [b, a]
    assert things[1].score == pytest.approx(0.9 * 0.6225, abs=1e-3)
    assert (look.rank_of(a, things), look.rank_of(c, things)) == (2, None)


def test_a_small_target_may_be_hit_less_well():
    """The same share of the box, which for a target of 12 px is an error of two px per edge."""
    for size, rank in ((12, 1), (40, None)):
        target = Box(100, 100, size, size)
        things = [look.Thing(Box(100, 100, size * 0.6, size * 0.6), 1.0)]
        assert look.rank_of(target, things) == rank


@pytest.fixture(scope="module")
def clip(tmp_path_factory) -> Footage:
    folder: Path = tmp_path_factory.mktemp("clips") / "scene"
    write_sequence(folder, demo_clip(180, (256, 144)))
    (found,) = find_footage([folder.parent])
    return found


def test_the_memory_is_frozen_after_two_seconds_and_looks_follow_as_far_as_the_clip_goes(clip):
    frozen, later = look.looks_at(clip)
    assert frozen == round(2.0 * clip.fps)
    assert later == [frozen + round(s * clip.fps) for s in (3.0,) if frozen + s * clip.fps < len(clip)]
    assert len(later) == 1


def test_a_clip_is_looked_over_and_the_target_is_ranked_among_what_shows(clip):
    """A network that sees the target where it is, and a brighter thing in a corner."""
    frozen, (later,) = look.looks_at(clip)
    truth, other = clip.box(later), Box(2, 2, 20, 20)

    def script(i, view):
        shown = []
        for box, quality in ((truth if i > frozen else clip.box(i), 0.8), (other, 0.95)):
            x, y = view.x, view.y
            width, height = view.extent
            if x <= box.cx <= x + width and y <= box.cy <= y + height:
                shown.append((box, quality))
        return seen(6.0, *shown) if shown else seen(-6.0, (Box(0, 0, 1, 1), 0.1))

    pipeline = ScriptedPipeline(script, SPEC)
    (found,) = look.look_over(TargetTracker(pipeline), pipeline, clip, 5.0)
    assert (found.clip, found.later_s, found.rank, found.things) == (
        "scene",
        pytest.approx(3.0, abs=0.1),
        2,
        2,
    )
    assert found.windows >= 5
