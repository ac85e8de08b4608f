"""Copies of the target that cross its path in real clips."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from training_helpers import bright_material

from training.clips import ClipSource
from training.composites import RawClip
from training.crossings import Crossing
from training.hardness import EASY, Hardness
from training.mixture import Mixture

SIDE, FRAMES = 96, 5
TARGET = (slice(40, 52), slice(44, 52))
"""Rows and columns of the target: 12 px high, 8 px wide, at (47.5, 45.5)."""


def still_clip() -> RawClip:
    """A target whose right half is bright, on grey ground; it does not move."""
    images = np.full((FRAMES, SIDE, SIDE, 3), 100, np.uint8)
    masks = np.zeros((FRAMES, SIDE, SIDE), np.uint8)
    images[:, 40:52, 44:52], images[:, 40:52, 48:52] = 160, 250
    masks[(slice(None), *TARGET)] = 255
    return RawClip(images, masks, None, np.full(FRAMES, 96.0))


def crossing(**changes: Any) -> Crossing:
    """From the left at two widths through the target's place, one width a frame."""
    plain = Crossing(np.array([-2.0, 0.0]), np.array([1.0, 0.0]), 0, 1.0, np.ones(3), False, True)
    return replace(plain, **changes)


def test_a_copy_in_front_hides_the_target_and_one_behind_does_not():
    in_front, behind = (
        (crossing(is_in_front=value).through(still_clip()).masks > 127).sum((1, 2)) for value in (True, False)
    )
    assert list(in_front[[0, 4]]) == [96, 96]
    assert in_front[2] <= 40  # the copy's edges are soft
    assert (behind == 96).all()


def test_the_whole_targets_area_is_kept_so_that_a_hidden_one_counts_as_absent():
    assert (crossing().through(still_clip()).whole == still_clip().whole).all()


@pytest.mark.parametrize("seed", range(40))
def test_the_prompted_frame_shows_target_and_copy_apart(seed):
    drawn = Crossing.draw(np.random.default_rng(seed), FRAMES)
    raw = still_clip()
    through = drawn.through(raw)
    overlapped = raw.masks[0].astype(int) - through.masks[0]
    assert (overlapped > 127).sum() <= 0.2 * 96


def test_crossings_change_real_clips_and_hide_some_targets():
    real = Mixture(0, 0.5, 0.5)
    plain, crossed = (
        ClipSource(bright_material(), real, SIDE, hardness) for hardness in (EASY, Hardness(crossings=1.0))
    )
    smaller = []
    for index in range(12):
        without, copied = plain.clip(1, index, FRAMES), crossed.clip(1, index, FRAMES)
        if not torch.equal(without.prompt_mask, copied.prompt_mask):
            continue  # its first frame was hidden, another clip was drawn
        assert (without.images != copied.images).any()
        smaller.append(bool(copied.masks.float().sum() < without.masks.float().sum()))
    assert 0 < np.mean(smaller) < 1
