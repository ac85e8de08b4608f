"""Converts a prompt from image pixels to the inputs of the prompt encoder in network pixels."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box, View
from efftam_ros.core.types import Prompt

# Absolute value of the logits of a mask prompt, which replace the network's output.
CERTAIN = 10.0
# Rounding error by which a point on the image's edge may lie outside a view that ends there.
ROUNDING_PX = 1e-6
MOST_POINTS = 256
"""Most points of a prompt, including the two corners of a box; the cost of the prompt encoder grows with
their number."""


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
    """The prompt of a tracked frame: one padding point."""
    return EncodedPrompt(
        points=np.zeros((1, 1, 2), np.float32),
        labels=np.full((1, 1), -1, np.int64),
        mask=np.zeros((1, 1, side, side), np.float32),
        has_mask=np.zeros(1, np.float32),
        multimask=True,
    )


def encode_prompt(prompt: Prompt, view: View, width: int, height: int) -> EncodedPrompt:
    """Check a prompt on an image of this size and convert it to the view's network pixels; a box is clipped.
    Raises InputError: an empty prompt, numbers that are not finite, no area, too many points, outside the
    image or the view, a label other than 0 and 1, no point on the target, or a mask that is empty, of another
    size or combined with a box or points."""
    if prompt.mask is not None:
        if prompt.box is not None or prompt.points:
            raise InputError("selection has a mask and also a box or points; give the mask alone")
        return _encode_mask(prompt.mask, view, width, height)
    points: list[tuple[float, float]] = []
    labels: list[int] = []
    if prompt.box is not None:
        box = _visible(prompt.box, view, width, height)
        points += [(box.x, box.y), (box.x1, box.y1)]
        labels += [2, 3]
    if len(points) + len(prompt.points) > MOST_POINTS:
        raise InputError(
            f"selection has {len(prompt.points)} points; give at most {MOST_POINTS}, of which a box takes 2"
        )
    _check_points(prompt, view, width, height)
    points += prompt.points
    labels += prompt.labels
    if not points:
        raise InputError("selection is empty; give a box, a point on the target or a mask")
    return replace(
        no_prompt(view.side),
        points=view.points_to_network(np.array(points))[None],
        labels=np.array(labels, np.int64)[None],
        multimask=len(points) <= 1,
    )


def check_prompt(prompt: Prompt, width: int, height: int) -> None:
    """Raises InputError, as `encode_prompt` does in a view of the whole image, where a prompt can't be
    used on an image of this size, and for a box that only fits the image if its numbers are edges."""
    encode_prompt(prompt, View.full(width, height, 64), width, height)
    if (box := prompt.box) is None:
        return
    x, y, x1, y1 = box.x, box.y, box.width, box.height
    leaves = box.x1 > width + 1.0 or box.y1 > height + 1.0  # px: not by rounding
    if leaves and 0 <= x < x1 <= width and 0 <= y < y1 <= height:
        raise InputError(
            f"{_named(box)} leaves the image of {width} x {height} px; if these are edges x0, y0, x1, y1,"
            f" give x, y, width, height: {x:g}, {y:g}, {x1 - x:g}, {y1 - y:g}"
        )


def _named(box: Box) -> str:
    return f"selection box x={box.x:g} y={box.y:g} width={box.width:g} height={box.height:g}"


def _visible(box: Box, view: View, width: int, height: int) -> Box:
    text = _named(box)
    if not box.is_finite:
        raise InputError(f"{text} has a number that is not finite; give pixels of the image")
    if box.is_empty:
        raise InputError(f"{text} has no area; width and height must be above 0")
    visible = box.clipped(width, height)
    if visible.is_empty:
        raise InputError(f"{text} lies outside the image of {width} x {height} px; draw it inside")
    if view.to_network(visible).clipped(view.side, view.side).is_empty:
        raise InputError(f"{text} lies outside {_describe(view)}; encode one that shows it")
    return visible


def _check_points(prompt: Prompt, view: View, width: int, height: int) -> None:
    if len(prompt.points) != len(prompt.labels):
        raise InputError(
            f"selection has {len(prompt.points)} points and {len(prompt.labels)} labels;"
            " give one label per point"
        )
    for label in prompt.labels:
        if label not in (0, 1):
            raise InputError(f"selection label is {label}; use 1 for a point on the target, 0 for one off it")
    for x, y in prompt.points:
        if not (math.isfinite(x) and math.isfinite(y)):
            raise InputError(f"selection point ({x:g}, {y:g}) is not finite; give pixels of the image")
        if not (0 <= x <= width and 0 <= y <= height):
            raise InputError(
                f"selection point ({x:g}, {y:g}) lies outside the image of {width} x {height} px;"
                " click inside"
            )
        extent_x, extent_y = view.extent
        right, bottom = extent_x + ROUNDING_PX, extent_y + ROUNDING_PX
        if not (-ROUNDING_PX <= x - view.x <= right and -ROUNDING_PX <= y - view.y <= bottom):
            raise InputError(
                f"selection point ({x:g}, {y:g}) lies outside {_describe(view)}; encode one that shows it"
            )
    if prompt.points and prompt.box is None and 1 not in prompt.labels:
        raise InputError("selection has only points off the target; give at least one on it (label 1)")


def _describe(view: View) -> str:
    width, height = view.extent
    return f"the view of {width:g} x {height:g} px at ({view.x:g}, {view.y:g})"


def _encode_mask(mask: NDArray[np.bool_], view: View, width: int, height: int) -> EncodedPrompt:
    if mask.shape != (height, width):
        size = " x ".join(str(n) for n in mask.shape[::-1])
        raise InputError(
            f"selection mask is {size} px, the image {width} x {height} px; give a mask of the image's size"
        )
    if not mask.any():
        raise InputError("selection mask has no pixel set; mark the target with values other than 0")
    side = view.side
    rows = triangle_weights(height, side, 1.0 / view.scale_y, view.y)
    columns = triangle_weights(width, side, 1.0 / view.scale_x, view.x)
    seen = (resample(mask.astype(bool).astype(np.float32), rows, columns) >= 0.5).astype(np.float32)
    if not seen.any():
        raise InputError(
            f"selection mask of {np.count_nonzero(mask)} px leaves nothing in {_describe(view)}"
            f" at {side} x {side} network px; mark a larger target, or choose view window"
        )
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
