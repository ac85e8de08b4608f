"""The node's publishers: builds the messages for one answer and publishes them, those for control first."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
from rclpy.duration import Duration
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rclpy.qos_overriding_options import QoSOverridingOptions
from sensor_msgs.msg import Image as ImageMessage

from efftam_ros.core.errors import InputError
from efftam_ros.core.tracker import Tracker
from efftam_ros.core.types import Image, Track
from efftam_ros.interop.messages import (
    MOST_FRAME_ID,
    CameraModel,
    Outcome,
    bbox_fields,
    bearing_of,
    detections_message,
    fill_image,
    velocity_fields,
)
from efftam_ros.msg import BoundingBox, SelectionResult, TargetVelocity
from efftam_ros.ros.common.lifecycle import other_publishers
from efftam_ros.ros.tracker.frame_buffer import BufferedFrame, Command
from efftam_ros.runtime.image.encodings import to_bgr

if TYPE_CHECKING:
    from efftam_ros.core.bearing import Bearing

# Depths of the output queues. Outputs are reliable, so subscribers of either reliability match; only the
# newest image is worth delivering.
RESULT_DEPTH, PICTURE_DEPTH = 10, 1
# How long to wait for the last messages to be acknowledged before the publishers are destroyed, s.
ACKNOWLEDGED_S = 0.5


def optional_messages(package: str) -> Any:
    """Return the module of a package's messages, or None if the package is not installed."""
    try:
        return import_module(f"{package}.msg")
    except ModuleNotFoundError:
        return None


