"""Motion in image pixels: the camera's, as a homography, and the Kalman filter of the target that follows it.

The homography maps pixels of the previous image to pixels of the current image that show the same point of
the ground. It moves the predicted state of the target, never a measured box.

The filter's state is (cx, cy, vx, vy, w, h): centre, centre velocity in px/s, size. The size has no rate in
the state, because extrapolating one through an occlusion makes the box vanish or fill the image. The rate of
the size in the image is estimated separately, for controllers that approach the target; it is not used for
prediction. All noise is proportional to the target's size sqrt(w h), so that wide and tall targets are
treated alike and nothing depends on the image's resolution.

Process noise is that of a continuous model (white acceleration, and a random walk of the size), so predicting
over any split of an interval gives the same result, and a dropped image does not look like acceleration. The
update uses the Joseph form, which keeps the covariance symmetric and positive.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.geometry import Box
from efftam_ros.core.types import CameraMotion, Motion

if TYPE_CHECKING:
    from efftam_ros.core.contract import CameraMotionSource

Array = NDArray[np.float64]
Matrix = NDArray[np.float64]

MIN_DEPTH = 0.2  # `relative_depth` below which a position is treated as behind the camera

# Left, top, width, height from the state; and left, top, right, bottom.
_BOX = np.array(
    [
        [1, 0, 0, 0, -0.5, 0],
        [0, 1, 0, 0, 0, -0.5],
        [0, 0, 0, 0, 1, 0],
        [0, 0, 0, 0, 0, 1],
    ],
    float,
)
_H = np.vstack([_BOX[:2], _BOX[:2] + _BOX[2:]])
_INWARD = np.array([1.0, 1.0, -1.0, -1.0])
_IDENTITY = np.eye(6)
_MIN_SIZE_PX = 1.0
# Time constant of the size rate, s: short compared with an approach, long compared with fluctuations of the
# mask's edges.
SIZE_RATE_S = 0.5

# Noise, in target sizes.
ACCELERATION = 1.0  # spectral density of the centre's acceleration, sizes/s^1.5
COASTING_FACTOR = 3.0  # of the acceleration while the target is not measured
SIZE_WALK = 0.3  # random walk of width and height, sizes/s^0.5
EDGE, EDGE_PX = 0.055, 0.5  # standard deviation of a measured edge: EDGE sizes + EDGE_PX px
INITIAL_SPEED = 6.0  # standard deviation of the unknown initial velocity, sizes/s
# Shortest time that the camera's velocity is taken over, s: stamps in a burst of images are nearly equal, and
# a shift of 3 px within 1 us would be 3 million px/s.
MIN_CAMERA_S = 0.01
# Greatest age of the motion of the whole target at which it is preferred to that of its last visible part.
WHOLE_VALID_NS = 1_000_000_000


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
    """Return the box after the motion: its centre is moved and its sides are scaled by `zoom`."""
    x, y = moved_point(matrix, box.cx, box.cy)
    factor = zoom(matrix, box.cx, box.cy)
    return Box.from_centre(x, y, box.width * factor, box.height * factor)


class CameraAtImage(NamedTuple):
    """The camera at one image.

    ``motion``: since the target's last image; ``source``: what estimated it, and can keep this image and
    compare it with a kept one.
    """

    motion: CameraMotion
    source: CameraMotionSource


class MotionFilter:
    """State estimate of one target. Starts from a measured box; `predict` moves it, `update` corrects it."""

    # Arrays are replaced, never changed in place, so that a copy may share them.

    def __init__(self, stamp_ns: int, box: Box) -> None:
        self.stamp_ns = stamp_ns
        self._measured = True
        self._camera_velocity: Array = np.zeros(2)
        # The camera's motion since its velocity was last taken: shift at the target, px, and time, s.
        self._camera_shift: Array = np.zeros(2)
        self._camera_s = 0.0
        self._sized_ns = stamp_ns  # when the size was last measured
        self._sized: Array = np.array([box.width, box.height])
        self._size_rate: Array = np.zeros(2)
        size = max(box.size, _MIN_SIZE_PX)
        self._x: Array = np.array([box.cx, box.cy, 0.0, 0.0, box.width, box.height])
        edge, speed = EDGE * size + EDGE_PX, INITIAL_SPEED * size
        self._p: Array = np.diag(np.square([edge, edge, speed, speed, 2 * edge, 2 * edge]))

    def _moved(self, stamp_ns: int) -> tuple[Array, Array]:
        dt = (stamp_ns - self.stamp_ns) * 1e-9
        if dt < 0:
            raise ValueError(f"cannot predict {dt:.3f} s into the past")
        if dt == 0:
            return self._x, self._p
        f = _IDENTITY.copy()
        f[0, 2] = f[1, 3] = dt
        width, height = self._x[4:].tolist()
        size = math.sqrt(max(width, _MIN_SIZE_PX) * max(height, _MIN_SIZE_PX))
        # While the target is not measured, errors that an update would correct accumulate: the target may
        # turn, and the camera too.
        q = (ACCELERATION * size * (1.0 if self._measured else COASTING_FACTOR)) ** 2
        w = (SIZE_WALK * size) ** 2
        noise = _diagonal([q * dt**3 / 3, q * dt**3 / 3, q * dt, q * dt, w * dt, w * dt])
        noise[0, 2] = noise[2, 0] = noise[1, 3] = noise[3, 1] = q * dt**2 / 2
        return f @ self._x, f @ self._p @ f.T + noise

    def predict(self, stamp_ns: int) -> None:
        """Predict the state at a later stamp. Raises ValueError for an earlier one."""
        self._x, self._p = self._moved(stamp_ns)
        self.stamp_ns = stamp_ns

    def predicted(self, stamp_ns: int) -> MotionFilter:
        """Return a copy, moved to a later stamp as `predict` does."""
        moved = copy.copy(self)
        moved._x, moved._p = self._moved(stamp_ns)
        moved.stamp_ns = stamp_ns
        return moved

    def follow_camera(self, matrix: Array, dt_s: float = math.inf) -> None:
        """Transform mean and covariance by the camera's motion.

        From then on the filter's velocity is relative to the ground. The stamp does not change. The camera's
        velocity is the mean over at least `MIN_CAMERA_S`; until then the previous one is kept.

        Args:
            matrix: [3, 3] motion from the previous image to the current one (see the module).
            dt_s: Time between the two images, s.
        """
        centre, j = linearised(matrix, self._x[0], self._x[1])
        factor = float(np.sqrt(abs(np.linalg.det(j))))
        change = np.diag([0.0, 0.0, 0.0, 0.0, factor, factor])
        change[:2, :2] = change[2:4, 2:4] = j
        self._camera_shift = self._camera_shift + (centre - self._x[:2])
        self._camera_s += dt_s
        if self._camera_s >= MIN_CAMERA_S:
            self._camera_velocity = self._camera_shift / self._camera_s
            self._camera_shift, self._camera_s = np.zeros(2), 0.0
        self._x = change @ self._x
        self._x[:2] = centre
        self._p = change @ self._p @ change.T

    def camera_unknown(self) -> None:
        """Assume that the camera does not move, because its motion is unknown."""
        self._camera_velocity = self._camera_shift = np.zeros(2)
        self._camera_s = 0.0

    def coast(self) -> None:
        """Mark the target as not measured at the filter's stamp: uncertainty grows faster until it is."""
        self._measured = False
        self._size_rate = np.zeros(2)

    def at(self, stamp_ns: int, camera: bool = True) -> Motion:
        """Return the predicted motion at a later stamp without changing the filter.

        ``camera``: True extrapolates the camera's last motion and returns the velocity in the image; False
        returns the velocity relative to the ground.
        """
        x, p = self._moved(stamp_ns) if stamp_ns != self.stamp_ns else (self._x.copy(), self._p)
        if camera:
            x[:2] += self._camera_velocity * ((stamp_ns - self.stamp_ns) * 1e-9)
            x[2:4] += self._camera_velocity
        vx, vy = x[2:4].tolist()
        width_rate, height_rate = self._size_rate.tolist()
        return Motion(stamp_ns, _box(x), (vx, vy), p[:4, :4].copy(), (width_rate, height_rate))

    @property
    def ground(self) -> Motion:
        """The estimate at the filter's own stamp, with the velocity relative to the ground."""
        return self.at(self.stamp_ns, camera=False)

    def update(self, box: Box, quality: float = 1.0) -> None:
        """Correct the estimate by a box measured at the filter's stamp.

        ``quality`` (predicted IoU, 0..1) widens the measurement noise up to three times as it falls. Raises
        ValueError for an empty or non-finite box.
        """
        x, y, width, height = box.x, box.y, box.width, box.height
        if not (min(width, height) > 0 and math.isfinite(x + y + width + height)):
            raise ValueError(f"cannot update from an empty box {box}")
        was_measured, self._measured = self._measured, True
        innovation = np.array((x, y, x + width, y + height)) - _H @ self._x
        # An edge inside the predicted box may be the edge of an occluder: its weight decreases with its
        # distance inside, so that the opposite edge carries the estimate. Without this, a target that moves
        # behind a tree seems to shrink, stop and turn back at the tree's edge.
        hidden = np.maximum(innovation * _INWARD, 0.0)
        r = _diagonal(_edge_sigma(math.sqrt(width * height), quality) ** 2 + hidden**2)
        observed = _H @ self._p
        gain = np.linalg.solve(observed @ _H.T + r, observed).T
        self._x = self._x + gain @ innovation
        self._x[4:] = np.maximum(self._x[4:], _MIN_SIZE_PX)
        keep = _IDENTITY - gain @ _H
        p = keep @ self._p @ keep.T + gain @ r @ gain.T
        self._p = (p + p.T) / 2
        self._follow_size(was_measured)

    def _follow_size(self, continuous: bool) -> None:
        """Update the size rate by the filtered size's change since the last measurement, but after a gap."""
        dt = (self.stamp_ns - self._sized_ns) * 1e-9
        if continuous and dt > 0:
            seen = (self._x[4:] - self._sized) / dt
            self._size_rate = self._size_rate + (1 - math.exp(-dt / SIZE_RATE_S)) * (seen - self._size_rate)
        self._sized_ns, self._sized = self.stamp_ns, self._x[4:]

    def mahalanobis(self, box: Box, quality: float = 1.0) -> float:
        """Squared Mahalanobis distance of a measured centre from the prediction (2 degrees of freedom).

        For a box smaller than predicted, which may be partly hidden, the distance is to the nearest
        compatible centre.
        """
        offset = np.array([box.cx, box.cy]) - self._x[:2]
        slack = np.maximum(self._x[4:] - np.array([box.width, box.height]), 0.0) / 2
        offset = np.sign(offset) * np.maximum(np.abs(offset) - slack, 0.0)
        spread = self._p[:2, :2] + np.eye(2) * _edge_sigma(box.size, quality) ** 2 / 2
        return float(offset @ np.linalg.solve(spread, offset))

    @property
    def box(self) -> Box:
        return _box(self._x)

    @property
    def motion(self) -> Motion:
        """The estimate at the filter's own stamp."""
        return self.at(self.stamp_ns)


