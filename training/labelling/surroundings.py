"""Checks whether a mask is an object, or a piece of its surroundings.

Of 104 checked tracks that motion proposed, 14 were no object: edges of shelves and doors, folds, gaps. Most
of them came from a hand-held camera that passed close things, because their parallax looks like motion. These
tests reject seven of the 14, and with them 2 of 57 whole objects and 6 of 32 parts. Of 140 tracks that passed
the tests, 94 were whole objects, 28 parts, 4 groups, one a double, and 13 no object.
"""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.geometry import Box
from training.labelling.segmenter import Frame, Mask

# Masks with a larger ratio of length to width are edges or strips; objects had at most 3.3.
LONGEST = 4.0
# A mask with a smaller share of its area in its largest piece is partly hidden.
LARGEST = 0.9
# The ring around a mask: its distance from the mask, px; its width, mask sizes; its smallest width, px.
GAP, BAND, MIN_BAND = 4, 0.3, 4
# A mask with less own motion over two frames, px, is background that a moving object uncovers.
MIN_SPEED = 0.8
# The ring around a mask moves with the mask if their motions differ by a smaller share of the mask's motion.
APART = 0.125
# Side of the views that are compared, in px and in target sizes.
VIEW, VIEW_SIZES = 64, 2.2
# In a view, the ring around a mask begins and ends at these distances from the mask, px.
VIEW_GAP, VIEW_BAND = 3, 11
# The surroundings in two views are similar if their correlation is larger. With less contrast, grey levels,
# they are not compared.
ALIKE, TEXTURE = 0.65, 12.0
MIN_RING = 80  # smallest area of a ring in a view, px


def is_compact(mask: Mask) -> bool:
    """Return whether the mask is nearly one piece and not a strip."""
    contours, _ = cv2.findContours(mask.astype(np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
    if not contours:
        return False
    areas = [cv2.contourArea(contour) for contour in contours]
    _, sides, _ = cv2.minAreaRect(np.concatenate(contours))
    return max(areas) >= LARGEST * sum(areas) and max(sides) <= LONGEST * max(min(sides), 1.0)


def apartness(own: NDArray[np.float32], mask: Mask) -> tuple[float, float]:
    """Return how differently a mask and the ring around it move, and the mask's motion in px.

    The difference of the motions is given as a share of the mask's motion.

    Args:
        own: Motion without the camera's, px, [h, w, 2].
        mask: Of any size with the same aspect ratio.
    """
    height, width = own.shape[:2]
    scaled = cv2.resize(mask.astype(np.uint8), (width, height), interpolation=cv2.INTER_NEAREST)
    small = np.asarray(scaled, np.uint8)
    size = float(np.sqrt(small.sum()))
    eroded = cv2.erode(small, np.ones((2 * max(1, int(0.06 * size)) + 1,) * 2, np.uint8))
    inside = eroded if eroded.sum() > 20 else small
    ring = cv2.subtract(_grown(small, GAP + int(max(MIN_BAND, BAND * size))), _grown(small, GAP))
    if not inside.any() or not ring.any():
        return 1.0, 0.0
    here, around = (np.median(own[np.asarray(part) > 0], 0) for part in (inside, ring))
    speed = float(np.linalg.norm(here))
    return float(np.linalg.norm(here - around)) / max(speed, 0.1), speed


def pace_of(flow: NDArray[np.float32], mask: Mask) -> float:
    """Return the motion of a mask in its sizes per frame. ``flow``: motion over two frames, px, [h, w, 2]."""
    height, width = flow.shape[:2]
    small = cv2.resize(mask.astype(np.uint8), (width, height), interpolation=cv2.INTER_NEAREST)
    inside = flow[np.asarray(small) > 0]
    if not len(inside):
        return 0.0
    return float(np.linalg.norm(np.median(inside, 0))) / 2 / float(np.sqrt(len(inside)))


def ring_likeness(frames: Sequence[Frame], masks: Sequence[Mask], boxes: Sequence[Box]) -> float:
    """Return how similar the surroundings stay when the views are centred on the target: -1..1.

    It is the median correlation between the surroundings in the first frame and in later ones, over the half
    of the frames in which the target is farthest from its start. Surroundings without texture count as 0.
    """
    first, size = boxes[0], float(np.sqrt(boxes[0].width * boxes[0].height))
    ways = [float(np.hypot(box.cx - first.cx, box.cy - first.cy)) / size for box in boxes]
    start = _view(frames[0], masks[0], boxes[0])
    far = sorted(range(1, len(boxes)), key=lambda i: -ways[i])[: max(3, len(boxes) // 2)]
    found = [_likeness(start, _view(frames[i], masks[i], boxes[i])) for i in far]
    return float(np.median(found)) if found else 0.0


def goes_along(apart: float, likeness: float) -> bool:
    """Return whether the surroundings move with the mask and stay the same: then it is no separate object."""
    return apart < APART and likeness > ALIKE


_View = tuple[NDArray[np.float32], NDArray[np.bool_], NDArray[np.bool_]]
"""Pixels [VIEW, VIEW, 3], the target's mask, and which pixels lie inside the image."""


def _view(frame: Frame, mask: Mask, box: Box) -> _View:
    size = float(np.sqrt(box.width * box.height))
    scale = VIEW / (VIEW_SIZES * max(size, 0.8 * max(box.width, box.height)))
    shift = (VIEW / 2 - box.cx * scale, VIEW / 2 - box.cy * scale)
    to, side = np.array([[scale, 0, shift[0]], [0, scale, shift[1]]], np.float32), (VIEW, VIEW)
    pixels = cv2.GaussianBlur(cv2.warpAffine(frame, to, side, flags=cv2.INTER_AREA), (0, 0), 1)
    target = cv2.warpAffine(mask.astype(np.uint8) * np.uint8(255), to, side) > 60
    inside = cv2.warpAffine(np.full(mask.shape, 255, np.uint8), to, side) > 250
    return pixels.astype(np.float32), target, inside


def _likeness(one: _View, other: _View) -> float:
    targets = (one[1] | other[1]).astype(np.uint8)
    ring = (_grown(targets, VIEW_BAND) > 0) & (_grown(targets, VIEW_GAP) == 0) & one[2] & other[2]
    if int(ring.sum()) < MIN_RING:
        return 0.0
    a, b = (view[0][ring] - view[0][ring].mean(0) for view in (one, other))
    contrasts = [float(np.sqrt((c**2).mean())) for c in (a, b)]
    if min(contrasts) < TEXTURE:
        return 0.0
    return float((a * b).mean()) / (contrasts[0] * contrasts[1])


def _grown(mask: NDArray[np.uint8], radius: int) -> NDArray[np.uint8]:
    disc = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * radius + 1, 2 * radius + 1))
    return np.asarray(cv2.dilate(mask, disc), np.uint8)
