"""The values that pass between camera, tracker and pipeline."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.geometry import Box, View


class TrackState(IntEnum):
    """What the tracker claims about the target (numbers equal those of the ROS messages)."""

    IDLE = 0
    ACQUIRING = 1
    TRACKING = 2
    COASTING = 3
    LOST = 4


@dataclass(frozen=True)
class Image:
    """Image bytes as the camera delivered them, never copied.

    ``rows`` is a uint8 array [R, B]: one line per stored row, without padding (a view with a row stride when
    the source pads). R equals ``height`` except for planar YUV (nv12: 3/2 ``height``); B is the number of
    bytes of a row. ``encoding`` is a sensor_msgs encoding name, such as ``bgr8`` or ``nv12``.
    """

    rows: NDArray[np.uint8]
    width: int
    height: int
    encoding: str

    @classmethod
    def from_array(cls, array: NDArray[np.uint8], encoding: str = "bgr8") -> Image:
        """Wrap a C-contiguous [H, W, C] or [H, W] uint8 array of an interleaved encoding, without a copy."""
        height, width = array.shape[:2]
        return cls(array.reshape(height, -1), width, height, encoding)


@dataclass(frozen=True)
class Frame:
    """One camera image and the time it is true for. ``stamp_ns``: integer ns of the camera's clock, never
    wall time."""

    image: Image
    stamp_ns: int


@dataclass(frozen=True)
class Prompt:
    """What to follow, in pixels of the image it was drawn on. Give a box, points, both, or a mask alone.

    ``points``: (x, y) pairs; ``labels``: 1 on the target, 0 off it, one per point; ``mask``: bool [H, W] of
    the image.
    """

    box: Box | None = None
    points: tuple[tuple[float, float], ...] = ()
    labels: tuple[int, ...] = ()
    mask: NDArray[np.bool_] | None = None


@dataclass(frozen=True)
class Candidates:
    """What the mask decoder offers for one frame: K masks, best not yet chosen. K is 3 when tracking or after
    a single point, else 1.

    ``boxes``: float32 [K, 4] left, top, right, bottom edges in *image* px, sub-pixel, from the zero crossings
    of the logits' row and column maxima; NaN where a mask is empty. ``areas``: float32 [K], image px^2.
    ``ious``: float32 [K] predicted mask IoU 0..1. ``presence_logit``: > 0 means the network sees the target.
    The masks are as the decoder made them: not blanked when the target is absent; who chooses must look.
    """

    boxes: NDArray[np.float32]
    areas: NDArray[np.float32]
    ious: NDArray[np.float32]
    presence_logit: float

    def __len__(self) -> int:
        return len(self.ious)

    def box(self, index: int) -> Box:
        """Candidate ``index`` as a Box (``is_empty`` when its mask is)."""
        return self._boxes[index]

    @cached_property
    def _boxes(self) -> list[Box]:
        return [Box.from_edges(*edges) for edges in self.boxes.tolist()]

    @property
    def is_finite(self) -> bool:
        """False when the network produced NaN or infinity (an empty mask's NaN box is not a fault)."""
        numbers = (*self.ious.tolist(), *self.areas.tolist(), self.presence_logit)
        return all(map(math.isfinite, numbers))

    @cached_property
    def presence(self) -> float:
        """Probability that the target is in the view, 0..1."""
        return float(1.0 / (1.0 + np.exp(-np.clip(self.presence_logit, -60.0, 60.0))))


@dataclass(frozen=True)
class MemoryPlan:
    """Which ring slots a frame attends to. ``rows[i]`` is the temporal row of the map in ``slots[i]``;
    pointers have none. An empty plan means a frame without history."""

    slots: tuple[int, ...] = ()
    rows: tuple[int, ...] = ()
    pointer_slots: tuple[int, ...] = ()


@dataclass(frozen=True)
class PipelineSpec:
    """What the tracker must know of a network. Protocol constants of the bundle, no tensors.

    ``image_side`` network px; ``temporal_rows`` T rows, the last is the prompted frame's; ``max_pointers``
    attended at most; ``max_maps`` attended at most (None: any number); ``slots`` in the ring; ``recent_maps``
    the recent frames the network was trained to attend to besides the prompt; ``default_view`` "full" or
    "window"; ``window_factor`` window side in target sizes.
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


@dataclass(frozen=True)
class Motion:
    """The motion filter's belief at one stamp. ``box`` px; ``velocity`` (vx, vy) px/s; ``covariance`` float64
    [4, 4] of (cx, cy, vx, vy) in px^2, px^2/s, px^2/s^2; ``size_rate`` of width and height, px/s."""

    stamp_ns: int
    box: Box
    velocity: tuple[float, float]
    covariance: NDArray[np.float64]
    size_rate: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True)
class CameraMotion:
    """What the camera did since the previous image. ``matrix``: float64 [3, 3], previous px to present px,
    None when it is not known; ``reason``: then one line that says why."""

    matrix: NDArray[np.float64] | None
    reason: str = ""


@dataclass(frozen=True)
class ScoredBox:
    """A place where a missed target may be. ``score``: logarithm of the odds that it is the target."""

    box: Box
    score: float


@dataclass(frozen=True)
class Track:
    """The tracker's answer for one frame, true at ``stamp_ns``.

    ``box``: image px, measured by the network (``measured``) or predicted; None when the state has no box
    (IDLE, LOST). ``presence`` 0..1 probability that the target is in view; ``quality`` 0..1 predicted mask
    IoU; ``age_s`` seconds since the last measured box (0 when measured, NaN before the first); ``motion`` the
    filter's belief or None; ``reason`` one line saying why the state is not what one would hope, or why the
    frame was not used; ``processed`` False when the frame was refused before the network saw it (equal stamp,
    bad image); ``stage_seconds`` time of each stage; ``windows`` searched for a missed target in this image,
    and ``hypotheses`` of where it may be; ``camera`` what is known of the camera's motion, None where nobody
    asked.
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
    reason: str = ""
    processed: bool = True
    stage_seconds: Mapping[str, float] = field(default_factory=dict)
    windows: tuple[View, ...] = ()
    hypotheses: tuple[ScoredBox, ...] = ()
    camera: CameraMotion | None = None
