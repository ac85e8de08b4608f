"""Harder clips: what is added, and that nothing is where it is not asked for."""

from __future__ import annotations

import hashlib

import cv2
import numpy as np
import pytest
from training_helpers import DARK, bright_footage, bright_material, disc, same

from training.clips import ClipSource
from training.composites import FROM_ABOVE, Compositor
from training.hardness import EASY, Hardness, Sun
from training.material import Backdrop, Material, Sprite
from training.mixture import Mixture

SIDE = 192
# Held-out clips stay as they were


def test_easy_clips_are_those_that_earlier_figures_were_measured_on():
    """The digest was taken before there was any hardness; another one makes all figures incomparable."""
    source = ClipSource(bright_material(), Mixture(), SIDE, EASY)
    digest = hashlib.sha256()
    for index in range(12):
        clip = source.clip(20261121, index, 4)
        digest.update(clip.masks.numpy().tobytes())
        digest.update(clip.points.numpy().tobytes())
    assert digest.hexdigest()[:16] == "0ff0375948b2b27f"


def test_without_hardness_clips_are_easy():
    plain, easy = (ClipSource(bright_material(), Mixture(), SIDE, *more) for more in ((), (EASY,)))
    assert all(same(plain.clip(1, index, 3), easy.clip(1, index, 3)) for index in range(8))


# Shadows


def test_a_shadow_darkens_its_cover_and_nothing_else():
    canvas = np.full((60, 60, 3), 200, np.uint8)
    cover = np.zeros((60, 60), np.uint8)
    cover[20:40, 20:40] = 255
    shaded = Sun(np.zeros(2), darkness=0.6, blur=0.5).darken(canvas, cover)
    assert shaded[25:35, 25:35].mean() == pytest.approx(0.4 * 200, abs=2)
    assert (shaded[:15] == 200).all()
    assert (shaded[:, 45:] == 200).all()


def test_a_target_casts_a_shadow_beside_it_that_is_no_part_of_its_mask():
    """A bright disc alone on even grey ground: what is darker than the ground is shadow."""
    even = np.full((120, 160, 3), 140, np.uint8)
    untinted = Sprite(disc(), "disc", FROM_ABOVE)
    material = Material(sprites=[untinted], backdrops=[Backdrop(even, "even", "aerial")])
    darker, inside = [], []
    for share in (0.0, 1.0):
        compositor = Compositor(material, Hardness(shadows=share))
        found = []
        for seed in range(40):
            raw = compositor.clip(np.random.default_rng(seed), 1, SIDE)
            grey = raw.images[0].mean(2)
            outside = raw.masks[0] == 0
            level = np.median(grey[outside])
            found.append(float((grey[outside] < 0.75 * level).mean()))
            if share and (raw.masks[0] > 250).any():
                inside.append(np.median(grey[raw.masks[0] > 250]) > level)
        darker.append(np.mean([share > 0.002 for share in found]))
    assert darker[1] > darker[0] + 0.4
    assert np.mean(inside) > 0.8  # the disc itself stays bright


# Companions


def test_a_companions_clip_hides_the_target_in_some_frame():
    compositor = Compositor(bright_material(), Hardness(companions=1.0))
    plain = Compositor(bright_material())
    hidden = []
    for drawer in (compositor, plain):
        least = []
        for seed in range(30):
            raw = drawer.clip(np.random.default_rng(seed), 5, SIDE)
            area = (raw.masks > 127).sum((1, 2))
            least.append(area.min() < 0.3 * area.max())
        hidden.append(np.mean(least))
    assert hidden[0] > 0.75
    assert hidden[0] > hidden[1]


# Small targets


def test_a_small_clip_shows_the_same_window_more_coarsely():
    """A chequered ground: at a fraction of the resolution its fine pattern is gone, the target is not."""
    clip = bright_footage()
    board = np.kron(np.indices((30, 40)).sum(0) % 2, np.ones((4, 4)))[..., None] * (90 - DARK) + DARK
    for frame, mask in zip(clip.frames, clip.tracks[0], strict=True):
        frame[mask == 0] = np.broadcast_to(board, frame.shape)[mask == 0].astype(np.uint8)
    material = Material(footage=[clip], sprites=bright_material().sprites, backdrops=[])
    sharpness, areas = [], []
    for hardness in (EASY, Hardness(small=1.0)):
        source = ClipSource(material, Mixture(0, 1, 0), SIDE, hardness)
        shown = [source.clip(4, index, 2) for index in range(25)]
        grey = [one.images[0].float().mean(0).numpy() for one in shown]
        sharpness.append(np.median([np.abs(cv2.Laplacian(g, cv2.CV_32F)).mean() for g in grey]))
        areas.append(np.median([float(one.prompt_mask.sum()) for one in shown]))
    assert sharpness[1] < 0.6 * sharpness[0]
    assert areas[1] == pytest.approx(areas[0], rel=0.35)
