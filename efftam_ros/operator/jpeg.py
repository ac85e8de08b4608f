"""JPEG of a picture at full or half size; a camera's own JPEG at full size is passed on untouched."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.errors import InputError
from efftam_ros.operator.feed import Picture

QUALITY = 70


def encode(picture: Picture, *, half: bool, quality: int = QUALITY) -> bytes:
    """``quality`` 1..100. Half size halves both sides, rounded up. Raises InputError for a picture that
    can't be read."""
    if picture.jpeg is not None and not half:
        return picture.jpeg
    bgr = _pixels(picture, half)
    done, data = cv2.imencode(".jpg", bgr, [cv2.IMWRITE_JPEG_QUALITY, quality])
    if not done:
        raise InputError(f"a picture of {bgr.shape[1]}x{bgr.shape[0]} px can't be made a JPEG")
    return data.tobytes()


def _pixels(picture: Picture, half: bool) -> NDArray[np.uint8]:
    if picture.jpeg is not None:
        # The decoder skips what a picture of half the size doesn't need.
        flag = cv2.IMREAD_REDUCED_COLOR_2 if half else cv2.IMREAD_COLOR
        try:
            decoded = cv2.imdecode(np.frombuffer(picture.jpeg, np.uint8), flag)
        except cv2.error:
            decoded = None
        if decoded is None:
            raise InputError(f"the camera's JPEG ({len(picture.jpeg)} bytes) can't be read; is it cut off?")
        return np.asarray(decoded, np.uint8)
    assert picture.bgr is not None
    bgr = picture.bgr()
    if half:
        height, width = bgr.shape[:2]
        bgr = np.asarray(
            cv2.resize(bgr, ((width + 1) // 2, (height + 1) // 2), interpolation=cv2.INTER_AREA), np.uint8
        )
    return bgr
