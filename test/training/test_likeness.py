"""The likeness loss: features that point to the target, and to nothing else, cost nothing."""

from __future__ import annotations

import pytest
import torch

from training.likeness import is_ranked_first, likeness_loss, pooled

GRID, CHANNELS = 6, 4
EVERYWHERE = torch.ones(2, 4 * GRID, 4 * GRID, dtype=torch.bool)


def unit(index: int) -> torch.Tensor:
    return torch.eye(CHANNELS)[index]


def features(*places: tuple[int, int], of: int = 0, elsewhere: int = 1) -> torch.Tensor:
    """[1,C,G,G]: direction ``of`` at these cells (row, column), ``elsewhere`` at all others."""
    out = unit(elsewhere).reshape(1, -1, 1, 1).repeat(1, 1, GRID, GRID)
    for row, column in places:
        out[0, :, row, column] = 7 * unit(of)
    return out


def mask(row: int, column: int, cells: float = 1.0) -> torch.Tensor:
    """[1,4G,4G]: a square of ``cells`` stride-16 cells from the upper left of this one."""
    out = torch.zeros(1, 4 * GRID, 4 * GRID)
    side = round(4 * cells)
    out[0, 4 * row : 4 * row + side, 4 * column : 4 * column + side] = 1.0
    return out


def test_pooled_features_are_the_unit_mean_under_the_mask():
    x = features((2, 3), of=2)
    assert torch.allclose(pooled(x, mask(2, 3)), unit(2).unsqueeze(0))
    half = pooled(x / x.norm(dim=1, keepdim=True), mask(2, 3, 2.0))  # one cell of direction 2, three of 1
    assert half[0, 1].item() == pytest.approx(3 / 10**0.5)
    assert half[0, 2].item() == pytest.approx(1 / 10**0.5)


def test_other_clips_of_the_batch_are_others():
    """Two clips whose targets look the same: each is a look-alike in the other's pictures."""
    x, targets = torch.cat([features((1, 4)), features((1, 4))]), torch.cat([mask(1, 4), mask(1, 4)])
    same = likeness_loss(torch.stack([unit(0), unit(0)]), x, targets, EVERYWHERE)
    apart = torch.cat([features((1, 4), elsewhere=3), features((1, 4), of=2, elsewhere=3)])
    different = likeness_loss(torch.stack([unit(0), unit(2)]), apart, targets, EVERYWHERE)
    assert same > 1.0
    assert different < 0.02


@pytest.mark.parametrize(("place", "is_first"), [((1, 4), True), ((1, 5), False), ((4, 0), False)])
def test_the_target_is_ranked_first_where_the_likest_cell_is_one_it_touches(place, is_first):
    x = features((3, 3), of=2)
    x[0, :, place[0], place[1]] = unit(0) + 0.2 * unit(1)
    found = is_ranked_first(unit(0).unsqueeze(0), x, mask(1, 4, 0.75))
    assert found.tolist() == [is_first]
