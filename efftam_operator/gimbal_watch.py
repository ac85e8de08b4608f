"""Watches the gimbal independently of its controller.

Finds which member of the chain controller, bridge, autopilot, gimbal is silent, and whether the gimbal is at
rest after a STOP. The controller reports "stopped" as soon as it commands rates of zero. Whether the gimbal
obeys is known only from its attitude, which the bridge receives from the autopilot.
"""

from __future__ import annotations

import math
from collections import deque
from typing import NamedTuple

from efftam_operator.feed import Link, Stop

# The bridge counts as silent after this time without a message, s. It sends at least one a second.
BRIDGE_SILENT_S = 1.5
# The gimbal is at rest when its attitude stayed within SPREAD_RAD for STANDS_S seconds. At least LEAST
# attitudes must show it, and the newest must not be older than PAUSE_S seconds.
STANDS_S, SPREAD_RAD, LEAST = 0.5, math.radians(0.25), 3
PAUSE_S = 0.6
# Longest time over which a heading is extrapolated by its yaw rate, s.
EXTRAPOLATED_S = 0.3
# Time after a STOP at which it is reported as not confirmed, s. PX4 may turn the gimbal for 2 s by the last
# rate that it received.
CONFIRM_S = 2.2

Quaternion = tuple[float, float, float, float]
"""Rotation (w, x, y, z) from the gimbal's axes to level axes; both are (forward, right, down)."""


class Attitude(NamedTuple):
    """The gimbal's attitude at one time.

    ``q``: rotation from the gimbal's axes to level axes. ``counts_from_north``: the level forward axis points
    north; if false, along the vehicle's nose.
    """

    stamp_ns: int
    q: Quaternion
    counts_from_north: bool


class Heading(NamedTuple):
    """The vehicle's yaw from north, rad, and its yaw rate, rad/s, at one time."""

    stamp_ns: int
    yaw: float
    yaw_rate: float


class AttitudeWindow:
    """The gimbal's attitudes of the last second. ``now_s``, ``since_s``: times of one monotonic clock, s."""

    def __init__(self) -> None:
        self._heading: Heading | None = None
        # For each attitude: the time of its arrival, the attitude as it was received (from north or from the
        # nose), and the attitude in the other frame (None if the vehicle's heading is not known).
        self._seen: deque[tuple[float, Quaternion, Quaternion | None]] = deque()
        self._newest_is_from_north = False

    def turn(self, heading: Heading) -> None:
        """Store the vehicle's heading.

        It is needed because a gimbal that keeps its direction on a turning vehicle is at rest as well.
        """
        self._heading = heading if math.isfinite(heading.yaw + heading.yaw_rate) else None

    def take(self, attitude: Attitude, now_s: float) -> None:
        """Store an attitude. An attitude whose quaternion is no rotation is ignored."""
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
                # A turn by the vehicle's yaw about the axis that points down changes the attitude's reference
                # from north to the vehicle's nose, or from the nose to north.
                other = (c * w - s * z, c * x - s * y, c * y + s * x, c * z + s * w)
        self._seen.append((now_s, (w, x, y, z), other))
        self._newest_is_from_north = attitude.counts_from_north
        while now_s - self._seen[0][0] > 2 * STANDS_S:
            self._seen.popleft()

    def angles(self, now_s: float) -> tuple[float, float | None] | None:
        """Return the newest pitch (up positive) and yaw from the vehicle's nose (right positive), rad.

        The yaw is None if the direction of the nose is unknown. Returns None while no attitude arrives.
        """
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
        """Return whether attitudes arrive: the newest is at most `PAUSE_S` old."""
        return bool(self._seen) and now_s - self._seen[-1][0] <= PAUSE_S

    def stands(self, since_s: float, now_s: float) -> bool:
        """Return whether the gimbal has been at rest for the last `STANDS_S` seconds, all after ``since_s``.

        It is at rest if its attitude is constant relative to the vehicle's nose or relative to north.
        """
        after = [seen for seen in self._seen if seen[0] >= since_s]
        if not after or not self.is_known(now_s) or after[-1][0] - after[0][0] < STANDS_S:
            return False
        # The window contains the attitudes of the last STANDS_S seconds and the newest attitude before them.
        older = sum(after[-1][0] - seen[0] >= STANDS_S for seen in after)
        window = after[older - 1 :]
        if len(window) < LEAST:
            return False
        own, other = [seen[1] for seen in window], [seen[2] for seen in window]
        return _spread_rad(own) <= SPREAD_RAD or _spread_rad(other) <= SPREAD_RAD


