"""Training clips: the same every time, masks that fit their pictures, prompts on the target, presence that
follows what can be seen."""

from __future__ import annotations

import hashlib
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from training_helpers import bright_material, same

from training import clips
from training.clips import (
    BOX,
    CLICK,
    MASK,
    MIN_SHARE,
    Clip,
    ClipSource,
)
from training.composites import RawClip
from training.footage import FootageSampler, PhotographSampler
from training.hardness import EASY, HARD, Hardness, Sun
from training.material import Material, mask_bounds
from training.mixture import Mixture

SIDE = 192
MATERIAL = bright_material()
SOURCE = ClipSource(MATERIAL, Mixture(), SIDE)
SAMPLERS = {"footage": FootageSampler(MATERIAL), "photograph": PhotographSampler(MATERIAL)}
indices = st.integers(0, 100_000)


def draw(kind: str, seed: int, frames: int = 4) -> RawClip:
    return SAMPLERS[kind].clip(np.random.default_rng(seed), frames, SIDE)


def agreement(image: np.ndarray, mask: np.ndarray) -> float:
    """Overlap of the mask with the pixels that are nearer to the brightest than to the darkest."""
    grey = image.mean(2)
    bright = grey > (grey.min() + grey.max()) / 2
    return (bright & (mask > 127)).sum() / (bright | (mask > 127)).sum()


def prompt_kind(clip: Clip) -> int:
    if clip.has_mask > 0:
        return MASK
    return CLICK if 1 in clip.labels.tolist() else BOX


class HandMade:
    """A sampler that gives these clips in turn."""

    def __init__(self, *raw: RawClip) -> None:
        self._raw = list(raw)

    def __len__(self) -> int:
        return 1

    def clip(self, rng: np.random.Generator, frames: int, side: int) -> RawClip:
        return self._raw.pop(0)


@pytest.fixture
def prompted(monkeypatch):
    """What ClipSource makes of hand-made clips."""

    def make(*raw: RawClip) -> Clip:
        monkeypatch.setattr(clips, "Compositor", lambda *_: HandMade(*raw))
        return ClipSource(Material(), Mixture(), SIDE).clip(0, 0, len(raw[0].images))

    return make


def squares(*sides: int, whole: float | None = None, ignored: np.ndarray | None = None) -> RawClip:
    """Frames with a square of these sides in px in the upper left."""
    masks = np.zeros((len(sides), SIDE, SIDE), np.uint8)
    for mask, side in zip(masks, sides, strict=True):
        mask[8 : 8 + side, 16 : 16 + side] = 255
    images = np.zeros((*masks.shape, 3), np.uint8)
    everything = np.full(len(sides), sides[0] ** 2 if whole is None else whole, float)
    return RawClip(images, masks, ignored, everything)


# Repeatable


def test_the_same_seed_and_index_give_the_same_clip_and_others_another():
    clip = SOURCE.clip(3, 7, 4)
    assert same(clip, SOURCE.clip(3, 7, 4))
    assert same(clip, ClipSource(bright_material(), Mixture(), SIDE).clip(3, 7, 4))
    assert not same(clip, SOURCE.clip(3, 8, 4))
    assert not same(clip, SOURCE.clip(4, 7, 4))


GOLDEN = {
    "easy": (EASY, "0ff0375948b2b27f"),
    "hard": (HARD, "ef6c943141908511"),
    "crossings": (Hardness(crossings=1.0), "5f5ae4aaac37a880"),
    "companions": (Hardness(companions=1.0), "3a53115d1b501371"),
    "small": (Hardness(small=1.0), "bb8693a44b7e561a"),
    "parts": (Hardness(parts=1.0), "3e95949f2826c774"),
    "rivals": (Hardness(rivals=1.0, absent=1.0), "1734d2236eebc5b4"),
}
"""Of masks and prompts: the clips that the networks were trained and their figures were measured on."""


@pytest.mark.parametrize("name", GOLDEN)
def test_clips_are_those_that_earlier_figures_were_measured_on(name):
    """Another digest makes all figures incomparable."""
    hardness, golden = GOLDEN[name]
    source, digest = ClipSource(bright_material(), Mixture(), SIDE, hardness), hashlib.sha256()
    for index in range(12):
        clip = source.clip(20261121, index, 4)
        digest.update(clip.masks.numpy().tobytes())
        digest.update(clip.points.numpy().tobytes())
    assert digest.hexdigest()[:16] == golden


def test_a_part_is_never_prompted_by_a_click():
    source = ClipSource(MATERIAL, Mixture(0, 1, 1), SIDE, Hardness(parts=1.0))
    for index in range(60):
        assert CLICK not in source.clip(8, index, 1).labels.tolist()


def test_a_shadow_darkens_its_cover_and_nothing_else():
    canvas, cover = np.full((60, 60, 3), 200, np.uint8), np.zeros((60, 60), np.uint8)
    cover[20:40, 20:40] = 255
    shaded = Sun(np.zeros(2), darkness=0.6, blur=0.5).darken(canvas, cover)
    assert shaded[25:35, 25:35].mean() == pytest.approx(0.4 * 200, abs=2)
    assert (shaded[:15] == 200).all()
    assert (shaded[:, 45:] == 200).all()


