"""Parts of an object as targets: an end, one side of a line, a box or an ellipse.

Their positions are relative to the object's box.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from training.material import mask_bounds

Bytes = NDArray[np.uint8]
Box = tuple[int, int, int, int]

END, SIDE, PATCH = range(3)
KIND_SHARES = (0.35, 0.2, 0.45)
END_SHARES, SIDE_SHARES, PATCH_SHARES = (0.08, 0.3), (0.35, 0.6), (0.15, 0.6)
"""Smallest and largest share of the object's area, by kind. A head is about a tenth of a standing person."""
UPPER_END_SHARE = 0.65  # probability of the upper end, where heads are
MIN_PART, MAX_PART = 0.06, 0.65  # limits of a part's share of the object's area, in every frame
MIN_AREA = 60  # smallest area of a part, px at the source's resolution
MIN_UNITY = 0.85  # smallest share of the cut area that is one connected piece
# Smallest radius of the part's largest inner circle, divided by the square root of the part's area. A square
# has 0.5.
MIN_DEPTH = 0.2
MIN_FILL = 0.35  # smallest share of the part's own box that the part fills
BAND = 0.045  # half width of the ignored band along the cut, divided by sqrt(part's area)
# Largest change of the box's aspect ratio in a clip. With more, one position in the box is not always the
# same part.
MAX_ASPECT_CHANGE = 1.2
TRIES = 6


class Piece(NamedTuple):
    """A part in one image.

    ``mask``: uint8 [h,w]. ``ignored``: uint8 [h,w], 255 in the band along the cut. ``box``: of the part.
    """

    mask: Bytes
    ignored: Bytes
    box: Box


@dataclass(frozen=True)
class Part:
    """A part of an object: the points of the object's box whose distance is at most ``reach``.

    A point u has coordinates 0..1 along both sides of the box. For an end or a side its distance is the
    scalar product of ``axes`` and u - centre. For a patch it is the largest element (``is_box``) or the
    Euclidean norm of (u - centre) / axes.
    """

    kind: int
    centre: NDArray[np.float64]
    axes: NDArray[np.float64]
    reach: float = 0.0
    is_box: bool = False

    def distance(self, width: int, height: int) -> NDArray[np.float64]:
        """Return for every pixel of an object's box its distance as `Part` defines it: [height,width]."""
        x = ((np.arange(width) + 0.5) / width - self.centre[0])[None]
        y = ((np.arange(height) + 0.5) / height - self.centre[1])[:, None]
        if self.kind != PATCH:
            return np.asarray(self.axes[0] * x + self.axes[1] * y)
        across, down = np.abs(x / self.axes[0]), np.abs(y / self.axes[1])
        return np.asarray(np.maximum(across, down) if self.is_box else np.hypot(across, down))

    def of(self, mask: Bytes, box: Box) -> Piece | None:
        """Cut the part out of an object with this mask, uint8 [h,w], and box.

        Returns None if the part is tiny, thin or in fragments.
        """
        left, top, right, bottom = box
        whole = mask[top:bottom, left:right]
        covered = self.distance(right - left, bottom - top) <= self.reach
        solid = (whole > 127) & covered
        count, numbers, figures, _ = cv2.connectedComponentsWithStats(solid.astype(np.uint8), connectivity=4)
        if count < 2:
            return None
        largest = 1 + int(figures[1:, cv2.CC_STAT_AREA].argmax())
        area = int(figures[largest, cv2.CC_STAT_AREA])
        if not _is_fit(area, int(solid.sum()), int((whole > 127).sum()), figures[largest]):
            return None
        piece = (numbers == largest).astype(np.uint8)
        depth = cv2.distanceTransform(np.pad(piece, 1), cv2.DIST_L2, 3).max()
        if depth < MIN_DEPTH * math.sqrt(area):
            return None
        reach = max(1, round(BAND * math.sqrt(area)))
        brush = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * reach + 1, 2 * reach + 1))
        inside = covered.astype(np.uint8)
        along_cut = (cv2.dilate(inside, brush) > 0) & (cv2.erode(inside, brush) == 0)
        unknown = ((whole > 0) & along_cut) | (solid & (piece == 0))
        shown, ignored = np.zeros_like(mask), np.zeros_like(mask)
        # The mask has a soft edge that is one pixel wide; it belongs to the part.
        soft = covered & (cv2.dilate(piece, np.ones((3, 3), np.uint8)) > 0)
        shown[top:bottom, left:right] = np.where(soft & ((piece > 0) | (whole <= 127)), whole, 0)
        ignored[top:bottom, left:right] = np.where(unknown, 255, 0)
        return Piece(shown, ignored, mask_bounds(shown > 127))


def draw_part(rng: np.random.Generator, mask: Bytes, box: Box) -> tuple[Part, Piece] | None:
    """Draw a part of the object with this mask, uint8 [h,w], and box; None if no suitable part is found."""
    for part in _draws(rng, mask, box):
        piece = part.of(mask, box)
        if piece is not None:
            return part, piece
    return None


def keeps_aspect(boxes: list[Box]) -> bool:
    """Return whether the boxes' aspect ratios are similar.

    Then one position relative to the box is always the same part of the object.
    """
    aspects = [(right - left) / (bottom - top) for left, top, right, bottom in boxes]
    return max(aspects) <= MAX_ASPECT_CHANGE * min(aspects)


def _draws(rng: np.random.Generator, mask: Bytes, box: Box) -> Iterator[Part]:
    left, top, right, bottom = box
    width, height = right - left, bottom - top
    solid = mask[top:bottom, left:right] > 127
    rows, columns = np.nonzero(solid)
    for _ in range(TRIES if len(rows) > MIN_AREA else 0):
        kind = int(rng.choice(3, p=KIND_SHARES))
        if kind == PATCH:
            pick, stretch = rng.integers(len(rows)), math.exp(rng.normal(0, 0.35))
            centre = np.array([(columns[pick] + 0.5) / width, (rows[pick] + 0.5) / height])
            part = Part(kind, centre, np.array([stretch, 1 / stretch]), is_box=bool(rng.random() < 0.5))
            share = rng.uniform(*PATCH_SHARES)
        else:
            direction = _major_axis(rows, columns)
            if (direction[1] > 0) == (rng.random() < UPPER_END_SHARE):
                direction = -direction
            turn = rng.normal(0, 0.15 if kind == END else 0.5)
            cos, sin = math.cos(turn), math.sin(turn)
            x, y = direction
            across = np.array([cos * x - sin * y, sin * x + cos * y])
            # The distance is smallest at the end to which ``direction`` points.
            part = Part(kind, np.full(2, 0.5), -across * [width, height])
            share = rng.uniform(*(END_SHARES if kind == END else SIDE_SHARES))
        reach = float(np.quantile(part.distance(width, height)[solid], share))
        yield Part(part.kind, part.centre, part.axes, reach, part.is_box)


def _major_axis(rows: NDArray[np.int_], columns: NDArray[np.int_]) -> NDArray[np.float64]:
    """Return the direction (x, y) in which the pixels spread most, a unit vector."""
    return np.asarray(np.linalg.eigh(np.cov(np.stack([columns, rows])))[1][:, -1])


def _is_fit(area: int, cut: int, whole: int, figures: NDArray[np.int_]) -> bool:
    own_box = int(figures[cv2.CC_STAT_WIDTH]) * int(figures[cv2.CC_STAT_HEIGHT])
    return (
        area >= MIN_AREA
        and MIN_PART * whole <= area <= MAX_PART * whole
        and area >= MIN_UNITY * cut
        and area >= MIN_FILL * own_box
    )
