"""The live page: sends each image, track and state of the feed to all viewers."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box
from efftam_ros.core.types import TrackState
from efftam_ros.operator import jpeg, wire
from efftam_ros.operator.feed import BoxReport, MotionReport, Picture, Result, SteeringState
from efftam_ros.operator.pairing import MOST_TRACKS, MOTION_WAIT_S, Pairing, TrackedImage
from efftam_ros.operator.settings import Settings
from efftam_ros.operator.viewer import Viewer

RATE_WINDOW_S = 2.0


class Hub:
    """The feed's `Sink`. Its public methods of that protocol come from any thread; all else runs on the loop.

    Each image is encoded at most once per size, on a thread of its own, and only if some viewer can take
    it; what comes meanwhile replaces what waits.
    """

    def __init__(self, settings: Settings) -> None:
        self.viewers: list[Viewer] = []
        self._settings = settings
        self._pairing = Pairing()
        self._encoder = ThreadPoolExecutor(1, "jpeg")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._newest: tuple[int, Picture] | None = None
        self._tracks: OrderedDict[int, str] = OrderedDict()
        self._seq = 0
        self._track_seq = 0
        self._last_seen = LastSeen()
        self._wanted = asyncio.Event()
        self._picture_times: deque[float] = deque()
        self._heard_s = float("-inf")
        self._inactive = False
        self._picture_refusal = ""
        self._steering: SteeringState | None = None
        self._latency_ms = float("nan")

    # Any thread.

    def picture(self, picture: Picture) -> None:
        self.post(self._add_picture, picture)

    def unreadable(self, reason: str) -> None:
        self.post(self._set_unreadable, reason)

    def box(self, report: BoxReport) -> None:
        self.post(self._add_box, report, time.time_ns())

    def motion(self, report: MotionReport) -> None:
        self.post(self._add_motion, report)

    def result(self, result: Result) -> None:
        self.post(self._tell_result, result)

    def active(self) -> None:
        self.post(self._set_active)

    def inactive(self, inactive: bool) -> None:
        self.post(self._set_inactive, inactive)

    def steering(self, state: SteeringState) -> None:
        self.post(self._set_steering, state)

    def post(self, call: Callable[..., None], *values: Any) -> None:
        """Have ``call`` done on the loop's thread; nothing happens unless the server runs."""
        loop = self._loop
        if loop is None:
            return
        try:
            loop.call_soon_threadsafe(call, *values)
        except RuntimeError:  # the loop was closed in between
            self._loop = None

    # The loop's thread.

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start to accept the feed's calls."""
        self._loop = loop

    def close(self) -> None:
        self._loop = None
        self._encoder.shutdown(wait=False, cancel_futures=True)

    def tell_all(self, message: dict[str, Any]) -> None:
        for viewer in self.viewers:
            viewer.tell(message)

    def welcome(self, viewer: Viewer) -> None:
        """Send a new page the present state."""
        viewer.tell(self.status_message())
        if self._steering is not None:
            viewer.tell(_steering_message(self._steering))
        self._wanted.set()

    def acknowledged(self, viewer: Viewer, seq: int) -> None:
        viewer.credit.acknowledged(seq, time.monotonic())
        self._wanted.set()

    def status(self) -> dict[str, Any]:
        """The state of the chain, for pages, `/health` and diagnostics."""
        now_s = time.monotonic()
        while self._picture_times and now_s - self._picture_times[0] > RATE_WINDOW_S:
            self._picture_times.popleft()
        if self._inactive:
            tracker = "inactive"
        else:
            tracker = "alive" if now_s - self._heard_s <= self._settings.silent_s else "silent"
        return {
            "tracker": tracker,
            "image_hz": round(len(self._picture_times) / RATE_WINDOW_S, 1),
            "viewers": len(self.viewers),
            "latency_ms": round(self._latency_ms, 1),
            "picture": self._picture_refusal,
        }

    def status_message(self) -> dict[str, Any]:
        return {"op": "status", **self.status()}

    async def show_last(self) -> None:
        """Wait until every page has the newest picture; not longer than the pages take pictures."""
        while any(v.credit.is_under_way or v.shown_seq < self._seq for v in self.viewers):
            await asyncio.sleep(0.02)

    async def send_frames(self) -> None:
        """Runs as long as the server does: encodes the newest picture for whoever can take it."""
        loop = asyncio.get_running_loop()
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            if self._newest is None:
                continue
            seq, picture = self._newest
            for half in (False, True):
                takers = [v for v in self.viewers if v.credit.half == half and self._can_take(v, seq)]
                if not takers:
                    continue
                try:
                    data = await loop.run_in_executor(self._encoder, self._encode, picture, half)
                    self._picture_refusal = ""
                except InputError as refused:
                    self._picture_refusal = str(refused)
                    self._newest = None
                    break
                for viewer in takers:
                    if viewer in self.viewers and self._can_take(viewer, seq):
                        self._show(viewer, seq, picture.stamp_ns, data, half)

    def _can_take(self, viewer: Viewer, seq: int) -> bool:
        return viewer.credit.is_ready and viewer.shown_seq < seq

    def _show(self, viewer: Viewer, seq: int, stamp_ns: int, data: bytes, half: bool) -> None:
        frame = wire.frame(data, stamp_ns=stamp_ns, sent_ns=time.time_ns(), seq=seq, half=half)
        viewer.show(frame, stamp_ns=stamp_ns, seq=seq, track=self._tracks.get(stamp_ns, ""))

    def _encode(self, picture: Picture, half: bool) -> bytes:
        return jpeg.encode(picture, half=half, quality=self._settings.jpeg_quality)

    def _add_picture(self, picture: Picture) -> None:
        self._picture_times.append(time.monotonic())
        self._pairing.add_picture(picture)
        self._show_newest()

    def _set_unreadable(self, reason: str) -> None:
        self._picture_refusal = reason

    def _add_box(self, report: BoxReport, arrived_ns: int) -> None:
        self._heard_s = now_s = time.monotonic()
        self._inactive = False
        self._latency_ms = (arrived_ns - report.stamp_ns) / 1e6
        self._pairing.add_box(report, now_s)
        self._tell_finished()
        if self._pairing.is_waiting and self._loop is not None:
            self._loop.call_later(MOTION_WAIT_S, self._tell_finished)

    def _add_motion(self, report: MotionReport) -> None:
        self._pairing.add_motion(report, time.monotonic())
        self._tell_finished()

    def _tell_finished(self) -> None:
        finished = self._pairing.finished(time.monotonic())
        for image in finished:
            self._track_seq += 1
            message = track_message(image, self._track_seq, self._last_seen, latency_ms=self._latency_ms)
            text = wire.dumps(message)
            self._tracks[image.stamp_ns] = text
            for viewer in self.viewers:
                viewer.track(image.stamp_ns, text)
        while len(self._tracks) > MOST_TRACKS:
            self._tracks.popitem(last=False)
        if finished:
            self._show_newest()

    def _show_newest(self) -> None:
        picture = self._pairing.newest_picture()
        if picture is None:
            return
        self._seq += 1
        self._newest = self._seq, picture
        now_s = time.monotonic()
        for viewer in self.viewers:
            viewer.credit.offered(now_s)
        self._wanted.set()

    def _tell_result(self, result: Result) -> None:
        self.tell_all(
            {
                "op": "result",
                "stamp": str(result.stamp_ns),
                "target": result.target_id,
                "selection": result.selection,
                "outcome": result.outcome.name,
                "message": result.message,
            }
        )

    def _set_active(self) -> None:
        if not self.viewers:
            self._heard_s = time.monotonic()

    def _set_inactive(self, inactive: bool) -> None:
        self._inactive = inactive

    def _set_steering(self, state: SteeringState) -> None:
        if state != self._steering:
            self._steering = state
            self.tell_all(_steering_message(state))


