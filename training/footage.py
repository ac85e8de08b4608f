"""Clips from real images: footage with masks, and single photographs seen through a moving window."""

from __future__ import annotations

import math
from collections import Counter

import cv2
import numpy as np
from numpy.typing import NDArray

from training.composites import RawClip
from training.degradations import Camera
from training.hardness import EASY
from training.imaging import Matrix, Pyramid, pyramid, similarity, warp
from training.material import IGNORED, LEAST_OBJECT, Footage, Material, Photograph, mask_bounds
from training.windows import away, draw_path, inside, most_extent

Bytes = NDArray[np.uint8]

LONGEST_STEP = 4  # frames between two frames of a clip
LEAST_TRACK_SIZE = 9.0  # px, square root of the area
FOLLOWED = 0.3  # share of a change of the target's size that the window follows, per frame
WHOLE_IMAGE_SHARE = 0.12  # share of clips with the whole image, stretched to a square as in the view "full"
LEAST_IN_WHOLE = 10.0  # least size in network px, so that the target is visible
KEPT_INSIDE_SHARE = 0.8  # share of the clips whose windows stay inside the image, as the tracker's do


class Track:
    """One target of one clip, sampled in windows."""

    def __init__(self, clip: Footage, masks: list[Bytes], frames: list[Pyramid]) -> None:
        self.scene = clip.scene
        self.frames = frames
        self.masks = [pyramid(mask) for mask in masks]
        self.bounds = [mask_bounds(mask > 127) if (mask > 127).any() else None for mask in masks]
        self.size = float(np.median([math.sqrt((mask > 127).sum()) for mask in masks]))


class FootageSampler:
    """Clips of real footage. Scenes are weighted by ``scene_power`` (see Hardness), less where targets are
    tiny."""

    def __init__(self, material: Material, scene_power: float = EASY.scene_power) -> None:
        self._tracks: list[Track] = []
        for clip in material.footage:
            frames = [pyramid(frame, 2) for frame in clip.frames]
            self._tracks += [Track(clip, masks, frames) for masks in clip.tracks]
        self._tracks = [t for t in self._tracks if t.size > LEAST_TRACK_SIZE and t.bounds[0] is not None]
        per_scene = Counter(track.scene for track in self._tracks)
        weights = np.array([min(1.0, t.size / 40) / per_scene[t.scene] ** scene_power for t in self._tracks])
        self._weights = weights / weights.sum() if len(weights) else weights

    def __len__(self) -> int:
        return len(self._tracks)

    def clip(self, rng: np.random.Generator, frames: int, side: int, margin: float = 1.0) -> RawClip:
        """Draw a clip of ``frames`` images of ``side`` px, ``margin`` times as wide as the windows."""
        track = self._tracks[rng.choice(len(self._tracks), p=self._weights)]
        order = _order(rng, len(track.frames), frames)
        if track.bounds[order[0]] is None:
            return self.clip(rng, frames, side, margin)
        path, camera = draw_path(rng, frames, margin), Camera.draw(rng, frames, blur_share=0.08)
        mirrored, roll = bool(rng.random() < 0.5), rng.normal(0, 0.06)
        height, width = track.frames[0][0].shape[:2]
        kept_inside = rng.random() < KEPT_INSIDE_SHARE
        box = track.bounds[order[0]]
        assert box is not None
        size = box_size(box)
        is_whole = size * side / max(width, height) > LEAST_IN_WHOLE and rng.random() < WHOLE_IMAGE_SHARE
        most = margin * most_extent(rng, size, (width, height))
        is_whole = is_whole and margin == 1
        images, masks = [], []
        for index, frame in enumerate(order):
            box = track.bounds[frame] or box
            size += FOLLOWED * (box_size(box) - size)
            extent = min(path.factor[index] * size, most)
            offset = path.offset[index] * fair_share(extent / margin, size)
            if path.elsewhere[index]:
                offset = offset + away(rng, path.factor[index])
            centre = np.array([box[0] + box[2], box[1] + box[3]]) / 2 - 0.5 + offset * size
            extent = max(extent, 1.5 * max(box[2] - box[0], box[3] - box[1]))
            if kept_inside:
                centre = inside(centre, extent, (width, height))
            matrix = similarity(side / extent, roll, centre, np.full(2, side / 2 - 0.5), mirrored)
            if is_whole:
                matrix = whole((width, height), side, mirrored)
            image = warp(track.frames[frame], matrix, side)
            images.append(camera.shoot(rng, image, index))
            masks.append(warp(track.masks[frame], matrix, side))
        area = np.array([(mask > 127).sum() for mask in masks], float)
        return RawClip(np.stack(images), np.stack(masks), None, np.maximum(area, 0.3 * area[0]))


