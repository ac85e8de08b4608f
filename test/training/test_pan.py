"""The judge of quick pans: what its camera does, and what counts as lost."""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import numpy as np
import pytest
from support.clip import clip as demo_clip
from support.clip import widened, write_sequence

from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box
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


def test_clips_that_do_not_suit_alone_are_refused(tmp_path: Path):
    write_sequence(tmp_path / "short", demo_clip(24))
    parser = argparse.ArgumentParser()
    pan.add_arguments(parser)
    with pytest.raises(InputError, match="room"):
        pan.run(parser.parse_args([str(tmp_path)]))
