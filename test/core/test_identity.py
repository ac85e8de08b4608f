"""Likeness over time: which templates count, when they are renewed, when a track is given up."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from support.scripted_pipeline import ScriptedPipeline

from efftam_ros.core.geometry import Box, View
from efftam_ros.core.identity import Identity
from efftam_ros.core.tracker import Tracker
from efftam_ros.core.types import Candidates, Frame, Image, PipelineSpec, Prompt, Track, TrackState
from simulation.null_pipeline import certain_candidate

SECOND = 1_000_000_000


def candidate(*likeness: float) -> Candidates:
    return replace(certain_candidate(Box(10, 10, 20, 20)), likeness=np.array([likeness], np.float32))


def given_up_after(likeness: float, fps: float, seconds: float = 5.0) -> float | None:
    """Time after which a track that was like the target for a second is given up, s."""
    identity = Identity(1)
    for index in range(round((1.0 + seconds) * fps)):
        time_s = index / fps
        identity.begin(round(time_s * SECOND))
        if identity.has_drifted(0.8 if time_s < 1.0 else likeness):
            return time_s - 1.0
    return None


def test_a_renewed_template_counts_once_it_is_old():
    identity = Identity(3)
    identity.begin(SECOND)
    assert identity.renew() == 1
    assert identity.likeness(candidate(0.3, 0.9, 0.9), 0) == pytest.approx(0.3)
    identity.begin(SECOND + SECOND // 2)
    assert identity.likeness(candidate(0.3, 0.7, 0.9), 0) == pytest.approx(0.7)
    assert identity.likeness(candidate(0.8, 0.7, 0.9), 0) == pytest.approx(0.8)


def test_templates_are_renewed_in_turn_twice_a_second():
    identity, taken = Identity(3), []
    for stamp in range(0, 2 * SECOND + 1, SECOND // 10):
        identity.begin(stamp)
        taken.append(identity.renew())
    assert [index for index in taken if index is not None] == [1, 2, 1, 2]
    assert all(taken[step] is not None for step in (5, 10, 15, 20))


def test_a_pipeline_with_one_template_renews_none():
    identity = Identity(1)
    identity.begin(9 * SECOND)
    assert identity.renew() is None


@pytest.mark.parametrize(
    "candidates", [candidate(math.nan, math.nan, math.nan), certain_candidate(Box(0, 0, 9, 9))]
)
def test_without_likeness_nothing_is_given_up(candidates: Candidates):
    identity = Identity(3)
    identity.begin(SECOND)
    likeness = identity.likeness(candidates, 0)
    assert math.isnan(likeness)
    assert not any(identity.has_drifted(likeness) for _ in range(1000))


@pytest.mark.parametrize("fps", [10.0, 30.0, 120.0])
def test_what_is_unlike_is_given_up_within_half_a_second_at_any_rate(fps: float):
    after = given_up_after(0.2, fps)
    assert after is not None
    assert 0.15 <= after <= 0.5


def test_a_target_that_turned_is_kept():
    assert given_up_after(0.36, 30.0) is None


def test_a_short_dip_is_no_drift():
    identity = Identity(1)
    for index in range(90):
        identity.begin(index * SECOND // 30)
        assert not identity.has_drifted(0.1 if index % 30 < 6 else 0.7)  # 0.2 s of each second


def spec(templates: int) -> PipelineSpec:
    return PipelineSpec(name="scripted", image_side=192, default_view="window", templates=templates)


def run(likeness: float, frames: int = 60) -> tuple[list[Track], ScriptedPipeline]:
    """A target that moves right by 4 px an image at 30 Hz; from image 30 on it has this likeness."""

    def seen(index: int, view: View) -> Candidates:
        found = certain_candidate(Box.from_centre(100 + 4 * index, 100, 30, 30))
        value = 0.9 if index < 30 else likeness
        return replace(found, likeness=np.full((1, 3), value, np.float32))

    pipeline = ScriptedPipeline(seen, spec(3))
    tracker, image = Tracker(pipeline), Image.from_array(np.zeros((240, 640, 3), np.uint8))
    tracks = []
    for index in range(frames):
        prompt = Prompt(box=Box.from_centre(100, 100, 30, 30)) if index == 0 else None
        tracks.append(tracker.step(Frame(image, index * SECOND // 30), prompt))
        tracker.commit()
        pipeline.plans = [*getattr(pipeline, "plans", []), tracker.memory.plan()]
    return tracks, pipeline


def test_a_followed_thing_that_stops_being_like_the_target_is_given_up_and_searched_for():
    tracks, pipeline = run(0.1)
    lost = next(index for index, track in enumerate(tracks) if track.state is TrackState.LOST)
    assert 30 < lost <= 30 + 15
    assert "not like the target any more (likeness 0.10)" in tracks[lost].reason
    assert tracks[lost].box is None
    assert tracks[lost + 1].windows
    # What was remembered since it became unlike left the memory, the frames before stay.
    before, after = pipeline.plans[29], pipeline.plans[lost]
    assert set(after.slots) <= set(before.slots)
    assert len(after.slots) > 1


def test_a_target_that_is_like_itself_is_followed():
    tracks, _ = run(0.5)
    assert {track.state for track in tracks[3:]} == {TrackState.TRACKING}
    assert tracks[-1].likeness == pytest.approx(0.5)


def test_the_prompted_box_is_the_first_template_and_confirmed_boxes_the_others():
    _, pipeline = run(0.9)
    taken = [call.arguments for call in pipeline.calls_of("take_template")]
    assert taken[0] == (0, Box.from_centre(100, 100, 30, 30))
    assert [index for index, _ in taken[1:]] == [1, 2, 1]
