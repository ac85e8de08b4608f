"""Converts bearings and quaternions to yaw and pitch, and computes with rotations.

Axes of gimbal, vehicle and level frames: x forward, y right, z down (MAVLink). Axes of the camera (REP 103):
x right, y down, z forward. Yaw is positive to the right, pitch up; a bearing's elevation is positive down.
"""

from __future__ import annotations

import math

from efftam_flight.values import Quaternion

Vector = tuple[float, float, float]


def wrapped(angle: float) -> float:
    """Return the angle plus the multiple of a full turn that brings it into [-pi, pi], rad."""
    return math.remainder(angle, 2 * math.pi)


def normalised(q: Quaternion) -> Quaternion | None:
    """Return ``q`` scaled to length 1. Return None, because ``q`` is no rotation, if its length is not finite
    or not between 0.9 and 1.1."""
    length = math.sqrt(sum(v * v for v in q))
    if not 0.9 < length < 1.1:
        return None
    return q[0] / length, q[1] / length, q[2] / length, q[3] / length


def rotated(q: Quaternion, v: Vector) -> Vector:
    """Convert a vector from the turned axes to the original axes. ``q``: the rotation that turns the original
    axes into the turned ones."""
    w, x, y, z = q
    # The result is v + 2 w (u x v) + 2 u x (u x v), with u = (x, y, z). Here a is u x v, and b is u x a.
    a = (y * v[2] - z * v[1], z * v[0] - x * v[2], x * v[1] - y * v[0])
    b = (y * a[2] - z * a[1], z * a[0] - x * a[2], x * a[1] - y * a[0])
    return v[0] + 2 * (w * a[0] + b[0]), v[1] + 2 * (w * a[1] + b[1]), v[2] + 2 * (w * a[2] + b[2])


def yaw_pitch(v: Vector) -> tuple[float, float]:
    """Return yaw and pitch, rad, of a direction that is given in level axes (forward, right, down)."""
    return math.atan2(v[1], v[0]), math.atan2(-v[2], math.hypot(v[0], v[1]))


def axis_direction(q: Quaternion) -> tuple[float, float]:
    """Return yaw and pitch, rad, of the optical axis of a camera with attitude ``q``."""
    return yaw_pitch(rotated(q, (1.0, 0.0, 0.0)))


def target_direction(q: Quaternion, azimuth: float, elevation: float) -> tuple[float, float]:
    """Return yaw and pitch, rad, of a target that a camera with attitude ``q`` sees at this bearing, rad."""
    return yaw_pitch(rotated(q, ray_of(azimuth, elevation)))


def ray_of(azimuth: float, elevation: float) -> Vector:
    """Return the unit vector of a bearing (azimuth right, elevation down, rad), in the camera's
    forward-right-down axes."""
    flat = math.cos(elevation)
    return flat * math.cos(azimuth), flat * math.sin(azimuth), math.sin(elevation)


def bearing_of(ray: Vector) -> tuple[float, float]:
    """Return azimuth (right) and elevation (down), rad, of a direction in the camera's forward-right-down
    axes. It is the inverse of `ray_of`."""
    return math.atan2(ray[1], ray[0]), math.atan2(ray[2], math.hypot(ray[0], ray[1]))


def unrolled(azimuth: float, elevation: float, roll: float) -> tuple[float, float]:
    """Return the bearing, rad, that an upright camera would measure. ``azimuth`` and ``elevation`` are the
    bearing that a rolled camera measures; ``roll`` is its roll, clockwise seen from behind, rad."""
    forward, right, down = ray_of(azimuth, elevation)
    c, s = math.cos(roll), math.sin(roll)
    return bearing_of((forward, right * c - down * s, right * s + down * c))


def interpolated(a: Quaternion, b: Quaternion, share: float) -> Quaternion:
    """Interpolate from rotation ``a`` (share 0) to ``b`` (share 1) at constant angular rate; a share outside
    0..1 extrapolates."""
    dot = sum(p * q for p, q in zip(a, b, strict=True))
    if dot < 0.0:
        b, dot = (-b[0], -b[1], -b[2], -b[3]), -dot
    angle = math.acos(min(dot, 1.0))
    if angle < 1e-6:
        first, second = 1.0 - share, share
    else:
        first = math.sin((1.0 - share) * angle) / math.sin(angle)
        second = math.sin(share * angle) / math.sin(angle)
    w, x, y, z = (first * p + second * q for p, q in zip(a, b, strict=True))
    length = math.sqrt(w * w + x * x + y * y + z * z)
    return w / length, x / length, y / length, z / length


def product(a: Quaternion, b: Quaternion) -> Quaternion:
    """Return the quaternion product a b: the rotation by ``b``, then by ``a``."""
    aw, ax, ay, az = a
    bw, bx, by, bz = b
    return (
        aw * bw - ax * bx - ay * by - az * bz,
        aw * bx + ax * bw + ay * bz - az * by,
        aw * by - ax * bz + ay * bw + az * bx,
        aw * bz + ax * by - ay * bx + az * bw,
    )


def from_angles(roll: float, pitch: float, yaw: float) -> Quaternion:
    """Return the quaternion of the rotation by yaw, then pitch, then roll (z-y'-x''); angles in rad."""
    cr, sr = math.cos(roll / 2), math.sin(roll / 2)
    cp, sp = math.cos(pitch / 2), math.sin(pitch / 2)
    cy, sy = math.cos(yaw / 2), math.sin(yaw / 2)
    return (
        cr * cp * cy + sr * sp * sy,
        sr * cp * cy - cr * sp * sy,
        cr * sp * cy + sr * cp * sy,
        cr * cp * sy - sr * sp * cy,
    )


def turn_between(before: Quaternion, after: Quaternion, dt_s: float) -> Vector:
    """Return the constant angular velocity that turns attitude ``before`` into ``after`` within ``dt_s``,
    rad/s, in the axes of the frame in which both attitudes are given."""
    w, x, y, z = product(after, (before[0], -before[1], -before[2], -before[3]))
    if w < 0.0:
        w, x, y, z = -w, -x, -y, -z
    sine = math.sqrt(x * x + y * y + z * z)
    scale = 2.0 / dt_s if sine < 1e-9 else 2.0 * math.atan2(sine, w) / (sine * dt_s)
    return x * scale, y * scale, z * scale
