"""JPEG of a picture, also smaller; a camera's own JPEG at full size is passed on, without its EXIF."""

from __future__ import annotations

import math
import re

import cv2
import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.errors import InputError
from efftam_ros.images.encodings import Size, coded_size
from efftam_ros.operator.feed import Picture

REDUCED = (
    cv2.IMREAD_COLOR,
    cv2.IMREAD_REDUCED_COLOR_2,
    cv2.IMREAD_REDUCED_COLOR_4,
    cv2.IMREAD_REDUCED_COLOR_8,
)
# As many as the tracker's own check of a JPEG's header follows.
MOST_SEGMENTS = 500
# Like libjpeg's: fill bytes and anything else between segments are skipped.
MARKER = re.compile(rb"\xff([^\x00\xff])")
WITHOUT_LENGTH = {0x01, *range(0xD0, 0xD9)}
START_OF_SCAN, END, APP1, APP15 = 0xDA, 0xD9, 0xE1, 0xEF


def encode(picture: Picture, quality: int = 70, width: int | None = None) -> tuple[bytes, tuple[int, int]]:
    """``quality`` 1..100; ``width``: of the JPEG at most, px; None passes on a camera's own JPEG. Gives the
    JPEG, and width and height of the camera's image ((0, 0): as the JPEG's). Raises InputError for a picture
    that can't be read."""
    if picture.jpeg is not None and width is None:
        return without_exif(picture.jpeg), (0, 0)
    bgr, (whole, height) = _pixels(picture, width)
    if width is not None and width < bgr.shape[1]:
        small = width, max(1, round(height * width / whole))
        bgr = np.asarray(cv2.resize(bgr, small, interpolation=cv2.INTER_AREA), np.uint8)
    done, data = cv2.imencode(".jpg", bgr, [cv2.IMWRITE_JPEG_QUALITY, quality])
    if not done:
        raise InputError(f"a picture of {whole}x{height} px can't be made a JPEG")
    return data.tobytes(), (whole, height)


def without_exif(jpeg: bytes) -> bytes:
    """The same JPEG with its EXIF made a segment that no reader knows; without EXIF, the very bytes given.

    A browser turns a picture by its EXIF orientation. Boxes refer to the pixels as the camera delivered them,
    as the tracker's do. What is no JPEG, or is damaged, is given back unchanged from where it can't be read.
    """
    changed: bytearray | None = None
    at = 2
    for _ in range(MOST_SEGMENTS):
        marker = MARKER.search(jpeg, at)
        if marker is None or marker[1][0] in (START_OF_SCAN, END):
            break
        at = marker.end()
        if marker[1][0] in WITHOUT_LENGTH:
            continue
        if marker[1][0] == APP1 and jpeg.startswith(b"Exif", at + 2):
            changed = changed or bytearray(jpeg)
            changed[at - 1] = APP15
        length = int.from_bytes(jpeg[at : at + 2], "big")
        if length < 2:
            break
        at += length
    return jpeg if changed is None else bytes(changed)


def _pixels(picture: Picture, width: int | None) -> tuple[NDArray[np.uint8], Size]:
    """Pixels, in no less than ``width``, and the size of the camera's image."""
    if picture.jpeg is None:
        assert picture.bgr is not None
        bgr = picture.bgr()
        return bgr, (bgr.shape[1], bgr.shape[0])
    size = coded_size(picture.jpeg, "the camera's JPEG")
    # The decoder skips what a smaller picture doesn't need.
    halvings = 0 if width is None else max(0, min(3, int(math.log2(max(1.0, size[0] / width)))))
    # Not turned, as in `without_exif`.
    flags = REDUCED[halvings] | cv2.IMREAD_IGNORE_ORIENTATION
    try:
        decoded = cv2.imdecode(np.frombuffer(picture.jpeg, np.uint8), flags)
    except cv2.error:
        decoded = None
    if decoded is None:
        raise InputError(f"the camera's JPEG ({len(picture.jpeg)} bytes) can't be read; is it cut off?")
    return np.asarray(decoded, np.uint8), size
