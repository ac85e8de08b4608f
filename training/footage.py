"""Clips from real images: footage with masks, and single photographs seen through a moving window."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from training.composites import RawClip
from training.degradations import Camera
from training.hardness import EASY, Hardness
from training.imaging import Matrix, Pyramid, pyramid, similarity, warp
from training.material import IGNORED, MIN_OBJECT, Footage, Material, Photograph, mask_bounds
from training.parts import Piece, draw_part, keeps_aspect
from training.rivals import JITTER, Looks
from training.windows import away, draw_path, inside, most_extent

Bytes = NDArray[np.uint8]
Box = tuple[int, int, int, int]

LONGEST_STEP = 4  # frames between two frames of a clip
MIN_TRACK_SIZE = 9.0  # px, square root of the area
FOLLOWED = 0.3  # share of a change of the target's size that the window follows, per frame
WHOLE_IMAGE_SHARE = 0.12  # share of clips with the whole image, stretched to a square as in the view "full"
MIN_IN_WHOLE = 10.0  # least size in network px, so that the target is visible
KEPT_INSIDE_SHARE = 0.8  # share of the clips whose windows stay inside the image, as the tracker's do


class Track:
    """One target of one clip, sampled in windows.

    ``size`` and ``box_size``: medians of the square roots of the mask's and its box's area, px; ``colour``:
    mean RGB of its first frame.
    """

    def __init__(self, clip: Footage, masks: list[Bytes], frames: list[Pyramid]) -> None:
        self.clip, self.scene = clip.name, clip.scene
        self.frames = frames
        self.masks = [pyramid(mask) for mask in masks]
        self.bounds = [mask_bounds(mask > 127) if (mask > 127).any() else None for mask in masks]
        self.size = float(np.median([math.sqrt((mask > 127).sum()) for mask in masks]))
        self.box_size = float(np.median([box_size(box) for box in self.bounds if box] or [0.0]))
        self.colour = _colour(clip.frames[0], masks[0])

    def is_seen_with(self, other: Track) -> bool:
        """Whether both are of one clip and, in some frame, apart; else they may be one object."""
        if self.clip != other.clip:
            return False
        pairs = [(a, b) for a, b in zip(self.bounds, other.bounds, strict=True) if a and b]
        return any(_are_apart(a, b) for a, b in pairs)


@dataclass(frozen=True)
class _Rival:
    """Another object in each frame of a clip: the image it is in, and its box or None.

    ``is_same_scene``: the images are those of the clip, so that the target may be seen in them.
    """

    images: list[Pyramid]
    boxes: list[Box | None]
    is_same_scene: bool


class FootageSampler:
    """Clips of real footage. Scenes are weighted by the hardness's ``scene_power``, less where targets are
    tiny."""

    def __init__(self, material: Material, hardness: Hardness = EASY) -> None:
        self._hardness = hardness
        self._tracks: list[Track] = []
        for clip in material.footage:
            frames = [pyramid(frame, 2) for frame in clip.frames]
            self._tracks += [Track(clip, masks, frames) for masks in clip.tracks]
        self._tracks = [t for t in self._tracks if t.size > MIN_TRACK_SIZE and t.bounds[0] is not None]
        per_scene = Counter(track.scene for track in self._tracks)
        weights = np.array(
            [min(1.0, t.size / 40) / per_scene[t.scene] ** hardness.scene_power for t in self._tracks]
        )
        self._weights = weights / weights.sum() if len(weights) else weights
        self._looks = Looks(
            np.array([track.colour for track in self._tracks]),
            np.array([track.box_size for track in self._tracks]),
            np.array([track.scene for track in self._tracks], str),
        )
        self._siblings = [
            [i for i, other in enumerate(self._tracks) if track.is_seen_with(other)] for track in self._tracks
        ]

    def __len__(self) -> int:
        return len(self._tracks)

    def clip(self, rng: np.random.Generator, frames: int, side: int) -> RawClip:
        """Draw a clip of ``frames`` images of ``side`` px."""
        number = int(rng.choice(len(self._tracks), p=self._weights))
        track = self._tracks[number]
        order = _order(rng, len(track.frames), frames)
        if track.bounds[order[0]] is None:
            return self.clip(rng, frames, side)
        path = draw_path(rng, frames, self._hardness.absent)
        camera = Camera.draw(rng, frames, blur_share=0.08)
        mirrored, roll = bool(rng.random() < 0.5), rng.normal(0, 0.06)
        height, width = track.frames[0][0].shape[:2]
        kept_inside = rng.random() < KEPT_INSIDE_SHARE
        pieces = _pieces(rng, track, order) if self._hardness.has_part(rng) else None
        box = track.bounds[order[0]] if pieces is None else pieces[order[0]].box
        assert box is not None
        size = box_size(box)
        has_rival = self._hardness.has_rival(rng, path.elsewhere)
        rival = self._rival(rng, number, order, size) if has_rival else None
        is_whole, most = _draw_view(rng, size, (width, height), side)
        is_whole = is_whole and rival is None
        images: list[Bytes] = []
        masks: list[Bytes] = []
        ignored: list[NDArray[np.bool_]] = []
        for index, frame in enumerate(order):
            box = (track.bounds[frame] or box) if pieces is None else pieces[frame].box
            size += FOLLOWED * (box_size(box) - size)
            extent = min(path.factor[index] * size, most)
            offset = path.offset[index] * fair_share(extent, size)
            picture, target, limits = track.frames[frame], box, (width, height)
            rival_box = rival.boxes[index] if rival is not None and path.elsewhere[index] else None
            if rival is not None and rival_box is not None:
                picture, target = rival.images[index], rival_box
                limits = (picture[0].shape[1], picture[0].shape[0])
                scale = _rival_scale(rival, rival_box, size)
                offset, extent = rng.normal(0, JITTER, 2) * scale, extent * scale
            elif path.elsewhere[index]:
                offset = offset + away(rng, path.factor[index])
            centre = middle_of(target) + offset * size
            extent = max(extent, 1.5 * max(target[2] - target[0], target[3] - target[1]))
            if target is rival_box:
                extent = min(extent, max(limits))
            if kept_inside:
                centre = inside(centre, extent, limits)
            matrix = similarity(side / extent, roll, centre, np.full(2, side / 2 - 0.5), mirrored)
            if is_whole:
                matrix = whole((width, height), side, mirrored)
            image = warp(picture, matrix, side)
            images.append(camera.shoot(rng, image, index))
            if picture is not track.frames[frame]:
                masks.append(np.zeros((side, side), np.uint8))
                ignored.append(np.zeros((side, side), bool))
            elif pieces is None:
                masks.append(warp(track.masks[frame], matrix, side))
            else:
                masks.append(warp(pyramid(pieces[frame].mask), matrix, side))
                ignored.append(warp(pyramid(pieces[frame].ignored), matrix, side) > 0)
        area = np.array([(mask > 127).sum() for mask in masks], float)
        unknown = None if pieces is None else np.stack(ignored)
        least = np.maximum(area, 0.3 * area[0])
        return RawClip(np.stack(images), np.stack(masks), unknown, least, pieces is not None)

    def _rival(self, rng: np.random.Generator, number: int, order: list[int], size: float) -> _Rival | None:
        """Draw another track of the clip, or one of another scene if the clip has none."""
        siblings = self._siblings[number]
        if siblings:
            other = self._tracks[siblings[rng.integers(len(siblings))]]
            return _Rival([other.frames[i] for i in order], [other.bounds[i] for i in order], True)
        chosen = self._looks.rival(rng, number, size)
        if chosen is None:
            return None
        other = self._tracks[chosen]
        shown = _order(rng, len(other.frames), len(order))
        return _Rival([other.frames[i] for i in shown], [other.bounds[i] for i in shown], False)


def _pieces(rng: np.random.Generator, track: Track, order: list[int]) -> dict[int, Piece] | None:
    """A part of the target in every frame of a clip; None if the target has none that can be followed."""
    boxes = {frame: box for frame in order if (box := track.bounds[frame]) is not None}
    if len(boxes) < len(set(order)) or not keeps_aspect(list(boxes.values())):
        return None
    drawn = draw_part(rng, track.masks[order[0]][0], boxes[order[0]])
    if drawn is None:
        return None
    part, _ = drawn
    pieces = {frame: part.of(track.masks[frame][0], box) for frame, box in boxes.items()}
    found = {frame: piece for frame, piece in pieces.items() if piece is not None}
    return found if len(found) == len(boxes) else None


def _rival_scale(rival: _Rival, box: Box, size: float) -> float:
    """Factor for a window that shows a rival as large as the target of ``size``.

    In one scene sizes are similar, and a tracker searches with a window of the target's size.
    """
    scale = box_size(box) / size
    return min(max(scale, 0.5), 2.0) if rival.is_same_scene else scale


def middle_of(box: Box) -> NDArray[np.float64]:
    return np.array([box[0] + box[2], box[1] + box[3]]) / 2 - 0.5


def _are_apart(one: Box, other: Box) -> bool:
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    return width <= 0 or height <= 0


def _colour(image: Bytes, mask: Bytes) -> NDArray[np.float64]:
    """Mean RGB where ``mask`` is solid."""
    return np.array(cv2.mean(image, (mask > 127).astype(np.uint8))[:3])


def fair_share(extent: float, size: float) -> float:
    """Factor for a window's error in target sizes: large targets, seen through narrow windows, move little
    relative to their size."""
    return min(1.0, extent / (4.5 * size))


def _draw_view(
    rng: np.random.Generator, size: float, limits: tuple[int, int], side: int
) -> tuple[bool, float]:
    """Draw whether a clip shows whole images, and the widest window, px of an image of ``limits`` (width,
    height)."""
    is_whole = size * side / max(limits) > MIN_IN_WHOLE and rng.random() < WHOLE_IMAGE_SHARE
    return is_whole, most_extent(rng, size, limits)


def whole(size: tuple[int, int], side: int, mirrored: bool) -> Matrix:
    """Map of a whole image of ``size`` (width, height) to a square of ``side`` px."""
    x, y = side / size[0], side / size[1]
    if mirrored:
        return np.array([[-x, 0, side - 0.5 - 0.5 * x], [0, y, 0.5 * y - 0.5]])
    return np.array([[x, 0, 0.5 * x - 0.5], [0, y, 0.5 * y - 0.5]])


def box_size(box: Box) -> float:
    return math.sqrt((box[2] - box[0]) * (box[3] - box[1]))


def _order(rng: np.random.Generator, available: int, wanted: int) -> list[int]:
    """Frame indices of a clip, forwards or backwards in equal steps; a short clip is repeated back and
    forth."""
    step = int(rng.integers(1, max(2, min(LONGEST_STEP + 1, 1 + (available - 1) // wanted))))
    first = int(rng.integers(max(1, available - step * (wanted - 1))))
    order = [first + step * i for i in range(wanted)]
    period = max(1, 2 * (available - 1))
    order = [min(i % period, period - i % period) for i in order]
    return order[::-1] if rng.random() < 0.5 else order


class PhotographSampler:
    """One photograph seen several times: true outlines and surroundings, with motion of the window only.

    Where the window moves off the target, it shows another photograph.
    """

    def __init__(self, material: Material, hardness: Hardness = EASY) -> None:
        self._hardness = hardness
        self._objects = [
            (photograph, label)
            for photograph in material.photographs
            for label in range(1, 1 + _most_label(photograph))
            if _is_fit(photograph.labels == label)
        ]
        self._beside: dict[int, list[int]] = defaultdict(list)  # objects of a photograph, by its identity
        for number, (photograph, _) in enumerate(self._objects):
            self._beside[id(photograph)].append(number)
        looks = [_look_of(photograph, label) for photograph, label in self._objects]
        self._boxes = [box for box, _ in looks]
        self._looks = Looks(
            np.array([colour for _, colour in looks]),
            np.array([box_size(box) for box in self._boxes]),
            np.array([series_of(photograph) for photograph, _ in self._objects], str),
        )

    def __len__(self) -> int:
        return len(self._objects)

    def clip(self, rng: np.random.Generator, frames: int, side: int) -> RawClip:
        """Draw a clip of ``frames`` images of ``side`` px."""
        number = int(rng.integers(len(self._objects)))
        photograph, label = self._objects[number]
        mask = np.where(photograph.labels == label, 255, 0).astype(np.uint8)
        unknown = np.where(photograph.labels == IGNORED, 255, 0).astype(np.uint8)
        box = self._boxes[number]
        drawn = draw_part(rng, mask, box) if self._hardness.has_part(rng) else None
        if drawn is not None:
            mask, band, box = drawn[1]
            unknown = np.maximum(unknown, band)
        size = box_size(box)
        path, camera = draw_path(rng, frames, self._hardness.absent), Camera.draw(rng, frames)
        rival = self._rival(rng, number, size) if self._hardness.has_rival(rng, path.elsewhere) else None
        mirrored, aspect = bool(rng.random() < 0.5), math.exp(rng.normal(0, 0.15))
        roll, turn = rng.normal(0, 0.15), rng.normal(0, 0.08)
        border = cv2.BORDER_REFLECT_101 if rng.random() < 0.15 else cv2.BORDER_CONSTANT
        height, width = mask.shape
        kept_inside = rng.random() < KEPT_INSIDE_SHARE and border == cv2.BORDER_CONSTANT
        other = self._objects[rng.integers(len(self._objects))][0]
        is_whole, most = _draw_view(rng, size, (width, height), side)
        is_whole = is_whole and rival is None
        images: list[Bytes] = []
        masks: list[Bytes] = []
        ignored: list[NDArray[np.bool_]] = []
        for index in range(frames):
            extent = min(path.factor[index] * size, most)
            offset = path.offset[index] * fair_share(extent, size)
            picture, limits = photograph, (width, height)
            centre = middle_of(box) + offset * size
            if path.elsewhere[index]:
                picture = other
            if rival is not None and path.elsewhere[index]:
                picture = self._objects[rival][0]
                limits = (picture.labels.shape[1], picture.labels.shape[0])
                rival_size = box_size(self._boxes[rival])
                centre = middle_of(self._boxes[rival]) + rng.normal(0, JITTER, 2) * rival_size
                extent = min(extent * rival_size / size, max(limits))
            if kept_inside:
                centre = inside(centre, extent, limits)
            middle = np.full(2, side / 2 - 0.5)
            matrix = similarity(side / extent, roll + turn * index, centre, middle, mirrored, aspect)
            if is_whole:
                matrix = whole((width, height), side, mirrored)
            if picture is not photograph:
                images.append(camera.shoot(rng, _look(picture.rgb, matrix, side, border), index))
                masks.append(np.zeros((side, side), np.uint8))
                ignored.append(np.zeros((side, side), bool))
                continue
            image = _look(photograph.rgb, matrix, side, border)
            images.append(camera.shoot(rng, image, index))
            masks.append(_look(mask, matrix, side, cv2.BORDER_CONSTANT))
            ignored.append(_look(unknown, matrix, side, cv2.BORDER_CONSTANT) > 0)
            if border != cv2.BORDER_CONSTANT:  # replicated border pixels are not valid background
                real = _look(np.full_like(mask, 255), matrix, side, cv2.BORDER_CONSTANT) > 0
                ignored[-1] |= ~real
        area = np.array([(m > 127).sum() for m in masks], float)
        least = np.maximum(area, 0.3 * area[0])
        return RawClip(np.stack(images), np.stack(masks), np.stack(ignored), least, drawn is not None)

    def _rival(self, rng: np.random.Generator, number: int, size: float) -> int | None:
        """Draw another object: in half of the clips where there is one, of the same photograph."""
        photograph, _ = self._objects[number]
        beside = [i for i in self._beside[id(photograph)] if i != number]
        if beside and rng.random() < 0.5:
            return beside[rng.integers(len(beside))]
        return self._looks.rival(rng, number, size)


def _look_of(photograph: Photograph, label: int) -> tuple[Box, NDArray[np.float64]]:
    """Box and mean RGB of an object."""
    mask = np.where(photograph.labels == label, 255, 0).astype(np.uint8)
    return mask_bounds(mask > 0), _colour(photograph.rgb, mask)


def series_of(photograph: Photograph) -> str:
    """Name of the film that a photograph was taken from, which may show the same object; else its own."""
    film, _, _ = photograph.name.rpartition("_")
    return film if "_" in film else photograph.name


def _look(image: Bytes, matrix: NDArray[np.float64], side: int, border: int) -> Bytes:
    scale = math.sqrt(abs(float(np.linalg.det(matrix[:, :2]))))
    if scale < 0.6:
        return warp(pyramid(image, 2), matrix, side, border)
    return np.asarray(cv2.warpAffine(image, matrix, (side, side), borderMode=border), np.uint8)


def _most_label(photograph: Photograph) -> int:
    return min(12, int(photograph.labels[photograph.labels != IGNORED].max(initial=0)))


def _is_fit(mask: NDArray[np.bool_]) -> bool:
    return bool(mask.sum() >= MIN_OBJECT and mask.mean() <= 0.5)
