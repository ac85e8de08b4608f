"""Draws composite clips: cut-outs that move over backgrounds, with look-alikes, occluders and absences."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace

import cv2
import numpy as np
from numpy.typing import NDArray

from training.degradations import Camera
from training.hardness import EASY, SHADOW_STEPS, Hardness, Sun
from training.imaging import (
    Matrix,
    Pyramid,
    centre_of,
    extent_of,
    over,
    pyramid,
    similarity,
    sprite_pyramid,
    tinted,
    warp,
)
from training.material import Footage, Material, mask_bounds
from training.windows import WindowPath, away, draw_path

Bytes = NDArray[np.uint8]

KIND_WEIGHTS = {
    "photo": 2.0,
    "render_aerial": 2.5,
    "photo_aerial": 1.2,
    "render": 0.7,
    "emoji3d": 0.4,
    "real": 2.0,
}
FROM_ABOVE = "photo_aerial"
"""Photographed from straight above: such cut-outs may have any angle and keep their colours."""
RESOLUTIONS = (1.0, 0.75, 0.5, 0.34, 0.22)  # a clip is drawn at one of these shares of the resolution
RESOLUTION_SHARES = (0.38, 0.17, 0.2, 0.15, 0.1)


@dataclass(frozen=True)
class RawClip:
    """A clip before prompts are drawn.

    ``images``: uint8 [n,S,S,3]. ``masks``: uint8 [n,S,S], coverage 0..255. ``ignored``: bool [n,S,S], pixels
    that do not count, or None. ``whole``: [n], area in px of the target without occlusion. ``is_part``:
    whether the target is a part of an object.
    """

    images: Bytes
    masks: Bytes
    ignored: NDArray[np.bool_] | None
    whole: NDArray[np.float64]
    is_part: bool = False


@dataclass(frozen=True)
class Body:
    """A moving cut-out.

    ``pictures``: one image per frame. ``start``: position in frame 0, world px. ``speed``, ``turn`` (rad),
    ``growth`` (factor): changes per frame. ``bend``: acceleration per frame^2.
    """

    pictures: list[Pyramid]
    size: float
    start: NDArray[np.float64]
    speed: NDArray[np.float64]
    angle: float
    turn: float
    mirrored: bool
    aspect: float = 1.0
    growth: float = 1.0
    bend: NDArray[np.float64] | None = None

    def place(self, frame: int) -> NDArray[np.float64]:
        path = self.start + self.speed * frame
        return path if self.bend is None else path + 0.5 * self.bend * frame**2

    def shadow(self, frame: int, view: _View, sun: Sun) -> Bytes:
        """Return the area of the object's shadow, uint8 [side,side]: its outline dragged along the ground."""
        covers = []
        for share in SHADOW_STEPS:
            dragged = replace(self, start=self.start + share * self.size * sun.offset)
            covers.append(dragged.drawn(frame, view)[..., 3])
        return np.asarray(np.maximum.reduce(covers), np.uint8)

    def drawn(self, frame: int, view: _View) -> Bytes:
        picture = self.pictures[frame]
        scale = self.size * self.growth**frame / extent_of(picture[0]) * view.zoom
        matrix = similarity(
            scale,
            self.angle + self.turn * frame + view.roll,
            centre_of(picture[0]),
            view.to_window(self.place(frame)),
            self.mirrored,
            self.aspect,
        )
        return warp(picture, matrix, view.side)


@dataclass(frozen=True)
class _View:
    """The map from world px to the pixels of the rendered image, for one frame."""

    centre: NDArray[np.float64]
    zoom: float
    roll: float
    side: int

    def to_window(self, point: NDArray[np.float64]) -> NDArray[np.float64]:
        return (point - self.centre) * self.zoom + (self.side / 2 - 0.5)


