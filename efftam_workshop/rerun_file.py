"""Writes runs for the Rerun viewer: pictures, boxes, masks, states and numbers on one timeline."""

from __future__ import annotations

import math
import os
import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.types import Track
from efftam_ros.images.palette import STATE_STYLES
from efftam_ros.tools.common.following import Answers
from efftam_ros.tools.common.outputs import replacing

if TYPE_CHECKING:
    import rerun

TIMELINE = "image_stamp"
JPEG_QUALITY = 80
DATES_FROM_NS = 10**18
"""Stamps of at least this (the year 2001) are shown as dates, smaller ones as times since the start."""
VELOCITY_S = 0.5
"""The velocity arrow ends where the target will be after this time, s."""


@contextmanager
def rerun_file(path: Path, recording: str) -> Iterator[RerunFile]:
    """Open ``path`` for writing as a context. The file appears when the context ends.

    It also appears after an exception, except an OSError. No file is written without images. The viewer shows
    files of the same ``recording`` together.
    """
    import rerun

    stream = rerun.RecordingStream("efftam", recording_id=recording)
    stream.set_log_time_enabled(False)
    with replacing(path, keep=True) as part, part.open("wb") as out, _pipe_into(out) as pipe:
        stream.save(pipe)
        stream.send_recording_name(recording)
        file = RerunFile(stream, path.stem)
        try:
            yield file
        finally:
            stream.flush()
            stream.disconnect()
            if not file.images:
                part.unlink()


@contextmanager
def _pipe_into(out: BinaryIO) -> Iterator[str]:
    """Yield the name of a pipe whose content is copied to ``out``.

    Rerun writes to the pipe because its own writing to a file never returns when the disk is full. The pipe
    must be opened and closed within the context. Leaving the context raises the OSError of a failed copy.
    """
    faults: list[OSError] = []
    read_end, write_end = os.pipe()

    def copy() -> None:
        with os.fdopen(read_end, "rb") as source:
            try:
                shutil.copyfileobj(source, out)
                out.flush()
            except OSError as error:
                faults.append(error)
                while source.read(1 << 16):
                    pass

    copying = threading.Thread(target=copy)
    copying.start()
    try:
        yield f"/proc/self/fd/{write_end}"
    finally:
        os.close(write_end)
        copying.join()
    if faults:
        raise faults[0]


