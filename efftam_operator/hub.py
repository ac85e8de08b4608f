"""Sends each image, track and state of the feed to all open pages."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from efftam_operator import feed, jpeg, wire
from efftam_operator.pace import LEVELS
from efftam_operator.pairing import MOTION_WAIT_S, Tracks, WaitingPictures
from efftam_operator.settings import Settings
from efftam_operator.viewer import Viewer
from efftam_ros.core.errors import InputError
from efftam_ros.core.types import TrackState
from efftam_ros.images.stillness import FROZEN_S
from efftam_ros.messages.fields import Outcome
from efftam_ros.messages.positions import PositionReport
from efftam_ros.messages.reports import BoxReport, MotionReport, ResultReport

RATE_WINDOW_S = 2.0
# A tracker that searches for a lost target answers rarely. It counts as silent only after this multiple of
# the setting `silent_s`.
SEARCH_PATIENCE = 3.0
# When the first page opens, a picture older than this is dropped, s.
OLD_S = 2.0
# Internal errors of one place are logged at most every LOG_S seconds; the last error is shown for RECENT_S
# seconds.
LOG_S, RECENT_S = 10.0, 10.0
LOG = logging.getLogger("efftam_operator")
# Index in `LEVELS` for a picture on which a user draws: full size, with a quality that a slow link can carry.
DRAWN_ON = 1


class Hub:
    """Receives the feed's reports and sends them to the viewers, the open pages.

    `report` and `post` may be called from any thread, all other methods only on the event loop's thread.
    Each image is encoded at most once per level, on the encoder's thread, and only if a viewer is ready for
    it. An image that arrives during the encoding replaces an image that waits for it.
    """

    def __init__(self, settings: Settings) -> None:
        self.viewers: list[Viewer] = []
        self._settings = settings
        self._tracks, self._pictures = Tracks(), WaitingPictures()
        self._chain = LastReceived(settings.silent_s)
        self.faults = Faults()
        self._encoder = ThreadPoolExecutor(1, "jpeg")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._newest: feed.Picture | None = None
        self._seq = 0
        self._wanted = asyncio.Event()
        # The last report of each of these kinds; a page that opens receives them.
        self._known: dict[type, feed.Limits | feed.SteeringState | feed.FollowState] = {
            feed.Limits: feed.Limits()
        }
        self._is_watched = False

    def report(self, report: feed.Report) -> None:
        """Receive a report of the feed (this is its `Sink`); callable from any thread."""
        self.post(self._take, report, time.time_ns())

    def post(self, call: Callable[..., None], *values: Any) -> None:
        """Call ``call`` with ``values`` on the event loop's thread; callable from any thread.

        Does nothing unless the server runs.
        """
        loop = self._loop
        if loop is None:
            return
        try:
            loop.call_soon_threadsafe(call, *values)
        except RuntimeError:  # the loop was closed in between
            self._loop = None

    # All methods from here on are called on the event loop's thread.

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def close(self) -> None:
        self._loop = None
        self._encoder.shutdown(wait=False, cancel_futures=True)

    def send_to_all(self, message: dict[str, Any]) -> None:
        for viewer in self.viewers:
            viewer.send(message)

    def join(self, viewer: Viewer) -> None:
        self.viewers.append(viewer)
        self.watch()
        viewer.send(self.status_message())
        for known in self._known.values():
            viewer.send(wire.report_message(known))
        self._wanted.set()

    def watch(self) -> bool:
        """Return whether any page is visible. Must be called when a page opens, closes, hides or shows."""
        before, self._is_watched = self._is_watched, any(not viewer.is_hidden for viewer in self.viewers)
        now_s = time.monotonic()
        if not self._is_watched:
            self._chain.refusal = ""  # no picture arrives now that could show that the fault is over
        if self._is_watched and not before and self._chain.watched(now_s):
            # An old picture must not look like the present one.
            self._newest = None
            self._pictures.forget(now_s)
        self._wanted.set()
        return self._is_watched

    @property
    def steered_target(self) -> int | None:
        """Id of the steered target; None if there is none."""
        return self._tracks.steered

    @property
    def is_steered(self) -> bool:
        """Whether the last status of the gimbal's controller reported that steering is enabled."""
        return any(isinstance(one, feed.SteeringState) and one.enabled for one in self._known.values())

    def acknowledged(self, viewer: Viewer, seq: int) -> None:
        viewer.acknowledged(seq)
        self._wanted.set()

    def want(self, viewer: Viewer, stamp_ns: int) -> None:
        """Send the picture of this stamp to the page again, in full size."""
        viewer.want(stamp_ns)
        self._wanted.set()

    def status(self) -> dict[str, Any]:
        """Return the state of camera, tracker and server, for the pages, `/health` and diagnostics."""
        now_s = time.monotonic()
        return {
            **self._chain.status(now_s),
            "viewers": len(self.viewers),
            "internal_errors": self.faults.count,
            "internal_error": self.faults.recent(now_s),
        }

    def status_message(self) -> dict[str, Any]:
        return {"op": "status", **self.status()}

    async def show_last(self) -> None:
        """Wait until every page has received all messages, and every visible page the newest picture."""
        while any(
            v.is_sending or (not v.is_hidden and (v.pace.is_under_way or v.pace.newest_seq < self._seq))
            for v in self.viewers
        ):
            await asyncio.sleep(0.02)

    async def send_frames(self) -> None:
        """Send the newest picture to every page that is ready for it; runs as long as the server runs."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            for viewer in list(self.viewers):
                if viewer.wanted is not None:
                    whole = await self._made(viewer.wanted, DRAWN_ON, wire.WHOLE_SEQ)
                    viewer.show_whole(whole[0] if whole else None)
            if self._newest is None:
                continue
            seq, picture = self._seq, self._newest
            for level in sorted({viewer.pace.level for viewer in self.viewers}):
                if not any(viewer.can_take(seq, level) for viewer in self.viewers):
                    continue
                made = await self._made(picture, level, seq)
                if made is None:
                    break
                frame, whole_px = made
                # Each page is checked again, because further pages may have become ready during the encoding.
                for viewer in self.viewers:
                    if viewer.can_take(seq, level):
                        track = self._tracks.sent.get(picture.stamp_ns)
                        viewer.show(frame, seq, track, picture, whole_px)

    async def _made(self, picture: feed.Picture, level: int, seq: int) -> tuple[bytes, int] | None:
        """Encode a picture.

        Returns the binary message for the page and the width of the camera's image, px (0: as the JPEG's);
        None if the picture can't be read.
        """
        quality, width = LEVELS[level]
        quality = min(quality, self._settings.jpeg_quality)
        make = partial(jpeg.encode, picture, quality, width if level else None)
        try:
            data, size = await asyncio.get_running_loop().run_in_executor(self._encoder, make)
        except Exception as error:  # this picture can't be read; the next one may be readable
            is_foreseen = isinstance(error, InputError)
            self._chain.refusal = str(error) if is_foreseen else self.faults.add("a picture", error)
            if picture is self._newest:
                self._newest = None
            return None
        self._chain.refusal = ""
        sent_ns = time.time_ns()
        return wire.frame(data, size, stamp_ns=picture.stamp_ns, sent_ns=sent_ns, seq=seq), size[0]

    def _take(self, report: feed.Report, arrived_ns: int) -> None:
        now_s, chain = time.monotonic(), self._chain
        match report:
            case feed.Picture():
                chain.picture(now_s, report.still_s)
                self._pictures.add(report, now_s)
                self._later(self._pictures.hold_s(now_s), self._show_newest)
            case BoxReport():
                chain.answer(report, (arrived_ns - report.stamp_ns) / 1e6, now_s)
                self._tracks.add_box(report, now_s)
                self._send_finished()
                if self._tracks.is_waiting:
                    self._later(MOTION_WAIT_S, self._send_finished)
            case MotionReport():
                self._tracks.add_motion(report, now_s)
                self._send_finished()
            case feed.Unreadable(reason):
                chain.refusal = reason
            case feed.NoImages(reason):
                chain.missing = reason
            case feed.Trackers(names, has_restarted):
                chain.trackers = names
                if has_restarted:
                    chain.restart()
                self.send_to_all(self.status_message())
            case feed.Lifecycle():
                # While no page is visible, boxes are not received. So an active node counts as an answer.
                chain.inactive = report is feed.Lifecycle.INACTIVE
                if report is feed.Lifecycle.ACTIVE and not self._is_watched:
                    chain.answered_s = now_s
            case PositionReport():
                self.send_to_all(wire.position(report))
            case feed.Limits() | feed.SteeringState() | feed.FollowState():
                if report != self._known.get(type(report)):
                    self._known[type(report)] = report
                    self.send_to_all(wire.report_message(report))
            case _:
                if isinstance(report, ResultReport) and report.outcome is Outcome.CLEARED:
                    chain.has_target = False
                self.send_to_all(wire.report_message(report))

    def _later(self, wait_s: float, call: Callable[[], None]) -> None:
        if wait_s <= 0:
            call()
        elif self._loop is not None:
            self._loop.call_later(wait_s, call)

    def _send_finished(self) -> None:
        now_s = time.monotonic()
        for stamp_ns, text in self._tracks.finished(now_s, self._chain.latency_ms):
            self._pictures.answered(stamp_ns, now_s)
            for viewer in self.viewers:
                viewer.track(text)
        self._show_newest()

    def _show_newest(self) -> None:
        now_s = time.monotonic()
        picture = self._pictures.newest(now_s)
        if picture is None:
            return
        self._seq += 1
        self._newest = picture
        self._wanted.set()


class Faults:
    """Counts and logs unforeseen errors. The server continues to run after them. Thread-safe."""

    def __init__(self) -> None:
        self.count = 0
        self._last, self._last_s = "", float("-inf")
        self._logged_s: dict[str, float] = {}

    def add(self, where: str, error: BaseException) -> str:
        """Count an error, and log its traceback unless one of the same place was logged within `LOG_S`.

        ``where``: the place, such as "a picture". Returns one line that describes the error.
        """
        now_s, text = time.monotonic(), f"internal error in {where} ({type(error).__name__}: {error})"
        self.count += 1
        self._last, self._last_s = text, now_s
        if now_s - self._logged_s.get(where, float("-inf")) >= LOG_S:
            self._logged_s[where] = now_s
            LOG.error(text, exc_info=error)
        return text

    def recent(self, now_s: float) -> str:
        """Return the line of the last error if it is not older than `RECENT_S`, else ""."""
        return self._last if now_s - self._last_s < RECENT_S else ""


class LastReceived:
    """Stores when images and boxes arrive, and computes the state of camera and tracker from these times.

    ``refusal``: why pictures can't be read. ``missing``: why no picture arrives. ``trackers``: names of the
    nodes that publish boxes. ``inactive``: the tracker's node is not activated. ``answered_s``: time of the
    last box. ``restarted``: the tracker was started again, has forgotten its target, and has followed none
    since. ``latency_ms``: time from the stamp of the newest answered image to the answer. ``now_s`` of every
    method comes from one monotonic clock.
    """

    def __init__(self, silent_s: float) -> None:
        self._silent_s = self._patience_s = silent_s
        self._times: deque[float] = deque()
        self._picture_s: float | None = None
        self.answered_s = float("-inf")
        self.inactive = False
        self.refusal = ""
        self.missing = ""
        self.trackers: tuple[str, ...] = ()
        self.has_target = False
        self.restarted = False
        self._still_s = 0.0
        self.latency_ms = float("nan")

    def watched(self, now_s: float) -> bool:
        """Record that somebody watches the pictures from now on.

        Returns whether the last picture is older than `OLD_S`, or there is none.
        """
        is_old = self._picture_s is None or now_s - self._picture_s > OLD_S
        self._picture_s = now_s
        return is_old

    def picture(self, now_s: float, still_s: float = 0.0) -> None:
        self._times.append(now_s)
        self._picture_s, self._still_s = now_s, still_s
        self.missing = ""

    def answer(self, report: BoxReport, latency_ms: float, now_s: float) -> None:
        self.answered_s, self.inactive, self.latency_ms = now_s, False, latency_ms
        if report.state is not TrackState.IDLE:
            self.has_target, self.restarted = True, False
        elif report.reason:
            # An IDLE report without a reason comes from a tracker that has just started. It leaves has_target
            # unchanged, because `restart` needs to know whether there was a target before.
            self.has_target = False
        is_lost = report.state is TrackState.LOST
        self._patience_s = self._silent_s * (SEARCH_PATIENCE if is_lost else 1.0)

    def restart(self) -> None:
        """Note that the tracker was started again and has forgotten its target."""
        self.restarted |= self.has_target
        self.has_target = False

    def status(self, now_s: float) -> dict[str, Any]:
        while self._times and now_s - self._times[0] > RATE_WINDOW_S:
            self._times.popleft()
        silence_s = now_s - self.answered_s
        alive = "alive" if silence_s <= self._patience_s else "silent"
        image_s = 0.0 if self._picture_s is None else now_s - self._picture_s
        camera = "alive"
        if image_s > self._silent_s:
            # ahead_s: by how much the last image that the tracker answered is newer than the last image that
            # this server received. If it is clearly newer, the camera sends, and only this server receives
            # nothing.
            ahead_s = image_s - silence_s - (self.latency_ms / 1e3 if abs(self.latency_ms) < 1e4 else 0.0)
            camera = "unseen" if ahead_s > self._silent_s / 2 else "stopped"
        return {
            "camera": camera,
            "tracker": "inactive" if self.inactive else alive,
            "tracker_silent_s": round(silence_s, 1) if silence_s < 1e6 else None,
            "image_hz": round(len(self._times) / RATE_WINDOW_S, 1),
            "image_silent_s": round(image_s, 1),
            "latency_ms": round(self.latency_ms, 1),
            "picture": self.refusal,
            "missing": self.missing,
            "trackers": list(self.trackers),
            "restarted": self.restarted,
            "has_target": self.has_target,
            "frozen_s": round(self._still_s, 1) if self._still_s >= FROZEN_S else None,
        }
