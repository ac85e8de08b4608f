"""The JSON file of a run: `efftam track`, `efftam demo` and `efftam replay` write it (docs/track_json.md)."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from efftam_ros.core.types import Track
from efftam_ros.images.source import NS
from efftam_ros.messages.fields import reason_fields
from efftam_ros.tools.common.outputs import write_text


@dataclass(frozen=True)
class TrackFacts:
    """What the JSON file reports about the whole run.

    Attributes:
        fps: Nominal number of images per second; None if it is not known.
        width: Width of the images, px.
        height: Height of the images, px.
        bundle: Name of the network.
        backend: Name of the back end.
        complete: Whether every image was processed.
    """

    fps: float | None
    width: int
    height: int
    bundle: str
    backend: str
    complete: bool


def write_track_json(file: Path, video: Path | str, facts: TrackFacts, frames: list[dict[str, Any]]) -> None:
    """Write the JSON file of a run. Raises OSError.

    Args:
        file: The file to write; "-" for stdout.
        video: Path of the input. It is written relative to ``file``, so that both can be moved together. An
            address is a str and is written as it is.
        facts: The fields beside ``frames``.
        frames: A `frame_record` for each processed image, in order.
    """
    name = str(video)
    if isinstance(video, Path) and str(file) != "-":
        with suppress(FileNotFoundError):  # the working folder may have been removed since the start
            name = os.path.relpath(video, file.parent.resolve())
    text = json.dumps({"video": name, **vars(facts), "frames": frames}, allow_nan=False) + "\n"
    if str(file) == "-":
        sys.stdout.write(text)
    else:
        write_text(file, text)


def frame_record(
    index: int, tracks: Mapping[int, Track], places: Mapping[int, dict[str, Any]] | None = None
) -> dict[str, Any]:
    """Return the JSON object of one frame. Unknown numbers are null.

    ``index``: the frame's index; ``tracks``: by target id, that of the steered target first; ``places``:
    positions on the ground by target id, or None. The frame also has all fields of the first track itself.

    The field ``stamp_ns`` is text, because programs that read numbers as floats would lose digits.
    """
    first = next(iter(tracks.values()))
    return {
        "index": index,
        "stamp": first.stamp_ns / NS,
        "stamp_ns": str(first.stamp_ns),
        **_track_record(first),
        "targets": [
            {
                "id": target_id,
                **_track_record(tracks[target_id]),
                **({"position": places[target_id]} if places else {}),
            }
            for target_id in sorted(tracks)
        ],
    }


def _track_record(track: Track) -> dict[str, Any]:
    return {
        "state": track.state.name,
        **reason_fields(track.reason),
        "box": None if track.box is None else _finite(track.box.xywh()),
        "measured": track.measured,
        "confidence": None if math.isnan(track.confidence) else track.confidence,
        "presence": track.presence,
        "iou": track.quality,
        "likeness": None if math.isnan(track.likeness) else track.likeness,
        "velocity": None if track.motion is None else _finite(track.motion.velocity),
        "windows": len(track.windows),
        "camera_motion": None if track.camera is None else track.camera.reason or "known",
    }


def _finite(values: tuple[float, ...]) -> list[float] | None:
    return [float(v) for v in values] if all(math.isfinite(v) for v in values) else None
