"""Paints the terrain of the synthetic scene from above: fields, roads, houses, trees, bridge.

World units are px of a 1280-wide image at zoom 1; colours are BGR.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

# Shadow offset in world px per px of height, with the sun in the upper left.
SUN = (0.55, 0.75)
ROAD_WIDTH = 112.0
BRIDGE_WIDTH = 84.0
SHIFT = 4  # fractional bits of OpenCV's drawing coordinates
BAND = 32  # rows of the fields painted at a time: what they need fits into the processor's cache

Image = NDArray[np.uint8]
Points = NDArray[np.float64]
Colour = int | tuple[float, ...] | NDArray[np.float64]


@dataclass(frozen=True)
class Terrain:
    """``ground`` uint8 [H, W, 3] under the cars; ``bridge`` uint8 [H, W, 4] BGR and coverage above them;
    ``light`` uint8 [H, W], 255 where the sun reaches the road, less in the bridge's shadow; ``empty`` uint8
    [H, W, 3] all of that without cars. Pixel (0, 0) is the world point ``origin``."""

    ground: Image
    bridge: Image
    light: Image
    empty: Image
    origin: tuple[float, float]


def paint(
    rng: np.random.Generator,
    road: Points,
    bridge: Points,
    low: tuple[float, float],
    high: tuple[float, float],
) -> Terrain:
    """Paint the rectangle from ``low`` to ``high``, world px, around the road's centre line [n, 2];
    ``bridge`` [2, 2] is the centre line of the road that crosses above."""
    origin = (float(np.floor(low[0])), float(np.floor(low[1])))
    width, height = int(np.ceil(high[0] - origin[0])), int(np.ceil(high[1] - origin[1]))
    road, bridge = road - origin, bridge - origin
    ground = _fields(rng, width, height)
    _track(rng, ground, road)
    _asphalt(rng, ground, road, ROAD_WIDTH)
    blocked = _strip((height, width), [road], ROAD_WIDTH + 24) | _strip(
        (height, width), [bridge], BRIDGE_WIDTH + 30
    )
    room = np.asarray(cv2.distanceTransform((~blocked).astype(np.uint8), cv2.DIST_L2, 3), np.float32)
    _houses(rng, ground, room, road)
    _trees(rng, ground, room)
    deck, light = _bridge(rng, bridge, width, height)
    empty = cv2.multiply(ground, cv2.merge([light] * 3), scale=1 / 255)
    covered = deck[..., 3] > 0
    cover = deck[covered, 3:].astype(np.float32) / 255
    empty[covered] = empty[covered] * (1 - cover) + deck[covered, :3] * cover
    return Terrain(ground, deck, light, np.asarray(empty, np.uint8), origin)


def noise(rng: np.random.Generator, width: int, height: int, cell: float) -> NDArray[np.float32]:
    """Smooth random field in -1..1 whose features are about ``cell`` px wide."""
    coarse = rng.uniform(-1, 1, (int(height / cell) + 4, int(width / cell) + 4)).astype(np.float32)
    grown = cv2.resize(coarse, None, fx=cell, fy=cell, interpolation=cv2.INTER_CUBIC)
    return np.asarray(grown[:height, :width], np.float32)


def _fields(rng: np.random.Generator, width: int, height: int) -> Image:
    """Parcels of meadow and crop with furrows, hedges between them."""
    crops = np.array(
        [
            (62, 112, 92),
            (70, 132, 112),
            (84, 142, 138),
            (98, 158, 170),
            (58, 96, 74),
            (92, 128, 146),
            (66, 120, 84),
        ],
        np.float32,
    )
    angle = rng.uniform(-0.5, 0.5)
    sway_u, sway_v = (22 * noise(rng, width, height, 260) for _ in range(2))
    staggers = rng.uniform(0, 500, 4096).astype(np.float32)
    colours = crops[rng.integers(0, len(crops), 4096)] + rng.normal(0, 5, (4096, 1)).astype(np.float32)
    # Furrows run along or across a parcel, and not in meadows.
    turns = rng.random(4096) < 0.5
    spacings = rng.uniform(9, 15, 4096).astype(np.float32)
    depths = np.where(rng.random(4096) < 0.65, 6.0, 0.0).astype(np.float32)
    shade = (
        11 * noise(rng, width, height, 140)
        + 7 * noise(rng, width, height, 36)
        + 6 * noise(rng, width, height, 7)
    )
    grain = rng.normal(0, 4, (height, width)).astype(np.float32)
    wear, gaps = 2.2 * noise(rng, width, height, 9), noise(rng, width, height, 90)
    x, y = np.arange(width, dtype=np.float32), np.arange(height, dtype=np.float32)[:, None]
    fields = np.empty((height, width, 3), np.uint8)
    for first in range(0, height, BAND):
        rows = slice(first, first + BAND)
        u = x * np.cos(angle) + y[rows] * np.sin(angle) + sway_u[rows]
        v = -x * np.sin(angle) + y[rows] * np.cos(angle) + sway_v[rows]
        row = np.floor(v / 330).astype(np.int32)
        stagger = staggers[row % 4096]
        column = np.floor((u + stagger) / 470).astype(np.int32)
        parcel = (row * 7919 + column * 104729) % 4096
        across = np.where(turns[parcel], u, v)
        ground = colours[parcel]
        ground += (depths[parcel] * np.sin(2 * np.pi * across / spacings[parcel]))[..., None]
        ground += shade[rows, :, None] + grain[rows, :, None]
        edge = np.maximum(np.abs((v % 330) - 165) - 165, np.abs(((u + stagger) % 470) - 235) - 235)
        hedge = (edge + wear[rows] > -3.2) & (gaps[rows] > -0.15)
        ground[hedge] = ground[hedge] * 0.35 + np.array((30, 62, 44), np.float32) * 0.65
        fields[rows] = np.clip(ground, 0, 255)
    return fields


def _track(rng: np.random.Generator, ground: Image, road: Points) -> None:
    """Two farm tracks that leave the road."""
    for share in (0.25, 0.8):
        at = road[int(share * (len(road) - 1))]
        side = rng.choice((-1.0, 1.0))
        heading = _normal(road, int(share * (len(road) - 1))) * side
        far = at + heading * 900 + rng.normal(0, 60, 2)
        middle = (at + far) / 2 + rng.normal(0, 50, 2)
        t = np.linspace(0, 1, 60)[:, None]
        curve = (1 - t) ** 2 * at + 2 * t * (1 - t) * middle + t**2 * far
        _line(ground, curve, (118, 150, 170), 26)
        _line(ground, curve, (98, 136, 142), 7)


def _asphalt(rng: np.random.Generator, ground: Image, road: Points, width: float) -> None:
    """The road: verge, asphalt with wear, edge lines and a dashed centre line."""
    _line(ground, road, (104, 134, 138), width + 14)
    before = ground.copy()
    _line(ground, road, (104, 102, 100), width)
    changed = np.logical_or.reduce([ground[..., i] != before[..., i] for i in range(3)])
    grain = rng.normal(0, 5, ground.shape[:2]) + 7 * noise(rng, ground.shape[1], ground.shape[0], 60)
    ground[changed] = np.clip(ground[changed] + grain[changed][:, None], 0, 255).astype(np.uint8)
    for side in (-1, 1):
        for wheel in (0.13, 0.33):
            _line(ground, _offset(road, side * wheel * width), (94, 92, 90), 5)
        _line(ground, _offset(road, side * (width / 2 - 5)), (205, 208, 208), 2.2)
    length = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(road, axis=0).T))])
    for start in np.arange(0, length[-1] - 22, 52):
        at = np.linspace(start, start + 22, 6)
        dash = np.stack([np.interp(at, length, road[:, i]) for i in (0, 1)], axis=1)
        _line(ground, dash, (212, 214, 214), 2.4)


def _houses(rng: np.random.Generator, ground: Image, room: NDArray[np.float32], road: Points) -> None:
    """Houses along the road: gabled roofs with a lit and a dark side, a drive and a shadow."""
    roofs = ((62, 74, 152), (70, 86, 134), (92, 96, 104), (66, 66, 120), (110, 112, 116))
    taken: list[NDArray[np.float64]] = []
    for _ in range(4 * len(road) // 25):
        index = int(rng.integers(0, len(road)))
        normal = _normal(road, index) * rng.choice((-1.0, 1.0))
        centre = road[index] + normal * rng.uniform(105, 260)
        x, y = int(centre[0]), int(centre[1])
        if not (0 <= x < room.shape[1] and 0 <= y < room.shape[0]) or room[y, x] < 48:
            continue
        if any(np.hypot(*(centre - other)) < 135 for other in taken) or rng.random() < 0.35:
            continue
        taken.append(centre)
        along = np.array((-normal[1], normal[0]))
        half_w, half_h = rng.uniform(28, 40), rng.uniform(19, 26)
        if rng.random() < 0.5:
            _line(
                ground, np.array([centre, road[index] + normal * (ROAD_WIDTH / 2 + 4)]), (128, 140, 146), 13
            )
        corners = np.array(
            [
                centre + a * along * half_w + b * normal * half_h
                for a, b in ((-1, -1), (1, -1), (1, 1), (-1, 1))
            ]
        )
        _shadow(ground, corners, 26)
        roof = np.array(roofs[int(rng.integers(0, len(roofs)))], np.float64) * rng.uniform(0.9, 1.15)
        ridge = centre - along * half_w, centre + along * half_w
        lit = float(normal @ np.array(SUN)) < 0
        for near, bright in ((corners[[0, 1]], lit), (corners[[3, 2]], not lit)):
            side = np.array([near[0], near[1], ridge[1], ridge[0]])
            _polygon(ground, side, roof * (1.12 if not bright else 0.8))
            for share in np.linspace(0.12, 0.95, 7):  # rows of tiles
                row = near * (1 - share) + np.array(ridge) * share
                _line(ground, row, roof * (1.02 if not bright else 0.72), 1)
        _line(ground, np.array(ridge), roof * 1.3, 2)
        chimney = centre + along * half_w * 0.5 + normal * half_h * 0.3
        _polygon(
            ground,
            np.array([chimney + (-3, -3), chimney + (3, -3), chimney + (3, 3), chimney + (-3, 3)]),
            (70, 72, 78),
        )


def _trees(rng: np.random.Generator, ground: Image, room: NDArray[np.float32]) -> None:
    """Crowns of leaves with a lit and a dark side, alone and in groves."""
    height, width = room.shape
    area = height * width / 1e6
    centres = [rng.uniform((0, 0), (width, height)) for _ in range(int(36 * area))]
    for _ in range(int(5 * area)):
        grove = rng.uniform((0, 0), (width, height))
        centres += [grove + rng.normal(0, 62, 2) for _ in range(int(rng.integers(8, 22)))]
    for centre in sorted(centres, key=lambda c: float(c[1])):
        radius = rng.uniform(10, 25)
        x, y = int(centre[0]), int(centre[1])
        if 0 <= x < width and 0 <= y < height and room[y, x] > radius + 6:
            _crown(rng, ground, centre, radius)


def _crown(rng: np.random.Generator, ground: Image, centre: Points, radius: float) -> None:
    angles = np.linspace(0, 2 * np.pi, 28, endpoint=False)
    wobble = 1 + 0.12 * np.sin(3 * angles + rng.uniform(0, 6)) + rng.normal(0, 0.05, 28)
    outline = centre + (radius * wobble)[:, None] * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    _shadow(ground, outline, radius * 1.1)
    sun = np.array(SUN)
    leaf = np.array((38, 74, 52), np.float64) * rng.uniform(0.8, 1.25) + rng.normal(0, 4, 3)
    _polygon(ground, outline, leaf * 0.75)
    for _ in range(int(radius * 2.2)):
        at = centre + rng.normal(0, radius * 0.42, 2)
        offset = (at - centre) / radius
        if np.hypot(*offset) > 0.85:
            continue
        lit = 1.0 - 0.38 * float(offset @ sun) + rng.normal(0, 0.08)
        _disc(ground, at, radius * rng.uniform(0.12, 0.24), leaf * lit)


def _bridge(rng: np.random.Generator, line: Points, width: int, height: int) -> tuple[Image, Image]:
    """The bridge with its road, and the light on the ground below it."""
    deck = np.zeros((height, width, 3), np.uint8)
    deck[:] = (150, 156, 158)
    _asphalt(rng, deck, line, BRIDGE_WIDTH - 12)
    cover = np.zeros((height, width), np.uint8)
    _line(cover, line, 255, BRIDGE_WIDTH)
    for side in (-1, 1):
        _line(deck, _offset(line, side * (BRIDGE_WIDTH / 2 - 3)), (172, 178, 180), 6)
        _line(deck, _offset(line, side * (BRIDGE_WIDTH / 2 - 1)), (120, 124, 126), 2)
    light = np.full((height, width), 255, np.uint8)
    _line(light, line + np.array(SUN) * 26, 130, BRIDGE_WIDTH - 6)
    return np.dstack([deck, cover]), np.asarray(cv2.GaussianBlur(light, (0, 0), 2.0), np.uint8)


def _normal(line: Points, index: int) -> Points:
    """Unit vector to the left of a line at one of its points (image axes: y down)."""
    tangent = line[min(index + 1, len(line) - 1)] - line[max(index - 1, 0)]
    tangent = tangent / np.hypot(*tangent)
    return np.array((tangent[1], -tangent[0]))


def _offset(line: Points, distance: float) -> Points:
    tangent = np.gradient(line, axis=0)
    tangent /= np.hypot(tangent[:, 0], tangent[:, 1])[:, None]
    return line + distance * np.stack([tangent[:, 1], -tangent[:, 0]], axis=1)


def _strip(shape: tuple[int, int], lines: list[Points], width: float) -> NDArray[np.bool_]:
    canvas = np.zeros(shape, np.uint8)
    for line in lines:
        _line(canvas, line, 255, width)
    return canvas > 0


def _shadow(ground: Image, outline: Points, height: float) -> None:
    """Darken the ground in the shadow of an object of this height."""
    swept = cv2.convexHull(np.vstack([outline, outline + np.array(SUN) * height]).astype(np.float32))[:, 0]
    x0, y0 = np.maximum(np.floor(swept.min(axis=0)).astype(int) - 4, 0)
    x1, y1 = np.ceil(swept.max(axis=0)).astype(int) + 4
    part = ground[y0:y1, x0:x1]
    if not part.size:
        return
    cover = np.zeros(part.shape[:2], np.uint8)
    _polygon(cover, swept - (x0, y0), 255)
    dark = 1 - 0.48 * cv2.GaussianBlur(cover, (0, 0), 1.5).astype(np.float32) / 255
    part[:] = (part * dark[..., None]).astype(np.uint8)


def _fixed(points: Points) -> NDArray[np.int32]:
    """Edge coordinates as OpenCV's fixed-point pixel centres."""
    return np.round((np.asarray(points, np.float64) - 0.5) * (1 << SHIFT)).astype(np.int32)


def _line(canvas: Image, points: Points, colour: Colour, width: float) -> None:
    cv2.polylines(canvas, [_fixed(points)], False, _scalar(colour), max(1, round(width)), cv2.LINE_AA, SHIFT)


def _polygon(canvas: Image, points: Points, colour: Colour) -> None:
    cv2.fillPoly(canvas, [_fixed(points)], _scalar(colour), cv2.LINE_AA, SHIFT)


def _disc(canvas: Image, centre: Points, radius: float, colour: Colour) -> None:
    x, y = (round((float(v) - 0.5) * (1 << SHIFT)) for v in centre)  # as _fixed, which is slower for a point
    cv2.circle(canvas, (x, y), round(radius * (1 << SHIFT)), _scalar(colour), -1, cv2.LINE_AA, SHIFT)


def _scalar(colour: Colour) -> tuple[float, ...]:
    return (float(colour),) if isinstance(colour, int) else tuple(map(float, colour))
