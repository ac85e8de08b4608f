"""Effects that make training clips harder than the held-out ones, which stay unchanged so that figures are
comparable."""

from __future__ import annotations

import math
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from training.windows import RELOCATION_SHARE

Bytes = NDArray[np.uint8]

SMALLEST, LARGEST = 0.2, 0.5  # resolutions as a share of the window's: a target of 40 px then has 8 to 20


@dataclass(frozen=True)
class Hardness:
    """Shares of clips with each effect.

    Attributes:
        shadows: Composites whose objects cast shadows, which do not belong to their masks.
        real_shadows: Real clips with a drawn shadow of the whole target, which does not belong to its mask.
        crossings: Real clips with a copy of the target that crosses its path.
        companions: Composites with a look-alike beside the target, and a bar that hides both.
        small: Real clips at a fraction of the resolution.
        parts: Real clips whose target is a part of an object.
        rivals: Of the clips with frames whose window misses the target, those where it shows another object.
        absent: Clips with frames whose window misses the target.
        scene_power: A scene with n tracks has weight n to the power of 1 minus this (1: all scenes equal).
    """

    shadows: float = 0.0
    real_shadows: float = 0.0
    crossings: float = 0.0
    companions: float = 0.0
    small: float = 0.0
    parts: float = 0.0
    rivals: float = 0.0
    absent: float = RELOCATION_SHARE
    scene_power: float = 0.5

    def has_part(self, rng: np.random.Generator) -> bool:
        """Draw whether a real clip's target is a part of an object."""
        return self.parts > 0 and bool(rng.random() < self.parts)

    def has_rival(self, rng: np.random.Generator, elsewhere: NDArray[np.bool_]) -> bool:
        """Draw whether frames that miss the target show another object."""
        return self.rivals > 0 and bool(elsewhere.any()) and bool(rng.random() < self.rivals)

    def sun(self, rng: np.random.Generator) -> Sun | None:
        """Draw the sun of a real clip; None if no shadow is drawn."""
        if self.real_shadows == 0 or rng.random() >= self.real_shadows:
            return None
        return Sun.draw(rng)

    def has_crossing(self, rng: np.random.Generator) -> bool:
        """Draw whether a copy of the target crosses its path in a real clip."""
        return self.crossings > 0 and bool(rng.random() < self.crossings)

    def resolution(self, rng: np.random.Generator) -> float:
        """Draw the resolution of a real clip; 1 is the window's own."""
        if self.small == 0 or rng.random() >= self.small:
            return 1.0
        return math.exp(rng.uniform(math.log(SMALLEST), math.log(LARGEST)))


EASY = Hardness()
HARD = Hardness(
    shadows=0.4,
    real_shadows=0.2,
    crossings=0.25,
    companions=0.2,
    small=0.4,
    parts=0.15,
    rivals=0.8,
    absent=0.45,
    scene_power=1.0,
)

SHADOW_STEPS = (0.4, 0.7, 1.0)  # shares of the shadow's length at which the outline is repeated


@dataclass(frozen=True)
class Sun:
    """Shadow parameters.

    ``offset``: of the far end, in sizes of the casting object, world axes; ``darkness``: 0..1, of the ground
    in the shadow's core; ``blur``: px.
    """

    offset: NDArray[np.float64]
    darkness: float
    blur: float

    @classmethod
    def draw(cls, rng: np.random.Generator) -> Sun:
        direction, length = rng.uniform(0, 2 * math.pi), rng.uniform(0.12, 0.7)
        offset = length * np.array([math.cos(direction), math.sin(direction)])
        return cls(offset, rng.uniform(0.3, 0.75), rng.uniform(0.3, 1.6))

    def darken(self, canvas: Bytes, cover: Bytes) -> Bytes:
        """Darken ``canvas`` uint8 [h,w,3] where ``cover`` uint8 [h,w] is in shadow."""
        soft = cv2.GaussianBlur(cover, (0, 0), self.blur)
        light = 255 - cv2.convertScaleAbs(soft, alpha=self.darkness)
        return np.asarray(cv2.multiply(canvas, cv2.merge([light] * 3), scale=1 / 255), np.uint8)

    def cast(self, image: Bytes, mask: Bytes) -> Bytes:
        """Draw the shadow of one object around it.

        Args:
            image: uint8 [h,w,3].
            mask: uint8 [h,w], share of each pixel that the object covers, times 255.
        """
        size = math.sqrt(float((mask > 127).sum()))
        cover = np.zeros_like(mask)
        for share in SHADOW_STEPS:
            x, y = share * size * self.offset
            moved = np.array([[1, 0, x], [0, 1, y]], np.float32)
            cover = np.maximum(cover, cv2.warpAffine(mask, moved, (mask.shape[1], mask.shape[0])))
        solid = mask[..., None] / 255.0
        dark = self.darken(image, cover)
        return np.asarray(np.rint(image * solid + dark * (1 - solid)), np.uint8)
