"""Simulates disappearances on real clips, with exact ground truth.

A virtual camera shows a part of each frame: it shakes, pans and zooms. In a case ``turn`` it turns away from
the target and back. In ``occluder`` an image that lies on the ground, or passes over it, covers the target.
In ``gap`` frames are missing; the stamps show for how long.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.geometry import Box
from training.disappearance import BACK_SHARE, Disappearance, Truth
from training.reacquisition.footage import HALVES, Footage
from training.reacquisition.ground import Matrix, ground_motion

KINDS = ("turn", "occluder", "gap")
NS = 1_000_000_000
BEFORE_S, AFTER_S = 1.4, 1.4  # visible time before the disappearance and after the return
HIDDEN_S = (0.5, 1.0, 2.0, 3.0)  # possible times without the target, for turn and occluder
GAPS_S = (0.5, 1.0, 2.0, 5.0, 10.0)
TURN_S = 0.4  # time in which the camera turns away or back
TURN_SHARE, OTHER_SHARE = 0.5, 0.8  # width of the virtual camera in a turn and otherwise, in frame widths
MAX_SHARE = 0.45  # largest target for a turn, as a share of the virtual camera's image
CLIPS_PER_SCENE = 4
MAX_PER_CLIP = 6
LARGE_WIDTH = 1000  # px; clips of at least this width give several cases
MIN_SHARE_VISIBLE = 0.1
_TURNS = ("turn", "occluder", "turn", "gap")
Picture = NDArray[np.uint8]


@dataclass(frozen=True)
class Case:
    """One disappearance: the frames that are shown, their times, and when the target is not visible.

    Attributes:
        order: For each image the frame of the clip (short clips are played back and forth).
        stamps_ns: Stamps of the images.
        first: First image in which the target should not be visible; for a gap, the first missing image.
        last: Last image in which it should not be visible; for a gap, the last missing image.
        hidden_s: Time without the target.
    """

    number: int
    name: str
    kind: str
    footage: Footage
    order: tuple[int, ...]
    stamps_ns: tuple[int, ...]
    first: int
    last: int
    hidden_s: float

    @property
    def half(self) -> str:
        return self.footage.half

    @property
    def seed(self) -> int:
        return zlib.crc32(self.name.encode())

    @property
    def index(self) -> int:
        """Number of this case among the cases of its clip."""
        return int(self.name.rpartition(":")[2])


def make_cases(clips: Sequence[Footage], repeats: int = 1) -> list[Case]:
    """Return the cases of these clips, the same in each run, numbered from 0 in each half of the footage.

    ``repeats``: how often each case is used. Repetitions have the same number, but another camera path, start
    and length.
    """
    first = _first_cases(clips)
    again = (
        _case(case.footage, case.kind, case.index + MAX_PER_CLIP * repeat, case.number)
        for repeat in range(1, repeats)
        for case in first
    )
    return [*first, *(case for case in again if case is not None)]


def _first_cases(clips: Sequence[Footage]) -> list[Case]:
    count_of = dict.fromkeys(HALVES, 0)
    of_scene: dict[str, int] = {}
    cases = []
    for clip in clips:
        of_scene[clip.scene] = of_scene.get(clip.scene, 0) + 1
        if of_scene[clip.scene] > CLIPS_PER_SCENE:
            continue
        number = count_of[clip.half]
        single = sum(other.scene == clip.scene for other in clips) == 1
        if clip.width >= LARGE_WIDTH:
            kinds = ["turn", "occluder", "gap", "turn", "gap", "occluder"]
        else:
            kinds = [_TURNS[(number + i) % 4] for i in range(2 if single else 1)]
        for index, kind in enumerate(kinds):
            case = _case(clip, kind, index, count_of[clip.half])
            if case is not None:
                cases.append(case)
                count_of[clip.half] += 1
    return cases


def _case(clip: Footage, kind: str, index: int, number: int) -> Case | None:
    if kind == "turn" and not _fits_turn(clip):
        kind = KINDS[1 + number // 2 % 2]
    name = f"{clip.name}:{kind}:{index}"
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    before, after = round(BEFORE_S * clip.fps), round(AFTER_S * clip.fps)
    hidden_s = float(rng.choice(GAPS_S if kind == "gap" else HIDDEN_S))
    hidden = round(hidden_s * clip.fps)
    room = len(clip) - (before + hidden + after)
    start = int(rng.integers(room + 1)) if room > 0 else 0
    while start and clip.box(start) is None:
        start -= 1
    if kind == "gap":
        shown = [*range(before), *range(before + hidden, before + hidden + after)]
        if room < 0:  # the clip is too short to skip frames: only the stamps show the gap
            shown = [
                *range(before),
                *range(max(before, len(clip) - after), max(before, len(clip) - after) + after),
            ]
        times = [*range(before), *range(before + hidden, before + hidden + after)]
        first, last = before, before + hidden - 1
    else:
        turn = round(TURN_S * clip.fps) if kind == "turn" else 0
        shown = list(range(before + hidden + after + 2 * turn))
        times = shown
        first, last = before + turn, before + turn + hidden - 1
    order = tuple(_back_and_forth(start + i, len(clip)) for i in shown)
    stamps = tuple(round((1 + t / clip.fps) * NS) for t in times)
    return Case(number, name, kind, clip, order, stamps, first, last, hidden_s)


def _fits_turn(clip: Footage) -> bool:
    sizes = np.nanmax(clip.boxes[:, 2:], axis=0)
    return bool(
        sizes[0] < MAX_SHARE * TURN_SHARE * clip.width and sizes[1] < MAX_SHARE * TURN_SHARE * clip.height
    )


def _back_and_forth(index: int, count: int) -> int:
    index %= 2 * count - 2
    return index if index < count else 2 * count - 2 - index


@dataclass(frozen=True)
class Occluder:
    """An image pasted over the frames. ``corners``: float64 [N, 4, 2], px of each image's frame."""

    texture: Picture
    corners: NDArray[np.float64]


