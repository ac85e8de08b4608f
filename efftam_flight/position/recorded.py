"""Computes positions of targets in a recorded video with known camera poses, for `efftam track --poses`.

Poses are read from a table (CSV) or from the subtitles (SRT) that DJI's cameras store with a video.
"""

from __future__ import annotations

import bisect
import csv
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from efftam_flight.angles import Vector, from_angles, interpolated, rotated, turn_between
from efftam_flight.position.config import PositionConfig
from efftam_flight.position.estimator import PositionEstimator
from efftam_flight.position.geodesy import GeoPoint, LocalFrame
from efftam_flight.position.ground_filter import Height
from efftam_flight.position.poses import CameraPose, between, moved
from efftam_flight.position.terrain import Terrain
from efftam_flight.position.track_files import TrackPoint, write_track
from efftam_flight.values import NS
from efftam_ros.core.errors import InputError, shown
from efftam_ros.core.reasons import Reason, ReasonCode
from efftam_ros.core.types import Track
from efftam_ros.messages.bearing import Intrinsics
from efftam_ros.messages.fields import reason_fields
from efftam_ros.messages.positions import HeightSource, PositionReport
from efftam_ros.messages.reports import MotionReport

NEEDED = ("time", "latitude", "longitude", "altitude", "pitch", "yaw")
OPTIONAL = ("roll", "height", "range")
COLUMNS = f"{', '.join(NEEDED)} and perhaps {', '.join(OPTIONAL)}"
# Between two poses further apart than GAP_NS there is no pose. The first pose also holds for HELD_NS before
# it, and the last one for HELD_NS after it.
GAP_NS, HELD_NS = 2 * NS, NS // 2
FULL_FRAME_MM = 36.0  # width of the sensor to which "35 mm equivalent" focal lengths refer
SRT_TIME = re.compile(r"(\d+):(\d\d):(\d\d)[,.](\d{3})\s*-->")
SRT_FIELD = re.compile(
    r"\b(latitude|longitude|longtitude|rel_alt|abs_alt|gb_yaw|gb_pitch|gb_roll|focal_len)\s*:\s*"
    r"([-+]?\d+(?:\.\d+)?)"
)


@dataclass(frozen=True)
class RecordedPose:
    """The camera's pose at one time of the video.

    ``roll``: clockwise seen from behind, ``pitch``: up, ``yaw``: from north to the right, degrees.
    ``height``: above the ground, ``range``: along the optical axis, m, NaN if unknown.
    """

    stamp_ns: int
    point: GeoPoint
    roll: float
    pitch: float
    yaw: float
    height: float = math.nan
    range: float = math.nan


@dataclass(frozen=True)
class Recording:
    """The poses in a file, in the order of time. ``focal_mm``: 35 mm equivalent focal length, NaN if
    unknown."""

    poses: Sequence[RecordedPose]
    focal_mm: float = math.nan


def read_poses(path: Path) -> Recording:
    """Read the poses in a CSV or SRT file. Raise InputError if the file can't be read, if a column or a
    number is missing, or if the times are not sorted."""
    try:
        text = path.read_text(encoding="utf-8-sig", errors="replace")
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise InputError(f"--poses {path} can't be read: {reason}; give a .csv or .srt file") from None
    recording = _read_srt(path, text) if path.suffix.lower() == ".srt" else _read_csv(path, text)
    for before, after in zip(recording.poses, recording.poses[1:], strict=False):
        if after.stamp_ns <= before.stamp_ns:
            raise InputError(
                f"{path}: the time {after.stamp_ns / NS:g} s comes after {before.stamp_ns / NS:g} s; sort the"
                " poses by time"
            )
    return recording


def _read_csv(path: Path, text: str) -> Recording:
    rows = csv.DictReader(text.splitlines(), skipinitialspace=True)
    missing = [name for name in NEEDED if name not in (rows.fieldnames or ())]
    if missing:
        raise InputError(
            f"{path} has no column {', '.join(missing)}; its first line must name the columns {COLUMNS}"
        )
    poses = []
    for row in rows:
        numbers = {name: _number(path, rows.line_num, name, row[name]) for name in NEEDED}
        optional = {
            name: _number(path, rows.line_num, name, row[name]) if row.get(name) else math.nan
            for name in OPTIONAL
        }
        poses.append(_pose(path, f"line {rows.line_num}", {**optional, **numbers}))
    if not poses:
        raise InputError(f"{path} has no poses; each line below the first one must be a pose")
    return Recording(poses)


def _number(path: Path, line: int, name: str, text: str | None) -> float:
    try:
        value = float(text or "")
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InputError(f"{path}, line {line}: {name} is {shown(text)}; give a number")
    return value


