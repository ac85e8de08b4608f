"""Converts pixels to angles by a CameraInfo: the direction of a target from the camera, and its rate.

Directions are in the camera's optical frame (REP 103): x right, y down, z forward. The pixel (u, v) shows
what lies in the direction (x, y, 1). With (x', y'), which is (x, y) after the distortion by the lens, the
pixel is ``u = fx x' + s y' + cx``, ``v = fy y' + cy``. The azimuth ``atan(x)`` is positive to the right, the
elevation ``atan(y / sqrt(1 + x^2))`` is positive down.

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

# Step of the central differences that give the derivative of the rates, px. It is large enough to make
# rounding errors negligible, and small enough to make the curvature of the lens negligible.
SLOPE_STEP_PX = 0.5
MAX_ITERATIONS = 30
CONVERGED = 1e-12
# Smallest focal length, and largest absolute value of any number in a camera matrix, px. Real lenses are far
# inside these limits, and products of numbers inside them stay finite.
MIN_FOCAL_PX, MAX_PX = 1e-3, 1e9


@dataclass(frozen=True)
class Bearing:
    """Direction of a target in the camera's optical frame, and the rates of its angles.

    The rates include the motion of the camera itself.

    Attributes:
        azimuth: Angle to the right of the optical axis, rad.
        elevation: Angle below the optical axis, rad.
        azimuth_rate: Rate of the azimuth, rad/s.
        elevation_rate: Rate of the elevation, rad/s.
        covariance: Covariance of (azimuth, elevation), float64 [2, 2], rad^2.
        rate_covariance: Covariance of the two rates, float64 [2, 2], rad^2/s^2.
    """

    azimuth: float
    elevation: float
    azimuth_rate: float
    elevation_rate: float
    covariance: NDArray[np.float64]
    rate_covariance: NDArray[np.float64]


@dataclass(frozen=True)
class Intrinsics:
    """The calibration of a camera, for pixels of the image that it delivers.

    The delivered image is what remains of the sensor's full resolution after region of interest and binning.

    Attributes:
        fx: Focal length in x, px.
        fy: Focal length in y, px.
        cx: Column of the principal point, px. Pixel *centres* are at whole numbers, as usual in calibrations.
        cy: Row of the principal point, px.
        skew: Skew of the two axes, px.
        distort: Maps (x, y) to the distorted (x', y') and the 2x2 Jacobian of this map. None for an image
            without distortion.
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
        """Build from the fields of sensor_msgs/CameraInfo; None for an uncalibrated camera.

        A camera is uncalibrated if the first number of ``p``, or of ``k`` without ``p``, is 0.

        Args:
            k: Camera matrix 3x3, row-major, px of the full resolution.
            d: Distortion coefficients.
            model: Name of the distortion model.
            p: Projection matrix 3x4, row-major, px of the full resolution. It is given for rectified images,
                and then used instead of ``k``, ``d`` and ``model``. None: the images are not rectified.
            offset: Left and top edge of the region of interest, px of the full resolution.
            binning: Binning in x and y; 0 means 1.

        Raises:
            InputError: The calibration is invalid or the distortion model is unknown.
        """
        matrix = list(k) if p is None else [*p[0:3], *p[4:7], *p[8:11]]
        if matrix[0] == 0.0:
            return None
        fx, skew, cx, fy, cy = matrix[0], matrix[1], matrix[2], matrix[4], matrix[5]
        if not (min(fx, fy) >= MIN_FOCAL_PX and all(abs(number) <= MAX_PX for number in matrix)):
            raise InputError(
                f"camera_info has a value that is not possible: focal lengths {fx:g}, {fy:g}, principal point"
                f" ({cx:g}, {cy:g}), skew {skew:g} px; calibrate the camera again"
            )
        bin_x, bin_y = (max(1, n) for n in binning)
        # A binned pixel covers ``bin`` pixels of the full resolution in each axis. Its centre is therefore
        # (bin - 1) / 2 of these pixels beyond the centre of the first.
        return cls(
            fx=fx / bin_x,
            fy=fy / bin_y,
            cx=(cx - offset[0] + 0.5) / bin_x - 0.5,
            cy=(cy - offset[1] + 0.5) / bin_y - 0.5,
            skew=skew / bin_x,
            distort=None if p is not None else make_distortion(model, d),
        )

    def ray(self, u: float, v: float) -> Pair:
        """Return (x, y) of the direction (x, y, 1) that the image shows at the point (u, v), px.

        Here the centre of the pixel in column i is at u = i + 0.5. Raises InputError where the distortion
        model has no inverse, which is far outside the calibrated field of view.
        """
        y = (v - 0.5 - self.cy) / self.fy
        x = (u - 0.5 - self.cx - self.skew * y) / self.fx
        return (x, y) if self.distort is None else _undistort(self.distort, x, y)

    def ray_slope(self, u: float, v: float) -> Matrix:
        """Return the 2x2 Jacobian of `ray` with respect to (u, v), row-major, 1/px."""
        lens = (1 / self.fx, -self.skew / (self.fx * self.fy), 0.0, 1 / self.fy)
        if self.distort is None:
            return lens
        _, slope = self.distort(*self.ray(u, v))
        return _product(_inverse(slope), lens)

    def bearing(self, centre: Pair, velocity: Pair, covariance: NDArray[np.float64] | None = None) -> Bearing:
        """Return direction and rates of a target in the image.

        Args:
            centre: Centre of the target, px; the centre of the first pixel is (0.5, 0.5).
            velocity: Velocity of the centre, px/s.
            covariance: Covariance of (cx, cy, vx, vy), float64 [4, 4], as in `Motion`. It is propagated by
                the Jacobians of the angles and of the rates (J S J^T). None: all covariances are zero.

        Raises:
            InputError: The distortion model has no inverse at this point, or divides by zero.
        """
        try:
            return self._bearing(centre, velocity, covariance)
        except ZeroDivisionError:
            raise InputError(
                f"the distortion model divides by zero at ({centre[0]:.0f}, {centre[1]:.0f}) px; calibrate"
                " the camera again"
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
            # The rates depend on the position in the image too. This derivative is computed by central
            # differences, because the distortion models have no simple second derivative.
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
            # Rounding errors can make the products asymmetric, but a covariance must be symmetric.
            covariance=(position + position.T) / 2,
            rate_covariance=(spread + spread.T) / 2,
        )

    def _rate_matrix(self, u: float, v: float) -> Matrix:
        """Return the 2x2 Jacobian of (azimuth, elevation) with respect to (u, v), row-major, rad/px.

        Multiplied by a velocity in px/s it gives the rates in rad/s.
        """
        x, y = self.ray(u, v)
        near = 1 + x * x
        s, full = math.sqrt(near), near + y * y
        return _product((1 / near, 0.0, -x * y / (s * full), s / full), self.ray_slope(u, v))


