"""Image encodings: how their pixels are stored, and reading a region of them as BGR or grey in 8 bits.

Names are those of sensor_msgs (``bgr8``, ``bayer_rggb8``, ``yuv422``), of OpenCV (``8UC3``) and of common
drivers (``nv12``, ``uyvy``, ``yuyv``). YUV is interpreted as BT.601 in limited range (as in OpenCV);
Bayer is demosaiced bilinearly. 16-bit pixels are reduced to 8 bits at the input (`levels.Levels`), where they
become the encodings in `NARROWED`.
"""

from __future__ import annotations

import math
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
        """Return the pixels that a box's inner part, ``share`` of each side, touches; none for an empty
        box."""
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
    """Return the region with a margin, its edges on even pixels (the start of a chroma or colour-filter
    cell)."""
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
