"""Camera effects on a clip: exposure and colour, motion blur, noise and JPEG compression."""

from __future__ import annotations

import math
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Camera:
    """The camera effects of one clip.

    Attributes:
        tables: uint8 [n,256,3], colour mapping per frame.
        is_grey: Whether the camera is thermal or monochrome.
        blur: Half the length of the motion blur, px; 0 for none.
        blur_angle: Direction of the motion blur, rad.
        noise: Standard deviation of the noise, grey levels.
        jpeg: JPEG quality, None for no compression.
    """

    tables: Bytes
    is_grey: bool
    blur: int
    blur_angle: float
    noise: float
    jpeg: int | None

    @classmethod
    def draw(cls, rng: np.random.Generator, frames: int, blur_share: float = 0.25) -> Camera:
        gain, offset, gamma = rng.lognormal(0, 0.2), rng.normal(0, 12), rng.lognormal(0, 0.2)
        colour = rng.lognormal(0, 0.07, 3)
        ramp = np.linspace(0, 1, 256)[:, None] ** gamma * 255
        drift = rng.lognormal(0, 0.04, frames)
        tables = ramp[None] * (gain * drift)[:, None, None] * colour + offset
        return cls(
            is_grey=bool(rng.random() < 0.06),
            tables=np.broadcast_to(tables, (frames, 256, 3)).clip(0, 255).astype(np.uint8),
            blur=int(rng.integers(1, 4)) if rng.random() < blur_share else 0,
            blur_angle=rng.uniform(0, math.pi),
            noise=rng.uniform(2, 12) if rng.random() < 0.3 else 0.0,
            jpeg=int(rng.integers(25, 95)) if rng.random() < 0.6 else None,
        )

    def shoot(self, rng: np.random.Generator, image: Bytes, frame: int) -> Bytes:
        """Return ``image`` uint8 [h,w,3] with the effects of frame number ``frame``."""
        image = np.asarray(cv2.LUT(image, self.tables[frame][None]), np.uint8)
        if self.is_grey:
            image = np.asarray(cv2.merge([cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)] * 3), np.uint8)
        if self.blur:
            image = np.asarray(cv2.filter2D(image, -1, self._streak()), np.uint8)
        if self.noise:
            grain = rng.standard_normal(image.shape, np.float32) * np.float32(self.noise)
            image = np.asarray((image + grain).clip(0, 255), np.uint8)
        if self.jpeg is not None:
            coded = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, self.jpeg])[1]
            image = np.asarray(cv2.imdecode(coded, cv2.IMREAD_COLOR), np.uint8)
        return image

    def _streak(self) -> NDArray[np.float32]:
        reach = self.blur
        kernel = np.zeros((2 * reach + 1, 2 * reach + 1), np.float32)
        for along in np.linspace(-reach, reach, 4 * reach + 1):
            x, y = along * math.cos(self.blur_angle), along * math.sin(self.blur_angle)
            kernel[round(reach + y), round(reach + x)] += 1
        return kernel / kernel.sum()
