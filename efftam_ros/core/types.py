"""Value types exchanged between camera, tracker and pipeline."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box, View
from efftam_ros.core.reasons import NO_REASON, Reason


class TrackState(IntEnum):
    """State of the target (the numbers equal those of the ROS messages)."""

    IDLE = 0
    ACQUIRING = 1
    TRACKING = 2
    COASTING = 3
    LOST = 4

    def __str__(self) -> str:
        return self.name


MISSED = (TrackState.COASTING, TrackState.LOST)
"""States of a target that was not accepted on the last frame."""


@dataclass(frozen=True)
class Image:
    """Image bytes as delivered by the camera, not copied.

    ``rows`` is a uint8 array [R, B]: one line per stored row, without padding (a view with a row stride if
    the source pads). R equals ``height`` except for planar YUV (nv12: 3/2 ``height``); B is the number of
    bytes per row. ``encoding`` is a sensor_msgs encoding name, such as ``bgr8`` or ``nv12``. The bytes must
    not change while the image is in use: ``derived`` holds what the runtime has made of them once (the
    checked encoding, the grey version).
    """

    rows: NDArray[np.uint8]
    width: int
    height: int
    encoding: str
    derived: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def from_array(cls, array: NDArray[np.uint8], encoding: str = "bgr8") -> Image:
        """Wrap a C-contiguous [H, W, C] or [H, W] uint8 array of an interleaved encoding, without a copy."""
        height, width = array.shape[:2]
        return cls(array.reshape(height, -1), width, height, encoding)


class Frame(NamedTuple):
    """One camera image and its time. ``stamp_ns``: integer ns of the camera's clock, never wall time."""

    image: Image
    stamp_ns: int


MAX_POINTS = 256
"""Most points of a prompt, including the two corners of a box; the cost of the prompt encoder grows with
their number."""


@dataclass(frozen=True)
class Prompt:
    """Marks the target, in pixels of the image. Give a box, points, both, or a mask alone.

    ``points``: (x, y) pairs; ``labels``: 1 on the target, 0 off it, one per point; ``mask``: bool [H, W] at
    the image's size.
    """

    box: Box | None = None
    points: tuple[tuple[float, float], ...] = ()
    labels: tuple[int, ...] = ()
    mask: NDArray[np.bool_] | None = None

    def checked(self, width: int, height: int, is_typed: bool = False) -> Prompt:
        """Return the prompt if it marks something in an image of this size, px.

        ``is_typed``: a person gave the numbers; then a box that fits the image only if its numbers are edges
        is refused. Raises InputError: empty, numbers that are not finite, no area, too many points, outside
        the image, a label other than 0 and 1, no point on the target, or a mask that is empty, of another
        size or combined with a box or points.
        """
        if self.mask is not None:
            self._check_mask(self.mask, width, height)
            return self
        if self.box is not None:
            self._check_box(self.box, width, height, is_typed)
        if len(self.points) + (0 if self.box is None else 2) > MAX_POINTS:
            raise InputError(
                f"selection has {len(self.points)} points; give at most {MAX_POINTS}, of which a box takes 2"
            )
        self._check_points(width, height)
        return self

    def _check_mask(self, mask: NDArray[np.bool_], width: int, height: int) -> None:
        if self.box is not None or self.points:
            raise InputError("selection has a mask and also a box or points; give the mask alone")
        if mask.shape != (height, width):
            size = " x ".join(str(n) for n in mask.shape[::-1])
            raise InputError(
                f"selection mask is {size} px, the image {width} x {height} px; give one of the image's size"
            )
        if not mask.any():
            raise InputError("selection mask has no pixel set; mark the target with values other than 0")

    def _check_box(self, box: Box, width: int, height: int, is_typed: bool) -> None:
        name = f"selection box x={box.x:g} y={box.y:g} width={box.width:g} height={box.height:g}"
        if not box.is_finite:
            raise InputError(f"{name} has a number that is not finite; give pixels of the image")
        if box.is_empty:
            raise InputError(f"{name} has no area; width and height must be above 0")
        if box.clipped(width, height).is_empty:
            raise InputError(f"{name} lies outside the image of {width} x {height} px; draw it inside")
        x, y, x1, y1 = box.x, box.y, box.width, box.height
        leaves = box.x1 > width + 1.0 or box.y1 > height + 1.0  # px: not by rounding
        if is_typed and leaves and 0 <= x < x1 <= width and 0 <= y < y1 <= height:
            raise InputError(
                f"{name} leaves the image of {width} x {height} px; if these are edges x0, y0, x1, y1, give"
                f" x, y, width, height: {x:g}, {y:g}, {x1 - x:g}, {y1 - y:g}"
            )

    def _check_points(self, width: int, height: int) -> None:
        if len(self.points) != len(self.labels):
            raise InputError(
                f"selection has {len(self.points)} points and {len(self.labels)} labels; give one label per"
                " point"
            )
        for label in self.labels:
            if label not in (0, 1):
                raise InputError(
                    f"selection label is {label}; use 1 for a point on the target, 0 for one off it"
                )
        for x, y in self.points:
            if not (math.isfinite(x) and math.isfinite(y)):
                raise InputError(f"selection point ({x:g}, {y:g}) is not finite; give pixels of the image")
            if not (0 <= x <= width and 0 <= y <= height):
                raise InputError(
                    f"selection point ({x:g}, {y:g}) lies outside the image of {width} x {height} px; click"
                    " inside"
                )
        if self.box is None and not self.points:
            raise InputError("selection is empty; give a box, a point on the target or a mask")
        if self.box is None and 1 not in self.labels:
            raise InputError("selection has only points off the target; give at least one on it (label 1)")

    def region(self, width: int, height: int) -> tuple[Box | None, Box]:
        """Return the box that it draws in an image of this size, None for points alone, and the box around
        all that it marks, which has no area around a single point. Raises InputError as `checked` does."""
        self.checked(width, height)
        if self.box is not None:
            visible = self.box.clipped(width, height)  # the window is sized by the visible part
            return visible, self._enclosed(visible)
        if self.mask is not None:
            ys, xs = np.flatnonzero(self.mask.any(axis=1)), np.flatnonzero(self.mask.any(axis=0))
            box = Box.from_edges(xs[0], ys[0], xs[-1] + 1, ys[-1] + 1)
            return box, box
        return None, self._enclosed(None)

    def _enclosed(self, box: Box | None) -> Box:
        edges = [(x, y, x, y) for x, y in self.points] + ([] if box is None else [box.edges()])
        left, top, right, bottom = zip(*edges, strict=True)
        return Box.from_edges(min(left), min(top), max(right), max(bottom))


