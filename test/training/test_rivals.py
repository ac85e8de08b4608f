"""Windows that miss the target: another object in their middle, of another scene or beside the target."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_clips import StillCamera, looking_away
from training_helpers import bright_footage, bright_photograph

from training import footage
from training.footage import FootageSampler, PhotographSampler
from training.hardness import Hardness
from training.material import Footage, Material, Photograph
from training.rivals import LEAST_SIZE, Looks

SIDE = 192
RIVALS_ONLY = Hardness(rivals=1.0)
RED = (250, 10, 10)
seeds = st.integers(0, 100_000)


@settings(max_examples=100, deadline=None)
@given(seed=seeds, places=st.lists(st.sampled_from("abc"), min_size=1, max_size=9), size=st.floats(10, 100))
def test_a_rival_is_of_another_place_and_not_much_smaller(seed, places, size):
    rng = np.random.default_rng(seed)
    looks = Looks(rng.uniform(0, 255, (len(places), 3)), rng.uniform(5, 60, len(places)), np.array(places))
    fit = [i for i, p in enumerate(places) if p != places[0] and looks.sizes[i] >= LEAST_SIZE * size]
    chosen = looks.rival(rng, 0, size)
    assert chosen in fit if fit else chosen is None


@pytest.fixture
def steady(monkeypatch):
    """Windows right on their object without any camera effect; frame 1 misses the target."""
    monkeypatch.setattr(footage, "Camera", StillCamera)
    monkeypatch.setattr(footage, "WHOLE_IMAGE_SHARE", 0.0)
    monkeypatch.setattr(footage, "KEPT_INSIDE_SHARE", 0.0)
    monkeypatch.setattr(footage, "draw_path", lambda rng, frames, *_: looking_away(frames, 1))


def red(clip: Footage) -> Footage:
    for frame, mask in zip(clip.frames, clip.tracks[0], strict=True):
        frame[mask > 0] = RED
    return clip


def red_middle(image: np.ndarray) -> np.ndarray:
    """Mean place of the red pixels, from the window's middle, in window sides."""
    rows, columns = np.nonzero((image[..., 0] > 150) & (image[..., 1] < 90))
    assert len(rows) > 100
    return np.array([columns.mean(), rows.mean()]) / (len(image) - 1) - 0.5


def rival_clips(sampler: FootageSampler | PhotographSampler):
    """Clips of the bright target whose frame 1 shows the red rival."""
    drawn = [sampler.clip(np.random.default_rng(seed), 3, SIDE) for seed in range(40)]
    clips = [raw for raw in drawn if raw.images[0][raw.masks[0] > 200].min() > 100]
    assert len(clips) > 5
    return clips


def test_a_rival_of_another_photograph_is_in_the_middle_and_has_no_mask(steady):
    other = bright_photograph("other")
    other.rgb[other.labels == 1] = RED
    moved = Photograph(*(np.roll(array, (35, 45), (0, 1)) for array in (other.rgb, other.labels)), "other")
    material = Material(photographs=[bright_photograph("own"), moved])
    for raw in rival_clips(PhotographSampler(material, RIVALS_ONLY)):
        assert np.abs(red_middle(raw.images[1])).max() < 0.25
        assert not raw.masks[1].any()
        assert raw.ignored is not None
        assert not raw.ignored[1].any()


def test_beside_a_rival_of_its_own_scene_the_target_keeps_its_mask(steady):
    """Both are so near that the window of one shows a part of the other."""
    clip = bright_footage("plaza", size=(200, 120))
    second = [np.roll(mask, 50, axis=1) for mask in clip.tracks[0]]
    for frame, mask in zip(clip.frames, second, strict=True):
        frame[mask > 0] = RED
    clip.tracks.append(second)
    shown = 0
    for raw in rival_clips(FootageSampler(Material(footage=[clip]), RIVALS_ONLY)):
        image = raw.images[1].astype(int)
        assert np.abs(red_middle(raw.images[1])).max() < 0.25
        white = image[..., 1] > 150
        assert (white == (raw.masks[1] > 127)).mean() > 0.98
        shown += bool(white.any())
    assert shown > 0
