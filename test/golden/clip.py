"""The golden clip: 20 frames of a red ellipse that crosses a textured scene, in integers and therefore
bit-exact.

``clip()`` is the plain clip, ``clip(dark=True)`` the one where frames 8 to 11 are nearly black (the target is
absent). SHA-256 of the raw bytes: ``SHA256``.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

HEIGHT, WIDTH, FRAMES = 480, 640, 20
SEMI_X, SEMI_Y = 62, 46
DARK = range(8, 12)
CENTRES = [(170 + 14 * t + t * t // 6, 200 + 9 * t - t * t // 3) for t in range(FRAMES)]
BOX_EDGES = (108, 154, 232, 246)
CLICK = (170, 200)
SHA256 = {
    "plain": "393abee41e1c790cab6b5a5d37b0db7aaffed17f0dd6a8ae6c042cecaacfd960",
    "dark": "71dd12e411247cedb5193d1dbb2f6271705f166837adb3f1914fe1129f093833",
    "masks": "881102c4fc1454484b4b2e5e412fcfe786e0f7de019b3c3c4da544762193ac63",
}


@cache
def clip(dark: bool = False) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """Frames uint8 [20, 480, 640, 3] RGB and true target masks bool [20, 480, 640], both read-only: every
    caller gets the same arrays."""
    scene, target = _scene(), _target()
    rows, columns = np.ogrid[:HEIGHT, :WIDTH]
    frames = np.empty((FRAMES, HEIGHT, WIDTH, 3), np.uint8)
    masks = np.empty((FRAMES, HEIGHT, WIDTH), bool)
    for t, (cx, cy) in enumerate(CENTRES):
        frame = scene[t : t + HEIGHT, 2 * t : 2 * t + WIDTH].copy()
        inside = ((columns - cx) * SEMI_Y) ** 2 + ((rows - cy) * SEMI_X) ** 2 <= (SEMI_X * SEMI_Y) ** 2
        y, x = np.nonzero(inside)
        frame[y, x] = target[y - cy + SEMI_Y, x - cx + SEMI_X]
        if dark and t in DARK:
            frame //= 16
        frames[t], masks[t] = np.clip(frame, 0, 255), inside
    frames.flags.writeable = masks.flags.writeable = False
    return frames, masks


def _scene() -> NDArray[np.int64]:
    """The background, larger than a frame because the camera pans by (2, 1) px per frame."""
    size = (HEIGHT + 40, WIDTH + 80)
    grain = _noise(11, size, 4, -18, 18)
    relief = _noise(12, size, 40, 70, 170)
    tint = _noise(13, size, 24, -12, 12)
    return np.stack([relief + grain - 10, relief + grain + 12 + tint, relief + grain - 6], axis=-1)


def _target() -> NDArray[np.int64]:
    size = (2 * SEMI_Y + 1, 2 * SEMI_X + 1)
    grain = _noise(21, size, 5, -25, 25)
    patches = _noise(22, size, 16, -20, 20)
    return np.stack([215 + grain // 2, 70 + grain + patches, 55 + grain], axis=-1)


def _noise(seed: int, size: tuple[int, int], cell: int, low: int, high: int) -> NDArray[np.int64]:
    """Value noise in [low, high]: a coarse random grid of ``cell`` px, interpolated bilinearly in
    integers."""
    height, width = size
    knots = np.random.RandomState(seed).randint(0, 1024, size=(height // cell + 2, width // cell + 2))
    knots = knots.astype(np.int64)
    (top, down), (left, right) = (np.divmod(np.arange(n), cell) for n in size)
    down = down[:, None]
    upper, lower = knots[top], knots[top + 1]
    value = (upper[:, left] * (cell - right) + upper[:, left + 1] * right) * (cell - down)
    value += (lower[:, left] * (cell - right) + lower[:, left + 1] * right) * down
    return low + value // (cell * cell) * (high - low) // 1023
