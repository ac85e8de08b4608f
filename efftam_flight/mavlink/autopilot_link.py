"""The link to the autopilot: detects silence and restarts, maps its clock, sends commands, and requests
messages."""

from __future__ import annotations

import math
from dataclasses import dataclass

from efftam_flight.control_config import Instant
from efftam_flight.mavlink.camera import Outbox
from efftam_flight.mavlink.clock_map import JUMP_S, MAX_DRIFT, ClockMap
from efftam_flight.mavlink.dialect import Message, mav
from efftam_flight.mavlink.gimbal.stop_sequence import KINDS, AutopilotKind
from efftam_flight.waits import AUTOPILOT_PAUSE_S, AUTOPILOT_SILENT_S

CHECK_S = 2.0
# A warning is logged if a message still arrives at less than half the wanted rate after this many requests.
PATIENCE = 3
CANCEL = -1  # the message interval that cancels a message


@dataclass
class _Wanted:
    rate_hz: float
    count: int = 0
    since_s: float | None = None  # since when messages are counted; None: not requested yet
    asked: int = 0


class WantedIntervals:
    """The message intervals requested of one system.

    A new link gets few messages, a restarted autopilot forgets the requests, and a slow link delivers less
    than requested. So arrivals are counted, and a message that arrives too rarely is requested again.
    """

    def __init__(self) -> None:
        self._wanted: dict[tuple[int, int], _Wanted] = {}
        self._cancelled: list[tuple[int, int, int]] = []

    def want(self, component: int, message_id: int, rate_hz: float) -> None:
        """Request a message at this rate from now on. A rate that differs from the last one is requested at
        the next `due`."""
        known = self._wanted.get((component, message_id))
        if known is None or known.rate_hz != rate_hz:
            self._wanted[component, message_id] = _Wanted(rate_hz)

    def drop(self, component: int, message_id: int) -> None:
        """Cancel the request for a message: the next `due` returns a request that ends the message's
        stream."""
        if self._wanted.pop((component, message_id), None) is not None:
            self._cancelled.append((component, message_id, CANCEL))

    def restart(self) -> None:
        """Request all messages again at the next `due`, because a restarted autopilot has forgotten them."""
        for wanted in self._wanted.values():
            wanted.since_s, wanted.asked = None, 0

    def received(self, component: int, message_id: int) -> None:
        wanted = self._wanted.get((component, message_id))
        if wanted is not None:
            wanted.count += 1

    def due(self, now_s: float) -> tuple[list[tuple[int, int, int]], list[str]]:
        """Return the requests that must be sent now, as (component, message id, interval in us), and warnings
        for the log."""
        asks, self._cancelled = self._cancelled, []
        complaints = []
        for (component, message_id), wanted in self._wanted.items():
            if wanted.since_s is not None:
                if now_s - wanted.since_s < CHECK_S:
                    continue
                rate_hz = wanted.count / (now_s - wanted.since_s)
                wanted.since_s, wanted.count = now_s, 0
                if rate_hz >= wanted.rate_hz / 2:
                    wanted.asked = 0
                    continue
                if wanted.asked == PATIENCE:
                    complaints.append(
                        f"message {message_id} of component {component} arrives at {rate_hz:.1f} Hz instead"
                        f" of {wanted.rate_hz:g} Hz; check whether the link is fast enough"
                    )
            wanted.since_s, wanted.count = now_s, 0
            wanted.asked += 1
            asks.append((component, message_id, round(1e6 / wanted.rate_hz)))
        return asks, complaints


