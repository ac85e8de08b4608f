"""One open page: what waits to be sent, and its share of the link."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from typing import Any

from aiohttp import web

from efftam_ros.operator import wire
from efftam_ros.operator.settings import Settings

# A page that is this far behind with tracks gets only the newest, and those of the frames it gets.
MOST_TRACKS_WAITING = 30
MOST_ANSWERS_WAITING = 200


MOST_UNACKNOWLEDGED = 2
# Below this rate frames are sent at half size.
WANTED_HZ = 10.0
WINDOW_S = 1.0
# A frame that takes longer from the server to the acknowledgement makes the next ones smaller.
SLOW_S, MOST_SHRINK = 0.5, 3
FIRST_RETRY_S = 4.0
LONGEST_RETRY_S = 60.0
# More than the clocks of two computers drift apart, s per s.
DRIFT = 1e-3


class FrameCredit:
    """A viewer's share of the link, from its acknowledgements alone. ``now_s``: a monotonic clock.

    Bounding what is under way bounds the delay: whatever the socket and the network would buffer, the newest
    picture waits for two others at most. A viewer that keeps up with fewer than ``WANTED_HZ`` frames per
    second gets half size. One whose frames take longer than ``SLOW_S`` gets smaller ones, one at a time.
    Larger ones are tried again later, and later still each time that fails. ``shrink``: how often both
    sides of the next frame are halved.
    """

    def __init__(self) -> None:
        self._under_way: deque[tuple[int, float]] = deque()
        self._offered: deque[float] = deque()
        self._acknowledged: deque[float] = deque()
        self.shrink = self.newest_seq = 0
        self._way_s = 0.0
        self._changed_s: float | None = None
        self._retry_s = FIRST_RETRY_S

    @property
    def is_slow(self) -> bool:
        """Whether one frame at a time is all that the link can take."""
        return self.shrink > 1 or self._way_s > SLOW_S

    @property
    def is_ready(self) -> bool:
        return len(self._under_way) < (1 if self.is_slow else MOST_UNACKNOWLEDGED)

    @property
    def is_under_way(self) -> bool:
        """Whether a frame was sent and not acknowledged yet."""
        return bool(self._under_way)

    def offered(self, now_s: float) -> None:
        """Count a new image, whether or not it will be sent."""
        self._offered.append(now_s)
        self._decide(now_s)

    def sent(self, seq: int, now_s: float) -> None:
        self._under_way.append((seq, now_s))
        self.newest_seq = seq

    def acknowledged(self, seq: int, now_s: float) -> None:
        """The viewer has handled frame ``seq`` and all before it. Numbers never sent change nothing."""
        if all(seq != sent for sent, _ in self._under_way):
            return
        sent, sent_s = self._under_way.popleft()
        while sent != seq:
            sent, sent_s = self._under_way.popleft()
        self._acknowledged.append(now_s)
        self._way_s = now_s - sent_s
        if self._way_s > SLOW_S and self.shrink < MOST_SHRINK:
            # A step makes a frame a third as long.
            self._change(min(MOST_SHRINK, self.shrink + math.ceil(math.log(self._way_s / SLOW_S, 3))), now_s)

    def rate_hz(self, now_s: float) -> float:
        """Frames acknowledged per second, over the last second."""
        return _recent(self._acknowledged, now_s) / WINDOW_S

    def _decide(self, now_s: float) -> None:
        offered_hz, rate_hz = _recent(self._offered, now_s) / WINDOW_S, self.rate_hz(now_s)
        if self._changed_s is None:
            self._changed_s = now_s
        lasted_s = now_s - self._changed_s
        behind = rate_hz < WANTED_HZ and rate_hz < 0.75 * offered_hz
        if self.shrink == 0 and lasted_s >= 1.5 * WINDOW_S and behind:
            self._change(1, now_s)
        elif self.shrink and lasted_s >= self._retry_s and self._way_s < SLOW_S / 3 and not behind:
            self.shrink, self._changed_s = self.shrink - 1, now_s

    def _change(self, shrink: int, now_s: float) -> None:
        lasted_s = now_s - (self._changed_s if self._changed_s is not None else now_s)
        # A larger size failed soon after it was tried again: wait longer before the next attempt.
        self._retry_s = min(2 * self._retry_s, LONGEST_RETRY_S) if lasted_s < 4.0 else FIRST_RETRY_S
        self.shrink, self._changed_s = shrink, now_s


class RateLimit:
    """At most ``per_s`` per second on average, in bursts of up to ``per_s``."""

    def __init__(self, per_s: float) -> None:
        self.per_s = per_s
        self._left = per_s
        self._at_s: float | None = None

    def allows(self, now_s: float) -> bool:
        """Whether one more is within the limit; it is counted when it is."""
        if self._at_s is not None:
            self._left = min(self.per_s, self._left + (now_s - self._at_s) * self.per_s)
        self._at_s = now_s
        if self._left < 1:
            return False
        self._left -= 1
        return True


class Lateness:
    """How much later than the quickest message of its page another one came. Both clocks run steadily; their
    difference is not known."""

    def __init__(self) -> None:
        self._least_s = math.inf
        self._at_s = 0.0

    def late_s(self, sent_ms: float, now_s: float) -> float:
        """``sent_ms`` by the page's clock, ``now_s`` by ours; 0 where ``sent_ms`` is NaN."""
        if math.isnan(sent_ms):
            return 0.0
        way_s = now_s - sent_ms / 1e3
        self._least_s = min(self._least_s + DRIFT * (now_s - self._at_s), way_s)
        self._at_s = now_s
        return way_s - self._least_s


def _recent(times: deque[float], now_s: float) -> int:
    while times and now_s - times[0] > WINDOW_S:
        times.popleft()
    return len(times)


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
        self.is_hidden = False
        self._answers: deque[str] = deque()
        self._tracks: deque[str] = deque(maxlen=MOST_TRACKS_WAITING)
        self._tracks_sent: deque[str] = deque(maxlen=MOST_TRACKS_WAITING)
        self._frames: deque[tuple[str | None, bytes]] = deque()
        self._waiting = asyncio.Event()
        self._closing = False

    def tell(self, message: dict[str, Any]) -> None:
        """Queue a message that must arrive; a page whose queue is full is disconnected."""
        if len(self._answers) >= MOST_ANSWERS_WAITING:
            self._closing = True
        else:
            self._answers.append(wire.dumps(message))
        self._waiting.set()

    def track(self, text: str) -> None:
        """Send the track of an image, unless newer ones push it out; on a slow link with the next frame."""
        if self.is_hidden:
            return
        if self.credit.is_slow:
            self._tracks.clear()
        self._tracks.append(text)
        if not self.credit.is_slow:
            self._waiting.set()

    def can_take(self, seq: int) -> bool:
        return not self.is_hidden and self.credit.is_ready and self.credit.newest_seq < seq

    def show(self, frame: bytes, seq: int, track: str | None) -> None:
        """Send a frame, after its image's track where there is one already; `can_take` was asked before."""
        self.credit.sent(seq, time.monotonic())
        self._frames.append((track, frame))
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
