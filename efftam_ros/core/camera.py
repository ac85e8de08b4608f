"""The camera's motion for several targets: estimated once for each image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from efftam_ros.core.types import CameraMotion

if TYPE_CHECKING:
    from efftam_ros.core.contract import CameraMotionSource
    from efftam_ros.core.geometry import Box
    from efftam_ros.core.types import Frame

UNKNOWN = CameraMotion(None, "no previous image")


class Camera(NamedTuple):
    """The camera at one image.

    ``motion``: since the target's last image; ``source``: what estimated it, and can keep this image and
    compare it with a kept one.
    """

    motion: CameraMotion
    source: CameraMotionSource


class SharedCamera:
    """Estimates the camera's motion once for each image, and gives each target the motion since its own
    last image, because not every target has its turn in every image.

    A target that was selected on an earlier image than the others' last one catches up through images of its
    own, with a source of its own, until it is level with them.
    """

    def __init__(self, source: CameraMotionSource) -> None:
        self.source = source
        self._stamp_ns: int | None = None  # of the last image, None before the first
        self._since: dict[int, CameraMotion | None] = {}  # by target, since its last turn
        self._own: dict[int, CameraMotionSource] = {}  # of targets that catch up

    def at(self, target_id: int, frame: Frame, moving: Sequence[Box]) -> Camera:
        """The camera for a target that has its turn in this image. ``moving``: boxes in the image before, px,
        which the estimate leaves out."""
        own = self._own.get(target_id)
        if own is None:
            self._advance(frame, moving)
            motion, self._since[target_id] = self._since.get(target_id), None
            return Camera(motion or UNKNOWN, self.source)
        motion = own.estimate(frame.image, frame.stamp_ns, moving)
        if self._is_behind(frame):
            return Camera(motion, own)
        self._advance(frame, moving)
        self._join(target_id)
        return Camera(motion, self.source)

    def before_selection(self, target_id: int, frame: Frame, moving: Sequence[Box]) -> Camera:
        """The camera for a target that may be selected on this image; `select` follows where it is. What is
        known for the targets that there are does not change."""
        others = self._since.keys() - {target_id}
        source = self.source
        if not self._since:
            self._stamp_ns = None
            source.reset()
        if self._since and (not others or self._is_behind(frame)):
            source = source.another()
            source.estimate(frame.image, frame.stamp_ns, moving)
        else:
            self._advance(frame, moving)
        return Camera(UNKNOWN, source)

    def select(self, target_id: int, frame: Frame, camera: Camera) -> None:
        """The target was selected on this image, with the camera of `before_selection`."""
        is_alone = not self._since.keys() - {target_id}
        self._join(target_id)
        if is_alone:
            self.source, self._stamp_ns = camera.source, frame.stamp_ns
        elif camera.source is not self.source:
            self._own[target_id] = camera.source

    def forget(self, target_id: int) -> None:
        self._since.pop(target_id, None)
        self._own.pop(target_id, None)

    def _join(self, target_id: int) -> None:
        """The target is level with the camera."""
        self._own.pop(target_id, None)
        self._since[target_id] = None

    def _is_behind(self, frame: Frame) -> bool:
        return self._stamp_ns is not None and frame.stamp_ns < self._stamp_ns

    def _advance(self, frame: Frame, moving: Sequence[Box]) -> None:
        """Estimate the motion to this image, unless it was."""
        if frame.stamp_ns == self._stamp_ns:
            return
        self._stamp_ns = frame.stamp_ns
        motion = self.source.estimate(frame.image, frame.stamp_ns, moving)
        self._since = {target_id: _chained(before, motion) for target_id, before in self._since.items()}


def _chained(before: CameraMotion | None, motion: CameraMotion) -> CameraMotion:
    """Two motions, one after the other; not known where one is not."""
    if before is None:
        return motion
    if before.matrix is None:
        return before
    if motion.matrix is None:
        return motion
    return CameraMotion(motion.matrix @ before.matrix, motion.reason)
