"""What surrounds the network on the host: its input from pixels and prompts, boxes and masks from logits."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import View
from efftam_ros.core.types import Image, Prompt
from efftam_ros.images.pixels import CHECKED, Region, check_image

DENSITY = 0.6
"""Least number of samples per image pixel and axis. At 1 there is no aliasing; at 0.6 every pixel still
contributes (bilinear sampling reaches one pixel to either side), the result is as close to the reference, and
a frame takes a third of the time of OpenCV's area filter."""
BILINEAR_MARGIN = 2
"""Pixels outside the view that its samples may read: one for bilinear sampling, one for rounding."""
MAX_SAMPLES = 4096
"""Most samples along a side of the sampled square, at three bytes per sample. A view that shows more than
6700 px along a side skips pixels."""


class Preprocessor:
    """Converts image bytes to ``float32 [1, 3, side, side]``: RGB, ``(value/255 - mean) / std`` per channel.

    Filter: bilinear sampling on a grid ``m`` times as fine as the network's, averaged by exactly ``m``. ``m``
    is the smallest whole number that gives at least 0.6 samples per image pixel (1 when shrinking by less
    than 5/3), limited to 4096 samples along a side. Full and window views use the same filter, so that an
    object looks the same in both; an image point p is mapped to ``view.to_network(p)``.

    Compared with the reference's filter (Pillow's antialiased bicubic) it differs by 0.6 grey levels RMS on
    the golden clip at 512; the masks of the whole tracked clip have an IoU with the reference's of 0.9996 in
    the mean and 0.9990 in the worst frame.
    """

    def __init__(self, side: int, mean: tuple[float, float, float], std: tuple[float, float, float]) -> None:
        self._side = side
        # (pixel / 255 - mean) / std as one multiplication and one addition.
        self._gain = [1.0 / s for s in std]
        self._shift = [-m / s for m, s in zip(mean, std, strict=True)]
        self._input = np.zeros((1, 3, side, side), np.float32)
        self._scratch: dict[tuple[str, str], NDArray[Any]] = {}

    @property
    def output(self) -> NDArray[np.float32]:
        """The C-contiguous array that every call fills and returns."""
        return self._input

    def __call__(self, image: Image, view: View) -> NDArray[np.float32]:
        """Compute the network input of a view, in an array that the next call overwrites.

        Outside the image the input is black. Only pixels inside the view are read. Raises InputError as
        `pixels.check_image` does.
        """
        encoding = image.derived.get(CHECKED) or check_image(image)
        side = self._side
        if view.side != side:
            raise ValueError(f"view of side {view.side} given to a preprocessor of side {side}")
        is_full = view.is_full(image.width, image.height)
        # A window of a large image: only its pixels are converted to the network's channels.
        if is_full:
            region = Region(0, 0, image.width, image.height)
        else:
            region = Region(*view.pixels(image.width, image.height, margin=BILINEAR_MARGIN))
        if region.is_empty:
            self._input[0] = np.array(self._shift, np.float32)[:, None, None]
            return self._input
        pixels, fine = encoding.read(image, region), fineness(view)
        sampled = self._buffer("fine", (fine * side, fine * side, *pixels.shape[2:]), pixels.dtype)
        if is_full:
            sampled = cv2.resize(
                pixels, (fine * side, fine * side), dst=sampled, interpolation=cv2.INTER_LINEAR
            )
        else:
            sampled = _warp(pixels, region, view, fine, sampled)
        # Bilinear samples of a strongly reduced picture would miss small targets between them.
        if fine > 1:
            small = self._buffer("small", (side, side, *pixels.shape[2:]), pixels.dtype)
            sampled = cv2.resize(sampled, (side, side), dst=small, interpolation=cv2.INTER_AREA)
        self._normalise(sampled, encoding.red_green_blue)
        return self._input

    def _normalise(self, small: NDArray[Any], red_green_blue: tuple[int, int, int]) -> None:
        """Scale and shift each channel into the input, in RGB order."""
        planes: Any = (small,)
        if small.ndim == 3:
            shape = (small.shape[2], self._side, self._side)
            planes = cv2.split(small, list(self._buffer("planes", shape, small.dtype)))
        for target, source, gain, shift in zip(
            self._input[0], red_green_blue, self._gain, self._shift, strict=True
        ):
            plane = planes[source]
            cv2.addWeighted(plane, gain / 255.0, plane, 0.0, shift, dst=target, dtype=cv2.CV_32F)

    def _buffer(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Reused memory that only grows."""
        key, size = (name, dtype.char), math.prod(shape)
        if key not in self._scratch or self._scratch[key].size < size:
            self._scratch[key] = np.empty(size, dtype)
        return self._scratch[key][:size].reshape(shape)


def fineness(view: View) -> int:
    """Samples per network px and axis."""
    wanted = math.ceil(DENSITY / min(view.scale_x, view.scale_y) - 1e-9)
    return max(1, min(wanted, MAX_SAMPLES // view.side))


def _warp(pixels: NDArray[Any], region: Region, view: View, fine: int, out: NDArray[Any]) -> NDArray[Any]:
    """Sample the region bilinearly on the view's grid, ``fine`` samples per network px and axis."""
    sx, sy = view.scale_x * fine, view.scale_y * fine
    # OpenCV's coordinates refer to pixel centres, the view's to pixel edges: hence the 0.5.
    matrix = np.array(
        [
            [sx, 0.0, (region.x0 + 0.5 - view.x) * sx - 0.5],
            [0.0, sy, (region.y0 + 0.5 - view.y) * sy - 0.5],
        ]
    )
    size = (out.shape[1], out.shape[0])
    return cv2.warpAffine(
        pixels, matrix, size, dst=out, flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_CONSTANT, borderValue=0
    )


# Network px per pixel of the decoder's logits.
CELL = 4


def boxes_and_areas(logits: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Boxes [K, 4] (left, top, right, bottom, network px) and areas [K] (network px^2) of logits [K, L, L].

    Same result as the decoder graph: an edge lies where the maximum over rows or columns crosses zero,
    linearly interpolated between pixel centres, and on the border where the mask touches it. An empty mask
    gives zeros.
    """
    boxes = np.zeros((len(logits), 4), np.float32)
    for box, map_ in zip(boxes, logits, strict=True):
        if (map_ > 0).any():
            box[0], box[2] = _crossings(map_.max(axis=0))
            box[1], box[3] = _crossings(map_.max(axis=1))
    areas = (logits > 0).sum(axis=(1, 2), dtype=np.float32) * CELL**2
    return boxes * CELL, areas


def _crossings(profile: NDArray[np.float32]) -> tuple[float, float]:
    """Return where a profile first and last crosses zero, in its pixels' edge coordinates."""
    inside = np.flatnonzero(profile > 0)
    first, last = int(inside[0]), int(inside[-1])
    low, high = 0.0, float(len(profile))
    # Linear between the last pixel outside and the first one inside: edges finer than a cell.
    if first > 0:
        low = first + 0.5 - profile[first] / (profile[first] - profile[first - 1])
    if last + 1 < len(profile):
        high = last + 0.5 + profile[last] / (profile[last] - profile[last + 1])
    return low, high


def image_mask(logits: NDArray[np.float32], view: View, width: int, height: int) -> NDArray[np.uint8]:
    """Resample the logits [L, L] of a view to a mask uint8 [height, width], 255 where the bilinear logit is
    above 0.

    Pixels whose centre lies outside the view are 0.
    """
    if view.is_full(width, height):
        scaled = cv2.resize(logits, (width, height), interpolation=cv2.INTER_LINEAR)
        return _positive(scaled)
    # Only the pixels of the window are computed: a window is a small part of a large image.
    mask = np.zeros((height, width), np.uint8)
    extent_x, extent_y = view.extent
    x0, x1 = centres_within(view.x, view.x + extent_x, width)
    y0, y1 = centres_within(view.y, view.y + extent_y, height)
    if x0 < x1 and y0 < y1:
        cells_x, cells_y = view.scale_x / CELL, view.scale_y / CELL
        matrix = np.array(
            [
                [cells_x, 0.0, (x0 + 0.5 - view.x) * cells_x - 0.5],
                [0.0, cells_y, (y0 + 0.5 - view.y) * cells_y - 0.5],
            ]
        )
        flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
        size = (x1 - x0, y1 - y0)
        scaled = cv2.warpAffine(logits, matrix, size, flags=flags, borderMode=cv2.BORDER_REPLICATE)
        mask[y0:y1, x0:x1] = _positive(scaled)
    return mask


def _positive(values: NDArray[Any]) -> NDArray[np.uint8]:
    """255 where a value is above 0, else (also for NaN) 0."""
    return (values > 0).view(np.uint8) * np.uint8(255)


def centres_within(low: float, high: float, size: int) -> tuple[int, int]:
    """Range [first, end) of the pixels in a line of ``size`` whose centres lie in [low, high)."""
    return max(0, int(np.ceil(low - 0.5))), min(size, int(np.ceil(high - 0.5)))


# Absolute value of the logits of a mask prompt, which replace the network's output.
CERTAIN = 10.0
# Rounding error by which a point on the image's edge may lie outside a view that ends there.
ROUNDING_PX = 1e-6
_ANOTHER_VIEW = "encode one that shows it"


@dataclass(frozen=True)
class EncodedPrompt:
    """Inputs of the prompt encoder: ``points`` float32 [1, n, 2] network px, ``labels`` int64 [1, n] (1 on
    the target, 0 off it, 2 and 3 the corners of a box, -1 padding), ``mask`` float32 [1, 1, S, S] 0 or 1,
    ``has_mask`` float32 [1]. ``multimask``: three alternatives are offered instead of the single answer;
    ``logits``: float32 [S/4, S/4] of a mask prompt, else None."""

    points: NDArray[np.float32]
    labels: NDArray[np.int64]
    mask: NDArray[np.float32]
    has_mask: NDArray[np.float32]
    multimask: bool
    logits: NDArray[np.float32] | None = None


def no_prompt(side: int) -> EncodedPrompt:
    """Return the prompt of a tracked frame: one padding point."""
    return EncodedPrompt(
        points=np.zeros((1, 1, 2), np.float32),
        labels=np.full((1, 1), -1, np.int64),
        mask=np.zeros((1, 1, side, side), np.float32),
        has_mask=np.zeros(1, np.float32),
        multimask=True,
    )


def encode_prompt(prompt: Prompt, view: View, width: int, height: int) -> EncodedPrompt:
    """Convert a prompt on an image of this size to the view's network pixels; a box is clipped. Raises
    InputError as `Prompt.checked` does, and where the view does not show what is marked."""
    prompt.checked(width, height)
    if prompt.mask is not None:
        return _encode_mask(prompt.mask, view, width, height)
    points: list[tuple[float, float]] = []
    labels: list[int] = []
    if prompt.box is not None:
        box = prompt.box.clipped(width, height)
        if view.to_network(box).clipped(view.side, view.side).is_empty:
            raise InputError(f"selection box {box.xywh()} px lies outside {_describe(view)}; {_ANOTHER_VIEW}")
        points += [(box.x, box.y), (box.x1, box.y1)]
        # As the network was trained: a box is its two corners, with labels of their own.
        labels += [2, 3]
    right, bottom = view.extent[0] + ROUNDING_PX, view.extent[1] + ROUNDING_PX
    for x, y in prompt.points:
        if not (-ROUNDING_PX <= x - view.x <= right and -ROUNDING_PX <= y - view.y <= bottom):
            raise InputError(
                f"selection point ({x:g}, {y:g}) lies outside {_describe(view)}; {_ANOTHER_VIEW}"
            )
    points += prompt.points
    labels += prompt.labels
    return replace(
        no_prompt(view.side),
        points=view.points_to_network(np.array(points))[None],
        labels=np.array(labels, np.int64)[None],
        multimask=len(points) <= 1,
    )


def _describe(view: View) -> str:
    width, height = view.extent
    return f"the view of {width:g} x {height:g} px at ({view.x:g}, {view.y:g})"


def _encode_mask(mask: NDArray[np.bool_], view: View, width: int, height: int) -> EncodedPrompt:
    side = view.side
    rows = triangle_weights(height, side, 1.0 / view.scale_y, view.y)
    columns = triangle_weights(width, side, 1.0 / view.scale_x, view.x)
    seen = (resample(mask.astype(bool).astype(np.float32), rows, columns) >= 0.5).astype(np.float32)
    if not seen.any():
        raise InputError(
            f"selection mask of {np.count_nonzero(mask)} px leaves nothing in {_describe(view)}"
            f" at {side} x {side} network px; mark a larger target, or choose view window"
        )
    # The mask that was drawn is the answer: the decoder's own would only blur it.
    quarter = triangle_weights(side, side // 4)
    return replace(
        no_prompt(side),
        mask=seen[None, None],
        has_mask=np.ones(1, np.float32),
        multimask=False,
        logits=resample(2.0 * CERTAIN * seen - CERTAIN, quarter, quarter),
    )


def triangle_weights(
    source: int, target: int, pitch: float | None = None, origin: float = 0.0
) -> NDArray[np.float32]:
    """Weights [target, source] that resample a line of ``source`` pixels to ``target`` samples.

    Sample i lies at ``origin + (i + 0.5) * pitch`` in source pixel edges (default: the whole line); its
    weights fall linearly to zero at a distance of one pitch (at least one pixel) and sum to 1, also where the
    line's end cuts them. Samples outside the line weigh nothing.
    """
    pitch = source / target if pitch is None else pitch
    centres = origin + (np.arange(target) + 0.5) * pitch
    distance = np.abs(np.arange(source) + 0.5 - centres[:, None]) / max(pitch, 1.0)
    weights = np.maximum(1.0 - distance, 0.0)
    weights /= np.maximum(weights.sum(axis=1, keepdims=True), 1e-12)
    # A view may reach beyond the image: there is no target there.
    weights[(centres < 0.0) | (centres > source)] = 0.0
    return weights.astype(np.float32)


_WORKSPACE_SIDE = 512


def reserve_workspace() -> None:
    """Make BLAS allocate its workspace now.

    If no memory is left at its first matrix product, BLAS retries forever while holding the interpreter's
    lock. Small products use no workspace on some processors, so these are large enough for any, and for all
    threads of BLAS.
    """
    for dtype in (np.float32, np.float64):
        square = np.ones((_WORKSPACE_SIDE, _WORKSPACE_SIDE), dtype)
        square @ square


def resample(
    values: NDArray[np.float32], rows: NDArray[np.float32], columns: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Resample [H, W] by the weights of its rows [h, H] and columns [w, W] to float32 [h, w]."""
    return rows @ (values @ columns.T)
