"""Losses of one frame: masks (focal, dice, extents), predicted IoU and presence."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

FOCAL_WEIGHT, DICE_WEIGHT, EXTENT_WEIGHT = 6.0, 1.0, 1.0
OBJECT_WEIGHT = 4.0  # added to the weight of object pixels, because most of a window is background
IOU_WEIGHT, PRESENCE_WEIGHT = 0.5, 0.5
ABSENT_WEIGHT = 2.0  # weight of frames without the target, which are rare
OTHERS_WEIGHT = 0.05  # weight of the candidates other than the best, so that all get gradients


class FrameLoss(NamedTuple):
    """Losses of one frame: sums over the batch's clips divided by the number of clips.

    ``iou_of``: [B,4], true overlaps of the candidates' masks, without gradient.
    """

    mask: Tensor
    iou: Tensor
    presence: Tensor
    iou_of: Tensor

    @property
    def total(self) -> Tensor:
        return self.mask + IOU_WEIGHT * self.iou + PRESENCE_WEIGHT * self.presence


def frame_loss(
    masks: Tensor,
    ious: Tensor,
    presence: Tensor,
    target: Tensor,
    valid: Tensor,
    present: Tensor,
    several: Tensor,
) -> FrameLoss:
    """Return the losses of one frame. Frames without the target contribute only to the presence loss.

    Args:
        masks: [B,4,h,w] logits.
        ious: [B,4] logits.
        presence: [B] logits.
        target: [B,h,w], covered share 0..1.
        valid: [B,h,w] bool; other pixels are ignored.
        present: [B], 0 or 1.
        several: [B] bool. True: candidates 1 to 3 compete, and the best is trained (as in SAM). False: only
            candidate 0 is trained.
    """
    each = mask_losses(masks, target, valid)
    best = each[:, 1:].min(1).values + OTHERS_WEIGHT * each[:, 1:].mean(1)
    mask = torch.where(several, best, each[:, 0])
    true = true_ious(masks.detach(), target, valid)
    iou = (torch.sigmoid(ious) - true).abs().mean(1)
    count = len(present)
    return FrameLoss(
        mask=(mask * present).sum() / count,
        iou=(iou * present).sum() / count,
        presence=F.binary_cross_entropy_with_logits(
            presence, present, weight=present + ABSENT_WEIGHT * (1 - present)
        ),
        iou_of=true,
    )


def mask_losses(logits: Tensor, target: Tensor, valid: Tensor) -> Tensor:
    """Return the mask losses [B,K] of logits [B,K,h,w] against coverages ``target`` [B,h,w].

    They are the weighted sum of the focal loss (Lin et al., 2017), the dice loss (Milletari et al., 2016),
    and the dice loss of the row and column maxima, whose extents are the box. The focal loss has exponent 1
    and soft targets, so that the zero crossing may lie inside an edge pixel.
    """
    soft, known = target.unsqueeze(1), valid.unsqueeze(1).to(logits.dtype)
    probability = torch.sigmoid(logits)
    entropy = F.binary_cross_entropy_with_logits(logits, soft.expand_as(logits), reduction="none")
    weight = (probability.detach() - soft).abs() * (1 + OBJECT_WEIGHT * soft) * known
    focal = (weight * entropy).mean((2, 3))
    probability, soft = probability * known, (soft * known).expand_as(logits)
    extents = dice(probability.amax(2), soft.amax(2), (2,)) + dice(probability.amax(3), soft.amax(3), (2,))
    return FOCAL_WEIGHT * focal + DICE_WEIGHT * dice(probability, soft, (2, 3)) + EXTENT_WEIGHT * extents


def dice(a: Tensor, b: Tensor, axes: tuple[int, ...]) -> Tensor:
    """Return 1 minus the soft dice coefficient over ``axes``; 0 if both are empty."""
    return 1 - (2 * (a * b).sum(axes) + 1) / ((a * a).sum(axes) + (b * b).sum(axes) + 1)


def true_ious(logits: Tensor, target: Tensor, valid: Tensor) -> Tensor:
    """Return the IoU of the binary masks, [B,K]; an empty union counts as 1 px."""
    drawn, wanted = (logits > 0) & valid.unsqueeze(1), ((target > 0.5) & valid).unsqueeze(1)
    overlap = (drawn & wanted).sum((2, 3)).to(logits.dtype)
    return overlap / (drawn | wanted).sum((2, 3)).clamp(min=1)
