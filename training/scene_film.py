"""Renders a scene frame by frame from its layers, cameras and sensor."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.geometry import Box
from training.scene_layers import Affine, Bytes, Layer, compose, inside, is_empty, moved, paint, warp
from training.scene_motion import Array, inverse
from training.scene_truth import Disappearance, Truth

NS = 1_000_000_000
NOISE_SHIFT = 64  # px


class SceneFrame(NamedTuple):
    """One image and its ground truth.

    Attributes:
        bgr: uint8 [H, W, 3].
        stamp_ns: From 0.
        mask: bool [H, W], visible part of the target.
        box: Of that mask in px, None when it is empty.
        outline: Box of the whole target, hidden or not, also outside the image.
        share: Visible share of the outline, 0..1 (parts seen through a soft edge count partially).
        others: Boxes of the visible parts of the other objects, None if nothing is visible.
    """

    bgr: Bytes
    stamp_ns: int
    mask: NDArray[np.bool_]
    box: Box | None
    outline: Box
    share: float
    others: tuple[Box | None, ...]


@dataclass(frozen=True)
class Placed:
    """A layer and its world position in each frame."""

    layer: Layer
    places: list[Affine]


@dataclass(frozen=True)
class Look:
    """Sensor and codec effects: ``blur`` px, ``noise`` grey levels, ``gains`` [n], JPEG ``quality``."""

    blur: float
    noise: float
    gains: Array
    quality: int


@dataclass(frozen=True)
class Scene:
    """Yields its frames (`SceneFrame`) when iterated; every iteration gives the same pixels.

    ``truth`` is that of all frames; ``look_alike`` is the index among the others, or None.
    """

    seed: int
    size: tuple[int, int]
    fps: float
    truth: tuple[Truth, ...]
    disappearances: tuple[Disappearance, ...]
    look_alike: int | None
    ground: Bytes = field(repr=False)
    ground_place: Affine = field(repr=False)
    layers: tuple[Placed, ...] = field(repr=False)
    cameras: list[Affine] = field(repr=False)
    look: Look = field(repr=False)

    def __len__(self) -> int:
        return len(self.truth)

    def __iter__(self) -> Iterator[SceneFrame]:
        return (self.frame(index) for index in range(len(self)))

    def frame(self, index: int) -> SceneFrame:
        """Render one frame, counted from 0."""
        truth, (width, height) = self.truth[index], self.size
        mask: NDArray[np.bool_] = np.zeros((height, width), bool)
        cut = inside(truth.region, width, height)
        if not is_empty(cut):
            x0, y0, x1, y1 = cut
            left, top = truth.region[:2]
            mask[y0:y1, x0:x1] = truth.seen[y0 - top : y1 - top, x0 - left : x1 - left]
        x, y = (int(n) for n in np.random.default_rng([self.seed, 3, index]).integers(0, NOISE_SHIFT, 2))
        bgr = self._exposed(self._drawn(index), index, self._noise[y : y + height, x : x + width])
        stamp = round(index * NS / self.fps)
        return SceneFrame(bgr, stamp, mask, truth.box, truth.outline, truth.share, truth.others)

    @cached_property
    def _noise(self) -> Bytes:
        """Noise around 128, larger than a frame: each frame uses another part of it."""
        width, height = self.size
        rng = np.random.default_rng([self.seed, 1])
        noise = rng.normal(128, self.look.noise, (height + NOISE_SHIFT, width + NOISE_SHIFT, 3))
        return np.clip(noise.round(), 0, 255).astype(np.uint8)

    def _drawn(self, index: int) -> Bytes:
        camera = self.cameras[index]
        image = warp(self.ground, compose(camera, self.ground_place), *self.size)
        for item in self.layers:
            paint(image, item.layer, compose(camera, item.places[index]))
        return image

    def _exposed(self, image: Bytes, index: int, noise: Bytes) -> Bytes:
        if self.look.blur > 0.3:
            image = np.asarray(cv2.GaussianBlur(image, (0, 0), self.look.blur), np.uint8)
        kernel = self._motion_blur(index)
        if kernel is not None:
            image = np.asarray(cv2.filter2D(image, -1, kernel), np.uint8)
        image = np.asarray(
            cv2.addWeighted(image, float(self.look.gains[index]), noise, 1.0, -128.0), np.uint8
        )
        _, packed = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, self.look.quality])
        return np.asarray(cv2.imdecode(packed, cv2.IMREAD_COLOR), np.uint8)

    def _motion_blur(self, index: int) -> NDArray[np.float32] | None:
        """Blur kernel of the ground's motion during exposure; None where negligible."""
        middle = np.array([self.size], float) / 2
        before = moved(inverse(self.cameras[max(index - 1, 0)]), middle)
        path = 0.3 * (moved(self.cameras[index], before) - middle)[0]
        length = min(float(np.hypot(*path)), 25.0)
        if length < 3:
            return None
        half = math.ceil(length / 2)
        kernel = np.zeros((2 * half + 1, 2 * half + 1), np.float32)
        step = path / np.hypot(*path) * length / 2
        ends = [tuple(int(v) for v in np.round((half + sign * step) * 16)) for sign in (-1, 1)]
        cv2.line(kernel, ends[0], ends[1], 1.0, 1, cv2.LINE_8, shift=4)
        return np.asarray(kernel / kernel.sum(), np.float32)
