"""The live page: sends each image, track and state of the feed to all viewers."""

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
# A tracker that searches a whole image answers rarely: it is called silent this much later.
SEARCH_PATIENCE = 3.0
# A picture older than this is not shown to a page that opens.
OLD_S = 2.0
# Of the internal errors in one place one is logged in this time, and the last is shown for so long, s.
LOG_S, RECENT_S = 10.0, 10.0
LOG = logging.getLogger("efftam_operator")
# Level of a picture that is drawn on: its whole size, and of a quality that a slow link brings soon.
DRAWN_ON = 1


class Hub:
    """The feed's `Sink` is `report`, which comes from any thread; all else runs on the loop.

    Each image is encoded at most once per size, on a thread of its own, and only if some viewer can take
    it; what comes meanwhile replaces what waits.
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
        # What is sent to a page that opens, the last of each kind.
        self._known: dict[type, feed.Limits | feed.SteeringState | feed.FollowState] = {
            feed.Limits: feed.Limits()
        }
        self._is_watched = False

    def report(self, report: feed.Report) -> None:
        """Take a report, from any thread."""
        self.post(self._take, report, time.time_ns())

    def post(self, call: Callable[..., None], *values: Any) -> None:
        """Do ``call`` on the loop's thread; callable from any thread. Does nothing unless the server runs."""
        loop = self._loop
        if loop is None:
            return
        try:
            loop.call_soon_threadsafe(call, *values)
        except RuntimeError:  # the loop was closed in between
            self._loop = None

    # The loop's thread.

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
        """Return whether somebody sees a page; called after every change of that."""
        before, self._is_watched = self._is_watched, any(not viewer.is_hidden for viewer in self.viewers)
        now_s = time.monotonic()
        if not self._is_watched:
            self._chain.refusal = ""  # no picture comes that could take it back
        if self._is_watched and not before and self._chain.watched(now_s):
            # An old picture must not look like the present one.
            self._newest = None
            self._pictures.forget(now_s)
        self._wanted.set()
        return self._is_watched

    @property
    def steered_target(self) -> int | None:
        """Id of the target that is steered by, None where there is none."""
        return self._tracks.steered

    @property
    def is_steered(self) -> bool:
        """Whether the gimbal's controller last reported that it is enabled."""
        return any(isinstance(one, feed.SteeringState) and one.enabled for one in self._known.values())

    def acknowledged(self, viewer: Viewer, seq: int) -> None:
        viewer.acknowledged(seq)
        self._wanted.set()

    def want(self, viewer: Viewer, stamp_ns: int) -> None:
        """Send the page a picture again, in its whole size."""
        viewer.want(stamp_ns)
        self._wanted.set()

    def status(self) -> dict[str, Any]:
        """Return the state of the chain, for pages, `/health` and diagnostics."""
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
        """Wait until every page has all messages and the newest picture."""
        while any(
            v.is_sending or (not v.is_hidden and (v.pace.is_under_way or v.pace.newest_seq < self._seq))
            for v in self.viewers
        ):
            await asyncio.sleep(0.02)

    async def send_frames(self) -> None:
        """Encode the newest picture for every page that can take it, as long as the server runs."""
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
                # Pages that joined or acknowledged meanwhile are checked again.
                for viewer in self.viewers:
                    if viewer.can_take(seq, level):
                        track = self._tracks.sent.get(picture.stamp_ns)
                        viewer.show(frame, seq, track, picture, whole_px)

    async def _made(self, picture: feed.Picture, level: int, seq: int) -> tuple[bytes, int] | None:
        """Return the message that shows a picture, and the width of the camera's image, px; None where it
        can't be read."""
        quality, width = LEVELS[level]
        quality = min(quality, self._settings.jpeg_quality)
        make = partial(jpeg.encode, picture, quality, width if level else None)
        try:
            data, size = await asyncio.get_running_loop().run_in_executor(self._encoder, make)
        except Exception as error:  # of one picture: the next may be well
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
                # While nobody watches, being active is enough to be called alive.
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
    """Unforeseen errors of the server, which continues after them. Thread-safe."""

    def __init__(self) -> None:
        self.count = 0
        self._last, self._last_s = "", float("-inf")
        self._logged_s: dict[str, float] = {}

    def add(self, where: str, error: BaseException) -> str:
        """Count one, and write its traceback to the log, of each place at most every `LOG_S`. Returns one
        line."""
        now_s, text = time.monotonic(), f"internal error in {where} ({type(error).__name__}: {error})"
        self.count += 1
        self._last, self._last_s = text, now_s
        if now_s - self._logged_s.get(where, float("-inf")) >= LOG_S:
            self._logged_s[where] = now_s
            LOG.error(text, exc_info=error)
        return text

    def recent(self, now_s: float) -> str:
        """Return the last one, for `RECENT_S`; then empty."""
        return self._last if now_s - self._last_s < RECENT_S else ""


class LastReceived:
    """When camera and tracker sent last. ``now_s``: a monotonic clock.

    ``refusal``: why pictures can't be read; ``missing``: why none comes; ``trackers``: names of those that
    answer; ``restarted``: the tracker was started again, has forgotten its target, and follows none since;
    ``latency_ms``: from the newest answered image's stamp to the answer.
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
        self.has_target = False  # until the tracker gives a reason why it has none
        self.restarted = False
        self._still_s = 0.0
        self.latency_ms = float("nan")

    def watched(self, now_s: float) -> bool:
        """Pictures are asked for from now on; returns whether the last one is old."""
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
        elif report.reason:  # a tracker that has never had a target gives none
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
            # If answers continue, they are to images that do not arrive here.
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
