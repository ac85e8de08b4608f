"""JPEG of a picture, also smaller; a camera's own JPEG at full size is passed on, if it has no EXIF."""

from __future__ import annotations

import math

import cv2
import numpy as np
from numpy.typing import NDArray

from efftam_operator.feed import Picture
from efftam_ros.core.errors import InputError
from efftam_ros.images.headers import Size, coded_size

REDUCED = (
    cv2.IMREAD_COLOR,
    cv2.IMREAD_REDUCED_COLOR_2,
    cv2.IMREAD_REDUCED_COLOR_4,
    cv2.IMREAD_REDUCED_COLOR_8,
)
# A browser turns a picture by it; boxes refer to the pixels as the camera delivered them.
EXIF = b"Exif\0\0"


def encode(picture: Picture, quality: int = 70, width: int | None = None) -> tuple[bytes, tuple[int, int]]:
    """Encode an image as JPEG. ``quality`` 1..100; ``width``: of the JPEG at most, px; None passes on a
    camera's JPEG without EXIF. Returns the JPEG, and width and height of the camera's image ((0, 0): as the
    JPEG's). Raises InputError for a picture that can't be read."""
    if picture.jpeg is not None and width is None and EXIF not in picture.jpeg:
        return picture.jpeg, (0, 0)
    bgr, (whole, height) = _pixels(picture, width)
    if width is not None and width < bgr.shape[1]:
        small = width, max(1, round(height * width / whole))
        bgr = np.asarray(cv2.resize(bgr, small, interpolation=cv2.INTER_AREA), np.uint8)
    done, data = cv2.imencode(".jpg", bgr, [cv2.IMWRITE_JPEG_QUALITY, quality])
    if not done:
        raise InputError(f"a picture of {whole}x{height} px can't be made a JPEG")
    return data.tobytes(), (whole, height)


def _pixels(picture: Picture, width: int | None) -> tuple[NDArray[np.uint8], Size]:
    """Pixels, in no less than ``width``, and the size of the camera's image."""
    if picture.jpeg is None:
        assert picture.bgr is not None
        bgr = picture.bgr()
        return bgr, (bgr.shape[1], bgr.shape[0])
    size = coded_size(picture.jpeg, "the camera's JPEG")
    # The decoder skips what a smaller picture doesn't need.
    halvings = 0 if width is None else max(0, min(3, int(math.log2(max(1.0, size[0] / width)))))
    # Not turned by its EXIF.
    flags = REDUCED[halvings] | cv2.IMREAD_IGNORE_ORIENTATION
    try:
        decoded = cv2.imdecode(np.frombuffer(picture.jpeg, np.uint8), flags)
    except cv2.error:
        decoded = None
    if decoded is None:
        raise InputError(f"the camera's JPEG ({len(picture.jpeg)} bytes) can't be read; is it cut off?")
    return np.asarray(decoded, np.uint8), size
