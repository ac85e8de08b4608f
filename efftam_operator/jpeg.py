"""Encodes a picture as JPEG, at full size or smaller.

At full size a camera's own JPEG is passed on unchanged, if it has no EXIF.
"""

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
# Start of an EXIF block. A browser rotates a JPEG by the orientation in its EXIF, but boxes refer to the
# pixels as the camera delivered them.
EXIF = b"Exif\0\0"


def encode(picture: Picture, quality: int = 70, width: int | None = None) -> tuple[bytes, tuple[int, int]]:
    """Encode an image as JPEG.

    Args:
        picture: The image.
        quality: JPEG quality, 1 to 100.
        width: Largest width of the JPEG, px; None: full size, where a camera's own JPEG without EXIF is
            passed on unchanged.

    Returns:
        The JPEG, and width and height of the camera's image, px; (0, 0) if they are the JPEG's.

    Raises:
        InputError: The picture can't be read.
    """
    if picture.jpeg is not None and width is None and EXIF not in picture.jpeg:
        return picture.jpeg, (0, 0)
    bgr, (whole, height) = _pixels(picture, width)
    if width is not None and width < bgr.shape[1]:
        small = width, max(1, round(height * width / whole))
        bgr = np.asarray(cv2.resize(bgr, small, interpolation=cv2.INTER_AREA), np.uint8)
    done, data = cv2.imencode(".jpg", bgr, [cv2.IMWRITE_JPEG_QUALITY, quality])
    if not done:
        raise InputError(f"a picture of {whole}x{height} px can't be encoded as JPEG; use smaller images")
    return data.tobytes(), (whole, height)


def _pixels(picture: Picture, width: int | None) -> tuple[NDArray[np.uint8], Size]:
    """Return pixels, uint8 [H, W, 3], and width and height of the camera's image, px.

    ``width``: the pixels may be reduced as long as they keep at least this width; None: full size.
    """
    if picture.jpeg is None:
        assert picture.bgr is not None
        bgr = picture.bgr()
        return bgr, (bgr.shape[1], bgr.shape[0])
    size = coded_size(picture.jpeg, "the camera's JPEG")
    # Decoding at a half, a quarter or an eighth of the size saves most of the time.
    halvings = 0 if width is None else max(0, min(3, int(math.log2(max(1.0, size[0] / width)))))
    # The orientation in the EXIF is ignored: boxes refer to the pixels as the camera delivered them.
    flags = REDUCED[halvings] | cv2.IMREAD_IGNORE_ORIENTATION
    try:
        decoded = cv2.imdecode(np.frombuffer(picture.jpeg, np.uint8), flags)
    except cv2.error:
        decoded = None
    if decoded is None:
        raise InputError(f"the camera's JPEG ({len(picture.jpeg)} bytes) can't be read; is it cut off?")
    return np.asarray(decoded, np.uint8), size
