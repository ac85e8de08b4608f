"""Validates a network during training, on a fixed set of held-out clips that are unrolled as in training."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from efftam_workshop.model.compact.network import CompactTAM
from training.clips import Clip, ClipSource
from training.unroll import unroll

SEED = 20261121
FRAMES = 6
BATCH = 8


@dataclass(frozen=True)
class Score:
    """Scores of a network on held-out clips.

    ``overlap``: mean mask overlap over present frames after the first. ``balanced_accuracy``: of the presence
    decision. ``ranked_first``: share of present frames in which the cell most similar to the target overlaps
    it.
    """

    overlap: float
    balanced_accuracy: float
    loss: float
    ranked_first: float


def validation_clips(source: ClipSource, count: int) -> list[Clip]:
    """Return ``count`` clips in batches of `BATCH`."""
    clips = [source.clip(SEED, index, FRAMES) for index in range(count)]
    return [stack(clips[i : i + BATCH]) for i in range(0, count, BATCH)]


def stack(clips: list[Clip]) -> Clip:
    return Clip(*(torch.stack(values) for values in zip(*clips, strict=True)))


def validate(network: CompactTAM, batches: list[Clip]) -> Score:
    network.eval()
    overlaps, present, says, losses, likest = [], [], [], [], []
    with torch.inference_mode():
        for batch in batches:
            out = unroll(network, batch)
            overlaps.append(torch.stack(out.overlap[1:]))
            present.append(torch.stack(out.present[1:]))
            says.append(torch.stack(out.says_present[1:]) > 0)
            losses.append(out.total)
            likest.append(torch.stack(out.likest[1:]))
    truth, claim = torch.cat(present, 1) > 0.5, torch.cat(says, 1)
    # A frame in which the network decides "absent" has no mask, so its overlap is 0.
    overlap = (torch.cat(overlaps, 1) * claim)[truth].mean()
    recall = claim[truth].float().mean()
    rejection = (~claim[~truth]).float().mean() if (~truth).any() else recall
    return Score(
        overlap=float(overlap),
        balanced_accuracy=float((recall + rejection) / 2),
        loss=float(torch.stack(losses).mean()),
        ranked_first=float(torch.cat(likest, 1)[truth].float().mean()),
    )
