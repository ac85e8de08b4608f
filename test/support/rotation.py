"""The homography of a camera that turns."""

from __future__ import annotations

import numpy as np


def rotation_motion(intrinsics: np.ndarray, rotation: np.ndarray) -> np.ndarray:
    """K R K^-1: where pixels go when the camera rotates about its centre (Hartley and Zisserman, 8.4.2)."""
    matrix = intrinsics @ rotation @ np.linalg.inv(intrinsics)
    return matrix / matrix[2, 2]
