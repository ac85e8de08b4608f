"""The fields of messages: of a selection, read as a prompt, and of the tracker's answers, from a track.

Nothing here imports ROS: what is to be published is returned as a dictionary of all fields, so that the same
functions serve rclpy's classes and those of the rosbags library
(``BoundingBox(**bbox_fields(track, About(header)))``).
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
"""Largest side of a normalised box; above 1 so that a target may extend beyond the image."""


class Kind(IntEnum):
    """TargetSelection.kind."""

    BOX = 0
    POINTS = 1
    MASK = 2
    CLEAR = 3


class Outcome(IntEnum):
    """SelectionResult.outcome: what became of a command."""

    ACCEPTED = 0
    REFUSED = 1
    CLEARED = 2


class Units(IntEnum):
    """TargetSelection.units."""

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
    """Convert a TargetSelection of kind BOX, POINTS or MASK to a prompt for an image of this size, px.

    Raises:
        InputError: Values that are not finite, no area, outside the image, pixels where normalised
            coordinates are declared, different numbers of labels and points, too many points, or a mask that
            is empty, of another size or of too many pixels.
    """
    kind = check_selection(msg)
    sx, sy = (float(width), float(height)) if msg.units == Units.NORMALIZED else (1.0, 1.0)
    if kind is Kind.BOX:
        if msg.units == Units.NORMALIZED and max(msg.width, msg.height) > MAX_NORMALIZED:
            raise InputError(
                f"selection box is {msg.width:g} x {msg.height:g} in shares of the image; at most"
                f" {MAX_NORMALIZED:g} is taken: for pixels set units to PIXELS"
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
        raise InputError("selection kind is CLEAR; it marks nothing")
    prompt.checked(width, height, is_typed=True)  # now, while the sender waits for the response
    # Numbers of 0 to 1 sent as pixels select a corner of the image.
    if prompt.box is not None and min(prompt.box.width, prompt.box.height) < 1.0:
        raise InputError(
            f"selection box is {prompt.box.width:g} x {prompt.box.height:g} px, less than a pixel;"
            " for numbers between 0 and 1 set units to NORMALIZED"
        )
    return prompt


# States in which control may use the motion: the target is confirmed and not given up.
STEERABLE = (TrackState.TRACKING, TrackState.COASTING)
# Reasons for the other states, where the tracker gives none.
UNCLAIMED = {
    TrackState.IDLE: ReasonCode.NO_TARGET.reason(),
    TrackState.ACQUIRING: ReasonCode.NOT_CONFIRMED.reason(),
    TrackState.LOST: ReasonCode.LOST.reason(),
}
# Numbers of what is not known.
_NAN = math.nan
UNKNOWN_MOTION = Motion(0, Box(_NAN, _NAN, _NAN, _NAN), (_NAN, _NAN), np.full((4, 4), _NAN), (_NAN, _NAN))
UNKNOWN_BEARING = Bearing(_NAN, _NAN, _NAN, _NAN, np.full((2, 2), _NAN), np.full((2, 2), _NAN))


def reason_fields(reason: Reason) -> dict[str, Any]:
    """Return the two fields of a message that carry a reason."""
    return {"reason": str(reason), "reason_code": int(reason.code)}


def not_valid(track: Track, withheld: Reason = NO_REASON) -> Reason:
    """Return why control must not use the track, i.e. why ``valid`` is false in the messages; empty when it
    may.

    ``withheld``: an additional reason from outside the track, such as images that stopped.
    """
    if withheld:
        return withheld
    box, motion = track.box, track.motion
    if track.state not in STEERABLE or box is None or motion is None:
        return track.reason or UNCLAIMED.get(track.state) or ReasonCode.NO_MOTION.reason()
    width, height = track.image_size
    # A box may be cut off by the edge, but nobody can steer by a centre that is not seen.
    for place in (box, motion.box):
        cx, cy = place.x + place.width / 2, place.y + place.height / 2
        if not (0 <= cx <= width and 0 <= cy <= height):
            return ReasonCode.CENTER_OUTSIDE.reason(x=cx, y=cy, width=width, height=height)
    return NO_REASON


class About(NamedTuple):
    """What an answer is about: the image's header, the number of the selection that it answers, the target,
    and whether that is the one to steer by. ``withheld``: see `not_valid`."""

    header: Any
    selection: int = 0
    target_id: int = 0
    steered: bool = True
    withheld: Reason = NO_REASON


def bbox_fields(track: Track, about: About) -> dict[str, Any]:
    """Return all fields of efftam_ros/BoundingBox."""
    fields = _answer_fields(track, about)
    width, height = track.image_size
    scores = {"quality": float(track.quality), "likeness": float(track.likeness)}
    more = {
        "image_width": int(width),
        "image_height": int(height),
    }
    if track.reason and fields["valid"]:  # such as a weak selection
        more |= reason_fields(track.reason)
    return fields | _box_fields(track.box) | scores | more


def velocity_fields(
    track: Track,
    about: About,
    predicted: Motion | None = None,
    bearing: Bearing | None = None,
    predicted_bearing: Bearing | None = None,
) -> dict[str, Any]:
    """Return all fields of efftam_ros/TargetVelocity; unknown numbers are NaN. ``predicted``: motion at the
    time of publishing, default: at the image's stamp."""
    if track.motion is None:
        predicted = bearing = predicted_bearing = None
    motion, later = track.motion or UNKNOWN_MOTION, predicted or track.motion
    seen, soon = bearing or UNKNOWN_BEARING, predicted_bearing or UNKNOWN_BEARING
    (vx, vy), box, stamp = motion.velocity, motion.box, about.header.stamp
    place = UNKNOWN_MOTION.box if later is None else later.box
    # Every field is set: rclpy would publish 0 for one that is left out, which is a number like others.
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
    """Return the largest motion of an image corner since the target's last image, by the camera's motion, px;
    NaN where that is not known."""
    if track.camera is None or track.camera.matrix is None:
        return math.nan
    width, height = track.image_size
    corners = np.array([(x, y, 1.0) for x in (0.0, width) for y in (0.0, height)]).T
    moved = track.camera.matrix @ corners
    with np.errstate(all="ignore"):
        return float(np.hypot(*(moved[:2] / moved[2] - corners[:2])).max())


def _answer_fields(track: Track, about: About) -> dict[str, Any]:
    """Return the fields that BoundingBox and TargetVelocity have in common, with the same values."""
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
        "presence": float(track.presence),
        "age": float(track.age_s),
        "steered": about.steered,
    }


def _box_fields(box: Box | None) -> dict[str, float]:
    box = UNKNOWN_MOTION.box if box is None else box
    return {"x": float(box.x), "y": float(box.y), "width": float(box.width), "height": float(box.height)}


def detections_message(vision: Any, tracks: Mapping[int, Track], header: Any) -> Any:
    """Build a vision_msgs/Detection2DArray with the boxes of the targets, by id.

    ``vision`` is the module ``vision_msgs.msg`` (4.x: Jazzy, Humble).
    """
    message = vision.Detection2DArray(header=header)
    for target_id, track in sorted(tracks.items()):
        if track.box is None:
            continue
        result = vision.ObjectHypothesisWithPose()
        result.hypothesis.class_id = "target"
        result.hypothesis.score = float(track.presence)
        detection = vision.Detection2D(header=header, id=str(target_id), results=[result])
        detection.bbox.center.position.x = float(track.box.cx)
        detection.bbox.center.position.y = float(track.box.cy)
        detection.bbox.size_x = float(track.box.width)
        detection.bbox.size_y = float(track.box.height)
        message.detections.append(detection)
    return message
