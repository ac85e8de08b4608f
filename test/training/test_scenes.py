"""Scenes with disappearances: the truth is true, the promises are kept, the seed decides everything."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from scene_helpers import Backdrop, Sprite, backdrops, sprites

from training.scene_film import Scene, SceneFrame
from training.scenes import render_scene

SPRITES, BACKDROPS = sprites(), backdrops()
FPS = 30.0
SEEDS = range(12)


@pytest.fixture(scope="module")
def scenes() -> list[Scene]:
    return [render_scene(SPRITES, BACKDROPS, seed) for seed in SEEDS]


@pytest.fixture(scope="module")
def frames(scenes: list[Scene]) -> list[SceneFrame]:
    """All frames of a scene whose target is hidden by something on the ground."""
    scene = next(s for s in scenes if s.disappearances[0].kind == "occluder")
    return list(scene)


def shares(scene: Scene) -> np.ndarray:
    return np.array([t.share for t in scene.truth])


# ---- truth of a frame --------------------------------------------------------------------------------------


def test_the_box_is_that_of_the_visible_mask(frames):
    for frame in frames:
        ys, xs = np.nonzero(frame.mask)
        if frame.box is None:
            assert not len(ys)
        else:
            edges = (xs.min(), ys.min(), xs.max() + 1, ys.max() + 1)
            assert frame.box.edges() == pytest.approx(edges)


def test_the_share_is_what_is_visible_of_the_whole_outline(frames):
    """In full view mask and outline agree; half hidden the mask has about half of the pixels."""
    whole = [np.count_nonzero(f.mask) for f in frames if f.share > 0.999]
    assert np.ptp(whole) < 0.4 * np.median(whole)  # zoom
    for frame in frames:
        expected = frame.share * np.median(whole)
        assert abs(np.count_nonzero(frame.mask) - expected) < 0.25 * np.median(whole)
        if frame.share > 0.999:
            assert frame.box.edges() == pytest.approx(frame.outline.edges())


def test_the_target_is_where_the_truth_says(frames):
    """A cut-out darker than any ground: the masked pixels of the picture are darker than those around."""
    for frame in frames[::10]:
        if frame.share > 0.999:
            x0, y0, x1, y1 = (int(v) for v in frame.outline.edges())
            around = frame.bgr[y0:y1, x0:x1][~frame.mask[y0:y1, x0:x1]]
            if len(around) > 30:
                assert np.median(frame.bgr[frame.mask]) + 20 < np.median(around)


# ---- promises ----------------------------------------------------------------------------------------------


def test_the_target_disappears_once_or_twice_for_a_third_to_three_seconds(scenes):
    kinds = set()
    for scene in scenes:
        assert 6 * FPS <= len(scene) <= 10 * FPS
        assert 1 <= len(scene.disappearances) <= 2
        share = shares(scene)
        gone = np.zeros(len(scene), bool)
        for one in scene.disappearances:
            kinds.add(one.kind)
            assert 0.3 <= (one.last - one.first + 1) / FPS <= 3.0
            assert share[one.first - 1] > 0 < share[one.last + 1]
            gone[one.first : one.last + 1] = True
            assert share[one.back] >= 0.5 > share[one.last + 1 : one.back].max(initial=0)
        assert (gone == (share == 0)).all()
    assert kinds == {"occluder", "border", "passing"}


def test_scenes_are_those_that_earlier_figures_were_measured_on(scenes):
    """Lengths, absences and look-alikes; another digest makes all figures incomparable."""
    found = [
        f"{len(scene)} {scene.look_alike} {one.kind} {one.first} {one.last} {one.back}"
        for scene in scenes
        for one in scene.disappearances
    ]
    assert hashlib.sha256("\n".join(found).encode()).hexdigest()[:16] == "f7d9523af9dd6621"


# ---- the seed ----------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_pixels_and_another_seed_others(scenes):
    again = render_scene(SPRITES, BACKDROPS, 3)
    assert len(again) == len(scenes[3])
    pairs = [(scenes[3].frame(index), again.frame(index)) for index in range(0, len(again), 20)]
    assert all(np.array_equal(a.bgr, b.bgr) and a.box == b.box and a.others == b.others for a, b in pairs)
    other = next(iter(scenes[4]))
    assert not np.array_equal(pairs[0][0].bgr, other.bgr)


@pytest.mark.parametrize(
    ("cut_outs", "photographs", "size", "words"),
    [
        (SPRITES, BACKDROPS, (640, 200), "640x200"),
        (SPRITES, BACKDROPS[:1], (640, 480), "1 backdrops"),
        ([], BACKDROPS, (640, 480), "0 cut-outs"),
        ([Sprite(np.full((100, 5, 4), 255, np.uint8), "stick", "photo")], BACKDROPS, (640, 480), "solid"),
    ],
)
def test_what_cannot_make_a_scene_is_refused(cut_outs, photographs: list[Backdrop], size, words):
    with pytest.raises(ValueError, match=words):
        render_scene(cut_outs, photographs, 0, size=size)
