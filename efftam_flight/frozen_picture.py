"""Detects a frozen picture: the picture stands still while the gimbal turns.

A camera or encoder that hangs may repeat its last image with new stamps. Then the target seems to move with
the gimbal, and steering would never end. Repeated pixels are not searched for. Instead, the motion between
images is compared with the turn of the gimbal.
"""

from __future__ import annotations

import math

from efftam_flight.angles import wrapped

# The picture is frozen if the gimbal has turned by more than TURNED (rad) within at least STILL_S (s), while
# the picture moved by less than SHARE of the motion that this turn causes. STILL_S allows for attitudes that
# are a little late against the images.
TURNED, STILL_S, SHARE = math.radians(2.0), 0.12, 0.1
# Noise makes two images of one scene look moved by at least this much, px. A repeated image shows less.
MIN_MOTION_PX = 0.005
NS = 1_000_000_000


class FrozenPicture:
    """Compares the motion of the images with the turn of the gimbal. ``is_frozen``: whether the picture
    stands still while the gimbal turns."""

    def __init__(self) -> None:
        self.is_frozen = False
        self._axis: tuple[float, float] | None = None  # yaw and pitch of the optical axis at the last image
        self._since_ns = 0  # stamp of the last image that differs from the one before
        self._turned = 0.0  # turn of the gimbal since `_since_ns`, rad
        self._shift_px = 0.0  # largest motion of the picture since `_since_ns`

    def forget(self) -> None:
        """Discard the earlier images: the stream, the target or the calibration has changed."""
        self.is_frozen = False
        self._begin(None, 0)

    def take(
        self, stamp_ns: int, axis: tuple[float, float] | None, shift_px: float, focal_px: float | None
    ) -> None:
        """Add an image.

        ``axis``: yaw from north and pitch of the optical axis at the stamp of the image, rad. ``shift_px``:
        the largest motion of an image corner since the target's last image, NaN if unknown. ``focal_px``:
        the camera's focal length. ``axis`` and ``focal_px`` are None if unknown.
        """
        if self.is_frozen:
            # shift_px is NaN if the new image can't be compared with the frozen one. The comparison below is
            # then false, so such an image ends the freeze too.
            if not shift_px <= max(MIN_MOTION_PX, 2 * self._shift_px):
                self.forget()
            return
        last, since_ns = self._axis, self._since_ns
        if axis is None or last is None or focal_px is None or not math.isfinite(shift_px):
            self._begin(axis, stamp_ns)
            return
        turned = math.hypot(wrapped(axis[0] - last[0]) * math.cos(axis[1]), axis[1] - last[1])
        if shift_px > max(SHARE * turned * focal_px, MIN_MOTION_PX):
            self._begin(axis, stamp_ns)
            return
        self._axis, self._turned = axis, self._turned + turned
        self._shift_px = max(self._shift_px, shift_px)
        self.is_frozen = self._turned > TURNED and stamp_ns - since_ns >= STILL_S * NS

    def _begin(self, axis: tuple[float, float] | None, stamp_ns: int) -> None:
        """Start measuring at this image: the picture moved, or its motion can't be judged."""
        self._axis, self._since_ns = axis, stamp_ns
        self._turned = self._shift_px = 0.0
