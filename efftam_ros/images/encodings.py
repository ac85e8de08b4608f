"""Image encodings: their storage, the size of coded and raw images, and reading a region in 8 bits.

Names are those of sensor_msgs (``bgr8``, ``bayer_rggb8``, ``yuv422``), of OpenCV (``8UC3``) and of common
drivers (``nv12``, ``uyvy``, ``yuyv``). YUV is interpreted as BT.601 in limited range (as in OpenCV);
Bayer is demosaiced bilinearly. 16-bit pixels are reduced to 8 bits at the input (`Levels`), where they become
the encodings in `NARROWED`.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.errors import InputError, shown
from efftam_ros.core.geometry import Box
from efftam_ros.core.types import Image

MOST_PIXELS = 2**26
"""64 M: 8192 x 8192. Decoding a compressed image takes up to about ten bytes per pixel."""
MOST_SIDE = 32_767
"""OpenCV's resampling uses 16-bit pixel coordinates."""
MOST_SEGMENTS = 500
"""Most JPEG segments before the size; cameras write fewer than 50."""

Size = tuple[int, int]


def check_size(width: int, height: int, most_pixels: int = MOST_PIXELS, what: str = "image") -> None:
    """Raise InputError if an image of this size must not be read."""
    if width < 1 or height < 1:
        raise InputError(f"{what} is {width} x {height} px; both sides must be at least 1")
    if width * height > most_pixels:
        raise InputError(
            f"{what} is {width} x {height} px, {width * height} in all; at most {most_pixels} are read"
            " (max_image_pixels): send smaller images"
        )
    if max(width, height) > MOST_SIDE:
        raise InputError(f"{what} is {width} x {height} px; a side may have at most {MOST_SIDE}: crop it")


def coded_size(data: Any, what: str = "compressed image") -> Size:
    """Read width and height from the header of a JPEG, PNG, WebP, TIFF, BMP or PNM file, without decoding it.

    Raises InputError when ``data`` has another format or ends before the size.
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
    for _ in range(MOST_SEGMENTS):
        mark, kind = data[at], data[at + 1]
        if mark != 0xFF:
            raise ValueError
        if kind == 0xFF:  # fill byte
            at += 1
        elif 0xC0 <= kind <= 0xCF and kind not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack_from(">HH", data, at + 5)
            return width, height
        elif kind == 0x01 or 0xD0 <= kind <= 0xD8:  # without content
            at += 2
        elif kind in (0xD9, 0xDA):  # end, or pixels without a size
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
    size = {256: 0, 257: 0}  # the tags of width and height
    for entry in range(entries):
        tag, kind = struct.unpack_from(f"{order}HH", data, directory + 2 + 12 * entry)
        if tag in size:
            layout = {3: "H", 4: "I"}.get(kind, "")
            (value,) = struct.unpack_from(order + layout, data, directory + 10 + 12 * entry)
            size[tag] = max(size[tag], value)  # if repeated, take the larger: decoders differ
    return size[256], size[257]


def _bmp(data: memoryview) -> Size:
    if struct.unpack_from("<I", data, 14)[0] == 12:
        width, height = struct.unpack_from("<HH", data, 18)
        return width, height
    width, height = struct.unpack_from("<ii", data, 18)
    return width, abs(height)


def _pnm(data: memoryview) -> Size:
    words = re.sub(rb"#[^\n]*", b"", bytes(data[2:1024])).split(None, 2)
    return int(words[0]), int(words[1])


_FORMATS: tuple[tuple[Callable[[bytes], bool], Callable[[memoryview], Size]], ...] = (
    (lambda start: start[:2] == b"\xff\xd8", _jpeg),
    (lambda start: start[:8] == b"\x89PNG\r\n\x1a\n", _png),
    (lambda start: start[:4] == b"RIFF" and start[8:12] == b"WEBP", _webp),
    (lambda start: start[:4] in (b"II*\0", b"MM\0*"), _tiff),
    (lambda start: start[:2] == b"BM", _bmp),
    (lambda start: re.match(rb"P[1-6]\s", start) is not None, _pnm),
)


Pixels = NDArray[Any]
CHECKED, GREY = "encoding", "grey"
"""Keys of `Image.derived`: the `Encoding` of an image that was checked, and its grey version uint8 [H, W]."""


class Region(NamedTuple):
    """A rectangle of whole image pixels, half-open: columns x0..x1-1, rows y0..y1-1."""

    x0: int
    y0: int
    x1: int
    y1: int

    @classmethod
    def inside(cls, box: Box, share: float, image: Image) -> Region:
        """The pixels that a box's inner part, ``share`` of each side, touches; none for an empty box."""
        if not (min(box.width, box.height) > 0 and math.isfinite(box.x + box.y + box.width + box.height)):
            return cls(0, 0, 0, 0)
        width, height = share * box.width, share * box.height
        left, top = box.x + box.width / 2 - width / 2, box.y + box.height / 2 - height / 2
        x0, y0 = min(max(left, 0.0), image.width), min(max(top, 0.0), image.height)
        x1, y1 = min(max(left + width, 0.0), image.width), min(max(top + height, 0.0), image.height)
        # From corner and size, as a box computes its edges: the same pixels to the last bit.
        return cls(math.floor(x0), math.floor(y0), math.ceil(x0 + (x1 - x0)), math.ceil(y0 + (y1 - y0)))

    @property
    def is_empty(self) -> bool:
        return self.x1 <= self.x0 or self.y1 <= self.y0


