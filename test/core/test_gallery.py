"""What is known of a target's looks, and the verdict on what is followed and what comes back."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import count

import numpy as np
import pytest
from support.scripted_looks import ScriptedLooks, vector
from support.scripted_pipeline import ScriptedPipeline
from support.scripted_target import one_target

from efftam_ros.core.gallery import ASKED_NS, DOUBT_NS, LEAST, MOST, SAME, SURE, Gallery, Looks
from efftam_ros.core.geometry import Box, View
from efftam_ros.core.reasons import ReasonCode
from efftam_ros.core.types import Candidates, Frame, Image, PipelineSpec, Prompt, Track, TrackState
from simulation.null_pipeline import certain_candidate

SECOND = 1_000_000_000
USUAL = (1.0 + SAME) / 2  # looks that are not learnt, so that scripted cosines stay what they are
UNLIKE = LEAST - 0.2
SPEC = PipelineSpec(name="scripted", image_side=192, default_view="window")
PRESENT = Image.from_array(np.zeros((240, 640, 3), np.uint8))
DRAWN = Box.from_centre(100, 100, 30, 30)


def gallery(usual: float = USUAL, looks: int = 5, learns: bool = True) -> Gallery:
    """Of a target that was selected, and looked at once more and then this often."""
    found = Gallery()
    found.add_prompt(vector(1.0), 0)
    return at(found, *[1.0] * bool(looks), *[usual] * looks, learns=learns)


def at(found: Gallery, *cosines: float, learns: bool = True) -> Gallery:
    """After further looks, `ASKED_NS` apart."""
    for cosine in cosines:
        assert found._asked_ns is not None
        stamp_ns = found._asked_ns + ASKED_NS
        found.look(vector(cosine), stamp_ns, learns)
    return found


def test_the_likeness_is_the_best_cosine_with_what_is_kept():
    found = gallery(looks=0)
    assert found.likeness(vector(0.7)) == pytest.approx(0.7)
    assert math.isnan(Gallery().likeness(vector(0.7)))
    assert math.isnan(found.likeness(vector(math.nan)))


DOUBTFUL = DOUBT_NS // ASKED_NS + 1  # looks until somebody else is told


def test_a_white_shirt_in_place_of_a_black_one_is_another_individual_once_every_look_says_so_for_a_while():
    found = gallery()
    for _ in range(DOUBTFUL - 1):
        assert not at(found, UNLIKE).is_other
        assert found.is_doubted
    assert at(found, UNLIKE).is_other
    assert found.likeness_now == pytest.approx(UNLIKE)
    assert not at(found, USUAL).is_other


def test_who_walks_past_in_front_of_the_target_decides_nothing():
    found = at(gallery(), *[UNLIKE] * (DOUBTFUL - 1), LEAST + 0.01, *[UNLIKE] * (DOUBTFUL - 1))
    assert not found.is_other
    assert found.is_doubted
    assert not at(found, USUAL).is_doubted


def test_stamps_that_go_back_start_a_doubt_anew_and_the_target_is_looked_at_at_once():
    assert gallery().is_due(-1)
    assert not gallery(looks=0).is_due(0)
    found = at(gallery(), *[UNLIKE] * (DOUBTFUL - 1))
    found.look(vector(UNLIKE), 0, learns=True)
    assert not at(found, *[UNLIKE] * (DOUBTFUL - 2)).is_other
    assert at(found, UNLIKE).is_other


@pytest.mark.parametrize("cosine", [UNLIKE, (LEAST + SURE) / 2])
def test_what_is_seen_in_doubt_is_not_learnt(cosine: float):
    """Else everything would soon be like the target."""
    found = at(gallery(), *[cosine] * 30)
    assert found.usual == pytest.approx(USUAL)
    assert found.likeness(vector(cosine)) == pytest.approx(cosine)


NEAR = (SURE + SAME) / 2


def test_what_was_seen_shortly_before_a_doubt_is_not_learnt():
    """A passer-by who takes the target's place is beside it in the box first."""
    found = at(gallery(), NEAR, *[USUAL] * (DOUBTFUL - 2), UNLIKE, *[USUAL] * 10)
    assert found.likeness(vector(NEAR)) == pytest.approx(NEAR)
    for then in (USUAL, LEAST + 0.01):
        assert at(gallery(), NEAR, *[then] * DOUBTFUL).likeness(vector(NEAR)) == pytest.approx(1.0)


def test_what_was_seen_just_before_the_target_was_missed_is_not_learnt():
    found = at(gallery(), NEAR)
    found.miss()
    assert found._asked_ns is not None
    found.look(vector(USUAL), found._asked_ns + 2 * DOUBT_NS, learns=True)
    assert found.likeness(vector(NEAR)) == pytest.approx(NEAR)


def test_what_was_seen_after_the_present_image_is_not_learnt():
    """Stamps go back as a bag starts anew."""
    found = at(gallery(), NEAR)
    for number in range(30):
        found.look(vector(USUAL), number * ASKED_NS, learns=True)
    assert found.likeness(vector(NEAR)) == pytest.approx(NEAR)


