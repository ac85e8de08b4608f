"""Adds to a real clip a copy of the target that crosses the target's path, as a look-alike would."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import cv2
import numpy as np
from numpy.typing import NDArray

from training.composites import RawClip
from training.footage import Box, box_size, middle_of
from training.imaging import over, similarity
from training.material import mask_bounds

Bytes = NDArray[np.uint8]

# Largest distance of the copy's path from the target's centre, as a multiple of the box's sides.
NEAREST = 1.1
# Distance of the copy along its path in frame 0, as a multiple of the box's sides: the prompted frame must
# show copy and target apart.
FIRST = (1.4, 2.8)
# Length of the copy's path until the last frame, as a multiple of its distance from the target in frame 0.
TRAVEL = (0.3, 2.2)
IN_FRONT_SHARE = 0.55
MAX_LAG = 3  # largest number of frames between the copy's shape and the target's
MIN_PIXELS = 30  # smallest area of a target that is copied, px
EDGE_BLUR = 0.7  # px; hard edges would let a network recognise the copy


@dataclass(frozen=True)
class Crossing:
    """Motion and looks of a copy of the target that crosses the target's path.

    ``start`` [2]: in frame 0, the copy's centre minus the target's, in sides of the target's box. ``step``
    [2]: its change per frame. ``lag``: number of frames by which the copy's shape is later. ``scale``: factor
    of its size. ``gains`` [3]: factors of its RGB values.
    """

    start: NDArray[np.float64]
    step: NDArray[np.float64]
    lag: int
    scale: float
    gains: NDArray[np.float64]
    is_mirrored: bool
    is_in_front: bool

    @classmethod
    def draw(cls, rng: np.random.Generator, frames: int) -> Crossing:
        direction = rng.uniform(0, 2 * math.pi)
        along = np.array([math.cos(direction), math.sin(direction)])
        across = np.array([-along[1], along[0]])
        first = rng.uniform(*FIRST)
        start = rng.uniform(-NEAREST, NEAREST) * across - first * along
        step = first * rng.uniform(*TRAVEL) / max(1, frames - 1) * along
        return cls(
            start=start,
            step=step,
            lag=int(rng.integers(-MAX_LAG, MAX_LAG + 1)),
            scale=math.exp(rng.normal(0, 0.15)),
            gains=rng.uniform(0.8, 1.15) * np.exp(rng.normal(0, 0.06, 3)),
            is_mirrored=bool(rng.random() < 0.5),
            is_in_front=bool(rng.random() < IN_FRONT_SHARE),
        )

    def through(self, raw: RawClip) -> RawClip:
        """Return the clip with the copy in every frame that shows the target.

        Where the copy hides the target, the target's mask is cleared.
        """
        images, masks = raw.images.copy(), raw.masks.copy()
        boxes = [_box_of(mask) for mask in raw.masks]
        for index, box in enumerate(boxes):
            if box is None:
                continue
            source = int(np.clip(index + self.lag, 0, len(boxes) - 1))
            shape = boxes[source]
            if shape is None:
                source, shape = index, box
            layer = self._layer(raw, source, shape, box, index)
            if not self.is_in_front:
                layer = _hidden(layer, raw.masks[index])
            images[index] = over(images[index], layer)
            if self.is_in_front:
                masks[index] = cv2.multiply(masks[index], 255 - layer[..., 3], scale=1 / 255)
        return replace(raw, images=images, masks=masks)

    def _layer(self, raw: RawClip, source: int, shape: Box, box: Box, index: int) -> Bytes:
        """Return the copy alone, premultiplied uint8 [S,S,4].

        ``source``: frame from which the target's shape is copied. ``index``: frame in which the copy appears.
        """
        side = raw.images.shape[1]
        alpha = cv2.GaussianBlur(raw.masks[source], (0, 0), EDGE_BLUR)
        alpha = np.minimum(alpha, raw.masks[source])
        coloured = np.minimum(raw.images[source] * self.gains, 255) * (alpha / 255.0)[..., None]
        cut = np.dstack([coloured, alpha]).astype(np.uint8)
        extents = np.array([box[2] - box[0], box[3] - box[1]])
        place = middle_of(box) + (self.start + self.step * index) * extents
        zoom = self.scale * box_size(box) / box_size(shape)
        matrix = similarity(zoom, 0.0, middle_of(shape), place, self.is_mirrored)
        return np.asarray(cv2.warpAffine(cut, matrix, (side, side)), np.uint8)


def _hidden(layer: Bytes, mask: Bytes) -> Bytes:
    """Return the premultiplied layer [S,S,4] without the pixels that the object of ``mask`` [S,S] hides."""
    return np.asarray(cv2.multiply(layer, cv2.merge([255 - mask] * 4), scale=1 / 255), np.uint8)


def _box_of(mask: Bytes) -> Box | None:
    """Return the box of a target that is large enough to be copied, else None."""
    solid = mask > 127
    return mask_bounds(solid) if solid.sum() >= MIN_PIXELS else None
