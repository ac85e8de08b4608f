"""Watches the gimbal independently of its controller: which link to it is silent, and whether it stands.

The controller reports "stopped" as soon as it sends zeros. Whether the gimbal obeys is known only from the
gimbal's attitude, which comes back from the autopilot through the bridge.
"""

from __future__ import annotations

import math
from collections import deque
from typing import NamedTuple

from efftam_operator.feed import Link, Stop

# A bridge sends a message at least once a second; after so long without one it is silent, s.
BRIDGE_SILENT_S = 1.5
# The gimbal stands when its attitude stayed within this angle, rad, for so long, s. At least so many
# attitudes must show it, and the newest must not be older than the pause, s.
STANDS_S, SPREAD_RAD, LEAST = 0.5, math.radians(0.25), 3
PAUSE_S = 0.6
# How far a heading is extrapolated by the yaw rate that came with it, s.
EXTRAPOLATED_S = 0.3
# A STOP that has not been confirmed after this time is reported as not confirmed, s. PX4 keeps a last rate
# for 2 s.
CONFIRM_S = 2.2

Quaternion = tuple[float, float, float, float]
"""w, x, y, z; from the gimbal's axes (forward, right, down) to level ones."""


class Attitude(NamedTuple):
    """The gimbal's attitude. ``counts_from_north``: forward of the level axes is north, else the nose."""

    stamp_ns: int
    q: Quaternion
    counts_from_north: bool


class Heading(NamedTuple):
    """The vehicle's yaw from north, rad, and its rate, rad/s."""

    stamp_ns: int
    yaw: float
    yaw_rate: float


class AttitudeWindow:
    """The last second of the gimbal's attitudes. Times are those of arrival on a steady clock, s."""

    def __init__(self) -> None:
        self._heading: Heading | None = None
        # When, the attitude in its own frame, and in the other one (None where the heading is not known).
        self._seen: deque[tuple[float, Quaternion, Quaternion | None]] = deque()
        self._newest_is_from_north = False

    def turn(self, heading: Heading) -> None:
        """Take the vehicle's heading: a gimbal may stand towards north on a turning vehicle."""
        self._heading = heading if math.isfinite(heading.yaw + heading.yaw_rate) else None

    def take(self, attitude: Attitude, now_s: float) -> None:
        """Take an attitude; one that is no rotation is not used."""
        length = math.sqrt(sum(v * v for v in attitude.q))
        if not 0.9 < length < 1.1:
            return
        w, x, y, z = (v / length for v in attitude.q)
        other = None
        heading = self._heading
        if heading is not None:
            ahead_s = (attitude.stamp_ns - heading.stamp_ns) * 1e-9
            if abs(ahead_s) <= EXTRAPOLATED_S:
                yaw = heading.yaw + heading.yaw_rate * ahead_s
                half = (-yaw if attitude.counts_from_north else yaw) / 2
                c, s = math.cos(half), math.sin(half)
                other = (c * w - s * z, c * x - s * y, c * y + s * x, c * z + s * w)  # turned about down
        self._seen.append((now_s, (w, x, y, z), other))
        self._newest_is_from_north = attitude.counts_from_north
        while now_s - self._seen[0][0] > 2 * STANDS_S:
            self._seen.popleft()

    def angles(self, now_s: float) -> tuple[float, float | None] | None:
        """Pitch, up positive, and yaw from the vehicle's nose, right positive, rad; None where the nose is
        not known. None while no attitude arrives."""
        if not self.is_known(now_s):
            return None
        _, own, other = self._seen[-1]
        w, x, y, z = own
        pitch = math.asin(max(-1.0, min(1.0, 2 * (w * y - z * x))))
        from_nose = other if self._newest_is_from_north else own
        if from_nose is None:
            return pitch, None
        w, x, y, z = from_nose
        return pitch, math.atan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))

    def is_known(self, now_s: float) -> bool:
        """Return whether attitudes arrive."""
        return bool(self._seen) and now_s - self._seen[-1][0] <= PAUSE_S

    def stands(self, since_s: float, now_s: float) -> bool:
        """Return whether it stood for `STANDS_S` up to now, all of it after ``since_s``, towards the
        vehicle's nose or towards north."""
        after = [seen for seen in self._seen if seen[0] >= since_s]
        if not after or not self.is_known(now_s) or after[-1][0] - after[0][0] < STANDS_S:
            return False
        # The last half second, and one attitude from before it.
        older = sum(after[-1][0] - seen[0] >= STANDS_S for seen in after)
        window = after[older - 1 :]
        if len(window) < LEAST:
            return False
        own, other = [seen[1] for seen in window], [seen[2] for seen in window]
        return _spread_rad(own) <= SPREAD_RAD or _spread_rad(other) <= SPREAD_RAD


