"""The target's motion in image pixels: a Kalman filter that takes the camera's motion into account.

The camera's motion is a homography. It maps a pixel of the previous image to the pixel of the current image
that shows the same point of the ground. It is applied to the filter's state, never to a measured box.

The filter's state is (cx, cy, vx, vy, w, h): centre in px, velocity of the centre in px/s, width and height
in px. The state contains no rate of the size: extrapolated through an occlusion, a rate would make the box
vanish or fill the image. The rate is estimated apart, for controllers that approach the target, and is not
used for prediction. All noise is proportional to the target's size sqrt(w h). So wide and tall targets are
treated alike, and nothing depends on the image's resolution.

The process noise is that of a continuous model: white acceleration, and a random walk of the size. Predicting
over an interval in one step or in several gives the same result, so a dropped image does not look like an
acceleration. The update uses the Joseph form, which keeps the covariance symmetric and positive.
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

MIN_DEPTH = 0.2  # a position whose `relative_depth` is smaller is treated as behind the camera

# Matrices that compute a box from the filter's state: _BOX gives left, top, width, height; _H gives left,
# top, right, bottom.
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
# Time constant, s, by which the rate of the size is smoothed. It is short compared with an approach, and long
# compared with the fluctuation of a mask's edges.
SIZE_RATE_S = 0.5

# Noise of the filter. A size is the target's size, sqrt(width * height).
ACCELERATION = 1.0  # spectral density of the centre's acceleration, sizes/s^1.5
COASTING_FACTOR = 3.0  # factor on `ACCELERATION` while the target is not measured
SIZE_WALK = 0.3  # random walk of width and height, sizes/s^0.5
EDGE, EDGE_PX = 0.055, 0.5  # standard deviation of a measured edge: EDGE sizes + EDGE_PX px
INITIAL_SPEED = 6.0  # standard deviation of the unknown initial velocity, sizes/s
# Least time, s, over which the camera's velocity is averaged. The stamps of images that arrive in a burst are
# nearly equal: a shift of 3 px within 1 us would be taken for 3 million px/s.
MIN_CAMERA_S = 0.01
# A coasting target continues with its motion in the last image that showed the whole target, if that image is
# at most this old, ns. Otherwise it continues with the motion of the part of the target that was visible
# last.
WHOLE_VALID_NS = 1_000_000_000


def relative_depth(matrix: Matrix, x: float, y: float) -> float:
    """Return the depth of the point (x, y), px, after the camera's motion, relative to the depth of the
    image's top-left corner.

    Only points far outside the image have unusual depths. As the depth approaches 0, the point's pixel
    coordinates grow without limit. A negative depth means that the motion has taken the point behind the
    camera, or from behind the camera to its front: its pixel coordinates then lie on the opposite side of the
    image. ``matrix``: the motion [3, 3], from old pixels to new ones.
    """
    return float(matrix[2] @ (x, y, 1.0)) / float(matrix[2, 2])


def moved_point(matrix: Matrix, x: float, y: float) -> NDArray[np.float64]:
    """Return the position [2], px, of the point (x, y) after the camera's motion [3, 3]."""
    moved = matrix @ np.array([x, y, 1.0])
    return np.asarray(moved[:2] / moved[2], np.float64)


def linearised(matrix: Matrix, x: float, y: float) -> tuple[NDArray[np.float64], Matrix]:
    """Return the position [2], px, of the point (x, y) after the camera's motion [3, 3], and the derivative
    [2, 2] of that position with respect to (x, y)."""
    moved = matrix @ np.array([x, y, 1.0])
    point = np.asarray(moved[:2] / moved[2], np.float64)
    return point, np.asarray((matrix[:2, :2] - np.outer(point, matrix[2, :2])) / moved[2], np.float64)


def zoom(matrix: Matrix, x: float, y: float) -> float:
    """Return by which factor the camera's motion [3, 3] enlarges lengths around the point (x, y), px: the
    square root of the factor on areas."""
    return float(np.sqrt(abs(np.linalg.det(linearised(matrix, x, y)[1]))))


def moved_box(matrix: Matrix, box: Box) -> Box:
    """Return a box, px, after the camera's motion [3, 3]: its centre is moved, its sides are scaled by
    `zoom`."""
    x, y = moved_point(matrix, box.cx, box.cy)
    factor = zoom(matrix, box.cx, box.cy)
    return Box.from_centre(x, y, box.width * factor, box.height * factor)


class CameraAtImage(NamedTuple):
    """The camera's motion up to one image, as one target's tracker needs it.

    ``motion``: the camera's motion since the target's last image; ``source``: the source that estimated the
    motion. The source can also keep this image, and compare it with one that was kept before.
    """

    motion: CameraMotion
    source: CameraMotionSource


