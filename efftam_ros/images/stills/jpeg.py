"""Parses JPEG files: their segments, where they end, and what they hold beside the pixels."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import Any

START = b"\xff\xd8"
END, SCAN = 0xD9, 0xDA
WITHOUT_CONTENT = (0x01, *range(0xD0, 0xD8))
COMMENT = 0xFE
# Metadata segments that decoders do not need. APP0 holds the order of fields of interlaced images, APP14 the
# kind of colours.
METADATA = (*range(0xE1, 0xEE), 0xEF, COMMENT)
# Within the coded pixels, 0xFF is followed by 0 or is a restart mark.
_AFTER_SCAN = re.compile(rb"\xff+(?![\x00\xd0-\xd7\xff])")


def segments(data: Any) -> Iterator[tuple[int, int, int]]:
    """Yield the kind of each segment, where it begins (its mark) and where it ends. The pixels belong to the
    segment of their scan; the last one is `END` if the JPEG is whole, and what follows is no other one.

    ``data``: bytes or a mapped file.
    """
    at = len(START)
    while at + 1 < len(data):
        if data[at] != 0xFF or data[at + 1] == 0xFF:  # fill bytes
            at += 1
            continue
        kind, begin = data[at + 1], at
        if kind == START[1]:
            return  # another JPEG begins
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
    """Return the length of the JPEG at the begin of ``data``, bytes; None where it has no end, as it was cut
    off.

    Cameras may add data behind the end: padding, a second picture, telemetry.
    """
    if data[: len(START)] != START:
        return None
    return next((end for kind, _, end in segments(data) if kind == END), None)


def is_baseline(data: bytes) -> bool:
    """Return whether the pixels come in one scan, so that a decoder notices where some are missing."""
    return any(kind in (0xC0, 0xC1) for kind, _, _ in segments(data))


def without_metadata(data: bytes) -> bytes:
    """Return the same pixels without EXIF, colour profiles and comments, whose faults are no faults of the
    image."""
    parts, begin = [], 0
    for kind, at, end in segments(data):
        if kind == SCAN:
            break
        if kind in METADATA:
            parts.append(data[begin:at])
            begin = end
    return b"".join([*parts, data[begin:]]) if parts else data
