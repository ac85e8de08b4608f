"""A pipeline without a network. It serves to measure how long all other work on a frame takes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.geometry import Box
from efftam_ros.core.types import Candidates, Image, PipelineSpec, Prompt
from efftam_ros.runtime.frame_state import Chosen, FrameState, TargetFrame
from efftam_ros.runtime.preprocess import centres_within

# Side of the box of a target that was selected by points, image px.
_POINT_TARGET = 32.0


class NullPipeline(FrameState):
    """Implements `Pipeline` without a network. It reports each target, with a high presence, where it was
    selected.

    Like the real pipelines it refuses bad images, bad prompts and calls in the wrong order.
    """

    def __init__(self, spec: PipelineSpec | None = None, max_targets: int = 1) -> None:
        super().__init__(spec or PipelineSpec(name="null", image_side=512), max_targets)
        self._shown = {target: certain_candidate(Box(0.0, 0.0, 0.0, 0.0)) for target in range(max_targets)}

    def _compute(self, image: Image, frame: TargetFrame) -> None:
        if frame.look.prompt is not None:
            box = _target(frame.look.prompt).clipped(*frame.size)
            self._shown[frame.target] = certain_candidate(box)
        frame.found = [self._shown[frame.target]] * len(frame.look.views)
        frame.rows = range(len(self._shown[frame.target]))

    def _remember(self, chosen: Chosen) -> None:
        return

    def _mask(self, frame: TargetFrame, row: int) -> NDArray[np.uint8]:
        return rectangle_mask(frame.found[0].box(row), *frame.size)

    def _close(self) -> None:
        return


def certain_candidate(box: Box) -> Candidates:
    """Return one candidate with this box, in image px, and a high presence and predicted IoU."""
    return Candidates(
        boxes=np.array([box.edges()], np.float32),
        areas=np.array([box.area], np.float32),
        ious=np.array([0.9], np.float32),
        presence_logit=10.0,
    )


def _target(prompt: Prompt) -> Box:
    """Return the box around what a prompt marks, in image px."""
    if prompt.box is not None:
        return prompt.box
    if prompt.mask is not None:
        rows, columns = np.nonzero(prompt.mask)
        return Box.from_edges(columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
    x, y = next(point for point, label in zip(prompt.points, prompt.labels, strict=True) if label == 1)
    return Box.from_centre(x, y, _POINT_TARGET, _POINT_TARGET)


def rectangle_mask(box: Box, width: int, height: int) -> NDArray[np.uint8]:
    """Return a mask, uint8 [height, width]: 255 at the pixels whose centre lies in the box, 0 elsewhere."""
    mask = np.zeros((height, width), np.uint8)
    if not box.is_empty:
        x0, x1 = centres_within(box.x, box.x1, width)
        y0, y1 = centres_within(box.y, box.y1, height)
        mask[y0:y1, x0:x1] = 255
    return mask
