"""One open page: the queue of messages to the page, and the limits on the messages from the page."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from typing import Any

from aiohttp import web

from efftam_operator import wire
from efftam_operator.feed import Picture
from efftam_operator.pace import Pace
from efftam_operator.settings import Settings

# Number of tracks that may wait for a page. Older ones are dropped, but a track is sent with its frame.
MAX_TRACKS_WAITING = 30
MAX_ANSWERS_WAITING = 200

# Limits on the pictures that are kept for each page, because its user may draw on one of them.
MAX_RECENT, MAX_RECENT_BYTES = 8, 64 * 2**20
# Upper bound of the drift between the clocks of two computers, s per s.
DRIFT = 1e-3


class RateLimit:
    """Allows at most ``per_s`` events per second on average, and bursts of up to ``per_s`` events."""

    def __init__(self, per_s: float) -> None:
        self.per_s = per_s
        self._left = per_s
        self._at_s: float | None = None

    def allows(self, now_s: float) -> bool:
        """Return whether one more event is allowed at ``now_s`` (monotonic, s), and count it if it is."""
        if self._at_s is not None:
            self._left = min(self.per_s, self._left + (now_s - self._at_s) * self.per_s)
        self._at_s = now_s
        if self._left < 1:
            return False
        self._left -= 1
        return True


class Lateness:
    """Measures by how much a message of a page is later than the page's quickest message.

    The clocks of page and server have an unknown, but nearly constant difference.
    """

    def __init__(self) -> None:
        self._least_s = math.inf
        self._at_s = 0.0

    def late_s(self, sent_ms: float, now_s: float) -> float:
        """Return by how much a message that arrives now is late, s; 0 if ``sent_ms`` is NaN.

        ``sent_ms``: when it was sent, by the page's clock, ms. ``now_s``: the server's monotonic clock, s.
        """
        if math.isnan(sent_ms):
            return 0.0
        way_s = now_s - sent_ms / 1e3
        self._least_s = min(self._least_s + DRIFT * (now_s - self._at_s), way_s)
        self._at_s = now_s
        return way_s - self._least_s


class Viewer:
    """One open page: the messages that wait to be sent to it, and what it has requested.

    Used on the event loop's thread alone. All methods return at once and only queue messages, except
    `send_waiting`, which one task for each viewer runs.
    """

    def __init__(self, socket: web.WebSocketResponse, name: str, settings: Settings) -> None:
        self.name = name
        self.socket = socket
        self.pace = Pace()
        self.selections = RateLimit(settings.selections_per_s)
        self.messages = RateLimit(settings.messages_per_s)
        self.lateness = Lateness()
        self.refused = 0
        # Op ("steer" or "follow") and monotonic time of the first of the two presses that enable.
        self.armed: tuple[str, float] = ("", float("-inf"))
        self.is_hidden = False
        self.wanted: Picture | None = None  # picture that is to be sent in full size; None: none
        self._joined_s: float | None = time.monotonic()
        self._is_fetching = False
        self._recent: deque[Picture] = deque(maxlen=MAX_RECENT)
        self._answers: deque[str] = deque()
        self._tracks: deque[str] = deque(maxlen=MAX_TRACKS_WAITING)
        self._tracks_sent: deque[str] = deque(maxlen=MAX_TRACKS_WAITING)
        self._frames: deque[tuple[str | None, bytes]] = deque()
        self._waiting = asyncio.Event()
        self._closing = False

    @property
    def is_sending(self) -> bool:
        """Whether a message that must arrive (see `send`) still waits to be sent."""
        return bool(self._answers)

    def send(self, message: dict[str, Any]) -> None:
        """Queue a message that must arrive; a page whose queue is full is disconnected."""
        if len(self._answers) >= MAX_ANSWERS_WAITING:
            self._closing = True
        else:
            self._answers.append(wire.dumps(message))
        self._waiting.set()

    def track(self, text: str) -> None:
        """Queue the track of an image. It is dropped if too many newer ones wait.

        On a slow link only the newest track waits, until the next frame is sent.
        """
        if self.is_hidden:
            return
        if self.pace.is_thin:
            self._tracks.clear()
        self._tracks.append(text)
        if not self.pace.is_thin:
            self._waiting.set()

    def greeted(self) -> None:
        """Note that the page's answer to the first message arrived; its delay is the link's own delay."""
        if self._joined_s is not None:
            self.pace.greeted(time.monotonic() - self._joined_s)
        self._joined_s = None

    def can_take(self, seq: int, level: int) -> bool:
        """Return whether picture ``seq`` may be sent now, encoded at this level of `pace.LEVELS`."""
        is_free = self.wanted is None and not self._is_fetching and not self.is_hidden
        pace = self.pace
        return is_free and pace.is_ready and pace.newest_seq < seq and pace.level == level

    def show(self, frame: bytes, seq: int, track: str | None, picture: Picture, whole_px: int) -> None:
        """Queue a frame, and before it the track of its image.

        May be called only if `can_take` allows it. ``track``: None if there is no track yet. ``whole_px``:
        width of the camera's image, px; 0: unknown.
        """
        self.pace.sent(seq, len(frame), whole_px, time.monotonic())
        self._recent.append(picture)
        while sum(p.nbytes for p in self._recent) > MAX_RECENT_BYTES:
            self._recent.popleft()
        self._send(frame, track)

    def want(self, stamp_ns: int) -> None:
        """Note that the page needs the picture of this stamp in full size, because its user draws on it."""
        if not self._is_fetching:
            self.wanted = next((p for p in self._recent if p.stamp_ns == stamp_ns), None)

    def show_whole(self, frame: bytes | None) -> None:
        """Queue the frame of the picture `wanted`; None: the picture could not be encoded.

        No other frame is sent until the page has acknowledged this one.
        """
        self.wanted, self._is_fetching = None, frame is not None
        if frame is not None:
            self._send(frame, None)

    def acknowledged(self, seq: int) -> None:
        if seq == wire.WHOLE_SEQ:
            self._is_fetching = False
        else:
            self.pace.acknowledged(seq, time.monotonic())

    def _send(self, frame: bytes, track: str | None) -> None:
        self._frames.append((track, frame))
        self._waiting.set()

    async def send_waiting(self) -> None:
        """Send queued messages as long as the page is open. Raises ConnectionError when the link ends.

        Messages that must arrive are sent first; a track is sent before the frame of its image.
        """
        while not self._closing:
            await self._waiting.wait()
            self._waiting.clear()
            while (self._answers or self._tracks or self._frames) and not self._closing:
                if self._answers:
                    await self.socket.send_str(self._answers.popleft())
                elif self._tracks:
                    await self._send_track(self._tracks.popleft())
                else:
                    track, frame = self._frames.popleft()
                    if track is not None and track not in self._tracks_sent:
                        await self._send_track(track)
                    await self.socket.send_bytes(frame)
        await self.socket.close(code=1013, message=b"too slow")

    async def _send_track(self, text: str) -> None:
        self._tracks_sent.append(text)
        await self.socket.send_str(text)
