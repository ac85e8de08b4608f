"""Image encodings: how each one stores its pixels, and how to read a region as 8-bit BGR or grey.

The names of encodings are those of sensor_msgs (``bgr8``, ``bayer_rggb8``, ``yuv422``), of OpenCV (``8UC3``)
and of common drivers (``nv12``, ``uyvy``, ``yuyv``). YUV is interpreted as BT.601 in limited range, as OpenCV
does. Bayer patterns are demosaiced bilinearly. 16-bit pixels are reduced to 8 bits when an image is received
(`levels.Levels`); `NARROWED` lists the 8-bit encoding that each 16-bit encoding becomes.
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
"""Keys of `Image.derived`. ``CHECKED``: the `Encoding` of a checked image; ``GREY``: the image's grey
version, uint8 [H, W]."""


class Region(NamedTuple):
    """A rectangle of whole image pixels: the columns x0 to x1 - 1 and the rows y0 to y1 - 1."""

    x0: int
    y0: int
    x1: int
    y1: int

    @classmethod
    def inside(cls, box: Box, share: float, image: Image) -> Region:
        """Return the pixels of the image that a part of a box touches. The region is empty for an empty box.

        The part has the same centre as the box. ``share``: each side of the part divided by the same side of
        the box; may exceed 1.
        """
        if not (min(box.width, box.height) > 0 and math.isfinite(box.x + box.y + box.width + box.height)):
            return cls(0, 0, 0, 0)
        width, height = share * box.width, share * box.height
        left, top = box.x + box.width / 2 - width / 2, box.y + box.height / 2 - height / 2
        x0, y0 = min(max(left, 0.0), image.width), min(max(top, 0.0), image.height)
        x1, y1 = min(max(left + width, 0.0), image.width), min(max(top + height, 0.0), image.height)
        # The right edge is computed as x + width, as `Box` does: the same rounding gives the same pixels.
        return cls(math.floor(x0), math.floor(y0), math.ceil(x0 + (x1 - x0)), math.ceil(y0 + (y1 - y0)))

    @property
    def is_empty(self) -> bool:
        return self.x1 <= self.x0 or self.y1 <= self.y0


@dataclass(frozen=True)
class Encoding:
    """How one encoding stores its pixels, and how they are read.

    Attributes:
        kernel_code: Value of the `enum Encoding` in ``cuda/kernels/preprocess.cu``, for images on a GPU.
        bytes_per_pixel: Bytes of a stored row divided by the image's width.
        read: ``read(image, region)`` returns the region's pixels [h, w] or [h, w, c]: a view of the image's
            bytes if no conversion is needed, else new BGR pixels.
        red_green_blue: Indices of red, green and blue in the pixels that ``read`` returns.
        to_bgr: OpenCV's code that converts the pixels of ``read`` to BGR; None if they are BGR already.
        to_grey: OpenCV's code that converts the pixels of ``read`` to grey; None if they are grey already.
        luma: ``luma(image, region)`` returns the region's luma [h, w] in limited range (16 to 235), without
            converting colours; None for encodings that do not store luma and chroma.
        multiple: The image's width and height must be divisible by these two numbers.
        rows_per_pair: Number of stored rows for two image rows (3 for 4:2:0, else 2).
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
    grown = _grown(region, image, margin=2)  # demosaicing a pixel needs its neighbours
    return _cropped(cv2.cvtColor(_read_interleaved(1, image, grown), code), grown, region)


def _grown(region: Region, image: Image, margin: int) -> Region:
    """Return the region enlarged by ``margin`` px on each side, within the image, and to even coordinates.

    At even coordinates a chroma sample or a cell of the Bayer pattern begins.
    """
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

# OpenCV and sensor_msgs name Bayer patterns differently: sensor_msgs by the first two rows, OpenCV by the
# pixels that begin at the second row and second column. So rggb is "BG" in OpenCV.
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
"""The 8-bit encoding that each 16-bit encoding becomes when its pixels are reduced to 8 bits."""


def check_image(image: Image) -> Encoding:
    """Return the encoding of an image, after checking that the image has enough bytes for its size.

    The result is stored in the image, so that each image is checked once.

    Raises:
        InputError: Unknown encoding, zero size, too few rows or bytes, or an odd size where pixels share
            colours.
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
    # Check the declared size before the data: if the size is wrong, a check of the data would name a wrong
    # cause.
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
    # Stored, because several targets, the camera's motion and the overlay check the same image.
    image.derived[CHECKED] = encoding
    return encoding


def to_bgr(image: Image, region: Region | None = None) -> NDArray[np.uint8]:
    """Return the pixels of a region (default: the whole image) as BGR, uint8 [h, w, 3].

    For ``bgr8`` the result is a view of the image's bytes: copy it before drawing on it. Raises InputError if
    `check_image` refuses the image.
    """
    encoding = check_image(image)
    pixels = encoding.read(image, region or Region(0, 0, image.width, image.height))
    if encoding.to_bgr is not None:
        pixels = cv2.cvtColor(pixels, encoding.to_bgr)
    return pixels


def to_grey(
    image: Image, region: Region | None = None, row_step: int = 1, column_step: int = 1
) -> NDArray[np.uint8]:
    """Return a region (default: the whole image) as grey values, uint8 [h, w].

    Every ``row_step``-th row and ``column_step``-th column is returned, beginning with the first.
    ``column_step`` must divide the region's width. The grey version of a whole image is stored in the image,
    and later calls read it. The result may be a view of the image's bytes: don't write to it. Raises
    InputError if `check_image` refuses the image.
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
        # Rows are skipped before the conversion to grey. Columns are skipped after it, because OpenCV
        # extracts pixels of one byte faster.
        pixels = encoding.read(image, full)[::row_step]
        if encoding.to_grey is not None:
            pixels = cv2.cvtColor(pixels, encoding.to_grey)
        if column_step > 1:
            pixels = cv2.extractChannel(pixels.reshape(len(pixels), -1, column_step), 0)
        grey = pixels
    if region is None and row_step == column_step == 1:
        image.derived[GREY] = grey
    return grey


# Table from luma in limited range (black 16, white 235) to grey values (black 0, white 255).
_LIMITED_TO_FULL = np.clip(np.rint((np.arange(256) - 16) * 255 / 219), 0, 255).astype(np.uint8)
