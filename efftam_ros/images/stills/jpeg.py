"""Parses the segments of JPEG files, to find the file's end and to remove metadata."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import Any

START = b"\xff\xd8"
END, SCAN = 0xD9, 0xDA
WITHOUT_CONTENT = (0x01, *range(0xD0, 0xD8))
COMMENT = 0xFE
# Segments of metadata, which decoders do not need: APP1 to APP13, APP15 and comments. APP0 is not among them,
# because it gives the field order of interlaced images, nor APP14, which gives the colour space.
METADATA = (*range(0xE1, 0xEE), 0xEF, COMMENT)
# The end of the coded pixels: a marker that is no restart marker. Inside the pixels, each byte 0xFF is
# followed by 0 or begins a restart marker.
_AFTER_SCAN = re.compile(rb"\xff+(?![\x00\xd0-\xd7\xff])")


def segments(data: Any) -> Iterator[tuple[int, int, int]]:
    """Yield the segments of a JPEG, each as its kind, the offset of its marker, and the offset of its end.

    The segment of a scan includes its pixels. If the JPEG is complete, the last segment is `END`. Data behind
    the end, such as a second JPEG, are not read. ``data``: bytes or a mapped file.
    """
    at = len(START)
    while at + 1 < len(data):
        if data[at] != 0xFF or data[at + 1] == 0xFF:  # a fill byte before the next marker
            at += 1
            continue
        kind, begin = data[at + 1], at
        if kind == START[1]:
            return  # another JPEG begins: this one has no end marker
        if kind == END or kind in WITHOUT_CONTENT:
            at += 2
        else:
            if at + 4 > len(data):
                return
            at += 2 + struct.unpack_from(">H", data, at + 2)[0]
        if kind == SCAN:
            after = _AFTER_SCAN.search(data, at)
            at = after.end() - 1 if after else len(data)
        yield kind, begin, min(at, len(data))
        if kind == END:
            return


def jpeg_end(data: Any) -> int | None:
    """Return the length of the JPEG at the beginning of ``data``, bytes; None if it has no end marker.

    A JPEG without an end marker is truncated. ``data`` may continue behind the end: some cameras add padding,
    a second picture or telemetry.
    """
    if data[: len(START)] != START:
        return None
    return next((end for kind, _, end in segments(data) if kind == END), None)


def is_baseline(data: bytes) -> bool:
    """Return whether a JPEG is sequential (SOF0 or SOF1), so that a decoder notices missing pixels.

    In a progressive JPEG several scans refine the same pixels, and a decoder does not notice a missing scan.
    """
    return any(kind in (0xC0, 0xC1) for kind, _, _ in segments(data))


def without_metadata(data: bytes) -> bytes:
    """Return a JPEG without EXIF data, colour profiles and comments, so that faults in these can't stop a
    decoder."""
    parts, begin = [], 0
    for kind, at, end in segments(data):
        if kind == SCAN:
            break
        if kind in METADATA:
            parts.append(data[begin:at])
            begin = end
    return b"".join([*parts, data[begin:]]) if parts else data
