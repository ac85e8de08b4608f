"""Who controls the gimbal: what its manager says (message 281), taking it and giving it back (1001)."""

from __future__ import annotations

import math
from collections.abc import Callable

from efftam_flight.mavlink.dialect import Message, Severity, mav
from efftam_flight.values import Control

CONFIGURE = mav.MAV_CMD_DO_GIMBAL_MANAGER_CONFIGURE
RELEASE_MINE = (-3, -3)
REPEAT_S = 1.0
MOST_TRIES = 5
# How long the manager's word on who is in control is waited for, where it counts: it is asked for every 2 s.
WORD_S = 3.0

# What moves the gimbal when another component sends it; 195 to 201 point it at a place (ROI).
WISHES = (
    "GIMBAL_MANAGER_SET_ATTITUDE",
    "GIMBAL_MANAGER_SET_PITCHYAW",
    "GIMBAL_MANAGER_SET_MANUAL_CONTROL",
)
MOVES = (
    mav.MAV_CMD_DO_GIMBAL_MANAGER_PITCHYAW,
    mav.MAV_CMD_DO_MOUNT_CONFIGURE,
    mav.MAV_CMD_DO_MOUNT_CONTROL,
    *(mav.MAV_CMD_DO_SET_ROI_LOCATION, mav.MAV_CMD_DO_SET_ROI_WPNEXT_OFFSET, mav.MAV_CMD_DO_SET_ROI_NONE),
    *(mav.MAV_CMD_DO_SET_ROI_SYSID, mav.MAV_CMD_DO_SET_ROI),
)
NO_CHANNEL = (0, 65535)
NOBODY = "nobody controls the gimbal"

Ids = tuple[int, int]


class Rivals:
    """Who else moves the gimbal, as far as it is heard on the link. ``channels``: RC channels, from 1, by
    which the pilot does it: moved by more than ``dead_band_us`` since `begin`."""

    def __init__(self, ids: Ids, manager: int, channels: tuple[int, ...], dead_band_us: int) -> None:
        self._ids, self._manager = ids, manager
        self._channels, self._dead_band_us = channels, dead_band_us
        self._rest: dict[int, int] = {}

    def begin(self) -> None:
        self._rest.clear()

    def name(self, message: Message) -> str:
        """Whose message moves the gimbal, and by what; empty for any other message."""
        kind, sender = message.get_type(), (message.get_srcSystem(), message.get_srcComponent())
        manager = (self._ids[0], self._manager)
        if kind == "RC_CHANNELS" and sender == manager:
            return self._moved(message)
        if sender in (self._ids, manager):
            return ""
        is_wish = kind in WISHES
        is_command = kind in ("COMMAND_LONG", "COMMAND_INT") and message.command in MOVES
        if not (is_wish or is_command) or message.target_system not in (0, self._ids[0]):
            return ""
        if message.target_component not in (0, self._manager):
            return ""
        what = f"command {message.command}" if is_command else f"message {message.get_msgId()}"
        return f"{sender[0]}/{sender[1]} ({what})"

    def _moved(self, message: Message) -> str:
        for channel in self._channels:
            value = getattr(message, f"chan{channel}_raw")
            if value in NO_CHANNEL:
                continue
            if abs(value - self._rest.setdefault(channel, value)) > self._dead_band_us:
                return f"RC channel {channel}"
        return ""