def _pose(path: Path, where: str, numbers: Mapping[str, float]) -> RecordedPose:
    point = GeoPoint(numbers["latitude"], numbers["longitude"], numbers["altitude"])
    if not point.is_place:
        raise InputError(
            f"{path}, {where}: {point.latitude:g}, {point.longitude:g} degrees is no place; latitude comes"
            " first, in degrees"
        )
    roll = numbers.get("roll", 0.0)
    return RecordedPose(
        round(numbers["time"] * NS),
        point,
        roll if math.isfinite(roll) else 0.0,
        numbers["pitch"],
        numbers["yaw"],
        numbers.get("height", math.nan),
        numbers.get("range", math.nan),
    )


def _read_srt(path: Path, text: str) -> Recording:
    poses: list[RecordedPose] = []
    focal_mm = math.nan
    lacks_angles = False
    for block in re.split(r"\n\s*\n", text.replace("\r", "")):
        time = SRT_TIME.search(block)
        found = {name: float(value) for name, value in SRT_FIELD.findall(block)}
        longitude = found.get("longitude", found.get("longtitude"))  # some DJI cameras write this misspelling
        if (
            time is None
            or longitude is None
            or "latitude" not in found
            or (found["latitude"], longitude) == (0, 0)
        ):
            continue  # the receiver has no fix yet
        if "gb_pitch" not in found or "gb_yaw" not in found:
            lacks_angles = True
            continue
        hours, minutes, seconds, milliseconds = map(int, time.groups())
        # Some cameras write the focal length in tenths of a millimetre.
        focal = found.get("focal_len", math.nan)
        if not math.isnan(focal):
            focal_mm = focal / 10 if focal > 100 else focal
        height = found.get("rel_alt", math.nan)
        numbers = {
            "time": 3600 * hours + 60 * minutes + seconds + milliseconds / 1e3,
            "latitude": found["latitude"],
            "longitude": longitude,
            "altitude": found.get("abs_alt", height),
            "roll": found.get("gb_roll", 0.0),
            "pitch": found["gb_pitch"],
            "yaw": found["gb_yaw"],
            "height": height,
        }
        pose = _pose(path, f"at {numbers['time']:g} s", numbers)
        if not poses or pose.stamp_ns > poses[-1].stamp_ns:
            poses.append(pose)
    if not poses:
        why = "the gimbal's angles (gb_yaw, gb_pitch)" if lacks_angles else "latitude and longitude"
        raise InputError(f"{path} has no {why}: give the camera's poses as --poses FILE.csv with {COLUMNS}")
    return Recording(poses, focal_mm)


class RecordedPoses:
    """Camera poses of a recording at any stamp of the video. Implements
    `efftam_flight.position.poses.CameraPoses`."""

    def __init__(self, recording: Recording, config: PositionConfig, terrain: Terrain | None) -> None:
        self._poses, self._config, self._terrain = recording.poses, config, terrain
        self._stamps = [pose.stamp_ns for pose in recording.poses]
        first = recording.poses[0]
        self.frame = LocalFrame(first.point)

    def at(self, stamp_ns: int, ray: Vector) -> CameraPose | Reason:
        poses, stamps = self._poses, self._stamps
        if not stamps[0] - HELD_NS <= stamp_ns <= stamps[-1] + HELD_NS:
            return ReasonCode.POSITION_NO_PLACE.reason()
        after = min(max(bisect.bisect_right(stamps, stamp_ns), 1), len(poses) - 1)
        before = max(after - 1, 0)
        a, b = poses[before], poses[after]
        if b.stamp_ns - a.stamp_ns > GAP_NS:
            return ReasonCode.POSITION_NO_PLACE.reason()
        q_a, q_b, place_a, place_b = _attitude(a), _attitude(b), self._place(a), self._place(b)
        if a is b:
            still = (0.0, 0.0, 0.0)
            return CameraPose(place_a, still, q_a, still, self._height(a, place_a, q_a, ray))
        span_s = (b.stamp_ns - a.stamp_ns) / NS
        share = min(max((stamp_ns - a.stamp_ns) / (b.stamp_ns - a.stamp_ns), 0.0), 1.0)
        place, q = between(place_a, place_b, share), interpolated(q_a, q_b, share)
        velocity = moved((0.0, 0.0, 0.0), moved(place_b, place_a, -1.0), 1.0 / span_s)
        nearest = a if share < 0.5 else b
        height = self._height(nearest, place, q, ray)
        return CameraPose(place, velocity, q, turn_between(q_a, q_b, span_s), height)

    def _place(self, pose: RecordedPose) -> Vector:
        north, east, up = self.frame.to_local(pose.point)
        return north, east, -up

    def _height(self, pose: RecordedPose, place: Vector, q: Any, ray: Vector) -> Height | None:
        """Return the height above the ground: from the range, else from the terrain where the ray meets it,
        else from the recorded height. Return None if all are unknown."""
        config, axis = self._config, rotated(q, (1.0, 0.0, 0.0))
        if pose.range > 0.0 and axis[2] > 0.0:
            return Height(
                pose.range * axis[2], config.range_error * axis[2], HeightSource.RANGE, pose.range, axis
            )
        if self._terrain is not None:
            height = self._terrain.height_above(self.frame, place, rotated(q, ray))
            if math.isfinite(height):
                return Height(height, config.terrain_error, HeightSource.TERRAIN)
        if not math.isfinite(pose.height):
            return None
        # The recorded height applies to `pose`. `climbed` is the climb from `pose` to the requested stamp.
        climbed = -place[2] - (pose.point.altitude - self.frame.origin.altitude)
        return Height(pose.height + climbed, config.home_error, HeightSource.HOME)