class MotionFilter:
    """The Kalman filter of one target: `predict` moves the estimate to a later stamp, `update` corrects it by
    a measured box."""

    # A new array replaces each array before it is changed. Therefore copies of the filter may share arrays.

    def __init__(self, stamp_ns: int, box: Box) -> None:
        """Start from a box, px, that was measured at this stamp."""
        self.stamp_ns = stamp_ns
        self._measured = True
        self._camera_velocity: Array = np.zeros(2)
        # Since `_camera_velocity` was last computed: by how much the camera's motion has shifted the image at
        # the target, px, and how much time has passed, s.
        self._camera_shift: Array = np.zeros(2)
        self._camera_s = 0.0
        # Stamp and value of the filtered size after its last measurement.
        self._sized_ns = stamp_ns
        self._sized: Array = np.array([box.width, box.height])
        self._size_rate: Array = np.zeros(2)
        size = max(box.size, _MIN_SIZE_PX)
        self._x: Array = np.array([box.cx, box.cy, 0.0, 0.0, box.width, box.height])
        edge, speed = EDGE * size + EDGE_PX, INITIAL_SPEED * size
        self._p: Array = np.diag(np.square([edge, edge, speed, speed, 2 * edge, 2 * edge]))

    def _moved(self, stamp_ns: int) -> tuple[Array, Array]:
        """Return the state [6] and its covariance [6, 6], predicted to a later stamp. Raises ValueError for
        an earlier one."""
        dt = (stamp_ns - self.stamp_ns) * 1e-9
        if dt < 0:
            raise ValueError(f"the stamp is {-dt:.3f} s before the state's; give a later one")
        if dt == 0:
            return self._x, self._p
        f = _IDENTITY.copy()
        f[0, 2] = f[1, 3] = dt
        width, height = self._x[4:].tolist()
        size = math.sqrt(max(width, _MIN_SIZE_PX) * max(height, _MIN_SIZE_PX))
        # While the target is not measured, no update corrects the errors that come from turns of the target
        # and of the camera.
        q = (ACCELERATION * size * (1.0 if self._measured else COASTING_FACTOR)) ** 2
        w = (SIZE_WALK * size) ** 2
        noise = _diagonal([q * dt**3 / 3, q * dt**3 / 3, q * dt, q * dt, w * dt, w * dt])
        noise[0, 2] = noise[2, 0] = noise[1, 3] = noise[3, 1] = q * dt**2 / 2
        return f @ self._x, f @ self._p @ f.T + noise

    def predict(self, stamp_ns: int) -> None:
        """Move the filter to a later stamp. Raises ValueError for an earlier one."""
        self._x, self._p = self._moved(stamp_ns)
        self.stamp_ns = stamp_ns

    def predicted(self, stamp_ns: int) -> MotionFilter:
        """Return a copy of the filter, moved to a later stamp. Raises ValueError for an earlier one."""
        moved = copy.copy(self)
        moved._x, moved._p = self._moved(stamp_ns)
        moved.stamp_ns = stamp_ns
        return moved

    def follow_camera(self, matrix: Array, dt_s: float = math.inf) -> None:
        """Transform the estimate and its covariance by the camera's motion. The filter's stamp does not
        change.

        From the first call on, the filter's velocity is relative to the ground. The camera's own velocity is
        averaged over at least `MIN_CAMERA_S`; until that time has passed, its previous value is kept.

        Args:
            matrix: The camera's motion [3, 3] from the previous image to the present one, see the module's
                docstring.
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
        """Assume that the camera does not move, because its motion to the present image is unknown."""
        self._camera_velocity = self._camera_shift = np.zeros(2)
        self._camera_s = 0.0

    def coast(self) -> None:
        """Note that the target is not measured in this image. Until the next measurement the uncertainty
        grows faster."""
        self._measured = False
        self._size_rate = np.zeros(2)

    def at(self, stamp_ns: int, camera: bool = True) -> Motion:
        """Return the motion predicted for a later stamp. The filter does not change. Raises ValueError for an
        earlier stamp.

        ``camera``: whether the camera is assumed to go on moving as before. True returns the velocity in the
        image, False the velocity relative to the ground.
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
        """The motion at the filter's stamp, with the velocity relative to the ground."""
        return self.at(self.stamp_ns, camera=False)

    def update(self, box: Box, quality: float = 1.0) -> None:
        """Correct the estimate by a box that was measured at the filter's stamp.

        ``box``: px; ``quality``: predicted IoU of the box, 0..1. The lower it is, the larger the measurement
        noise is assumed to be, up to three times as large. Raises ValueError for an empty or non-finite box.
        """
        x, y, width, height = box.x, box.y, box.width, box.height
        if not (min(width, height) > 0 and math.isfinite(x + y + width + height)):
            raise ValueError(f"cannot update from an empty box {box}")
        was_measured, self._measured = self._measured, True
        innovation = np.array((x, y, x + width, y + height)) - _H @ self._x
        # A measured edge inside the predicted box may be the edge of an occluder. The farther inside it lies,
        # the less it counts, so that the opposite edge determines the estimate. Otherwise a target that moves
        # behind a tree would seem to shrink, stop and turn back at the tree's edge.
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
        """Update the rate of the size by the change since the last measurement. ``continuous``: whether the
        target was measured in the previous image too; else the rate is not updated."""
        dt = (self.stamp_ns - self._sized_ns) * 1e-9
        if continuous and dt > 0:
            seen = (self._x[4:] - self._sized) / dt
            self._size_rate = self._size_rate + (1 - math.exp(-dt / SIZE_RATE_S)) * (seen - self._size_rate)
        self._sized_ns, self._sized = self.stamp_ns, self._x[4:]

    def mahalanobis(self, box: Box, quality: float = 1.0) -> float:
        """Return the squared Mahalanobis distance of a box's centre from the predicted centre (2 degrees of
        freedom).

        A box that is smaller than predicted may show a target that is partly hidden. Then the whole target
        may have several centres; the distance is that of the one nearest to the prediction. ``quality``:
        predicted IoU of the box, 0..1; the lower it is, the less the distance counts.
        """
        offset = np.array([box.cx, box.cy]) - self._x[:2]
        slack = np.maximum(self._x[4:] - np.array([box.width, box.height]), 0.0) / 2
        offset = np.sign(offset) * np.maximum(np.abs(offset) - slack, 0.0)
        spread = self._p[:2, :2] + np.eye(2) * _edge_sigma(box.size, quality) ** 2 / 2
        return float(offset @ np.linalg.solve(spread, offset))

    @property
    def box(self) -> Box:
        return _box(self._x)