class Compositor:
    """Draws composite clips from the material of one split, training or validation."""

    def __init__(self, material: Material, hardness: Hardness = EASY) -> None:
        self._hardness = hardness
        self._sprites = [sprite_pyramid(sprite.rgba) for sprite in material.sprites]
        self._from_above = [sprite.kind == FROM_ABOVE for sprite in material.sprites]
        # A kind with n cut-outs is drawn with a probability proportional to its weight times the square root
        # of n.
        counts = Counter(sprite.kind for sprite in material.sprites)
        shares = [KIND_WEIGHTS[sprite.kind] / math.sqrt(counts[sprite.kind]) for sprite in material.sprites]
        weights = np.array(shares)
        self._weights = weights / weights.sum()
        self._backdrops = [pyramid(backdrop.rgb) for backdrop in material.backdrops]
        moving = [
            (cut, clip.scene)
            for clip in material.footage
            for track in clip.tracks
            if (cut := cut_out_sequence(clip, track))
        ]
        self._moving = [cut for cut, _ in moving]
        self._scenes = Counter(scene for _, scene in moving)
        self._moving_scenes = [scene for _, scene in moving]

    def __len__(self) -> int:
        return len(self._sprites)

    def clip(self, rng: np.random.Generator, frames: int, side: int) -> RawClip:
        """Draw a clip of ``frames`` images with a side of ``side`` px."""
        resolution = rng.choice(RESOLUTIONS, p=RESOLUTION_SHARES)
        render = round(side * float(resolution))
        path = draw_path(rng, frames, self._hardness.absent)
        size = render / path.factor[0]
        target = self._target(rng, frames, size)
        others = [self._other(rng, target, frames) for _ in range(rng.choice(4, p=(0.3, 0.3, 0.25, 0.15)))]
        occluder = self._occluder(rng, target, frames) if rng.random() < 0.35 else None
        if self._hardness.companions and rng.random() < self._hardness.companions:
            others.append(self._companion(rng, target, frames))
            occluder = self._bar(rng, target, frames)
        is_sunny = self._hardness.shadows > 0 and rng.random() < self._hardness.shadows
        sun = Sun.draw(rng) if is_sunny else None
        views = _views(rng, path, target, render)
        backdrop = self._backdrop(rng, render)
        camera = Camera.draw(rng, frames)
        opacity = rng.uniform(0.75, 1.0) if rng.random() < 0.15 else 1.0
        blended = rng.random() < 0.3
        images, masks, whole = [], [], []
        for frame, view in enumerate(views):
            canvas = backdrop.drawn(view)
            if sun is not None:
                shadows = [body.shadow(frame, view, sun) for body in (*others, target)]
                canvas = sun.darken(canvas, np.asarray(np.maximum.reduce(shadows), np.uint8))
            for other in others:
                canvas = over(canvas, other.drawn(frame, view))
            layer = target.drawn(frame, view)
            if blended:  # camouflage: colours near the mean of the surroundings
                mean = 0.3 * canvas.mean()
                layer[..., :3] = layer[..., :3] * 0.7 + mean * (layer[..., 3:] / 255)
            mask = layer[..., 3].copy()
            whole.append(float((mask > 127).sum()))
            canvas = over(canvas, layer, opacity)
            if occluder is not None:
                cover = occluder.drawn(frame, view)
                canvas = over(canvas, cover)
                mask = np.asarray(cv2.multiply(mask, 255 - cover[..., 3], scale=1 / 255), np.uint8)
            canvas = camera.shoot(rng, canvas, frame)
            images.append(_resized(canvas, side))
            masks.append(_resized(mask, side))
        hidden = np.array(whole) * (side / render) ** 2
        # If the target is outside the view in a frame, no area is known there; half of the first area is
        # assumed.
        hidden = np.maximum(hidden, 0.5 * hidden[0])
        return RawClip(np.stack(images), np.stack(masks), None, hidden)

    def _sequence(self, rng: np.random.Generator) -> list[Pyramid]:
        """Draw a target cut out of real footage; in hard clips all scenes have equal probability."""
        if self._hardness.scene_power <= EASY.scene_power:
            return self._moving[rng.integers(len(self._moving))]
        scene = list(self._scenes)[rng.integers(len(self._scenes))]
        of_scene = [i for i, other in enumerate(self._moving_scenes) if other == scene]
        return self._moving[of_scene[rng.integers(len(of_scene))]]

    def _sprite(self, rng: np.random.Generator) -> tuple[Pyramid, bool]:
        """Draw a cut-out, possibly recoloured, and whether it was photographed from above."""
        index = int(rng.choice(len(self._sprites), p=self._weights))
        if self._from_above[index]:
            return self._sprites[index], True
        return tinted(rng, self._sprites[index]), False

    def _target(self, rng: np.random.Generator, frames: int, size: float) -> Body:
        if self._moving and rng.random() < 0.35:
            sequence = self._sequence(rng)
            step = int(rng.integers(1, 4)) * (1 if rng.random() < 0.5 else -1)
            first = int(rng.integers(len(sequence)))
            pictures = [sequence[(first + step * i) % len(sequence)] for i in range(frames)]
            turns_freely = False
        else:
            picture, turns_freely = self._sprite(rng)
            pictures = [picture] * frames
        heading = rng.uniform(0, 2 * math.pi)
        speed = size * min(abs(rng.standard_cauchy()) * 0.25, 1.5)
        upright = rng.random() < 0.5 and not turns_freely
        return Body(
            pictures=pictures,
            size=size,
            start=np.zeros(2),
            speed=speed * np.array([math.cos(heading), math.sin(heading)]),
            angle=rng.normal(0, 0.2) if upright else rng.uniform(-math.pi, math.pi),
            turn=rng.normal(0, 0.12),
            mirrored=bool(rng.random() < 0.5),
            aspect=math.exp(rng.normal(0, 0.2)),
            growth=math.exp(rng.normal(0, 0.05)),
            bend=rng.normal(0, 0.1 * size, 2),
        )

    def _other(self, rng: np.random.Generator, target: Body, frames: int) -> Body:
        alike = rng.random() < 0.45
        picture = target.pictures[0] if alike else self._sprite(rng)[0]
        direction = rng.uniform(0, 2 * math.pi)
        distance = rng.uniform(0.7, 3.0) * target.size
        along = target.speed if rng.random() < 0.5 else 0 * target.speed
        return Body(
            pictures=[picture] * frames,
            size=target.size * math.exp(rng.normal(0, 0.15 if alike else 0.35)),
            start=distance * np.array([math.cos(direction), math.sin(direction)]),
            speed=along + rng.normal(0, 0.15 * target.size, 2),
            angle=target.angle + rng.normal(0, 0.5) if alike else rng.uniform(-3, 3),
            turn=0.0,
            mirrored=target.mirrored if alike else bool(rng.random() < 0.5),
            aspect=target.aspect if alike else 1.0,
        )

    def _companion(self, rng: np.random.Generator, target: Body, frames: int) -> Body:
        """Return a look-alike that moves beside the target and differs slightly in size and angle."""
        side = target.angle + rng.uniform(0, 2 * math.pi)
        distance = rng.uniform(0.9, 1.7) * target.size
        return replace(
            target,
            pictures=[target.pictures[0]] * frames,
            size=target.size * math.exp(rng.normal(0, 0.08)),
            start=target.start + distance * np.array([math.cos(side), math.sin(side)]),
            speed=target.speed + rng.normal(0, 0.05 * target.size, 2),
            angle=target.angle + rng.normal(0, 0.15),
        )

    def _bar(self, rng: np.random.Generator, target: Body, frames: int) -> _Panel:
        """Return a textured bar across the view, behind which the target passes."""
        meets = int(rng.integers(min(1, frames - 1), frames))
        speed = rng.normal(0, 0.3, 2) * target.size - target.speed * rng.random()
        start = target.place(meets) + rng.normal(0, 0.2, 2) * target.size - speed * meets
        texture = self._backdrops[rng.integers(len(self._backdrops))]
        width = rng.uniform(0.8, 1.6) * target.size
        angle, scale = rng.uniform(-math.pi, math.pi), rng.uniform(0.3, 1.5)
        return _Panel(texture, start, speed, angle, width, 1e4, scale)

    def _occluder(self, rng: np.random.Generator, target: Body, frames: int) -> Body | _Panel:
        meets = int(
            rng.integers(0, frames) if rng.random() < 0.3 else rng.integers(min(1, frames - 1), frames)
        )
        speed = rng.normal(0, 0.4, 2) * target.size - target.speed * rng.random()
        start = target.place(meets) + rng.normal(0, 0.35, 2) * target.size - speed * meets
        if rng.random() < 0.35:
            size = target.size * rng.uniform(0.5, 2.0 if rng.random() < 0.4 else 1.2)
            cover = [self._sprite(rng)[0]] * frames
            return Body(cover, size, start, speed, rng.uniform(-3, 3), 0.0, False)
        texture = self._backdrops[rng.integers(len(self._backdrops))]
        width = rng.uniform(0.15, 1.4) * target.size
        length = width * rng.uniform(0.8, 1.5) if rng.random() < 0.5 else 1e4
        return _Panel(
            texture, start, speed, rng.uniform(-math.pi, math.pi), width, length, rng.uniform(0.3, 1.5)
        )

    def _backdrop(self, rng: np.random.Generator, render: int) -> _Ground:
        picture = self._backdrops[rng.integers(len(self._backdrops))]
        height, width = picture[0].shape[:2]
        scale = render / min(height, width) * rng.uniform(0.9, 3.0)
        centre = np.array([rng.uniform(0, width), rng.uniform(0, height)])
        return _Ground(picture, scale, centre, rng.uniform(-math.pi, math.pi))


