"""Reads the EXIF orientation of pictures. It is only reported: boxes are in px of the image as stored."""

from __future__ import annotations

import struct
from typing import Any

from efftam_ros.images.stills.jpeg import SCAN, START, segments

AS_STORED = 1
ORIENTATION_TAG = 0x0112
APP1, EXIF = 0xE1, b"Exif\0\0"
# Number of bytes at the start of a JPEG in which EXIF data are searched for. Cameras write these data before
# the pixels.
MAX_BYTES = 1 << 18


def orientation_of(data: Any) -> int:
    """Return the EXIF orientation of a JPEG, PNG, WebP or TIFF, 1 to 8; 1 (as stored) if there is none.

    ``data``: the file's bytes, or its beginning.
    """
    view = memoryview(data).cast("B")
    head = bytes(view[:16])
    try:
        if head.startswith(START):
            return _of_jpeg(bytes(view[:MAX_BYTES]))
        if head.startswith(b"\x89PNG"):
            return _of_chunks(view, 8, ">", b"eXIf")
        if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
            return _of_chunks(view, 12, "<", b"EXIF")
        if head[:4] in (b"II*\0", b"MM\0*"):
            return _of_tiff(view)
    except (struct.error, IndexError):
        pass  # the file is truncated or damaged, which the decoder reports
    return AS_STORED


def exif_note(orientation: int) -> str:
    """Return a line which states that an EXIF orientation (1 to 8) is not applied; empty for `AS_STORED`."""
    if orientation == AS_STORED:
        return ""
    return (
        f"EXIF orientation {orientation} is not applied: boxes are in px of the image as stored; if you need"
        " the image rotated, store its pixels rotated"
    )


def _of_jpeg(data: bytes) -> int:
    for kind, begin, end in segments(data):
        if kind == SCAN:
            break
        if kind == APP1 and data[begin + 4 : begin + 10] == EXIF:
            return _of_tiff(memoryview(data)[begin + 10 : end])
    return AS_STORED


def _of_chunks(data: memoryview, at: int, order: str, wanted: bytes) -> int:
    """Return the orientation in the EXIF chunk of a PNG or WebP, 1 to 8; 1 if there is no such chunk.

    ``at``: offset of the first chunk; ``order``: ">" for PNG, whose chunks begin with length and kind, "<"
    for WebP, whose chunks begin with kind and length; ``wanted``: kind of the EXIF chunk.
    """
    while at + 8 <= len(data):
        is_png = order == ">"
        (size,) = struct.unpack_from(f"{order}I", data, at + (0 if is_png else 4))
        kind = bytes(data[at + 4 : at + 8] if is_png else data[at : at + 4])
        if kind == wanted:
            content = data[at + 8 : at + 8 + size]
            return _of_tiff(content[6:] if bytes(content[:6]) == EXIF else content)
        at += 12 + size if is_png else 8 + size + size % 2
    return AS_STORED


def _of_tiff(data: memoryview) -> int:
    order = {b"II": "<", b"MM": ">"}.get(bytes(data[:2]))
    if order is None:
        return AS_STORED
    (directory,) = struct.unpack_from(f"{order}I", data, 4)
    (entries,) = struct.unpack_from(f"{order}H", data, directory)
    for entry in range(entries):
        tag, kind = struct.unpack_from(f"{order}HH", data, directory + 2 + 12 * entry)
        if tag == ORIENTATION_TAG and kind == 3:
            (value,) = struct.unpack_from(f"{order}H", data, directory + 10 + 12 * entry)
            return value if AS_STORED <= value <= 8 else AS_STORED
    return AS_STORED
