"""Sends the target's position to the autopilot as FOLLOW_TARGET (144). A flight mode of the autopilot then
makes the vehicle follow the target.

Nothing is sent before a person has enabled the sending, for one selection of one target. If something ends
the sending, only a person can enable it again. When no more messages arrive, the autopilots stop following by
themselves: PX4 after 1.5 s, ArduPilot after 3 s.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from efftam_flight.angles import from_angles
from efftam_flight.bridge_config import BridgeConfig
from efftam_flight.control_config import Instant
from efftam_flight.mavlink.dialect import Message, Severity, mav
from efftam_flight.mavlink.ground.geo_status import heading_of
from efftam_flight.values import NS
from efftam_ros.core.errors import InputError
from efftam_ros.core.reasons import NO_REASON, Reason, ReasonCode
from efftam_ros.core.types import TrackState
from efftam_ros.messages.positions import PositionReport

SEND_S = 0.1
HEARTBEAT_S = 1.0
# A position is sent for at most this time after the target was last measured, s.
PREDICTED_S = 1.0
# FOLLOW_TARGET ends if no position arrives for SILENT_S, or no message of the autopilot for
# AUTOPILOT_SILENT_S.
SILENT_S, AUTOPILOT_SILENT_S = 1.0, 3.0
# If the stamp of a position is older than this, s, the stamp is assumed to be of another clock. The age of
# the position is then counted from its arrival.
MAX_LATENCY_S = 2.0
POSITION, VELOCITY, ATTITUDE = 1, 2, 8  # bits of the field est_capabilities of FOLLOW_TARGET
ARMED = mav.MAV_MODE_FLAG_SAFETY_ARMED
FOLLOW_MODES = {mav.MAV_AUTOPILOT_ARDUPILOTMEGA: 23, mav.MAV_AUTOPILOT_PX4: 4 << 16 | 8 << 24}
"""custom_mode of a multicopter's mode that follows a target, by the field `autopilot` of the heartbeat."""
UNSEEN = ReasonCode.FOLLOW_UNSEEN.reason(limit_s=PREDICTED_S)
M_PER_DEGREE = math.radians(6371000.0)


class Following(NamedTuple):
    """The state of FOLLOW_TARGET, with the fields of the message FollowStatus."""

    available: bool
    enabled: bool
    sending: bool
    reason: Reason


class _Mode(NamedTuple):
    """The autopilot's mode. ``number``: its custom_mode. ``follows``: whether this mode follows a target.
    ``armed``: whether the vehicle is armed."""

    number: int
    follows: bool
    armed: bool


