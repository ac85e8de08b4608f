"""A run of `efftam track` from its JSON and its video, or two runs of one video to compare."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box
from efftam_ros.core.types import TrackState
from efftam_ros.operator.feed import BoxReport, MotionReport, Picture, RecordedRun
from efftam_ros.operator.recorded.pictures import Pictures, open_pictures

NS = 1_000_000_000


class VideoRecording:
    """The `Recording` of one video with one or two runs over it."""

    def __init__(self, pictures: Pictures, runs: Sequence[RecordedRun]) -> None:
        self._pictures = pictures
        self.stamps_ns: Sequence[int] = pictures.stamps_ns
        self.runs: Sequence[RecordedRun] = runs

    def picture(self, index: int) -> Picture:
        bgr = self._pictures.bgr(index)
        return Picture(self.stamps_ns[index], bgr=lambda: bgr)


def open_recording(
    run: Path, other: Path | None = None, video: Path | None = None, fps: float | None = None
) -> VideoRecording:
    """Open the JSON that `efftam track --json` writes (or the folder that holds it as its only ``.json``),
    and the video that it names or ``video``. ``other``: a second run of the same video. ``fps`` of a folder
    of images, where the JSON doesn't tell.

    Raises InputError: one line with the file, what is wrong and what to give.
    """
    paths = [_json_file(path) for path in (run, other) if path is not None]
    data = [_read(path) for path in paths]
    found = video or _video(paths[0], data[0])
    if other is not None and video is None and (second := _video(paths[1], data[1])) != found:
        raise InputError(f"{paths[0]} is of {found}, {paths[1]} of {second}; compare two runs of one video")
    pictures = open_pictures(found, fps or _number(data[0].get("fps")))
    names = _names(paths)
    return VideoRecording(
        pictures,
        [_run(p, d, n, len(pictures.stamps_ns)) for p, d, n in zip(paths, data, names, strict=True)],
    )


def _json_file(path: Path) -> Path:
    if not path.is_dir():
        return path
    found = sorted(path.glob("*.json"))
    if len(found) != 1:
        raise InputError(f"{path} holds {len(found)} .json files; name the one that efftam track wrote")
    return found[0]


def _read(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(
            f"{path} can't be read ({error.strerror}); give what efftam track --json wrote"
        ) from None
    except ValueError:
        raise InputError(f"{path} is not JSON; give what efftam track --json wrote") from None
    if not (isinstance(data, dict) and isinstance(data.get("frames"), list) and "video" in data):
        raise InputError(f"{path} is no run (no 'video' and 'frames'); give what efftam track --json wrote")
    return data


def _video(path: Path, data: dict[str, Any]) -> Path:
    """The video as named, from where the command ran or beside the JSON."""
    named = Path(str(data["video"]))
    for candidate in (named, path.parent / named, path.parent / named.name):
        if candidate.exists():
            return candidate.resolve()
    raise InputError(f"{path} is of {named}, which is not here; give the video as well")


def _names(paths: Sequence[Path]) -> list[str]:
    """What tells the runs apart: the file's name, or its folder's where the files are called the same."""
    if len({path.stem for path in paths}) == len(paths):
        return [path.stem for path in paths]
    return [path.resolve().parent.name for path in paths]


def _run(path: Path, data: dict[str, Any], name: str, count: int) -> RecordedRun:
    boxes: list[BoxReport | None] = [None] * count
    motions: list[MotionReport | None] = [None] * count
    size = (int(data.get("width", 0)), int(data.get("height", 0)))
    measured_ns: int | None = None
    for record in data["frames"]:
        try:
            index, stamp_ns = int(record["index"]), _stamp_ns(record)
            box = _box(record["box"])
            measured_ns = stamp_ns if record["measured"] and box is not None else measured_ns
            report = BoxReport(
                stamp_ns,
                size,
                TrackState[record["state"]],
                reason=str(record.get("reason", "")),
                measured=bool(record["measured"]),
                box=box,
                presence=_number(record["presence"]),
                quality=_number(record["iou"]),
                age_s=math.nan if measured_ns is None else (stamp_ns - measured_ns) / NS,
            )
            velocity = record["velocity"]
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"{path}: frame {record!r:.60} can't be read ({error!r}); write it again"
            ) from None
        if not 0 <= index < count:
            raise InputError(f"{path} has a frame {index}, the video only {count}; give the video it is of")
        boxes[index] = report
        if velocity is not None:
            speed = (_number(velocity[0]), _number(velocity[1]))
            motions[index] = MotionReport(stamp_ns, valid=box is not None, velocity=speed)
    return RecordedRun(name, boxes, motions)


def _stamp_ns(record: dict[str, Any]) -> int:
    # Seconds as a float lose nanoseconds, so the text is preferred where the file has it.
    if "stamp_ns" in record:
        return int(record["stamp_ns"])
    return round(float(record["stamp"]) * NS)


def _box(value: Any) -> Box | None:
    return None if value is None else Box(*(float(v) for v in value))


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)
