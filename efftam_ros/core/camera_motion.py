"""Camera motion between two images as a homography of the ground, and its effect on points and boxes.

The homography maps pixels of the previous image to pixels of the current image that show the same point of
the ground. It moves the predicted state of the target, never a measured box.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.geometry import Box

Matrix = NDArray[np.float64]

MOST_SHIFT = 0.6  # of the image's longer side, per image: beyond it two images hardly overlap
MOST_ZOOM = 1.6  # factor per image, either way
MOST_PERSPECTIVE = 1.5  # ratio of the zooms in two corners of the image
LEAST_DEPTH = 0.2  # `relative_depth` below which a position is treated as behind the camera


def rejection(matrix: Matrix, width: int, height: int, most_shift: float = MOST_SHIFT) -> str:
    """Return why a matrix can't be the camera's motion between consecutive images of this size; empty if it
    can."""
    if matrix.shape != (3, 3) or not np.isfinite(matrix).all() or abs(matrix[2, 2]) < 1e-9:
        return "not a finite homography"
    # Plain numbers, because numpy is slower for five points.
    (a, b, c), (d, e, f), (g, h, i) = matrix.tolist()
    determinant = a * (e * i - f * h) - b * (d * i - f * g) + c * (d * h - e * g)
    middle = (width / 2, height / 2)
    depths = [g * x + h * y + i for x, y in ((0, 0), (width, 0), (width, height), (0, height), middle)]
    if min(depths) * max(depths) <= 0 or min(map(abs, depths)) < 1e-9:
        return "it sends a part of the image to infinity"
    # The area's change at a point is det(H) / depth^3.
    changes = [determinant / (depth * depth * depth) for depth in depths]
    if min(changes) <= 0:
        return "it mirrors the image"
    zooms = [math.sqrt(change) for change in changes]
    if not 1 / MOST_ZOOM < zooms[4] < MOST_ZOOM:
        return f"it zooms by {zooms[4]:.2g} (at most {MOST_ZOOM:g})"
    if max(zooms) / min(zooms) > MOST_PERSPECTIVE:
        return f"its perspective changes by {max(zooms) / min(zooms):.2g} (at most {MOST_PERSPECTIVE:g})"
    x, y = middle
    dx, dy = (a * x + b * y + c) / depths[4] - x, (d * x + e * y + f) / depths[4] - y
    shift = math.hypot(dx, dy) / max(width, height)
    return f"it shifts by {shift:.2f} image sides (at most {most_shift:g})" if shift > most_shift else ""


def relative_depth(matrix: Matrix, x: float, y: float) -> float:
    """Depth of a point after the motion, relative to that of the image's top-left corner.

    It concerns points far outside the image. Towards 0 their pixel coordinates go to infinity; a negative
    depth means that the motion took the point behind the camera (or from behind it to the front), so that its
    pixel coordinates are on the opposite side of the image."""
    return float(matrix[2] @ (x, y, 1.0)) / float(matrix[2, 2])


def moved_point(matrix: Matrix, x: float, y: float) -> NDArray[np.float64]:
    """Position [2] of a point after the motion, px."""
    moved = matrix @ np.array([x, y, 1.0])
    return np.asarray(moved[:2] / moved[2], np.float64)


def linearised(matrix: Matrix, x: float, y: float) -> tuple[NDArray[np.float64], Matrix]:
    """Position [2] of a point after the motion, px, and its derivative [2, 2] with respect to the point."""
    moved = matrix @ np.array([x, y, 1.0])
    point = np.asarray(moved[:2] / moved[2], np.float64)
    return point, np.asarray((matrix[:2, :2] - np.outer(point, matrix[2, :2])) / moved[2], np.float64)


def zoom(matrix: Matrix, x: float, y: float) -> float:
    """Magnification around a point: square root of the change of area."""
    return float(np.sqrt(abs(np.linalg.det(linearised(matrix, x, y)[1]))))


def moved_box(matrix: Matrix, box: Box) -> Box:
    """The box after the motion: its centre is moved and its sides are scaled by `zoom`."""
    x, y = moved_point(matrix, box.cx, box.cy)
    factor = zoom(matrix, box.cx, box.cy)
    return Box.from_centre(x, y, box.width * factor, box.height * factor)


def rotation_motion(intrinsics: Matrix, rotation: Matrix) -> Matrix:
    """Homography of a camera that rotates about its centre: K R K^-1.

    ``intrinsics``: K [3, 3] px; ``rotation``: R [3, 3] maps a direction in the previous image's optical frame
    (x right, y down, z forward) to the current one's. For a pure rotation it holds at every distance (Hartley
    and Zisserman, Multiple View Geometry, 8.4.2).
    """
    matrix = intrinsics @ rotation @ np.linalg.inv(intrinsics)
    return np.asarray(matrix / matrix[2, 2], np.float64)
