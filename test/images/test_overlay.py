"""The overlay: what is drawn where, in every state and size."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np
import pytest

from efftam_ros.core.geometry import Box, View
from efftam_ros.core.types import Motion, ScoredBox, Track, TrackState
from efftam_ros.images.overlay import STATE_COLOURS, WINDOW_COLOUR, draw_overlay
from efftam_ros.images.palette import STATE_STYLES, TARGET_RGB

BOX = Box(300, 200, 60, 40)


def track(state, box=BOX, measured=True, velocity=(0.0, 0.0), reason=""):
    motion = None if box is None else Motion(0, box, velocity, np.eye(4))
    return Track(0, state, box, measured, 0.9, 0.8, 0.0, motion, reason=reason)


def drawn(state=TrackState.TRACKING, width=640, height=480, mask=None, **kwargs):
    picture = np.zeros((height, width, 3), np.uint8)
    draw_overlay(picture, track(state, **kwargs), mask)
    return picture


def has_colour(part, state):
    return (part == STATE_COLOURS[state]).all(axis=-1).any()


@pytest.mark.parametrize("state", [TrackState.ACQUIRING, TrackState.TRACKING, TrackState.COASTING])
def test_the_box_is_drawn_in_the_colour_of_the_state(state):
    picture = drawn(state)
    assert STATE_COLOURS[state] == STATE_STYLES[state].rgb[::-1]
    for part in (picture[195:206, 295:315], picture[235:246, 345:365], picture[195:215, 296:305]):
        assert has_colour(part, state)
    assert not picture[210:230, 310:350].any()


@pytest.mark.parametrize(("width", "height", "coloured"), [(640, 480, 1), (1280, 480, 3), (640, 1280, 3)])
def test_lines_grow_with_the_longer_side_of_the_picture(width, height, coloured):
    line = drawn(width=width, height=height)[180:220, 330]
    assert (line == STATE_COLOURS[TrackState.TRACKING]).all(axis=-1).sum() == coloured


def top_side(state) -> str:
    """The 60 px of the box's top side: x where it is drawn, . where it is not."""
    drawn_there = (drawn(state)[200, 300:361] == STATE_COLOURS[state]).all(axis=-1)
    return "".join("x" if d else "." for d in drawn_there)


def test_each_state_has_a_line_of_its_own():
    sides = {state: top_side(state) for state in TrackState}
    assert "x" not in sides[TrackState.IDLE]
    assert "." not in sides[TrackState.TRACKING]
    assert re.fullmatch(r"x{14,18}\.{26,33}x{14,18}", sides[TrackState.ACQUIRING])
    assert re.fullmatch(r"(x{8,11}\.{5,9}){2,4}x{8,11}", sides[TrackState.COASTING])
    assert re.fullmatch(r"(x{1,3}\.{3,7}){6,12}x{1,3}", sides[TrackState.LOST])


def test_the_arrow_ends_where_the_target_will_be_in_half_a_second():
    """From the centre at 330, 220 on."""
    picture = drawn(velocity=(240.0, -160.0))
    line = np.linspace((220, 330), (142, 447), 50).round().astype(int)
    assert all(picture[y, x].any() for y, x in line)
    assert not picture[:, 460:].any()
    assert not picture[60:130].any()


def test_the_mask_tints_the_target_and_nothing_else():
    mask = np.zeros((480, 1280), np.uint8)[:, ::2]  # also one that is a part of another
    mask[205:235, 310:350] = 1
    picture = drawn(mask=mask, box=None)[60:].any(axis=2)  # below the words
    edges = np.flatnonzero(picture.any(axis=1)), np.flatnonzero(picture.any(axis=0))
    assert [(i[0], i[-1]) for i in edges] == [(144, 175), (309, 350)]  # with a line of a pixel around
    assert picture[145:174, 311:349].all()


def test_a_lost_target_frames_the_picture():
    picture = drawn(TrackState.LOST, box=None, measured=False, reason="absent for 1.2 s")
    for edge in (picture[-1, :], picture[:, 0], picture[:, -1]):
        assert has_colour(edge, TrackState.LOST)