class GimbalWatch:
    """Keeps what arrives from the bridge, and decides what has become of a STOP.

    ``now_s`` of every call is from one steady clock, s.
    """

    def __init__(self) -> None:
        self._attitudes = AttitudeWindow()
        self._bridge_s: float | None = None  # of the bridge's last message, None before the first
        self._bridge_first_s = 0.0
        self._autopilot_s: float | None = None  # of the last sign of the autopilot
        self._gimbal_s: float | None = None  # time of the gimbal's last message
        self._is_autopilot_silent = self._is_gimbal_silent = False  # by the bridge's last message
        self._stop_s: float | None = None  # when STOP was asked for
        self._is_answered = False  # the controller has carried it out
        self._fault = ""  # why the controller has not
        self.stop = Stop.NONE

    def hear_manager(self, autopilot_silent: bool, gimbal_alive: bool, now_s: float) -> None:
        """Take the bridge's report on the autopilot and the gimbal."""
        if self._bridge_s is None:
            self._bridge_first_s = now_s
        self._bridge_s = now_s
        self._is_autopilot_silent, self._is_gimbal_silent = autopilot_silent, not gimbal_alive
        if not autopilot_silent:
            self._autopilot_s = now_s
            if gimbal_alive:
                self._gimbal_s = now_s

    def hear_attitude(self, attitude: Attitude, now_s: float) -> None:
        if self._bridge_s is not None:  # else it comes from a driver, and there is no bridge
            self._bridge_s = self._autopilot_s = self._gimbal_s = now_s
        self._attitudes.take(attitude, now_s)

    def hear_heading(self, heading: Heading, now_s: float) -> None:
        if self._bridge_s is not None:
            self._bridge_s = self._autopilot_s = now_s
        self._attitudes.turn(heading)

    def angles(self, now_s: float) -> tuple[float, float | None] | None:
        """See `AttitudeWindow.angles`."""
        return self._attitudes.angles(now_s)

    def silence(self, now_s: float, is_wanted: bool = True) -> tuple[Link, float] | None:
        """Return the link nearest to the controller that is silent, and for how long, s; None where there is
        none.

        A bridge that never sent is not missed: another driver may move the gimbal. An autopilot that never
        sent is missed only where it ``is_wanted``, to steer.
        """
        if self._bridge_s is not None and now_s - self._bridge_s > BRIDGE_SILENT_S:
            return Link.BRIDGE, now_s - self._bridge_s
        if self._is_autopilot_silent and (is_wanted or self._autopilot_s is not None):
            since_s = self._bridge_first_s if self._autopilot_s is None else self._autopilot_s
            return Link.AUTOPILOT, now_s - since_s
        if self._is_gimbal_silent and self._gimbal_s is not None:
            return Link.GIMBAL, now_s - self._gimbal_s
        return None

    def begin_stop(self, now_s: float) -> None:
        """STOP is asked for."""
        self._stop_s, self._is_answered, self.stop = now_s, False, Stop.WAITING
        self._fault = "the gimbal's controller does not answer"

    def answer_stop(self, fault: str) -> None:
        """Take the controller's answer to the STOP. ``fault``: why it was not carried out; empty: it was."""
        self._is_answered, self._fault = not fault, fault

    def forget_stop(self) -> None:
        """Steering was enabled again."""
        self._stop_s, self.stop = None, Stop.NONE

    def judge_stop(self, now_s: float) -> str:
        """Bring `stop` up to date. Returns why it is not confirmed and what to do; empty in other states."""
        if self._stop_s is None or self.stop is Stop.STOPPED:
            return ""
        doubt = self._doubt(self._stop_s, now_s)
        if not doubt:
            self.stop = Stop.STOPPED
        elif now_s - self._stop_s >= CONFIRM_S:
            self.stop = Stop.UNCONFIRMED
        return f"{doubt}; take over by the stick" if self.stop is Stop.UNCONFIRMED else ""

    def _doubt(self, since_s: float, now_s: float) -> str:
        """Return why it is not known that the gimbal stands; empty when it does."""
        silence = self.silence(now_s)
        if silence is not None:
            link, silent_s = silence
            return f"the {link.value} has been silent for {silent_s:.0f} s"
        if not self._is_answered:
            return self._fault
        if self._attitudes.stands(since_s, now_s):
            return ""
        if self._attitudes.is_known(now_s):
            return "the gimbal still turns"
        return "no attitude of the gimbal arrives"


def _spread_rad(attitudes: list[Quaternion] | list[Quaternion | None]) -> float:
    """Return how far they are turned from the first; infinite where one is not known."""
    first, widest = attitudes[0], 0.0
    for q in attitudes:
        if first is None or q is None:
            return math.inf
        # The vector of conj(first) q: half the angle's sine.
        (a, b, c, d), (w, x, y, z) = first, q
        vector = (
            a * x - b * w - c * z + d * y,
            a * y + b * z - c * w - d * x,
            a * z - b * y + c * x - d * w,
        )
        widest = max(widest, 2 * math.asin(min(1.0, math.hypot(*vector))))
    return widest