class TargetMotion:
    """The motion of a target that may disappear. It consists of two filters: that of the last image, and that
    of the last image in which the whole target was visible.

    While a target disappears behind an occluder, its measured boxes lag behind and stop at the occluder's
    edge. Therefore a target that is not seen continues with the motion that it had as a whole.
    """

    def __init__(self) -> None:
        self.filter: MotionFilter | None = None
        """The estimate at the last image; None: the target's position is unknown."""
        self._whole: MotionFilter | None = None

    def start(self, stamp_ns: int, box: Box) -> None:
        """Start from a box, px, that was measured at this stamp and shows the whole target."""
        self.filter, self._whole = MotionFilter(stamp_ns, box), None

    def lose(self) -> None:
        """Forget the motion: the target's position is unknown."""
        self.filter = self._whole = None

    def is_behind(self, matrix: Matrix) -> bool:
        """Return whether the camera's motion [3, 3] turns away so far that the target is (nearly) behind the
        camera, where it has no pixel coordinates."""
        if self.filter is None:
            return False
        box = self.filter.box
        return relative_depth(matrix, box.cx, box.cy) < MIN_DEPTH

    def follow_camera(self, matrix: Matrix | None, dt_s: float) -> None:
        """Apply the camera's motion [3, 3], see `MotionFilter.follow_camera`. With None, or if ``dt_s`` is
        not positive, the camera's motion is unknown."""
        whole = None if self._whole is self.filter else self._whole
        for motion in (self.filter, whole):
            if motion is not None and matrix is not None and dt_s > 0:
                motion.follow_camera(matrix, dt_s)
            elif motion is not None:
                motion.camera_unknown()

    def resize(self, matrix: Matrix, stamp_ns: int) -> None:
        """Predict the motion at this stamp, and scale it to images of another size. ``matrix`` [3, 3] maps
        old pixels to new ones."""
        self._whole = None
        if self.filter is not None:
            self.filter = self.filter.predicted(stamp_ns)
            self.filter.follow_camera(matrix)

    def measure(self, stamp_ns: int, box: Box, quality: float, restart: bool, partial: bool) -> None:
        """Update the motion by the target's measured box.

        Args:
            stamp_ns: Stamp of the image, to which the filter was predicted, ns.
            box: Measured box, px.
            quality: Its predicted IoU, 0..1.
            restart: The box does not continue the motion so far: a new filter starts from it.
            partial: Only a part of the target is visible.
        """
        if self.filter is None or restart:
            self.filter = MotionFilter(stamp_ns, box)
        else:
            self.filter.update(box, quality)
        if not partial:
            self._whole = self.filter

    def coast(self, stamp_ns: int, was_seen: bool) -> None:
        """Continue without a measurement. ``was_seen``: whether the target was seen in the previous image."""
        whole = self._whole
        if was_seen and whole is not None and stamp_ns - whole.stamp_ns < WHOLE_VALID_NS:
            self.filter, self._whole = whole, None
            whole.predict(stamp_ns)
        if self.filter is not None:
            self.filter.coast()


def _edge_sigma(size: float, quality: float) -> float:
    """Return the standard deviation of a measured edge, px, for a box of this size, px, and predicted IoU."""
    doubt = 1.0 + 2.0 * (1.0 - min(max(quality, 0.0), 1.0))
    return (EDGE * max(size, _MIN_SIZE_PX) + EDGE_PX) * doubt


def _box(x: Array) -> Box:
    left, top, width, height = (_BOX @ x).tolist()
    return Box(left, top, width, height)


def _diagonal(values: Sequence[float] | Array) -> Array:
    """Return the square matrix with these values on its diagonal; faster than np.diag."""
    matrix = np.zeros((len(values), len(values)))
    matrix.reshape(-1)[:: len(values) + 1] = values
    return matrix
