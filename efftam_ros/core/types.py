"""Data types that camera, tracker and back end exchange: images, prompts, candidates, motions, tracks."""

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
    """State of a target. The numbers are those of the ROS messages."""

    IDLE = 0
    ACQUIRING = 1
    TRACKING = 2
    COASTING = 3
    LOST = 4

    def __str__(self) -> str:
        return self.name


MISSED = (TrackState.COASTING, TrackState.LOST)
"""States of a target of which no box was accepted in the last frame."""


@dataclass(frozen=True)
class Image:
    """An image as the camera delivers it, without a copy of its bytes. The bytes must not change while the
    image is in use.

    Attributes:
        rows: uint8 [R, B]: R stored rows of B bytes, without padding (with a larger stride where the source
            has padding). R equals ``height``, except for planar YUV (nv12: 3/2 of ``height``).
        width: Px.
        height: Px.
        encoding: Name of the encoding as in sensor_msgs, such as ``bgr8`` or ``nv12``.
        derived: Results that are computed from the bytes once and used again, such as the grey version.
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
    """One camera image and its time. ``stamp_ns``: ns of the clock that stamps the images."""

    image: Image
    stamp_ns: int


MAX_POINTS = 256
"""Largest number of points of a prompt, including the two corners of a box. The prompt encoder takes longer
for more points."""


@dataclass(frozen=True)
class Prompt:
    """Marks the target on one image: by a box, by points, by both, or by a mask alone.

    Attributes:
        box: Box around the target, px.
        points: (x, y) of each point, px.
        labels: One for each point: 1 on the target, 0 off it.
        mask: bool [H, W] at the image's size, True on the target.
    """

    box: Box | None = None
    points: tuple[tuple[float, float], ...] = ()
    labels: tuple[int, ...] = ()
    mask: NDArray[np.bool_] | None = None

    def checked(self, width: int, height: int, is_typed: bool = False) -> Prompt:
        """Return this prompt if it marks something in an image of this size, px.

        ``is_typed``: whether a person typed the numbers. A box is then also refused if it fits the image only
        when its four numbers are read as edges.

        Raises InputError for: an empty prompt, numbers that are not finite, a box without area, too many
        points, a box or point outside the image, a label other than 0 and 1, no point on the target, and a
        mask that is empty, has another size, or is combined with a box or points.
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
        leaves = box.x1 > width + 1.0 or box.y1 > height + 1.0  # 1 px is more than a rounding error
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
        """Return two boxes, px, in an image of this size: the drawn one, and the one around all marks.

        The first box is the drawn one, cut off at the image's border. For a mask it is the box around the
        mask, and for points alone None. The second box has no area if there is only a single point. Raises
        InputError as `checked` does.
        """
        self.checked(width, height)
        if self.box is not None:
            visible = self.box.clipped(width, height)  # only this part determines the window's size
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
    """The K candidates that the mask decoder gives for one view, before the policy chooses one.

    K is 3 on tracked frames and after a single selected point, else 1. A candidate may have a mask although
    the target is absent: check ``presence``.

    Attributes:
        boxes: float32 [K, 4]: left, top, right and bottom edge, in px of the image. The edges are where the
            maxima of the logits' rows and columns cross zero. NaN for an empty mask.
        areas: float32 [K]: areas of the masks, px^2 of the image.
        ious: float32 [K]: predicted IoU of the masks, 0..1.
        presence_logit: Logit of ``presence``: above 0 if the network sees the target.
        levels: float32 [K, 3, 4], px of the image: the boxes where the maxima cross -1 (outside ``boxes``), 0
            (equal to ``boxes``) and 1 (inside ``boxes``); None where the network does not give them.
        presence: Probability that the target is in the view, 0..1.
        visible: Index and box of each candidate with a mask that is not empty.
        is_finite: False if a number is NaN or infinite, except in the box of an empty mask.
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
        vars(self).update(  # the dataclass is frozen, so that attributes can't be assigned
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
        """Build the candidates from the decoder's output for a view. The arrays are copied.

        Args:
            view: The view that the network received.
            boxes: float32 [K, 4] left, top, right, bottom edge, network px. That of an empty mask becomes
                NaN.
            areas: float32 [K], network px^2.
            ious: float32 [K], predicted IoU.
            presence_logit: Logit of the presence.
            levels: float32 [K, 2, 4], network px: the boxes at the levels -1 and 1; None if not given.
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
        """Return the box of candidate ``index``, px; it ``is_empty`` if the mask is empty."""
        return self._boxes[index]


