"""The messages between server and page: binary frames, and JSON. The page's messages are checked."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable
from dataclasses import asdict, fields
from typing import Any, NamedTuple

from efftam_operator.feed import (
    CommandAnswer,
    Controller,
    FollowState,
    GimbalAngles,
    Limits,
    Link,
    Proposal,
    SteeringState,
    Stop,
)
from efftam_ros.core.geometry import Box
from efftam_ros.messages.fields import Outcome
from efftam_ros.messages.positions import PositionReport
from efftam_ros.messages.reports import BoxReport, MotionReport, ResultReport, Selection, VideoProgress

VERSION = 1
CODEC_JPEG = 1
# Header of a frame, little-endian without padding: "EFTM", version, codec, width and height of the camera's
# image (px; 0: as the JPEG's), stamp (ns), time of sending (ns), sequence number.
HEADER = struct.Struct("<4sBBHHQQI")
# Sequence number of a full-size picture that a page has requested.
WHOLE_SEQ = 0
MAGIC = b"EFTM"

MAX_COORDINATE_PX = 65536.0
MAX_POINTS = 16
LONGEST_ID = 64
MAX_STAMP = 2**63 - 1
MAX_SEQ = 2**32 - 1
MAX_TARGET = 255
MAX_SENT_MS = 1e15
RENAMED = {"stamp_ns": "stamp", "target_id": "target", "is_lost": "lost"}
OPS: dict[type, str] = {
    CommandAnswer: "answer",
    Limits: "limits",
    VideoProgress: "progress",
    Proposal: "proposal",
    ResultReport: "result",
    SteeringState: "steering",
    FollowState: "follow",
}


class MessageError(ValueError):
    """A message of the page is invalid; the text states why, in one line. ``id``: the message's id, or ""."""

    def __init__(self, text: str, id: str = "") -> None:
        super().__init__(text)
        self.id = id


class Message(NamedTuple):
    """A message of a page. Only the fields that `FIELDS` lists for its ``op`` have a meaning.

    ``sent_ms``: when it was sent, by a monotonic clock of the page, ms; NaN if the message does not state it.
    ``stamp_ns``: for "hold" the image on which the user draws (0: none), for "whole" the image that the page
    needs in full size. ``turns``: the user has confirmed that a steered gimbal turns to this target.
    ``action``: "arm" (first press), "enable" (second press) or "stop" for "steer" and "follow"; "take" or
    "release" for "seat"; "show" or "hide" for "watch".
    """

    op: str
    id: str = ""
    sent_ms: float = math.nan
    token: str = ""
    seq: int = 0
    stamp_ns: int = 0
    selection: Selection = Selection(0)
    target_id: int = 0
    turns: bool = False
    action: str = ""


def frame(payload: bytes, size: tuple[int, int], *, stamp_ns: int, sent_ns: int, seq: int) -> bytes:
    """Return the binary message of a picture: the header, then ``payload``, the JPEG.

    ``size``: width and height of the camera's image, px; (0, 0): as the JPEG's.
    """
    header = HEADER.pack(MAGIC, VERSION, CODEC_JPEG, *size, stamp_ns, sent_ns, seq & MAX_SEQ)
    return header + payload


def dumps(message: dict[str, Any]) -> str:
    """Return a message as JSON without spaces. Numbers that are not finite become null."""
    return json.dumps(_without_nan(message), separators=(",", ":"), allow_nan=False)


def target(box: BoxReport, motion: MotionReport | None, last: Box | None, behind_s: float) -> dict[str, Any]:
    """Return one entry of a track message's ``targets``.

    ``motion``: None if it was lost. ``last``: the last reported box of this selection. ``behind_s``: by how
    much the image of this report is older than the image of the message, s.
    """
    entry: dict[str, Any] = {
        "id": box.target_id,
        "selection": box.selection,
        "steered": box.steered,
        "state": box.state.name,
        "reason": box.reason,
        "measured": box.measured,
        "box": _corners(box.box),
        "last": _corners(last) if box.box is None else None,
        **{name: round(getattr(box, name), 4) for name in ("confidence", "presence", "quality", "likeness")},
        "age_s": round(box.age_s, 3),
        "behind_s": round(behind_s, 3),
    }
    if motion is not None:
        entry["velocity"] = [round(v, 2) for v in motion.velocity]
        entry["velocity_valid"] = motion.valid
    return entry


