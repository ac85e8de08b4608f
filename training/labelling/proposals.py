"""Proposes objects of a segment's first frame to follow.

The segmenter gets clicks at places that move differently from the camera and have structure. Optionally it
also gets clicks on a grid, at places where anything changes. Motion proposes whole, moving objects. The grid
also proposes parts of objects and texture that slides along.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np

from efftam_ros.core.geometry import Box, iou
from efftam_workshop.eval.metrics import mask_overlap
from efftam_workshop.eval.sequences import mask_box
from training.labelling.scenes import MOVES, motion, own_motion
from training.labelling.segmenter import Frame, Mask, Outline, Segmenter
from training.labelling.surroundings import MIN_SPEED, apartness, is_compact, pace_of

MOTION, GRID = "motion", "click"  # kinds of proposals, as in meta.json
# Number of clicks; smallest distance between two clicks, px of the image reduced for motion.
MOTION_CLICKS, APART = 14, 14
COLUMNS, ROWS = 7, 5  # numbers of columns and rows of the grid
# The grid clicks where a third of the segment changes the picture by more than this, grey levels.
CHANGES = 8.0
# Limits of a box's size (square root of its area), px. Smaller objects have no outline; larger boxes give
# parts.
LEAST, MOST = 10.0, 300.0
# A target's box, and a clicked mask, may cover these shares of the frame's area.
MAX_OF_FRAME, MAX_OF_CLICK = 0.4, 0.25
# A mask must fill this share of its box; other masks are scattered pixels.
FILLS = 0.25
# At most this many masks are checked for stability, and this many objects are followed.
CANDIDATES, OBJECTS = 18, 6
# A mask needs this quality, and this overlap with the mask that is made from its box.
SURE, STABLE = 0.8, 0.75


@dataclass(frozen=True)
class Proposal:
    """An object of the first frame.

    ``kind``: `MOTION` or `GRID`. ``apart``: difference between the motions of the object and of its
    surroundings, as a share of the object's motion. ``pace``: its motion per frame in the picture, as a
    multiple of its size.
    """

    mask: Mask
    box: Box
    kind: str
    apart: float = 1.0
    pace: float = 0.0


def propose(segmenter: Segmenter, frames: Sequence[Frame], grid: bool = False) -> list[Proposal]:
    """Return the objects to follow, moving ones first. ``grid``: also click on a grid."""
    first = frames[0]
    clicks = [(x, y, MOTION) for x, y in motion_clicks(frames)]
    if grid:
        clicks += [(x, y, GRID) for x, y in grid_clicks(frames)]
    found = [
        (outline.mask, bounds(outline.mask), clicks[index][2])
        for index, outline in segmenter.click(first, [(x, y) for x, y, _ in clicks], _is_object)
    ]
    # Objects that are too large are left out only now: before, they prevented proposals of their parts.
    found = [one for one in found if _is_target(one[1], first)][:CANDIDATES]
    own, ego, *_ = own_motion(first, frames[2])
    kept: list[Proposal] = []
    again = segmenter.outline([(first, box) for _, box, _ in found])
    for (mask, box, kind), outline in zip(found, again, strict=True):
        tight = bounds(outline.mask)
        is_stable = (
            outline.quality > SURE and mask_overlap(mask, outline.mask) > STABLE and iou(tight, box) > STABLE
        )
        is_new = all(mask_overlap(outline.mask, other.mask) < 0.5 for other in kept)
        if is_stable and is_new and is_compact(outline.mask):
            apart, speed = apartness(own, outline.mask)
            if speed > MIN_SPEED or kind == GRID:
                pace = pace_of(own + ego, outline.mask)
                kept.append(Proposal(outline.mask, tight, kind, apart, pace))
    whole = [one for one in kept if not any(_is_part(one.mask, other.mask) for other in kept)]
    moving = [one for one in whole if one.kind == MOTION][:OBJECTS]
    return moving + [one for one in whole if one.kind == GRID][: OBJECTS // 2]


def motion_clicks(frames: Sequence[Frame]) -> list[tuple[float, float]]:
    """Return the points that move most on their own, px."""
    score, scale = motion(frames[0], frames[2])
    points: list[tuple[float, float]] = []
    while len(points) < MOTION_CLICKS and score.max() > MOVES:
        y, x = np.unravel_index(int(score.argmax()), score.shape)
        points.append((float(x) / scale, float(y) / scale))
        cv2.circle(score, (int(x), int(y)), APART, (0.0,), -1)
    return points


def grid_clicks(frames: Sequence[Frame]) -> list[tuple[float, float]]:
    """Return the points of a grid at which the picture changes within the segment, px."""
    later = frames[len(frames) // 3]
    change = cv2.blur(cv2.absdiff(frames[0], later).max(2), (31, 31))
    height, width = change.shape
    xs = (np.arange(COLUMNS) + 0.5) * width / COLUMNS
    ys = (np.arange(ROWS) + 0.5) * height / ROWS
    return [(float(x), float(y)) for x in xs for y in ys if change[int(y), int(x)] > CHANGES]


def bounds(mask: Mask) -> Box:
    """Return the tight box of a mask; (0, 0, 0, 0) if the mask is empty."""
    box = mask_box(mask)
    return Box(0.0, 0.0, 0.0, 0.0) if math.isnan(box[0]) else Box(*map(float, box))


def _is_object(outline: Outline) -> bool:
    """Return whether the outline is certain and dense, and too small to be ground or sky."""
    area, box = int(outline.mask.sum()), bounds(outline.mask)
    is_dense = FILLS * box.width * box.height < area < MAX_OF_CLICK * outline.mask.size
    return outline.quality > SURE and is_dense


def _is_target(box: Box, frame: Frame) -> bool:
    """Return whether the box has a size that can be followed, and touches at most one edge of the frame."""
    height, width = frame.shape[:2]
    edges = (box.x <= 1) + (box.y <= 1) + (box.x1 >= width - 1) + (box.y1 >= height - 1)
    area = box.width * box.height
    return LEAST <= math.sqrt(area) <= MOST and area < MAX_OF_FRAME * width * height and edges < 2


def _is_part(mask: Mask, other: Mask) -> bool:
    return bool(other.sum() > 1.2 * mask.sum() and (mask & other).sum() > 0.8 * mask.sum())
