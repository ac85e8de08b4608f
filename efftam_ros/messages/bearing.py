"""Converts pixels to angles by a CameraInfo: the direction of a target from the camera, and its rate.

Camera optical frame (REP 103): x right, y down, z forward. A pixel (u, v) lies on the ray (x, y, 1) with ``u
= fx x' + s y' + cx``, ``v = fy y' + cy`` where (x', y') is (x, y) after lens distortion. Azimuth ``atan(x)``
is positive to the right, elevation ``atan(y / sqrt(1 + x^2))`` positive down.

Distortion models and their coefficients are those of sensor_msgs/CameraInfo, with OpenCV's formulas:
``plumb_bob`` and ``rational_polynomial`` (Brown-Conrady, Claus and Fitzgibbon), ``equidistant`` (Kannala and
Brandt 2006).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.errors import InputError, shown
from efftam_ros.core.types import Motion

Pair = tuple[float, float]
Matrix = tuple[float, float, float, float]  # 2x2, row-major
Distortion = Callable[[float, float], tuple[Pair, Matrix]]

# Step of the central difference of the rates, px: far above rounding errors, far below the scale of the lens.
SLOPE_STEP_PX = 0.5
MAX_ITERATIONS = 30
CONVERGED = 1e-12
# Focal lengths and other numbers of a calibration, px: far beyond any lens, and products of them stay finite.
MIN_FOCAL_PX, MAX_PX = 1e-3, 1e9


@dataclass(frozen=True)
class Bearing:
    """Direction of a target in the optical frame, and its rate including the camera's own motion.

    Attributes:
        azimuth: rad, positive to the right.
        elevation: rad, positive down.
        azimuth_rate: rad/s.
        elevation_rate: rad/s.
        covariance: Of azimuth and elevation, float64 [2, 2], rad^2.
        rate_covariance: Of the two rates, float64 [2, 2], rad^2/s^2.
    """

    azimuth: float
    elevation: float
    azimuth_rate: float
    elevation_rate: float
    covariance: NDArray[np.float64]
    rate_covariance: NDArray[np.float64]


@dataclass(frozen=True)
class Intrinsics:
    """A calibrated camera, for pixels of the delivered image (region of interest and binning applied).

    ``fx``, ``fy``, ``skew``, ``cx``, ``cy`` are in px, with pixel *centres* at whole numbers as usual in
    calibrations. ``distort`` maps (x, y) to the distorted (x', y') and the 2x2 Jacobian; None for a rectified
    image.
    """

    fx: float
    fy: float
    cx: float
    cy: float
    skew: float = 0.0
    distort: Distortion | None = None

    @classmethod
    def from_camera_info(
        cls,
        k: Sequence[float],
        d: Sequence[float] = (),
        model: str = "",
        p: Sequence[float] | None = None,
        offset: tuple[int, int] = (0, 0),
        binning: tuple[int, int] = (1, 1),
    ) -> Intrinsics | None:
        """Build from the fields of sensor_msgs/CameraInfo; None for an uncalibrated camera (k[0] is 0).

        Args:
            k: 3x3 matrix, row-major, px of the full resolution.
            d: Distortion coefficients.
            model: Distortion model.
            p: 3x4 projection matrix, row-major, px of the full resolution; given when the images are
                rectified, in which case ``d`` and ``model`` are not used.
            offset: Offset of the region of interest, px of the full resolution.
            binning: Binning in x and y; 0 means 1.

        Raises:
            InputError: Invalid calibration or unknown distortion model.
        """
        matrix = list(k) if p is None else [*p[0:3], *p[4:7], *p[8:11]]
        if matrix[0] == 0.0:
            return None
        fx, skew, cx, fy, cy = matrix[0], matrix[1], matrix[2], matrix[4], matrix[5]
        if not (min(fx, fy) >= MIN_FOCAL_PX and all(abs(number) <= MAX_PX for number in matrix)):
            raise InputError(
                f"camera_info has focal lengths {fx:g}, {fy:g}, principal point ({cx:g}, {cy:g}) and skew"
                f" {skew:g} px; calibrate the camera again"
            )
        bin_x, bin_y = (max(1, n) for n in binning)
        # A binned pixel covers ``bin`` full-resolution pixels, which moves its centre by (bin - 1) / 2 of
        # them.
        return cls(
            fx=fx / bin_x,
            fy=fy / bin_y,
            cx=(cx - offset[0] + 0.5) / bin_x - 0.5,
            cy=(cy - offset[1] + 0.5) / bin_y - 0.5,
            skew=skew / bin_x,
            distort=None if p is not None else make_distortion(model, d),
        )

    def ray(self, u: float, v: float) -> Pair:
        """Return the point (x, y) at z = 1 seen at image point (u, v) in edge coordinates (pixel centres at i
        + 0.5).

        Raises InputError where the distortion model has no inverse (far outside the calibrated field of
        view).
        """
        y = (v - 0.5 - self.cy) / self.fy
        x = (u - 0.5 - self.cx - self.skew * y) / self.fx
        return (x, y) if self.distort is None else _undistort(self.distort, x, y)

    def ray_slope(self, u: float, v: float) -> Matrix:
        """Derivative of `ray` with respect to (u, v), 1/px."""
        lens = (1 / self.fx, -self.skew / (self.fx * self.fy), 0.0, 1 / self.fy)
        if self.distort is None:
            return lens
        _, slope = self.distort(*self.ray(u, v))
        return _product(_inverse(slope), lens)

    def bearing(self, centre: Pair, velocity: Pair, covariance: NDArray[np.float64] | None = None) -> Bearing:
        """Direction and rates of a target at ``centre`` (edge px) that moves with ``velocity`` (px/s).

        ``covariance``: float64 [4, 4] of (cx, cy, vx, vy) as in `Motion`, propagated through the Jacobians of
        the angles and of the rates (J S J^T); zero if left out.

        Raises InputError as `ray` does, and where the distortion model divides by zero.
        """
        try:
            return self._bearing(centre, velocity, covariance)
        except ZeroDivisionError:
            raise InputError(
                f"the distortion model has a pole at ({centre[0]:.0f}, {centre[1]:.0f}) px;"
                " calibrate the camera again"
            ) from None

    def _bearing(self, centre: Pair, velocity: Pair, covariance: NDArray[np.float64] | None) -> Bearing:
        u, v = centre
        x, y = self.ray(u, v)
        rates = self._rate_matrix(u, v)
        azimuth_rate, elevation_rate = _apply(rates, velocity)
        position, spread = np.zeros((2, 2)), np.zeros((2, 2))
        if covariance is not None:
            turn = np.reshape(rates, (2, 2))
            position[:] = turn @ covariance[:2, :2] @ turn.T
            # The rates depend on the place too: by central differences, as lenses have no simple derivative.
            jacobian = np.empty((2, 4))
            for axis, (du, dv) in enumerate(((SLOPE_STEP_PX, 0.0), (0.0, SLOPE_STEP_PX))):
                after = _apply(self._rate_matrix(u + du, v + dv), velocity)
                before = _apply(self._rate_matrix(u - du, v - dv), velocity)
                jacobian[:, axis] = np.subtract(after, before) / (2 * SLOPE_STEP_PX)
            jacobian[:, 2:] = turn
            spread[:] = jacobian @ covariance @ jacobian.T
        return Bearing(
            azimuth=math.atan(x),
            elevation=math.atan2(y, math.hypot(1.0, x)),
            azimuth_rate=azimuth_rate,
            elevation_rate=elevation_rate,
            # Symmetric to the last bit, as a covariance must be.
            covariance=(position + position.T) / 2,
            rate_covariance=(spread + spread.T) / 2,
        )

    def _rate_matrix(self, u: float, v: float) -> Matrix:
        """Jacobian of (azimuth, elevation) by image point (u, v), rad/px; maps (u', v') to rates."""
        x, y = self.ray(u, v)
        near = 1 + x * x
        s, full = math.sqrt(near), near + y * y
        return _product((1 / near, 0.0, -x * y / (s * full), s / full), self.ray_slope(u, v))


def make_distortion(model: str, d: Sequence[float]) -> Distortion | None:
    """Return the lens's map (x, y) -> ((x', y'), Jacobian) for a CameraInfo model; None without distortion.

    Raises InputError for an unknown model, a wrong number of coefficients, or values that are not finite.
    """
    coefficients = [float(c) for c in d]
    if not all(map(math.isfinite, coefficients)):
        raise InputError(
            f"camera_info has distortion coefficients {shown(coefficients)}; calibrate the camera again"
        )
    is_fisheye = model in ("equidistant", "fisheye")
    if not any(coefficients):
        # An ideal fisheye lens (r = theta) is no pinhole camera.
        return _equidistant([0.0] * 4) if is_fisheye else None
    sizes = {"plumb_bob": (4, 5), "rational_polynomial": (8,), "equidistant": (4,), "fisheye": (4,)}
    if model not in sizes:
        raise InputError(
            f"distortion model {shown(model)} is not known; use plumb_bob, rational_polynomial, equidistant,"
            " or rectified images with the parameter rectified"
        )
    # Drivers pad with zeros to the length of OpenCV's longer models; non-zero extra coefficients can't be
    # ignored.
    extra = coefficients[sizes[model][-1] :]
    if len(coefficients) < sizes[model][0] or any(extra):
        raise InputError(
            f"distortion model {model} has {len(coefficients)} coefficients; it takes {sizes[model][-1]}"
        )
    if is_fisheye:
        return _equidistant(coefficients[:4])
    return _rational((coefficients + [0.0] * 8)[:8])


def _rational(d: list[float]) -> Distortion:
    k1, k2, p1, p2, k3, k4, k5, k6 = d

    def distort(x: float, y: float) -> tuple[Pair, Matrix]:
        r2 = x * x + y * y
        top = 1 + r2 * (k1 + r2 * (k2 + r2 * k3))
        bottom = 1 + r2 * (k4 + r2 * (k5 + r2 * k6))
        radial = top / bottom
        top_slope = k1 + r2 * (2 * k2 + 3 * k3 * r2)
        bottom_slope = k4 + r2 * (2 * k5 + 3 * k6 * r2)
        slope = 2 * (top_slope - radial * bottom_slope) / bottom  # d radial / d r2, times 2
        point = (
            x * radial + 2 * p1 * x * y + p2 * (r2 + 2 * x * x),
            y * radial + p1 * (r2 + 2 * y * y) + 2 * p2 * x * y,
        )
        cross = slope * x * y + 2 * p1 * x + 2 * p2 * y
        return point, (
            radial + slope * x * x + 2 * p1 * y + 6 * p2 * x,
            cross,
            cross,
            radial + slope * y * y + 6 * p1 * y + 2 * p2 * x,
        )

    return distort


def _equidistant(d: list[float]) -> Distortion:
    k1, k2, k3, k4 = d

    def distort(x: float, y: float) -> tuple[Pair, Matrix]:
        r = math.hypot(x, y)
        if r < 1e-9:
            return (x, y), (1.0, 0.0, 0.0, 1.0)
        angle = math.atan(r)
        t = angle * angle
        bent = angle * (1 + t * (k1 + t * (k2 + t * (k3 + t * k4))))
        bent_slope = (1 + t * (3 * k1 + t * (5 * k2 + t * (7 * k3 + t * 9 * k4)))) / (1 + r * r)
        scale = bent / r
        slope = (bent_slope - scale) / (r * r)
        cross = slope * x * y
        return (x * scale, y * scale), (scale + slope * x * x, cross, cross, scale + slope * y * y)

    return distort


def _undistort(distort: Distortion, x0: float, y0: float) -> Pair:
    """Solve distort(x, y) = (x0, y0) by Newton's method, starting from the distorted point."""
    x, y = x0, y0
    for _ in range(MAX_ITERATIONS):
        (px, py), slope = distort(x, y)
        if slope[0] * slope[3] - slope[1] * slope[2] <= 0.0:
            break  # beyond the fold of the polynomial, where the map is not injective
        dx, dy = _apply(_inverse(slope), (x0 - px, y0 - py))
        x, y = x + dx, y + dy
        if abs(dx) + abs(dy) < CONVERGED:
            return x, y
    raise InputError(
        f"the distortion model has no inverse at ({x0:.3f}, {y0:.3f}): outside the calibrated view"
    )


