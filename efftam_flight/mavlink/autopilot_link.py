"""The autopilot on one of our links: whether it is heard, its clock, commands to it, what it shall send."""

from __future__ import annotations

import math
from dataclasses import dataclass

from efftam_flight.control_config import Instant
from efftam_flight.mavlink.camera import Outbox
from efftam_flight.mavlink.clock_map import ClockMap
from efftam_flight.mavlink.dialect import Message, mav
from efftam_flight.mavlink.zero_debt import MANAGERS, Manager

SILENT_S = 3.0
# Without a message that carries its time for so long it may have been restarted: then it sends heartbeats
# alone.
PAUSE_S = 0.5
CHECK_S = 2.0
# Asked so often without reaching half the rate: say so.
PATIENCE = 3
CANCEL = -1  # as an interval


@dataclass
class _Wanted:
    rate_hz: float
    count: int = 0
    since_s: float | None = None  # None: not asked yet
    asked: int = 0


class WantedIntervals:
    """Message intervals wanted of one system. A fresh link gets hardly anything, a restarted autopilot
    forgets what it was asked, and a slow link gives less than was asked: so the arrivals are counted, and
    what comes too rarely is asked for again."""

    def __init__(self) -> None:
        self._wanted: dict[tuple[int, int], _Wanted] = {}
        self._cancelled: list[tuple[int, int, int]] = []

    def want(self, component: int, message_id: int, rate_hz: float) -> None:
        """From now on; another rate than before is asked for at once."""
        known = self._wanted.get((component, message_id))
        if known is None or known.rate_hz != rate_hz:
            self._wanted[component, message_id] = _Wanted(rate_hz)

    def drop(self, component: int, message_id: int) -> None:
        """Not wanted any more: cancelled, also where the autopilot may have forgotten it meanwhile."""
        if self._wanted.pop((component, message_id), None) is not None:
            self._cancelled.append((component, message_id, CANCEL))

    def restart(self) -> None:
        """The autopilot has forgotten all: ask again at once."""
        for wanted in self._wanted.values():
            wanted.since_s, wanted.asked = None, 0

    def heard(self, component: int, message_id: int) -> None:
        wanted = self._wanted.get((component, message_id))
        if wanted is not None:
            wanted.count += 1

    def due(self, now_s: float) -> tuple[list[tuple[int, int, int]], list[str]]:
        """What to ask now, as (component, message id, interval in us), and complaints."""
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
                        f"message {message_id} of component {component} comes at {rate_hz:.1f} Hz instead of"
                        f" {wanted.rate_hz:g}; is the link too slow?"
                    )
            wanted.since_s, wanted.count = now_s, 0
            wanted.asked += 1
            asks.append((component, message_id, round(1e6 / wanted.rate_hz)))
        return asks, complaints


class AutopilotLink:
    """``link``: the one by which the autopilot was heard first, None while it is silent. ``since_s``: from
    when on it is heard without a pause."""

    def __init__(self, ids: tuple[int, int], component: int, outbox: Outbox) -> None:
        self.link: str | None = None
        self.since_s = math.inf
        self.clock = ClockMap()
        self.subscriptions = WantedIntervals()
        self.manager = Manager()
        self._ids, self._target, self._outbox = ids, component, outbox
        self._heard_s = self._timed_s = -math.inf  # any message, one with a new time
        self._is_timed = False  # such messages come one after the other
        self._paused = True
        self._times: dict[str, float] = {}  # newest time since boot of each kind of message, s

    def hear(self, link: str, message: Message, now_s: float) -> bool:
        """Whether it is heard anew: for the first time, or after a pause."""
        if message.get_type() == "HEARTBEAT" and message.autopilot != mav.MAV_AUTOPILOT_INVALID:
            self.manager = MANAGERS.get(message.autopilot, Manager())
            self.link = self.link or link
        if link != self.link:
            return False
        self._heard_s = now_s
        anew = self.pauses(now_s)
        if anew:
            self._paused = self._is_timed = False
            self.since_s = now_s
            self.subscriptions.restart()
        return anew

    def pauses(self, now_s: float) -> bool:
        """Whether its time, heard all along before, is not heard any more; until it is heard anew."""
        self._paused = self._paused or (self._is_timed and now_s - self._timed_s > PAUSE_S)
        return self._paused

    def silent_s(self, now_s: float) -> float:
        """For how long nothing is heard of it; 0 where that is as usual, or it was never heard."""
        is_missed = self._heard_s > -math.inf and (self.link is None or self.pauses(now_s))
        return now_s - self._heard_s if is_missed else 0.0

    def boot_s(self, now_s: float) -> float:
        """Its time since boot; infinite where that is not known."""
        return self.clock.to_theirs(now_s) if self.clock.is_known else math.inf

    def falls_silent(self, now_s: float) -> bool:
        """Whether it is not heard any more, from now on."""
        if self.link is None or now_s - self._heard_s <= SILENT_S:
            return False
        self.link, self._paused = None, True
        return True

    def time(self, kind: str, boot_s: float, now: Instant) -> tuple[float, bool]:
        """When it made a message, on our steady clock, s, and whether it was restarted before.

        A time that stands still is no news: PX4 repeats message 281 with it while its gimbal is silent.
        """
        last_s = self._times.get(kind)
        if last_s is not None and boot_s == last_s and self.clock.is_known:
            return min(self.clock.when(boot_s, now.steady_s), now.steady_s), False
        restarts = self.clock.restarts
        made_s = self.clock.to_ours(boot_s, now.steady_s)
        restarted = self.clock.restarts != restarts
        if restarted:
            self.subscriptions.restart()
        self._is_timed = now.steady_s - self._timed_s <= PAUSE_S
        self._times[kind], self._timed_s = boot_s, now.steady_s
        return made_s, restarted

    def send(self, message: Message) -> None:
        self._outbox.send(message, self.link)

    def command(self, number: int, *parameters: float, component: int | None = None) -> None:
        # Unused parameters are 0 and never NaN: an autopilot that casts them to whole numbers may crash.
        filled = [*(float(p) for p in parameters), *[0.0] * 7][:7]
        target = self._target if component is None else component
        self.send(mav.MAVLink_command_long_message(self._ids[0], target, number, 0, *filled))
