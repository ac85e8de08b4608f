"""The crossings that are drawn of footage: who is where, and who hides whom."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.__main__ import main
from benchmarks.crossings import crossing_of, plan
from efftam_ros.images.source import NS, VideoFrame
from efftam_workshop.eval.metrics import overlaps
from efftam_workshop.eval.sequences import Sequence

COUNT, HEIGHT, WIDTH = 31, 120, 240
RED, BLUE = (0, 0, 255), (255, 0, 0)


def standing(name: str, colour: tuple[int, int, int], side: int = 24) -> Sequence:
    """A square of one colour in the middle of a grey video, with its masks."""
    mask = np.zeros((HEIGHT, WIDTH), bool)
    x, y = (WIDTH - side) // 2, (HEIGHT - side) // 2
    mask[y : y + side, x : x + side] = True
    image = np.where(mask[..., None], np.uint8(colour), np.uint8(128))
    frames = [VideoFrame(index, index * NS // 30, image) for index in range(COUNT)]
    return Sequence(
        name, np.tile([x, y, side, side], (COUNT, 1)).astype(float), lambda: iter(frames), lambda _: mask
    )


def crossed(is_in_front: bool) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The images and the true boxes of a red square that a blue one passes, drawn at the red one's size."""
    crossing = crossing_of(standing("red", RED), standing("blue", BLUE, side=48), is_in_front)
    return [frame.bgr for frame in crossing.group[0].frames()], [one.boxes for one in crossing.group]


def test_the_second_object_passes_through_the_first_at_its_size():
    images, (red, blue) = crossed(is_in_front=True)
    assert len(images) == len(red) == len(blue) == COUNT
    iou = overlaps(red, blue)
    assert (iou[0], iou[-1]) == (0, 0)
    assert np.allclose(blue[0, 2:], 24, atol=2)
    assert (blue[0, 0] - red[0, 0]) * (blue[-1, 0] - red[-1, 0]) < 0


@pytest.mark.parametrize("is_in_front", [True, False])
def test_the_one_in_front_hides_the_other_which_has_no_true_box_meanwhile(is_in_front: bool):
    images, boxes = crossed(is_in_front)
    hidden, shown = boxes if is_in_front else boxes[::-1]
    assert np.isnan(hidden[COUNT // 2]).all()
    assert np.isfinite(shown).all()
    assert images[COUNT // 2][HEIGHT // 2, WIDTH // 2].tolist() == list(BLUE if is_in_front else RED)


def test_every_object_is_drawn_into_every_clip_half_of_them_in_front():
    planned = plan([standing(name, RED) for name in "abcd"])
    assert len(planned) == 16
    assert sum(is_in_front for *_, is_in_front in planned) == 8


def test_a_sequence_without_masks_is_refused(tmp_path: Path, capsys):
    (tmp_path / "img").mkdir()
    assert main(["crossings", "--cast", str(tmp_path)]) == 2
    assert "holds no sequence" in capsys.readouterr().err
