"""Rotations of gimbals that are simulated: from angles to quaternions and matrices."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from efftam_flight.angles import rotated
from efftam_flight.values import Quaternion


def from_yaw_pitch(yaw: float, pitch: float, roll: float = 0.0) -> Quaternion:
    """The quaternion of yaw, then pitch, then roll (z-y'-x''), rad."""
    cy, sy = math.cos(yaw / 2), math.sin(yaw / 2)
    cp, sp = math.cos(pitch / 2), math.sin(pitch / 2)
    cr, sr = math.cos(roll / 2), math.sin(roll / 2)
    return (
        cr * cp * cy + sr * sp * sy,
        sr * cp * cy - cr * sp * sy,
        cr * sp * cy + sr * cp * sy,
        cr * cp * sy - sr * sp * cy,
    )


def matrix(q: Quaternion) -> NDArray[np.float64]:
    """[3, 3] float64: its columns are the turned frame's axes."""
    axes = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
    return np.array([rotated(q, axis) for axis in axes]).T
