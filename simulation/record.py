"""The record of a simulated flight: a file with one line of JSON for each picture, answer, status and
event."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

FILE = "record.jsonl"


@dataclass(frozen=True)
class Sample:
    """One picture of the simulated camera.

    ``time_s``: steady time. ``yaw``, ``pitch``, ``target_yaw``, ``target_pitch``: directions of the optical
    axis and of the target, rad, yaw from north, pitch up. ``off_axis``: angle between them, rad. ``u``,
    ``v``: the target's middle in the picture, px, even if the target is hidden. ``box``: x, y, width, height
    of the target's visible part, px; None if it is hidden. ``visible_px``: number of its visible pixels.
    """

    index: int
    stamp_ns: int
    time_s: float
    yaw: float
    pitch: float
    target_yaw: float
    target_pitch: float
    off_axis: float
    u: float
    v: float
    box: tuple[float, float, float, float] | None
    visible_px: int


@dataclass(frozen=True)
class Answer:
    """One answer of the tracker, with the fields of the message BoundingBox. ``time_s``: steady time of its
    arrival."""

    time_s: float
    stamp_ns: int
    selection: int
    state: int
    measured: bool
    valid: bool
    box: tuple[float, float, float, float] | None
    presence: float
    quality: float
    age_s: float | None
    reason: str


@dataclass(frozen=True)
class Steering:
    """A status of the gimbal controller. ``time_s``: steady time of its arrival. Rates are in rad/s, positive
    up and right."""

    time_s: float
    phase: int
    law: int
    pitch_rate: float
    yaw_rate: float
    reason: str


@dataclass
class FlightRecord:
    """The record of a whole flight. ``events``: the steady time of each event, s, by its name."""

    samples: list[Sample] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    steering: list[Steering] = field(default_factory=list)
    events: dict[str, float] = field(default_factory=dict)


class RecordWriter:
    """Writes the record, each entry as one line. ``folder``: for the file; None: nothing is kept."""

    def __init__(self, folder: Path | None) -> None:
        path = Path(os.devnull) if folder is None else folder / FILE
        self._file: IO[str] = path.open("w", encoding="utf-8")

    def write(self, entry: Sample | Answer | Steering) -> None:
        self._line({"kind": type(entry).__name__, **asdict(entry)})

    def event(self, name: str, time_s: float) -> None:
        self._line({"kind": "event", "name": name, "time_s": time_s})

    def close(self) -> None:
        self._file.close()

    def _line(self, fields: dict[str, Any]) -> None:
        self._file.write(json.dumps(fields) + "\n")


def read_record(folder: Path) -> FlightRecord:
    """Read the record that a `RecordWriter` wrote to this folder. Raise OSError if there is none."""
    record = FlightRecord()
    for line in (folder / FILE).read_text(encoding="utf-8").splitlines():
        fields = json.loads(line)
        kind = fields.pop("kind")
        if kind == "event":
            record.events[fields["name"]] = fields["time_s"]
        elif kind == "Sample":
            record.samples.append(Sample(**fields))
        elif kind == "Answer":
            record.answers.append(Answer(**fields))
        else:
            record.steering.append(Steering(**fields))
    return record