class RerunFile:
    """Writes one run. All its entities are below the run's name."""

    def __init__(self, stream: rerun.RecordingStream, run: str) -> None:
        import rerun

        self._rr, self._stream, self._run = rerun, stream, rerun.escape_entity_path_part(run)
        self.images = 0
        self._shown: dict[str, Any] = {}
        self._targets: dict[
            str, set[int]
        ] = {}  # ids of the targets shown so far; the key names the part of the run

    def write(
        self,
        bgr: NDArray[np.uint8],
        answers: Answers,
        *,
        part: str = "",
        truth: Sequence[float] | None = None,
    ) -> None:
        """Add an image, BGR uint8 [H, W, 3], and its results.

        ``answers``: for each target id the track and the mask, uint8 [H, W] with 0 or 255, or None. The mask
        is written as its outline. ``part``: name of a sequence, if the run has several. ``truth``: the true
        box x, y, w, h in px. Targets other than 0 have separate entities.
        """
        rr = self._rr
        self.images += 1
        at = f"{self._run}/{rr.escape_entity_path_part(part)}" if part else self._run
        stamp_ns = next(iter(answers.values()))[0].stamp_ns
        # Stamps of cameras are dates; stamps of video files count from the video's start.
        if stamp_ns >= DATES_FROM_NS:
            self._stream.set_time(TIMELINE, timestamp=np.datetime64(stamp_ns, "ns"))
        else:
            self._stream.set_time(TIMELINE, duration=np.timedelta64(stamp_ns, "ns"))
        self._stream.log(f"{at}/image", rr.EncodedImage(contents=_jpeg(bgr), media_type="image/jpeg"))
        targets = self._targets.setdefault(at, set())
        # The viewer shows an entity until it is cleared, so the entities of removed targets are cleared.
        for gone in targets - answers.keys():
            for name in ("box", "velocity", "mask", "windows"):
                self._show(f"{at}/image{_of(gone)}/{name}", None)
        targets.update(answers)
        for target_id, (track, mask) in answers.items():
            self._write_target(at, _of(target_id), track, mask)
        if truth is not None:
            is_known = all(map(math.isfinite, truth))
            self._show(f"{at}/image/truth", self._boxes([truth]) if is_known else None)

    def _write_target(self, run: str, of: str, track: Track, mask: NDArray[np.uint8] | None) -> None:
        rr, at, image = self._rr, f"{run}{of}", f"{run}/image{of}"
        if f"{at}/state" not in self._shown:
            self._write_styles(at)
        colour = STATE_STYLES[track.state].rgb
        box, arrow = None, None
        if track.box is not None and track.box.is_finite:
            label = track.state.name if track.measured else f"{track.state.name} (predicted)"
            box = self._boxes([track.box.xywh()], colors=colour, labels=f"{of[1:]} {label}".strip())
        velocity = (math.nan, math.nan) if track.motion is None else track.motion.velocity
        if track.box is not None and all(map(math.isfinite, velocity)):
            vector = [VELOCITY_S * v for v in velocity]
            arrow = rr.Arrows2D(origins=[(track.box.cx, track.box.cy)], vectors=[vector], colors=colour)
        self._show(f"{image}/box", box)
        self._show(f"{image}/velocity", arrow)
        outline = None if mask is None else rr.LineStrips2D(_outline(mask), colors=colour)
        self._show(f"{image}/mask", outline)
        windows = [(w.x, w.y, *w.extent) for w in track.windows]
        self._show(f"{image}/windows", self._boxes(windows) if windows else None)
        self._stream.log(f"{at}/confidence", rr.Scalars(track.confidence))
        self._stream.log(f"{at}/presence", rr.Scalars(track.presence))
        self._stream.log(f"{at}/likeness", rr.Scalars(track.likeness))
        self._stream.log(f"{at}/velocity", rr.Scalars(velocity))
        if self._shown.get(f"{at}/state") != track.state:
            self._shown[f"{at}/state"] = track.state
            self._stream.log(f"{at}/state", rr.StateChange(state=track.state.name))

    def _write_styles(self, at: str) -> None:
        rr = self._rr
        states, styles = [state.name for state in STATE_STYLES], STATE_STYLES.values()
        for entity, style in {
            "confidence": rr.SeriesLines(names="confidence"),
            "presence": rr.SeriesLines(names="presence"),
            "likeness": rr.SeriesLines(names="likeness"),
            "velocity": rr.SeriesLines(names=["velocity x, px/s", "velocity y, px/s"]),
            "state": rr.StateConfiguration(values=states, colors=[style.rgb for style in styles]),
        }.items():
            self._stream.log(f"{at}/{entity}", style, static=True)

    def _boxes(self, xywh: Sequence[Sequence[float]], **style: Any) -> rerun.Boxes2D:
        return self._rr.Boxes2D(mins=[b[:2] for b in xywh], sizes=[b[2:] for b in xywh], **style)

    def _show(self, entity: str, what: Any) -> None:
        """Log ``what``, which the viewer shows until it is replaced; None clears what was shown."""
        if what is not None or self._shown.get(entity):
            self._stream.log(entity, self._rr.Clear(recursive=False) if what is None else what)
        self._shown[entity] = what is not None


def _of(target_id: int) -> str:
    """Return the target's part of an entity path: "/1" for target 1, "" for target 0."""
    return f"/{target_id}" if target_id else ""


def _outline(mask: NDArray[np.uint8]) -> list[NDArray[np.float32]]:
    """Return closed lines, each [n, 2] in px, through the centres of the mask's outer pixels.

    Lines are logged instead of the mask because the viewer would keep all pixels of all masks in memory.
    """
    import cv2

    lines = cv2.findContours(mask, cv2.RETR_LIST, cv2.CHAIN_APPROX_SIMPLE)[0]
    return [np.vstack([line[:, 0], line[:1, 0]]).astype(np.float32) + 0.5 for line in lines]


def _jpeg(bgr: NDArray[np.uint8]) -> bytes:
    import cv2

    return cv2.imencode(".jpg", bgr, [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])[1].tobytes()
