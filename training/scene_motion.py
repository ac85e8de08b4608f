"""Motion of camera, target and other objects in a scene: positions per frame.

The target's path in the image is chosen first, in px, and the camera follows from it. Thus the target stays
in view, and whether it returns near the constant-velocity prediction depends on the image path only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from training.scene_layers import Affine, compose

Array = NDArray[np.float64]

LEAST_HIDDEN_S, MOST_HIDDEN_S = 0.3, 3.0
SHORTEST_S, LONGEST_S = 6.0, 10.0
KINDS = ("occluder", "border", "passing")
KIND_SHARES = (0.45, 0.3, 0.25)
LEAD_S, BETWEEN_S, TAIL_S = 1.5, 1.5, 1.4  # least visible time before, between and after absences
SWING_SHARE = (
    0.65  # share of border absences by an abrupt camera turn; else the target drifts over the border
)
REST_SIZES = 0.5  # distance between the border and a target that is about to cross it
MOST_PASSING_S = 2.0


@dataclass(frozen=True)
class Absence:
    """A planned disappearance: the first and last time without the target, s; ``way``: "swing" or "drift" at
    the border, else empty."""

    kind: str
    start_s: float
    end_s: float
    way: str = ""

    @property
    def middle_s(self) -> float:
        return (self.start_s + self.end_s) / 2

    @property
    def seconds(self) -> float:
        return self.end_s - self.start_s


@dataclass(frozen=True)
class Walk:
    """A path on the ground: ``points`` [n, 2] world px, ``headings`` [n] rad, one per frame."""

    points: Array
    headings: Array


def draw_absences(rng: np.random.Generator, speed: float) -> tuple[float, list[Absence]]:
    """Draw the scene's length in s and one or two absences. ``speed``: of the target, in sizes per second."""
    kinds = rng.choice(KINDS, size=rng.integers(1, 3), p=KIND_SHARES)
    absences: list[Absence] = []
    clock = LEAD_S
    for kind in kinds:
        way = ""
        length = math.exp(rng.uniform(math.log(LEAST_HIDDEN_S * 1.15), math.log(MOST_HIDDEN_S * 0.95)))
        around = 0.6  # time in which it is partly hidden, on each side
        if kind == "occluder":
            around = 1.2 / speed
        elif kind == "border":
            way = "swing" if rng.random() < SWING_SHARE else "drift"
            if way == "drift":
                length = rng.uniform(LEAST_HIDDEN_S * 1.2, 1.0)
            around = 0.1 if way == "swing" else 2.0 * length
        else:
            length = min(length, MOST_PASSING_S)
        start = clock + around
        if absences and start + length + around + TAIL_S > LONGEST_S:
            break
        absences.append(Absence(str(kind), start, start + length, way))
        clock = start + length + around + BETWEEN_S
    needed = clock - BETWEEN_S + TAIL_S
    duration = max(needed, rng.uniform(SHORTEST_S, LONGEST_S))
    late = rng.uniform(0, duration - needed)
    return duration, [Absence(a.kind, a.start_s + late, a.end_s + late, a.way) for a in absences]


def walk(
    rng: np.random.Generator, times: Array, start: Array, heading: float, speed: float, turning: float
) -> Walk:
    """Nearly constant velocity: ``speed`` px/s within 10 %, turning by at most ``turning`` rad/s."""
    dt = np.diff(times, prepend=times[0])
    headings = heading + np.cumsum(_sines(rng, times, turning, 4, 9) * dt)
    pace = speed * (1 + _sines(rng, times, 0.1, 3, 8))
    steps = np.column_stack([np.cos(headings), np.sin(headings)]) * (pace * dt)[:, None]
    return Walk(start + np.cumsum(steps, axis=0), headings)


def meeting(other: Walk, frame: int, place: Array) -> Walk:
    """The same walk, shifted so that it is at ``place`` in a given frame."""
    return Walk(other.points + (place - other.points[frame]), other.headings)


def image_path(
    rng: np.random.Generator,
    times: Array,
    size: tuple[int, int],
    target_px: float,
    reach: float,
    absences: list[Absence],
    calm: float,
) -> Array:
    """Path of the target's centre, [n, 2] image px.

    ``reach``: half its extent, px; ``calm`` 0..1 scales the deviations: the lower, the better the
    constant-velocity prediction.
    """
    extent = np.array(size, float)
    base = extent * rng.uniform(0.3, 0.7, 2)
    swing = np.column_stack([_sines(rng, times, calm * rng.uniform(0.03, 0.16), 5, 12) for _ in range(2)])
    path = base + swing * extent
    for a in absences:
        if a.way:
            tau = times - a.middle_s
            border = _border(rng, path, extent, tau)
            if a.way == "drift":
                path = _drifting(rng, tau, path, border, target_px, reach, a.seconds)
            else:
                path = _swung(rng, times, path, border, target_px, reach, a)
    return np.asarray(path + _shake(rng, times), np.float64)