@dataclass(frozen=True)
class Encoding:
    """Storage of one encoding's pixels.

    Attributes:
        kernel_code: Of the `enum Encoding` in ``cuda/kernels/preprocess.cu``, which reads it on a GPU.
        bytes_per_pixel: Of a stored row.
        read: ``read(image, region)`` returns the region's pixels [h, w] or [h, w, c]: a view of the image's
            bytes if no conversion is needed, else new BGR pixels.
        red_green_blue: Indices of these channels in the pixels that ``read`` returns.
        to_bgr: OpenCV's code to convert those pixels to BGR; None if they are BGR already.
        to_grey: The same for grey.
        luma: ``luma(image, region)`` returns the region's lightness [h, w] in limited range, without
            converting colours; None where pixels are not stored as luma and chroma.
        multiple: Width and height must be divisible by these.
        rows_per_pair: Stored rows per two image rows (3 for 4:2:0, else 2).
    """

    kernel_code: int
    bytes_per_pixel: int
    read: Callable[[Image, Region], Pixels]
    red_green_blue: tuple[int, int, int] = (2, 1, 0)
    to_bgr: int | None = None
    to_grey: int | None = cv2.COLOR_BGR2GRAY
    luma: Callable[[Image, Region], Pixels] | None = None
    multiple: tuple[int, int] = (1, 1)
    rows_per_pair: int = 2


def _read_interleaved(channels: int, image: Image, region: Region) -> Pixels:
    x0, y0, x1, y1 = region
    rows = image.rows[y0:y1, x0 * channels : x1 * channels]
    return rows if channels == 1 else rows.reshape(y1 - y0, x1 - x0, channels)


