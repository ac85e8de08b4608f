"""The tracker's messages as values: boxes, motions and results, and the selections that it receives.

Messages are read by attribute, as in `images.message`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Any, TypeVar

from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box
from efftam_ros.core.reasons import NO_REASON, Reason
from efftam_ros.core.types import TrackState
from efftam_ros.images.message import stamp_ns
from efftam_ros.messages.fields import Outcome

NAN = math.nan
Member = TypeVar("Member", bound=IntEnum)
Report = TypeVar("Report", bound="TargetReport | ResultReport")


@dataclass(frozen=True)
class TargetReport:
    """The fields of every message on one target in one image.

    ``selection``: number of the accepted selection that it answers; ``age_s``: time from the target's last
    measurement to the image's stamp, s; NaN before the first.
    """

    stamp_ns: int
    target_id: int = 0
    state: TrackState = TrackState.IDLE
    selection: int = 0
    reason: Reason = NO_REASON
    measured: bool = False
    age_s: float = NAN


@dataclass(frozen=True)
class BoxReport(TargetReport):
    """A BoundingBox: one target in one image.

    ``box``: in image px, None when there is none to use; ``confidence``, ``presence`` and ``quality``: 0..1,
    ``likeness``: -1..1, as in the message, NaN when unknown; ``steered``: whether it is the steered target.
    """

    image_size: tuple[int, int] = (0, 0)
    box: Box | None = None
    confidence: float = NAN
    presence: float = NAN
    quality: float = NAN
    likeness: float = NAN
    steered: bool = True


@dataclass(frozen=True)
class MotionReport(TargetReport):
    """A TargetVelocity: one target in one image. ``valid`` False: nothing may steer by it.

    ``velocity`` (vx, vy) px/s; ``azimuth`` right, ``elevation`` down of the optical axis, rad, their rates
    rad/s with the camera's own motion included; ``bearing_covariance`` of the two angles, 4 numbers, rad^2;
    ``image_shift`` the largest motion of an image corner since the target's last image, px; ``steered``: it
    is the target that is steered by.
    """

    valid: bool = False
    velocity: tuple[float, float] = (NAN, NAN)
    has_bearing: bool = False
    azimuth: float = NAN
    elevation: float = NAN
    azimuth_rate: float = 0.0
    elevation_rate: float = 0.0
    image_shift: float = NAN
    bearing_covariance: tuple[float, ...] = (NAN,) * 4
    steered: bool = True


@dataclass(frozen=True)
class ResultReport:
    """A SelectionResult: the outcome of the command on the image of ``stamp_ns``, also when it was decided
    later; ``message``: why it was refused."""

    stamp_ns: int
    outcome: Outcome
    message: str = ""
    target_id: int = 0
    selection: int = 0


@dataclass(frozen=True)
class Selection:
    """What a person marked on the image of ``stamp_ns``: a box, or points with labels (1 on the target, 0 off
    it), in image px, or in 0..1 of the image where ``normalized``; neither clears the target."""

    stamp_ns: int
    target_id: int = 0
    box: Box | None = None
    points: tuple[tuple[float, float], ...] = ()
    labels: tuple[int, ...] = ()
    normalized: bool = False


@dataclass(frozen=True)
class VideoProgress:
    """How far a video is. ``frame``: number of the image that comes next, from 0; ``count``: of all images;
    ``video_s``: time of that image in the video, s."""

    frame: int
    count: int
    video_s: float


def box_report(message: Any) -> BoxReport:
    """Return a BoundingBox. Raises InputError for a state that does not exist."""
    box = Box(message.x, message.y, message.width, message.height)
    return read_report(
        BoxReport,
        message,
        image_size=(message.image_width, message.image_height),
        state=member(TrackState, "state", message.state),
        box=box if box.is_finite else None,
        age_s=message.age,
    )


def motion_report(message: Any) -> MotionReport:
    """Return a TargetVelocity. Raises InputError for a state that does not exist."""
    state, velocity = member(TrackState, "state", message.state), (message.velocity_x, message.velocity_y)
    covariance = tuple(map(float, message.bearing_covariance))
    return read_report(
        MotionReport,
        message,
        state=state,
        velocity=velocity,
        bearing_covariance=covariance,
        age_s=message.age,
    )


def result_of(message: Any) -> ResultReport:
    """Return a SelectionResult. Raises InputError for an outcome that does not exist."""
    return read_report(ResultReport, message, outcome=member(Outcome, "outcome", message.outcome))


def read_report(kind: type[Report], message: Any, **own: Any) -> Report:
    """Return the report of a message: fields that are not given in ``own`` have the same names in it."""
    own["stamp_ns"] = stamp_ns(message.header.stamp)
    if issubclass(kind, TargetReport):
        own["reason"] = Reason.read(message.reason_code, message.reason)
    return kind(**own, **{f.name: getattr(message, f.name) for f in fields(kind) if f.name not in own})


def member(kind: type[Member], name: str, number: int) -> Member:
    """Return the member of an enumeration with this number; ``name``: of the field. Raises InputError where
    there is none."""
    try:
        return kind(number)
    except ValueError:
        raise InputError(f"{name} is {number}; known are 0 to {max(kind)}") from None