def report_message(
    report: CommandAnswer | Proposal | Limits | VideoProgress | ResultReport | SteeringState | FollowState,
) -> dict[str, Any]:
    """Return the message to the pages that contains the fields of this report."""
    named = {RENAMED.get(f.name, f.name): getattr(report, f.name) for f in fields(report)}
    return {"op": OPS[type(report)], **{name: _plain(value, name) for name, value in named.items()}}


def _plain(value: Any, name: str) -> Any:
    if isinstance(value, Outcome):
        return value.name
    if isinstance(value, Controller | Link | Stop):
        return value.value
    if isinstance(value, GimbalAngles):
        return asdict(value)
    return str(value) if name == "stamp" else _corners(value) if isinstance(value, Box) else value


def position(report: PositionReport) -> dict[str, Any]:
    """Return the message to the pages with the steered target's position.

    Lengths are in m in the local frame; unknown numbers are NaN, which `dumps` makes null.
    """
    names = ("x", "y", "camera_x", "camera_y", "range", "accuracy", "altitude")
    return {
        "op": "position",
        "target": report.target_id,
        "selection": report.selection,
        "valid": report.valid,
        "reason": report.reason,
        **{name: round(getattr(report, name), 2) for name in names},
        "speed": round(math.hypot(report.velocity_x, report.velocity_y), 2),
        "latitude": round(report.latitude, 7),
        "longitude": round(report.longitude, 7),
        "height": report.height_source.name.lower(),
    }


def parse(text: str) -> Message:
    """Parse and check a message of a page. Raises MessageError if it is invalid."""
    try:
        data = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise MessageError("the message is not JSON") from None
    if not isinstance(data, dict):
        raise MessageError("the message is no JSON object")
    op = data.get("op")
    if not isinstance(op, str) or op not in FIELDS:
        raise MessageError(f"op is {_shown(op)}; it must be one of {', '.join(FIELDS)}")
    try:
        values = {name: read(data) for name, read in FIELDS[op].items()}
        return Message(op, sent_ms=_sent_ms(data), **values)
    except MessageError as refused:
        given = data.get("id")
        refused.id = given if isinstance(given, str) and len(given) <= LONGEST_ID else ""
        raise


def _selection(data: dict[str, Any]) -> Selection:
    kind, stamp_ns, target_id = data.get("kind"), _stamp(data), _whole(data, "target", MAX_TARGET, 0)
    if kind == "box":
        x, y, width, height = _numbers(data.get("box"), 4, "box")
        if width <= 0 or height <= 0:
            raise MessageError(f"box is {width:g} x {height:g} px; both sides must be above 0")
        return Selection(stamp_ns, target_id, Box(x, y, width, height))
    if kind == "points":
        points = _points(data)
        return Selection(stamp_ns, target_id, points=points, labels=_labels(data, len(points)))
    raise MessageError(f"kind is {_shown(kind)}; it must be box or points")


def _sent_ms(data: dict[str, Any]) -> float:
    value = data.get("t")
    return math.nan if value is None else _numbers([value], 1, "t", largest=MAX_SENT_MS)[0]


def _stamp(data: dict[str, Any]) -> int:
    value = data.get("stamp")
    # JavaScript's numbers can't represent a stamp in nanoseconds exactly, so messages contain it as text.
    if not (isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= 19):
        raise MessageError(f"stamp is {_shown(value)}; it must be nanoseconds as decimal text")
    if int(value) > MAX_STAMP:
        raise MessageError(f"stamp is {value}; the largest is {MAX_STAMP}")
    return int(value)