@dataclass(frozen=True)
class _Ground:
    picture: Pyramid
    scale: float
    centre: NDArray[np.float64]
    angle: float

    def drawn(self, view: _View) -> Bytes:
        matrix = similarity(
            self.scale * view.zoom, self.angle + view.roll, self.centre, view.to_window(np.zeros(2))
        )
        return warp(self.picture, matrix, view.side, cv2.BORDER_REFLECT_101)


@dataclass(frozen=True)
class _Panel:
    """A textured rectangle, or a bar across the whole view."""

    texture: Pyramid
    start: NDArray[np.float64]
    speed: NDArray[np.float64]
    angle: float
    width: float
    length: float
    scale: float

    def drawn(self, frame: int, view: _View) -> Bytes:
        centre = view.to_window(self.start + self.speed * frame)
        size = (min(self.length * view.zoom, 6.0 * view.side), self.width * view.zoom)
        corners = cv2.boxPoints((tuple(centre.tolist()), size, math.degrees(self.angle + view.roll)))
        shape = np.zeros((view.side, view.side), np.uint8)
        cv2.fillConvexPoly(shape, np.round(corners * 16).astype(np.int32), 255, cv2.LINE_AA, 4)
        matrix: Matrix = similarity(self.scale, self.angle, centre_of(self.texture[0]), centre)
        texture = warp(self.texture, matrix, view.side, cv2.BORDER_REFLECT_101)
        return np.dstack([cv2.multiply(texture, cv2.merge([shape] * 3), scale=1 / 255), shape])


