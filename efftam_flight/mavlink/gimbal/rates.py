"""Decides which rates are sent to the gimbal and when, and runs the stop sequence after each motion."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from efftam_flight.mavlink.gimbal.standstill import GimbalMotion
from efftam_flight.mavlink.gimbal.stop_sequence import Situation, StopSequence, StopStep
from efftam_flight.values import STOPPED, Rates
from efftam_flight.waits import (
    CONTROLLER_SILENT_S,
    EARLIER_S,
    KEEP_ALIVE_S,
    NO_ATTITUDE_REPORT_S,
    ZERO_S,
)

# A rate that differs from the last one by less than this is not sent before the next repetition, rad/s.
DEAD_BAND = math.radians(0.05)


class GimbalRates:
    """Sends the rates of one gimbal through ``send``. `StopSequence` describes how a motion is ended."""

    def __init__(self, send: Callable[[Rates], None]) -> None:
        self.standstill = GimbalMotion()
        self._put = send
        self._wished = STOPPED
        self._wished_s = -math.inf
        self._sent = STOPPED
        self._sent_s = -math.inf
        self._turning: deque[tuple[float, Rates]] = deque()  # non-zero rates of the last second, with times
        self._stop: StopSequence | None = None
        self._step = StopStep.DONE
        self._is_taken = False  # another component moves the gimbal: nothing is sent until `begin`

    @property
    def step(self) -> StopStep:
        """The present step of the stop sequence; `StopStep.DONE` if no sequence runs."""
        return StopStep.DONE if self._stop is None else self._step

    def begin(self) -> None:
        """Allow rates again because steering was enabled, even if another component moved the gimbal
        before."""
        self._is_taken = False

    def wish(self, rates: Rates, now_s: float) -> None:
        self._wished, self._wished_s = rates, now_s

    def stop_unknown(self) -> None:
        """Stop a gimbal that an earlier process with our ids may have moved."""
        if not self._is_taken:
            self._stop = self._stop or StopSequence(STOPPED)

    def on_restart(self) -> None:
        """Record that the autopilot was restarted, so that it has forgotten another component's command."""
        if self._stop is not None:
            self._stop = replace(self._stop, contested_s=math.inf)

    def on_rival(self, counts: bool, gates: bool, now_s: float) -> None:
        """End our rate because another component commands the gimbal. ``counts``: whether the autopilot is
        known to obey that command. If not, the gimbal's motion is compared with our rate. ``gates``: see
        `AutopilotKind`."""
        self._wished = STOPPED
        if counts:
            self._take_leave()
        elif gates:
            self.stop(now_s)
        elif self._stop is not None:
            self._sent = STOPPED
            stop = self._end(now_s)
            if not stop.is_contested:
                self._stop = replace(stop, contested_s=now_s)
        else:
            self._take_leave()

    def starved(self, now_s: float) -> bool:
        """Return whether the controller stopped sending rates during a motion. Its last rates are then
        discarded, so that the gimbal stops."""
        moves = not (self._wished.is_zero and self._sent.is_zero)
        starved = moves and now_s - self._wished_s > CONTROLLER_SILENT_S
        if starved:
            self._wished = STOPPED
        return starved

    def unseen(self, now_s: float) -> bool:
        """Return whether zero rates have been sent for longer than `NO_ATTITUDE_REPORT_S`. This happens if no
        attitudes arrive, so that nothing shows whether the gimbal stands."""
        stop = self._stop
        return (
            stop is not None
            and now_s - stop.zeros_s > NO_ATTITUDE_REPORT_S
            and not self.standstill.is_known(now_s)
        )

    def update(self, may_steer: bool, at: Situation, now_s: float) -> None:
        """Send the rates that are due: a changed rate at once, an unchanged one after `KEEP_ALIVE_S`, a zero
        rate after `ZERO_S`. ``may_steer``: whether rates of the controller may be sent."""
        if self._is_taken:
            return
        rates = self._wished if may_steer else STOPPED
        if not rates.is_zero:
            self._stop, self._step = StopSequence(rates), StopStep.ZERO
        elif self._stop is None:
            return
        else:
            # The first zero rate after a motion is sent even if the step is not ZERO, so that the last rate
            # on the link is a zero.
            is_first = self._stop.ended_s == math.inf
            self._step = self._end(now_s).step(at, self.standstill, now_s)
            if self._step is StopStep.TAKEN:
                self._take_leave()
                return
            if self._step is StopStep.DONE:
                self._stop = None
                return
            if self._step is not StopStep.ZERO and not is_first:
                return
            if self._stop.is_contested:  # the other component's command had no effect: our rate still holds
                self._stop = replace(self._stop, contested_s=math.inf)
        changed = (
            rates.is_zero != self._sent.is_zero
            or abs(rates.pitch - self._sent.pitch) >= DEAD_BAND
            or abs(rates.yaw - self._sent.yaw) >= DEAD_BAND
            or (rates.is_zero and self._stop.zeros_s == math.inf)
        )
        if changed or now_s - self._sent_s >= (ZERO_S if rates.is_zero else KEEP_ALIVE_S):
            self._send(rates, now_s)

    def stop(self, now_s: float) -> None:
        """Stop the gimbal. After a motion three zero rates are sent at once, since a packet may be lost and
        the next one would be sent a tick later."""
        self._wished = STOPPED
        if not (self._sent.is_zero or self._is_taken):
            for _ in range(3):
                self._send(STOPPED, now_s)

    def _take_leave(self) -> None:
        """End all sending, because the gimbal obeys another component's command."""
        self._is_taken, self._stop, self._sent = True, None, STOPPED

    def _end(self, now_s: float) -> StopSequence:
        """Return the stop sequence. The first call after a motion stores in it when the motion ended, how the
        gimbal turned then, and the rates of the last second."""
        assert self._stop is not None
        if self._stop.ended_s == math.inf:
            turned = self.standstill.motion(-math.inf, now_s)
            earlier = tuple(rates for sent_s, rates in self._turning if now_s - sent_s <= EARLIER_S)
            self._stop = replace(self._stop, ended_s=now_s, earlier=earlier, turned=turned)
        return self._stop

    def _send(self, rates: Rates, now_s: float) -> None:
        if rates.is_zero and self._stop is not None and self._stop.zeros_s == math.inf:
            self._stop = replace(self._stop, zeros_s=now_s)
        if not rates.is_zero:
            self._turning.append((now_s, rates))
            while now_s - self._turning[0][0] > EARLIER_S:
                self._turning.popleft()
        self._sent, self._sent_s = rates, now_s
        self._put(rates)