class GimbalWatch:
    """Collects the bridge's reports and the gimbal's attitudes, and decides whether a STOP was carried out.

    ``now_s`` of every method comes from one monotonic clock, s.
    """

    def __init__(self) -> None:
        self._attitudes = AttitudeWindow()
        self._bridge_s: float | None = None  # time of the bridge's last message; None: none has arrived
        self._bridge_first_s = 0.0
        self._autopilot_s: float | None = None  # when the autopilot was last alive; None: never
        self._gimbal_s: float | None = None  # when the gimbal was last alive; None: never
        self._is_autopilot_silent = self._is_gimbal_silent = False  # as the bridge last reported
        self._stop_s: float | None = None  # when STOP was commanded; None: no STOP is to be confirmed
        self._is_answered = False  # the controller has accepted the STOP
        self._fault = ""  # why the controller has not accepted the STOP
        self.stop = Stop.NONE

    def hear_manager(self, autopilot_silent: bool, gimbal_alive: bool, now_s: float) -> None:
        """Store the bridge's report: whether the autopilot is silent and whether the gimbal is alive."""
        if self._bridge_s is None:
            self._bridge_first_s = now_s
        self._bridge_s = now_s
        self._is_autopilot_silent, self._is_gimbal_silent = autopilot_silent, not gimbal_alive
        if not autopilot_silent:
            self._autopilot_s = now_s
            if gimbal_alive:
                self._gimbal_s = now_s

    def hear_attitude(self, attitude: Attitude, now_s: float) -> None:
        if self._bridge_s is not None:  # else there is no bridge, and a gimbal driver sends the attitude
            self._bridge_s = self._autopilot_s = self._gimbal_s = now_s
        self._attitudes.take(attitude, now_s)

    def hear_heading(self, heading: Heading, now_s: float) -> None:
        if self._bridge_s is not None:
            self._bridge_s = self._autopilot_s = now_s
        self._attitudes.turn(heading)

    def angles(self, now_s: float) -> tuple[float, float | None] | None:
        """Return pitch and yaw as `AttitudeWindow.angles` does."""
        return self._attitudes.angles(now_s)

    def silence(self, now_s: float, is_wanted: bool = True) -> tuple[Link, float] | None:
        """Return the silent link nearest to the controller, and the length of its silence, s.

        Returns None if no link is silent. A bridge that never sent does not count as silent: a gimbal driver
        may run instead. An autopilot that never sent counts as silent only if ``is_wanted``, which means that
        steering needs the autopilot.
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
        """Note that STOP was commanded at ``now_s``."""
        self._stop_s, self._is_answered, self.stop = now_s, False, Stop.WAITING
        self._fault = "the gimbal's controller does not answer"

    def answer_stop(self, fault: str) -> None:
        """Note the controller's answer to the STOP. ``fault``: why it was refused; empty: accepted."""
        self._is_answered, self._fault = not fault, fault

    def forget_stop(self) -> None:
        """Note that steering was enabled again: no STOP is to be confirmed any more."""
        self._stop_s, self.stop = None, Stop.NONE

    def judge_stop(self, now_s: float) -> str:
        """Update the attribute `stop`, the state of the last STOP.

        If the state is UNCONFIRMED, returns in one line why the STOP is not confirmed and what to do.
        Otherwise returns "".
        """
        if self._stop_s is None or self.stop is Stop.STOPPED:
            return ""
        doubt = self._doubt(self._stop_s, now_s)
        if not doubt:
            self.stop = Stop.STOPPED
        elif now_s - self._stop_s >= CONFIRM_S:
            self.stop = Stop.UNCONFIRMED
        return f"{doubt}; take over by the stick" if self.stop is Stop.UNCONFIRMED else ""

    def _doubt(self, since_s: float, now_s: float) -> str:
        """Return why it is not certain that the gimbal is at rest after ``since_s``; empty if it is."""
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
    """Return the largest angle by which an attitude is turned from the first, rad; inf if one is None."""
    first, widest = attitudes[0], 0.0
    for q in attitudes:
        if first is None or q is None:
            return math.inf
        # The vector part of conj(first) * q; its length is the sine of half the angle between them.
        (a, b, c, d), (w, x, y, z) = first, q
        vector = (
            a * x - b * w - c * z + d * y,
            a * y + b * z - c * w - d * x,
            a * z - b * y + c * x - d * w,
        )
        widest = max(widest, 2 * math.asin(min(1.0, math.hypot(*vector))))
    return widest
