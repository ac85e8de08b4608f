"""Converts between latitude, longitude and a local frame in metres, on the WGS84 ellipsoid."""

from __future__ import annotations

import math
from dataclasses import dataclass

EQUATOR_M, ECCENTRICITY_SQUARED = 6378137.0, 6.69437999014e-3
# Positions closer to a pole are refused: there a metre to the east may be any change of longitude.
MAX_LATITUDE_DEG = 89.0


@dataclass(frozen=True)
class GeoPoint:
    """Latitude and longitude, degrees, and altitude, m above mean sea level."""

    latitude: float
    longitude: float
    altitude: float

    @property
    def is_place(self) -> bool:
        """Whether the numbers are a place on Earth. Latitude and longitude of 0 are none, because an
        autopilot sends them before its first fix."""
        return (
            abs(self.latitude) <= MAX_LATITUDE_DEG
            and abs(self.longitude) <= 180.0
            and math.isfinite(self.altitude)
            and (self.latitude, self.longitude) != (0.0, 0.0)
        )


@dataclass(frozen=True)
class LocalFrame:
    """A local frame: metres north, east and up from ``origin``.

    The radii of the ellipsoid are taken at the origin. Up to 20 km from the origin, the error is below 0.2 %
    of the distance.
    """

    origin: GeoPoint

    def to_local(self, point: GeoPoint) -> tuple[float, float, float]:
        """Return a point's coordinates in this frame: north, east, up, m."""
        north_m, east_m = self._metres_per_radian()
        turn = math.remainder(point.longitude - self.origin.longitude, 360.0)
        return (
            math.radians(point.latitude - self.origin.latitude) * north_m,
            math.radians(turn) * east_m,
            point.altitude - self.origin.altitude,
        )

    def to_geo(self, north: float, east: float, up: float) -> GeoPoint:
        """Return the point on Earth with these coordinates in this frame, m."""
        north_m, east_m = self._metres_per_radian()
        longitude = self.origin.longitude + math.degrees(east / east_m)
        return GeoPoint(
            self.origin.latitude + math.degrees(north / north_m),
            math.remainder(longitude, 360.0),
            self.origin.altitude + up,
        )

    def _metres_per_radian(self) -> tuple[float, float]:
        latitude = math.radians(self.origin.latitude)
        bent = 1.0 - ECCENTRICITY_SQUARED * math.sin(latitude) ** 2
        meridian = EQUATOR_M * (1.0 - ECCENTRICITY_SQUARED) / bent**1.5
        return meridian, EQUATOR_M / math.sqrt(bent) * math.cos(latitude)