def _apply(m: Matrix, v: Pair) -> Pair:
    return m[0] * v[0] + m[1] * v[1], m[2] * v[0] + m[3] * v[1]


def _product(m: Matrix, n: Matrix) -> Matrix:
    return (
        m[0] * n[0] + m[1] * n[2],
        m[0] * n[1] + m[1] * n[3],
        m[2] * n[0] + m[3] * n[2],
        m[2] * n[1] + m[3] * n[3],
    )


def _inverse(m: Matrix) -> Matrix:
    determinant = m[0] * m[3] - m[1] * m[2]
    return m[3] / determinant, -m[1] / determinant, -m[2] / determinant, m[0] / determinant


TRANSPORT_SUFFIXES = ("/compressed", "/ffmpeg", "/foxglove")
"""Of topics, as image_transport names them."""
OFF_CENTRE = 0.3
"""Least share of the sensor's width and height at which the principal point of a binned camera lies."""
MIN_VIEW_DEG, MAX_VIEW_DEG = 1.0, 170.0
"""Field of view of a side that a calibration can have."""


@dataclass(frozen=True)
class CameraModel:
    """A camera_info's content: the calibration (None: uncalibrated) and the size of its images, px."""

    intrinsics: Intrinsics | None
    width: int
    height: int


def bearing_of(
    motion: Motion | None, image_size: tuple[int, int], camera: CameraModel | None
) -> Bearing | None:
    """Compute the bearing of a motion; None without a motion or a calibrated camera.

    Raises InputError when the calibration is for another image size, or the distortion has no inverse there.
    """
    if camera is None or camera.intrinsics is None or motion is None:
        return None
    if (camera.width, camera.height) != tuple(image_size):
        width, height = image_size
        raise InputError(
            f"no bearing: camera_info is for {camera.width} x {camera.height} px, the image has"
            f" {width} x {height}; send the camera_info of this image topic"
        )
    try:
        centre = (motion.box.cx, motion.box.cy)
        return camera.intrinsics.bearing(centre, motion.velocity, motion.covariance)
    except InputError as refusal:
        raise InputError(f"no bearing: {refusal}") from None


