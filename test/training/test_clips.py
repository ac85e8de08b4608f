"""Training clips: the same every time, masks that fit their pictures, prompts on the target, presence that
follows what can be seen."""

from __future__ import annotations

import math

import cv2
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from training_helpers import bright_footage, bright_material, bright_photograph, ground, same

from training import clips, composites, footage
from training.clips import (
    BOX,
    CLICK,
    LEAST_SHARE,
    MASK,
    Clip,
    ClipSource,
)
from training.composites import Body, Compositor, RawClip, cut_out_sequence
from training.footage import LONGEST_STEP, FootageSampler, PhotographSampler
from training.imaging import pyramid, sprite_pyramid, warp
from training.material import Footage, Material, mask_bounds
from training.mixture import Mixture
from training.windows import WindowPath

SIDE = 192
MATERIAL = bright_material()
SOURCE = ClipSource(MATERIAL, Mixture(), SIDE)
SAMPLERS = {
    "composite": Compositor(MATERIAL),
    "footage": FootageSampler(MATERIAL),
    "photograph": PhotographSampler(MATERIAL),
}
kinds = pytest.mark.parametrize("kind", SAMPLERS)
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
    just, under = math.isqrt(int(LEAST_SHARE * whole)) + 1, math.isqrt(int(LEAST_SHARE * whole)) - 1
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


@pytest.mark.parametrize("kind", ["footage", "photograph"])
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


@settings(max_examples=25, deadline=None)
@given(
    size=st.floats(20, 60),
    x=st.floats(-25, 25),
    y=st.floats(-25, 25),
    zoom=st.floats(0.6, 1.6),
    roll=st.floats(-3, 3),
)
def test_a_body_is_drawn_where_it_is_at_the_size_it_has(size, x, y, zoom, roll):
    picture = sprite_pyramid(np.full((50, 80, 4), 255, np.uint8), margin=2)
    body = Body([picture] * 3, size, np.array([x, y]), np.array([2.0, -1.0]), 0.3, 0.1, mirrored=True)
    view = composites._View(np.array([3.0, -2.0]), zoom, roll, SIDE)
    alpha = body.drawn(2, view)[..., 3].astype(float) / 255
    rows, columns = np.indices(alpha.shape)
    centre = np.array([(columns * alpha).sum(), (rows * alpha).sum()]) / alpha.sum()
    assert centre == pytest.approx(view.to_window(np.array([x + 4, y - 2])), abs=0.25)
    # The clear margin belongs to the picture, and the feather takes about a quarter of a pixel.
    inner = 50 * 80 / (54 * 84)
    assert math.sqrt(alpha.sum() / inner) == pytest.approx(size * zoom, rel=0.06)


def test_a_body_grows_turns_and_bends_as_it_goes():
    picture = sprite_pyramid(np.full((40, 40, 4), 255, np.uint8))
    still = Body([picture] * 9, 40, np.zeros(2), np.array([3.0, 0.0]), 0.0, 0.0, mirrored=False, growth=1.1)
    view = composites._View(np.zeros(2), 1.0, 0.0, SIDE)
    assert still.place(4).tolist() == [12.0, 0.0]
    growth = (still.drawn(4, view)[..., 3] > 127).sum() / (still.drawn(0, view)[..., 3] > 127).sum()
    assert growth == pytest.approx(1.1**8, rel=0.05)
    bent = Body([picture], 40, np.zeros(2), np.zeros(2), 0, 0, False, bend=np.array([0.0, 1.0]))
    assert bent.place(4).tolist() == [0.0, 8.0]


# Footage


orders = given(available=st.integers(1, 120), wanted=st.integers(1, 8), seed=indices)


def steps_of(order: list[int], available: int, wanted: int) -> np.ndarray:
    """The steps between the frames, of which there must be as many as wanted, all of the footage."""
    assert len(order) == wanted
    assert all(0 <= frame < available for frame in order)
    return np.diff(order)


@orders
@settings(max_examples=150, deadline=None)
def test_frames_of_footage_follow_each_other_in_equal_steps(available, wanted, seed):
    order = footage._order(np.random.default_rng(seed), available, wanted)
    steps = np.abs(steps_of(order, available, wanted))
    assert steps.max(initial=0) <= LONGEST_STEP
    if available > LONGEST_STEP * wanted:
        assert len(set(steps.tolist())) <= 1
        assert steps.min(initial=1) >= 1


def test_footage_runs_forwards_and_backwards():
    directions = {
        np.sign(np.diff(footage._order(np.random.default_rng(seed), 60, 4))[0]) for seed in range(20)
    }
    assert directions == {-1, 1}


def test_a_moving_cut_out_needs_ten_whole_frames():
    clip = bright_footage(frames=12)
    sequence = cut_out_sequence(clip, clip.tracks[0])
    assert len(sequence) == 12
    assert sequence[0][0].shape == (40, 40, 4)  # 36 px and a margin of 2
    assert cut_out_sequence(bright_footage(frames=9), clip.tracks[0][:9]) == []
    entering = [np.roll(mask, -24, axis=1) for mask in clip.tracks[0]]
    assert len(cut_out_sequence(clip, entering)) == 11  # at first the border cuts it


