"""Limits for image sizes, and the size of a compressed image as its header states it, before decoding."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import Any

from efftam_ros.core.errors import InputError, shown

MAX_PIXELS = 2**26
"""Most pixels of an image: 8192 x 8192. Decoding a compressed image needs up to about ten bytes per pixel."""
MAX_SIDE = 32_767
"""Longest side of an image, px: OpenCV's resampling uses 16-bit pixel coordinates."""
MAX_SEGMENTS = 500
"""Largest number of segments of a JPEG that are read to find the image's size. Cameras write fewer than
50."""

Size = tuple[int, int]


def check_size(width: int, height: int, most_pixels: int = MAX_PIXELS, what: str = "image") -> None:
    """Raise InputError if an image of this size, px, must not be read.

    ``most_pixels``: largest number of pixels; ``what``: name of the image in the error text.
    """
    if width < 1 or height < 1:
        raise InputError(f"{what} is {width} x {height} px; both sides must be at least 1")
    if width * height > most_pixels:
        raise InputError(
            f"{what} is {width} x {height} px, which are {width * height} pixels; at most {most_pixels} are"
            " read (max_image_pixels): send smaller images"
        )
    if max(width, height) > MAX_SIDE:
        raise InputError(f"{what} is {width} x {height} px; a side may have at most {MAX_SIDE}: crop it")


def coded_size(data: Any, what: str = "compressed image") -> Size:
    """Return width and height, px, from the header of a JPEG, PNG, WebP, TIFF, BMP or PNM file, without
    decoding.

    ``data``: the file's bytes; ``what``: name of the image in the error text. Raises InputError when ``data``
    has another format, or ends before the size.
    """
    view = memoryview(data).cast("B")
    start = bytes(view[:16])
    for fits, size in _FORMATS:
        if fits(start):
            try:
                return size(view)
            except (struct.error, IndexError, ValueError):
                raise InputError(
                    f"{what} of {len(view)} bytes has no readable size in its header: it is truncated or"
                    " damaged"
                ) from None
    raise InputError(
        f"{what} of {len(view)} bytes begins with {shown(start.hex())} and can't be decoded: use jpeg or png"
    )


def _jpeg(data: memoryview) -> Size:
    at = 2
    for _ in range(MAX_SEGMENTS):
        mark, kind = data[at], data[at + 1]
        if mark != 0xFF:
            raise ValueError
        if kind == 0xFF:  # a fill byte before a marker
            at += 1
        elif 0xC0 <= kind <= 0xCF and kind not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack_from(">HH", data, at + 5)
            return width, height
        elif kind == 0x01 or 0xD0 <= kind <= 0xD8:  # markers without content
            at += 2
        elif kind in (0xD9, 0xDA):  # the file ends, or its pixels begin, and no size was found
            raise ValueError
        else:
            at += 2 + struct.unpack_from(">H", data, at + 2)[0]
    raise ValueError


def _png(data: memoryview) -> Size:
    length, kind, width, height = struct.unpack_from(">I4sII", data, 8)
    if (length, kind) != (13, b"IHDR"):
        raise ValueError
    return width, height


def _webp(data: memoryview) -> Size:
    kind = bytes(data[12:16])
    if kind == b"VP8X":
        if len(data) < 30:
            raise ValueError
        width, height = (int.from_bytes(data[at : at + 3], "little") for at in (24, 27))
        return width + 1, height + 1
    if kind == b"VP8L":
        (bits,) = struct.unpack_from("<I", data, 21)
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8 ":
        width, height = struct.unpack_from("<HH", data, 26)
        return width & 0x3FFF, height & 0x3FFF
    raise ValueError


def _tiff(data: memoryview) -> Size:
    order = "<" if data[0] == ord("I") else ">"
    (directory,) = struct.unpack_from(f"{order}I", data, 4)
    (entries,) = struct.unpack_from(f"{order}H", data, directory)
    size = {256: 0, 257: 0}  # values by tag: 256 is the image's width, 257 its height
    for entry in range(entries):
        tag, kind = struct.unpack_from(f"{order}HH", data, directory + 2 + 12 * entry)
        if tag in size:
            layout = {3: "H", 4: "I"}.get(kind, "")
            (value,) = struct.unpack_from(order + layout, data, directory + 10 + 12 * entry)
            # If a tag is repeated, decoders differ in which value they use. With the larger value no decoder
            # exceeds the checked size.
            size[tag] = max(size[tag], value)
    return size[256], size[257]


def _bmp(data: memoryview) -> Size:
    if struct.unpack_from("<I", data, 14)[0] == 12:
        width, height = struct.unpack_from("<HH", data, 18)
        return width, height
    width, height = struct.unpack_from("<ii", data, 18)
    return width, abs(height)


def _pnm(data: memoryview) -> Size:
    numbers = re.sub(rb"#[^\n]*", b"", bytes(data[2:1024])).split(None, 2)
    return int(numbers[0]), int(numbers[1])


_FORMATS: tuple[tuple[Callable[[bytes], bool], Callable[[memoryview], Size]], ...] = (
    (lambda start: start[:2] == b"\xff\xd8", _jpeg),
    (lambda start: start[:8] == b"\x89PNG\r\n\x1a\n", _png),
    (lambda start: start[:4] == b"RIFF" and start[8:12] == b"WEBP", _webp),
    (lambda start: start[:4] in (b"II*\0", b"MM\0*"), _tiff),
    (lambda start: start[:2] == b"BM", _bmp),
    (lambda start: re.match(rb"P[1-6]\s", start) is not None, _pnm),
)
