"""The box that the operator drew says which of the decoder's nested masks is the target."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.scripted_target import candidates, followed

from efftam_ros.core.geometry import Box, iou
from efftam_ros.core.policies.constants import BORDER, CLEAR, MAX_PX, SCALE_FRAMES, WEIGHT
from efftam_ros.core.policies.default import MaskScale
from efftam_ros.core.policies.drawn_box import size_overlap
from efftam_ros.core.types import Candidates, Prompt

SIZE = (1000, 500)
MARGIN = BORDER * SIZE[0]
DRAWN = Box.from_centre(400, 200, 24, 16)
sides = st.floats(1, 300)


def nested(*factors: float, ious: tuple[float, ...] = (0.80, 0.84, 0.79), at: Box = DRAWN) -> Candidates:
    """Candidates of one centre; their sides are the box's times the factors. 0: an empty mask."""
    boxes = [Box.from_centre(at.cx, at.cy, f * at.width, f * at.height) if f else None for f in factors]
    return candidates(*boxes, ious=ious)


def after(*frames: Candidates, drawn: Box | None = DRAWN) -> MaskScale:
    scale = MaskScale(drawn, SIZE)
    for found in frames:
        scale.add(found)
    return scale


@pytest.mark.parametrize(
    ("factors", "best", "excess"),
    [
        ((1.1, 1.6, 2.0), 0, 1 / 1.1**2 - 1 / 1.6**2),  # drawn around the part
        ((0.5, 0.6, 0.8), 2, 0.64 - 0.36),  # the others are only the salient part
        ((1.0, 1.03, 1.2), 0, CLEAR),  # hardly better
    ],
)
def test_the_mask_that_fits_the_drawn_box_clearly_best_is_favoured(factors, best, excess):
    favour = MaskScale(DRAWN, SIZE).favour(nested(*factors))
    assert favour[best] == pytest.approx(WEIGHT * (excess - CLEAR), rel=1e-4)
    assert sum(favour) == favour[best]


def test_only_the_first_frames_are_compared_because_the_target_may_come_closer():
    part = nested(1.0, 1.6, 2.0)
    scale = after(*[part] * SCALE_FRAMES)
    expected = scale.favour(part)
    scale.add(nested(2.0, 3.0, 4.0))
    for factor in (0.5, 2.0, 5.0):
        assert scale.favour(nested(factor, 1.6 * factor, 2 * factor)) == expected


def test_the_frames_are_averaged_the_present_one_with_those_before():
    first, second = nested(1.0, 1.6, 2.0), nested(1.25, 2.0, 2.5)
    mean = (1.0 + 0.64) / 2 - (1 / 2.56 + 0.25) / 2
    assert after(first).favour(second)[0] == pytest.approx(WEIGHT * (mean - CLEAR), rel=1e-4)
    assert after(first, second).favour(first)[0] == pytest.approx(WEIGHT * (mean - CLEAR), rel=1e-4)


@pytest.mark.parametrize(
    ("drawn", "is_used"),
    [
        (Box.from_centre(400, 200, MAX_PX - 0.1, MAX_PX - 0.1), True),
        *((Box.from_centre(400, 200, side, side), False) for side in (MAX_PX, 200)),  # drawn roughly
        (None, False),
        (Box(1.1 * MARGIN, 1.1 * MARGIN, 24, 16), True),  # just clear of the border
        *((Box(0.9 * MARGIN, 100, 24, 16), False), (Box(400, 0.9 * MARGIN, 24, 16), False)),
        (Box(1000 - 24 - 0.9 * MARGIN, 100, 24, 16), False),
        (Box(400, 500 - 16 - 0.9 * MARGIN, 24, 16), False),
    ],
)
def test_only_the_box_of_a_small_target_clear_of_the_border_is_used(drawn, is_used):
    """One at the border may be coming into the image."""
    found = nested(1.0, 1.6, 2.0, at=drawn or DRAWN)
    assert any(after(found, drawn=drawn).favour(found)) is is_used


def test_an_empty_mask_fits_nothing():
    assert MaskScale(DRAWN, SIZE).favour(nested(0, 1.0, 1.2, ious=(0.9, 0.8, 0.7)))[1] == pytest.approx(
        WEIGHT * (1 - CLEAR), rel=1e-4
    )


def test_a_single_candidate_has_no_rival():
    assert MaskScale(DRAWN, SIZE).favour(nested(3.0, ious=(0.9,))) == [0]


def test_frames_with_another_number_of_candidates_do_not_count():
    single = nested(1.0, ious=(0.9,))
    assert after(*[single] * SCALE_FRAMES).favour(nested(1.0, 1.6, 2.0)) == [0, 0, 0]


@given(sides, sides, sides, sides)
def test_the_size_overlap_is_symmetric_and_that_of_boxes_on_one_centre(w, h, v, g):
    a, b = Box.from_centre(10, 20, w, h), Box.from_centre(300, -7, v, g)
    assert size_overlap(a, b) == pytest.approx(size_overlap(b, a))
    assert size_overlap(a, b) == pytest.approx(iou(a, Box.from_centre(10, 20, v, g)), abs=1e-9)


@pytest.mark.parametrize(("view", "taken"), [("drawn as the part", 0), ("drawn as the whole", 1)])
def test_the_tracker_follows_what_was_drawn(view, taken):
    """The same masks of a head and its body, either box drawn; the whole has the higher predicted IoU."""
    head, body = Box.from_centre(300, 200, 30, 30), Box.from_centre(300, 250, 60, 140)

    def script(i: int, _: object) -> Candidates:
        shown = (head, body, Box.from_centre(300, 250, 90, 170))
        return candidates(*(box.moved(3.0 * i, 0) for box in shown), ious=[0.80, 0.84, 0.79])

    drawn = (head, body)[taken]
    mask = np.zeros((1024, 1024), bool)
    mask[int(drawn.y) : int(drawn.y1), int(drawn.x) : int(drawn.x1)] = True
    for prompt in (Prompt(box=drawn), Prompt(mask=mask)):
        tracks, _, _ = followed(script, 20, prompt)
        for i, track in enumerate(tracks[1:], 1):
            assert iou(track.box, drawn.moved(3.0 * i, 0)) > 0.99
