"""Converts the tracker's messages to values: boxes, motions and results of selections.

Nothing here imports ROS. Messages are read by attribute, so that messages of rclpy and messages of the
rosbags library can both be converted. Selections and the progress of a video are also defined here.
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
    """The fields that all messages about one target in one image have in common.

    Attributes:
        stamp_ns: Stamp of the image, ns.
        target_id: Id of the target.
        state: State of the target.
        selection: Number of the accepted selection to which the message belongs.
        reason: Why the target is not tracked or the numbers may not be used; empty without a reason.
        measured: Whether the numbers come from a measured box.
        age_s: Time from the target's last measurement to the image's stamp, s; NaN before the first
            measurement.
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
    """The content of a BoundingBox: the box of one target in one image.

    Attributes:
        image_size: Width and height of the image, px.
        box: The target's box, px of the image; None where there is no box.
        confidence: Probability that a measured box is on the target, 0..1; NaN where unknown.
        presence: Probability that something like the selected object is in view, 0..1; NaN where unknown.
        quality: The network's estimate of the mask's IoU with the target, 0..1; NaN where unknown.
        likeness: Likeness of the box to the selected target, -1..1; NaN where unknown.
        steered: Whether the target is the steered target.
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
    """The content of a TargetVelocity: velocity and bearing of one target in one image.

    Attributes:
        valid: Whether the message may be used for control.
        velocity: Velocity (vx, vy) of the box's centre in the image, px/s.
        has_bearing: Whether the bearing is known.
        azimuth: Angle to the right of the optical axis, rad.
        elevation: Angle below the optical axis, rad.
        azimuth_rate: Rate of the azimuth, rad/s. It includes the motion of the camera itself.
        elevation_rate: Rate of the elevation, rad/s. It includes the motion of the camera itself.
        image_shift: Largest distance by which the camera's motion moved a corner of the image since the
            previous image in which this target was searched for, px; NaN where unknown.
        bearing_covariance: Covariance of (azimuth, elevation), 4 numbers, row-major, rad^2.
        steered: Whether the target is the steered target.
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
    """The content of a SelectionResult: the result of a selection or clear.

    Attributes:
        stamp_ns: Stamp of the image that the command named, ns; 0: the command named the newest image.
        outcome: Whether the command was accepted, was refused, or cleared a target.
        message: Why the command was refused, or a remark on an accepted selection; "" without either.
        target_id: Id of the target; 0 if only one target is followed.
        selection: Number of the accepted selection, from 1; 0 if the command was refused or cleared a target.
    """

    stamp_ns: int
    outcome: Outcome
    message: str = ""
    target_id: int = 0
    selection: int = 0


@dataclass(frozen=True)
class Selection:
    """What a person marked on one image. A Selection with neither box nor points clears the target.

    Attributes:
        stamp_ns: Stamp of the image, ns.
        target_id: Id of the target to select, replace or clear.
        box: A box around the target; None if points are given.
        points: Points (x, y).
        labels: For each point 1 (on the target) or 0 (beside it).
        normalized: Whether box and points are in shares of the image's size, 0..1; if not, they are in px.
    """

    stamp_ns: int
    target_id: int = 0
    box: Box | None = None
    points: tuple[tuple[float, float], ...] = ()
    labels: tuple[int, ...] = ()
    normalized: bool = False


@dataclass(frozen=True)
class VideoProgress:
    """The position in a video that is played.

    Attributes:
        frame: Number of the next image, from 0.
        count: Number of images in the whole video.
        video_s: Time of the next image in the video, s.
    """

    frame: int
    count: int
    video_s: float


def box_report(message: Any) -> BoxReport:
    """Convert a message BoundingBox. Raises InputError if its state has an unknown number."""
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
    """Convert a message TargetVelocity. Raises InputError if its state has an unknown number."""
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
    """Convert a message SelectionResult. Raises InputError if its outcome has an unknown number."""
    return read_report(ResultReport, message, outcome=member(Outcome, "outcome", message.outcome))


def read_report(kind: type[Report], message: Any, **own: Any) -> Report:
    """Return a message's content as an object of the class ``kind``.

    ``own`` gives values for fields that need a conversion. All other fields are read from the message's
    fields of the same names.
    """
    own["stamp_ns"] = stamp_ns(message.header.stamp)
    if issubclass(kind, TargetReport):
        own["reason"] = Reason.read(message.reason_code, message.reason)
    return kind(**own, **{f.name: getattr(message, f.name) for f in fields(kind) if f.name not in own})


def member(kind: type[Member], name: str, number: int) -> Member:
    """Return the member of an enumeration that has this number.

    Raises InputError if there is none. The error contains ``name``, the name of the message's field.
    """
    try:
        return kind(number)
    except ValueError:
        raise InputError(f"{name} is {number}; give 0 to {max(kind)}") from None