def _attitude(pose: RecordedPose) -> Any:
    return from_angles(*(math.radians(angle) for angle in (pose.roll, pose.pitch, pose.yaw)))


class VideoPositions:
    """Positions of the targets of one video. Implements the interface in
    `efftam_ros.tools.common.positions`."""

    def __init__(self, poses: RecordedPoses, lens: Intrinsics, config: PositionConfig) -> None:
        self._lens = lens
        self._estimator = PositionEstimator(config, poses)
        self._found: dict[int, list[TrackPoint]] = {}

    def locate(self, tracks: Mapping[int, Track]) -> dict[int, dict[str, Any]]:
        """Return for each target of one image its position as a record for JSON. A record without a position
        contains the ``reason``."""
        records = {}
        for target_id, track in tracks.items():
            report = self._estimator.answer(self._report(target_id, track))
            records[target_id] = _record(report)
            if report.valid and report.measured:
                point = TrackPoint(
                    report.stamp_ns / NS,
                    GeoPoint(report.latitude, report.longitude, report.altitude),
                    report.accuracy,
                )
                self._found.setdefault(target_id, []).append(point)
        return records

    def write(self, path: Path) -> int:
        """Write the tracks as KML or GeoJSON, as the file's ending demands. Return the number of points.
        Raise OSError if the file can't be written, InputError for another ending."""
        write_track(path, self._found)
        return sum(map(len, self._found.values()))

    def _report(self, target_id: int, track: Track) -> MotionReport:
        common: dict[str, Any] = {
            "stamp_ns": track.stamp_ns,
            "target_id": target_id,
            "selection": 1,
            "state": track.state,
            "reason": track.reason,
            "measured": track.measured,
            "age_s": track.age_s,
        }
        motion = track.motion
        if motion is None or track.box is None:
            return MotionReport(**common)
        # Unconfirmed boxes are used too. They may show another object, but nothing is steered by a recording.
        bearing = self._lens.bearing((motion.box.cx, motion.box.cy), motion.velocity, motion.covariance)
        return MotionReport(
            **common,
            valid=True,
            has_bearing=True,
            azimuth=bearing.azimuth,
            elevation=bearing.elevation,
            bearing_covariance=tuple(map(float, bearing.covariance.ravel())),
        )


def _record(report: PositionReport) -> dict[str, Any]:
    if not report.valid:
        return {"valid": False, **reason_fields(report.reason)}
    return {
        "valid": True,
        "latitude": report.latitude,
        "longitude": report.longitude,
        "altitude": report.altitude,
        "velocity_north": report.velocity_y,
        "velocity_east": report.velocity_x,
        "accuracy": report.accuracy,
        "range": report.range,
        "height_source": report.height_source.name.lower(),
    }


def video_positions(
    poses: Path,
    size: tuple[int, int],
    field_of_view_deg: float | None = None,
    terrain: Path | None = None,
    target_height: float = 0.0,
) -> VideoPositions:
    """Return an object that computes the positions of targets in a video.

    Args:
        poses: CSV or SRT file with the camera's poses.
        size: Width and height of the video, px.
        field_of_view_deg: Horizontal field of view, degrees. None: from the focal length in the SRT file.
        terrain: GeoTIFF with heights of the ground. None: the heights in the file of poses are used.
        target_height: Height of the middle of a target's box above the ground, m.

    Raises:
        InputError: A file can't be read, or the field of view is unknown or out of range.
    """
    recording = read_poses(poses)
    width, height = size
    if field_of_view_deg is None:
        if not recording.focal_mm > 0.0:
            raise InputError(
                "the camera's field of view is not known: give its horizontal angle, --field-of-view DEGREES"
            )
        field_of_view_deg = math.degrees(2 * math.atan(FULL_FRAME_MM / 2 / recording.focal_mm))
    if not 1.0 <= field_of_view_deg <= 150.0:
        raise InputError(f"--field-of-view is {field_of_view_deg:g}; give 1 to 150 degrees")
    focal_px = width / 2 / math.tan(math.radians(field_of_view_deg) / 2)
    lens = Intrinsics(focal_px, focal_px, (width - 1) / 2, (height - 1) / 2)
    config = PositionConfig(target_height=target_height)
    ground = None if terrain is None else Terrain(terrain)
    return VideoPositions(RecordedPoses(recording, config, ground), lens, config)


def beside(video: Path) -> Path | None:
    """Return the SRT file in the video's folder with the video's name; None if there is none."""
    for suffix in (".SRT", ".srt"):
        if (found := video.with_suffix(suffix)).is_file():
            return found
    return None
