"""Converts the angles of simulated gimbals to quaternions and matrices."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from efftam_flight.angles import from_angles, rotated
from efftam_flight.values import Quaternion


def from_yaw_pitch(yaw: float, pitch: float, roll: float = 0.0) -> Quaternion:
    """Return the quaternion of the rotation by yaw, then pitch, then roll (z-y'-x''); angles in rad."""
    return from_angles(roll, pitch, yaw)


def matrix(q: Quaternion) -> NDArray[np.float64]:
    """Return the rotation matrix, float64 [3, 3]. Its columns are the axes of the turned frame."""
    axes = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
    return np.array([rotated(q, axis) for axis in axes]).T
