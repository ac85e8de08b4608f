"""Runs the network over a batch of clips as in tracking.

The first frame has a prompt. Later frames use memory, in which predicted masks are stored.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from efftam_workshop.model.compact.network import CompactTAM
from training.clips import Clip
from training.likeness import is_ranked_first, likeness_loss, pooled
from training.losses import FrameLoss, frame_loss
from training.memory_faults import MemoryFaults

DROPPED_SHARE = 0.15  # share of past frames that are left out, drawn again for each frame
LIKENESS_WEIGHT = 0.1
MAX_RECENT = 4  # largest number of past frames used besides the prompted one
CLICK = 1


@dataclass
class Unrolled:
    """Losses per frame, and scores for validation; each list has one entry per frame, n in all.

    Attributes:
        overlap: [n,B], IoU of the chosen mask with the truth.
        says_present: [n,B], presence logits.
        present: [n,B], 1 if the target is present, else 0.
        likeness: Loss of each frame after the first; empty in validation.
        likest: [n,B], whether the cell most similar to the target overlaps the target.
    """

    losses: list[FrameLoss] = field(default_factory=list)
    overlap: list[Tensor] = field(default_factory=list)
    says_present: list[Tensor] = field(default_factory=list)
    present: list[Tensor] = field(default_factory=list)
    likeness: list[Tensor] = field(default_factory=list)
    likest: list[Tensor] = field(default_factory=list)

    @property
    def total(self) -> Tensor:
        loss = torch.stack([loss.total for loss in self.losses]).mean()
        return loss + LIKENESS_WEIGHT * torch.stack(self.likeness).mean() if self.likeness else loss


def unroll(
    network: CompactTAM, clip: Clip, rng: np.random.Generator | None = None, memory_faults: float = 0.0
) -> Unrolled:
    """Run ``network`` over a batch of clips and return losses and scores.

    ``rng``: for training; drops past frames and draws their temporal rows at random, so that short clips
    train all rows. Without ``rng`` the most recent frames get the rows that the tracker assigns.
    ``memory_faults``: share of clips that store wrong masks in memory for a few frames.
    """
    batch, frames = clip.images.shape[:2]
    faults = MemoryFaults(batch, frames, memory_faults, rng)
    features = network.image_encoder(normalised(network, clip.images.flatten(0, 1)))
    every = [x.unflatten(0, (batch, frames)) for x in features]
    true_masks = clip.masks.float() / 255
    prompted_row = network.spec.temporal_rows - 1
    rows = _rows(prompted_row, rng)
    position = network.prompt_encoder.grid_position
    nothing = network.prompt_encoder(
        torch.zeros_like(clip.points),
        torch.full_like(clip.labels, -1),
        torch.zeros_like(clip.prompt_mask, dtype=torch.float32).unsqueeze(1),
        torch.zeros_like(clip.has_mask),
    )
    maps: list[Tensor] = []
    pointers: list[Tensor] = []
    out = Unrolled()
    for t in range(frames):
        is_first = t == 0
        coarse, middle, fine = (x[:, t] for x in every)
        masks, valid, present = true_masks[:, t], clip.valid[:, t], clip.present[:, t]
        if is_first:
            prompt_mask = clip.prompt_mask.float().unsqueeze(1)
            prompt = network.prompt_encoder(clip.points, clip.labels, prompt_mask, clip.has_mask)
            conditioned = coarse + network.no_memory
        else:
            prompt = nothing
            used, ages = _recent(t, rng)
            chosen_rows = torch.tensor([prompted_row] + [rows[age] for age in ages], device=coarse.device)
            conditioned = network.memory_attention(
                coarse,
                torch.stack([maps[i] for i in used], 1),
                chosen_rows,
                torch.stack([pointers[i] for i in used], 1),
                None,
            )
        sparse, dense, raster = prompt
        logits, ious, says_present, candidates = network.mask_decoder(
            conditioned + dense, network.mask_decoder.opened(sparse), position, middle, fine
        )
        if is_first:
            templates = pooled(coarse, masks)
        out.likest.append(is_ranked_first(templates, coarse.detach(), masks))
        if rng is not None and not is_first:
            out.likeness.append(likeness_loss(templates, coarse, masks, valid))
        several = (
            (clip.labels == CLICK).any(1) if is_first else torch.ones_like(clip.has_mask, dtype=torch.bool)
        )
        loss = frame_loss(logits, ious, says_present, masks, valid, present, several)
        out.losses.append(loss)
        choice = torch.where(several, 1 + ious[:, 1:].argmax(1), 0)
        each = torch.arange(batch, device=choice.device)
        mask, pointer = logits[each, choice].unsqueeze(1), candidates[each, choice]
        # A mask prompt is stored in memory unchanged.
        given = (clip.has_mask > 0.5).reshape(-1, 1, 1, 1) & is_first
        mask = torch.where(given, 40 * masks.unsqueeze(1) - 20, mask)
        seen = torch.ones_like(present) if is_first else (says_present > 0).float()
        if not is_first:
            mask, pointer = faults.stored(t, logits, candidates, choice, mask, pointer)
        stored, pointer = remember(network, coarse, mask, seen, pointer, raster if is_first else None)
        maps.append(stored)
        pointers.append(pointer)
        out.overlap.append(loss.iou_of[each, choice])
        out.says_present.append(says_present.detach())
        out.present.append(present)
    return out


def remember(
    network: CompactTAM,
    features: Tensor,
    mask_logits: Tensor,
    present: Tensor,
    pointer: Tensor,
    prompt_raster: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Return memory maps [B,N,M] and pointers [B,C] to store.

    ``features`` [B,C,G,G], ``mask_logits`` [B,1,4G,4G], ``present`` [B], ``pointer`` [B,C]. With
    ``prompt_raster`` [B,1,4G,4G] the frame counts as prompted.
    """
    binarize = torch.full_like(present, 0.0 if prompt_raster is None else 1.0)
    return network.encode_memory(features, mask_logits, present, binarize, pointer, prompt_raster)


def normalised(network: CompactTAM, images: Tensor) -> Tensor:
    """Convert images uint8 [n,3,S,S] RGB to the network's input."""
    spec = network.spec
    mean = torch.tensor(spec.image_mean, device=images.device).reshape(1, 3, 1, 1)
    std = torch.tensor(spec.image_std, device=images.device).reshape(1, 3, 1, 1)
    scaled = (images.float() / 255 - mean) / std
    return scaled.contiguous(memory_format=torch.channels_last)


def _rows(recent_rows: int, rng: np.random.Generator | None) -> list[int]:
    """Return the temporal row for each age of a past frame; ``recent_rows``: number of possible rows."""
    rows = np.arange(recent_rows)
    return [int(r) for r in (rows if rng is None else np.sort(rng.permutation(rows)[: MAX_RECENT + 1]))]


def _recent(frame: int, rng: np.random.Generator | None) -> tuple[list[int], list[int]]:
    """Return the used frames in memory, the prompted one first, and the ages of the others.

    The youngest frame has the age 0. Without ``rng`` the most recent frames are used.
    """
    past = list(range(frame - 1, 0, -1))
    if rng is not None:
        past = [i for i in past if rng.random() >= DROPPED_SHARE]
    past = past[:MAX_RECENT]
    return [0, *past], list(range(len(past)))
