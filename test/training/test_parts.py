"""Parts of objects as targets: connected pieces that follow the object, and a band along the cut that is
ignored."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from training_helpers import bright_footage, bright_material

from training.clips import CLICK, ClipSource
from training.footage import FootageSampler
from training.hardness import Hardness
from training.material import Material, mask_bounds
from training.mixture import Mixture
from training.parts import BAND, END, LEAST_PART, MOST_PART, Part, Piece, draw_part, keeps_aspect

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


@pytest.mark.parametrize(("share", "is_part"), [(0.04, False), (0.1, True), (0.6, True), (0.75, False)])
def test_less_or_more_of_an_object_is_no_part_of_it(share, is_part):
    """The upper end of a bar; in later frames the share of the area is not the one drawn."""
    mask = np.zeros((160, 40), np.uint8)
    mask[5:155, 10:30] = 255
    upper = Part(END, np.zeros(2), np.array([0.0, 1.0]), reach=share)
    assert (upper.of(mask, (10, 5, 30, 155)) is not None) == is_part


@settings(max_examples=120, deadline=None)
@given(seed=seeds, mask=figures)
def test_the_ignored_band_lies_along_the_border_that_the_cut_made(seed, mask):
    _, piece = drawn_from(mask, seed)
    solid, ignored = piece.mask > 127, piece.ignored > 0
    assert ignored.any()
    assert not (ignored & (mask == 0)).any()  # the object's own outline is known
    depth = cv2.distanceTransform(np.pad(solid.astype(np.uint8), 1), cv2.DIST_L2, 5)[1:-1, 1:-1]
    reach = 2 + BAND * np.sqrt(solid.sum())
    assert depth[solid & ignored].max(initial=0) <= 1.5 * reach
    assert (solid & ~ignored).sum() > 0.5 * solid.sum()


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


def test_footage_whose_box_changes_its_aspect_has_no_part():
    assert keeps_aspect([(0, 0, 40, 40), (9, 9, 53, 49)])
    assert not keeps_aspect([(0, 0, 40, 40), (0, 0, 60, 40)])
    steady, changing = bright_footage("steady"), bright_footage("changing")
    for index, mask in enumerate(changing.tracks[0]):
        left, top, _, bottom = mask_bounds(mask > 127)
        mask[top + (18 if index % 2 else 0) : bottom, left:] = 0 if index % 2 else mask[top:bottom, left:]
    found = []
    for clip in (steady, changing):
        sampler = FootageSampler(Material(footage=[clip]), PARTS_ONLY)
        clips = [sampler.clip(np.random.default_rng(seed), 4, SIDE) for seed in range(12)]
        found.append(sum(raw.is_part for raw in clips))
    assert found[0] >= 8
    # Steps of an even number of frames show one aspect only.
    assert found[1] < found[0]


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
