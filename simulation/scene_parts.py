"""Makes the solid bodies and textures of the rendered world by computation, without files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

try:
    from panda3d import core as panda
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("the rendered world needs panda3d: pip install panda3d") from error

# panda3d searches for an X server even if it renders into memory. Its warning about that is suppressed.
panda.loadPrcFileData("", "audio-library-name null\nnotify-level error\nnotify-level-x11display fatal")

Colour = tuple[float, float, float]


def smooth_noise(rng: np.random.Generator, side: int, cells: Sequence[int]) -> NDArray[np.float64]:
    """Return smooth noise, float64 [side, side], 0 to 1, that repeats at its edges. It is the mean of random
    grids with these numbers of cells per side, interpolated."""
    total = np.zeros((side, side))
    for count in cells:
        grid = rng.random((count, count))
        place = np.arange(side) * count / side
        low = place.astype(int)
        share = place - low
        share = share * share * (3 - 2 * share)
        high = (low + 1) % count
        rows = grid[low] * (1 - share)[:, None] + grid[high] * share[:, None]
        total += rows[:, low] * (1 - share) + rows[:, high] * share
    return total / len(cells)


def texture(pixels: NDArray[np.uint8]) -> Any:
    """Return a repeating texture made of RGB pixels, uint8 [H, W, 3]."""
    height, width = pixels.shape[:2]
    made = panda.Texture()
    made.setup2dTexture(width, height, panda.Texture.TUnsignedByte, panda.Texture.FRgb)
    made.setRamImageAs(np.ascontiguousarray(pixels[::-1]).tobytes(), "RGB")
    made.setWrapU(panda.SamplerState.WMRepeat)
    made.setWrapV(panda.SamplerState.WMRepeat)
    made.setMinfilter(panda.SamplerState.FTLinearMipmapLinear)
    return made


def plane(half_side: float, repeats: float, image: Any) -> Any:
    """Return a level square around the origin that is visible from above. ``repeats``: how often the texture
    repeats along each side."""
    maker = panda.CardMaker("ground")
    maker.setFrame(-half_side, half_side, -half_side, half_side)
    maker.setUvRange((0, 0), (repeats, repeats))
    node = panda.NodePath(maker.generate())
    node.setP(-90)
    node.setTexture(image)
    return node


def box(size: tuple[float, float, float], colour: Colour, image: Any = None) -> Any:
    """Return a box that stands on the plane z = 0 above the origin. Its sides are shaded as if a high sun
    shone on it."""
    half = (size[0] / 2, size[1] / 2)
    root = panda.NodePath("box")
    # Each side: (width, height, position, heading, pitch, brightness).
    sides = (
        (size[0], size[2], (0.0, -half[1], size[2] / 2), 0.0, 0.0, 0.85),
        (size[0], size[2], (0.0, half[1], size[2] / 2), 180.0, 0.0, 0.6),
        (size[1], size[2], (half[0], 0.0, size[2] / 2), 90.0, 0.0, 0.75),
        (size[1], size[2], (-half[0], 0.0, size[2] / 2), -90.0, 0.0, 0.68),
        (size[0], size[1], (0.0, 0.0, size[2]), 0.0, -90.0, 1.0),
    )
    for width, height, position, heading, pitch, light in sides:
        maker = panda.CardMaker("side")
        maker.setFrame(-width / 2, width / 2, -height / 2, height / 2)
        if image is not None:
            maker.setUvRange((0, 0), (max(width / 4, 1.0), max(height / 4, 1.0)))
        card = root.attachNewNode(maker.generate())
        card.setPos(*position)
        card.setHpr(heading, pitch, 0.0)
        card.setColor(*(light * c for c in colour), 1.0)
        if image is not None:
            card.setTexture(image)
    return root


def car(colour: Colour) -> Any:
    """Return a car of 4.5 x 1.9 x 1.5 m whose front is in the direction of y."""
    root = panda.NodePath("car")
    body = box((1.9, 4.5, 0.9), colour)
    body.reparentTo(root)
    cabin = box((1.6, 2.2, 0.6), (0.12, 0.14, 0.18))
    cabin.setPos(0.0, -0.3, 0.9)
    cabin.reparentTo(root)
    roof = box((1.5, 1.8, 0.05), colour)
    roof.setPos(0.0, -0.35, 1.5)
    roof.reparentTo(root)
    return root