def _whole(data: dict[str, Any], key: str, largest: int, default: int | None = None) -> int:
    value = data.get(key, default)
    if not (isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= largest):
        raise MessageError(f"{key} is {_shown(value)}; it must be a whole number 0..{largest}")
    return value


def _text(data: dict[str, Any], key: str, longest: int, default: str | None = None) -> str:
    value = data.get(key, default)
    if not (isinstance(value, str) and len(value) <= longest):
        raise MessageError(f"{key} is {_shown(value)}; it must be text of at most {longest} characters")
    return value


def _action(*actions: str) -> Callable[[dict[str, Any]], str]:
    def read(data: dict[str, Any]) -> str:
        value = data.get("action")
        if value not in actions:
            raise MessageError(f"action is {_shown(value)}; it must be one of {', '.join(actions)}")
        return str(value)

    return read


def _numbers(value: Any, count: int, key: str, largest: float = MAX_COORDINATE_PX) -> list[float]:
    good = isinstance(value, list) and len(value) == count
    if not good or not all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in value):
        raise MessageError(f"{key} is {_shown(value)}; it must be {count} number(s)")
    # Compared before the conversion: float() raises OverflowError for a number of a thousand digits.
    if not all(-largest <= v <= largest for v in value):
        raise MessageError(
            f"{key} is {_shown(value)}; each number must lie between -{largest:g} and {largest:g}"
        )
    return [float(v) for v in value]


def _points(data: dict[str, Any]) -> tuple[tuple[float, float], ...]:
    value = data.get("points")
    if not (isinstance(value, list) and 1 <= len(value) <= MAX_POINTS):
        raise MessageError(f"points are {_shown(value)}; give 1 to {MAX_POINTS} pairs x,y")
    pairs = [_numbers(pair, 2, "a point") for pair in value]
    return tuple((x, y) for x, y in pairs)


def _labels(data: dict[str, Any], count: int) -> tuple[int, ...]:
    value = data.get("labels")
    if not (
        isinstance(value, list) and len(value) == count and all(type(v) is int and v in (0, 1) for v in value)
    ):
        raise MessageError(f"labels are {_shown(value)}; give 0 or 1 for each of the {count} point(s)")
    return tuple(value)


# Fields that the messages of several ops have, in the form of `FIELDS`.
_ID = {"id": lambda data: _text(data, "id", LONGEST_ID)}
_TURNS = {"turns": lambda data: data.get("turns") is True}
# For each op, the fields of its message, each with the function that reads it from the JSON object. The
# function returns the value, or raises MessageError.
FIELDS: dict[str, dict[str, Callable[[dict[str, Any]], Any]]] = {
    "hello": {"token": lambda data: _text(data, "token", 256, "")},
    "ack": {"seq": lambda data: _whole(data, "seq", MAX_SEQ)},
    "select": {**_ID, "selection": _selection, **_TURNS},
    "propose": {"selection": _selection},
    "clear": {**_ID, "target_id": lambda data: _whole(data, "target", MAX_TARGET, 0)},
    "steer_by": {**_ID, "target_id": lambda data: _whole(data, "target", MAX_TARGET), **_TURNS},
    "seat": {"action": _action("take", "release")},
    "hold": {"stamp_ns": _stamp},
    "whole": {"stamp_ns": _stamp},
    "watch": {"action": _action("show", "hide")},
    "ping": {},
    "steer": {**_ID, "action": _action("arm", "enable", "stop")},
    "follow": {**_ID, "action": _action("arm", "enable", "stop")},
}


def _shown(value: Any) -> str:
    text = "missing" if value is None else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _corners(box: Box | None) -> list[float] | None:
    return [round(v, 2) for v in box.xywh()] if box is not None and box.is_finite else None


def _without_nan(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(item) for item in value]
    return value
