"""What the network is told about each frame: masks, overlaps and presence, and what it is not told."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from training.losses import (
    ABSENT_WEIGHT,
    OTHERS_WEIGHT,
    frame_loss,
    mask_losses,
    true_ious,
)

SIDE = 48
SURE = 30.0
"""A logit whose probability is 0 or 1."""


def box_mask(left: int, top: int, right: int, bottom: int) -> torch.Tensor:
    """[1,48,48] with ones in the box."""
    mask = torch.zeros(1, SIDE, SIDE)
    mask[:, top:bottom, left:right] = 1
    return mask


TARGET = box_mask(10, 12, 30, 26)
EVERYWHERE = torch.ones(1, SIDE, SIDE, dtype=torch.bool)


def certain(mask: torch.Tensor) -> torch.Tensor:
    """Logits [B,1,48,48] that say this mask and nothing else."""
    return (2 * SURE * mask - SURE).unsqueeze(1)


def loss_of(logits: torch.Tensor, target: torch.Tensor = TARGET, valid: torch.Tensor = EVERYWHERE) -> float:
    return float(mask_losses(logits, target, valid))


def losses(masks, ious=None, presence=None, present=1.0, several=False, target=TARGET, valid=EVERYWHERE):
    """frame_loss of one clip."""
    return frame_loss(
        masks,
        torch.zeros(1, 4) if ious is None else ious,
        torch.zeros(1) if presence is None else presence,
        target,
        valid,
        torch.tensor([present]),
        torch.tensor([several]),
    )


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


# Masks


def test_a_perfect_mask_costs_nothing():
    assert loss_of(certain(TARGET)) == pytest.approx(0, abs=1e-5)


def test_the_further_off_a_mask_is_the_more_it_costs():
    shifted = [loss_of(certain(torch.roll(TARGET, shift, 2))) for shift in range(0, 22, 3)]
    assert shifted == sorted(shifted)
    assert min(b - a for a, b in pairwise(shifted)) > 0.05


def test_an_edge_pixel_that_is_half_covered_wants_a_logit_of_zero():
    half = TARGET.clone()
    half[0, 12:26, 30] = 0.5
    costs = {}
    for logit in (-3.0, 0.0, 3.0):
        logits = certain(TARGET)
        logits[0, 0, 12:26, 30] = logit
        costs[logit] = loss_of(logits, target=half)
    assert costs[0.0] < costs[-3.0]
    assert costs[0.0] < costs[3.0]


def test_the_box_counts_besides_the_area():
    """Two masks with as many pixels too many; one of them keeps the box."""
    target = TARGET.clone()
    target[0, 12:16, 10:15] = 0
    longer = target.clone()
    longer[0, 18, 28:48] = 1
    longer[0, 19, 30:32] = 1
    assert (TARGET - target).sum() == (longer - target).sum() == 20
    assert loss_of(certain(TARGET), target) + 0.1 < loss_of(certain(longer), target)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_ignored_pixels_have_no_influence(seed):
    valid = noise(1, SIDE, SIDE, seed=seed) > 0.3
    logits = noise(1, 4, SIDE, SIDE, seed=seed + 1).requires_grad_()
    loss = mask_losses(logits, TARGET, valid)
    loss.sum().backward()
    unknown = ~valid.unsqueeze(1).expand_as(logits)
    assert not logits.grad[unknown].any()
    assert logits.grad[~unknown].any()
    other = torch.where(unknown, 7 * noise(1, 4, SIDE, SIDE, seed=seed + 2), logits)
    elsewhere = torch.where(valid, TARGET, 1 - TARGET)
    assert torch.allclose(mask_losses(other, TARGET, valid), loss)
    assert torch.allclose(mask_losses(logits, elsewhere, valid), loss)
    assert torch.equal(true_ious(other, elsewhere, valid), true_ious(logits, TARGET, valid))


def test_every_candidate_and_clip_is_judged_by_itself():
    logits, targets = noise(2, 4, SIDE, SIDE), torch.cat([TARGET, box_mask(0, 0, 9, 9)])
    together = mask_losses(logits, targets, EVERYWHERE.expand(2, -1, -1))
    assert together.shape == (2, 4)
    for clip in range(2):
        for candidate in range(4):
            alone = mask_losses(logits[clip, candidate][None, None], targets[clip : clip + 1], EVERYWHERE)
            assert float(together[clip, candidate]) == pytest.approx(float(alone), rel=1e-5)


# Overlaps


def test_overlaps_by_hand():
    target = box_mask(0, 0, 10, 10)
    drawn = [box_mask(0, 0, 10, 10), box_mask(5, 0, 15, 10), box_mask(0, 0, 10, 5), box_mask(20, 20, 30, 30)]
    logits = torch.cat([certain(mask) for mask in drawn], 1)
    assert true_ious(logits, target, EVERYWHERE)[0].tolist() == pytest.approx([1, 50 / 150, 50 / 100, 0])
    left = EVERYWHERE.clone()
    left[:, :, 5:] = False
    assert true_ious(logits, target, left)[0].tolist() == pytest.approx([1, 0, 0.5, 0])


def test_the_overlap_head_is_taught_the_overlaps_that_are():
    drawn = [TARGET, torch.roll(TARGET, 5, 2), torch.roll(TARGET, 10, 2), torch.zeros_like(TARGET)]
    masks = torch.cat([certain(mask) for mask in drawn], 1)
    true = true_ious(masks, TARGET, EVERYWHERE)
    assert true[0].tolist() == pytest.approx([1, 15 / 25, 10 / 30, 0])
    right = losses(masks, ious=torch.logit(true, eps=1e-6))
    assert float(right.iou) == pytest.approx(0, abs=1e-5)
    assert torch.equal(right.iou_of, true)
    wrong = losses(masks, ious=torch.full((1, 4), -SURE))
    assert float(wrong.iou) == pytest.approx(float(true.mean()), abs=1e-5)


def test_what_the_overlap_head_learns_does_not_move_the_masks():
    masks, ious = noise(1, 4, SIDE, SIDE).requires_grad_(), torch.zeros(1, 4, requires_grad=True)
    losses(masks, ious=ious).iou.backward()
    assert masks.grad is None
    assert ious.grad.abs().min() > 0


# The frame


def test_frames_without_the_target_teach_presence_only():
    masks, ious = noise(1, 4, SIDE, SIDE).requires_grad_(), torch.zeros(1, 4, requires_grad=True)
    presence = torch.tensor([0.4], requires_grad=True)
    empty = torch.zeros_like(TARGET)
    absent = losses(masks, ious, presence, present=0.0, several=True, target=empty)
    assert absent.mask.item() == absent.iou.item() == 0
    absent.total.backward()
    assert not masks.grad.any()
    assert not ious.grad.any()
    assert float(presence.grad) > 0  # downwards is cheaper


def test_presence_by_hand():
    """Cross entropy; frames without the target, the rarer ones, weigh more."""
    masks = noise(1, 4, SIDE, SIDE)
    there = losses(masks, presence=torch.tensor([1.5])).presence
    gone = losses(masks, presence=torch.tensor([1.5]), present=0.0).presence
    assert float(there) == pytest.approx(math.log(1 + math.exp(-1.5)))
    assert float(gone) == pytest.approx(ABSENT_WEIGHT * math.log(1 + math.exp(1.5)))


def test_a_batch_costs_the_mean_of_its_clips():
    masks, ious, presence = noise(3, 4, SIDE, SIDE), noise(3, 4), noise(3)
    targets = torch.cat([TARGET, torch.zeros_like(TARGET), box_mask(1, 1, 9, 9)])
    valid, present = noise(3, SIDE, SIDE) > -1, torch.tensor([1.0, 0.0, 1.0])
    several = torch.tensor([True, True, False])
    inputs = (masks, ious, presence, targets, valid, present, several)
    together = frame_loss(*inputs)
    alone = [frame_loss(*(x[i : i + 1] for x in inputs)) for i in range(3)]
    for part in ("mask", "iou", "presence", "total"):
        mean = sum(float(getattr(one, part)) for one in alone) / 3
        assert float(getattr(together, part)) == pytest.approx(mean, rel=1e-5)


# Which candidate learns


def gradients(several: bool) -> list[float]:
    """How much each of four candidates is moved; the third is the best of the alternatives."""
    drawn = [torch.roll(TARGET, shift, 2) for shift in (9, 9, 2, 14)]
    masks = torch.cat([3 * certain(mask) / SURE for mask in drawn], 1).requires_grad_()
    losses(masks, several=several).mask.backward()
    return masks.grad.abs().sum((0, 2, 3)).tolist()


def test_of_three_alternatives_the_best_learns_and_the_others_stay_alive():
    single, first, best, last = gradients(several=True)
    assert single == 0
    assert 0 < first < 0.2 * best
    assert 0 < last < 0.2 * best
    assert OTHERS_WEIGHT < 0.1


def test_where_one_answer_is_meant_the_first_candidate_alone_learns():
    single, *others = gradients(several=False)
    assert single > 0
    assert others == [0, 0, 0]
