"""What is accepted as a target that was missed: scripted candidates with scripted likenesses."""

import pytest
from support.scripted_looks import ScriptedLooks, vector
from support.scripted_target import PICTURE, candidates, followed

from efftam_ros.core.gallery import UNKNOWN_USUAL, USUAL_DROP, Gallery, Looks
from efftam_ros.core.geometry import Box
from efftam_ros.core.types import Image, Prompt, Track, TrackState

SIZE = 12
HOME = Box.from_centre(400, 300, SIZE, SIZE)
# Images: the first are too few for a look to be learnt.
SEEN_FOR, GONE_FOR, HALF_A_SECOND = 20, 30, 15


def returns(
    usual: float, shown: dict[Box, float], logit: float = 5.0, gone_for: int = GONE_FOR
) -> list[Track]:
    """The tracks of the half second from the image on in which these boxes are seen, each as like the
    selection as its number says. Before, a target of this usual likeness rested, and was gone for so long."""
    back = SEEN_FOR + gone_for
    alike = {HOME.edges(): usual, **{box.edges(): value for box, value in shown.items()}}
    now = [0]

    def script(i, view):
        now[0] = i
        if i < SEEN_FOR:
            return candidates(HOME)
        if i < back:
            return candidates(HOME, presence_logit=-6.0)
        return candidates(*shown, ious=[0.9] * len(shown), presence_logit=logit)

    looks = ScriptedLooks(lambda box: alike[box.edges()] if now[0] else 1.0)
    tracks, _, _ = followed(script, back + HALF_A_SECOND, Prompt(box=HOME), describe=looks)
    assert tracks[SEEN_FOR - 1].state is TrackState.TRACKING
    assert not any(track.measured for track in tracks[SEEN_FOR:back])
    return tracks[back:]


def is_claimed(tracks: list[Track], box: Box) -> bool:
    return tracks[-1].state is TrackState.TRACKING and tracks[-1].box.cx == pytest.approx(box.cx, abs=1)


def away(sizes: float, down: float = 0.0) -> Box:
    return HOME.moved(sizes * SIZE, down * SIZE)


def test_a_sole_object_that_is_moderately_like_a_small_target_is_claimed_within_half_a_second():
    """Elsewhere than where it left, and below the likeness at which a look is learnt."""
    assert is_claimed(returns(0.68, {away(4): 0.57}), away(4))


def test_beside_others_that_are_as_like_it_is_not():
    shown = {away(4): 0.57, away(-4): 0.57, away(0, 4): 0.56}
    assert not any(track.measured for track in returns(0.68, shown))


def test_among_others_the_one_that_is_more_like_the_target_by_much_is_claimed():
    shown = {away(-4): 0.45, away(4): 0.66, away(0, 4): 0.45}
    assert is_claimed(returns(0.68, shown), away(4))


def test_a_target_that_was_followed_though_hardly_like_its_selection_is_claimed():
    """Its usual likeness is not known: nothing that was seen was like enough to be learnt."""
    assert is_claimed(returns(0.57, {away(0.5): 0.55}), away(0.5))


@pytest.mark.parametrize(("likeness", "taken"), [(0.8, True), (0.7, True), (0.5, False)])
def test_what_stands_where_a_target_vanished_is_claimed_if_it_is_about_as_like_as_that_was(likeness, taken):
    tracks = returns(0.8, {away(0.5): likeness}, logit=2.0, gone_for=10)
    assert any(track.measured for track in tracks) is taken


# ---- the lead ----------------------------------------------------------------------------------------------

IMAGE = Image.from_array(PICTURE)
OTHER, PART = away(3), HOME.moved(SIZE / 4, 0)


def gallery(usual: float | None) -> Gallery:
    """Of a target of this usual likeness; None: it is not known."""
    known = Gallery()
    known.add_prompt(vector(1.0), 0)
    if usual is not None:
        for number in range(3):
            known.look(vector(usual), (number + 1) * 1_000_000_000, learns=False)
    return known


def lead(alike: dict[Box, float], usual: float | None = 0.7) -> float:
    looks = Looks(gallery(usual), IMAGE, ScriptedLooks(alike.__getitem__))
    for box in alike:
        looks.vector(box)
    return looks.lead(HOME)


@pytest.mark.parametrize(
    ("alike", "usual", "expected"),
    [
        ({HOME: 0.7}, 0.7, USUAL_DROP),  # as like as usual, and alone
        ({HOME: 0.5}, 0.7, USUAL_DROP - 0.2),
        ({HOME: 0.5}, None, 0.5 - UNKNOWN_USUAL),
        ({HOME: 0.7, OTHER: 0.3}, 0.7, USUAL_DROP),  # another one that is less like it than it ever is
        ({HOME: 0.7, OTHER: 0.75}, 0.7, -0.05),
        ({HOME: 0.7, PART: 0.75}, 0.7, USUAL_DROP),  # another mask of the same object
        ({HOME: 0.9, OTHER: -0.2}, None, USUAL_DROP),
        ({HOME: 0.1}, 0.9, USUAL_DROP - 0.8),
        ({HOME: 0.9}, 0.7, USUAL_DROP),
    ],
)
def test_the_lead_is_over_the_best_other_object_and_what_is_usual_of_the_target(alike, usual, expected):
    assert lead(alike, usual) == pytest.approx(expected, abs=1e-6)


def test_where_nothing_is_known_there_is_no_lead():
    for looks in (
        Looks(Gallery()),
        Looks(Gallery(), IMAGE, ScriptedLooks(lambda box: 1.0)),
        Looks(gallery(0.7), IMAGE, ScriptedLooks(lambda box: float("nan"))),
    ):
        assert looks.lead(HOME) == 0.0
