"""What `efftam track` says of a selection that was lost at once."""

from __future__ import annotations

import json
from pathlib import Path

import cv2
import numpy as np
import pytest

from efftam_ros.core.geometry import Box
from efftam_ros.core.types import Prompt, Track, TrackState
from efftam_ros.tools.common.hints import LossCause, cause_of, lost_after_s

GROUND = np.full((120, 160, 3), 90, np.uint8)


def picture() -> np.ndarray:
    bgr = GROUND.copy()
    bgr[40:60, 40:64] = 220
    return bgr


@pytest.mark.parametrize(
    ("box", "cause"),
    [
        (Box(36, 36, 32, 28), LossCause.OTHER),
        (Box(0, 0, 81, 61), LossCause.TOO_LARGE),
        (Box(44, 44, 7, 20), LossCause.TOO_SMALL),
        (Box(110, 80, 20, 20), LossCause.PLAIN),
    ],
)
def test_each_kind_of_bad_box_has_its_cause(box: Box, cause: LossCause):
    assert cause_of(picture(), Prompt(box=box)) is cause


def test_a_point_has_no_size_to_judge():
    assert cause_of(picture(), Prompt(points=((50.0, 50.0),), labels=(1,))) is LossCause.OTHER


def tracks(states: str) -> list[Track]:
    names = {
        "A": TrackState.ACQUIRING,
        "T": TrackState.TRACKING,
        "C": TrackState.COASTING,
        "L": TrackState.LOST,
    }
    return [Track(i * 100_000_000, names[letter]) for i, letter in enumerate(states)]


@pytest.mark.parametrize(
    ("states", "seconds"),
    [("ACCCC", 0.1), ("AAALL", 0.3), ("AAATT", None), ("AACTT", None), ("AAATL", None), ("AAA", None)],
)
def test_lost_at_once_is_lost_without_ever_being_tracked(states: str, seconds: float | None):
    assert lost_after_s(tracks(states)) == pytest.approx(seconds)


def test_a_selection_of_plain_ground_ends_with_what_to_draw_instead(efftam, tmp_path: Path):
    folder = tmp_path / "frames"
    folder.mkdir()
    rng = np.random.default_rng(1)
    for i in range(12):  # nothing but ground, which goes dark after the first image
        noise = rng.integers(0, 3, GROUND.shape, np.uint8)
        cv2.imwrite(str(folder / f"{i:02}.png"), (GROUND if i == 0 else GROUND // 8) + noise)
    done = efftam("track", folder, "--box", "100,70,24,24", "--json", "t.json", "--quiet")
    assert done.returncode == 1
    hint = done.stderr.splitlines()[-1]
    assert hint.startswith("target 0 was lost ")
    assert hint.endswith(LossCause.PLAIN.value)
    assert len(json.loads((tmp_path / "t.json").read_text())["frames"]) == 12