def camera_model(msg: Any, rectified: bool = False, with_distortion: bool = True) -> CameraModel:
    """Read the camera model from a sensor_msgs/CameraInfo.

    ``rectified``: the images are rectified, so the projection matrix is used, or K where it is not set, and
    the distortion is not.
    ``with_distortion``: False if it is not wanted; then an unknown distortion model does not matter.
    Raises InputError as `Intrinsics.from_camera_info` does.
    """
    has_projection = rectified and float(msg.p[0]) != 0.0
    _check_calibration(msg, has_projection)
    with_distortion = with_distortion and not rectified
    intrinsics = Intrinsics.from_camera_info(
        [float(v) for v in msg.k],
        [float(v) for v in msg.d] if with_distortion else (),
        msg.distortion_model if with_distortion else "",
        p=[float(v) for v in msg.p] if has_projection else None,
        offset=(int(msg.roi.x_offset), int(msg.roi.y_offset)),
        binning=(int(msg.binning_x), int(msg.binning_y)),
    )
    model = CameraModel(intrinsics, *delivered_size(msg))
    if intrinsics is not None:
        _check_lens(intrinsics, model.width, model.height)
    return model


def _check_calibration(msg: Any, rectified: bool) -> None:
    """Raise InputError where region, binning and principal point of a CameraInfo contradict each other."""
    roi, cx, cy = msg.roi, *((msg.p[2], msg.p[6]) if rectified else (msg.k[2], msg.k[5]))
    if (
        roi.width
        and roi.height
        and (roi.x_offset + roi.width > msg.width or roi.y_offset + roi.height > msg.height)
    ):
        raise InputError(
            f"camera_info has the region of interest {roi.width} x {roi.height} px at ({roi.x_offset},"
            f" {roi.y_offset}), outside its image of {msg.width} x {msg.height} px: correct the region"
        )
    binning = max(int(msg.binning_x), int(msg.binning_y))
    # A lens is centred on its sensor, so a principal point this far off is that of the binned image.
    is_off = min(cx / max(1, msg.width), cy / max(1, msg.height)) < OFF_CENTRE
    if binning > 1 and msg.k[0] and is_off:
        raise InputError(
            f"camera_info has the principal point ({cx:g}, {cy:g}) px, binning {binning} and"
            f" {msg.width} x {msg.height} px: K and P must be of the full resolution; correct them, or set"
            " binning to 0"
        )


