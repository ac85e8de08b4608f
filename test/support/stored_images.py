"""Images in every accepted encoding, by conversions written out here."""

from __future__ import annotations

import numpy as np


def yuv(bgr: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """BT.601 limited range, rounded."""
    b, g, r = (bgr[..., i].astype(float) for i in range(3))
    luma = 16 + (65.481 * r + 128.553 * g + 24.966 * b) / 255
    blue = 128 + (-37.797 * r - 74.203 * g + 112.0 * b) / 255
    red = 128 + (112.0 * r - 93.786 * g - 18.214 * b) / 255
    return tuple(np.rint(v).astype(np.uint8) for v in (luma, blue, red))


def bgr_of(luma: np.ndarray, blue: np.ndarray, red: np.ndarray) -> np.ndarray:
    """The inverse of `yuv`, for planes of one size."""
    y, u, v = luma.astype(float) - 16, blue.astype(float) - 128, red.astype(float) - 128
    b = 255 / 219 * y + 255 / 224 * 1.772 * u
    g = 255 / 219 * y - 255 / 224 * (0.344136 * u + 0.714136 * v)
    r = 255 / 219 * y + 255 / 224 * 1.402 * v
    return np.clip(np.rint(np.stack([b, g, r], axis=-1)), 0, 255).astype(np.uint8)


def repeated(plane: np.ndarray, rows: int, columns: int) -> np.ndarray:
    return plane.repeat(rows, axis=0).repeat(columns, axis=1)


def stored(encoding: str, bgr: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The bytes [rows, bytes] of a scene, uint8 [h, w, 3] BGR with even sides, in an encoding, and what they
    must become in BGR."""
    height, width = bgr.shape[:2]
    opaque = np.full((height, width, 1), 255, np.uint8)
    grey = np.ascontiguousarray(bgr[..., 1])
    if encoding in ("bgr8", "8UC3"):
        return bgr.reshape(height, -1), bgr
    if encoding == "rgb8":
        return bgr[..., ::-1].reshape(height, -1), bgr
    if encoding == "bgra8":
        return np.concatenate([bgr, opaque], -1).reshape(height, -1), bgr
    if encoding == "rgba8":
        return np.concatenate([bgr[..., ::-1], opaque], -1).reshape(height, -1), bgr
    if encoding in ("mono8", "8UC1"):
        return grey, np.stack([grey] * 3, -1)
    if encoding.startswith("bayer_"):
        filters = ["bgr".index(c) for c in encoding[6:10]]
        mosaic = np.empty((height, width), np.uint8)
        for i, channel in enumerate(filters):
            mosaic[i // 2 :: 2, i % 2 :: 2] = bgr[i // 2 :: 2, i % 2 :: 2, channel]
        return mosaic, bgr
    luma, blue, red = yuv(bgr)
    if encoding in ("nv12", "nv21"):
        blue, red = blue[::2, ::2], red[::2, ::2]
        pair = (blue, red) if encoding == "nv12" else (red, blue)
        rows = np.concatenate([luma, np.stack(pair, -1).reshape(height // 2, width)])
        return rows, bgr_of(luma, repeated(blue, 2, 2), repeated(red, 2, 2))
    blue, red = blue[:, ::2], red[:, ::2]
    first_luma = encoding in ("yuyv", "yuv422_yuy2")
    order = (
        [luma[:, ::2], blue, luma[:, 1::2], red] if first_luma else [blue, luma[:, ::2], red, luma[:, 1::2]]
    )
    rows = np.stack(order, -1).reshape(height, 2 * width)
    return rows, bgr_of(luma, repeated(blue, 1, 2), repeated(red, 1, 2))