@dataclass(frozen=True)
class Candidates:
    """The mask decoder's K candidate masks for one frame, before one is chosen.

    K is 3 when tracking or after a single point, else 1. The masks are the decoder's, not blanked when the
    target is absent: check ``presence``.

    Attributes:
        boxes: float32 [K, 4] left, top, right, bottom edges in *image* px, sub-pixel, from the zero crossings
            of the logits' row and column maxima; NaN for an empty mask.
        areas: float32 [K], image px^2.
        ious: float32 [K], predicted mask IoU, 0..1.
        presence_logit: Above 0 when the network sees the target.
        levels: float32 [K, 3, 4], image px: the boxes where the maxima cross -1 (around ``boxes``), 0
            (``boxes``) and 1 (within them); None where the network does not give them.
        presence: Probability that the target is in the view, 0..1.
        visible: Index and box of the candidates that show something.
        is_finite: False when the network produced NaN or infinity (the NaN box of an empty mask is allowed).
    """

    boxes: NDArray[np.float32]
    areas: NDArray[np.float32]
    ious: NDArray[np.float32]
    presence_logit: float
    levels: NDArray[np.float32] | None = None
    presence: float = field(init=False, repr=False)
    visible: list[tuple[int, Box]] = field(init=False, repr=False)
    is_finite: bool = field(init=False, repr=False)
    _boxes: list[Box] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        x0, y0, x1, y1 = self.boxes.astype(np.float64).T
        boxes = list(map(Box, x0.tolist(), y0.tolist(), (x1 - x0).tolist(), (y1 - y0).tolist()))
        shows = np.isfinite(self.boxes).all(axis=1) & (self.boxes[:, 2:] > self.boxes[:, :2]).all(axis=1)
        levels = [] if self.levels is None else self.levels.ravel().tolist()
        numbers = (*self.ious.tolist(), *self.areas.tolist(), self.presence_logit, *levels)
        vars(self).update(  # frozen
            presence=float(1.0 / (1.0 + np.exp(-np.clip(self.presence_logit, -60.0, 60.0)))),
            visible=[(index, boxes[index]) for index in np.flatnonzero(shows).tolist()],
            is_finite=all(map(math.isfinite, numbers)),
            _boxes=boxes,
        )

    @classmethod
    def in_view(
        cls,
        view: View,
        boxes: NDArray[np.float32],
        areas: NDArray[np.float32],
        ious: NDArray[np.float32],
        presence_logit: float,
        levels: NDArray[np.float32] | None = None,
    ) -> Candidates:
        """Build the candidates from what the decoder answers in a view.

        ``boxes`` [K, 4] (left, top, right, bottom), ``areas`` [K] and ``levels`` [K, 2, 4] are in network px.
        The arrays are copied; the box of an empty mask becomes NaN.
        """
        scale, origin = np.array([view.scale_x, view.scale_y] * 2), np.array([view.x, view.y] * 2)
        placed = (boxes / scale + origin).astype(np.float32)
        placed[areas == 0] = np.nan
        share = (areas / (view.scale_x * view.scale_y)).astype(np.float32)
        if levels is not None:
            around = np.stack((levels[:, 0], boxes, levels[:, 1]), axis=1)
            levels = (around / scale + origin).astype(np.float32)
        return cls(placed, share, ious.astype(np.float32), float(presence_logit), levels)

    def __len__(self) -> int:
        return len(self.ious)

    def box(self, index: int) -> Box:
        """Candidate ``index`` as a Box, which ``is_empty`` when its mask is."""
        return self._boxes[index]


