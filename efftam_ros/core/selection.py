"""Judges what the network answers to a prompt: in which view, which of its masks, and how sure it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from efftam_ros.core.contract import Look
from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box, View, are_nested, iou
from efftam_ros.core.reasons import NO_REASON, Reason, ReasonCode
from efftam_ros.core.types import Candidates, Prompt

if TYPE_CHECKING:
    from efftam_ros.core.contract import Answers, Pipeline
    from efftam_ros.core.types import Image

# A patch of fur is a clean object too in a window that shows nothing else. On 60 images of DAVIS the boxes of
# points at the centre of the mask have a mean IoU of 0.26 with the true ones in the window of 0.4 short sides
# alone, and 0.71 by these rules; on 117 images of OTB-100, VOT and UAV123 0.58 and 0.56.
SURE = 0.8  # predicted IoU from which no wider view is tried
CUT = 0.15  # taken off the predicted IoU of a mask that the view's border cuts
BORDER_PX = 4.0  # network px from the border, one cell of the mask
EQUAL = 0.05  # predicted IoU by which the whole may be below its part
# Least sum of the predicted IoU of a drawn box, and of that and the overlap of its centre asked as a point.
# Of 258 boxes that are 5 to 10 % off the true ones 2 % are below, of 304 boxes of that size elsewhere 67 %.
WEAK = 1.66
PART = 0.3  # IoU with the drawn box below which a mask is only a part of what it was drawn around


def whole(candidates: Candidates) -> int:
    """Return the candidate to follow: of those that are nested and equally sure the largest, else the
    surest."""
    best = surest = int(np.argmax(candidates.ious))
    for index in np.argsort(candidates.areas).tolist():
        is_equal = candidates.ious[index] >= candidates.ious[surest] - EQUAL
        is_larger = candidates.areas[index] > candidates.areas[best]
        if is_equal and is_larger and are_nested(candidates.box(best), candidates.box(index)):
            best = index
    return best


class PromptAnswer(NamedTuple):
    """The network's answer to a prompt. ``doubt``: why the selection is weak; empty when it is not;
    ``answers``: those of the last look, which show the mask."""

    view: View
    candidates: Candidates
    answers: Answers
    doubt: Reason = NO_REASON


def answer_prompt(
    pipeline: Pipeline,
    target: int,
    image: Image,
    prompt: Prompt,
    views: Sequence[View],
    asks_twice: bool = False,
) -> PromptAnswer:
    """Look at the prompted image in one view after the other until the answer is sure and whole, else in the
    one with the surest answer.

    ``target``: number of the memory that looks; ``asks_twice``: also ask for the centre of a drawn box as a
    point. Raises InputError where the network's output is not finite, and as `Pipeline.look` does.
    """
    found: list[tuple[float, PromptAnswer]] = []
    for view in views:
        answer = _answer_in(pipeline, target, image, prompt, view, asks_twice)
        index = whole(answer.candidates)
        cut = is_cut(answer.candidates.box(index), view, (image.width, image.height))
        found.append((float(answer.candidates.ious[index]) - CUT * cut, answer))
        if found[-1][0] >= SURE:
            break
    _, best = max(found, key=lambda one: one[0])
    if best is found[-1][1]:
        return best
    return _answer_in(pipeline, target, image, prompt, best.view, asks_twice)


def _answer_in(
    pipeline: Pipeline, target: int, image: Image, prompt: Prompt, view: View, asks_twice: bool
) -> PromptAnswer:
    by_point = drawn = None
    if asks_twice and prompt.box is not None:
        drawn = prompt.box.clipped(image.width, image.height)
        centre = Prompt(points=((drawn.cx, drawn.cy),), labels=(1,))
        (by_point,) = pipeline.look(image, [Look(target, (view,), prompt=centre)]).candidates(target)
    answers = pipeline.look(image, [Look(target, (view,), prompt=prompt)])
    (candidates,) = answers.candidates(target)
    if not candidates.is_finite:
        raise InputError("the network's output for the selected image is not finite; check the bundle")
    if by_point is None or drawn is None:
        return PromptAnswer(view, candidates, answers)
    # On an object its centre, as a point, marks about the box; on bare ground anything.
    as_point = max((by_point.ious[i] + iou(box, drawn) for i, box in by_point.visible), default=0.0)
    doubt = NO_REASON
    if candidates.ious[0] + as_point < WEAK:
        doubt = ReasonCode.UNCLEAR_BOX.reason()
    elif iou(candidates.box(0), drawn) < PART:
        doubt = ReasonCode.PART_OF_BOX.reason()
    return PromptAnswer(view, candidates, answers, doubt)


def is_cut(box: Box, view: View, image_size: tuple[int, int]) -> bool:
    """Return whether a box ends at the border of a view that does not end at the image's. False for an empty
    one."""
    if box.is_empty:
        return False
    (width, height), seen = image_size, view.to_network(box)
    right, bottom = view.x + view.extent[0], view.y + view.extent[1]
    return bool(
        (view.x > 0 and seen.x < BORDER_PX)
        or (view.y > 0 and seen.y < BORDER_PX)
        or (right < width and seen.x1 > view.side - BORDER_PX)
        or (bottom < height and seen.y1 > view.side - BORDER_PX)
    )
