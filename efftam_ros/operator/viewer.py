"""One open page: its send queues and rate limits."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from aiohttp import web

from efftam_ros.operator import wire
from efftam_ros.operator.credit import FrameCredit, Lateness, RateLimit
from efftam_ros.operator.settings import Settings

# A page that is this far behind with tracks gets only the newest, and those of the frames it gets.
MOST_TRACKS_WAITING = 30
MOST_ANSWERS_WAITING = 200


class Viewer:
    """Owned by the event loop. Sending never waits here: `send_waiting` does, one task per viewer."""

    def __init__(self, socket: web.WebSocketResponse, name: str, settings: Settings) -> None:
        self.name = name
        self.socket = socket
        self.credit = FrameCredit()
        self.selections = RateLimit(settings.selections_per_s)
        self.messages = RateLimit(settings.messages_per_s)
        self.lateness = Lateness()
        self.refused = 0
        self.armed_s = float("-inf")
        self.shown_seq = 0
        self._answers: deque[str] = deque()
        self._tracks: deque[tuple[int, str]] = deque(maxlen=MOST_TRACKS_WAITING)
        self._tracks_sent: deque[int] = deque(maxlen=MOST_TRACKS_WAITING)
        self._frames: deque[tuple[int, str, bytes]] = deque()
        self._waiting = asyncio.Event()
        self._closing = False

    def tell(self, message: dict[str, Any]) -> None:
        """Queue a message that must arrive; a page whose queue is full is disconnected."""
        if len(self._answers) >= MOST_ANSWERS_WAITING:
            self._closing = True
        else:
            self._answers.append(wire.dumps(message))
        self._waiting.set()

    def track(self, stamp_ns: int, text: str) -> None:
        """Send the track of an image, unless newer ones push it out."""
        self._tracks.append((stamp_ns, text))
        self._waiting.set()

    def show(self, frame: bytes, *, stamp_ns: int, seq: int, track: str) -> None:
        """Send a frame, with its image's track if that was not sent; ``credit`` was asked before."""
        self.credit.sent(seq)
        self.shown_seq = seq
        self._frames.append((stamp_ns, track, frame))
        self._waiting.set()

    async def send_waiting(self) -> None:
        """Runs as long as the page is open. Answers first; a track before the frame that it belongs to."""
        while not self._closing:
            await self._waiting.wait()
            self._waiting.clear()
            while (self._answers or self._tracks or self._frames) and not self._closing:
                if self._answers:
                    await self.socket.send_str(self._answers.popleft())
                elif self._tracks:
                    await self._send_track(*self._tracks.popleft())
                else:
                    stamp_ns, track, frame = self._frames.popleft()
                    if stamp_ns not in self._tracks_sent:
                        await self._send_track(stamp_ns, track)
                    await self.socket.send_bytes(frame)
        await self.socket.close(code=1013, message=b"too slow")

    async def _send_track(self, stamp_ns: int, text: str) -> None:
        self._tracks_sent.append(stamp_ns)
        await self.socket.send_str(text)
