"""Unrolls the network over a batch of clips as in tracking: a prompt, then frames with predicted masks in
memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from efftam_workshop.model.compact.network import CompactTAM
from training.clips import LEAST_SHARE, LEAST_VISIBLE, Clip
from training.closed_loop import ClosedWindows
from training.likeness import is_ranked_first, likeness_loss, pooled
from training.losses import FrameLoss, frame_loss
from training.memory_faults import MemoryFaults

DROPPED_SHARE = 0.15  # share of past frames that are dropped, drawn anew for each frame
LIKENESS_WEIGHT = 0.1
MOST_RECENT = 4  # past frames attended to besides the prompted one
CLICK = 1


@dataclass
class Unrolled:
    """Losses per frame, and figures for validation.

    Attributes:
        overlap: [n,B], of the chosen mask.
        says_present: [n,B] logits.
        present: [n,B].
        likeness: Loss per later frame, in training only.
        likest: [n,B], whether the cell most similar to the target overlaps it.
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


class _Look(NamedTuple):
    """The encoded windows of one frame, and their ground truth.

    Features at strides 16, 8 and 4; ``masks`` 0..1 and ``valid`` [B,S/4,S/4]; ``present`` [B].
    """

    coarse: Tensor
    middle: Tensor
    fine: Tensor
    masks: Tensor
    valid: Tensor
    present: Tensor


class _FixedLooks:
    """The clip's images are the windows: all are encoded at once."""

    def __init__(self, network: CompactTAM, clip: Clip) -> None:
        features = network.image_encoder(normalised(network, clip.images.flatten(0, 1)))
        self._features = [x.unflatten(0, clip.images.shape[:2]) for x in features]
        self._masks, self._clip = clip.masks.float() / 255, clip

    def at(self, frame: int) -> _Look:
        coarse, middle, fine = (x[:, frame] for x in self._features)
        clip = self._clip
        return _Look(
            coarse, middle, fine, self._masks[:, frame], clip.valid[:, frame], clip.present[:, frame]
        )

    def follow(self, mask_logits: Tensor, seen: Tensor) -> None:
        return


class _FollowingLooks:
    """Windows follow the model's boxes in the clip's larger images.

    The target is present if at least the least share of its part in the image lies in the window.
    """

    def __init__(self, network: CompactTAM, clip: Clip) -> None:
        self._network, self._clip, self._side = network, clip, network.spec.side
        outer = clip.images.shape[-1]
        self._windows = ClosedWindows(len(clip.images), outer, self._side, clip.images.device)

    def at(self, frame: int) -> _Look:
        clip, low = self._clip, self._side // 4
        pictures = self._windows.cut(clip.images[:, frame].float(), self._side)
        coarse, middle, fine = self._network.image_encoder(normalised(self._network, pictures))
        whole = clip.masks[:, frame].float() / 255
        masks = self._windows.cut(whole.unsqueeze(1), low)[:, 0]
        valid = self._windows.cut(clip.valid[:, frame].float().unsqueeze(1), low, "nearest")[:, 0] > 0.5
        # Black outside the images.
        valid |= self._windows.cut(torch.ones_like(whole).unsqueeze(1), low, "nearest")[:, 0] < 0.5
        cell = (4 * self._windows.extent / self._side) ** 2
        shown = (masks > 0.5).sum((1, 2)) * cell
        everything = 16 * (whole > 0.5).sum((1, 2))
        is_enough = (shown > LEAST_SHARE * everything) & ((masks > 0.5).sum((1, 2)) * 16 > LEAST_VISIBLE)
        present = clip.present[:, frame] * is_enough.float()
        return _Look(coarse, middle, fine, masks * present.reshape(-1, 1, 1), valid, present)

    def follow(self, mask_logits: Tensor, seen: Tensor) -> None:
        self._windows.follow(mask_logits, seen)