class Follow:
    """Sends FOLLOW_TARGET while it is enabled. Not thread-safe: only one thread may call it at a time.

    `tick` must be called at 50 Hz. ``send``: sends a message with the system id `follow_system_id`.
    """

    def __init__(
        self,
        config: BridgeConfig,
        send: Callable[[Message], object],
        report: Callable[[Severity, str], object],
    ) -> None:
        self._config, self._send, self._report = config, send, report
        self._enabled = self._sent = False
        self._reason = NO_REASON if config.follow else ReasonCode.FOLLOW_OFF.reason()
        self._position: PositionReport | None = None
        self._position_s = -math.inf
        self._served = (0, 0)  # target id and selection for which sending was enabled
        self._mode: _Mode | None = None
        self._autopilot_s = -math.inf
        self._next_send_s = self._next_heartbeat_s = -math.inf
        self._first_s: float | None = None
        self._usable_s = -math.inf  # steady time at which a position was last sent

    @property
    def state(self) -> Following:
        return Following(self._config.follow, self._enabled, self._enabled and self._sent, self._reason)

    def enable(self, wanted: bool, now: Instant) -> Reason:
        """Enable or end the sending. Return why no position can be sent yet; empty if one can. Raise
        InputError if it can't be enabled now."""
        if not wanted:
            self._end(NO_REASON, Severity.INFO)
            return NO_REASON
        refusal = self._refusal(now.steady_s)
        if refusal:
            raise InputError(refusal)
        assert self._position is not None
        self._enabled, self._sent = True, False
        self._served = (self._position.target_id, self._position.selection)
        self._reason = self._lack(now)
        self._next_send_s = now.steady_s
        return self._reason

    def _refusal(self, now_s: float) -> str:
        """Return why the sending can't be enabled now; empty if it can."""
        if not self._config.follow:
            return "the parameter follow is false: set it to true and start efftam_mavlink again"
        if self._mode is None or now_s - self._autopilot_s > AUTOPILOT_SILENT_S:
            return "no message of the autopilot arrives: check its link"
        position = self._position
        if position is None or now_s - self._position_s > SILENT_S:
            return "no positions arrive: start efftam_position, and select a target"
        if position.state in (TrackState.IDLE, TrackState.LOST):
            return "no target is followed: select one"
        return ""

    def locate(self, report: PositionReport, now: Instant) -> None:
        """Store the newest position of the steered target. End the sending if the target was cleared, lost,
        or replaced by another selection."""
        self._position, self._position_s = report, now.steady_s
        if not self._enabled:
            return
        if (report.target_id, report.selection) != self._served and report.state is not TrackState.IDLE:
            self._end(ReasonCode.FOLLOW_OTHER_TARGET.reason())
        elif report.state is TrackState.IDLE:
            self._end(ReasonCode.CLEARED.reason())
        elif report.state is TrackState.LOST:
            self._end(ReasonCode.LOST.reason())

    def handle(self, message: Message, now: Instant) -> None:
        """Read the mode from the autopilot's heartbeat. End the sending if the mode changes to one that does
        not follow, or if the vehicle is disarmed. Other messages are ignored."""
        sender = (message.get_srcSystem(), message.get_srcComponent())
        if message.get_type() != "HEARTBEAT" or sender != (
            self._config.system_id,
            self._config.manager_component,
        ):
            return
        self._autopilot_s = now.steady_s
        number = FOLLOW_MODES.get(message.autopilot)
        mode = _Mode(message.custom_mode, message.custom_mode == number, bool(message.base_mode & ARMED))
        before, self._mode = self._mode, mode
        if not self._enabled or before is None:
            return
        if mode.number != before.number and not mode.follows:
            self._end(ReasonCode.FOLLOW_MODE_CHANGED.reason())
        elif before.armed and not mode.armed:
            self._end(ReasonCode.FOLLOW_DISARMED.reason())

    def restarted(self) -> None:
        """End the sending because the autopilot was restarted."""
        self._end(ReasonCode.AUTOPILOT_RESTARTED.reason())

    def tick(self, now: Instant) -> None:
        """Send the messages that are due. End the sending if positions or the autopilot have been silent for
        too long."""
        if not self._config.follow:
            return
        if self._first_s is None:
            self._first_s = now.steady_s
        if now.steady_s >= self._next_heartbeat_s:
            self._next_heartbeat_s = now.steady_s + HEARTBEAT_S
            self._send(
                mav.MAVLink_heartbeat_message(
                    mav.MAV_TYPE_ONBOARD_CONTROLLER,
                    mav.MAV_AUTOPILOT_INVALID,
                    0,
                    0,
                    mav.MAV_STATE_ACTIVE,
                    3,
                )
            )
        if not self._enabled:
            return
        if now.steady_s - self._autopilot_s > AUTOPILOT_SILENT_S:
            self._end(ReasonCode.AUTOPILOT_SILENT.reason(duration=""), Severity.ERROR)
        elif now.steady_s - self._position_s > SILENT_S:
            self._end(ReasonCode.FOLLOW_NO_POSITION.reason(silence_s=SILENT_S), Severity.ERROR)
        elif self._sent and self._unseen_s(now) > PREDICTED_S:
            self._end(UNSEEN)
        elif now.steady_s >= self._next_send_s:
            # The next message is scheduled from the time at which this one was due, not from this tick.
            # Otherwise the rate would be too low.
            self._next_send_s = max(self._next_send_s + SEND_S, now.steady_s)
            self._serve(now)

    def _serve(self, now: Instant) -> None:
        """Send the position if it is usable. End the sending if positions were usable before and have not
        been for `PREDICTED_S`."""
        lack = self._lack(now)
        if not lack:
            assert self._position is not None
            self._sent, self._reason, self._usable_s = True, NO_REASON, now.steady_s
            self._send(self._message(self._position, now))
        elif self._sent and now.steady_s - self._usable_s > PREDICTED_S:
            self._end(lack)
        else:
            self._reason = lack

    def _unseen_s(self, now: Instant) -> float:
        """Return the time since the target was last measured, s; 0 if the newest position is not valid."""
        position = self._position
        if position is None or not position.valid:
            return 0.0
        return now.steady_s - self._position_s + position.age_s

    def _lack(self, now: Instant) -> Reason:
        """Return why the newest position must not be sent; empty if it may be sent."""
        position, limit = self._position, self._config.follow_accuracy
        if position is None or not position.valid:
            return NO_REASON if position is None else position.reason
        if not position.is_geographic:
            return ReasonCode.FOLLOW_NO_LATITUDE.reason()
        if self._unseen_s(now) > PREDICTED_S:
            return UNSEEN
        if not position.accuracy <= limit:
            return ReasonCode.FOLLOW_UNCERTAIN.reason(accuracy=position.accuracy, limit=limit)
        return NO_REASON

    def _end(self, why: Reason, severity: Severity = Severity.WARNING) -> None:
        if self._enabled:
            self._report(severity, f"follow has ended: {why or 'disabled'}")
        if self._enabled or not why:
            self._reason = why if self._config.follow else self._reason
        self._enabled = self._sent = False

    def _message(self, position: PositionReport, now: Instant) -> Message:
        """Return FOLLOW_TARGET with the position predicted to the present time by its velocity."""
        age_s = (now.stamp_ns - position.stamp_ns) / NS
        if not 0.0 <= age_s <= MAX_LATENCY_S:
            age_s = now.steady_s - self._position_s
        north, east = position.velocity_y * age_s, position.velocity_x * age_s
        latitude = position.latitude + north / M_PER_DEGREE
        per_degree = M_PER_DEGREE * math.cos(math.radians(position.latitude))
        heading = heading_of(position)
        knows_heading = math.isfinite(heading)
        assert self._first_s is not None
        return mav.MAVLink_follow_target_message(
            timestamp=round((now.steady_s - self._first_s) * 1e3),
            est_capabilities=POSITION | VELOCITY | (ATTITUDE if knows_heading else 0),
            lat=round(latitude * 1e7),
            lon=round((position.longitude + east / per_degree) * 1e7),
            alt=position.altitude,
            vel=(position.velocity_y, position.velocity_x, 0.0),
            acc=(0.0, 0.0, 0.0),
            attitude_q=from_angles(0.0, 0.0, heading) if knows_heading else (0.0,) * 4,
            rates=(0.0, 0.0, 0.0),
            position_cov=(position.accuracy, 0.0, 0.0),
            custom_state=0,
        )
