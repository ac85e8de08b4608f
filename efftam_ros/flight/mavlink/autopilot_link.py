"""The autopilot on one of our links: whether it is heard, its clock, commands to it."""

from __future__ import annotations

import math

from efftam_ros.flight.control_config import Instant
from efftam_ros.flight.mavlink.camera import Outbox
from efftam_ros.flight.mavlink.clock_map import ClockMap
from efftam_ros.flight.mavlink.dialect import Message, mav
from efftam_ros.flight.mavlink.subscriptions import Subscriptions

SILENT_S = 3.0
# A pause in which it may have been restarted: it sends heartbeats alone each second.
PAUSE_S = 1.4
# How far its clock goes back at least when it was restarted, s.
BACK_S = 1.0


class AutopilotLink:
    """``link``: the one by which the autopilot was heard first, None while it is silent. ``since_s``: from
    when on it is heard without a pause."""

    def __init__(self, ids: tuple[int, int], component: int, outbox: Outbox) -> None:
        self.link: str | None = None
        self.since_s = math.inf
        self.clock = ClockMap()
        self.subscriptions = Subscriptions()
        self._ids, self._target, self._outbox = ids, component, outbox
        self._heard_s = -math.inf
        self._times: dict[str, float] = {}  # newest time since boot of each kind of message, s

    def hear(self, link: str, is_heartbeat: bool, now_s: float) -> bool:
        """Whether it is heard anew: for the first time, or after a pause."""
        if self.link is None and is_heartbeat:
            self.link, self._heard_s = link, -math.inf
        if link != self.link:
            return False
        anew = now_s - self._heard_s > PAUSE_S
        self._heard_s = now_s
        if anew:
            self.since_s = now_s
            self.subscriptions.restart()
        return anew

    def falls_silent(self, now_s: float) -> bool:
        """Whether it is not heard any more, from now on."""
        if self.link is None or now_s - self._heard_s <= SILENT_S:
            return False
        self.link = None
        return True

    def time(self, kind: str, boot_s: float, now: Instant) -> tuple[float, bool]:
        """When it made a message, on our steady clock, s, and whether it was restarted before.

        A time that stands still is no news: PX4 repeats message 281 with it while its gimbal is silent.
        """
        last_s = self._times.get(kind)
        if last_s is not None and boot_s == last_s and self.clock.is_known:
            return min(self.clock.when(boot_s, now.steady_s), now.steady_s), False
        restarts = self.clock.restarts
        if last_s is not None and boot_s < last_s - BACK_S:
            self.clock.restart()
        made_s = self.clock.to_ours(boot_s, now.steady_s)
        restarted = self.clock.restarts != restarts
        if restarted:
            self._times.clear()
            self.subscriptions.restart()
        self._times[kind] = boot_s
        return made_s, restarted

    def send(self, message: Message) -> None:
        self._outbox.send(message, self.link)

    def command(self, number: int, *parameters: float, component: int | None = None) -> None:
        # Unused parameters are 0 and never NaN: an autopilot that casts them to whole numbers may crash.
        filled = [*(float(p) for p in parameters), *[0.0] * 7][:7]
        target = self._target if component is None else component
        self.send(mav.MAVLink_command_long_message(self._ids[0], target, number, 0, *filled))