def _read_yuv420(code: int, image: Image, region: Region) -> Pixels:
    even = _grown(region, image, margin=0)
    x0, y0, x1, y1 = even
    luma = image.rows[y0:y1, x0:x1]
    chroma = image.rows[image.height + y0 // 2 : image.height + y1 // 2, x0:x1]
    bgr = cv2.cvtColorTwoPlane(luma, chroma.reshape((y1 - y0) // 2, (x1 - x0) // 2, 2), code)
    return _cropped(bgr, even, region)


def _luma_plane(image: Image, region: Region) -> Pixels:
    return image.rows[region.y0 : region.y1, region.x0 : region.x1]


def _read_yuv422(code: int, image: Image, region: Region) -> Pixels:
    even = _grown(region, image, margin=0)
    return _cropped(cv2.cvtColor(_read_interleaved(2, image, even), code), even, region)


def _luma_yuv422(channel: int, image: Image, region: Region) -> Pixels:
    return _read_interleaved(2, image, region)[..., channel]


def _read_bayer(code: int, image: Image, region: Region) -> Pixels:
    grown = _grown(region, image, margin=2)  # demosaicing reads neighbouring pixels
    return _cropped(cv2.cvtColor(_read_interleaved(1, image, grown), code), grown, region)


def _grown(region: Region, image: Image, margin: int) -> Region:
    """The region with a margin, its edges on even pixels (the start of a chroma or colour-filter cell)."""
    x0, y0, x1, y1 = region
    return Region(
        max(0, (x0 - margin) // 2 * 2),
        max(0, (y0 - margin) // 2 * 2),
        min(image.width, (x1 + margin + 1) // 2 * 2),
        min(image.height, (y1 + margin + 1) // 2 * 2),
    )


def _cropped(pixels: Pixels, have: Region, want: Region) -> Pixels:
    return pixels[want.y0 - have.y0 : want.y1 - have.y0, want.x0 - have.x0 : want.x1 - have.x0]


def _yuv420(kernel_code: int, code: int) -> Encoding:
    read = partial(_read_yuv420, code)
    return Encoding(kernel_code, 1, read, luma=_luma_plane, multiple=(2, 2), rows_per_pair=3)


def _yuv422(kernel_code: int, code: int, luma_channel: int) -> Encoding:
    luma = partial(_luma_yuv422, luma_channel)
    return Encoding(kernel_code, 2, partial(_read_yuv422, code), luma=luma, multiple=(2, 1))


def _bayer(kernel_code: int, code: int) -> Encoding:
    return Encoding(kernel_code, 1, partial(_read_bayer, code), multiple=(2, 2))


_C3, _C4 = partial(_read_interleaved, 3), partial(_read_interleaved, 4)
_BGR = Encoding(0, 3, _C3)
_MONO = Encoding(4, 1, partial(_read_interleaved, 1), (0, 0, 0), cv2.COLOR_GRAY2BGR, None)
_UYVY = _yuv422(7, cv2.COLOR_YUV2BGR_UYVY, luma_channel=1)
_YUYV = _yuv422(8, cv2.COLOR_YUV2BGR_YUY2, luma_channel=0)

# OpenCV names a Bayer pattern after its second row and column, sensor_msgs after its first: rggb is OpenCV's
# "BG".
ENCODINGS: dict[str, Encoding] = {
    "bgr8": _BGR,
    "rgb8": Encoding(1, 3, _C3, (0, 1, 2), cv2.COLOR_RGB2BGR, cv2.COLOR_RGB2GRAY),
    "bgra8": Encoding(2, 4, _C4, (2, 1, 0), cv2.COLOR_BGRA2BGR, cv2.COLOR_BGRA2GRAY),
    "rgba8": Encoding(3, 4, _C4, (0, 1, 2), cv2.COLOR_RGBA2BGR, cv2.COLOR_RGBA2GRAY),
    "mono8": _MONO,
    "8UC1": _MONO,
    "8UC3": _BGR,
    "nv12": _yuv420(5, cv2.COLOR_YUV2BGR_NV12),
    "nv21": _yuv420(6, cv2.COLOR_YUV2BGR_NV21),
    "yuv422": _UYVY,
    "yuv422_uyvy": _UYVY,
    "uyvy": _UYVY,
    "yuv422_yuy2": _YUYV,
    "yuyv": _YUYV,
    "bayer_rggb8": _bayer(9, cv2.COLOR_BayerBG2BGR),
    "bayer_bggr8": _bayer(10, cv2.COLOR_BayerRG2BGR),
    "bayer_gbrg8": _bayer(11, cv2.COLOR_BayerGR2BGR),
    "bayer_grbg8": _bayer(12, cv2.COLOR_BayerGB2BGR),
}
NARROWED = {
    "16UC1": "8UC1",
    "16UC3": "8UC3",
    **{name[:-1] + "16": name for name in ENCODINGS if name[-1] == "8" and not name.startswith("yuv")},
}
"""16-bit encodings, and those of the same images in 8 bits."""


def check_image(image: Image) -> Encoding:
    """Return the encoding of an image after checking, once per image, that its bytes suffice for its size.

    Raises:
        InputError: Unknown encoding, zero size, an odd size where pixels share colour, too few rows or bytes.
    """
    known: Encoding | None = image.derived.get(CHECKED)
    if known is not None:
        return known
    encoding = ENCODINGS.get(image.encoding)
    if encoding is None:
        raise InputError(
            f"image encoding {shown(image.encoding)} is not supported; publish one of"
            f" {', '.join([*ENCODINGS, *NARROWED])}"
        )
    # The checks go from what the sender declares to what it sent: the first one that fails is the cause.
    width, height = image.width, image.height
    if width < 1 or height < 1:
        raise InputError(f"image is {width} x {height} px; both sides must be at least 1")
    if width % encoding.multiple[0] or height % encoding.multiple[1]:
        sides = "width and height" if encoding.multiple[1] > 1 else "width"
        raise InputError(
            f"image is {width} x {height} px; encoding {image.encoding} needs an even {sides}:"
            " crop it or convert it to bgr8"
        )
    rows, need_rows, need_bytes = (
        image.rows,
        height * encoding.rows_per_pair // 2,
        width * encoding.bytes_per_pixel,
    )
    if rows.ndim != 2 or rows.dtype != np.uint8 or (rows.shape[1] > 1 and rows.strides[1] != 1):
        raise InputError(
            f"image rows are {rows.dtype} {rows.shape};"
            " give uint8 [rows, bytes] with the bytes of a row contiguous"
        )
    if rows.shape[1] < need_bytes:
        raise InputError(
            f"image row (step) has {rows.shape[1]} bytes; {width} px of {image.encoding} need {need_bytes}:"
            " correct the step or the width"
        )
    if rows.shape[0] < need_rows:
        raise InputError(
            f"image data ends after {rows.shape[0]} rows; {width} x {height} px of {image.encoding}"
            f" need {need_rows}: the image is truncated or its height is wrong"
        )
    # With the image: several targets, the camera's motion and the overlay use it again.
    image.derived[CHECKED] = encoding
    return encoding


def to_bgr(image: Image, region: Region | None = None) -> NDArray[np.uint8]:
    """Pixels of the region (default: the whole image) as uint8 [h, w, 3] BGR; raises as `check_image` does.

    For ``bgr8`` this is a view of the image's bytes: copy it before drawing on it.
    """
    encoding = check_image(image)
    pixels = encoding.read(image, region or Region(0, 0, image.width, image.height))
    if encoding.to_bgr is not None:
        pixels = cv2.cvtColor(pixels, encoding.to_bgr)
    return pixels


def to_grey(
    image: Image, region: Region | None = None, row_step: int = 1, column_step: int = 1
) -> NDArray[np.uint8]:
    """Lightness of the region (default: the whole image) as uint8 [h, w]; raises as `check_image` does.

    Reads every ``row_step``-th row and ``column_step``-th column, from the first; ``column_step`` must divide
    the region's width. Only these pixels are converted, but of Bayer images all are, and nothing twice once
    the whole image was. The result may be a view of the image's bytes: don't write to it.
    """
    whole: NDArray[np.uint8] | None = image.derived.get(GREY)
    if whole is not None:
        x0, y0, x1, y1 = region or (0, 0, image.width, image.height)
        return whole[y0:y1:row_step, x0:x1:column_step]
    encoding = check_image(image)
    full = region or Region(0, 0, image.width, image.height)
    if encoding.luma is not None:
        luma = encoding.luma(image, full)[::row_step, ::column_step]
        grey = np.asarray(cv2.LUT(luma, _LIMITED_TO_FULL), np.uint8)
    else:
        # Columns are skipped after the conversion, because OpenCV picks pixels of one byte faster.
        pixels = encoding.read(image, full)[::row_step]
        if encoding.to_grey is not None:
            pixels = cv2.cvtColor(pixels, encoding.to_grey)
        if column_step > 1:
            pixels = cv2.extractChannel(pixels.reshape(len(pixels), -1, column_step), 0)
        grey = pixels
    if region is None and row_step == column_step == 1:
        image.derived[GREY] = grey
    return grey


# Luma of white is 235, that of black 16.
_LIMITED_TO_FULL = np.clip(np.rint((np.arange(256) - 16) * 255 / 219), 0, 255).astype(np.uint8)


AUTO = "auto"
# Share of the pixels darker than black and brighter than white, before the margin of the range on both sides:
# a small hot target is among the brightest few and must keep its shape.
TAIL, MARGIN = 0.005, 0.1
# Pixels that the percentiles are read from, at least.
SAMPLE = 20_000
# The range widens fast, as what lies outside is not seen, and narrows slowly: a thermal camera shows its
# shutter for half a second. Time constants, s; a longer interval between images counts as LONGEST_S.
WIDEN_S, NARROW_S, LONGEST_S = 0.5, 5.0, 1.0
# Narrowest range, levels: below it only noise would be amplified.
LEAST_SPAN = 16
# Fewest grey levels, each of at least this share of the pixels, that images show without a warning.
FEWEST_LEVELS, LEVEL_SHARE = 12, 0.001


def fixed_range(text: str) -> tuple[float, float] | None:
    """The levels of black and white in ``LOW,HIGH``; None for ``auto``. Raises InputError for other texts."""
    if text == AUTO:
        return None
    try:
        low, high = map(int, text.split(","))
    except ValueError:
        low = high = 0
    if not 0 <= low < high <= 65535:
        raise InputError(
            f"the range of 16-bit images is {shown(text)}; give {AUTO}, or LOW,HIGH with"
            " 0 <= LOW < HIGH <= 65535"
        )
    return low, high


class Levels:
    """The range of a stream's 16-bit pixels: percentiles of each image, smoothed over time, or fixed.

    One object per stream, so that the image of a selection and the later ones have the same range. Used by
    one thread; ``text`` may be read from others. ``fixed``: see `fixed_range`.
    """

    def __init__(self, fixed: str = AUTO) -> None:
        self._range, self._is_fixed = fixed_range(fixed), fixed != AUTO
        self._last_ns = 0

    @property
    def text(self) -> str:
        """The present range, for people; empty before the first 16-bit image."""
        if self._range is None:
            return ""
        low, high = self._range
        return f"{low:.0f} to {high:.0f}{' (fixed)' if self._is_fixed else ''}"

    def reduced(self, pixels: NDArray[Any], stamp_ns: int) -> NDArray[np.uint8]:
        """uint16 [H, W] or [H, W, C] as uint8 of the same shape, C-contiguous; uint8 unchanged."""
        if pixels.dtype == np.uint8:
            return pixels
        low, high = self._follow(pixels, stamp_ns)
        # Subtracting saturates at 0, scaling at 255.
        above = cv2.subtract(np.ascontiguousarray(pixels), np.full(4, round(low), np.float64))
        return np.asarray(cv2.convertScaleAbs(above, alpha=255.0 / (high - round(low))), np.uint8)

    def _follow(self, pixels: NDArray[Any], stamp_ns: int) -> tuple[float, float]:
        if self._is_fixed and self._range is not None:
            return self._range
        # A sample suffices for percentiles, and a partition costs less than sorting it.
        step = max(1, math.isqrt(pixels.shape[0] * pixels.shape[1] // SAMPLE))
        sample = pixels[::step, ::step].reshape(-1)
        first, last = int(TAIL * (sample.size - 1)), math.ceil((1 - TAIL) * (sample.size - 1))
        ordered = np.partition(sample, (first, last))
        dark, bright = float(ordered[first]), float(ordered[last])
        # A flat image must not have its noise stretched to black and white.
        room = max(MARGIN * (bright - dark), (LEAST_SPAN - (bright - dark)) / 2)
        low, high = max(0.0, dark - room), min(65535.0, bright + room)
        # Without smoothing a bright reflection would dim everything else from one image to the next.
        if self._range is not None:
            interval_s = min(abs(stamp_ns - self._last_ns) * 1e-9, LONGEST_S)
            low = _smoothed(self._range[0], low, interval_s, low < self._range[0])
            high = _smoothed(self._range[1], high, interval_s, high > self._range[1])
        high = max(high, low + LEAST_SPAN)
        self._range, self._last_ns = (low, high), stamp_ns
        return low, high


def _smoothed(before: float, now: float, interval_s: float, is_wider: bool) -> float:
    return now + (before - now) * math.exp(-interval_s / (WIDEN_S if is_wider else NARROW_S))


def few_levels(image: Image) -> str:
    """Say that an image holds few grey levels, with the remedy, in one line; empty when there are enough."""
    grey = to_grey(image, row_step=max(1, image.height // 64))
    counts = np.bincount(grey.reshape(-1), minlength=256)
    levels = int(np.count_nonzero(counts >= LEVEL_SHARE * grey.size))
    if levels >= FEWEST_LEVELS:
        return ""
    return (
        f"the images hold only {levels} grey levels, too few to tell a target from its surroundings: publish"
        " 16-bit images unscaled (mono16), or correct the exposure or the camera's own range"
    )
