"""Converts the target's position to the message CAMERA_TRACKING_GEO_STATUS (276)."""

from __future__ import annotations

import math

from efftam_flight.mavlink.dialect import Message, mav
from efftam_flight.mavlink.tracking_status import status_flags
from efftam_ros.core.types import TrackState
from efftam_ros.messages.positions import PositionReport

UNKNOWN_PLACE = 2**31 - 1
# In these states the target has no position.
NOWHERE = (TrackState.IDLE, TrackState.LOST)
# The heading of a target slower than this is unknown, m/s.
MIN_HEADING_SPEED = 1.0


def heading_of(report: PositionReport) -> float:
    """Return the direction in which the target moves, from north to the right, 0 to 2 pi rad; NaN if it moves
    slower than `MIN_HEADING_SPEED`."""
    if not math.hypot(report.velocity_x, report.velocity_y) >= MIN_HEADING_SPEED:
        return math.nan
    return math.atan2(report.velocity_x, report.velocity_y) % (2 * math.pi)


def geo_message(state: TrackState, report: PositionReport | None, lost: str = "error") -> Message:
    """Return the message with the target's position.

    ``state``: the target's state. ``report``: its position, None if unknown. ``lost``: "error" or "idle", how
    the state LOST is reported. Unknown numbers are NaN; unknown latitude and longitude are `UNKNOWN_PLACE`.
    """
    known = None
    if report is not None and report.valid and report.is_geographic and state not in NOWHERE:
        known = report
    found = known or PositionReport(0)
    return mav.MAVLink_camera_tracking_geo_status_message(
        tracking_status=status_flags(state, lost),
        lat=UNKNOWN_PLACE if known is None else round(known.latitude * 1e7),
        lon=UNKNOWN_PLACE if known is None else round(known.longitude * 1e7),
        alt=found.altitude,
        h_acc=found.accuracy,
        v_acc=math.nan,
        vel_n=found.velocity_y,
        vel_e=found.velocity_x,
        vel_d=math.nan,
        vel_acc=math.sqrt(found.covariance[10] + found.covariance[15]),
        dist=found.range,
        hdg=heading_of(found),
        hdg_acc=math.nan,
    )
