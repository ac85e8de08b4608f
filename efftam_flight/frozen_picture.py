"""Notices a picture that stands still while the gimbal turns: a hung camera or encoder repeats its last image
with new stamps, and the target seems to turn with the gimbal for ever.

It is a check of the loop, not of pixels: a gimbal that turns must move the picture.
"""

from __future__ import annotations

import math

from efftam_flight.angles import wrapped

# The gimbal has turned so far, rad, over so long, s, while the picture moved by less than this share of what
# the turn makes of it: it is frozen. The time covers an attitude that is a little late against the images.
TURNED, STILL_S, SHARE = math.radians(2.0), 0.12, 0.1
# Images of one scene differ by noise, which looks like at least so much motion; repeated ones do not, px.
MIN_MOTION_PX = 0.005
NS = 1_000_000_000


class FrozenPicture:
    """Takes every image that was answered. ``is_frozen`` until the picture moves again."""

    def __init__(self) -> None:
        self.is_frozen = False
        self._axis: tuple[float, float] | None = None  # of the last image
        self._since_ns = 0  # the image that was the last to move
        self._turned = 0.0  # since then, rad
        self._shift_px = 0.0  # the largest since then

    def forget(self) -> None:
        """Discard the earlier images: another stream, another target, another calibration."""
        self.is_frozen = False
        self._begin(None, 0)

    def take(
        self, stamp_ns: int, axis: tuple[float, float] | None, shift_px: float, focal_px: float | None
    ) -> None:
        """Add an image. ``axis``: yaw from north and pitch of the optical axis when it was taken, rad, None
        where they are not known; ``shift_px``: the largest motion of an image corner since the image before,
        NaN where it is not known; ``focal_px``: of the camera, None where it is not known."""
        if self.is_frozen:
            # A view of its own can't be compared with the frozen one.
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
        """Start anew: the picture moves up to this image, or that is not known."""
        self._axis, self._since_ns = axis, stamp_ns
        self._turned = self._shift_px = 0.0
