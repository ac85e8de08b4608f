"""JPEGs that say how a viewer should turn them."""

from __future__ import annotations

import struct

import cv2
import numpy as np


def jpeg_with_exif(bgr: np.ndarray, orientation: int, *, big_endian: bool = False) -> bytes:
    """``bgr``, uint8 [H, W, 3], as it is, with the orientation (1..8) in a segment APP1."""
    order = ">" if big_endian else "<"
    tiff = struct.pack(
        f"{order}2sHIHHHIHHI", b"MM" if big_endian else b"II", 42, 8, 1, 0x0112, 3, 1, orientation, 0, 0
    )
    content = b"Exif\0\0" + tiff
    data = cv2.imencode(".jpg", bgr)[1].tobytes()
    return data[:2] + b"\xff\xe1" + struct.pack(">H", len(content) + 2) + content + data[2:]