def test_looks_that_change_slowly_stay_one_individual():
    """As of a target that turns: over a minute its first and last look have nothing in common."""
    found = Gallery()
    found.add_prompt(vector(1.0), 0)
    for number in range(300):
        cosine = math.cos(math.radians(90.0 * number / 300))
        found.look(vector(cosine), (number + 1) * ASKED_NS, learns=True)
        assert not found.is_other
    assert found.likeness(vector(0.0)) > SAME - 0.1


def test_at_most_so_many_looks_are_kept_the_selected_one_always_and_of_two_that_are_alike_one():
    sides, times = np.eye(20, dtype=np.float32), count(1)

    def turned(look, cosine: float, other):
        return np.float32(cosine) * look + np.float32(math.sqrt(1.0 - cosine**2)) * other

    def learn(look) -> None:
        for _ in range(2):
            found.look(look, next(times) * DOUBT_NS, learns=True)

    found, looks = Gallery(), [sides[0]]
    found.add_prompt(looks[0], 0)
    for other in sides[1:MOST]:
        looks.append(turned(looks[-1], NEAR, other))
        learn(looks[-1])
    learn(turned(looks[3], SAME - 0.01, sides[MOST]))
    assert [found.likeness(look) for look in looks] == pytest.approx([1, 1, 1, SAME - 0.01, 1, 1])
    for other in sides[MOST + 1 :]:
        looks.append(turned(looks[-1], NEAR, other))
        learn(looks[-1])
    assert found.likeness(sides[0]) == pytest.approx(1.0)


def test_where_nothing_is_known_no_likeness_and_no_lead_is_known():
    unseen = Looks(gallery(), PRESENT, ScriptedLooks(lambda box: math.nan))
    for looks in (Looks(Gallery()), Looks(Gallery(), PRESENT, ScriptedLooks(lambda box: 1.0)), unseen):
        assert math.isnan(looks.likeness(DRAWN))
        assert looks.lead(DRAWN) == 0.0


def test_a_look_of_which_nothing_is_known_counts_as_asked_and_changes_nothing_else():
    found, unknown = gallery(), vector(math.nan)
    found.look(unknown, 10 * SECOND, learns=True)
    assert [found.is_due(10 * SECOND + after) for after in (ASKED_NS - 1, ASKED_NS)] == [False, True]
    found.add_prompt(unknown, 20 * SECOND)
    assert (found.likeness_now, found.likeness(vector(0.5))) == (pytest.approx(USUAL), pytest.approx(0.5))


def test_a_selection_unlike_the_first_looks_after_it_counts_no_more_than_they():
    """The box may show half of the target, or who stands before it."""
    found = gallery(looks=0)
    at(found, *[0.2] * 5)
    assert not found.is_doubted
    assert found.likeness(vector(0.2)) == pytest.approx(1.0)
    assert found.likeness(vector(1.0)) == pytest.approx(1.0)
    assert at(found, *[-0.9] * DOUBTFUL).is_other


def test_a_selection_is_not_settled_by_looks_that_may_not_be_learnt():
    found = at(gallery(looks=0), *[0.2] * 3, learns=False)
    assert not found.is_doubted
    assert at(found, 0.2).likeness(vector(0.2)) == pytest.approx(1.0)


def test_a_selection_that_one_look_is_like_is_what_the_others_are_compared_with():
    assert at(gallery(looks=0), 1.0, *[0.2] * DOUBTFUL).is_other


