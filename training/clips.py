"""Training clips: windows, masks, presence and a prompt, drawn from all samplers; determined by seed and
index."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple, Protocol

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from training.composites import Compositor, RawClip
from training.crossings import Crossing
from training.footage import FootageSampler, PhotographSampler
from training.hardness import EASY, Hardness
from training.material import Material, mask_bounds
from training.mixture import Mixture

MIN_VISIBLE = 24  # least px in the window, and least share of the whole target, for it to count as present
MIN_SHARE = 0.12
BOX, CLICK, MASK = range(3)
PROMPT_SHARES = (0.65, 0.2, 0.15)
PART_PROMPT_SHARES = (0.8, 0.0, 0.2)  # a click does not say which part of an object is meant
PROMPT_SLOTS = 3
NEGATIVE_SLOT = -1


class Clip(NamedTuple):
    """One clip, or a batch with a leading axis.

    Attributes:
        images: uint8 [n,3,W,W] RGB; W = S, or larger where windows are cut from them.
        masks: uint8 [n,W/4,W/4], covered share x 255.
        valid: bool, same shape as ``masks``.
        present: float [n].
        points: [3,2], network px.
        labels: [3] (2 and 3 box corners, 1 click, -1 unused).
        prompt_mask: uint8 [S,S], 0 or 1.
        has_mask: float [].
    """

    images: Tensor
    masks: Tensor
    valid: Tensor
    present: Tensor
    points: Tensor
    labels: Tensor
    prompt_mask: Tensor
    has_mask: Tensor


class Sampler(Protocol):
    """One kind of clip; its length is the number of samples it can draw."""

    def __len__(self) -> int: ...

    def clip(self, rng: np.random.Generator, frames: int, side: int) -> RawClip: ...


class ClipSource:
    """Draws clips of one split."""

    def __init__(self, material: Material, mixture: Mixture, side: int, hardness: Hardness = EASY) -> None:
        self._side, self._hardness = side, hardness
        compositor = Compositor(material, hardness)
        samplers: list[tuple[Sampler, float]] = [
            (compositor, mixture.composite),
            (FootageSampler(material, hardness), mixture.footage),
            (PhotographSampler(material, hardness), mixture.photograph),
        ]
        self._draws_small = compositor  # by itself, and at every resolution
        self._samplers = [(sampler, share) for sampler, share in samplers if len(sampler)]
        shares = np.array([share for _, share in self._samplers])
        self._shares = shares / shares.sum()

    def clip(self, seed: int, index: int, frames: int) -> Clip:
        """Draw a clip; the same arguments give the same clip."""
        rng = np.random.default_rng([seed, index])
        sampler = self._samplers[rng.choice(len(self._samplers), p=self._shares)][0]
        while True:
            raw = self._raw(rng, sampler, frames)
            visible = (raw.masks > 127).sum((1, 2))
            # A prompt on a hidden target is not a useful training sample.
            if visible[0] > max(40, 0.35 * raw.whole[0]):
                return _prompted(rng, raw, visible)

    def _raw(self, rng: np.random.Generator, sampler: Sampler, frames: int) -> RawClip:
        """Draw a clip; a real one sometimes at the lower resolution of small targets, with a shadow, or
        with a copy of the target that crosses its path."""
        if sampler is self._draws_small:
            return sampler.clip(rng, frames, self._side)
        resolution = self._hardness.resolution(rng)
        raw = sampler.clip(rng, frames, round(self._side * resolution))
        sun = self._hardness.sun(rng)
        if sun is not None and not raw.is_part:
            shaded = [sun.cast(image, mask) for image, mask in zip(raw.images, raw.masks, strict=True)]
            raw = replace(raw, images=np.stack(shaded))
        if not raw.is_part and self._hardness.has_crossing(rng):
            raw = Crossing.draw(rng, frames).through(raw)
        return raw if resolution == 1 else enlarged(raw, self._side)


def enlarged(raw: RawClip, side: int) -> RawClip:
    """A clip rendered at lower resolution, enlarged to ``side`` px."""
    size = (side, side)
    images = np.stack([cv2.resize(image, size, interpolation=cv2.INTER_LINEAR) for image in raw.images])
    masks = np.stack([cv2.resize(mask, size, interpolation=cv2.INTER_LINEAR) for mask in raw.masks])
    ignored = raw.ignored
    if ignored is not None:
        levels = [cv2.resize(np.asarray(i, np.uint8), size, interpolation=cv2.INTER_NEAREST) for i in ignored]
        ignored = np.stack(levels) > 0
    whole = raw.whole * (side / raw.images.shape[1]) ** 2
    return RawClip(images, masks, ignored, whole, raw.is_part)


def _prompted(rng: np.random.Generator, raw: RawClip, visible: NDArray[np.int_]) -> Clip:
    first = raw.masks[0] > 127
    points, labels = np.zeros((PROMPT_SLOTS, 2), np.float32), np.full(PROMPT_SLOTS, NEGATIVE_SLOT)
    kind = rng.choice(3, p=PART_PROMPT_SHARES if raw.is_part else PROMPT_SHARES)
    if kind == BOX:
        left, top, right, bottom = mask_bounds(first)
        extent = np.array([right - left, bottom - top] * 2)
        edges = np.array([left, top, right, bottom]) + np.clip(rng.normal(0, 0.05, 4), -0.15, 0.15) * extent
        points[:2], labels[:2] = edges.reshape(2, 2), (2, 3)
    elif kind == CLICK:
        depth = cv2.distanceTransform(first.astype(np.uint8), cv2.DIST_L2, 3)
        rows, columns = np.nonzero(depth >= 0.5 * depth.max())
        pick = rng.integers(len(rows))
        points[0], labels[0] = (columns[pick] + 0.5, rows[pick] + 0.5), 1
    present = visible > np.maximum(MIN_VISIBLE, MIN_SHARE * raw.whole)
    low = raw.images.shape[1] // 4
    masks = np.stack([cv2.resize(mask, (low, low), interpolation=cv2.INTER_AREA) for mask in raw.masks])
    masks[~present] = 0
    ignored = np.zeros(masks.shape, bool)
    if raw.ignored is not None:
        ignored |= raw.ignored.reshape(len(masks), low, 4, low, 4).any((2, 4))
    return Clip(
        images=torch.from_numpy(np.ascontiguousarray(raw.images.transpose(0, 3, 1, 2))),
        masks=torch.from_numpy(masks),
        valid=torch.from_numpy(~ignored),
        present=torch.from_numpy(present.astype(np.float32)),
        points=torch.from_numpy(points),
        labels=torch.from_numpy(labels.astype(np.int64)),
        prompt_mask=torch.from_numpy(first.astype(np.uint8)),
        has_mask=torch.tensor(float(kind == MASK)),
    )


class ClipDataset(Dataset[Clip]):
    """Clips ``first`` to ``first + count`` of a seed, by index."""

    def __init__(self, source: ClipSource, seed: int, frames: int, first: int, count: int) -> None:
        self._source, self._seed, self._frames = source, seed, frames
        self._first, self._count = first, count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Clip:
        return self._source.clip(self._seed, self._first + index, self._frames)
