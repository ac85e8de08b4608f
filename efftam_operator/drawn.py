"""The page of a command that tracks a file: the operator draws on its first image, then watches."""

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
# The first image is sent again at this interval: pages opened later get it, and none reports it as old.
REPEAT_S = 0.2


class DrawnPrompt:
    """The feed of one command. `ask` and `show` are called by the thread that tracks."""

    def __init__(self) -> None:
        self._sink: feed.Sink | None = None
        self._asked: tuple[int, int, int] | None = None  # stamp, width, height of the picture to draw on
        self._drawn: Prompt | None = None
        self._has_drawn = threading.Event()
        self._lock = threading.Lock()

    def ask(self, bgr: NDArray[np.uint8], stamp_ns: int, progress: VideoProgress | None = None) -> Prompt:
        """Show a picture, uint8 [H, W, 3], until a person has drawn on it; gives what was drawn, in image px.
        Waits as long as it takes; Ctrl-C ends it."""
        height, width = bgr.shape[:2]
        with self._lock:
            self._asked = stamp_ns, width, height
        waiting = Track(stamp_ns, TrackState.IDLE, image_size=(width, height), reason=DRAW)
        while not self._has_drawn.wait(REPEAT_S):
            self.show(bgr, waiting, progress)
        assert self._drawn is not None
        return self._drawn

    def show(self, bgr: NDArray[np.uint8], track: Track, progress: VideoProgress | None = None) -> None:
        """Show a picture with what was tracked in it, and how far a video is. The pixels must stay
        unchanged afterwards."""
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
        """Ignored: the server encodes an image only for open pages."""

    def hold(self, stamp_ns: int) -> None:
        """Do nothing: the first image stays until it was drawn on."""

    def propose(self, selection: Selection) -> None:
        """Ignored: the network is not loaded yet."""

    def select(self, selection: Selection, reply: feed.Reply) -> None:
        refusal = self._take(selection)
        reply(feed.CommandAnswer(not refusal, refusal or "tracking starts", 0 if refusal else 1))
        if not refusal and self._sink is not None:
            self._sink(ResultReport(selection.stamp_ns, Outcome.ACCEPTED, selection=1))

    def clear(self, target_id: int, reply: feed.Reply) -> None:
        reply(feed.CommandAnswer(False, "a file is being tracked; end the command to give up the target"))

    def steer_by(self, target_id: int, reply: feed.Reply) -> None:
        reply(feed.CommandAnswer(False, "of a file one target is tracked"))

    def _take(self, selection: Selection) -> str:
        """Accept the drawing; returns why not, one line, empty when accepted."""
        with self._lock:
            if self._asked is None:
                return "the first picture is not there yet; wait for it"
            if self._has_drawn.is_set():
                return "the target was drawn already; start the command anew for another"
            stamp_ns, width, height = self._asked
            if selection.stamp_ns != stamp_ns:
                return (
                    f"the selection is on the picture of {selection.stamp_ns}, not of {stamp_ns}; draw again"
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
    """A page that is served. ``page``: for the images; ``urls``: where it opens."""

    page: DrawnPrompt
    urls: list[str]

    @property
    def announcement(self) -> str:
        """Lines for a terminal: where the page opens, and what to do there."""
        return announcement(self.urls, " and draw the target")


@contextmanager
def drawn_page(address: str, port: int, token: str, over: str) -> Iterator[ServedDrawing]:
    """Serve the page inside a ``with`` block.

    Args:
        address: Address to listen on.
        port: Port to listen on; 0: a free one.
        token: What a page must send; "": a new one if the address is not local.
        over: What the page shows once the block has ended, one line.

    Raises:
        InputError: The address or port can't be used.
    """
    drawn = DrawnPrompt()
    server = OperatorServer(Settings(address=address, port=port, token=token), drawn)
    with serving(server, over=over):
        yield ServedDrawing(drawn, server.urls)