def make_distortion(model: str, d: Sequence[float]) -> Distortion | None:
    """Return the map by which a lens distorts: (x, y) -> ((x', y'), Jacobian); None without distortion.

    ``model`` and ``d`` are the fields ``distortion_model`` and ``d`` of a CameraInfo. Raises InputError for
    an unknown model, a wrong number of coefficients, or values that are not finite.
    """
    coefficients = [float(c) for c in d]
    if not all(map(math.isfinite, coefficients)):
        raise InputError(
            f"camera_info has distortion coefficients that are not finite: {shown(coefficients)}; calibrate"
            " the camera again"
        )
    is_fisheye = model in ("equidistant", "fisheye")
    if not any(coefficients):
        # Even without coefficients a fisheye lens distorts: it maps the angle theta to the radius r = theta,
        # where a pinhole camera gives r = tan(theta).
        return _equidistant([0.0] * 4) if is_fisheye else None
    sizes = {"plumb_bob": (4, 5), "rational_polynomial": (8,), "equidistant": (4,), "fisheye": (4,)}
    if model not in sizes:
        raise InputError(
            f"distortion model {shown(model)} is not known; use plumb_bob, rational_polynomial, equidistant,"
            " or rectified images with the parameter rectified"
        )
    # Drivers append zeros up to the number of coefficients of OpenCV's longer models. Further coefficients
    # that are not zero belong to another model.
    extra = coefficients[sizes[model][-1] :]
    if len(coefficients) < sizes[model][0] or any(extra):
        raise InputError(
            f"distortion model {model} has {len(coefficients)} coefficients; the model takes"
            f" {sizes[model][-1]}"
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
        slope = 2 * (top_slope - radial * bottom_slope) / bottom  # twice the derivative of radial by r2
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
    """Return the (x, y) that ``distort`` maps to (x0, y0), found by Newton's method from (x0, y0).

    Raises InputError where the method finds none.
    """
    x, y = x0, y0
    for _ in range(MAX_ITERATIONS):
        (px, py), slope = distort(x, y)
        if slope[0] * slope[3] - slope[1] * slope[2] <= 0.0:
            break  # far from the axis the polynomial decreases again: the map has no unique inverse there
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
"""Endings that image_transport appends to the name of an image topic."""
OFF_CENTRE = 0.3
"""Smallest distance of a principal point from the left and top edge, as a share of width and height.

The calibration of a camera with binning is rejected if its principal point is nearer to an edge.
"""
MIN_VIEW_DEG, MAX_VIEW_DEG = 1.0, 170.0
"""Smallest and largest accepted field of view of a calibration, horizontal and vertical, degrees."""


@dataclass(frozen=True)
class CameraModel:
    """The calibration of a camera (None: the camera is not calibrated) and the size of its images, px."""

    intrinsics: Intrinsics | None
    width: int
    height: int


def bearing_of(
    motion: Motion | None, image_size: tuple[int, int], camera: CameraModel | None
) -> Bearing | None:
    """Return the bearing of a target with this motion; None without a motion or a calibrated camera.

    Raises InputError if the calibration is for another image size, or if the distortion has no inverse at the
    target's centre.
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
    """Return the camera model that a sensor_msgs/CameraInfo describes.

    Args:
        msg: The CameraInfo.
        rectified: Whether the images are rectified. If so, the projection matrix P is used, or K where P is
            not set, and the distortion is ignored.
        with_distortion: False ignores the distortion. An unknown distortion model is then accepted.

    Raises:
        InputError: The calibration is invalid, or its distortion model is unknown.
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
    # Lenses are centred on the sensor. A principal point far from the centre of the full resolution was
    # probably given for the binned image.
    is_off = min(cx / max(1, msg.width), cy / max(1, msg.height)) < OFF_CENTRE
    if binning > 1 and msg.k[0] and is_off:
        raise InputError(
            f"camera_info has binning {binning}, and its principal point ({cx:g}, {cy:g}) px is far from the"
            f" centre of {msg.width} x {msg.height} px: K and P must be of the full resolution; correct them,"
            " or set binning to 0"
        )


def _check_lens(lens: Intrinsics, width: int, height: int) -> None:
    """Raise InputError if no real camera can have this calibration.

    ``width`` and ``height``: size of the delivered image, px.
    """
    if not (-0.5 <= lens.cx <= width - 0.5 and -0.5 <= lens.cy <= height - 0.5) or (lens.cx, lens.cy) == (
        0,
        0,
    ):
        raise InputError(
            f"camera_info has the principal point ({lens.cx:g}, {lens.cy:g}) px, which is not possible in an"
            f" image of {width} x {height} px: calibrate the camera again"
        )
    for side, focal_px in ((width, lens.fx), (height, lens.fy)):
        view_deg = math.degrees(2 * math.atan(side / 2 / focal_px))
        if not MIN_VIEW_DEG <= view_deg <= MAX_VIEW_DEG:
            raise InputError(
                f"camera_info has the focal length {focal_px:g} px for a side of {side} px, a field of view"
                f" of {view_deg:.1f} degrees; {MIN_VIEW_DEG:g} to {MAX_VIEW_DEG:g} are possible; calibrate"
                " the camera again"
            )


def camera_info_beside(image_topic: str) -> str:
    """Return the topic of the calibration of an image topic, by the convention of image_transport.

    For /camera/image_raw and for /camera/image_raw/compressed this is /camera/camera_info.
    """
    for suffix in TRANSPORT_SUFFIXES:
        image_topic = image_topic.removesuffix(suffix)
    folder, slash, _ = image_topic.rpartition("/")
    return f"{folder}{slash}camera_info"


def is_rectified_topic(image_topic: str) -> bool:
    """Return whether the images of a topic are rectified, judged by its name.

    Rectified images have names such as /camera/image_rect and /camera/image_rect_color, which image_proc
    gives, or /stereo/left/rectified/image.
    """
    for suffix in TRANSPORT_SUFFIXES:
        image_topic = image_topic.removesuffix(suffix)
    return re.search(r"(^|[/_])(image_rect|rect(ified)?|undist(orted)?)($|[/_])", image_topic) is not None


def rectified_note(msg: Any, image_topic: str) -> str:
    """Return a log line on lens distortion that is ignored because of a topic's name; "" if none is ignored.

    Distortion is ignored if the name means that the images are rectified. ``msg`` is the topic's CameraInfo.
    The result is also "" if this calibration has no distortion.
    """
    if not is_rectified_topic(image_topic) or not any(msg.d):
        return ""
    used = "P of camera_info is used" if msg.p[0] else "K of camera_info is used, as P is not set,"
    return (
        f"the images of {image_topic} are assumed to be rectified, because of its name: {used}, without"
        " distortion; if they are not, give the topic another name"
    )


def delivered_size(msg: Any) -> tuple[int, int]:
    """Return width and height of a camera's images after region of interest and binning, px.

    ``msg`` is the camera's CameraInfo.
    """
    roi = msg.roi
    # A region of zero size stands for the whole image.
    width, height = (roi.width, roi.height) if roi.width and roi.height else (msg.width, msg.height)
    return int(width) // max(1, int(msg.binning_x)), int(height) // max(1, int(msg.binning_y))
