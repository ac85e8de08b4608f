"""Likeness over time: which templates count, and when they are renewed."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from efftam_ros.core.identity import Templates
from support.scripted_pipeline import ScriptedPipeline

from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.geometry import Box, View
from efftam_ros.core.tracker import Tracker
from efftam_ros.core.types import Candidates, Frame, Image, PipelineSpec, Prompt, Track, TrackState
from simulation.null_pipeline import certain_candidate

SECOND = 1_000_000_000
DRAWN = Box.from_centre(100, 100, 30, 30)


def candidate(*likeness: float) -> Candidates:
    return replace(certain_candidate(Box(10, 10, 20, 20)), likeness=np.array([likeness], np.float32))


def test_a_renewed_template_counts_once_it_is_old():
    templates = Templates(3)
    assert templates.renew(SECOND) == 1
    assert templates.likeness(candidate(0.3, 0.9, 0.9), 0, SECOND) == pytest.approx(0.3)
    assert templates.likeness(candidate(0.3, 0.7, 0.9), 0, 3 * SECOND // 2) == pytest.approx(0.7)
    assert templates.likeness(candidate(0.8, 0.7, 0.9), 0, 3 * SECOND // 2) == pytest.approx(0.8)


def test_templates_are_renewed_in_turn_twice_a_second():
    templates = Templates(3)
    taken = [templates.renew(stamp) for stamp in range(0, 2 * SECOND + 1, SECOND // 10)]
    assert [index for index in taken if index is not None] == [1, 2, 1, 2]
    assert all(taken[step] is not None for step in (5, 10, 15, 20))


def test_a_pipeline_with_one_template_renews_none():
    assert Templates(1).renew(9 * SECOND) is None


@pytest.mark.parametrize("candidates", [candidate(*[math.nan] * 3), certain_candidate(Box(0, 0, 9, 9))])
def test_likeness_that_is_not_computed_is_not_known(candidates: Candidates):
    assert math.isnan(Templates(3).likeness(candidates, 0, SECOND))


def run(
    policy: str = "default",
    templates: int = 3,
    absent_from: int = 60,
    later: dict[int, Box] | None = None,
    narrow_from: int = 60,
) -> tuple[list[Track], ScriptedPipeline]:
    """Two seconds at 30 Hz of a target that moves right by 4 px an image; likeness 0.9, 0.1, 0.1. ``later``:
    further selections by number of the image; ``narrow_from``: images are 480 px wide, not 640."""

    def seen(index: int, view: View) -> Candidates:
        found = certain_candidate(Box.from_centre(100 + 4 * index, 100, 30, 30))
        if index >= absent_from:
            found = replace(found, presence_logit=-10.0)
        return replace(found, likeness=np.array([[0.9, 0.1, 0.1]], np.float32))

    spec = PipelineSpec(
        name="scripted",
        image_side=192,
        default_view="window",
        templates=templates,
    )
    pipeline = ScriptedPipeline(seen, spec)
    tracker = Tracker(pipeline, TrackerConfig(policy=policy))
    wide, narrow = (Image.from_array(np.zeros((240, width, 3), np.uint8)) for width in (640, 480))
    selections = {0: DRAWN} | (later or {})
    tracks = []
    for index in range(60):
        prompt = Prompt(box=selections[index]) if index in selections else None
        image = wide if index < narrow_from else narrow
        tracks.append(tracker.step(Frame(image, index * SECOND // 30), prompt))
        tracker.commit()
    return tracks, pipeline


def test_an_answer_tells_the_likeness():
    tracks, _ = run()
    assert tracks[-1].likeness == pytest.approx(0.9)


def test_the_drawn_box_is_the_first_template_and_confirmed_boxes_the_others():
    _, pipeline = run()
    taken = [call.arguments for call in pipeline.calls_of("take_template")]
    assert taken[0] == (0, DRAWN)
    assert [index for index, _ in taken[1:]] == [1, 2, 1]
    assert all(box.cx > DRAWN.cx for _, box in taken[1:])


def test_a_further_selection_takes_the_first_template_anew_and_renews_the_others_from_then_on():
    """Also of the same target, to refine it."""
    redrawn = Box.from_centre(220, 100, 34, 30)
    _, pipeline = run(later={30: redrawn})
    taken = [call.arguments for call in pipeline.calls_of("take_template")]
    assert [index for index, _ in taken] == [0, 1, 0, 1]
    assert taken[2] == (0, redrawn)


def test_images_of_another_size_leave_the_first_template_as_it_is():
    tracks, pipeline = run(narrow_from=30)
    assert [call.arguments[0] for call in pipeline.calls_of("take_template")].count(0) == 1
    assert (tracks[-1].state, tracks[-1].likeness) == (TrackState.TRACKING, pytest.approx(0.9))


@pytest.mark.parametrize(("policy", "templates"), [("samurai", 3), ("efficienttam", 3), ("default", 0)])
def test_reference_policies_and_pipelines_without_likeness_take_no_template(policy: str, templates: int):
    tracks, pipeline = run(policy, templates)
    assert math.isnan(tracks[-1].likeness)
    assert not pipeline.calls_of("take_template")
