"""Reads heights of the ground from a GeoTIFF, such as those of SRTM or Copernicus."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from efftam_flight.angles import Vector
from efftam_flight.position.geodesy import GeoPoint, LocalFrame
from efftam_ros.core.errors import InputError

# The ray is followed up to MAX_DISTANCE_M (level distance) in steps of at least STEP_M. Then the point where
# it meets the ground is found by HALVINGS bisections of the last step.
MAX_DISTANCE_M, STEP_M = 5000.0, 5.0
HALVINGS = 12


class Terrain:
    """The heights of the ground in a GeoTIFF. Raises InputError if rasterio is not installed, if the file
    can't be read, or if it contains no coordinate system."""

    def __init__(self, path: Path) -> None:
        try:
            import rasterio
            from rasterio.warp import transform
        except ModuleNotFoundError:
            raise InputError(
                "--terrain needs the Python package rasterio: pip install rasterio (extra [terrain])"
            ) from None
        try:
            with rasterio.open(path) as file:
                self._crs, self._to_pixel = file.crs, ~file.transform
                heights = file.read(1, masked=True).astype(float)
        except rasterio.errors.RasterioIOError as error:
            raise InputError(f"--terrain {path} can't be read: {error}; give a GeoTIFF") from None
        if self._crs is None:
            raise InputError(f"--terrain {path} contains no coordinate system; give a GeoTIFF that has one")
        self._heights: Any = np.ma.filled(heights, np.nan)
        self._transform = transform

    def height_at(self, point: GeoPoint) -> float:
        """Return the ground's height above mean sea level, m, interpolated between the four nearest cells;
        NaN outside the file."""
        (x,), (y,) = self._transform("EPSG:4326", self._crs, [point.longitude], [point.latitude])
        a, b, c, d, e, f = self._to_pixel[:6]
        # Half a cell is subtracted, because a height applies to the middle of its cell.
        column, row = a * x + b * y + c - 0.5, d * x + e * y + f - 0.5
        left, top = math.floor(column), math.floor(row)
        rows, columns = self._heights.shape
        if not (0 <= left < columns - 1 and 0 <= top < rows - 1):
            return math.nan
        u, v = column - left, row - top
        cells = self._heights[top : top + 2, left : left + 2]
        return float(np.array([1 - v, v]) @ cells @ np.array([1 - u, u]))

    def height_above(self, frame: LocalFrame, place: Vector, direction: Vector) -> float:
        """Return the camera's height above the point where its ray meets the ground, m; NaN if it meets none.

        ``place``: the camera's position; ``direction``: unit vector of the ray. Both are north, east, down in
        ``frame``.
        """
        flat = math.hypot(direction[0], direction[1])
        if direction[2] <= 0.0:
            return math.nan
        before, along = 0.0, 0.0
        while along * flat <= MAX_DISTANCE_M:
            below = self._below(frame, place, direction, along)
            if math.isnan(below):
                return math.nan
            if below >= 0.0:
                break
            # The step is at least STEP_M. High above the ground it is half of the point's height above it.
            before, along = along, along + max(STEP_M, -below / 2)
        else:
            return math.nan
        for _ in range(HALVINGS):
            middle = (before + along) / 2
            if self._below(frame, place, direction, middle) >= 0.0:
                along = middle
            else:
                before = middle
        return along * direction[2]

    def _below(self, frame: LocalFrame, place: Vector, direction: Vector, along: float) -> float:
        """Return how far the point of the ray at the distance ``along`` is below the ground, m; negative if
        it is above."""
        north, east, down = (p + along * d for p, d in zip(place, direction, strict=True))
        point = frame.to_geo(north, east, -down)
        return self.height_at(point) - point.altitude
