"""The judge of quick pans: what its camera does, and what its gyro tells of it."""

from __future__ import annotations

import argparse
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from efftam_ros.core.camera_motion import moved_point
from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box
from efftam_ros.core.types import Image
from efftam_ros.tools.scene.render import render_scene, write_scene
from training.disappearance import Claim
from training.reacquisition import pan
from training.reacquisition.footage import Footage, find_footage


@pytest.fixture(scope="module")
def clip(tmp_path_factory) -> Footage:
    folder = tmp_path_factory.mktemp("clips") / "scene"
    write_scene(folder, render_scene(seed=3, frames=130, size=(1024, 576)))
    (found,) = find_footage([folder.parent])
    return found


def test_the_camera_rests_and_then_turns_at_60_degrees_per_second_to_both_sides():
    turns = [pan.turn_rad(i / pan.FPS) for i in range(70)]
    assert turns[: pan.STILL_FRAMES] == [0.0] * pan.STILL_FRAMES
    rates = np.abs(np.diff(turns[pan.STILL_FRAMES :])) * pan.FPS
    assert np.median(rates) == pytest.approx(math.radians(60))
    assert max(turns) == pytest.approx(pan.MOST_TURN_RAD, rel=0.1)
    assert min(turns) == pytest.approx(-pan.MOST_TURN_RAD, rel=0.1)


def test_the_target_starts_in_the_middle_and_its_place_is_that_of_the_turned_picture(clip):
    film = pan.PanFilm(clip)
    boxes = [box for _, _, box in film]
    assert (boxes[0].cx, boxes[0].cy) == pytest.approx((320, 180), abs=2)
    for i, box in enumerate(boxes):
        true = clip.box(i)
        if box is not None and true is not None:
            there = moved_point(film.view(i / pan.FPS), true.cx, true.cy)
            assert (box.cx, box.cy) == pytest.approx(tuple(there), abs=1.5)


def test_without_a_pan_the_same_part_of_the_clip_is_seen_and_its_target_moves_as_in_the_clip(clip):
    film = pan.PanFilm(clip, turns=False)
    first = film.view(0.0)
    for i, (_, _, box) in enumerate(film):
        assert film.view(i / pan.FPS) == pytest.approx(first)
        true = clip.box(i)
        if box is not None and true is not None:
            assert (box.cx, box.cy) == pytest.approx(tuple(moved_point(first, true.cx, true.cy)), abs=1.5)


def test_the_gyro_tells_where_the_ground_went(clip):
    film, motion = pan.PanFilm(clip), pan.gyro()
    blank = Image.from_array(np.zeros((360, 640, 3), np.uint8))
    for i in range(len(film)):
        found = motion.estimate(blank, pan.stamp_ns(i / pan.FPS), None)
        if i == 0:
            continue
        ground = film.view(i / pan.FPS) @ np.linalg.inv(film.view((i - 1) / pan.FPS))
        # Where the camera turns back, half a sample's time is told wrongly.
        assert moved_point(found.matrix, 320, 180) == pytest.approx(moved_point(ground, 320, 180), abs=1.5)


def test_a_frame_counts_as_lost_without_a_claim_and_with_one_on_something_else(clip):
    truth = [box for _, _, box in pan.PanFilm(clip)]

    def follower(stray: float, claims: bool):
        seen = iter(truth)

        def follow(bgr, stamp_ns, first):
            box = next(seen)
            return Claim(box.moved(stray * box.size, 0) if box is not None else Box(0, 0, 9, 9), claims)

        return follow

    shown = sum(box is not None for box in truth[pan.STILL_FRAMES :])
    assert shown > 20
    assert pan.run_pan(follower(0, True), clip) == pan.Lost(shown, 0)
    assert pan.run_pan(follower(0, False), clip) == pan.Lost(shown, shown)
    assert pan.run_pan(follower(5, True), clip) == pan.Lost(shown, shown)


def test_a_clip_whose_target_disappears_by_itself_tells_nothing_of_the_pan(clip):
    boxes = np.where(np.isnan(clip.boxes), clip.boxes[0], clip.boxes)  # without the scene's bridge
    assert pan.suits(replace(clip, boxes=boxes))
    boxes[20] = np.nan
    assert not pan.suits(replace(clip, boxes=boxes))


def test_small_clips_alone_are_refused(tmp_path: Path):
    write_scene(tmp_path / "small", render_scene(seed=3, frames=40, size=(320, 180)))
    parser = argparse.ArgumentParser()
    pan.add_arguments(parser)
    with pytest.raises(InputError, match="1000"):
        pan.run(parser.parse_args([str(tmp_path)]))
