"""The vehicle's position and height as the autopilot reports them, for the position of the target."""

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
# Asked for once, whenever the autopilot appears again: not every vehicle has them.
ONCE = (mav.MAVLINK_MSG_ID_DISTANCE_SENSOR, mav.MAVLINK_MSG_ID_TERRAIN_REPORT)
ONCE_HZ = 5.0
# An older range or terrain height is none, s.
RANGE_AGE_S, TERRAIN_AGE_S = 0.5, 3.0
INVALID_SIGNAL = 1  # of DISTANCE_SENSOR's quality, where 0 is unknown


def measured_range(message: Message) -> float | None:
    """Return the distance in a DISTANCE_SENSOR, m; None where it measures none."""
    is_in_range = message.min_distance <= message.current_distance <= message.max_distance
    return (
        message.current_distance / 100.0 if is_in_range and message.signal_quality != INVALID_SIGNAL else None
    )


class VehicleState:
    """``deliver`` gets one sample for each position of the autopilot."""

    def __init__(self, config: BridgeConfig, deliver: Callable[[PlaceSample], object]) -> None:
        self._config, self._deliver = config, deliver
        self._range: tuple[float, float] = (math.nan, -math.inf)  # m, when
        self._terrain: tuple[float, float] = (math.nan, -math.inf)

    def handle(self, message: Message, clock: ClockMap, now: Instant) -> None:
        """Read a message of our vehicle. ``clock``: the autopilot's."""
        if message.get_srcSystem() != self._config.system_id:
            return
        kind, component = message.get_type(), message.get_srcComponent()
        if kind == "DISTANCE_SENSOR" and self._looks_along_axis(message):
            distance_m = measured_range(message)
            self._range = (math.nan if distance_m is None else distance_m, now.steady_s)
        elif component != self._config.manager_component:
            return
        elif kind == "TERRAIN_REPORT":
            # Without data of this place, spacing is 0.
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
