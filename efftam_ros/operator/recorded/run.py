"""A run of `efftam track`, or a bag, with its pictures; or two runs of the same pictures to compare."""

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
from efftam_ros.operator.recorded.bag import BagPictures, bag_run, has_images, is_bag
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
    """Open the JSON that `efftam track --json` writes (or the folder that holds it, as ``track.json`` or as
    its only ``.json``), with the video that it names or ``video``; or a bag with the tracker's answers, with
    its own images or those of the bag ``video``. ``other``: a second run of the same video. ``fps`` of a
    folder of images, where the JSON doesn't tell.

    Raises InputError: one line with the file, what is wrong and what to give.
    """
    if is_bag(run):
        return _open_bags(run, other, video)
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


def _open_bags(run: Path, other: Path | None, video: Path | None) -> VideoRecording:
    paths = [path for path in (run, other) if path is not None]
    for path in paths:
        if not is_bag(path):
            raise InputError(f"{run} is a bag, {path} is none; compare two bags of the same images")
    source = video or next((path for path in paths if has_images(path)), None)
    if source is None:
        raise InputError(f"{run} holds no images; give the bag that was tracked with --video BAG")
    if not is_bag(source):
        raise InputError(f"{source} is no bag, and stamps tell which image of a bag was answered; give a bag")
    pictures = BagPictures(source)
    names = _names(paths)
    return VideoRecording(
        pictures, [bag_run(p, pictures.stamps_ns, n) for p, n in zip(paths, names, strict=True)]
    )


def _json_file(path: Path) -> Path:
    if not path.is_dir():
        return path
    # The file that the demo writes; the folder may hold those of other commands too.
    if (path / "track.json").is_file():
        return path / "track.json"
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
    """The video as named, from the JSON's folder or from here, or beside the JSON."""
    named = Path(str(data["video"]))
    for candidate in (path.parent / named, named, path.parent / named.name):
        if candidate.exists():
            return candidate.resolve()
    raise InputError(f"{path} is of {named}, which is not here; give the video with --video")


def _names(paths: Sequence[Path]) -> list[str]:
    """Names of the runs: the files' names, or their folders' where those are equal."""
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
            raise InputError(
                f"{path} has a frame {index}, the video only {count}; give the right one with --video"
            )
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