# Shapes


@settings(max_examples=15, deadline=None)
@given(index=indices, frames=st.integers(1, 6))
def test_a_clip_is_made_as_documented(index, frames):
    clip = SOURCE.clip(1, index, frames)
    low = SIDE // 4
    assert (clip.images.shape, clip.images.dtype) == ((frames, 3, SIDE, SIDE), torch.uint8)
    assert (clip.masks.shape, clip.masks.dtype) == ((frames, low, low), torch.uint8)
    assert (clip.valid.shape, clip.valid.dtype) == ((frames, low, low), torch.bool)
    assert clip.present.shape == (frames,)
    assert set(clip.present.tolist()) <= {0.0, 1.0}
    assert (clip.points.shape, clip.labels.shape) == ((3, 2), (3,))
    assert clip.prompt_mask.shape == (SIDE, SIDE)
    assert set(clip.prompt_mask.unique().tolist()) == {0, 1}
    assert clip.has_mask.shape == ()


@settings(max_examples=15, deadline=None)
@given(index=indices)
def test_the_first_frame_shows_its_target_and_absent_frames_have_no_mask(index):
    clip = SOURCE.clip(2, index, 5)
    assert clip.present[0] == 1
    assert clip.prompt_mask.sum() > 40
    for mask, present in zip(clip.masks, clip.present, strict=True):
        assert bool(mask.any()) == bool(present)


# Prompts


@settings(max_examples=60, deadline=None)
@given(index=indices)
def test_a_prompt_lies_on_the_target(index):
    clip = SOURCE.clip(4, index, 1)
    mask = clip.prompt_mask.numpy()
    bounds = np.array(mask_bounds(mask))
    kind = prompt_kind(clip)
    if kind == BOX:
        assert clip.labels.tolist() == [2, 3, -1]
        width, height = bounds[2:] - bounds[:2]
        off = clip.points[:2].numpy().ravel() - bounds
        assert (np.abs(off) <= 0.15 * np.array([width, height] * 2) + 1e-4).all()
    elif kind == CLICK:
        assert clip.labels.tolist() == [1, -1, -1]
        x, y = clip.points[0].tolist()
        assert mask[int(y), int(x)] == 1
        assert (x % 1, y % 1) == (0.5, 0.5)  # a pixel's centre, as a person clicks
    else:
        assert clip.labels.tolist() == [-1, -1, -1]
    unused = clip.labels == -1
    assert not clip.points[unused].any()


def test_a_prompt_is_never_on_something_hidden(prompted):
    speck, hidden, shown = squares(6, 40), squares(20, 40, whole=2000), squares(28, 40, whole=2000)
    assert prompted(speck, hidden, shown).prompt_mask.sum() == 28**2


# Presence and what is not known


def test_presence_follows_the_visible_share(prompted):
    whole = 10_000
    just, under = math.isqrt(int(MIN_SHARE * whole)) + 1, math.isqrt(int(MIN_SHARE * whole)) - 1
    clip = prompted(squares(100, just, under, 0, whole=whole))
    assert clip.present.tolist() == [1, 1, 0, 0]
    assert [bool(mask.any()) for mask in clip.masks] == [True, True, False, False]


def test_masks_are_the_covered_share_of_their_cells(prompted):
    clip = prompted(squares(22))  # rows 8 to 30, columns 16 to 38: the last cells are half covered
    mask = clip.masks[0]
    assert mask[2:7, 4:9].min() == 255
    assert 126 <= int(mask[7, 4]) <= 129
    assert 63 <= int(mask[7, 9]) <= 65
    assert mask.sum() == pytest.approx(255 * 22**2 / 16, rel=0.01)


def test_a_cell_that_holds_an_ignored_pixel_is_not_valid(prompted):
    ignored = np.zeros((2, SIDE, SIDE), bool)
    ignored[1, 41, 86] = True
    clip = prompted(squares(30, 30, ignored=ignored))
    assert clip.valid[0].all()
    assert (~clip.valid[1]).nonzero().tolist() == [[41 // 4, 86 // 4]]


# Pictures and masks agree


@pytest.mark.parametrize("kind", SAMPLERS)
def test_the_mask_lies_on_the_bright_target(kind):
    found = []
    for seed in range(30):
        raw = draw(kind, seed)
        found += [
            agreement(image, mask)
            for image, mask in zip(raw.images, raw.masks, strict=True)
            if (mask > 127).sum() > 200
        ]
    assert len(found) > 60
    assert np.median(found) > 0.95
    assert np.quantile(found, 0.1) > 0.85


# Photographs


def test_unknown_pixels_of_a_photograph_are_ignored():
    """The photograph's left edge is unknown; nothing that is known is ignored with it."""
    for seed in range(20):
        raw = draw("photograph", seed, frames=2)
        assert raw.ignored is not None
        assert not (raw.ignored & (raw.masks > 127)).any()
    assert any(draw("photograph", seed).ignored.any() for seed in range(20))
