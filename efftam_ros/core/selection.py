"""Judges the network's answer to a prompt: which view shows the target best, and whether the answer is
doubtful."""

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

# A selected point is tried in several windows, because in a narrow one a patch of fur is taken for a whole
# object. With the centre of the true mask as the point, the mean IoU with the true box is 0.71 by the rules
# below. It is 0.26 if only one window is tried, with a side of 0.4 of the image's shorter side (60 images of
# DAVIS). On 117 images of OTB-100, VOT and UAV123 the two values are 0.56 and 0.58.
SURE = 0.8  # predicted IoU from which no wider view is tried
CUT = 0.15  # deduction from the predicted IoU of a mask that is cut by the view's border
# A mask whose distance from the view's border is smaller counts as cut by this border. In network px; this is
# one cell of the mask.
BORDER_PX = 4.0
EQUAL = 0.05  # a larger mask is preferred even if its predicted IoU is lower by this much
# A drawn box is doubtful if the sum of three numbers is below this value. The first is the predicted IoU of
# the mask for the drawn box. The other two belong to the mask for the centre of the box as a point: its
# predicted IoU, and its IoU with the drawn box. Of 258 boxes that are 5 to 10 % off the true ones 2 % are
# doubtful. Of 304 boxes of the same sizes at other places 67 % are doubtful.
WEAK = 1.66
PART = 0.3  # a mask whose IoU with the drawn box is lower covers only a part of the object


def whole(candidates: Candidates) -> int:
    """Return the index of the candidate to follow. It is the one with the highest predicted IoU, or a larger
    one that contains it and is about as sure (`EQUAL`)."""
    best = surest = int(np.argmax(candidates.ious))
    for index in np.argsort(candidates.areas).tolist():
        is_equal = candidates.ious[index] >= candidates.ious[surest] - EQUAL
        is_larger = candidates.areas[index] > candidates.areas[best]
        if is_equal and is_larger and are_nested(candidates.box(best), candidates.box(index)):
            best = index
    return best


class PromptAnswer(NamedTuple):
    """The network's answer to a prompt.

    Attributes:
        view: The view that was chosen.
        candidates: The network's candidates in this view.
        answers: Answers of the last look, from which the mask can be read.
        doubt: Why the selection is doubtful; empty if it is not.
    """

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
    """Return the network's answer to a prompt.

    The views are tried in order, until the value of a view reaches `SURE`. The value is the predicted IoU of
    the mask, less `CUT` if the view's border cuts the mask. If no view reaches `SURE`, the answer in the view
    with the highest value is returned. The network then computes this view again, so that its mask can be
    read.

    Args:
        pipeline: Runs the network.
        target: Number of the memory that is used.
        image: The image of the prompt.
        prompt: Marks the target, px of the image.
        views: The views to try, narrow ones first.
        asks_twice: Whether the network also gets the centre of a drawn box as a point, which shows whether
            the selection is doubtful.

    Raises InputError where the network's output is not finite, and as `Pipeline.look` does.
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
        raise InputError("the network's output for the selected image is not finite; run efftam verify")
    if by_point is None or drawn is None:
        return PromptAnswer(view, candidates, answers)
    # If the box is drawn around an object, the point at its centre gives about the same box. On bare ground
    # the point gives an arbitrary one.
    as_point = max((by_point.ious[i] + iou(box, drawn) for i, box in by_point.visible), default=0.0)
    doubt = NO_REASON
    if candidates.ious[0] + as_point < WEAK:
        doubt = ReasonCode.UNCLEAR_BOX.reason()
    elif iou(candidates.box(0), drawn) < PART:
        doubt = ReasonCode.PART_OF_BOX.reason()
    return PromptAnswer(view, candidates, answers, doubt)


def is_cut(box: Box, view: View, image_size: tuple[int, int]) -> bool:
    """Return whether a box, px, is cut by a border of the view that is not also the image's border. False for
    an empty box. ``image_size``: width and height, px."""
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