def _views(rng: np.random.Generator, path: WindowPath, target: Body, render: int) -> list[_View]:
    roll = rng.normal(0, 0.05)
    views = []
    for frame in range(len(path.factor)):
        offset = path.offset[frame]
        if path.elsewhere[frame]:
            offset = offset + away(rng, path.factor[frame])
        zoom = path.factor[0] / path.factor[frame]
        views.append(_View(target.place(frame) + offset * target.size, zoom, roll * frame, render))
    return views


def cut_out_sequence(clip: Footage, track: list[Bytes]) -> list[Pyramid]:
    """Cut a target out of real footage in each frame, so that it keeps its natural motion.

    Returns an empty list if the target is too small or touches the image border in most frames.
    """
    out = []
    height, width = track[0].shape
    for frame, mask in zip(clip.frames, track, strict=True):
        solid = mask > 127
        if solid.sum() < 900:
            continue
        x0, y0, x1, y1 = mask_bounds(solid)
        if x0 <= 1 or y0 <= 1 or x1 >= width - 1 or y1 >= height - 1:
            continue
        rgba = np.dstack([frame[y0:y1, x0:x1], mask[y0:y1, x0:x1]])
        shrink = min(1.0, 128 / max(rgba.shape[:2]))
        if shrink < 1:
            rgba = np.asarray(cv2.resize(rgba, None, fx=shrink, fy=shrink, interpolation=cv2.INTER_AREA))
        out.append(sprite_pyramid(rgba))
    return out if len(out) >= 10 else []


def _resized(image: Bytes, side: int) -> Bytes:
    if image.shape[0] == side:
        return image
    return np.asarray(cv2.resize(image, (side, side), interpolation=cv2.INTER_LINEAR), np.uint8)
