"""Converts a prompt from image pixels to the inputs of the prompt encoder in network pixels."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import View
from efftam_ros.core.types import Prompt

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
    """The prompt of a tracked frame: one padding point."""
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