@dataclass(frozen=True)
class MemoryPlan:
    """The slots of the memory's ring that the network compares a frame with; empty for a frame without
    history.

    Attributes:
        slots: Slots whose memory maps are used.
        rows: For each of ``slots``, the row of the network's temporal encoding that its map gets.
        pointer_slots: Slots whose object pointers are used.
    """

    slots: tuple[int, ...] = ()
    rows: tuple[int, ...] = ()
    pointer_slots: tuple[int, ...] = ()


@dataclass(frozen=True)
class BoxHead:
    """Constants by which the published box is computed from the mask's box
    (`policies.drawn_box.PlacedExtent`).

    Attributes:
        level_share: Weight, 0..1, of the cue by levels. This cue is the position of an edge at a certain
            level of the logits: the level at which the masks after the selection are as large as the drawn
            box.
        prompt_share: Weight, 0..1, of the cue by the prompted frame: the offset of the drawn box's edge from
            the mask's edge on that frame.
    """

    level_share: float
    prompt_share: float


@dataclass(frozen=True)
class PipelineSpec:
    """Constants of a network that the tracker needs.

    Attributes:
        name: Name of the network.
        image_side: Side of the network's square input, network px.
        temporal_rows: Number of rows of the temporal encoding. The last row is for the prompted frame.
        max_maps: Largest number of memory maps that a frame is compared with; None: no limit.
        max_pointers: Largest number of object pointers that a frame is compared with.
        slots: Number of slots of each target's memory.
        recent_maps: Number of recent frames, besides the prompted one, that the network was trained with.
        default_view: The kind of view where the user chooses none: "auto", "full" or "window".
        window_factor: Side of the window in target sizes, where the user chooses none.
        box_head: Constants by which the published box is placed; None: the published box is that of the mask,
            enlarged where the drawn box requires it (`policies.drawn_box`).
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
        velocity: Velocity (vx, vy) of the box's centre, px/s.
        covariance: float64 [4, 4] of the centre and its velocity (cx, cy, vx, vy), in px and px/s.
        size_rate: Rates of change of width and height, px/s.
    """

    stamp_ns: int
    box: Box
    velocity: tuple[float, float]
    covariance: NDArray[np.float64]
    size_rate: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True)
class CameraMotion:
    """The camera's motion from one image to a later one.

    Attributes:
        matrix: Homography float64 [3, 3] that maps px of the earlier image to px of the later one; None if it
            is unknown.
        reason: Why it is unknown, in one line; empty if it is known.
    """

    matrix: NDArray[np.float64] | None
    reason: str = ""


class ScoredBox(NamedTuple):
    """A box, px, in which a missed target may be. ``score``: log-odds that the target is there."""

    box: Box
    score: float


@dataclass(frozen=True)
class Track:
    """The tracker's answer for one frame, valid at ``stamp_ns``.

    Attributes:
        stamp_ns: Stamp of the image, ns.
        state: State of the target.
        box: Box of the target, px, measured or predicted; None in the states without a box, IDLE and LOST.
        measured: True if ``box`` was measured in this image, False if it is predicted.
        presence: Probability that the target is in the view, 0..1.
        quality: Predicted IoU of the chosen candidate's mask, 0..1.
        age_s: Time since the last measured box, s: 0 if this box is measured, NaN before the first one.
        motion: The motion filter's estimate; None if the target's position is unknown.
        view: The region of the image that the network received; None if it received none.
        image_size: Width and height, px.
        reason: Why the target is not tracked, or why the image was not used; empty if all is well.
        processed: False if the image was refused before the network received it, because it is a bad image,
            or because its stamp equals that of the previous image.
        stage_seconds: Duration of each stage of the network, s, by name (`contract.Answers.stage_seconds`).
        windows: The windows of this image that were searched for a missed target.
        hypotheses: Where a missed target may be, best first.
        camera: The camera's motion since the target's last image; None if it is not estimated.
        likeness: Likeness of the target's last look to its kept looks, -1..1; NaN where it is not known.
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
