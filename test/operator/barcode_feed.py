"""A camera and tracker for tests: each picture carries its own stamp as a row of black and white blocks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from efftam_operator.feed import (
    CommandAnswer,
    Controller,
    Limits,
    Picture,
    Proposal,
    Reply,
    Report,
    Sink,
    SteeringState,
)
from efftam_ros.core.geometry import Box
from efftam_ros.core.types import TrackState
from efftam_ros.messages.fields import Outcome
from efftam_ros.messages.reports import BoxReport, MotionReport, ResultReport, Selection

BITS = 64
BLOCK = 8  # px: survives JPEG and half size


def barcode_picture(stamp_ns: int, width: int = 640, height: int = 360) -> np.ndarray:
    """uint8 [H, W, 3] BGR: a grey ramp, and in its top rows the stamp's 64 bits, least significant first."""
    row = np.linspace(60, 140, width).astype(np.uint8)
    bgr = np.repeat(np.repeat(row[None, :, None], height, 0), 3, 2)
    bits = np.array([stamp_ns >> i & 1 for i in range(BITS)], np.uint8) * 255
    bgr[: 2 * BLOCK, : BITS * BLOCK] = np.repeat(bits, BLOCK)[None, :, None]
    return bgr


class BarcodeFeed:
    """Runs at ``rate_hz`` on a thread of its own. A test says what the tracker claims (``state``, ``box``,
    ...) and reads what was selected. ``refuse``: the tracker's words for refusing, or empty."""

    def __init__(
        self, rate_hz: float = 15.0, size: tuple[int, int] = (640, 360), buffer_s: float = 8.0
    ) -> None:
        self.rate_hz, self.size, self.buffer_s = rate_hz, size, buffer_s
        self.state = TrackState.IDLE
        self.box: Box | None = None
        self.reason = ""
        self.others: dict[int, tuple[TrackState, Box]] = {}  # further targets, by id
        self.steered: int | None = 0
        self.max_targets = 1
        self.steered_by: list[int] = []
        self.asked: list[Selection] = []  # for proposals
        self.proposal: Callable[[Selection], Proposal] | None = None  # what answers them
        self.velocity = (0.0, 0.0)
        self.likeness = float("nan")
        self.selection = 0
        self.refuse = ""
        self.mute = False  # the tracker answers nothing and publishes nothing
        self.blind = False  # the tracker answers images that do not reach the page
        self.remake: Callable[[Picture], Report] | None = None  # what the camera sends instead
        self.answer_every = 1  # images per answer
        self.answer_late = 0  # images by which an answer comes late
        self.selections: list[Selection] = []
        self.cleared: list[int] = []
        self.held: list[int] = []
        self.watched: list[bool] = []
        self.stamps: list[int] = []
        self.sink: Sink | None = None
        self._ended_others: list[int] = []
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, sink: Sink) -> None:
        self.sink = sink
        self.tell_limits()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def tell_limits(self) -> None:
        assert self.sink is not None
        self.sink(Limits(self.buffer_s, self.max_targets))

    def watch(self, watched: bool) -> None:
        self.watched.append(watched)

    def hold(self, stamp_ns: int) -> None:
        self.held.append(stamp_ns)

    def propose(self, selection: Selection) -> None:
        self.asked.append(selection)
        if self.proposal is not None and self.sink is not None:
            self.sink(self.proposal(selection))

    def select(self, selection: Selection, reply: Reply) -> None:
        self.selections.append(selection)
        if self.mute:
            return
        if self.refuse:
            reply(CommandAnswer(False, self.refuse))
            return
        self.selection += 1
        if selection.target_id:
            target_id = selection.target_id
            if target_id == 255:
                target_id = next(i for i in range(1, 255) if i not in self.others)
            assert selection.box is not None
            self.others[target_id] = TrackState.TRACKING, selection.box
            reply(CommandAnswer(True, f"following target {target_id}", self.selection))
            return
        self.box, self.state = selection.box, TrackState.TRACKING
        if selection.points:
            (x, y), *_ = selection.points
            self.box = Box.from_centre(x, y, 20, 20)
        reply(CommandAnswer(True, f"following selection {self.selection}", self.selection))
        self._tell(ResultReport(selection.stamp_ns, Outcome.ACCEPTED, selection=self.selection))

    def clear(self, target_id: int, reply: Reply) -> None:
        self.cleared.append(target_id)
        if target_id in self.others:
            self._ended_others.append(target_id)
            del self.others[target_id]
        else:
            self.box, self.state = None, TrackState.IDLE
        reply(CommandAnswer(True, "cleared"))
        self._tell(ResultReport(0, Outcome.CLEARED))

    def steer_by(self, target_id: int, reply: Reply) -> None:
        self.steered_by.append(target_id)
        self.steered = target_id
        reply(CommandAnswer(True))

    def close(self) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def emit(self, stamp_ns: int) -> None:
        """One image with its reports."""
        assert self.sink is not None
        width, height = self.size
        picture = barcode_picture(stamp_ns, width, height)
        self.stamps.append(stamp_ns)
        if not self.blind:
            made = Picture(stamp_ns, bgr=lambda: picture)
            self.sink(self.remake(made) if self.remake else made)
        late = len(self.stamps) - 1 - self.answer_late
        if not self.mute and late >= 0 and late % self.answer_every == 0:
            self.answer(self.stamps[late])

    def answer(self, stamp_ns: int) -> None:
        """What the tracker says of one image."""
        assert self.sink is not None
        shown = self.state not in (TrackState.IDLE, TrackState.LOST)
        measured = self.state in (TrackState.TRACKING, TrackState.ACQUIRING)
        self.sink(
            BoxReport(
                stamp_ns,
                state=self.state,
                image_size=self.size,
                selection=self.selection,
                reason=self.reason,
                measured=measured,
                box=self.box if shown else None,
                presence=0.97 if measured else 0.1,
                quality=0.85 if measured else float("nan"),
                age_s=0.0 if measured else 1.5,
                likeness=self.likeness,
                steered=self.steered == 0,
            )
        )
        self.sink(MotionReport(stamp_ns, valid=shown, velocity=self.velocity))
        for id, (state, box) in sorted(self.others.items()):
            self.sink(MotionReport(stamp_ns, id, valid=True, velocity=(0.0, 0.0)))
            self.sink(
                BoxReport(
                    stamp_ns,
                    id,
                    state,
                    image_size=self.size,
                    measured=True,
                    box=box,
                    steered=self.steered == id,
                )
            )
        while self._ended_others:
            id = self._ended_others.pop()
            self.sink(MotionReport(stamp_ns, id))
            self.sink(BoxReport(stamp_ns, id, image_size=self.size, steered=False))

    def _tell(self, result: ResultReport) -> None:
        assert self.sink is not None
        self.sink(result)

    def _run(self) -> None:
        due = time.monotonic()
        while not self._ended.is_set():
            self.emit(time.time_ns())
            due += 1 / self.rate_hz
            self._ended.wait(max(0.0, due - time.monotonic()))


class RecordedSteering:
    """Notes what was asked of the gimbal, and says so to the page."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.mute = False  # the controller answers nothing
        self.sink: Sink | None = None

    def start(self, sink: Sink) -> None:
        self.sink = sink
        self.say(phase="off")

    def say(self, controller: Controller = Controller.RUNNING, **fields: Any) -> None:
        """What the controller says of itself."""
        assert self.sink is not None
        self.sink(SteeringState(controller, **fields))

    def enable(self, reply: Reply) -> None:
        self._do("enable", True, reply)

    def stop(self, reply: Reply) -> None:
        self._do("stop", False, reply)

    def _do(self, call: str, enabled: bool, reply: Reply) -> None:
        self.calls.append(call)
        if not self.mute:
            self.say(enabled=enabled, phase="following" if enabled else "off")
            reply(CommandAnswer(True, call))