class TargetMotion:
    """The filter of the target, and that of when all of it was last visible.

    While a target disappears behind an occluder, its boxes lag and stop at the edge; coasting therefore
    continues from the last motion of the whole target.
    """

    def __init__(self) -> None:
        self.filter: MotionFilter | None = None
        """At the last image; None: the position is unknown."""
        self._whole: MotionFilter | None = None

    def start(self, stamp_ns: int, box: Box) -> None:
        """Start from a measured box of the whole target."""
        self.filter, self._whole = MotionFilter(stamp_ns, box), None

    def lose(self) -> None:
        self.filter = self._whole = None

    def is_behind(self, matrix: Matrix) -> bool:
        """Return whether the motion takes the target (nearly) behind the camera, where it has no pixels."""
        if self.filter is None:
            return False
        box = self.filter.box
        return relative_depth(matrix, box.cx, box.cy) < MIN_DEPTH

    def follow_camera(self, matrix: Matrix | None, dt_s: float) -> None:
        """Do as `MotionFilter.follow_camera`; with None, or without time between the images, it is
        unknown."""
        whole = None if self._whole is self.filter else self._whole
        for motion in (self.filter, whole):
            if motion is not None and matrix is not None and dt_s > 0:
                motion.follow_camera(matrix, dt_s)
            elif motion is not None:
                motion.camera_unknown()

    def resize(self, matrix: Matrix, stamp_ns: int) -> None:
        """Predict, and carry over to images of another size; ``matrix`` maps old pixels to new ones."""
        self._whole = None
        if self.filter is not None:
            self.filter = self.filter.predicted(stamp_ns)
            self.filter.follow_camera(matrix)

    def measure(self, stamp_ns: int, box: Box, quality: float, restart: bool, partial: bool) -> None:
        """Update by the target's box at the filter's stamp. ``restart``: it does not continue the motion so
        far; ``partial``: only part of the target is visible."""
        if self.filter is None or restart:
            self.filter = MotionFilter(stamp_ns, box)
        else:
            self.filter.update(box, quality)
        if not partial:
            self._whole = self.filter

    def coast(self, stamp_ns: int, was_seen: bool) -> None:
        """Continue without a measurement. ``was_seen``: the target was seen in the image before."""
        whole = self._whole
        if was_seen and whole is not None and stamp_ns - whole.stamp_ns < WHOLE_VALID_NS:
            self.filter, self._whole = whole, None
            whole.predict(stamp_ns)
        if self.filter is not None:
            self.filter.coast()


def _edge_sigma(size: float, quality: float) -> float:
    doubt = 1.0 + 2.0 * (1.0 - min(max(quality, 0.0), 1.0))
    return (EDGE * max(size, _MIN_SIZE_PX) + EDGE_PX) * doubt


def _box(x: Array) -> Box:
    left, top, width, height = (_BOX @ x).tolist()
    return Box(left, top, width, height)


def _diagonal(values: Sequence[float] | Array) -> Array:
    """Do what np.diag does, without its overhead."""
    matrix = np.zeros((len(values), len(values)))
    matrix.reshape(-1)[:: len(values) + 1] = values
    return matrix