def unroll(
    network: CompactTAM, clip: Clip, rng: np.random.Generator | None = None, memory_faults: float = 0.0
) -> Unrolled:
    """One pass over a batch of clips.

    ``rng`` drops past frames and draws their temporal rows at random, so that short clips train all rows;
    without it the most recent frames get the rows that the tracker assigns. ``memory_faults``: share of the
    clips that remember something wrong for a few frames.
    """
    batch, frames = clip.images.shape[:2]
    faults = MemoryFaults(batch, frames, memory_faults, rng)
    is_closed = clip.images.shape[-1] != network.spec.side
    looks = _FollowingLooks(network, clip) if is_closed else _FixedLooks(network, clip)
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
        look = looks.at(t)
        if is_first:
            prompt_mask = clip.prompt_mask.float().unsqueeze(1)
            prompt = network.prompt_encoder(clip.points, clip.labels, prompt_mask, clip.has_mask)
            conditioned = look.coarse + network.no_memory
        else:
            prompt = nothing
            used, ages = _recent(t, rng)
            chosen_rows = torch.tensor(
                [prompted_row] + [rows[age] for age in ages], device=look.coarse.device
            )
            conditioned = network.memory_attention(
                look.coarse,
                torch.stack([maps[i] for i in used], 1),
                chosen_rows,
                torch.stack([pointers[i] for i in used], 1),
                None,
            )
        sparse, dense, raster = prompt
        logits, ious, says_present, candidates = network.mask_decoder(
            conditioned + dense, network.mask_decoder.opened(sparse), position, look.middle, look.fine
        )
        if is_first:
            templates = pooled(look.coarse, look.masks)
        out.likest.append(is_ranked_first(templates, look.coarse.detach(), look.masks))
        if rng is not None and not is_first:
            out.likeness.append(likeness_loss(templates, look.coarse, look.masks, look.valid))
        several = (
            (clip.labels == CLICK).any(1) if is_first else torch.ones_like(clip.has_mask, dtype=torch.bool)
        )
        loss = frame_loss(logits, ious, says_present, look.masks, look.valid, look.present, several)
        out.losses.append(loss)
        choice = torch.where(several, 1 + ious[:, 1:].argmax(1), 0)
        each = torch.arange(batch, device=choice.device)
        mask, pointer = logits[each, choice].unsqueeze(1), candidates[each, choice]
        # A mask prompt is stored in memory unchanged.
        given = (clip.has_mask > 0.5).reshape(-1, 1, 1, 1) & is_first
        mask = torch.where(given, 40 * look.masks.unsqueeze(1) - 20, mask)
        seen = torch.ones_like(look.present) if is_first else (says_present > 0).float()
        looks.follow(mask[:, 0], seen > 0.5)
        if not is_first:
            mask, pointer = faults.stored(t, logits, candidates, choice, mask, pointer)
        stored, pointer = remember(network, look.coarse, mask, seen, pointer, raster if is_first else None)
        maps.append(stored)
        pointers.append(pointer)
        out.overlap.append(loss.iou_of[each, choice])
        out.says_present.append(says_present.detach())
        out.present.append(look.present)
    return out


def remember(
    network: CompactTAM,
    features: Tensor,
    mask_logits: Tensor,
    present: Tensor,
    pointer: Tensor,
    prompt_raster: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Memory maps [B,N,M] and pointers [B,C]; with ``prompt_raster`` as for a prompted frame."""
    binarize = torch.full_like(present, 0.0 if prompt_raster is None else 1.0)
    return network.encode_memory(features, mask_logits, present, binarize, pointer, prompt_raster)


def normalised(network: CompactTAM, images: Tensor) -> Tensor:
    """Convert uint8 [n,3,S,S] RGB to the network's input."""
    spec = network.spec
    mean = torch.tensor(spec.image_mean, device=images.device).reshape(1, 3, 1, 1)
    std = torch.tensor(spec.image_std, device=images.device).reshape(1, 3, 1, 1)
    scaled = (images.float() / 255 - mean) / std
    return scaled.contiguous(memory_format=torch.channels_last)


def _rows(recent_rows: int, rng: np.random.Generator | None) -> list[int]:
    """Temporal rows by age, from those used for recent frames."""
    rows = np.arange(recent_rows)
    return [int(r) for r in (rows if rng is None else np.sort(rng.permutation(rows)[: MOST_RECENT + 1]))]


def _recent(frame: int, rng: np.random.Generator | None) -> tuple[list[int], list[int]]:
    """Frames attended to, the prompted one first, and the ages of the others (youngest: 0)."""
    past = list(range(frame - 1, 0, -1))
    if rng is not None:
        past = [i for i in past if rng.random() >= DROPPED_SHARE]
    past = past[:MOST_RECENT]
    return [0, *past], list(range(len(past)))