def _check_lens(lens: Intrinsics, width: int, height: int) -> None:
    """Raise InputError for a camera that can't be: for the delivered image of this size."""
    if not (-0.5 <= lens.cx <= width - 0.5 and -0.5 <= lens.cy <= height - 0.5) or (lens.cx, lens.cy) == (
        0,
        0,
    ):
        raise InputError(
            f"camera_info has the principal point ({lens.cx:g}, {lens.cy:g}) px in an image of"
            f" {width} x {height} px: calibrate the camera again"
        )
    for side, focal_px in ((width, lens.fx), (height, lens.fy)):
        view_deg = math.degrees(2 * math.atan(side / 2 / focal_px))
        if not MIN_VIEW_DEG <= view_deg <= MAX_VIEW_DEG:
            raise InputError(
                f"camera_info has the focal length {focal_px:g} px for a side of {side} px, a field of view"
                f" of {view_deg:.1f} degrees; give {MIN_VIEW_DEG:g} to {MAX_VIEW_DEG:g}: calibrate again"
            )


def camera_info_beside(image_topic: str) -> str:
    """Return the calibration's topic beside an image topic, as in image_transport: /camera/image_raw and
    /camera/image_raw/compressed -> /camera/camera_info."""
    for suffix in TRANSPORT_SUFFIXES:
        image_topic = image_topic.removesuffix(suffix)
    folder, slash, _ = image_topic.rpartition("/")
    return f"{folder}{slash}camera_info"