class Film:
    """The images of a case. Iterating yields (BGR image, stamp in ns) in order."""

    def __init__(self, case: Case, texture: Picture) -> None:
        """``texture``: image for the occluder, from another clip, because this clip shows the target."""
        self.case = case
        clip = case.footage
        self._frames = clip.pictures(case.order)
        self._rng = np.random.default_rng([case.seed, 1])
        share = TURN_SHARE if case.kind == "turn" else OTHER_SHARE
        self.size = (round(clip.width * share), round(clip.height * share))
        self._boxes = [clip.box(i) for i in case.order]
        self.cameras = self._camera_path()
        self._occluder = self._make_occluder(texture) if case.kind == "occluder" else None

    def __len__(self) -> int:
        return len(self.case.order)

    def __iter__(self) -> Iterator[tuple[Picture, int]]:
        for index, stamp in enumerate(self.case.stamps_ns):
            frame = self._frames[self.case.order[index]]
            if self._occluder is not None:
                frame = frame.copy()
                _paste(frame, self._occluder.texture, self._occluder.corners[index])
            yield (
                np.asarray(
                    cv2.warpAffine(frame, self.cameras[index], self.size, flags=cv2.INTER_LINEAR), np.uint8
                ),
                stamp,
            )

    def _camera_path(self) -> NDArray[np.float64]:
        """Return the maps from frame px to image px, float64 [N, 2, 3]."""
        count, rng, case = len(self), self._rng, self.case
        frame = np.array([case.footage.width, case.footage.height], float)
        size = np.array(self.size, float)
        seconds = np.array(case.stamps_ns) * 1e-9
        zoom = 1 + 0.08 * np.sin(rng.uniform(0, 6) + seconds * rng.uniform(0.5, 1.5))
        look = _smooth(self._centres(), 5) + rng.uniform(-0.15, 0.15, 2) * size
        look += size * 0.04 * np.sin(rng.uniform(0, 6, 2) + seconds[:, None] * rng.uniform(0.5, 2.0, 2))
        if case.kind == "turn":
            away = self._away(frame, size)
            turned = np.clip(
                np.minimum(seconds - seconds[case.first], seconds[case.last] - seconds), -TURN_S, 0
            )
            share = _smoothstep(1 + turned / TURN_S)[:, None]
            back = _smooth(self._centres(), 5) + rng.uniform(-0.2, 0.2, 2) * size
            look = np.where((np.arange(count) > case.last)[:, None], back, look)
            look = look * (1 - share) + away * share
        look += rng.normal(0, rng.choice([0.0, 0.002, 0.005]), (count, 2)) * size[0]
        half = size / zoom[:, None] / 2
        look = np.clip(look, half, frame - half)
        cameras = np.zeros((count, 2, 3))
        cameras[:, 0, 0] = cameras[:, 1, 1] = zoom
        cameras[:, :, 2] = size / 2 - look * zoom[:, None]
        return cameras

    def _centres(self) -> NDArray[np.float64]:
        """Return the target's centres, float64 [N, 2], px; where it is absent, its last known centre."""
        centres: list[tuple[float, float]] = []
        for box in self._boxes:
            centres.append((box.cx, box.cy) if box is not None else centres[-1])
        return np.array(centres)

    def _away(self, frame: NDArray[np.float64], size: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return a position of the camera, frame px, from which the target is not visible.

        If there is none, it is the position farthest from the target.
        """
        half = size / 0.92 / 2
        hidden = [box for box in self._boxes[self.case.first : self.case.last + 1] if box is not None]
        places = [
            np.array([x, y])
            for x in np.linspace(half[0], frame[0] - half[0], 7)
            for y in np.linspace(half[1], frame[1] - half[1], 7)
        ]
        gaps = [
            min(
                (
                    max(
                        abs(box.cx - p[0]) - half[0] - box.width / 2,
                        abs(box.cy - p[1]) - half[1] - box.height / 2,
                    )
                    for box in hidden
                ),
                default=0.0,
            )
            for p in places
        ]
        clear = [p for p, gap in zip(places, gaps, strict=True) if gap > 4]
        return clear[self._rng.integers(len(clear))] if clear else places[int(np.argmax(gaps))]

    def _make_occluder(self, texture: Picture) -> Occluder:
        case, count = self.case, len(self)
        motion = ground_motion([self._frames[i] for i in case.order], self._boxes)
        hidden = range(case.first, case.last + 1)
        edges = []
        for i in hidden:
            box = self._boxes[i]
            if box is not None:
                edges.append(_mapped(np.linalg.inv(motion[i]), _corners(box.edges(), 1.3)))
        spread = np.array(edges).reshape(-1, 2)
        covered = (*spread.min(axis=0), *spread.max(axis=0))
        start = self._boxes[0]
        assert start is not None
        size = max(start.width, start.height)
        fixed = np.repeat(_corners(covered, 1.0)[None], count, axis=0)
        seen_first = [self._boxes[i] for i in range(min(8, case.first))]
        is_clear = all(
            box is None or not _meets(_mapped(np.linalg.inv(motion[i]), _corners(box.edges(), 1.1)), covered)
            for i, box in enumerate(seen_first)
        )
        extent = max(covered[2] - covered[0], covered[3] - covered[1])
        if not is_clear or extent > 6 * size:
            fixed = self._passing(motion, size)
        corners = np.array([_mapped(m, c) for m, c in zip(motion, fixed, strict=True)])
        h, w = texture.shape[:2]
        x, y = self._rng.integers(w // 2), self._rng.integers(h // 2)
        return Occluder(np.ascontiguousarray(texture[y : y + h // 2, x : x + w // 2]), corners)

    def _passing(self, motion: Sequence[Matrix], size: float) -> NDArray[np.float64]:
        """Return the corners [N, 4, 2] of an occluder that passes, px on the ground of the first frame.

        It enters from one side, stays over the target while the target is hidden, and leaves.
        """
        case = self.case
        places, sizes = [], []
        for i, box in enumerate(self._boxes):
            known = box or self._boxes[case.first - 1] or self._boxes[0]
            assert known is not None
            cover = _mapped(np.linalg.inv(motion[i]), _corners(known.edges(), 1.35))
            places.append(cover.mean(axis=0))
            sizes.append(np.ptp(cover, axis=0))
        extent = np.max(sizes[case.first : case.last + 1], axis=0)
        angle = self._rng.uniform(0, 2 * np.pi)
        way = np.array([np.cos(angle), np.sin(angle)]) * float(np.hypot(*extent)) * 1.3
        frames = max(2, round(0.4 * case.footage.fps))
        out = []
        for i in range(len(self)):
            before, after = max(0, case.first - i), max(0, i - case.last)
            at = (
                places[min(max(i, case.first), case.last)] if before > frames or after > frames else places[i]
            )
            middle = at + way * (after - before) / frames
            out.append(_corners((*(middle - extent / 2), *(middle + extent / 2)), 1.0))
        return np.array(out)

    @cached_property
    def truth(self) -> list[Truth]:
        return [self._truth(i) for i in range(len(self))]

    def _truth(self, index: int) -> Truth:
        box, camera = self._boxes[index], self.cameras[index]
        if box is None:
            return Truth(None, Box(-1e4, -1e4, 1.0, 1.0), 0.0)
        x0, y0, x1, y1 = box.edges()
        edges = _mapped(np.vstack([camera, [0, 0, 1]]), np.array([[x0, y0], [x1, y1]]))
        outline = Box.from_edges(*edges[0], *edges[1])
        inside = outline.clipped(*self.size)
        share = inside.area / outline.area
        visible: Box | None = inside
        if self._occluder is not None and not inside.is_empty:
            visible, share = self._uncovered(index, outline, inside)
        if share < 0.02:
            share = 0.0
        shown = visible if share >= MIN_SHARE_VISIBLE else None
        return Truth(shown, outline, share)

    def _uncovered(self, index: int, outline: Box, inside: Box) -> tuple[Box | None, float]:
        """Return the box of the part of the target that an occluder leaves visible, and its share of the
        area.

        The box is None if nothing is visible.
        """
        assert self._occluder is not None
        camera = np.vstack([self.cameras[index], [0, 0, 1]])
        corners = _mapped(camera, self._occluder.corners[index])
        fine = 4.0 if outline.size < 60 else 1.0
        w, h = max(1, round(inside.width * fine)), max(1, round(inside.height * fine))
        left = np.ones((h, w), np.uint8)
        cv2.fillConvexPoly(left, np.round((corners - [inside.x, inside.y]) * fine).astype(np.int32), 0)
        ys, xs = np.flatnonzero(left.any(axis=1)), np.flatnonzero(left.any(axis=0))
        if not len(ys):
            return None, 0.0
        seen = Box.from_edges(
            inside.x + xs[0] / fine,
            inside.y + ys[0] / fine,
            inside.x + (xs[-1] + 1) / fine,
            inside.y + (ys[-1] + 1) / fine,
        )
        return seen, float(left.mean()) * inside.area / outline.area

    @property
    def disappearance(self) -> Disappearance | None:
        """The actual disappearance; None if the target does not vanish completely or never returns."""
        case, truth = self.case, self.truth
        if case.kind == "gap":
            last = case.first - 1 + round(case.hidden_s * case.footage.fps)
            return Disappearance(case.first, last, case.first)
        absent = [i for i, t in enumerate(truth) if t.share == 0 and i >= case.first - 2]
        if not absent:
            return None
        first, last = absent[0], max(i for i in absent if i <= case.last + 2)
        back = next((i for i in range(last + 1, len(truth)) if truth[i].share >= BACK_SHARE), None)
        if back is None or not all(t.share == 0 for t in truth[first : last + 1]):
            return None
        return Disappearance(first, last, back)


def _paste(frame: Picture, texture: Picture, corners: NDArray[np.float64]) -> None:
    height, width = frame.shape[:2]
    x0, y0 = np.maximum(np.floor(corners.min(axis=0)), 0).astype(int)
    x1, y1 = np.minimum(np.ceil(corners.max(axis=0)) + 1, [width, height]).astype(int)
    if x1 <= x0 or y1 <= y0:
        return
    h, w = texture.shape[:2]
    source = np.array([[0, 0], [w, 0], [w, h], [0, h]], np.float32)
    matrix = cv2.getPerspectiveTransform(source, (corners - [x0, y0]).astype(np.float32))
    part = (int(x1 - x0), int(y1 - y0))
    pasted = cv2.warpPerspective(texture, matrix, part, flags=cv2.INTER_AREA)
    share = cv2.warpPerspective(np.full((h, w), 255, np.uint8), matrix, part, flags=cv2.INTER_LINEAR)
    inside = share > 127
    frame[y0:y1, x0:x1][inside] = pasted[inside]


def _corners(edges: tuple[float, float, float, float], factor: float) -> NDArray[np.float64]:
    x0, y0, x1, y1 = edges
    middle, half = np.array([x0 + x1, y0 + y1]) / 2, np.array([x1 - x0, y1 - y0]) / 2 * factor
    return middle + half * np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]])


def _meets(corners: NDArray[np.float64], edges: tuple[float, float, float, float]) -> bool:
    (x0, y0), (x1, y1) = corners.min(axis=0), corners.max(axis=0)
    return bool(x0 < edges[2] and x1 > edges[0] and y0 < edges[3] and y1 > edges[1])


def _mapped(matrix: NDArray[np.floating[Any]], points: NDArray[np.float64]) -> NDArray[np.float64]:
    homogeneous = np.column_stack([points, np.ones(len(points))]) @ matrix.T
    return np.asarray(homogeneous[:, :2] / homogeneous[:, 2:], np.float64)


def _smooth(points: NDArray[np.float64], reach: int) -> NDArray[np.float64]:
    padded = np.pad(points, ((reach, reach), (0, 0)), mode="edge")
    kernel = np.ones(2 * reach + 1) / (2 * reach + 1)
    return np.column_stack([np.convolve(padded[:, i], kernel, "valid") for i in range(2)])


def _smoothstep(t: NDArray[np.float64]) -> NDArray[np.float64]:
    t = np.clip(t, 0.0, 1.0)
    return np.asarray(t * t * (3 - 2 * t), np.float64)