@pytest.mark.parametrize(("width", "height"), [(1, 1), (32, 24), (640, 360), (1920, 1080), (480, 1920)])
def test_any_size_and_any_reason_can_be_drawn(width, height):
    mask = np.full((height, width), 255, np.uint8)
    long = "the network does not see the target, and this is longer than the picture is wide — Größe 3 µm"
    for state in TrackState:
        box = Box(-50, height - 3, 2e9, 5)
        assert drawn(state, width, height, mask, box=box, velocity=(1e9, np.nan), reason=long).any()


@pytest.mark.parametrize(("field", "measured"), [("likeness", True), ("age_s", False)])
def test_likeness_and_age_are_written_where_they_are_known(field, measured):
    def written(value):
        picture = np.zeros((480, 640, 3), np.uint8)
        draw_overlay(picture, replace(track(TrackState.COASTING, None, measured), **{field: value}))
        return picture

    unknown, low, high = written(math.nan), written(0.21), written(0.87)
    assert np.flatnonzero(low.any(axis=(0, 2)))[-1] > np.flatnonzero(unknown.any(axis=(0, 2)))[-1] + 40
    assert (low != high).any()


@pytest.mark.parametrize("measured", [True, False])
def test_windows_and_possible_places_are_drawn_while_the_target_is_missed(measured):
    picture, place = np.zeros((480, 640, 3), np.uint8), ScoredBox(Box(400, 300, 50, 40), 1.5)
    window = View(100, 150, 1.0, 2.0, 200)  # 200 x 100 px
    searched = replace(track(TrackState.COASTING, None, measured), windows=(window,), hypotheses=(place,))
    draw_overlay(picture, searched)
    edges = np.zeros((481, 641), bool)
    edges[150:251, 100:301], edges[151:250, 101:300] = not measured, False
    assert np.array_equal((picture == WINDOW_COLOUR).all(axis=-1)[100:], edges[100:480, :640])
    assert has_colour(picture[298:303, 395:455], TrackState.COASTING) != measured


def test_text_grows_with_the_picture():
    def text_height(width, height):
        rows = drawn(TrackState.IDLE, width, height, box=None).any(axis=(1, 2))
        return int(np.flatnonzero(rows)[-1])

    assert text_height(1920, 1080) > 2 * text_height(640, 360)


def test_pictures_that_can_not_be_drawn_into_are_refused():
    good = np.zeros((48, 64, 3), np.uint8)
    locked = good.copy()
    locked.flags.writeable = False
    for picture in (good[:, :, ::-1], good[..., 0], good.astype(np.float32), locked):
        with pytest.raises(ValueError, match="overlay needs"):
            draw_overlay(picture, track(TrackState.IDLE, None))
    with pytest.raises(ValueError, match="mask is"):
        draw_overlay(good, track(TrackState.TRACKING), np.zeros((10, 10), np.uint8))


def test_of_several_targets_each_has_a_colour_of_its_own_and_bears_its_id():
    pictures = []
    for target_id in range(len(TARGET_RGB)):
        picture = np.zeros((480, 640, 3), np.uint8)
        draw_overlay(picture, track(TrackState.TRACKING), None, target_id, is_steered=False)
        assert (picture == TARGET_RGB[target_id][::-1]).all(axis=-1).any()
        assert picture[185:197, 300:312].any()
        assert not picture[:150].any()
        pictures.append(picture[185:197, 300:312].max(axis=2) > 20)
    assert len({picture.tobytes() for picture in pictures}) == len(set(TARGET_RGB)) == 8
    picture[:] = 0
    draw_overlay(picture, track(TrackState.TRACKING), None, 203)  # the colours begin again
    of_target = (picture == TARGET_RGB[3][::-1]).all(axis=-1)
    assert of_target[150:].any()
    assert of_target[:40].any()  # of the one that is steered by are the words
