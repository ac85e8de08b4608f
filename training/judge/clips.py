"""The clips that candidates are recorded on: sequences as they are, and recipes that make rare events of
them.

A recipe cuts a virtual camera, missing images or a covered image out of a sequence with true boxes, so that
the truth stays exact:

- ``leave``: the virtual camera rests; a small target leaves its view by its own motion and returns.
- ``turning``: the target is hidden for one image, where its shape changes fastest.
- ``splice``: the middle third of the images is missing, the stamps go on.
- ``swing``: a virtual camera of 60 % of the sides follows the target, turns away for a second and back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box
from efftam_workshop.eval.sequences import Sequence, find_sequences
from training.reacquisition.footage import HALVES, half_of, scene_of

NS = 1_000_000_000
FPS = 30.0  # nominal: the benchmarks' images have no times
KINDS = ("sequence", "leave", "turning", "splice", "swing")
FIXED_HALVES = {"validation_a": "choosing", "validation_b": "reporting"}
SMALL_PX = 40.0  # size of the targets of ``leave``
SIDE_SHARE = 0.6  # sides of the virtual cameras, in those of the images
AWAY_S, TURN_S = 1.0, 0.3  # of ``swing``: time away, and of each turn
MIN_IN, MIN_OUT = 12, 6  # images in view and out of view of ``leave``
BEFORE = 30  # images before the event that are used at most, and three times as many after it
MIN_IMAGES = 36
Picture = NDArray[np.uint8]


class Shown(NamedTuple):
    """An image of a clip. ``truth``: the visible part of the target, None where it is absent."""

    picture: Picture
    stamp_ns: int
    truth: Box | None


@dataclass(frozen=True)
class Clip:
    """A sequence, or what a recipe makes of it.

    ``images``: of the sequence, in order; ``corners``: left and top of the virtual camera, int [n, 2] px,
    None:
    the whole images; ``hidden``: the image in which the target is covered; ``event``: index of the first
    image after the event, 0 for sequences.
    """

    sequence: Sequence
    group: str
    kind: str
    images: tuple[int, ...]
    corners: NDArray[np.int64] | None = None
    size: tuple[int, int] = (0, 0)
    hidden: int | None = None
    event: int = 0

    @property
    def name(self) -> str:
        return f"{self.sequence.name}.{self.kind}"

    @property
    def half(self) -> str:
        return FIXED_HALVES.get(self.group) or half_of(scene_of(self.sequence.name))

    def __len__(self) -> int:
        return len(self.images)

    def __iter__(self) -> Iterator[Shown]:
        position = {image: index for index, image in enumerate(self.images)}
        for frame in self.sequence.frames():
            if frame.index in position:
                index = position[frame.index]
                yield self._shown(index, frame.bgr)
                if index == len(self) - 1:
                    return

    def _shown(self, index: int, picture: Picture) -> Shown:
        number = self.images[index]
        stamp, truth = round(number * NS / FPS), _box(self.sequence.boxes[number])
        if index == self.hidden and truth is not None:
            picture, truth = _covered(picture, truth), None
        if self.corners is not None:
            (x, y), (width, height) = self.corners[index].tolist(), self.size
            picture = np.ascontiguousarray(picture[y : y + height, x : x + width])
            truth = truth and _inside(truth, x, y, width, height)
        return Shown(picture, stamp, truth)


def find_clips(folders: list[Path], kinds: tuple[str, ...] = KINDS, most: int = 500) -> list[Clip]:
    """All clips of these kinds that the sequences below the folders give, ``most`` images of each sequence at
    most; in an order that mixes the groups."""
    clips = []
    for folder in folders:
        for sequence in find_sequences(folder):
            for kind in kinds:
                clips += _RECIPES[kind](sequence, folder.name, most)
    if not clips:
        raise InputError(f"no clip below {', '.join(map(str, folders))}")
    return sorted(clips, key=lambda clip: hashlib.sha256(clip.name.encode()).digest())


def _sequence(sequence: Sequence, group: str, most: int) -> list[Clip]:
    return [Clip(sequence, group, "sequence", tuple(range(min(most, len(sequence)))))]


def _splice(sequence: Sequence, group: str, most: int) -> list[Clip]:
    count = min(len(sequence), 2 * most)
    if count < MIN_IMAGES or not _is_seen(sequence, 0):
        return []
    first, second = count // 3, 2 * count // 3
    if not _is_seen(sequence, second):
        return []
    images = (*range(max(0, first - BEFORE), first), *range(second, min(count, second + 3 * BEFORE)))
    if not _is_seen(sequence, images[0]):
        return []
    return [Clip(sequence, group, "splice", images, event=min(first, BEFORE))]


def _swing(sequence: Sequence, group: str, most: int) -> list[Clip]:
    size = _image_size(sequence)
    width, height = (round(SIDE_SHARE * side) for side in size)
    count = min(len(sequence), most)
    away, turn = round(AWAY_S * FPS), round(TURN_S * FPS)
    first = min(BEFORE, count // 3)
    back = first + away + 2 * turn
    known = sequence.boxes[:count]
    if back + MIN_IN > count or not np.isfinite(known[[0, first, back]]).all():
        return []
    if np.nanmedian(known[:, 2]) > 0.5 * width or np.nanmedian(known[:, 3]) > 0.5 * height:
        return []
    count = min(count, back + 2 * BEFORE)
    centres = _filled(known[:count, :2] + known[:count, 2:] / 2)
    follows = centres - np.array([width, height]) / 2
    centre = centres[first : back + 1].mean(axis=0)
    # Away: the corner of the image that is farthest from the target.
    far = np.where(centre < np.array(size) / 2, np.array(size) - (width, height), 0)
    time = np.arange(count)
    share = np.clip(np.minimum(time - first, back - time) / turn, 0.0, 1.0)[:, None]
    corners = np.clip(follows * (1 - share) + far * share, 0, np.array(size) - (width, height))
    whole = np.rint(corners).astype(np.int64)
    return [Clip(sequence, group, "swing", tuple(range(count)), whole, (width, height), event=back)]


def _leave(sequence: Sequence, group: str, most: int) -> list[Clip]:
    size = _image_size(sequence)
    count = min(len(sequence), 2 * most)
    boxes = sequence.boxes[:count]
    if not np.isfinite(boxes).any() or np.nanmedian(np.sqrt(boxes[:, 2] * boxes[:, 3])) > SMALL_PX:
        return []
    best: tuple[int, Clip] | None = None
    for share in (0.5, SIDE_SHARE, 0.75):
        width, height = (round(share * side) for side in size)
        for x in np.linspace(0, size[0] - width, 6).astype(int):
            for y in np.linspace(0, size[1] - height, 6).astype(int):
                found = _returns(boxes, int(x), int(y), width, height)
                if found is not None and (best is None or found[2] - found[0] > best[0]):
                    first, back, last = found
                    corners = np.tile(np.array([x, y], np.int64), (last - first, 1))
                    clip = Clip(
                        sequence, group, "leave", tuple(range(first, last)), corners, (width, height), None,
                        back - first,
                    )  # fmt: skip
                    best = last - first, clip
    return [] if best is None else [best[1]]


def _returns(
    boxes: NDArray[np.float64], x: int, y: int, width: int, height: int
) -> tuple[int, int, int] | None:
    """The first image, that of the return and the end of a stretch that begins in view, is out of it, and
    ends in view; None where there is none."""
    left, top, right, bottom = boxes[:, 0], boxes[:, 1], boxes[:, 0] + boxes[:, 2], boxes[:, 1] + boxes[:, 3]
    with np.errstate(invalid="ignore"):
        whole = (left >= x) & (top >= y) & (right <= x + width) & (bottom <= y + height)
        outside = (right < x) | (left > x + width) | (bottom < y) | (top > y + height)
    runs = []  # of images whole in view, and out of it
    for flags, kind, least in ((whole, "in", MIN_IN), (outside, "out", MIN_OUT)):
        edges = np.flatnonzero(np.diff(np.r_[0, flags.astype(int), 0]))
        runs += [
            (int(a), int(b), kind) for a, b in zip(edges[::2], edges[1::2], strict=True) if b - a >= least
        ]
    runs.sort()
    for before, away, after in zip(runs, runs[1:], runs[2:], strict=False):
        if (before[2], away[2], after[2]) == ("in", "out", "in"):
            return max(before[0], before[1] - BEFORE), after[0], min(after[1], after[0] + 2 * BEFORE)
    return None


def _turning(sequence: Sequence, group: str, most: int) -> list[Clip]:
    count = min(len(sequence), 2 * most)
    boxes = sequence.boxes[:count]
    if count < MIN_IMAGES:
        return []
    reach = 5
    with np.errstate(invalid="ignore"):
        aspect = np.log(boxes[:, 2] / boxes[:, 3])
        change = np.abs(aspect[2 * reach :] - aspect[: -2 * reach])
        size = np.sqrt(boxes[:, 2] * boxes[:, 3])[reach:-reach]
    change = np.where(np.isfinite(change) & (size >= 12), change, 0.0)
    change[:MIN_IN] = change[-MIN_IN:] = 0.0
    widest = int(np.argmax(change)) + reach
    if change.max() < 0.15:
        return []
    first, last = max(0, widest - BEFORE), min(count, widest + 2 * BEFORE)
    if not np.isfinite(boxes[[first, widest]]).all():
        return []
    at = widest - first
    return [Clip(sequence, group, "turning", tuple(range(first, last)), hidden=at, event=at + 1)]


_RECIPES = {"sequence": _sequence, "leave": _leave, "turning": _turning, "splice": _splice, "swing": _swing}


def _image_size(sequence: Sequence) -> tuple[int, int]:
    picture = next(iter(sequence.frames())).bgr
    return picture.shape[1], picture.shape[0]


def _box(row: NDArray[np.float64]) -> Box | None:
    box = Box(*map(float, row))
    return None if box.is_empty else box


def _is_seen(sequence: Sequence, index: int) -> bool:
    return _box(sequence.boxes[index]) is not None


def _filled(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Gaps interpolated, and smoothed over a third of a second."""
    time, known = np.arange(len(points)), np.isfinite(points[:, 0])
    whole = np.stack([np.interp(time, time[known], points[known, axis]) for axis in (0, 1)], axis=1)
    kernel = np.ones(11) / 11
    padded = np.pad(whole, ((5, 5), (0, 0)), mode="edge")
    return np.stack([np.convolve(padded[:, axis], kernel, "valid") for axis in (0, 1)], axis=1)


