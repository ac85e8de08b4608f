"""The judge of quick pans: what its camera does, and what counts as lost."""

from __future__ import annotations

import argparse
import math
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
from support.clip import clip as demo_clip
from support.clip import widened, write_sequence

from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box
from efftam_ros.core.motion import moved_point
from training.disappearance import Claim
from training.reacquisition import pan
from training.reacquisition.footage import Footage, find_footage


@pytest.fixture(scope="module")
def clip(tmp_path_factory) -> Footage:
    folder = tmp_path_factory.mktemp("clips") / "scene"
    write_sequence(folder, widened(demo_clip(130)))
    (found,) = find_footage([folder.parent])
    return found


@pytest.mark.parametrize("degrees", [12, 19, 26])
def test_the_camera_rests_and_then_turns_at_60_degrees_per_second_to_both_sides(degrees):
    most = math.radians(degrees)
    turns = [pan.turn_rad(i / pan.FPS, most) for i in range(70)]
    assert turns[: pan.STILL_FRAMES] == [0.0] * pan.STILL_FRAMES
    rates = np.abs(np.diff(turns[pan.STILL_FRAMES :])) * pan.FPS
    assert np.median(rates) == pytest.approx(math.radians(60))
    assert max(turns) == pytest.approx(most, abs=math.radians(2))
    assert min(turns) == pytest.approx(-most, abs=math.radians(2))


@pytest.mark.parametrize(
    ("width", "height", "target"),
    [(1280, 720, (626, 266)), (1280, 720, (818, 172)), (1024, 540, (572, 137)), (480, 360, (240, 200))],
)
def test_the_picture_stays_inside_the_frame_and_the_target_in_the_picture(width, height, target):
    """What lies outside the frame nobody filmed."""
    box = Box.from_centre(*target, 20, 20)
    clip = Footage("a", Path("a"), width, height, 30.0, 1, np.array([[box.x, box.y, 20.0, 20.0]] * 70))
    found = pan.swing(clip, box)
    assert found is not None
    frame_camera = pan._intrinsics(pan._frame_focal(clip), found.x, found.y)
    picture = np.array([[[0, 0], [640, 0], [640, 360], [0, 360]]], np.float64)
    for angle in (0.0, found.turn_rad, -found.turn_rad):
        c, s = math.cos(angle), math.sin(angle)
        turned = np.array([[c, 0.0, -s], [0.0, 1.0, 0.0], [s, 0.0, c]])
        view = pan.picture_camera() @ turned @ np.linalg.inv(frame_camera)
        corners = cv2.perspectiveTransform(picture, np.linalg.inv(view))[0]
        assert corners.min() >= -1e-6
        assert (corners <= np.array([width, height]) + 1e-6).all()
        place = moved_point(view, *target)
        assert ((place > 5) & (place < np.array([635, 355]))).all()


@pytest.mark.parametrize("target", [(680, 24), (60, 360), (640, 715)])
def test_a_target_at_the_frames_border_leaves_no_room_for_a_pan(target):
    box = Box.from_centre(*target, 20, 20)
    clip = Footage("a", Path("a"), 1280, 720, 30.0, 1, np.array([[box.x, box.y, 20.0, 20.0]] * 70))
    assert pan.swing(clip, box) is None
    assert not pan.suits(clip)
    with pytest.raises(InputError, match="room"):
        pan.PanFilm(clip)


def test_the_targets_place_is_that_of_the_turned_picture(clip):
    film = pan.PanFilm(clip)
    shown = 0
    for i, (_, _, box) in enumerate(film):
        true = clip.box(i)
        if box is not None and true is not None:
            there = moved_point(film.view(i / pan.FPS), true.cx, true.cy)
            assert (box.cx, box.cy) == pytest.approx(tuple(there), abs=1.5)
            shown += 1
    assert shown > 30


def test_without_a_pan_the_same_part_of_the_clip_is_seen_and_its_target_moves_as_in_the_clip(clip):
    film = pan.PanFilm(clip, turns=False)
    first = film.view(0.0)
    for i, (_, _, box) in enumerate(film):
        assert film.view(i / pan.FPS) == pytest.approx(first)
        true = clip.box(i)
        if box is not None and true is not None:
            assert (box.cx, box.cy) == pytest.approx(tuple(moved_point(first, true.cx, true.cy)), abs=1.5)


def test_a_frame_counts_as_lost_without_a_claim_and_with_one_on_something_else(clip):
    truth = [box for _, _, box in pan.PanFilm(clip)]

    def follower(stray: float, claims: bool):
        seen = iter(truth)

        def follow(bgr, stamp_ns, first):
            box = next(seen)
            return Claim(box.moved(stray * box.size, 0) if box is not None else Box(0, 0, 9, 9), claims)

        return follow

    shown = {("one:1", i) for i, box in enumerate(truth) if i >= pan.STILL_FRAMES and box is not None}
    assert len(shown) > 20
    film = pan.PanFilm(clip)
    assert pan.run_pan(follower(0, True), film, "one") == pan.Lost(frozenset(shown), frozenset())
    assert pan.run_pan(follower(0, False), film, "one") == pan.Lost(frozenset(shown), frozenset(shown))
    assert pan.run_pan(follower(5, True), film, "one") == pan.Lost(frozenset(shown), frozenset(shown))


def test_what_is_lost_without_a_pan_too_is_not_lost_by_it():
    shown = frozenset(("one:1", i) for i in range(10))
    still = pan.Lost(shown, frozenset(("one:1", i) for i in (2, 3)))
    turned = pan.Lost(shown, frozenset(("one:1", i) for i in (3, 4, 5)))
    assert turned.share == pytest.approx(0.3)
    assert turned.beside(still) == pytest.approx(0.2)
    assert math.isnan(pan.NOTHING.share)
    both = turned | pan.Lost(frozenset({("two:1", 3)}), frozenset({("two:1", 3)}))
    assert both.share == pytest.approx(4 / 11)
    assert both.beside(still) == pytest.approx(3 / 11)


def test_a_clip_whose_target_disappears_by_itself_tells_nothing_of_the_pan(clip):
    boxes = np.where(np.isnan(clip.boxes), clip.boxes[0], clip.boxes)  # without the scene's bridge
    assert pan.suits(replace(clip, boxes=boxes))
    boxes[20] = np.nan
    assert not pan.suits(replace(clip, boxes=boxes))


@pytest.mark.parametrize("factor", [0.1, 20.0])
def test_a_target_too_small_or_too_large_does_not_suit(clip, factor):
    boxes = np.where(np.isnan(clip.boxes), clip.boxes[0], clip.boxes)
    boxes[:, 2:] *= factor
    assert not pan.suits(replace(clip, boxes=boxes))


def test_clips_that_do_not_suit_alone_are_refused(tmp_path: Path):
    write_sequence(tmp_path / "short", demo_clip(24))
    parser = argparse.ArgumentParser()
    pan.add_arguments(parser)
    with pytest.raises(InputError, match="room"):
        pan.run(parser.parse_args([str(tmp_path)]))