@dataclass(frozen=True)
class MemoryPlan:
    """The ring slots that a frame attends to.

    ``rows[i]`` is the temporal row of the map in ``slots[i]``; pointers have none. An empty plan means a
    frame without history.
    """

    slots: tuple[int, ...] = ()
    rows: tuple[int, ...] = ()
    pointer_slots: tuple[int, ...] = ()


@dataclass(frozen=True)
class BoxHead:
    """How the published box is placed, given the mask's (`policies.drawn_box.PlacedExtent`).

    Attributes:
        level_share: Share of the way from an edge of the mask's box to where the edge is at the level of the
            logits at which the masks after the selection are as large as the drawn box; 0..1.
        prompt_share: Share of the offset of the drawn box's edge from that of the prompted mask; 0..1.
    """

    level_share: float
    prompt_share: float


@dataclass(frozen=True)
class PipelineSpec:
    """Constants of a network that the tracker needs.

    Attributes:
        name: Name of the network.
        image_side: Side of the input, network px.
        temporal_rows: Number T of temporal rows; the last is the prompted frame's.
        max_maps: Most maps attended to; None: no limit.
        max_pointers: Most pointers attended to.
        slots: Slots in the ring.
        recent_maps: Number of recent frames, besides the prompt, that the network was trained to attend to.
        default_view: "auto", "full" or "window".
        window_factor: Side of the window in target sizes.
        box_head: How the published box is placed; None: it is the mask's, or enlarged to fit the drawn
            box (`policies.drawn_box`).
    """

    name: str
    image_side: int
    temporal_rows: int = 7
    max_maps: int | None = 7
    max_pointers: int = 16
    slots: int = 24
    recent_maps: int = 6
    default_view: str = "full"
    window_factor: float = 5.0
    box_head: BoxHead | None = None


@dataclass(frozen=True)
class Motion:
    """The motion filter's estimate at one stamp.

    Attributes:
        stamp_ns: Time of the estimate, ns.
        box: Estimated box, px.
        velocity: (vx, vy), px/s.
        covariance: float64 [4, 4] of (cx, cy, vx, vy) in px^2, px^2/s, px^2/s^2.
        size_rate: Rates of width and height, px/s.
    """

    stamp_ns: int
    box: Box
    velocity: tuple[float, float]
    covariance: NDArray[np.float64]
    size_rate: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True)
class FoundPoints:
    """Points on the target in the last confirmed image, followed into the present one.

    Only points that have been followed long enough to belong to the target count. ``earlier_count``: their
    largest number in the last images; ``positions``: float64 [n, 2] px, of those that were found again.
    """

    earlier_count: int
    positions: NDArray[np.float64]


NO_POINTS = FoundPoints(0, np.zeros((0, 2)))


@dataclass(frozen=True)
class CameraMotion:
    """The camera's motion since the previous image.

    ``matrix``: float64 [3, 3], previous px to current px, None if unknown; ``reason``: why it is unknown, one
    line.
    """

    matrix: NDArray[np.float64] | None
    reason: str = ""


class ScoredBox(NamedTuple):
    """A possible position of a missed target. ``score``: log-odds that it is the target."""

    box: Box
    score: float


@dataclass(frozen=True)
class Track:
    """The tracker's answer for one frame, valid at ``stamp_ns``.

    Attributes:
        stamp_ns: Stamp of the image, ns.
        state: State of the target.
        box: In image px, measured by the network or predicted; None in states without a box (IDLE, LOST).
        measured: True when ``box`` was measured in this image.
        presence: Probability that the target is in view, 0..1.
        quality: Predicted mask IoU, 0..1.
        age_s: Time since the last measured box, s (0 when measured, NaN before the first).
        motion: The filter's estimate or None.
        view: The region given to the network.
        image_size: Width and height, px.
        reason: Why the target is not tracked, or why the frame was not used; empty when all is well.
        processed: False when the frame was refused before it reached the network (equal stamp, bad image).
        stage_seconds: Duration of each stage, s.
        windows: Windows of this image searched for a missed target.
        hypotheses: Possible positions of a missed target.
        camera: The camera's motion; None if it was not requested.
        likeness: Cosine of the last looks with the target's kept crops, -1..1; NaN where it is not known.
        confidence: Probability that the measured box is on the target, 0..1; NaN where nothing is measured,
            or the likeness is not known.
    """

    stamp_ns: int
    state: TrackState
    box: Box | None = None
    measured: bool = False
    presence: float = 0.0
    quality: float = 0.0
    age_s: float = float("nan")
    motion: Motion | None = None
    view: View | None = None
    image_size: tuple[int, int] = (0, 0)
    reason: Reason = NO_REASON
    processed: bool = True
    stage_seconds: Mapping[str, float] = field(default_factory=dict)
    windows: tuple[View, ...] = ()
    hypotheses: tuple[ScoredBox, ...] = ()
    camera: CameraMotion | None = None
    likeness: float = float("nan")
    confidence: float = float("nan")