def _inside(box: Box, x: int, y: int, width: int, height: int) -> Box | None:
    """The part of a box that the virtual camera shows, in its pixels; None below a third of the area."""
    moved = Box(box.x - x, box.y - y, box.width, box.height)
    seen = moved.clipped(width, height)
    return None if seen.is_empty or seen.area < box.area / 3 else seen


def _covered(picture: Picture, box: Box) -> Picture:
    """The picture with the box, 1.3 times as large, filled from its surroundings."""
    covered = picture.copy()
    wide = Box.from_centre(box.cx, box.cy, 1.3 * box.width, 1.3 * box.height)
    x0, y0, x1, y1 = (round(max(value, 0.0)) for value in wide.edges())
    x1, y1 = min(x1, picture.shape[1]), min(y1, picture.shape[0])
    for row in range(y0, y1):  # between the pixels left and right of it
        left, right = picture[row, max(x0 - 1, 0)], picture[row, min(x1, picture.shape[1] - 1)]
        share = np.linspace(0, 1, x1 - x0)[:, None]
        covered[row, x0:x1] = (1 - share) * left + share * right
    covered[y0:y1, x0:x1] = cv2.GaussianBlur(covered[y0:y1, x0:x1], (0, 0), 3.0)
    return covered


assert set(HALVES) >= set(FIXED_HALVES.values())