def looking_away(frames: int, *elsewhere: int, factor: float = 3.0) -> WindowPath:
    """Windows right on the target, but for these frames."""
    away = np.isin(np.arange(frames), elsewhere)
    return WindowPath(np.zeros((frames, 2)), np.full(frames, factor), away)


@pytest.mark.parametrize(("kind", "module"), [("composite", composites), ("footage", footage)])
def test_frames_that_look_elsewhere_have_an_empty_mask_and_teach_absence(kind, module, monkeypatch):
    monkeypatch.setattr(module, "draw_path", lambda rng, frames, *_: looking_away(frames, 1, 2))
    monkeypatch.setattr(footage, "KEPT_INSIDE_SHARE", 0.0)
    monkeypatch.setattr(footage, "WHOLE_IMAGE_SHARE", 0.0)
    source = ClipSource(MATERIAL, Mixture(kind == "composite", kind == "footage", 0), SIDE)
    for index in range(12):
        clip = source.clip(6, index, 3)
        assert clip.present[1:].tolist() == [0, 0]
        assert not clip.masks[1:].any()
        assert clip.masks[0].any()


def test_a_lost_targets_window_shows_another_photograph(monkeypatch):
    monkeypatch.setattr(footage, "draw_path", lambda rng, frames, *_: looking_away(frames, 1))
    other = bright_photograph("other")
    other.rgb[:] = 120
    sampler = PhotographSampler(Material(photographs=[bright_photograph(), other]))
    seen = [sampler.clip(np.random.default_rng(seed), 2, SIDE) for seed in range(20)]
    away = [raw for raw in seen if not raw.masks[1].any()]
    assert 4 <= len(away) <= 16  # half of the draws take the same photograph again
    for raw in away:
        assert raw.ignored is not None
        assert not raw.ignored[1].any()
        assert (raw.masks[0] > 127).sum() > 300


def test_footage_windows_kept_inside_show_the_image_alone(monkeypatch):
    """A white clip, whose outside is black. What the windows' small turns show at the corners is allowed."""
    white = [np.full((120, 160, 3), 255, np.uint8)] * 16
    sampler = FootageSampler(Material(footage=[Footage(white, bright_footage().tracks, "white", "white")]))
    monkeypatch.setattr(footage, "Camera", StillCamera)
    monkeypatch.setattr(footage, "WHOLE_IMAGE_SHARE", 0.0)
    monkeypatch.setattr(footage, "draw_path", lambda rng, frames, *_: looking_away(frames))

    def outside(share: float) -> float:
        monkeypatch.setattr(footage, "KEPT_INSIDE_SHARE", share)
        raw = [sampler.clip(np.random.default_rng(seed), 4, SIDE) for seed in range(15)]
        return float(np.mean([(r.images.max(3) < 128).mean() for r in raw]))

    assert outside(1.0) < 0.03
    assert outside(0.0) > 0.06


@pytest.mark.parametrize("mirrored", [False, True])
def test_a_whole_image_is_squeezed_to_the_square_as_the_full_view_does(mirrored):
    picture = ground(4, 120, 160, grey=30)
    seen = warp(pyramid(picture), footage.whole((160, 120), SIDE, mirrored), SIDE)
    squeezed = cv2.resize(picture[:, ::-1] if mirrored else picture, (SIDE, SIDE))
    inner = slice(3, -3)  # at the border one of them blends with black
    assert np.abs(seen.astype(int) - squeezed)[inner, inner].max() <= 1


class StillCamera:
    """Takes the picture as it is."""

    @classmethod
    def draw(cls, rng, frames, blur_share=0.0):
        return cls()

    def shoot(self, rng, image, frame):
        return image


# Photographs


def test_unknown_pixels_of_a_photograph_are_ignored():
    """The photograph's left edge is unknown; nothing that is known is ignored with it."""
    for seed in range(20):
        raw = draw("photograph", seed, frames=2)
        assert raw.ignored is not None
        assert not (raw.ignored & (raw.masks > 127)).any()
    assert any(draw("photograph", seed).ignored.any() for seed in range(20))


# Mixture


@kinds
@settings(max_examples=10, deadline=None)
@given(seed=indices, frames=st.integers(1, 6))
def test_every_kind_gives_whole_clips(kind, seed, frames):
    raw = draw(kind, seed, frames)
    assert (raw.images.shape, raw.images.dtype) == ((frames, SIDE, SIDE, 3), np.uint8)
    assert (raw.masks.shape, raw.masks.dtype) == ((frames, SIDE, SIDE), np.uint8)
    assert raw.whole.shape == (frames,)
    assert (raw.ignored is None) == (kind != "photograph")
    visible = raw.masks[0] > 127
    if visible.sum() > max(40, 0.35 * raw.whole[0]):  # those that ClipSource takes
        # A tint, a camera and camouflage may leave little of the contrast, but never reverse it.
        grey = raw.images[0].mean(2)
        assert np.median(grey[visible]) > np.quantile(grey[raw.masks[0] == 0], 0.1)