class LastSeen:
    """The last measured box of each target, until its selection ends."""

    def __init__(self) -> None:
        self._boxes: dict[int, tuple[int, Box]] = {}

    def update(self, report: BoxReport) -> Box | None:
        """What was last seen of the target as of this report."""
        if report.box is not None:
            self._boxes[report.target_id] = report.selection, report.box
        selection, box = self._boxes.get(report.target_id, (None, None))
        return box if selection == report.selection and report.state is not TrackState.IDLE else None


def track_message(image: TrackedImage, seq: int, last_seen: LastSeen, *, latency_ms: float) -> dict[str, Any]:
    """The message with all targets of an image. ``latency_ms`` from the image's stamp to its box's
    arrival."""
    return {
        "op": "track",
        "seq": seq,
        "stamp": str(image.stamp_ns),
        "image": list(image.image_size),
        "latency_ms": round(latency_ms, 1) if abs(latency_ms) < 1e7 else None,
        "targets": [
            wire.target(box, image.motions.get(id), last_seen.update(box))
            for id, box in sorted(image.boxes.items())
        ],
    }


def _steering_message(state: SteeringState) -> dict[str, Any]:
    return {
        "op": "steering",
        "controller": state.controller.value,
        "enabled": state.enabled,
        "phase": state.phase,
        "reason": state.reason,
    }