class AutopilotLink:
    """The connection to one autopilot.

    ``link``: the name of the link on which the autopilot's first heartbeat arrived; None while the autopilot
    is silent. ``since_s``: since when the autopilot has sent messages without a pause, steady time, s.
    """

    def __init__(self, ids: tuple[int, int], component: int, outbox: Outbox) -> None:
        self.link: str | None = None
        self.since_s = math.inf
        self.clock = ClockMap()
        self.subscriptions = WantedIntervals()
        self.kind = AutopilotKind()
        self.autopilot: int | None = None  # field `autopilot` of the heartbeat; None: no heartbeat arrived
        self._ids, self._target, self._outbox = ids, component, outbox
        # Arrival of the newest message, and of the newest message that carried a new time since boot, s.
        self._received_s = self._timed_s = -math.inf
        self._is_timed = False  # whether the last two messages with a new time came without a pause between
        self._paused = True
        # For each kind of message: the newest time since boot that it carried, and its arrival, s.
        self._times: dict[str, tuple[float, float]] = {}
        # The newest time since boot that any message carried, and the arrival of this message, s.
        self._newest_s = self._newest_at_s = -math.inf

    def receive(self, link: str, message: Message, now_s: float) -> bool:
        """Record a message of the autopilot. Return whether it is the first one, or the first after a
        pause."""
        if message.get_type() == "HEARTBEAT" and message.autopilot != mav.MAV_AUTOPILOT_INVALID:
            self.autopilot = message.autopilot
            self.kind = KINDS.get(message.autopilot, AutopilotKind())
            self.link = self.link or link
        if link != self.link:
            return False
        self._received_s = now_s
        anew = self.pauses(now_s)
        if anew:
            self._paused = self._is_timed = False
            self.since_s = now_s
            self.subscriptions.restart()
        return anew

    def pauses(self, now_s: float) -> bool:
        """Return whether the autopilot pauses: messages that carry its time arrived steadily and have
        stopped. A pause ends with the next message that `receive` records. An autopilot that is restarting
        sends heartbeats alone, which carry no time."""
        self._paused = self._paused or (self._is_timed and now_s - self._timed_s > AUTOPILOT_PAUSE_S)
        return self._paused

    def silent_s(self, now_s: float) -> float:
        """Return the time since the autopilot's last message, s; 0 if the autopilot sends without a pause, or
        if no message has ever arrived."""
        is_missed = self._received_s > -math.inf and (self.link is None or self.pauses(now_s))
        return now_s - self._received_s if is_missed else 0.0

    def boot_s(self, now_s: float) -> float:
        """Return the autopilot's time since its boot, s; infinite if unknown."""
        return self.clock.to_theirs(now_s) if self.clock.is_known else math.inf

    def falls_silent(self, now_s: float) -> bool:
        """Forget the link if the autopilot has been silent for `AUTOPILOT_SILENT_S`. Return True once, when
        that happens."""
        if self.link is None or now_s - self._received_s <= AUTOPILOT_SILENT_S:
            return False
        self.link, self._paused = None, True
        return True

    def time(self, kind: str, boot_s: float, now: Instant) -> tuple[float, bool]:
        """Return when the autopilot made a message, on our steady clock, s, and whether the autopilot was
        restarted since its last message.

        ``kind``: the type of the message. ``boot_s``: the time since boot that the message carries.

        The autopilot was restarted if both conditions hold: (1) A streamed message carries a shorter time
        since boot than the newest one received. (2) This time is shorter than the time that our clock has
        measured since that newest one arrived.

        A message that is sent on request may carry an old time without a restart: PX4 makes message 280 soon
        after its boot. A message that repeats its last time is no sign of a restart either: PX4 repeats
        message 281 with the same time while its gimbal is silent. If the time advances more than our clock,
        the message was delayed less than those before it.
        """
        last_boot_s, last_s = self._times.get(kind, (math.nan, math.nan))
        if boot_s == last_boot_s and self.clock.is_known:
            return min(self.clock.when(boot_s, now.steady_s), now.steady_s), False
        self._times[kind] = boot_s, now.steady_s
        # At the first message of this kind the last time is NaN, and all comparisons with it are false.
        advanced_s, passed_s = boot_s - last_boot_s, now.steady_s - last_s
        is_streamed = advanced_s < -JUMP_S or (advanced_s > 0.0 and abs(advanced_s - passed_s) < JUMP_S)
        restarted = boot_s < self._newest_s - JUMP_S
        since_s = (1.0 + MAX_DRIFT) * (now.steady_s - self._newest_at_s)
        if restarted and not (is_streamed and boot_s < since_s + JUMP_S):
            return min(self.clock.when(boot_s, now.steady_s), now.steady_s), False
        if restarted:
            self.clock.restart()
            self._times = {kind: (boot_s, now.steady_s)}
            self._newest_s = -math.inf
            self.subscriptions.restart()
        made_s = self.clock.to_ours(boot_s, now.steady_s)
        if boot_s > self._newest_s:
            self._newest_s, self._newest_at_s = boot_s, now.steady_s
        self._is_timed = now.steady_s - self._timed_s <= AUTOPILOT_PAUSE_S
        self._timed_s = now.steady_s
        return made_s, restarted

    def send(self, message: Message) -> None:
        self._outbox.send(message, self.link)

    def command(self, number: int, *parameters: float, component: int | None = None) -> None:
        # Unused parameters are 0, never NaN: an autopilot that casts parameters to whole numbers may crash.
        filled = [*(float(p) for p in parameters), *[0.0] * 7][:7]
        target = self._target if component is None else component
        self.send(mav.MAVLink_command_long_message(self._ids[0], target, number, 0, *filled))
