"""Converts selection messages to prompts, and tracks to the fields of the tracker's messages.

Nothing here imports ROS. The fields of a message are returned as a dictionary, so that the same functions
serve the message classes of rclpy and those of the rosbags library, for example
``BoundingBox(**bbox_fields(track, About(header)))``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from efftam_ros.core.errors import InputError, shown
from efftam_ros.core.geometry import Box
from efftam_ros.core.reasons import NO_REASON, Reason, ReasonCode
from efftam_ros.core.types import Motion, Prompt, Track, TrackState
from efftam_ros.images.headers import MAX_PIXELS
from efftam_ros.images.message import image_from_message, stamp_like
from efftam_ros.messages.bearing import Bearing

MAX_NORMALIZED = 1.5
"""Largest width and height of a normalised box, as a share of the image's width and height.

The limit is above 1, because a target may extend beyond the image.
"""


class Kind(IntEnum):
    """Values of TargetSelection.kind: how the message marks the target."""

    BOX = 0
    POINTS = 1
    MASK = 2
    CLEAR = 3


class Outcome(IntEnum):
    """Values of SelectionResult.outcome: the result of a selection or clear."""

    ACCEPTED = 0
    REFUSED = 1
    CLEARED = 2


class Units(IntEnum):
    """Values of TargetSelection.units: the units of the box and the points."""

    PIXELS = 0
    NORMALIZED = 1


def check_selection(msg: Any) -> Kind:
    """Return the kind of a TargetSelection. Raises InputError for an unknown kind or units."""
    for name, value, known in (("kind", msg.kind, Kind), ("units", msg.units, Units)):
        if value not in set(known):
            choices = ", ".join(f"{k.value} {k.name}" for k in known)
            raise InputError(f"selection {name} is {value}; use {choices}")
    return Kind(msg.kind)


def selection_prompt(msg: Any, width: int, height: int, most_pixels: int = MAX_PIXELS) -> Prompt:
    """Convert a TargetSelection of kind BOX, POINTS or MASK to a prompt.

    Args:
        msg: The TargetSelection.
        width: Width of the image to which the selection belongs, px.
        height: Height of this image, px.
        most_pixels: Largest accepted number of pixels of a mask.

    Raises:
        InputError: The kind is CLEAR or unknown, the units are unknown, a number is not finite, the box has
            no area, box or points are outside the image, numbers in pixels are declared as normalised or
            the reverse, the numbers of labels and points differ, there are too many points, or the mask is
            empty, of another size than the image, or of more than ``most_pixels``.
    """
    kind = check_selection(msg)
    sx, sy = (float(width), float(height)) if msg.units == Units.NORMALIZED else (1.0, 1.0)
    if kind is Kind.BOX:
        if msg.units == Units.NORMALIZED and max(msg.width, msg.height) > MAX_NORMALIZED:
            raise InputError(
                f"selection box is {msg.width:g} x {msg.height:g} in shares of the image; at most"
                f" {MAX_NORMALIZED:g} is accepted; for pixels set units to PIXELS"
            )
        prompt = Prompt(box=Box(msg.x * sx, msg.y * sy, msg.width * sx, msg.height * sy))
    elif kind is Kind.POINTS:
        labels = tuple(int(label) for label in msg.labels)
        prompt = Prompt(points=tuple((p.x * sx, p.y * sy) for p in msg.points), labels=labels)
    elif kind is Kind.MASK:
        if msg.mask.encoding not in ("mono8", "8UC1"):
            raise InputError(f"selection mask has encoding {shown(msg.mask.encoding)}; give mono8")
        try:
            mask = image_from_message(msg.mask, most_pixels)
        except InputError as refusal:
            raise InputError(f"selection mask: {refusal}") from None
        prompt = Prompt(mask=mask.rows > 127)
    else:
        raise InputError("selection kind is CLEAR, which marks nothing; give a box, points or a mask")
    # Checked here and not only when the image is processed, so that the sender receives the error at once.
    prompt.checked(width, height, is_typed=True)
    # A box of less than one pixel was probably given in shares of the image, 0 to 1, with the wrong units.
    if prompt.box is not None and min(prompt.box.width, prompt.box.height) < 1.0:
        raise InputError(
            f"selection box is {prompt.box.width:g} x {prompt.box.height:g} px, less than a pixel;"
            " for numbers between 0 and 1 set units to NORMALIZED"
        )
    return prompt


# States in which the target's motion may be used for control.
STEERABLE = (TrackState.TRACKING, TrackState.COASTING)
# By state, why the target's motion may not be used for control. This reason is used if the track has none.
UNCLAIMED = {
    TrackState.IDLE: ReasonCode.NO_TARGET.reason(),
    TrackState.ACQUIRING: ReasonCode.NOT_CONFIRMED.reason(),
    TrackState.LOST: ReasonCode.LOST.reason(),
}
# In messages, NaN stands for every number that is not known.
_NAN = math.nan
UNKNOWN_MOTION = Motion(0, Box(_NAN, _NAN, _NAN, _NAN), (_NAN, _NAN), np.full((4, 4), _NAN), (_NAN, _NAN))
UNKNOWN_BEARING = Bearing(_NAN, _NAN, _NAN, _NAN, np.full((2, 2), _NAN), np.full((2, 2), _NAN))


def reason_fields(reason: Reason) -> dict[str, Any]:
    """Return the two fields of a message that state a reason: its text and its code."""
    return {"reason": str(reason), "reason_code": int(reason.code)}


def not_valid(track: Track, withheld: Reason = NO_REASON) -> Reason:
    """Return why control must not use the track, or an empty reason if it may.

    The messages that report a track with such a reason have ``valid`` false. ``withheld``: a reason that does
    not follow from the track, such as that images have stopped. If it is not empty, it is returned.
    """
    if withheld:
        return withheld
    box, motion = track.box, track.motion
    if track.state not in STEERABLE or box is None or motion is None:
        return track.reason or UNCLAIMED.get(track.state) or ReasonCode.NO_MOTION.reason()
    width, height = track.image_size
    # A box may extend beyond the image. Its centre may not, because control steers by the centre.
    for place in (box, motion.box):
        cx, cy = place.x + place.width / 2, place.y + place.height / 2
        if not (0 <= cx <= width and 0 <= cy <= height):
            return ReasonCode.CENTER_OUTSIDE.reason(x=cx, y=cy, width=width, height=height)
    return NO_REASON


class About(NamedTuple):
    """The image, target and selection to which an answer belongs.

    Attributes:
        header: Header of the image's message.
        selection: Number of the selection to which the answer belongs.
        target_id: Id of the target.
        steered: Whether the target is the steered target.
        withheld: A reason, which does not follow from the track, why control must not use the answer; empty
            without such a reason. See `not_valid`.
    """

    header: Any
    selection: int = 0
    target_id: int = 0
    steered: bool = True
    withheld: Reason = NO_REASON


def bbox_fields(track: Track, about: About) -> dict[str, Any]:
    """Return all fields of a message efftam_ros/BoundingBox."""
    fields = _answer_fields(track, about)
    width, height = track.image_size
    scores = {"quality": float(track.quality), "likeness": float(track.likeness)}
    more = {
        "image_width": int(width),
        "image_height": int(height),
    }
    if track.reason and fields["valid"]:  # a reason that does not forbid control, such as a poor selection
        more |= reason_fields(track.reason)
    return fields | _box_fields(track.box) | scores | more


def velocity_fields(
    track: Track,
    about: About,
    predicted: Motion | None = None,
    bearing: Bearing | None = None,
    predicted_bearing: Bearing | None = None,
) -> dict[str, Any]:
    """Return all fields of a message efftam_ros/TargetVelocity. Unknown numbers are NaN.

    Args:
        track: The answer for the target.
        about: The image and target to which the answer belongs.
        predicted: Motion of the target at the time of publishing; None: the motion at the image's stamp.
        bearing: Bearing at the image's stamp; None: not known.
        predicted_bearing: Bearing at the time of publishing; None: not known.
    """
    if track.motion is None:
        predicted = bearing = predicted_bearing = None
    motion, later = track.motion or UNKNOWN_MOTION, predicted or track.motion
    seen, soon = bearing or UNKNOWN_BEARING, predicted_bearing or UNKNOWN_BEARING
    (vx, vy), box, stamp = motion.velocity, motion.box, about.header.stamp
    place = UNKNOWN_MOTION.box if later is None else later.box
    # Every field is set: rclpy publishes 0 for a field that is not set, and 0 looks like a measurement.
    return {
        **_answer_fields(track, about),
        "center_x": float(box.x + box.width / 2),
        "center_y": float(box.y + box.height / 2),
        "velocity_x": float(vx),
        "velocity_y": float(vy),
        "covariance": motion.covariance.flatten(),
        "width": float(box.width),
        "height": float(box.height),
        "width_rate": float(motion.size_rate[0]),
        "height_rate": float(motion.size_rate[1]),
        "predicted_x": float(place.x),
        "predicted_y": float(place.y),
        "predicted_width": float(place.width),
        "predicted_height": float(place.height),
        "has_bearing": bearing is not None,
        "azimuth": seen.azimuth,
        "elevation": seen.elevation,
        "bearing_covariance": seen.covariance.flatten(),
        "azimuth_rate": seen.azimuth_rate,
        "elevation_rate": seen.elevation_rate,
        "rate_covariance": seen.rate_covariance.flatten(),
        "predicted_azimuth": soon.azimuth,
        "predicted_elevation": soon.elevation,
        "predicted_bearing_covariance": soon.covariance.flatten(),
        "predicted_stamp": stamp if later is None else stamp_like(stamp, later.stamp_ns),
        "image_shift": image_shift(track),
    }


def image_shift(track: Track) -> float:
    """Return by how much the camera's motion moved the image content, px; NaN if this is not known.

    The shift is counted since the previous image in which this target was searched for. The result is the
    largest distance that one of the image's four corners moved.
    """
    if track.camera is None or track.camera.matrix is None:
        return math.nan
    width, height = track.image_size
    corners = np.array([(x, y, 1.0) for x in (0.0, width) for y in (0.0, height)]).T
    moved = track.camera.matrix @ corners
    with np.errstate(all="ignore"):
        return float(np.hypot(*(moved[:2] / moved[2] - corners[:2])).max())


def _answer_fields(track: Track, about: About) -> dict[str, Any]:
    """Return the fields that BoundingBox and TargetVelocity have in common."""
    reason = not_valid(track, about.withheld)
    return {
        "header": about.header,
        "target_id": about.target_id,
        "selection": about.selection,
        "state": int(track.state),
        "reason": str(reason),
        "reason_code": int(reason.code),
        "valid": not reason,
        "measured": track.measured,
        "confidence": float(track.confidence),
        "presence": float(track.presence),
        "age": float(track.age_s),
        "steered": about.steered,
    }


def _box_fields(box: Box | None) -> dict[str, float]:
    box = UNKNOWN_MOTION.box if box is None else box
    return {"x": float(box.x), "y": float(box.y), "width": float(box.width), "height": float(box.height)}


def detections_message(vision: Any, tracks: Mapping[int, Track], header: Any) -> Any:
    """Return a vision_msgs/Detection2DArray with one detection for each target that has a box.

    Args:
        vision: The Python module ``vision_msgs.msg`` of version 4 (Humble, Jazzy).
        tracks: By target id, the answer for the target.
        header: Header of the image's message.
    """
    message = vision.Detection2DArray(header=header)
    for target_id, track in sorted(tracks.items()):
        if track.box is None:
            continue
        result = vision.ObjectHypothesisWithPose()
        result.hypothesis.class_id = "target"
        is_known = math.isfinite(track.confidence)
        result.hypothesis.score = float(track.confidence if is_known else track.presence)
        detection = vision.Detection2D(header=header, id=str(target_id), results=[result])
        detection.bbox.center.position.x = float(track.box.cx)
        detection.bbox.center.position.y = float(track.box.cy)
        detection.bbox.size_x = float(track.box.width)
        detection.bbox.size_y = float(track.box.height)
        message.detections.append(detection)
    return message
