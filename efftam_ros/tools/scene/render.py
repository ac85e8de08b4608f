"""Renders a synthetic drone video with exact truth: a car, an identical car, a bridge that hides the target.

Deterministic for a seed. Boxes are computed from the visible outline, not from pixels.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box
from efftam_ros.tools.common.video import NS, VideoWriter
from efftam_ros.tools.scene.car import HEIGHT, Patch, Sprite, outline, paint_car, place
from efftam_ros.tools.scene.terrain import BRIDGE_WIDTH, SUN, Terrain, paint

FPS = 30.0
MOST_FRAMES = 1800
SPEED = 118.0  # world px/s
LANE = 30.0  # world px from the centre line
WIDE = 1280.0  # image width at which a world px is an image px
STEP = 4.0  # world px between points of the road
FREE_S = 1.6  # earliest time at which the bridge is reached, also in shorter scenes
TURN_S, AWAY_S = 0.6, 1.5  # duration of the camera's turn in each direction, and of looking away
AWAY = (1000.0, -560.0)  # world px
RUN_UP = 1400.0  # road before the start and after the end

Affine = NDArray[np.float64]
Area = tuple[int, int, int, int]


class SceneFrame(NamedTuple):
    """``bgr`` uint8 [H, W, 3]; ``box`` of the visible part of the target in px, None while it is hidden;
    ``mask`` bool [H, W]."""

    bgr: NDArray[np.uint8]
    box: Box | None
    mask: NDArray[np.bool_]


def render_scene(
    seed: int = 7,
    frames: int = 300,
    size: tuple[int, int] = (1280, 720),
    fps: float = FPS,
    turns_away: bool = False,
) -> Iterator[SceneFrame]:
    """Render ``frames`` images of ``size`` (width, height) px. The same arguments give the same pixels.

    The target is about 50x22 px at 1280 px width and scales with the width. It passes an identical car at
    40 % of the duration, and a bridge hides it for some tenths of a second at two thirds (not before 1.6 s).
    With ``turns_away`` the camera pans away at half the duration, for 1.5 s, and back. Raises InputError for
    a size or length out of range.
    """
    width, height = size
    if not (64 <= width <= 4096 and 64 <= height <= 4096):
        raise InputError(f"scene size is {width}x{height}; both must lie in [64, 4096]")
    if not 1 <= frames <= MOST_FRAMES:
        raise InputError(f"scene of {frames} frames; it must lie in [1, {MOST_FRAMES}]")
    return _Scene(seed, frames, size, fps, turns_away).render()


def write_scene(folder: Path, scene: Iterable[SceneFrame], fps: float = FPS) -> None:
    """Write a scene as one of our sequences: video.mp4, boxes.csv, masks.npz, meta.json."""
    folder.mkdir(parents=True, exist_ok=True)
    rows: list[list[object]] = []
    bits = []
    shape = (0, 0)
    writer: VideoWriter | None = None
    try:
        for index, frame in enumerate(scene):
            shape = (frame.bgr.shape[0], frame.bgr.shape[1])
            if writer is None:
                writer = VideoWriter(folder / "video.mp4", shape[1], shape[0], fps)
            writer.write(frame.bgr, round(index * NS / fps))
            values = frame.box.xywh() if frame.box else (math.nan,) * 4
            rows.append([index, *(f"{value:.3f}" for value in values)])
            bits.append(np.packbits(frame.mask))
    finally:
        if writer is not None:
            writer.close()
    with (folder / "boxes.csv").open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([["frame", "x", "y", "w", "h"], *rows])
    np.savez_compressed(folder / "masks.npz", shape=np.array([len(rows), *shape]), bits=np.array(bits))
    meta = {
        "name": folder.name,
        "data_set": "synthetic",
        "frames": len(rows),
        "width": shape[1],
        "height": shape[0],
        "fps": fps,
    }
    (folder / "meta.json").write_text(json.dumps(meta, indent=1) + "\n")


class _Scene:
    def __init__(self, seed: int, frames: int, size: tuple[int, int], fps: float, turns_away: bool) -> None:
        self.frames, self.fps, self.size = frames, fps, size
        self.scale = size[0] / WIDE
        self._rng = np.random.default_rng(seed)
        duration = frames / fps
        self._turn_s = 0.5 * duration if turns_away else math.inf
        self._road = self._lay_road(duration)
        self._wander = self._rng.uniform(0, 2 * math.pi, (6, 3))
        self._bridge = self._lay_bridge(duration)
        self._twin_meets_s = 0.4 * duration
        reach = np.hypot(*size) / self.scale * 0.56 + 40
        track = np.array([self._camera_centre(t) for t in np.linspace(0, duration, 2 + int(4 * duration))])
        terrain = paint(
            self._rng,
            self._road,
            self._bridge,
            tuple(track.min(axis=0) - reach),
            tuple(track.max(axis=0) + reach),
        )
        self._terrain = self._resized(terrain)
        self._car: Sprite = paint_car((58, 62, 190))

    def render(self) -> Iterator[SceneFrame]:
        width, height = self.size
        grain = np.random.default_rng(self._rng.integers(2**63))
        # One noise image, shifted for each frame, because new noise per frame would be slow.
        single = np.round(grain.normal(0, 2.2, (height + 64, width + 64))).astype(np.int16)
        sheet = np.repeat(single[..., None], 3, axis=2)
        for index in range(self.frames):
            frame = self._frame_at(index / self.fps)
            dx, dy = grain.integers(0, 64, 2)
            noise = sheet[dy : dy + height, dx : dx + width]
            yield frame._replace(bgr=np.asarray(cv2.add(frame.bgr, noise, dtype=cv2.CV_8U), np.uint8))

    def _frame_at(self, t: float) -> SceneFrame:
        width, height = self.size
        camera = self._camera(t)
        own, twin = (camera @ _square(pose) for pose in (self._target(t), self._twin(t)))
        mask = np.zeros((height, width), bool)
        bgr = self._warp(self._terrain.empty, camera, (0, 0, width, height), cv2.BORDER_REFLECT)
        # Layers are composed only around the cars: ground, shadows, cars, bridge.
        for x0, y0, x1, y1 in _merged([self._surroundings(pose, camera) for pose in (twin, own)]):
            area = (max(x0, 0), max(y0, 0), min(x1, width), min(y1, height))
            x0, y0, x1, y1 = area
            if x0 < x1 and y0 < y1:
                bgr[y0:y1, x0:x1], mask[y0:y1, x0:x1] = self._composed(area, own, twin, camera)
        return SceneFrame(bgr, self._visible_box(own, camera) if mask.any() else None, mask)

    def _composed(
        self, area: Area, own: Affine, twin: Affine, camera: Affine
    ) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
        """The pixels and the target's mask in this part of the image."""
        image = self._warp(self._terrain.ground, camera, area, cv2.BORDER_REFLECT).astype(np.float32)
        light = self._warp(self._terrain.light, camera, area, cv2.BORDER_REPLICATE)
        deck = self._warp(self._terrain.bridge, camera, area, cv2.BORDER_CONSTANT).astype(np.float32)
        above = deck[..., 3:] / 255
        corner = np.array(area[:2], np.float64)
        for pose in (twin, own):
            here = np.column_stack([pose[:, :2], pose[:, 2] - corner])
            self._cast_shadow(image, here, camera)
            cover = _blend(image, place(self._car, here))
        image *= light[..., None].astype(np.float32) / 255
        image += (deck[..., :3] - image) * above
        return np.clip(image, 0, 255).astype(np.uint8), cover * (1 - above[..., 0]) >= 0.5

    def _surroundings(self, pose: Affine, camera: Affine) -> Area:
        """Image part that a car and its shadow touch: left, top, right, bottom px."""
        shape = self._outline_and_shadow(pose, camera)
        x0, y0 = np.floor(shape.min(axis=0)).astype(int) - 6
        x1, y1 = np.ceil(shape.max(axis=0)).astype(int) + 6
        return int(x0), int(y0), int(x1), int(y1)

    def _outline_and_shadow(self, pose: Affine, camera: Affine) -> NDArray[np.float64]:
        shape = outline() @ pose[:, :2].T + pose[:, 2]
        return np.vstack([shape, shape + camera[:, :2] @ np.array(SUN) * HEIGHT])

    def _visible_box(self, pose: Affine, camera: Affine) -> Box | None:
        """Bounds of the target's outline minus the bridge, inside the image; exact, as all of them are
        convex."""
        shape = outline() @ pose[:, :2].T + pose[:, 2]
        edge_a, edge_b = self._bridge @ camera[:, :2].T + camera[:, 2]
        along = (edge_b - edge_a) / np.hypot(*(edge_b - edge_a))
        normal = np.array((-along[1], along[0]))
        middle = float(normal @ edge_a)
        half = BRIDGE_WIDTH / 2 * math.sqrt(abs(np.linalg.det(camera[:, :2])))
        pieces = [_clip(shape, normal, middle + half), _clip(shape, -normal, half - middle)]
        points = np.vstack([piece for piece in pieces if len(piece)] or [np.zeros((0, 2))])
        if not len(points):
            return None
        box = Box.from_edges(*points.min(axis=0), *points.max(axis=0)).clipped(*self.size)
        return None if box.is_empty else box

    def _cast_shadow(self, image: NDArray[np.float32], pose: Affine, camera: Affine) -> None:
        hull = cv2.convexHull(self._outline_and_shadow(pose, camera).astype(np.float32))[:, 0]
        cover = np.zeros(image.shape[:2], np.uint8)
        cv2.fillConvexPoly(cover, np.round((hull - 0.5) * 16).astype(np.int32), 255, cv2.LINE_AA, 4)
        image *= 1 - 0.5 * cv2.GaussianBlur(cover, (0, 0), 1.2).astype(np.float32)[..., None] / 255

    def _lay_road(self, duration: float) -> NDArray[np.float64]:
        """Centre line with gentle bends and without loops."""
        rng = self._rng
        s = np.arange(-RUN_UP, SPEED * duration + RUN_UP, STEP)
        base, swing, phase = rng.uniform(-0.3, 0.3), rng.uniform(0.45, 0.6), rng.uniform(0, 2 * math.pi)
        heading = base + swing * np.sin(2 * math.pi * s / 1150 + phase) + 0.12 * np.sin(2 * math.pi * s / 470)
        steps = STEP * np.stack([np.cos(heading), np.sin(heading)], axis=1)
        line = np.cumsum(steps, axis=0)
        self._road_s = s
        return np.asarray(line - line[np.searchsorted(s, 0.0)])

    def _lay_bridge(self, duration: float) -> NDArray[np.float64]:
        """Centre line [2, 2] of the road above, nearly square to the road, where the target is at two
        thirds."""
        at, heading = self._on_road(SPEED * max(duration * 2 / 3, FREE_S), LANE)
        angle = heading + math.pi / 2 + self._rng.uniform(-0.2, 0.2)
        reach = 2400 * np.array((math.cos(angle), math.sin(angle)))
        return np.array([at - reach, at + reach])

    def _on_road(self, s: float, side: float) -> tuple[NDArray[np.float64], float]:
        """World point and heading at arc length ``s``, ``side`` px to the right of the centre line."""
        point = np.array([np.interp(s, self._road_s, self._road[:, i]) for i in (0, 1)])
        ahead = np.array([np.interp(s + STEP, self._road_s, self._road[:, i]) for i in (0, 1)])
        behind = np.array([np.interp(s - STEP, self._road_s, self._road[:, i]) for i in (0, 1)])
        heading = math.atan2(*(ahead - behind)[::-1])
        return point + side * np.array((-math.sin(heading), math.cos(heading))), heading

    def _target(self, t: float) -> Affine:
        return _pose(*self._on_road(SPEED * t, LANE))

    def _twin(self, t: float) -> Affine:
        meets = SPEED * self._twin_meets_s
        point, heading = self._on_road(meets - 0.8 * SPEED * (t - self._twin_meets_s), -LANE)
        return _pose(point, heading + math.pi)

    def _sway(self, t: float, row: int, periods: tuple[float, float, float]) -> float:
        """A smooth oscillation in about -1..1."""
        phases = self._wander[row]
        return (
            sum(
                math.sin(2 * math.pi * t / period + phase)
                for period, phase in zip(periods, phases, strict=True)
            )
            / 3
        )

    def _camera_centre(self, t: float) -> NDArray[np.float64]:
        """The camera follows the target with an offset."""
        behind, _ = self._on_road(SPEED * t - 30, 0.0)
        drift = np.array((190 * self._sway(t, 0, (11.0, 7.1, 4.3)), 105 * self._sway(t, 1, (9.0, 6.3, 3.7))))
        shake = 1.3 * np.array((self._sway(t, 2, (0.61, 0.37, 0.19)), self._sway(t, 3, (0.53, 0.31, 0.17))))
        return np.asarray(behind + drift + shake + self._turned(t))

    def _turned(self, t: float) -> NDArray[np.float64]:
        """How far the camera looks away from the target: out, there for a while, and back."""
        since = t - self._turn_s
        share = min(max(min(since, 2 * TURN_S + AWAY_S - since) / TURN_S, 0.0), 1.0)
        return share * share * (3 - 2 * share) * np.array(AWAY)

    def _camera(self, t: float) -> Affine:
        """World px -> image px [2, 3]: position, slow yaw with a little shake, changing altitude."""
        yaw = math.radians(
            9.0 * self._sway(t, 4, (13.0, 8.0, 5.0)) + 0.25 * self._sway(t, 2, (0.61, 0.37, 0.19))
        )
        zoom = self.scale * (1 + 0.06 * self._sway(t, 5, (12.0, 9.0, 6.0)))
        turn = zoom * np.array([[math.cos(yaw), -math.sin(yaw)], [math.sin(yaw), math.cos(yaw)]])
        offset = np.array(self.size) / 2 - turn @ self._camera_centre(t)
        return np.hstack([turn, offset[:, None]])

    def _resized(self, terrain: Terrain) -> Terrain:
        """The terrain at the image's scale, so that shrinking is done once and with an area filter."""
        self._layer_scale = np.array((1.0, 1.0))
        if self.scale == 1.0:
            return terrain
        how = cv2.INTER_AREA if self.scale < 1 else cv2.INTER_LINEAR
        height, width = terrain.light.shape
        size = (max(1, round(width * self.scale)), max(1, round(height * self.scale)))
        self._layer_scale = np.array(size) / (width, height)

        def resized(layer: NDArray[np.uint8]) -> NDArray[np.uint8]:
            return np.asarray(cv2.resize(layer, size, interpolation=how), np.uint8)

        return Terrain(
            resized(terrain.ground),
            resized(terrain.bridge),
            resized(terrain.light),
            resized(terrain.empty),
            terrain.origin,
        )

    def _warp(self, layer: NDArray[np.uint8], camera: Affine, area: Area, border: int) -> NDArray[np.uint8]:
        """A layer of the terrain as it falls on this part of the image."""
        matrix = camera.copy()
        matrix[:, :2] /= self._layer_scale
        matrix[:, 2] += camera[:, :2] @ np.array(self._terrain.origin)
        matrix[:, 2] += matrix[:, :2] @ (0.5, 0.5) - 0.5 - np.array(area[:2])
        size = (area[2] - area[0], area[3] - area[1])
        warped = cv2.warpAffine(layer, matrix, size, flags=cv2.INTER_LINEAR, borderMode=border)
        return np.asarray(warped, np.uint8)