def fair_share(extent: float, size: float) -> float:
    """Factor for a window's error in target sizes: large targets, seen through narrow windows, move little
    relative to their size."""
    return min(1.0, extent / (4.5 * size))


def whole(size: tuple[int, int], side: int, mirrored: bool) -> Matrix:
    """Map of a whole image of ``size`` (width, height) to a square of ``side`` px."""
    x, y = side / size[0], side / size[1]
    if mirrored:
        return np.array([[-x, 0, side - 0.5 - 0.5 * x], [0, y, 0.5 * y - 0.5]])
    return np.array([[x, 0, 0.5 * x - 0.5], [0, y, 0.5 * y - 0.5]])


def box_size(box: tuple[int, int, int, int]) -> float:
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

    def __init__(self, material: Material) -> None:
        self._objects = [
            (photograph, label)
            for photograph in material.photographs
            for label in range(1, 1 + _most_label(photograph))
            if _is_fit(photograph.labels == label)
        ]

    def __len__(self) -> int:
        return len(self._objects)

    def clip(self, rng: np.random.Generator, frames: int, side: int, margin: float = 1.0) -> RawClip:
        """Draw a clip of ``frames`` images of ``side`` px, ``margin`` times as wide as the windows."""
        photograph, label = self._objects[rng.integers(len(self._objects))]
        mask = np.where(photograph.labels == label, 255, 0).astype(np.uint8)
        unknown = np.where(photograph.labels == IGNORED, 255, 0).astype(np.uint8)
        box = mask_bounds(mask > 0)
        size = box_size(box)
        path, camera = draw_path(rng, frames, margin), Camera.draw(rng, frames)
        mirrored, aspect = bool(rng.random() < 0.5), math.exp(rng.normal(0, 0.15))
        roll, turn = rng.normal(0, 0.15), rng.normal(0, 0.08)
        border = cv2.BORDER_REFLECT_101 if rng.random() < 0.15 else cv2.BORDER_CONSTANT
        height, width = mask.shape
        kept_inside = rng.random() < KEPT_INSIDE_SHARE and border == cv2.BORDER_CONSTANT
        other = self._objects[rng.integers(len(self._objects))][0]
        is_whole = size * side / max(width, height) > LEAST_IN_WHOLE and rng.random() < WHOLE_IMAGE_SHARE
        most = margin * most_extent(rng, size, (width, height))
        is_whole = is_whole and margin == 1
        images: list[Bytes] = []
        masks: list[Bytes] = []
        ignored: list[NDArray[np.bool_]] = []
        for index in range(frames):
            extent = min(path.factor[index] * size, most)
            offset = path.offset[index] * fair_share(extent / margin, size)
            centre = np.array([box[0] + box[2], box[1] + box[3]]) / 2 - 0.5 + offset * size
            if kept_inside:
                centre = inside(centre, extent, (width, height))
            middle = np.full(2, side / 2 - 0.5)
            matrix = similarity(side / extent, roll + turn * index, centre, middle, mirrored, aspect)
            if is_whole:
                matrix = whole((width, height), side, mirrored)
            if path.elsewhere[index] and other is not photograph:
                images.append(camera.shoot(rng, _look(other.rgb, matrix, side, border), index))
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
        return RawClip(np.stack(images), np.stack(masks), np.stack(ignored), np.maximum(area, 0.3 * area[0]))


def _look(image: Bytes, matrix: NDArray[np.float64], side: int, border: int) -> Bytes:
    scale = math.sqrt(abs(float(np.linalg.det(matrix[:, :2]))))
    if scale < 0.6:
        return warp(pyramid(image, 2), matrix, side, border)
    return np.asarray(cv2.warpAffine(image, matrix, (side, side), borderMode=border), np.uint8)


def _most_label(photograph: Photograph) -> int:
    return min(12, int(photograph.labels[photograph.labels != IGNORED].max(initial=0)))


def _is_fit(mask: NDArray[np.bool_]) -> bool:
    return bool(mask.sum() >= LEAST_OBJECT and mask.mean() <= 0.5)
