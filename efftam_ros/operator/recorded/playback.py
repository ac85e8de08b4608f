"""The page over a recording: the timeline once, then whichever images are asked for."""

from __future__ import annotations

import asyncio
import bisect
import math
import time
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from efftam_ros.core.errors import InputError
from efftam_ros.core.types import TrackState
from efftam_ros.operator import jpeg, wire
from efftam_ros.operator.feed import RecordedRun, Recording
from efftam_ros.operator.hub import LastSeen, track_message
from efftam_ros.operator.pairing import TrackedImage
from efftam_ros.operator.settings import Settings
from efftam_ros.operator.viewer import Viewer

MOST_CACHED_BYTES = 64 << 20


class Playback:
    """Answers `seek`, for each page on its own; of several requests of a page only the newest is served."""

    def __init__(self, recording: Recording, settings: Settings) -> None:
        self._recording, self._settings = recording, settings
        self._decoder = ThreadPoolExecutor(1, "decode")
        self._cached: OrderedDict[int, bytes] = OrderedDict()
        self._wanted: dict[Viewer, int] = {}
        self._tasks: dict[Viewer, asyncio.Task[None]] = {}

    def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        self._decoder.shutdown(wait=False, cancel_futures=True)

    def welcome(self, viewer: Viewer) -> None:
        viewer.tell(timeline_message(self._recording))

    def seek(self, viewer: Viewer, stamp_ns: int) -> None:
        """Show the image of ``stamp_ns``, or the last one before it."""
        stamps = self._recording.stamps_ns
        self._wanted[viewer] = max(0, bisect.bisect_right(stamps, stamp_ns) - 1)
        self._go_on(viewer)

    def acknowledged(self, viewer: Viewer, seq: int) -> None:
        viewer.credit.acknowledged(seq, time.monotonic())
        self._go_on(viewer)

    def left(self, viewer: Viewer) -> None:
        self._wanted.pop(viewer, None)
        task = self._tasks.pop(viewer, None)
        if task is not None:
            task.cancel()

    def _go_on(self, viewer: Viewer) -> None:
        if viewer in self._wanted and viewer.credit.is_ready and viewer not in self._tasks:
            self._tasks[viewer] = asyncio.create_task(self._serve(viewer))

    async def _serve(self, viewer: Viewer) -> None:
        loop = asyncio.get_running_loop()
        try:
            while viewer in self._wanted and viewer.credit.is_ready:
                index = self._wanted.pop(viewer)
                try:
                    data = await loop.run_in_executor(self._decoder, self._jpeg, index)
                except InputError as refused:
                    viewer.tell(
                        {"op": "answer", "id": "", "ok": False, "message": str(refused), "selection": 0}
                    )
                else:
                    self._show(viewer, index, data)
        finally:
            self._tasks.pop(viewer, None)

    def _show(self, viewer: Viewer, index: int, data: bytes) -> None:
        stamp_ns, seq = self._recording.stamps_ns[index], viewer.shown_seq + 1
        tracks = [
            wire.dumps(self._track(index, number, run, seq))
            for number, run in enumerate(self._recording.runs)
        ]
        for track in tracks:
            viewer.track(stamp_ns, track)
        frame = wire.frame(data, stamp_ns=stamp_ns, sent_ns=time.time_ns(), seq=seq, half=False)
        viewer.show(frame, stamp_ns=stamp_ns, seq=seq, track=tracks[0])

    def _track(self, index: int, number: int, run: RecordedRun, seq: int) -> dict[str, Any]:
        image = TrackedImage(self._recording.stamps_ns[index])
        box = run.boxes[index]
        motion = run.motions[index] if run.motions else None
        if box is None:
            message: dict[str, Any] = {"op": "track", "run": number, "seq": seq, "stamp": str(image.stamp_ns)}
            return {**message, "image": None, "latency_ms": None, "targets": []}
        image.boxes[box.target_id] = box
        if motion is not None:
            image.motions[box.target_id] = motion
        last_seen = LastSeen()
        # Images are requested in any order, so the last seen box is searched for.
        seen = next(
            (b for b in reversed(run.boxes[: index + 1]) if b is not None and b.box is not None), None
        )
        if seen is not None:
            last_seen.update(seen)
        return track_message(image, seq, last_seen, latency_ms=float("nan"), run=number)

    def _jpeg(self, index: int) -> bytes:
        data = self._cached.pop(index, None)
        if data is None:
            data = jpeg.encode(
                self._recording.picture(index), half=False, quality=self._settings.jpeg_quality
            )
        self._cached[index] = data
        while sum(map(len, self._cached.values())) > MOST_CACHED_BYTES:
            self._cached.popitem(last=False)
        return data


def timeline_message(recording: Recording) -> dict[str, Any]:
    """All stamps, and for each run the numbers to plot: one digit of TrackState per image (``-`` where
    there is none), speed px/s, presence, quality."""
    return {
        "op": "timeline",
        "stamps": [str(stamp) for stamp in recording.stamps_ns],
        "runs": [_series(run, len(recording.stamps_ns)) for run in recording.runs],
    }


def _series(run: RecordedRun, count: int) -> dict[str, Any]:
    boxes = run.boxes
    motions = run.motions or [None] * count
    return {
        "name": run.name,
        "states": "".join("-" if box is None else str(int(TrackState(box.state))) for box in boxes),
        "speed": [None if m is None else _rounded(math.hypot(*m.velocity), 1) for m in motions],
        "presence": [None if box is None else _rounded(box.presence, 3) for box in boxes],
        "quality": [None if box is None else _rounded(box.quality, 3) for box in boxes],
    }


def _rounded(value: float, digits: int) -> float | None:
    return round(value, digits) if math.isfinite(value) else None
