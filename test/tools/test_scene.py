"""The synthetic drone scene: the same from the same seed, and truth that fits the pixels below a pixel."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box
from efftam_ros.tools.eval.sequences import find_sequences
from efftam_ros.tools.scene.render import SceneFrame, render_scene, write_scene
from efftam_ros.tools.scene.terrain import SUN, _bridge, _fields

SMALL = (320, 180)


FRAMES = 90


@pytest.fixture(scope="module")
def small() -> list[SceneFrame]:
    return list(render_scene(seed=7, frames=FRAMES, size=SMALL))


def hidden(frames: list[SceneFrame]) -> list[int]:
    return [i for i, frame in enumerate(frames) if frame.box is None]


def test_the_same_seed_gives_the_same_pixels(small: list[SceneFrame]):
    for a, b in zip(small, itertools.islice(render_scene(7, FRAMES, SMALL), 5), strict=False):
        assert np.array_equal(a.bgr, b.bgr)
        assert a.box == b.box
        assert np.array_equal(a.mask, b.mask)
    (other,) = render_scene(8, 1, SMALL)
    assert not np.array_equal(small[0].bgr, other.bgr)


def test_box_and_mask_agree(small: list[SceneFrame]):
    for frame in small:
        assert frame.bgr.shape == (*SMALL[::-1], 3)
        assert frame.bgr.dtype == np.uint8
        assert frame.mask.any() == (frame.box is not None)
        if frame.box is not None:
            rows, columns = np.nonzero(frame.mask)
            of_mask = (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
            # Round corners: a pixel that is mostly outside may be all that the extreme touches.
            assert np.abs(np.subtract(of_mask, frame.box.edges())).max() < 1.5


def test_the_box_is_exact_below_a_pixel():
    """Its centre is that of the drawn car, and its edges lie between pixels."""
    frame = next(iter(render_scene(seed=7, frames=1, size=(1280, 720))))
    assert frame.box is not None
    assert any(abs(v - round(v)) > 0.05 for v in frame.box.edges())
    area = 50 * 22 - (4 - np.pi) * 7**2  # rounded corners
    assert np.sqrt(frame.mask.sum() / area) == pytest.approx(1, abs=0.07)  # the camera's zoom
    centre = np.array([frame.box.cx, frame.box.cy])
    rows, columns = np.nonzero(frame.mask)
    assert np.hypot(*(centre - (columns.mean() + 0.5, rows.mean() + 0.5))) < 0.15


def test_the_red_of_the_car_lies_in_its_mask(small: list[SceneFrame]):
    for frame in small[::15]:
        if frame.box is None:
            continue
        inside = frame.bgr[frame.mask].astype(int)
        assert np.median(inside[:, 2] - inside[:, 1]) > 40


def test_the_target_passes_an_identical_car_that_is_whole_and_not_in_its_mask(small: list[SceneFrame]):
    frame = small[round(0.4 * FRAMES)]
    assert frame.box is not None
    red = frame.bgr[..., 2].astype(int) - frame.bgr[..., 1] > 40
    rows, columns = np.nonzero(red & ~frame.mask)
    near = np.hypot(columns - frame.box.cx, rows - frame.box.cy) < SMALL[0] / 7
    assert near.sum() == pytest.approx(red[frame.mask].sum(), rel=0.2)


def test_the_target_moves_smoothly(small: list[SceneFrame]):
    whole = [f.box for f in small[: hidden(small)[0] - 20]]
    centres = np.array([(box.cx, box.cy) for box in whole if box is not None])
    assert np.abs(np.diff(centres, n=2, axis=0)).max() < 1.0


def test_the_bridge_hides_it_around_two_thirds_for_some_tenths_of_a_second(small: list[SceneFrame]):
    gone = hidden(small)
    assert gone == list(range(gone[0], gone[-1] + 1))
    assert 0.2 <= len(gone) / 30 <= 0.6
    assert np.mean(gone) / len(small) == pytest.approx(2 / 3, abs=0.05)


def test_it_is_covered_step_by_step(small: list[SceneFrame]):
    first = hidden(small)[0]
    areas = [small[i].mask.sum() for i in range(first - 8, first)]
    assert areas == sorted(areas, reverse=True)
    assert areas[-1] < 0.6 * areas[0]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_darkest_of_the_fields_are_green_hedges(seed: int):
    """Blue 33 to 40, green 70 to 83, red 49 to 65, depending on the crop."""
    fields = _fields(np.random.default_rng(seed), 900, 700).astype(int)
    brightness = fields.sum(axis=2)
    blue, green, red = np.median(fields[brightness < np.quantile(brightness, 0.01)], axis=0)
    assert 30 <= blue < red < green <= 90


def test_the_bridge_casts_its_shadow_away_from_the_sun():
    """By 26 px on the ground, as the shadows of houses and trees."""
    line = np.stack([np.full(60, 300.0), np.linspace(0, 599, 60)], axis=1)
    _, light = _bridge(np.random.default_rng(0), line, 600, 600)
    columns = np.nonzero(light < 190)[1]
    assert columns.mean() - 300 == pytest.approx(26 * SUN[0], abs=1)


@pytest.mark.parametrize("seed", [1, 2])
def test_every_seed_keeps_the_target_in_the_picture(seed: int):
    picture = Box(0, 0, 160, 90)
    for frame in render_scene(seed, 120, (160, 90)):
        if frame.box is not None:
            assert frame.box == frame.box.clipped(picture.width, picture.height)


def test_sizes_and_lengths_out_of_range():
    with pytest.raises(InputError, match="20x20"):
        render_scene(size=(20, 20))
    with pytest.raises(InputError, match="0 frames"):
        render_scene(frames=0)


def test_it_becomes_one_of_our_sequences(small: list[SceneFrame], tmp_path: Path):
    frames = small[:70]
    write_scene(tmp_path / "scene", frames)
    (sequence,) = find_sequences(tmp_path / "scene")
    assert len(sequence) == 70
    assert sequence.boxes[0] == pytest.approx(frames[0].box.xywh(), abs=1e-3)
    assert np.isnan(sequence.boxes[hidden(frames)[0]]).all()
    assert np.array_equal(sequence.mask(10), frames[10].mask)
    shown = next(iter(sequence.frames())).bgr.astype(int)
    assert np.abs(shown - frames[0].bgr).mean() < 8
