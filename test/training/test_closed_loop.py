"""Windows that follow the model's boxes: what they cut, where they go, how wide they become."""

from __future__ import annotations

import math

import pytest
import torch

from training.closed_loop import FOLLOW, GROWS, NARROWEST, SHRINKS, ClosedWindows, outer_side

OUTER, SIDE, CELLS = 96, 64, 16
CPU = torch.device("cpu")
SEEN = torch.tensor([True])


def windows() -> ClosedWindows:
    return ClosedWindows(1, OUTER, SIDE, CPU)


def box(left: int, top: int, right: int, bottom: int) -> torch.Tensor:
    """Logits [1,CELLS,CELLS] of a filled box."""
    logits = torch.full((1, CELLS, CELLS), -3.0)
    logits[0, top:bottom, left:right] = 3.0
    return logits


def test_the_first_window_is_the_middle_pixel_by_pixel():
    picture = torch.rand(1, 3, OUTER, OUTER, generator=torch.Generator().manual_seed(1))
    inset = (OUTER - SIDE) // 2
    middle = picture[..., inset : inset + SIDE, inset : inset + SIDE]
    assert torch.allclose(windows().cut(picture, SIDE), middle, atol=1e-5)


def test_a_map_of_fewer_cells_is_cut_at_the_same_place():
    cells = torch.rand(1, 1, OUTER // 4, OUTER // 4, generator=torch.Generator().manual_seed(1))
    assert torch.allclose(windows().cut(cells, SIDE // 4), cells[..., 4:20, 4:20], atol=1e-5)


def test_the_window_goes_to_the_boxs_centre():
    w = windows()
    w.follow(
        box(10, 2, 14, 6), SEEN
    )  # centre at cell (12, 4) of 16, 4 px each: 16 px right of the middle, 16 up
    assert w.centre.tolist() == [[OUTER / 2 + 16, OUTER / 2 - 16]]


def test_what_was_under_the_box_is_in_the_middle_of_the_next_window():
    w = windows()
    w.follow(box(9, 5, 11, 7), SEEN)
    w.extent[:] = 40.0
    w.follow(box(3, 11, 5, 13), SEEN)
    x, y = (round(v) for v in w.centre[0].tolist())
    picture = torch.zeros(1, 1, OUTER, OUTER)
    picture[0, 0, y - 1 : y + 1, x - 1 : x + 1] = 1.0
    rows, columns = w.cut(picture, SIDE)[0, 0].nonzero().T
    assert abs(rows.float().mean() - (SIDE / 2 - 0.5)) <= 1
    assert abs(columns.float().mean() - (SIDE / 2 - 0.5)) <= 1


def test_a_box_that_keeps_its_size_keeps_the_window():
    w = windows()
    for _ in range(5):
        w.follow(box(6, 6, 10, 10), SEEN)
    assert w.extent.item() == pytest.approx(SIDE)


def test_a_larger_box_widens_the_window_by_a_share_and_not_at_once():
    w = windows()
    w.follow(box(6, 6, 10, 10), SEEN)
    w.follow(box(5, 6, 10, 10), SEEN)
    assert w.extent.item() == pytest.approx(SIDE * math.sqrt(5 * 4 / 16) ** FOLLOW)
    w.follow(box(0, 0, 16, 16), SEEN)
    assert w.extent.item() == pytest.approx(SIDE * math.sqrt(5 * 4 / 16) ** FOLLOW * GROWS)


def test_a_shrinking_box_narrows_the_window_slowly_and_not_below_its_bound():
    w = windows()
    w.follow(box(4, 4, 12, 12), SEEN)
    w.follow(box(7, 7, 9, 9), SEEN)
    assert w.extent.item() == pytest.approx(SIDE * SHRINKS)
    for _ in range(60):
        w.follow(box(7, 7, 8, 8), SEEN)
    assert w.extent.item() == pytest.approx(SIDE * NARROWEST)


def test_a_window_is_never_wider_than_the_picture():
    w = windows()
    w.follow(box(7, 7, 9, 9), SEEN)
    for _ in range(30):
        w.follow(box(0, 0, 16, 16), SEEN)
    assert w.extent.item() == OUTER


@pytest.mark.parametrize("case", ["nothing drawn", "nothing claimed"])
def test_without_a_box_the_window_stays(case):
    w = windows()
    w.follow(box(10, 2, 14, 6), SEEN)
    before = w.centre.clone(), w.extent.clone()
    is_empty = case == "nothing drawn"
    w.follow(box(0, 0, 0, 0) if is_empty else box(1, 1, 4, 4), SEEN if is_empty else ~SEEN)
    assert torch.equal(w.centre, before[0])
    assert torch.equal(w.extent, before[1])


def test_each_clip_has_its_own_window():
    w = ClosedWindows(2, OUTER, SIDE, CPU)
    w.follow(torch.cat([box(6, 6, 10, 10), box(10, 2, 14, 6)]), torch.tensor([True, True]))
    assert w.centre.tolist() == [[48.0, 48.0], [64.0, 32.0]]


@pytest.mark.parametrize("side", [64, 192, 256])
def test_pictures_have_a_margin_of_whole_mask_cells(side):
    outer = outer_side(side)
    assert outer >= 1.5 * side
    assert (outer - side) % 8 == 0
