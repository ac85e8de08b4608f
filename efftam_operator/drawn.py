"""The page that a command-line program serves while it tracks a video file.

The operator draws the target on the first image, then watches how it is tracked.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from efftam_operator import feed
from efftam_operator.announce import announcement
from efftam_operator.server import OperatorServer, serving
from efftam_operator.settings import Settings
from efftam_ros.core.errors import InputError
from efftam_ros.core.reasons import Reason, ReasonCode
from efftam_ros.core.types import Prompt, Track, TrackState
from efftam_ros.messages.fields import Outcome
from efftam_ros.messages.reports import BoxReport, MotionReport, ResultReport, Selection, VideoProgress

DRAW = Reason(ReasonCode.NO_TARGET, "draw the target")
# The first image is sent again at this interval, so that pages opened later receive it, and no page reports
# that the camera stopped.
REPEAT_S = 0.2


class DrawnPrompt:
    """The feed of a program that tracks a video file. Its tracking thread calls `ask` and `show`."""

    def __init__(self) -> None:
        self._sink: feed.Sink | None = None
        # The picture to draw on: its stamp (ns), width and height (px). None: there is no picture yet.
        self._asked: tuple[int, int, int] | None = None
        self._drawn: Prompt | None = None
        self._has_drawn = threading.Event()
        self._lock = threading.Lock()

    def ask(self, bgr: NDArray[np.uint8], stamp_ns: int, progress: VideoProgress | None = None) -> Prompt:
        """Show an image until a person has drawn the target on it; returns the drawn prompt, in image px.

        Waits without a limit; Ctrl-C ends the wait. ``bgr``: uint8 [H, W, 3]. ``progress``: position in the
        video, None: not shown.
        """
        height, width = bgr.shape[:2]
        with self._lock:
            self._asked = stamp_ns, width, height
        waiting = Track(stamp_ns, TrackState.IDLE, image_size=(width, height), reason=DRAW)
        while not self._has_drawn.wait(REPEAT_S):
            self.show(bgr, waiting, progress)
        assert self._drawn is not None
        return self._drawn

    def show(self, bgr: NDArray[np.uint8], track: Track, progress: VideoProgress | None = None) -> None:
        """Show an image with the tracker's result for it. The pixels must stay unchanged afterwards.

        ``bgr``: uint8 [H, W, 3]. ``progress``: position in the video, None: not shown.
        """
        if self._sink is None:
            return
        selection = 1 if self._has_drawn.is_set() else 0
        self._sink(feed.Picture(track.stamp_ns, bgr=lambda: bgr, nbytes=bgr.nbytes))
        if progress is not None:
            self._sink(progress)
        known = {f.name: getattr(track, f.name) for f in fields(BoxReport) if hasattr(track, f.name)}
        known |= {"image_size": (bgr.shape[1], bgr.shape[0]), "selection": selection}
        if not selection:
            known |= dict.fromkeys(("confidence", "presence", "quality"), math.nan)
        self._sink(BoxReport(**known))
        velocity = (math.nan, math.nan) if track.motion is None else track.motion.velocity
        valid = track.motion is not None and track.box is not None
        self._sink(MotionReport(track.stamp_ns, valid=valid, velocity=velocity))

    def start(self, sink: feed.Sink) -> None:
        self._sink = sink

    def watch(self, watched: bool) -> None:
        """Do nothing: the server itself encodes images only while a page is open."""

    def hold(self, stamp_ns: int) -> None:
        """Do nothing: the first image stays available until the target was drawn."""

    def propose(self, selection: Selection) -> None:
        """Do nothing: the network is not loaded while the target is drawn."""

    def select(self, selection: Selection, reply: feed.Reply) -> None:
        refusal = self._take(selection)
        reply(feed.CommandAnswer(not refusal, refusal or "tracking starts", 0 if refusal else 1))
        if not refusal and self._sink is not None:
            self._sink(ResultReport(selection.stamp_ns, Outcome.ACCEPTED, selection=1))

    def clear(self, target_id: int, reply: feed.Reply) -> None:
        reply(feed.CommandAnswer(False, "a file is being tracked; end the command to give up the target"))

    def steer_by(self, target_id: int, reply: feed.Reply) -> None:
        reply(
            feed.CommandAnswer(
                False, "a file is tracked with one target only; there is no other target to choose"
            )
        )

    def _take(self, selection: Selection) -> str:
        """Accept the drawing. Returns an empty text, or in one line why the drawing is refused."""
        with self._lock:
            if self._asked is None:
                return "the first picture is not there yet; wait for it"
            if self._has_drawn.is_set():
                return "the target was drawn already; start the command anew for another"
            stamp_ns, width, height = self._asked
            if selection.stamp_ns != stamp_ns:
                return (
                    f"the selection names the picture with stamp {selection.stamp_ns} ns, but the one with"
                    f" {stamp_ns} ns is shown; draw again"
                )
            drawn = Prompt(box=selection.box, points=selection.points, labels=selection.labels)
            try:
                self._drawn = drawn.checked(width, height)
            except InputError as refusal:
                return str(refusal)
            self._has_drawn.set()
            return ""


@dataclass(frozen=True)
class ServedDrawing:
    """A page that is being served. ``page``: receives the images; ``urls``: the page's addresses."""

    page: DrawnPrompt
    urls: list[str]

    @property
    def announcement(self) -> str:
        """Lines for a terminal: the page's addresses, and what to do on the page."""
        return announcement(self.urls, " and draw the target")


@contextmanager
def drawn_page(address: str, port: int, token: str, over: str) -> Iterator[ServedDrawing]:
    """Serve the page inside a ``with`` block.

    Args:
        address: Address to listen on.
        port: Port to listen on; 0: a free one.
        token: Token that a page must send; "": a new one, or none if the address is a loopback address.
        over: Line that the page shows once the block has ended.

    Raises:
        InputError: The address or port can't be used.
    """
    drawn = DrawnPrompt()
    server = OperatorServer(Settings(address=address, port=port, token=token), drawn)
    with serving(server, over=over):
        yield ServedDrawing(drawn, server.urls)
