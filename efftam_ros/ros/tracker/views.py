"""The node's outputs for other tools and viewers: detections, annotations, masks and overlay."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sensor_msgs.msg import Image as ImageMessage

from efftam_ros.core.targets import Step
from efftam_ros.core.types import Image, Track
from efftam_ros.interop.messages import detections_message, fill_image
from efftam_ros.runtime.image.encodings import to_bgr

# Only the newest picture is worth delivering.
LIST_DEPTH, PICTURE_DEPTH = 10, 1


def optional_messages(package: str) -> Any:
    """Return the module of a package's messages, or None if the package is not installed."""
    try:
        return import_module(f"{package}.msg")
    except ModuleNotFoundError:
        return None


class Views:
    """Publishers of what is only computed while it is subscribed to. The loop's alone.

    ``create``: makes a publisher of (message type, topic, depth).
    """

    def __init__(
        self, create: Callable[[Any, str, int], Any], with_detections: bool, with_annotations: bool
    ) -> None:
        self._mask = create(ImageMessage, "mask", PICTURE_DEPTH)
        self._mask_labels = create(ImageMessage, "mask_labels", PICTURE_DEPTH)
        self._overlay = create(ImageMessage, "overlay", PICTURE_DEPTH)
        self._vision = optional_messages("vision_msgs") if with_detections else None
        if self._vision is not None:
            self._detections = create(self._vision.Detection2DArray, "detections", LIST_DEPTH)
        self._foxglove = optional_messages("foxglove_msgs") if with_annotations else None
        if self._foxglove is not None:
            self._annotations = create(self._foxglove.ImageAnnotations, "annotations", LIST_DEPTH)
        self._tracks: dict[int, Track] = {}  # of this image
        self._labels: NDArray[np.uint8] | None = None
        self._picture: NDArray[np.uint8] | None = None

    @property
    def facts(self) -> dict[str, str]:
        """Whether the optional outputs are there, as values for diagnostics."""
        optional = {"detections": self._vision, "annotations": self._foxglove}
        return {name: "published" if module else "not published" for name, module in optional.items()}

    def add(self, header: Any, image: Image, step: Step, is_steered: bool, are_several: bool) -> None:
        """Take one target's answer for this image, while its mask can be read.

        The mask of the target that is steered by is published at once. ``are_several``: there are other
        targets, so that each is drawn with its id.
        """
        target_id, track, tracker = step
        self._tracks[target_id] = track
        wants_mask = is_steered and self._mask.get_subscription_count() > 0
        wants_labels = self._mask_labels.get_subscription_count() > 0
        wants_overlay = self._overlay.get_subscription_count() > 0
        if not (wants_mask or wants_labels or wants_overlay):
            return
        mask = tracker.mask() if track.measured else None
        if wants_mask:
            # A mask is published for every box; it is empty where no target is visible.
            shown = _nothing(image) if mask is None else np.ascontiguousarray(mask)
            self._mask.publish(fill_image(ImageMessage(), shown, "mono8", header))
        if wants_labels:
            if self._labels is None:
                self._labels = _nothing(image)
            if mask is not None:
                # Where masks overlap, the first one counts: that of the target that is steered by.
                self._labels[(mask > 0) & (self._labels == 0)] = target_id + 1
        if wants_overlay:
            # Imported only when a viewer subscribes.
            from efftam_ros.runtime.image.overlay import draw_overlay

            if self._picture is None:
                picture = to_bgr(image)
                is_own = picture.flags.writeable and not np.may_share_memory(picture, image.rows)
                self._picture = picture if is_own else picture.copy()
            draw_overlay(self._picture, track, mask, target_id if are_several else None, is_steered)

    def finish(self, header: Any) -> None:
        """Publish what this image's targets have in common."""
        tracks, labels, picture = self._tracks, self._labels, self._picture
        self._tracks, self._labels, self._picture = {}, None, None
        if self._vision is not None and self._detections.get_subscription_count():
            self._detections.publish(detections_message(self._vision, tracks, header))
        if self._foxglove is not None and self._annotations.get_subscription_count():
            self._annotations.publish(_annotations(self._foxglove, tracks, header))
        if labels is not None:
            self._mask_labels.publish(fill_image(ImageMessage(), labels, "mono8", header))
        if picture is not None:
            self._overlay.publish(fill_image(ImageMessage(), picture, "bgr8", header))


def _nothing(image: Image) -> NDArray[np.uint8]:
    return np.zeros((image.height, image.width), np.uint8)


def _annotations(foxglove: Any, tracks: dict[int, Track], header: Any) -> Any:
    # Imported only when a viewer subscribes.
    from efftam_ros.interop.annotations import annotations_message

    whole = foxglove.ImageAnnotations()
    for target_id, track in sorted(tracks.items()):
        name = str(target_id) if len(tracks) > 1 else ""
        part = annotations_message(foxglove, track, header, name)
        whole.points = [*whole.points, *part.points]
        whole.texts = [*whole.texts, *part.texts]
    return whole