def is_rectified_topic(image_topic: str) -> bool:
    """Return whether an image topic's name shows that its images are rectified, as image_proc names them:
    /camera/image_rect, /camera/image_rect_color, /stereo/left/rectified/image."""
    for suffix in TRANSPORT_SUFFIXES:
        image_topic = image_topic.removesuffix(suffix)
    return re.search(r"(^|[/_])(image_rect|rect(ified)?|undist(orted)?)($|[/_])", image_topic) is not None


def rectified_note(msg: Any, image_topic: str) -> str:
    """Return what is assumed of the images of a calibration with distortion on a topic of such a name; empty
    where it makes no difference."""
    if not is_rectified_topic(image_topic) or not any(msg.d):
        return ""
    used = "P of camera_info is used" if msg.p[0] else "K of camera_info is used, as P is not set,"
    return (
        f"{image_topic} is taken as rectified by its name: {used}, without distortion; if its images are not,"
        " give the topic another name"
    )


def delivered_size(msg: Any) -> tuple[int, int]:
    """Width and height, px, of a CameraInfo's images: region of interest and binning applied."""
    roi = msg.roi
    # A region of zero size stands for the whole image.
    width, height = (roi.width, roi.height) if roi.width and roi.height else (msg.width, msg.height)
    return int(width) // max(1, int(msg.binning_x)), int(height) // max(1, int(msg.binning_y))