class GimbalHolder:
    """Whether the gimbal is ours. ``configure`` sends command 1001 with a primary controller's ids; ``told``
    is told of every change of control, with the reason."""

    def __init__(
        self,
        ids: Ids,
        configure: Callable[[Ids], None],
        told: Callable[[Control, str], None],
        report: Callable[[Severity, str], object],
    ) -> None:
        self._ids, self._configure, self._told, self._report = ids, configure, told, report
        self.control, self.reason = Control.SILENT, ""
        self.wanted = False
        self._ended = ""  # why, since it was wanted
        self._by: Ids = (0, 0)
        self._held = False  # since it was wanted
        self._fresh = True  # wanted just now, see `want`
        self._asked_s = -math.inf  # when the manager was asked who holds it
        self._word_s = -math.inf  # when it said so last
        self._tries = 0
        self._next_try_s = -math.inf
        self._taken = False  # asked for, and not given back since
        self._yielded = False  # another moves it, whatever the manager says

    def want(self, wanted: bool, fresh: bool, now_s: float) -> None:
        """Take the gimbal from now on, or give it back when `give_back` is called."""
        self.wanted, self._held, self._fresh = wanted, wanted and self.control is Control.HELD, fresh
        self._tries, self._next_try_s, self._ended = 0, now_s, ""
        self._yielded = self._yielded and not wanted

    def may_steer(self, gates: bool, now_s: float) -> bool:
        """Whether rates of the controller may go out: once the manager says that we are in control, after
        it was asked, as it may have been restarted. One that does not gate may never say it."""
        if self.control is Control.UNKNOWN:
            return self.wanted and not gates and now_s - self._asked_s >= WORD_S
        return self.wanted and self.control is Control.HELD and self._word_s >= self._asked_s

    @property
    def in_control(self) -> bool:
        """By the manager's word, whatever others move; also where it has said nothing yet."""
        return self._by == self._ids or self.control is Control.UNKNOWN

    @property
    def another(self) -> bool:
        """Whether another component is in control, by the manager's word."""
        return self._by not in ((0, 0), self._ids)

    def ask(self, now_s: float) -> None:
        """The autopilot is heard after a pause, and asked who holds the gimbal."""
        if self._word_s >= self._asked_s:  # else it was asked before, and has not answered
            self._asked_s = now_s
        # Where the gimbal was held, nothing moves until the manager has said who holds it now.
        if self.control is Control.SILENT and not self._held:
            self._set(Control.UNKNOWN, "")

    def restarted(self) -> None:
        self._by = (0, 0)
        if self.control is not Control.UNKNOWN or self.wanted:
            self._set(Control.NOBODY, "the autopilot was restarted")

    def none_yet(self) -> None:
        """The manager has found no gimbal yet."""
        if not self._held:
            self._set(Control.NOBODY, "the autopilot has found no gimbal yet")

    def silent(self) -> None:
        self._set(Control.SILENT, "the autopilot is silent")

    def read(self, message: Message, now_s: float) -> None:
        """Message 281."""
        self._word_s = now_s
        self._by = (message.primary_control_sysid, message.primary_control_compid)
        if self._by == self._ids and self._yielded:
            return
        self._yielded = False
        if self._by == self._ids:
            self._set(Control.HELD, "")
        elif self._by == (0, 0):
            # Whoever reads only this last word has to learn why steering ended.
            self._set(Control.NOBODY, NOBODY + self._ended)
        else:
            self._set(Control.OTHER, f"{self._name} controls the gimbal")

    def yield_to(self, name: str, now_s: float) -> None:
        """Another moves the gimbal: it is theirs, and given back at once."""
        if not self._yielded:
            self._yielded, self._next_try_s = True, now_s
        self._set(Control.OTHER, f"taken by {name}")
        self.lose(f"taken by {name}")

    def lose(self, reason: str) -> None:
        """Steering ends; whoever steers decides whether to take the gimbal back."""
        if self.wanted:
            self._held = self.wanted = False
            self._ended = "" if reason == NOBODY else f"; steering ended: {reason}"
            self._report(Severity.WARNING, f"steering ends: {reason}")

    def tick(self, now_s: float) -> None:
        """Take what is wanted. What was held is not taken again: another may have got it during a silence."""
        if not self.wanted or self._held or self.control is Control.HELD or now_s < self._next_try_s:
            return
        if not self._fresh:
            if now_s - self._asked_s < WORD_S:
                return
            if self.control is Control.OTHER:
                self.wanted = False
                self._report(
                    Severity.WARNING,
                    f"{self._name} controls the gimbal: steering was enabled before this bridge started;"
                    " disable and enable it to take the gimbal",
                )
                return
        self._next_try_s = now_s + REPEAT_S
        if self._tries == MOST_TRIES and self.control is not Control.UNKNOWN:
            self._report(
                Severity.ERROR, f"the gimbal's manager leaves control with {self._name}, asked 5 times"
            )
        if self._tries < MOST_TRIES:
            self._configure(self._ids)
            self._taken = True
        self._tries += 1

    def give_back(self, now_s: float) -> None:
        """What stands and is not wanted is released, again and again until the manager says so. A bridge that
        has just started may still hear that it is wanted."""
        ours = self._by == self._ids or (self._taken and self.control is Control.UNKNOWN)
        if self.wanted or not ours or now_s < self._next_try_s:
            return
        if self._taken or now_s - self._asked_s >= WORD_S:
            self._next_try_s, self._taken = now_s + REPEAT_S, False
            self._configure(RELEASE_MINE)

    @property
    def _name(self) -> str:
        return f"{self._by[0]}/{self._by[1]}"

    def _set(self, control: Control, reason: str) -> None:
        if (control, reason) == (self.control, self.reason):
            return
        self.control, self.reason = control, reason
        if control is Control.HELD:
            self._held = self.wanted
        elif self._held and control in (Control.OTHER, Control.NOBODY):
            self.lose(reason)
        self._told(control, reason)
