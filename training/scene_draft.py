"""One attempt at generating a scene: its objects and motion, and checks of its constraints."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.geometry import Box
from training.scene_film import Look, Placed, Scene
from training.scene_layers import (
    Affine,
    Bytes,
    Layer,
    Region,
    centred,
    compose,
    inside,
    is_empty,
    moved,
    opacity,
    region_of,
    warp,
)
from training.scene_motion import (
    LEAST_HIDDEN_S,
    MOST_HIDDEN_S,
    Absence,
    Array,
    Walk,
    cameras,
    draw_absences,
    image_path,
    inverse,
    meeting,
    walk,
)
from training.scene_textures import OPAQUE, cloud, cut_out, depths, ground, hiding_reach, is_solid, occluder
from training.scene_truth import BACK_SHARE, Disappearance, Truth, box_of, off_prediction

if TYPE_CHECKING:
    from training.material import Backdrop, Sprite

MOST_OFF_SIZES = 2.0  # largest distance of a return from the prediction
FROM_ABOVE = ("render_aerial", "photo_aerial")
KIND_WEIGHTS = {
    "render_aerial": 3.0,
    "photo_aerial": 3.0,
    "photo": 2.0,
    "real": 2.0,
    "render": 1.0,
    "emoji3d": 0.3,
}
BACKDROP_WEIGHTS = {"aerial": 6.0}
LOOK_ALIKE_SHARE = 0.5
LEAST_CONTRAST = 22.0  # least mean difference between a target and the ground under it, grey levels
LARGEST_GROUND = 4000  # px


class UnusableSceneError(Exception):
    """A draft violates one of the constraints stated in `scenes`."""


class Draft:
    """One attempt at a scene."""

    def __init__(
        self,
        sprites: Sequence[Sprite],
        backdrops: Sequence[Backdrop],
        theme: list[int],
        chance: list[int],
        calm: float,
        size: tuple[int, int],
        fps: float,
    ) -> None:
        fixed = np.random.default_rng(theme)
        self.rng = rng = np.random.default_rng(chance)
        self.size, self.fps, self.calm = size, fps, calm
        self.target_px = math.exp(fixed.uniform(*np.log((24, 60) if fixed.random() < 0.8 else (20, 80))))
        self.speed = fixed.uniform(0.8, 2.4)  # sizes per second
        duration, self.absences = draw_absences(fixed, self.speed)
        self.times = np.arange(round(duration * fps)) / fps
        self.solid = [sprite for sprite in sprites if is_solid(sprite)]
        self.backdrops = backdrops
        self.sprite = _chosen(rng, self.solid, KIND_WEIGHTS)
        self.tint = self._tint(self.sprite)
        self.target = cut_out(self.sprite, self.target_px, self.tint, bool(rng.integers(2)))
        self.with_look_alike = fixed.random() < LOOK_ALIKE_SHARE

    def scene(self, seed: int) -> Scene:
        """Return the scene. Raises UnusableSceneError."""
        rng, times = self.rng, self.times
        way = walk(
            rng, times, np.zeros(2), rng.uniform(0, 6.283), self.speed * self.target_px, 0.3 * self.calm
        )
        turn = self._turn(self.sprite)
        reach = 0.45 * float(np.hypot(*self.target.size))
        seen = image_path(rng, times, self.size, self.target_px, reach, self.absences, self.calm)
        views = cameras(rng, times, way.points, seen, self.calm)
        target = Placed(self.target, _follow(self.target, way, turn))
        covers = [
            self._cover(absence, way, target, reach) for absence in self.absences if absence.kind != "border"
        ]
        truth = [self._truth(i, view, target, covers) for i, view in enumerate(views)]
        found = self._disappearances(truth)
        low, high = self._ground_bounds(views)
        if max(high - low) > LARGEST_GROUND:
            raise UnusableSceneError(f"the camera travels over {max(high - low):.0f} px")
        photograph = self._backdrop()
        width, height = (int(v) for v in np.ceil(high - low))
        floor = ground(photograph, rng.uniform(2.0, 3.2), width, height)
        contrast = self._contrast(floor, low, target)
        if contrast < LEAST_CONTRAST:
            raise UnusableSceneError(f"the target differs from the ground by {contrast:.0f} grey levels")
        passing = [c for c, a in zip(covers, self._covering(), strict=True) if a.kind == "passing"]
        lying = [c for c, a in zip(covers, self._covering(), strict=True) if a.kind == "occluder"]
        others = self._others(way, found, turn)
        layers = (*others, target, *passing, *lying)
        watched = [*others, *passing]
        full = tuple(
            Truth(
                t.region,
                t.seen,
                t.box,
                t.outline,
                t.share,
                tuple(self._seen_box(i, v, o, layers) for o in watched),
            )
            for i, (t, v) in enumerate(zip(truth, views, strict=True))
        )
        return Scene(
            seed=seed,
            size=self.size,
            fps=self.fps,
            truth=full,
            disappearances=tuple(found),
            look_alike=0 if self.with_look_alike else None,
            ground=floor,
            ground_place=np.column_stack([np.eye(2), low]),
            layers=layers,
            cameras=views,
            look=self._look(),
        )

    def _covering(self) -> list[Absence]:
        return [a for a in self.absences if a.kind != "border"]

    # --- what there is ---

    def _tint(self, sprite: Sprite) -> Array:
        """Gains of blue, green, red. Renderings from above are plain grey and get a random colour."""
        spread = 0.35 if sprite.kind == "render_aerial" else 0.08
        return np.asarray(np.exp(self.rng.uniform(-spread, spread, 3)), np.float64)

    def _turn(self, sprite: Sprite) -> float:
        """Angle of a cut-out relative to its path: any from above, nearly upright from the side."""
        most = math.pi if sprite.kind in FROM_ABOVE else 0.4
        return float(self.rng.uniform(-most, most))

    def _backdrop(self) -> Bytes:
        """A photograph, rotated by a random multiple of 90 degrees."""
        rgb = _chosen(self.rng, self.backdrops, BACKDROP_WEIGHTS).rgb
        return np.ascontiguousarray(np.rot90(rgb, int(self.rng.integers(4))))

    def _cover(self, absence: Absence, way: Walk, target: Placed, reach: float) -> Placed:
        """Create the occluder of an absence."""
        if absence.kind == "occluder":
            return self._occluder(absence, way, target)
        return self._passing(absence, way, reach)

    def _occluder(self, absence: Absence, way: Walk, target: Placed) -> Placed:
        rng = self.rng
        begin, middle, end = (self._frame(s) for s in (absence.start_s, absence.middle_s, absence.end_s))
        chord = way.points[end] - way.points[begin]
        heading = math.atan2(chord[1], chord[0])
        along = np.array([math.cos(heading), math.sin(heading)])
        corners = [_corners(target.layer, target.places[i]) @ along for i in (begin, end)]
        # At the start of the absence the last corner has just entered; at its end the first has not left.
        near, far = corners[0].min() - 1, corners[1].max() + 1
        shape = str(rng.choice(["roof", "wood", "bridge"]))
        length = float(far - near) * (1.04 if shape == "wood" else 1.0)
        breadth = 2500.0 if shape == "bridge" else max(length, self.target_px) * rng.uniform(0.7, 2.0)
        breadth = max(breadth, 3.5 * self.target_px)
        layer = occluder(rng, self._backdrop(), shape, length, breadth)
        across = np.array([-along[1], along[0]])
        aside = 0.0 if shape == "bridge" else rng.uniform(-0.2, 0.2) * (breadth - 2.5 * self.target_px)
        centre = along * (near + far) / 2 + across * (way.points[middle] @ across + aside)
        return Placed(layer, [centred(layer, centre, heading)] * len(self.times))

    def _passing(self, absence: Absence, way: Walk, reach: float) -> Placed:
        rng = self.rng
        needed = reach * rng.uniform(1.3, 1.9)
        layer = self._large_cut_out(needed) if rng.random() < 0.4 else None
        if layer is None:
            layer = cloud(rng, self._backdrop(), needed)
        direction, angle = rng.uniform(0, 6.283, 2)
        # The hidden shape is closer to a disc than to the circle around the target's corners.
        reached = hiding_reach(layer, direction - angle, 0.8 * reach)
        if reached < 0.1 * reach:
            raise UnusableSceneError("what passes is too small to hide the target")
        tau = (self.times - absence.middle_s) / (absence.seconds / 2)
        offset = reached * tau * (1 + 0.15 * np.maximum(np.abs(tau) - 1, 0) ** 2)  # then it leaves quicker
        points = way.points + offset[:, None] * np.array([math.cos(direction), math.sin(direction)])
        return Placed(layer, [centred(layer, point, angle) for point in points])

    def _large_cut_out(self, radius: float) -> Layer | None:
        """A cut-out enlarged until its solid centre has a radius; None if that enlarges it too much."""
        sprite = _chosen(self.rng, self.solid, KIND_WEIGHTS)
        height, width = sprite.rgba.shape[:2]
        natural = cut_out(sprite, math.sqrt(width * height), np.ones(3), False)
        middle = depths(natural)[height // 2, width // 2]
        factor = radius / max(float(middle), 1.0)
        if factor > 2.5:
            return None
        return cut_out(sprite, factor * math.sqrt(width * height), self._tint(sprite), False)

    def _others(self, way: Walk, found: list[Disappearance], turn: float) -> list[Placed]:
        """The other objects; the look-alike is first if there is one."""
        rng, result = self.rng, []
        count = int(rng.integers(1, 4))
        for index in range(count):
            alike = self.with_look_alike and index == 0
            back = found[int(rng.integers(len(found)))].back
            if alike:
                gains = self.tint * np.exp(rng.uniform(-0.25, 0.25, 3) * rng.integers(2))
                layer = cut_out(
                    self.sprite, self.target_px * rng.uniform(0.9, 1.12), gains, bool(rng.integers(2))
                )
                frame, distance = back + int(rng.integers(-4, 8)), rng.uniform(1.8, 5.0)
                toward = way.headings[back] + rng.uniform(-1.9, 1.9)
            else:
                sprite = _chosen(rng, self.solid, KIND_WEIGHTS)
                layer = cut_out(
                    sprite, self.target_px * rng.uniform(0.6, 1.6), self._tint(sprite), bool(rng.integers(2))
                )
                turn = self._turn(sprite)
                frame, distance = int(rng.integers(len(self.times))), rng.uniform(1.5, 6.0)
                toward = rng.uniform(0, 6.283)
            frame = min(max(frame, 0), len(self.times) - 1)
            place = way.points[frame] + distance * self.target_px * np.array(
                [math.cos(toward), math.sin(toward)]
            )
            heading = rng.uniform(0, 6.283)
            own = walk(rng, self.times, np.zeros(2), heading, rng.uniform(0.0, 2.2) * self.target_px, 0.3)
            result.append(Placed(layer, _follow(layer, meeting(own, frame, place), turn)))
        return result

    def _look(self) -> Look:
        rng = self.rng
        slow = np.sin(self.times * rng.uniform(0.3, 2.0) + rng.uniform(0, 6.283))
        step = np.where(self.times > rng.uniform(0, self.times[-1]), 1.0, 0.0)
        gains = 1 + rng.uniform(0, 0.12) * slow + rng.uniform(-0.1, 0.1) * step
        return Look(float(rng.uniform(0, 0.9)), float(rng.uniform(0.5, 5)), gains, int(rng.integers(60, 96)))

    # --- what is true of it ---

    def _frame(self, seconds: float) -> int:
        return min(max(round(seconds * self.fps), 0), len(self.times) - 1)

    def _truth(self, index: int, view: Affine, target: Placed, covers: list[Placed]) -> Truth:
        place = compose(view, target.places[index])
        region = region_of(target.layer, place)
        outline = opacity(target.layer, place, region) >= OPAQUE
        through = self._in_image(region).astype(np.float32)
        for cover in covers:
            through *= 1 - opacity(cover.layer, compose(view, cover.places[index]), region) / np.float32(255)
        seen = outline & (through >= 0.5)
        share = float(through[outline].sum() / max(1, np.count_nonzero(outline)))
        whole = box_of(outline, region)
        if whole is None:
            raise ValueError(f"a target of {target.layer.size} px has no outline")
        return Truth(region, seen, box_of(seen, region), whole, share)

    def _in_image(self, region: Region) -> NDArray[np.bool_]:
        x0, y0, x1, y1 = region
        columns, rows = np.arange(x0, x1), np.arange(y0, y1)
        width, height = self.size
        return np.asarray(
            ((rows >= 0) & (rows < height))[:, None] & ((columns >= 0) & (columns < width))[None], np.bool_
        )

    def _seen_box(self, index: int, view: Affine, item: Placed, layers: tuple[Placed, ...]) -> Box | None:
        """Box of the visible part of a layer under those above it."""
        place = compose(view, item.places[index])
        region = inside(region_of(item.layer, place), *self.size)
        if is_empty(region):
            return None
        seen = opacity(item.layer, place, region) >= OPAQUE
        above = next(i for i, layer in enumerate(layers) if layer is item) + 1
        for cover in layers[above:]:
            seen &= opacity(cover.layer, compose(view, cover.places[index]), region) < OPAQUE
        return box_of(seen, region)

    def _disappearances(self, truth: list[Truth]) -> list[Disappearance]:
        """The disappearances that occur. Raises UnusableSceneError when they are not as planned."""
        share = np.array([t.share for t in truth])
        edges = np.flatnonzero(np.diff(np.r_[False, share == 0, False].astype(int)))
        spans = [(int(a), int(b) - 1) for a, b in edges.reshape(-1, 2)]
        if len(spans) != len(self.absences):
            raise UnusableSceneError(f"it disappears {len(spans)} times instead of {len(self.absences)}")
        found: list[Disappearance] = []
        for (first, last), absence in zip(spans, self.absences, strict=True):
            seconds = (last - first + 1) / self.fps
            if not LEAST_HIDDEN_S <= seconds <= MOST_HIDDEN_S:
                raise UnusableSceneError(f"{absence.kind}: hidden for {seconds:.2f} s")
            back = next((i for i in range(last, len(truth)) if share[i] >= BACK_SHARE), len(truth))
            since = found[-1].back if found else 0
            before = np.count_nonzero(share[since:first] >= BACK_SHARE)
            if min(before, len(truth) - back) < self.fps:
                raise UnusableSceneError(f"{absence.kind}: seen for less than 1 s before or after")
            found.append(Disappearance(absence.kind, first, last, back))
            off = off_prediction(truth, found[-1], self.fps)
            if off > MOST_OFF_SIZES:
                raise UnusableSceneError(
                    f"{absence.kind} {absence.way}: returns {off:.1f} sizes from the prediction"
                )
        self._check_seen(share, found)
        sizes = np.array([t.outline.size for t in truth])
        if not (20 <= sizes[0] <= 80 and sizes.min() >= 16 and sizes.max() <= 110):
            raise UnusableSceneError(
                f"the target is {sizes[0]:.0f}, {sizes.min():.0f} to {sizes.max():.0f} px large"
            )
        return found

    def _check_seen(self, share: Array, found: list[Disappearance]) -> None:
        """Check that the target is fully visible except for the disappearances and their transitions."""
        away = np.zeros(len(share), bool)
        around = round(1.5 * self.fps)
        for item in found:
            half = max(i for i in range(item.first) if share[i] >= BACK_SHARE)
            away[max(0, half - around) : item.back + around] = True
        away[: round(0.5 * self.fps)] = False
        if share[~away].min() < 0.9:
            raise UnusableSceneError(f"seen by {share[~away].min():.2f} while it should be in view")

    def _ground_bounds(self, views: list[Affine]) -> tuple[Array, Array]:
        width, height = self.size
        corners = np.array([[0, 0], [width, 0], [0, height], [width, height]], float)
        every = np.concatenate([moved(inverse(view), corners) for view in views])
        return np.floor(every.min(axis=0)) - 2, np.ceil(every.max(axis=0)) + 2

    def _contrast(self, floor: Bytes, low: Array, target: Placed) -> float:
        """Mean difference between the target and the ground under it, grey levels, in the least clear of
        several frames."""
        layer, values = target.layer, []
        opaque = layer.alpha >= 254
        width, height = layer.size
        for i in np.linspace(0, len(self.times) - 1, 8).astype(int):
            under = warp(
                floor, inverse(compose(np.column_stack([np.eye(2), -low]), target.places[i])), width, height
            )
            values.append(float(np.abs(under[opaque].astype(float) - layer.bgra[..., :3][opaque]).mean()))
        return min(values)


def _follow(layer: Layer, way: Walk, turn: float) -> list[Affine]:
    return [
        centred(layer, p, h - way.headings[0] + turn) for p, h in zip(way.points, way.headings, strict=True)
    ]


def _corners(layer: Layer, place: Affine) -> Array:
    width, height = layer.size
    return moved(place, np.array([[0, 0], [width, 0], [0, height], [width, height]], float))


class _Kept(Protocol):
    @property
    def kind(self) -> str: ...


_Item = TypeVar("_Item", bound=_Kept)


def _chosen(rng: np.random.Generator, items: Sequence[_Item], weights: dict[str, float]) -> _Item:
    """Draw one item: first its kind, by weight (1 if not listed), because the kinds differ much in number."""
    kinds = sorted({item.kind for item in items})
    chances = np.array([weights.get(kind, 1.0) for kind in kinds])
    kind = kinds[int(rng.choice(len(kinds), p=chances / chances.sum()))]
    some = [item for item in items if item.kind == kind]
    return some[int(rng.integers(len(some)))]