class Outputs:
    """Publishers of a configured node. `publish` and `publish_not_valid` may be called from different
    threads."""

    def __init__(self, node: Node, with_detections: bool, with_annotations: bool) -> None:
        self._node = node
        self._lock = threading.Lock()
        self._publishers: list[Any] = []
        try:
            self._open(with_detections, with_annotations)
        except BaseException:
            self._destroy()
            raise

    def _open(self, with_detections: bool, with_annotations: bool) -> None:
        self._bbox = self._create(BoundingBox, "bbox", RESULT_DEPTH)
        self._velocity = self._create(TargetVelocity, "velocity", RESULT_DEPTH)
        self._results = self._create(SelectionResult, "selection_result", 1, DurabilityPolicy.TRANSIENT_LOCAL)
        self._mask = self._create(ImageMessage, "mask", PICTURE_DEPTH)
        self._overlay = self._create(ImageMessage, "overlay", PICTURE_DEPTH)
        self._vision = optional_messages("vision_msgs") if with_detections else None
        if self._vision is not None:
            self._detections = self._create(self._vision.Detection2DArray, "detections", RESULT_DEPTH)
        self._foxglove = optional_messages("foxglove_msgs") if with_annotations else None
        if self._foxglove is not None:
            self._annotations = self._create(self._foxglove.ImageAnnotations, "annotations", RESULT_DEPTH)

    def _create(
        self,
        message_type: Any,
        topic: str,
        depth: int,
        durability: DurabilityPolicy = DurabilityPolicy.VOLATILE,
    ) -> Any:
        # A new profile each time: rclpy writes overrides into the object it is given.
        qos = QoSProfile(depth=depth, reliability=ReliabilityPolicy.RELIABLE, durability=durability)
        publisher = self._node.create_publisher(
            message_type, topic, qos, qos_overriding_options=QoSOverridingOptions.with_default_policies()
        )
        self._publishers.append(publisher)
        return publisher

    @property
    def has_detections(self) -> bool:
        return self._vision is not None

    @property
    def has_annotations(self) -> bool:
        return self._foxglove is not None

    @property
    def others(self) -> str:
        """Other publishers on this node's output topics, as a message; empty when there are none."""
        return other_publishers(
            self._node,
            ("bbox", "velocity"),
            "subscribers receive messages of all of them; give each tracker its own namespace",
        )

    def close(self) -> None:
        """Wait until the last messages are acknowledged, then destroy the publishers."""
        with self._lock:
            for publisher in (self._velocity, self._bbox, self._results) if self._publishers else ():
                publisher.wait_for_all_acked(Duration(seconds=ACKNOWLEDGED_S))
            self._destroy()

    def _destroy(self) -> None:
        for publisher in self._publishers:
            self._node.destroy_publisher(publisher)
        self._publishers.clear()

    def publish(
        self,
        arrival: BufferedFrame,
        track: Track,
        tracker: Tracker,
        camera: CameraModel | None,
        selection: int,
        withheld: str,
        stale: str,
    ) -> tuple[float, str]:
        """Publish box and velocity for one image.

        The predicted box is for the image's stamp plus the time since the image arrived on the steady clock,
        so only the image's own clock is used. Delays before arrival (exposure, transport) are unknown and not
        included.

        Args:
            arrival: The image as received.
            track: The tracker's answer.
            tracker: For predictions.
            camera: Calibration, None if unknown.
            selection: Number of the selection that is being answered.
            withheld: Why control must not use the answer; empty if it may.
            stale: Like ``withheld``, for stale input; the velocity then contains no numbers either.

        Returns:
            The seconds from arrival to the published box, and why there is no bearing although the camera is
                known (empty when there is one).
        """
        moving = replace(track, motion=None) if stale else track
        bearing, no_bearing = _bearing(moving, camera)
        with self._lock:
            fields = bbox_fields(track, arrival.header, selection, stale or withheld)
            self._bbox.publish(BoundingBox(**fields))
            latency_s = time.monotonic() - arrival.arrived_s
            predicted = tracker.predict(arrival.stamp_ns + round(latency_s * 1e9))
            # Stays NaN where the camera model has no inverse at the predicted position.
            later, _ = (None, "") if bearing is None else _bearing(replace(moving, motion=predicted), camera)
            fields = velocity_fields(
                moving, arrival.header, selection, predicted, bearing, later, stale or withheld
            )
            self._velocity.publish(TargetVelocity(**fields))
        return latency_s, no_bearing

    def publish_views(self, arrival: BufferedFrame, image: Image, track: Track, tracker: Tracker) -> None:
        """Publish the outputs for other tools and viewers: detections, annotations, mask and overlay, each
        only while it is subscribed to."""
        if self._vision is not None and self._detections.get_subscription_count():
            self._detections.publish(detections_message(self._vision, track, arrival.header))
        if self._foxglove is not None and self._annotations.get_subscription_count():
            # Imported only when a viewer subscribes.
            from efftam_ros.interop.annotations import annotations_message

            self._annotations.publish(annotations_message(self._foxglove, track, arrival.header))
        self._publish_pictures(arrival, image, track, tracker)

    def _publish_pictures(self, arrival: BufferedFrame, image: Image, track: Track, tracker: Tracker) -> None:
        wants_mask = self._mask.get_subscription_count() > 0
        wants_overlay = self._overlay.get_subscription_count() > 0
        if not (wants_mask or wants_overlay):
            return
        mask = tracker.mask() if track.measured else None
        if wants_mask:
            # A mask is published for every box; it is empty where no target is visible.
            shown = np.zeros((image.height, image.width), np.uint8) if mask is None else mask
            pixels = np.ascontiguousarray(shown)
            self._mask.publish(fill_image(ImageMessage(), pixels, "mono8", arrival.header))
        if wants_overlay:
            # See `publish_views`.
            from efftam_ros.runtime.image.overlay import draw_overlay

            picture = to_bgr(image)
            if not picture.flags.writeable or np.may_share_memory(picture, image.rows):
                picture = picture.copy()
            draw_overlay(picture, track, mask)
            self._overlay.publish(fill_image(ImageMessage(), picture, "bgr8", arrival.header))

    def publish_not_valid(self, header: Any, track: Track, selection: int, reason: str) -> None:
        """Invalidate the last answer: publish it again under its own stamp, without numbers."""
        nothing = replace(track, box=None, motion=None, measured=False)
        with self._lock:
            if self._publishers:
                fields = velocity_fields(nothing, header, selection, withheld=reason)
                self._velocity.publish(TargetVelocity(**fields))
                self._bbox.publish(BoundingBox(**bbox_fields(nothing, header, selection, reason)))

    def publish_result(self, command: Command, outcome: Outcome, message: str = "") -> None:
        """Publish the outcome of a command."""
        result = SelectionResult(target_id=command.target_id, outcome=int(outcome), message=message)
        if command.header is not None:
            result.header.stamp = command.header.stamp
            result.header.frame_id = command.header.frame_id[:MOST_FRAME_ID]
        if outcome is Outcome.ACCEPTED:
            result.selection = command.number
        with self._lock:
            if self._publishers:
                self._results.publish(result)


def _bearing(track: Track, camera: CameraModel | None) -> tuple[Bearing | None, str]:
    try:
        return bearing_of(track.motion, track.image_size, camera), ""
    except InputError as refusal:
        return None, str(refusal)