@dataclass(frozen=True)
class _Border:
    """A border of the image: the axis across it, 0 or 1, its place on that axis, px, and the sign of the
    direction outwards."""

    axis: int
    place: float
    outwards: int


def _border(rng: np.random.Generator, path: Array, extent: Array, near_s: Array) -> _Border:
    """Draw a border, with nearer ones more likely."""
    place = path[int(np.argmin(np.abs(near_s)))] / extent
    gaps = np.array([place[0], 1 - place[0], place[1], 1 - place[1]])
    chance = np.exp(-4 * gaps)
    index = int(rng.choice(4, p=chance / chance.sum()))
    axis = index // 2
    return _Border(axis, extent[axis], 1) if index % 2 else _Border(axis, 0.0, -1)


def _drifting(
    rng: np.random.Generator,
    tau: Array,
    path: Array,
    border: _Border,
    target_px: float,
    reach: float,
    seconds: float,
) -> Array:
    """Drift slowly over the border and back, within the range of a constant-velocity prediction.

    ``tau``: times from the middle of the absence, s; ``seconds``: its length.
    """
    # The farther the target would move at its exit velocity, the farther from the prediction it returns.
    pace = rng.uniform(0.4, 0.9) * target_px / seconds
    turned = np.sqrt(tau**2 + (0.2 * seconds) ** 2)  # |tau|, smoothed at the reversal
    beyond = reach + pace * (math.hypot(0.5, 0.2) * seconds - turned)
    there = border.place + border.outwards * beyond
    near = (reach + REST_SIZES * target_px) / pace + seconds / 2  # fully visible before and after
    lead = rng.uniform(1.2, 2.0)
    weight = _smooth((near + lead - np.abs(tau)) / lead)
    result = path.copy()
    result[:, border.axis] = (1 - weight) * path[:, border.axis] + weight * there
    return result


def _swung(
    rng: np.random.Generator,
    times: Array,
    path: Array,
    border: _Border,
    target_px: float,
    reach: float,
    a: Absence,
) -> Array:
    """Turn the camera away abruptly, and back."""
    axis, outwards = border.axis, border.outwards
    at = path[int(np.argmin(np.abs(times - a.middle_s))), axis]
    out = outwards * (border.place - at) + reach + target_px * rng.uniform(0.7, 4)
    jump = np.zeros(2)
    jump[axis] = outwards * out
    jump[1 - axis] = rng.uniform(-1, 1) * 0.5 * out
    # Instantaneous: a visible turn would become part of the velocity used for the prediction.
    away = ((times >= a.start_s) & (times <= a.end_s)).astype(float)
    drift = np.column_stack([_sines(rng, times, 0.5 * target_px, 1.5, 4) for _ in range(2)])
    # While away it moves outwards only, so that the target does not appear in between.
    drift[:, axis] = np.abs(drift[:, axis]) * outwards
    return path + away[:, None] * (jump + drift)


def _smooth(x: Array) -> Array:
    x = np.clip(x, 0, 1)
    return np.asarray(x * x * (3 - 2 * x), np.float64)


def _sines(
    rng: np.random.Generator, times: Array, amplitude: float, shortest_s: float, longest_s: float
) -> Array:
    """A smooth random function within +-``amplitude``."""
    total = np.zeros_like(times)
    for share in (0.65, 0.35):
        omega = 2 * math.pi / rng.uniform(shortest_s, longest_s)
        total += share * np.sin(omega * times + rng.uniform(0, 2 * math.pi))
    return np.asarray(amplitude * total, np.float64)


def _shake(rng: np.random.Generator, times: Array) -> Array:
    """Vibration of the camera, px [n, 2]: small, a few frames long."""
    noise = rng.normal(size=(len(times) + 4, 2))
    smooth = sum(noise[i : i + len(times)] for i in range(5)) / math.sqrt(5)
    return np.asarray(smooth * rng.uniform(0.1, 1.2), np.float64)


def cameras(rng: np.random.Generator, times: Array, ground: Array, seen: Array, calm: float) -> list[Affine]:
    """World-to-image map of each frame, with slight rotation and zoom.

    World point ``ground[i]`` is mapped to image point ``seen[i]``.
    """
    angles = _sines(rng, times, calm * rng.uniform(0.02, 0.2), 5, 12)
    zooms = np.exp(_sines(rng, times, calm * rng.uniform(0.02, 0.18), 5, 12))
    result = []
    for angle, zoom, world, image in zip(angles, zooms, ground, seen, strict=True):
        c, s = zoom * math.cos(angle), zoom * math.sin(angle)
        turn = np.array([[c, -s], [s, c]])
        result.append(np.column_stack([turn, image - turn @ world]))
    return result


def inverse(place: Affine) -> Affine:
    """The inverse map."""
    back = np.linalg.inv(place[:, :2])
    return np.column_stack([back, -back @ place[:, 2]])


def shifted(place: Affine, offset: Array) -> Affine:
    """The map with an offset added to its result."""
    return compose(np.column_stack([np.eye(2), offset]), place)