def test_of_a_target_whose_every_look_differs_some_are_taken_for_it_and_no_more():
    found, sides = Gallery(), np.eye(MOST + 1, dtype=np.float32)
    found.add_prompt(sides[0], 0)
    for number, side in enumerate(sides[1:], 1):
        found.look(side, number * ASKED_NS, learns=True)
        assert found.is_doubted is (number > MOST // 2)


def test_two_looks_of_a_slow_video_end_no_claim():
    found = at(gallery(), *[UNLIKE] * (MOST // 2), USUAL)
    for number in range(MOST // 2 + 1):
        found.look(vector(UNLIKE), (10 + number) * SECOND, learns=True)
        assert found.is_other is (number == MOST // 2)


def test_a_box_is_described_once_an_image():
    describe = ScriptedLooks(lambda box: USUAL - 0.1)
    looks = Looks(gallery(), PRESENT, describe)
    assert looks.likeness(DRAWN) == pytest.approx(USUAL - 0.1)
    assert looks.lead(DRAWN) == pytest.approx(0.0, abs=1e-6)
    assert describe.asked == [DRAWN]


# ---- in the tracker ----------------------------------------------------------------------------------------


APART = -(-ASKED_NS * 30 // SECOND)  # images between two looks


def run(
    likeness, images: int = 60, seen=None, first: float = 1.0, quality: float = 1.0
) -> tuple[list[Track], ScriptedPipeline, ScriptedLooks]:
    """Two seconds at 30 Hz of something that moves right by 4 px an image; ``likeness(i)``: of what is there
    to what was selected in image 0, after the first look, which has ``first``; ``quality``: of what is seen
    then, as a share."""
    now = [0]

    def script(index: int, view: View) -> Candidates:
        found = certain_candidate(Box.from_centre(100 + 4 * now[0], 100, 30, 30))
        found = replace(found, ious=found.ious * (quality if now[0] > APART else 1.0))
        return found if seen is None or seen(now[0]) else replace(found, presence_logit=-10.0)

    looks = ScriptedLooks(lambda box: likeness(now[0]) if now[0] > APART else first if now[0] else 1.0)
    pipeline = ScriptedPipeline(script, SPEC)
    tracker = one_target(pipeline, describe=looks)
    tracks = []
    for now[0] in range(images):
        asked, prompt = len(looks.asked), Prompt(box=DRAWN) if now[0] == 0 else None
        tracks.append(tracker.step(Frame(PRESENT, now[0] * SECOND // 30), prompt))
        if seen is None and tracks[-1].measured:
            assert len(looks.asked) == asked  # by `remember`, once it is answered
        tracker.remember()
    return tracks, pipeline, looks


def test_what_stops_being_like_the_target_is_given_up_with_both_figures_in_the_reason():
    tracks, _, _ = run(lambda i: USUAL if i < 30 else UNLIKE)
    assert tracks[29].state is TrackState.TRACKING
    given_up = next(track for track in tracks[30:] if track.state is TrackState.LOST)
    assert given_up.reason.code is ReasonCode.CHANGED
    assert f"likeness {UNLIKE:.2f}, usually {USUAL:.2f}" in given_up.reason
    assert given_up.likeness == pytest.approx(UNLIKE)
    assert not given_up.measured
    assert math.isnan(tracks[-1].likeness)
    assert given_up.stamp_ns <= 30 * SECOND // 30 + DOUBT_NS + 2 * ASKED_NS
    assert all(track.state is TrackState.LOST for track in tracks if track.stamp_ns > given_up.stamp_ns)


def test_no_usual_likeness_is_told_of_a_target_that_was_never_like_its_selection():
    tracks, _, _ = run(lambda i: (LEAST + SURE) / 2 if i < 20 else UNLIKE - 0.5, first=(LEAST + SURE) / 2)
    given_up = next(track for track in tracks if track.state is TrackState.LOST)
    assert given_up.reason == ReasonCode.CHANGED.reason(likeness=f"{UNLIKE - 0.5:.2f}")


def test_what_was_remembered_since_the_last_look_that_was_like_the_target_is_forgotten():
    _, pipeline, _ = run(lambda i: USUAL if i < 5 * APART else UNLIKE)
    image = {call.arguments[1]: call.frame for call in pipeline.calls_of("remember")}
    attended = [{image[slot] for slot in call.arguments[0].slots} for call in pipeline.calls_of("attend")]
    assert max(map(max, attended)) == 5 * APART
    assert max(attended[-1]) == 4 * APART


@pytest.mark.parametrize(("quality", "likeness"), [(0.5, NEAR), (1.0, 1.0)])
def test_only_looks_of_frames_that_are_remembered_are_learnt(quality: float, likeness: float):
    """Seen unclearly, as where the mask takes in a passer-by, neither is."""
    tracks, _, _ = run(lambda i: NEAR, quality=quality)
    assert tracks[-1].likeness == pytest.approx(likeness)


def test_a_return_is_claimed_only_by_what_is_like_the_target():
    """And what is accepted once is not refused for the same reason on the next image."""
    absent = lambda i: not 20 <= i < 30  # noqa: E731
    wrong, _, _ = run(lambda i: USUAL if i < 20 else UNLIKE, seen=absent)
    assert all(track.state not in (TrackState.TRACKING, TrackState.ACQUIRING) for track in wrong[20:])
    right, _, _ = run(lambda i: USUAL if i < 20 else (SURE + USUAL) / 2, seen=absent)
    states = [track.state for track in right[30:]]
    first = states.index(TrackState.ACQUIRING)
    assert set(states[first:]) == {TrackState.ACQUIRING, TrackState.TRACKING}


def test_a_followed_target_is_looked_at_five_times_a_second_and_in_doubt_at_each_image():
    _, _, looks = run(lambda i: USUAL, images=61)
    assert len(looks.asked) == 1 + 60 // APART  # of the selection, and of what is followed
    _, _, looks = run(lambda i: UNLIKE if i == 4 * APART else USUAL)
    images = [round((box.x - DRAWN.x) / 4) // APART for box in looks.asked]
    assert images[:7] == [0, 1, 2, 3, 4, 4, 5]


def test_the_answer_tells_the_likeness_of_the_last_looks_and_none_before_the_first_look():
    tracks, _, _ = run(lambda i: USUAL)
    assert math.isnan(tracks[0].likeness)
    assert tracks[-1].likeness == pytest.approx(USUAL)
