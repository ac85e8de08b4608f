"""Requests and releases control of the gimbal (command 1001), and reads who is in control (message 281)."""

from __future__ import annotations

import math
from collections.abc import Callable

from efftam_flight.mavlink.dialect import Message, Severity, mav
from efftam_flight.values import Control
from efftam_flight.waits import ASK_AGAIN_S, MANAGER_S, MAX_REQUESTS
from efftam_ros.core.reasons import NO_REASON, Reason, ReasonCode

CONFIGURE = mav.MAV_CMD_DO_GIMBAL_MANAGER_CONFIGURE
RELEASE_MINE = (-3, -3)

Ids = tuple[int, int]


class GimbalHolder:
    """Requests, keeps and releases control of the gimbal.

    ``configure``: sends command 1001 with the ids of the component that shall be in control.
    ``on_control_changed``: called at each change of control, with the reason.
    """

    def __init__(
        self,
        ids: Ids,
        configure: Callable[[Ids], None],
        on_control_changed: Callable[[Control, Reason], None],
        report: Callable[[Severity, str], object],
    ) -> None:
        self._ids, self._configure, self._report = ids, configure, report
        self._on_control_changed = on_control_changed
        self.control, self.reason = Control.SILENT, NO_REASON
        self.wanted = False
        self._ended = ""  # text for the log: why steering ended after the last `want`
        self._by: Ids = (0, 0)  # ids of the component in control, as the manager reports; (0, 0): nobody
        # Whether this node has held control of the gimbal at any time since the last `want`.
        self._held = False
        self._fresh = True  # whether steering was enabled just now; see `want`
        self._asked_s = -math.inf  # when the manager was asked who is in control, s
        self._answered_s = -math.inf  # when the manager last reported who is in control, s
        self._tries = 0
        self._next_try_s = -math.inf
        self._taken = False  # whether control was requested and not released since
        self._yielded = False  # whether another component moves the gimbal, whatever the manager reports
        self._is_restarted = False  # whether the autopilot restarted and has named nobody in control since
        self._stop_tries = 0

    def want(self, wanted: bool, fresh: bool, now_s: float) -> None:
        """Set whether control of the gimbal is wanted. `tick` then requests control, and `give_back` releases
        it. ``fresh``: whether steering was enabled just now. False: steering was enabled before this process
        started, so control is not taken from another component."""
        self.wanted, self._held, self._fresh = wanted, wanted and self.control is Control.HELD, fresh
        self._tries, self._next_try_s, self._ended = 0, now_s, ""
        self._yielded = self._yielded and not wanted
        self._stop_tries = 0

    def may_steer(self, gates: bool, now_s: float) -> bool:
        """Return whether rates of the controller may be sent.

        The manager must have reported us in control after the last request for its status: an earlier report
        may date from before a restart of the autopilot. A manager that obeys rates of any component (not
        ``gates``) may never report anything. To such a manager rates are sent after `MANAGER_S`.
        """
        if self.control is Control.UNKNOWN:
            return self.wanted and not gates and now_s - self._asked_s >= MANAGER_S
        return self.wanted and self.control is Control.HELD and self._answered_s >= self._asked_s

    @property
    def in_control(self) -> bool:
        """Whether the autopilot is expected to obey our zero rates: the manager names us, or has reported
        nothing yet, or was restarted and then asked for control to stop the gimbal."""
        is_asked = self._is_restarted and self._stop_tries > 0
        return self._by == self._ids or self.control is Control.UNKNOWN or is_asked

    @property
    def another(self) -> bool:
        """Whether the manager reports another component in control."""
        return self._by not in ((0, 0), self._ids)

    def ask(self, now_s: float) -> None:
        """Record that the autopilot sends again after a pause, and was asked who controls the gimbal."""
        if self._answered_s >= self._asked_s:  # otherwise an earlier question is still unanswered
            self._asked_s = now_s
        # If we were in control before the pause, control stays SILENT, and so no rate is sent, until the
        # manager has reported who is in control now.
        if self.control is Control.SILENT and not self._held:
            self._set(Control.UNKNOWN, NO_REASON)

    def on_restart(self) -> None:
        """Record that the autopilot was restarted, so that nobody is in control any more."""
        self._by = (0, 0)
        self._is_restarted, self._stop_tries = True, 0
        if self.control is not Control.UNKNOWN or self.wanted:
            self._set(Control.NOBODY, ReasonCode.AUTOPILOT_RESTARTED.reason())

    def none_yet(self) -> None:
        """Record that the manager has found no gimbal yet."""
        if not self._held:
            self._set(Control.NOBODY, ReasonCode.NO_GIMBAL.reason())

    def silent(self) -> None:
        self._set(Control.SILENT, ReasonCode.AUTOPILOT_SILENT.reason(duration=""))

    def read(self, message: Message, now_s: float) -> None:
        """Read who is in control from message 281, GIMBAL_MANAGER_STATUS."""
        self._answered_s = now_s
        self._by = (message.primary_control_sysid, message.primary_control_compid)
        if self._by == self._ids and self._yielded:
            return
        self._yielded = False
        self._is_restarted = self._is_restarted and self._by == (0, 0)
        if self._by == self._ids:
            self._set(Control.HELD, NO_REASON)
        elif self._by == (0, 0):
            # A user may read only this last status, so its reason repeats why steering ended.
            self._set(Control.NOBODY, ReasonCode.NOBODY_IN_CONTROL.reason(ended=self._ended))
        else:
            self._set(Control.OTHER, ReasonCode.OTHER_IN_CONTROL.reason(name=self._name))

    def yield_to(self, name: str, now_s: float) -> None:
        """End steering because another component, ``name``, commands the gimbal. Control is released without
        delay."""
        if not self._yielded:
            self._yielded, self._next_try_s = True, now_s
        taken = ReasonCode.TAKEN_BY_OTHER.reason(name=name)
        self._set(Control.OTHER, taken)
        self.lose(taken)

    def lose(self, reason: Reason) -> None:
        """End steering for this reason. Control is not requested again before the next `want`."""
        if self.wanted:
            self._held = self.wanted = False
            is_released = reason.code is ReasonCode.NOBODY_IN_CONTROL
            self._ended = "" if is_released else f"; steering ended: {reason}"
            self._report(Severity.WARNING, f"steering ends: {reason}")

    def tick(self, gates: bool, now_s: float) -> None:
        """Request control if it is wanted and was not held since the last `want`. Control that was held and
        lost is not requested again, because another component may need it. ``gates``: see `AutopilotKind`."""
        is_unanswered = self.control is Control.UNKNOWN and now_s - self._asked_s >= MANAGER_S
        # A manager that does not report who is in control, and obeys only the component in control, can't be
        # sent rates. So the controller must receive this reason.
        if self.wanted and gates and is_unanswered:
            self._set(Control.NOBODY, ReasonCode.MANAGER_SILENT.reason(limit_s=MANAGER_S))
        if not self.wanted or self._held or self.control is Control.HELD or now_s < self._next_try_s:
            return
        if not self._fresh:
            if now_s - self._asked_s < MANAGER_S:
                return
            if self.control is Control.OTHER:
                self.wanted = False
                self._report(
                    Severity.WARNING,
                    f"{self._name} is in control of the gimbal: steering was enabled before this bridge"
                    " started; disable and enable it to take the gimbal",
                )
                return
        self._next_try_s = now_s + ASK_AGAIN_S
        if self._tries == MAX_REQUESTS and self.control is not Control.UNKNOWN:
            self._report(
                Severity.ERROR,
                f"the gimbal's manager leaves control with {self._name} after {MAX_REQUESTS} requests",
            )
        if self._tries < MAX_REQUESTS:
            self._configure(self._ids)
            self._taken = True
        self._tries += 1

    def take_to_stop(self, now_s: float) -> None:
        """Request control from a restarted autopilot, to stop the gimbal. The gimbal may still turn by our
        last rate, and the autopilot obeys no zero rate before it has granted control. The request is
        repeated, because the autopilot may not be ready yet."""
        if self.wanted or not self._is_restarted or now_s < self._next_try_s:
            return
        if self._stop_tries < MAX_REQUESTS:
            self._next_try_s, self._taken = now_s + ASK_AGAIN_S, True
            self._stop_tries += 1
            self._configure(self._ids)

    def give_back(self, now_s: float) -> None:
        """Release control that is not wanted, and repeat this until the manager confirms it. Must be called
        only when the gimbal stands. Control that an earlier process has left is released after `MANAGER_S`,
        since the message `steering_enabled` may still arrive."""
        ours = self._by == self._ids or (self._taken and self.control is Control.UNKNOWN)
        if self.wanted or not ours or now_s < self._next_try_s:
            return
        if self._taken or now_s - self._asked_s >= MANAGER_S:
            self._next_try_s, self._taken = now_s + ASK_AGAIN_S, False
            self._configure(RELEASE_MINE)

    @property
    def _name(self) -> str:
        return f"{self._by[0]}/{self._by[1]}"

    def _set(self, control: Control, reason: Reason) -> None:
        if (control, reason) == (self.control, self.reason):
            return
        self.control, self.reason = control, reason
        if control is Control.HELD:
            self._held = self.wanted
        elif self._held and control in (Control.OTHER, Control.NOBODY):
            self.lose(reason)
        self._on_control_changed(control, reason)
