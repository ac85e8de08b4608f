"""Reads the vehicle's position and heights from the autopilot's messages, to compute the target's
position."""

from __future__ import annotations

import math
from collections.abc import Callable

from efftam_flight.bridge_config import GIMBAL_COMPONENTS, BridgeConfig
from efftam_flight.control_config import Instant
from efftam_flight.mavlink.clock_map import ClockMap
from efftam_flight.mavlink.dialect import Message, mav
from efftam_flight.position.geodesy import GeoPoint
from efftam_flight.position.poses import PlaceSample
from efftam_flight.values import NS

POSITION = mav.MAVLINK_MSG_ID_GLOBAL_POSITION_INT
# These messages are requested only once after each start of the autopilot. Many vehicles never send them, and
# repeated requests would cause warnings.
ONCE = (mav.MAVLINK_MSG_ID_DISTANCE_SENSOR, mav.MAVLINK_MSG_ID_TERRAIN_REPORT)
ONCE_HZ = 5.0
# A range or terrain height that is older than this is not used, s.
RANGE_AGE_S, TERRAIN_AGE_S = 0.5, 3.0
INVALID_SIGNAL = 1  # value of DISTANCE_SENSOR.signal_quality that means "invalid"; 0 means "unknown"


def measured_range(message: Message) -> float | None:
    """Return the distance in a DISTANCE_SENSOR message, m; None if it is invalid or outside the sensor's
    range."""
    is_in_range = message.min_distance <= message.current_distance <= message.max_distance
    return (
        message.current_distance / 100.0 if is_in_range and message.signal_quality != INVALID_SIGNAL else None
    )


class VehicleState:
    """Reads the autopilot's positions. ``deliver`` is called with one sample for each of them."""

    def __init__(self, config: BridgeConfig, deliver: Callable[[PlaceSample], object]) -> None:
        self._config, self._deliver = config, deliver
        self._range: tuple[float, float] = (math.nan, -math.inf)  # (range in m, its arrival in s)
        self._terrain: tuple[float, float] = (math.nan, -math.inf)

    def handle(self, message: Message, clock: ClockMap, now: Instant) -> None:
        """Read a message, if it is of our vehicle. ``clock``: the autopilot's clock."""
        if message.get_srcSystem() != self._config.system_id:
            return
        kind, component = message.get_type(), message.get_srcComponent()
        if kind == "DISTANCE_SENSOR" and self._looks_along_axis(message):
            distance_m = measured_range(message)
            self._range = (math.nan if distance_m is None else distance_m, now.steady_s)
        elif component != self._config.manager_component:
            return
        elif kind == "TERRAIN_REPORT":
            # A spacing of 0 means that the autopilot has no terrain data for this place.
            height_m = message.current_height if message.spacing else math.nan
            self._terrain = (height_m, now.steady_s)
        elif kind == "GLOBAL_POSITION_INT":
            self._deliver(self._sample(message, clock, now))

    def _looks_along_axis(self, message: Message) -> bool:
        wanted = self._config.range_orientation
        return message.get_srcComponent() in GIMBAL_COMPONENTS or message.orientation == wanted

    def _sample(self, message: Message, clock: ClockMap, now: Instant) -> PlaceSample:
        made_s = now.steady_s
        if clock.is_known:
            made_s = min(clock.when(message.time_boot_ms / 1e3, now.steady_s), now.steady_s)
        (range_m, ranged_s), (terrain_m, known_s) = self._range, self._terrain
        return PlaceSample(
            now.stamp_ns - round((now.steady_s - made_s) * NS),
            GeoPoint(message.lat / 1e7, message.lon / 1e7, message.alt / 1e3),
            (message.vx / 100.0, message.vy / 100.0, message.vz / 100.0),
            height_above_home=message.relative_alt / 1e3,
            height_above_terrain=terrain_m if now.steady_s - known_s <= TERRAIN_AGE_S else math.nan,
            range=range_m if now.steady_s - ranged_s <= RANGE_AGE_S else math.nan,
        )
