"""Small procedural cut-outs and backdrops, so that scenes need no data."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Sprite:
    rgba: NDArray[np.uint8]
    name: str
    kind: str


@dataclass(frozen=True)
class Backdrop:
    rgb: NDArray[np.uint8]
    name: str
    kind: str


def sprites(count: int = 6) -> list[Sprite]:
    """Discs and boxes with a window and a stripe, RGB with straight alpha."""
    rng = np.random.default_rng(1)
    result = []
    for i in range(count):
        height, width = (int(n) for n in rng.integers(50, 110, 2))
        alpha = np.zeros((height, width), np.uint8)
        if i % 2:
            cv2.ellipse(
                alpha, (width // 2, height // 2), (width // 2 - 1, height // 2 - 1), 0, 0, 360, 255, -1
            )
        else:
            alpha[1:-1, 1:-1] = 255
        rgb = np.full((height, width, 3), rng.integers(0, 90, 3), np.uint8)
        rgb[height // 3 : height // 2] = rng.integers(160, 255, 3)
        rgb[:, width // 4 : width // 3] = rng.integers(0, 255, 3)
        result.append(Sprite(np.dstack([rgb, alpha]), f"thing{i}", "render_aerial" if i % 2 else "photo"))
    return result


def backdrops(count: int = 4) -> list[Backdrop]:
    """Smooth random fields with some grain, brighter than the cut-outs."""
    result = []
    for i in range(count):
        rng = np.random.default_rng(100 + i)
        field = cv2.resize(rng.uniform(110, 220, (9, 12, 3)).astype(np.float32), (160, 120))
        grain = rng.normal(0, 6, field.shape)
        result.append(Backdrop(np.clip(field + grain, 0, 255).astype(np.uint8), f"field{i}", "aerial"))
    return result
