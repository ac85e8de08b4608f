"""Parts of objects as targets: connected pieces that follow the object, and a band along the cut that is
ignored."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from training_helpers import bright_material

from training.clips import CLICK, ClipSource
from training.hardness import Hardness
from training.material import mask_bounds
from training.mixture import Mixture
from training.parts import LEAST_PART, MOST_PART, Part, Piece, draw_part

SIDE = 192
PARTS_ONLY = Hardness(parts=1.0)
seeds = st.integers(0, 100_000)


def figure(width: int, height: int, left: int = 20, top: int = 15) -> np.ndarray:
    """Mask of a body of this size with a head on it."""
    mask = np.zeros((160, 160), np.uint8)
    body = (left + width // 2, top + (2 * height) // 3)
    cv2.ellipse(mask, body, (width // 2, height // 3), 0, 0, 360, 255, -1)
    cv2.circle(mask, (left + width // 2, top + height // 5), max(4, height // 5), 255, -1)
    return mask


figures = st.builds(figure, st.integers(30, 100), st.integers(30, 110))


def drawn_from(mask: np.ndarray, seed: int) -> tuple[Part, Piece]:
    """A part of the object and its piece; objects without one are left out."""
    drawn = draw_part(np.random.default_rng(seed), mask, mask_bounds(mask > 127))
    assume(drawn is not None)
    return drawn


@settings(max_examples=120, deadline=None)
@given(seed=seeds, mask=figures)
def test_a_part_is_one_piece_of_the_object_of_limited_share(seed, mask):
    _, piece = drawn_from(mask, seed)
    solid = piece.mask > 127
    assert not (solid & (mask <= 127)).any()
    assert cv2.connectedComponents(solid.astype(np.uint8), connectivity=4)[0] == 2
    assert LEAST_PART <= solid.sum() / (mask > 127).sum() <= MOST_PART
    assert piece.box == mask_bounds(solid)


@settings(max_examples=60, deadline=None)
@given(seed=seeds, scale=st.floats(0.7, 1.5), left=st.integers(0, 30), top=st.integers(0, 20))
def test_a_part_keeps_its_place_in_a_moved_and_scaled_object(seed, scale, left, top):
    one, other = figure(60, 80), figure(round(60 * scale), round(80 * scale), left, top)
    boxes = [mask_bounds(mask > 127) for mask in (one, other)]
    part, piece = drawn_from(one, seed)
    followed = part.of(other, boxes[1])
    assume(followed is not None)
    places = []
    for box, found in zip(boxes, (piece.box, followed.box), strict=True):
        corner, extent = np.array(box[:2] * 2), np.array([box[2] - box[0], box[3] - box[1]] * 2)
        places.append((np.array(found) - corner) / extent)
    assert places[1] == pytest.approx(places[0], abs=0.08)


@pytest.mark.parametrize("kind", ["footage", "photograph"])
def test_the_band_of_a_part_is_ignored_in_the_clip(kind):
    shares = {"composite": 0.0, "footage": 0.0, "photograph": 0.0, kind: 1.0}
    source = ClipSource(bright_material(), Mixture(**shares), SIDE, PARTS_ONLY)
    for clip in [source.clip(3, index, 3) for index in range(16)]:
        band = ~clip.valid[0].numpy()
        near = cv2.dilate((clip.masks[0].numpy() > 0).astype(np.uint8), np.ones((5, 5))) > 0
        assert (band & near).any()


@pytest.mark.parametrize("kind", ["footage", "photograph"])
def test_a_part_is_never_prompted_by_a_click(kind):
    shares = {"composite": 0.0, "footage": 0.0, "photograph": 0.0, kind: 1.0}
    source = ClipSource(bright_material(), Mixture(**shares), SIDE, PARTS_ONLY)
    for index in range(60):
        assert CLICK not in source.clip(8, index, 1).labels.tolist()