def _pose(point: NDArray[np.float64], heading: float) -> Affine:
    c, s = math.cos(heading), math.sin(heading)
    return np.array([[c, -s, point[0]], [s, c, point[1]]])


def _square(affine: Affine) -> Affine:
    return np.vstack([affine, (0.0, 0.0, 1.0)])


def _clip(polygon: NDArray[np.float64], normal: NDArray[np.float64], least: float) -> NDArray[np.float64]:
    """The part of a convex polygon where ``normal . p >= least``."""
    height = polygon @ normal - least
    kept: list[NDArray[np.float64]] = []
    for i in range(len(polygon)):
        j = (i + 1) % len(polygon)
        if height[i] >= 0:
            kept.append(polygon[i])
        if (height[i] >= 0) != (height[j] >= 0):
            kept.append(polygon[i] + (polygon[j] - polygon[i]) * height[i] / (height[i] - height[j]))
    return np.array(kept).reshape(-1, 2)


def _merged(areas: list[Area]) -> list[Area]:
    """Two areas, merged to their bounds where they overlap."""
    (ax0, ay0, ax1, ay1), (bx0, by0, bx1, by1) = areas
    if min(ax1, bx1) <= max(ax0, bx0) or min(ay1, by1) <= max(ay0, by0):
        return areas
    return [(min(ax0, bx0), min(ay0, by0), max(ax1, bx1), max(ay1, by1))]


def _blend(image: NDArray[np.float32], patch: Patch) -> NDArray[np.float32]:
    """Lay a car over the image; its coverage of each pixel, 0..1."""
    cover = np.zeros(image.shape[:2], np.float32)
    part = patch.visible_part(image.shape[1], image.shape[0])
    if part is not None:
        rows, columns, patch_rows, patch_columns = part
        cover[rows, columns] = patch.cover[patch_rows, patch_columns]
        shown = cover[rows, columns, None]
        image[rows, columns] += (patch.bgr[patch_rows, patch_columns] - image[rows, columns]) * shown
    return cover
