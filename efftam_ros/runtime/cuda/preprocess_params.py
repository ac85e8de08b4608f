"""Makes the parameters of the kernels ``preprocess`` and ``mask_upsample``."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.geometry import View
from efftam_ros.core.types import Image
from efftam_ros.images.pixels import Encoding, check_image
from efftam_ros.runtime.cuda.kernel_table import MASK_VIEW, PREPROCESS_PARAMS
from efftam_ros.runtime.preprocess import centres_within, fineness

Record = NDArray[np.void]
"""A struct as a numpy array of shape []."""

# How far outside a view its samples may read pixels, px. One pixel is for bilinear interpolation, one for
# Bayer demosaicing, and one for the rounding of positions to float32.
_MARGIN = 3


class Part(NamedTuple):
    """A part of `Image.rows`: a range of rows, and in each of these rows the same range of bytes.

    The rows are ``top`` to ``bottom`` - 1, the bytes ``left`` to ``right`` - 1.
    """

    top: int
    bottom: int
    left: int
    right: int

    @property
    def slices(self) -> tuple[slice, slice]:
        """The indices of the part in `Image.rows`: its rows, and its bytes in each row."""
        return slice(self.top, self.bottom), slice(self.left, self.right)

    @property
    def nbytes(self) -> int:
        return (self.bottom - self.top) * (self.right - self.left)

    def holds(self, other: Part) -> bool:
        return (
            self.top <= other.top
            and other.bottom <= self.bottom
            and self.left <= other.left
            and other.right <= self.right
        )


class PreprocessParameters:
    """Makes the parameters of the kernel ``preprocess``, which computes on the GPU what `Preprocessor` does.

    ``side``: side of the network's input, px. ``mean``, ``std``: mean and standard deviation of the R, G and
    B channels, for values 0..1.
    """

    def __init__(self, side: int, mean: tuple[float, float, float], std: tuple[float, float, float]) -> None:
        self._side = side
        self._std = np.array(std)
        self._shift = -np.array(mean) / self._std

    def record(self, image: Image, view: View) -> Record:
        """Return the kernel's parameters for a view of an image, dtype PREPROCESS_PARAMS, shape [].

        The kernel must receive the address of a C-contiguous copy of ``image.rows``. Raises InputError for an
        image that can't be used, and ValueError if ``view.side`` is not the side of the network's input.
        """
        encoding = self._checked(image, view)
        record = np.zeros((), PREPROCESS_PARAMS)
        record["width"], record["height"] = image.width, image.height
        record["step"] = image.rows.shape[1]
        record["encoding"] = encoding.kernel_code
        record["side"] = self._side
        record["fine"] = fineness(view)
        record["x"], record["y"] = view.x, view.y
        record["scale_x"], record["scale_y"] = view.scale_x, view.scale_y
        record["gain"] = 1.0 / (self._std * 255.0)
        record["shift"] = self._shift
        record["full_view"] = view.is_full(image.width, image.height)
        return record

    def needed_parts(self, image: Image, view: View) -> tuple[Part, ...]:
        """Return the parts of ``image.rows`` that the kernel reads for a view.

        There is usually one part. A window of an nv12 or nv21 image needs two, brightness and colour. A view
        outside the image needs none. All other bytes on the GPU may be undefined. Raises InputError for an
        image that can't be used, and ValueError if ``view.side`` is not the side of the network's input.
        """
        encoding = self._checked(image, view)
        stored = image.height * encoding.rows_per_pair // 2
        if view.is_full(image.width, image.height):
            return (Part(0, stored, 0, image.width * encoding.bytes_per_pixel),)
        left, top, right, bottom = view.pixels(image.width, image.height, _MARGIN)
        if top >= bottom or left >= right:
            return ()
        # Neighbouring pixels may share their colour. The part then begins and ends at such a group of pixels.
        together = encoding.multiple[0]
        columns = (
            left // together * together * encoding.bytes_per_pixel,
            -(-right // together) * together * encoding.bytes_per_pixel,
        )
        luma = Part(top, bottom, *columns)
        if stored == image.height:
            return (luma,)
        # The rows of colour are stored after those of brightness. Two rows of brightness share a row of
        # colour, and a pair of colour bytes has the same columns as the two pixels that share it.
        return luma, Part(image.height + top // 2, image.height + (bottom + 1) // 2, *columns)

    def _checked(self, image: Image, view: View) -> Encoding:
        if view.side != self._side:
            raise ValueError(
                f"the view's side is {view.side} px; it must be {self._side}, that of the network's input"
            )
        return check_image(image)


def mask_view(view: View, width: int, height: int, low: int) -> Record:
    """Return the parameters of the kernel ``mask_upsample``, dtype MASK_VIEW, shape [].

    ``view``: the view for which the logits, [low, low], were computed. ``width``, ``height``: size of the
    image, px. Which pixels are in the view is computed here in double precision, so that the result is the
    same as that of `preprocess.image_mask`.
    """
    cells_x, cells_y = view.scale_x * low / view.side, view.scale_y * low / view.side
    x0, x1, y0, y1 = 0, width, 0, height
    if not view.is_full(width, height):
        extent_x, extent_y = view.extent
        x0, x1 = centres_within(view.x, view.x + extent_x, width)
        y0, y1 = centres_within(view.y, view.y + extent_y, height)
    record = np.zeros((), MASK_VIEW)
    record["width"], record["height"], record["low"] = width, height, low
    if x0 >= x1 or y0 >= y1:
        return record
    record["x0"], record["x1"], record["y0"], record["y1"] = x0, x1, y0, y1
    record["start_x"] = (x0 + 0.5 - view.x) * cells_x - 0.5
    record["start_y"] = (y0 + 0.5 - view.y) * cells_y - 0.5
    record["cells_x"], record["cells_y"] = cells_x, cells_y
    return record
