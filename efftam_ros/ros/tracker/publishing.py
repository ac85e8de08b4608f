"""The node's publishers: builds the messages for one answer and publishes them, those for control first."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, replace
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
from efftam_ros.core.types import Image, Track, TrackState
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
from efftam_ros.ros.common.reporting import other_publishers
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


@dataclass(frozen=True)
class Answer:
    """A published answer: what it said, and when its image arrived and it was published on the steady clock.

    ``header``: of the image; ``selection``: number of the selection it answers.
    """

    header: Any
    track: Track
    selection: int
    arrived_s: float
    published_s: float


class Outputs:
    """Publishers of a configured node, and the answer that was published last.

    Thread-safe: the loop publishes answers, the executor's thread takes the last one back. `publish_views` is
    the loop's alone. ``camera``: the images' calibration, None if unknown; replaced as a whole.
    """

    def __init__(self, node: Node, with_detections: bool, with_annotations: bool) -> None:
        self._node = node
        self._lock = threading.Lock()
        self._publishers: list[Any] = []
        self._latest: Answer | None = None
        self._ending = ""  # why all answers are withheld
        self.camera: CameraModel | None = None
        try:
            self._open(with_detections, with_annotations)
        except BaseException:
            self._destroy()
            raise

    def _open(self, with_detections: bool, with_annotations: bool) -> None:
        self._bbox = self._create(BoundingBox, "bbox", RESULT_DEPTH)
        self._velocity = self._create(TargetVelocity, "velocity", RESULT_DEPTH)
        lasting = DurabilityPolicy.TRANSIENT_LOCAL
        self._results = self._create(SelectionResult, "selection_result", 1, durability=lasting)
        self._mask = self._create(ImageMessage, "mask", PICTURE_DEPTH)
        self._overlay = self._create(ImageMessage, "overlay", PICTURE_DEPTH)
        self._vision = optional_messages("vision_msgs") if with_detections else None
        if self._vision is not None:
            self._detections = self._create(self._vision.Detection2DArray, "detections", RESULT_DEPTH)
        self._foxglove = optional_messages("foxglove_msgs") if with_annotations else None
        if self._foxglove is not None:
            self._annotations = self._create(self._foxglove.ImageAnnotations, "annotations", RESULT_DEPTH)

    def _create(self, message_type: Any, topic: str, depth: int, **qos: Any) -> Any:
        # A new profile each time: rclpy writes overrides into the object it is given.
        profile = QoSProfile(depth=depth, reliability=ReliabilityPolicy.RELIABLE, **qos)
        options = QoSOverridingOptions.with_default_policies()
        made = self._node.create_publisher(message_type, topic, profile, qos_overriding_options=options)
        self._publishers.append(made)
        return made

    @property
    def facts(self) -> dict[str, str]:
        """Whether the optional outputs are there, as values for diagnostics."""
        optional = {"detections": self._vision, "annotations": self._foxglove}
        return {name: "published" if module else "not published" for name, module in optional.items()}

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

    @property
    def latest(self) -> Answer | None:
        """The last published answer; None before the first of this activation."""
        with self._lock:
            return self._latest

    def begin(self) -> None:
        """Start an activation: nothing has been answered, and the camera is not known."""
        with self._lock:
            self._latest, self._ending, self.camera = None, "", None

    def publish(
        self, frame: BufferedFrame, track: Track, tracker: Tracker, selection: int, withheld: str, stale: str
    ) -> tuple[Answer, str]:
        """Publish box and velocity for one image, as the answer to the selection of this number.

        ``withheld``: why control must not use the answer, empty if it may; ``stale``: the same for stale
        input; the velocity then contains no numbers either. The predicted box is for the image's stamp plus
        the time since the image arrived on the steady clock, so only the image's own clock is used. Delays
        before arrival (exposure, transport) are unknown and not included.

        Returns the answer, and why it has no bearing although the camera is known (empty when it has one).
        """
        with self._lock:
            withheld = stale or self._ending or withheld
            self._bbox.publish(BoundingBox(**bbox_fields(track, frame.header, selection, withheld)))
            now_s = time.monotonic()
            answer = self._latest = Answer(frame.header, track, selection, frame.arrived_s, now_s)
            moving = replace(track, motion=None) if stale else track
            predicted = tracker.predict(frame.stamp_ns + round((now_s - frame.arrived_s) * 1e9))
            bearing, no_bearing = _bearing(moving, self.camera)
            # Stays NaN where the camera model has no inverse at the predicted position.
            later = None if bearing is None else _bearing(replace(moving, motion=predicted), self.camera)[0]
            fields = velocity_fields(moving, frame.header, selection, predicted, bearing, later, withheld)
            self._velocity.publish(TargetVelocity(**fields))
            return answer, no_bearing

    def take_back(self, reason: str, answer: Answer | None = None, told: Track | None = None) -> bool:
        """Invalidate the last answer: publish it again under its own stamp, without numbers.

        ``told``: what the target's state and age are by now. Does nothing, and returns False, when ``answer``
        is given and a newer one was published since.
        """
        with self._lock:
            is_latest = answer is None or answer is self._latest
            if is_latest:
                self._publish_not_valid(reason, told)
            return is_latest

    def clear(self, reason: str) -> Track | None:
        """Publish and return an IDLE answer at once, because there may be no further image to answer; None
        when nothing was answered yet."""
        with self._lock:
            if self._latest is None:
                return None
            last = self._latest.track
            track = Track(last.stamp_ns, TrackState.IDLE, image_size=last.image_size, reason=reason)
            self._latest = replace(self._latest, track=track, selection=0)
            self._publish_not_valid(reason)
            return track

    def end(self, reason: str) -> None:
        """Invalidate the last answer and, until `begin`, every one that follows."""
        with self._lock:
            self._ending = reason
            self._publish_not_valid(reason)

    def _publish_not_valid(self, reason: str, told: Track | None = None) -> None:
        if self._latest is None or not self._publishers:
            return
        header, selection = self._latest.header, self._latest.selection
        nothing = replace(told or self._latest.track, box=None, motion=None, measured=False)
        self._velocity.publish(TargetVelocity(**velocity_fields(nothing, header, selection, withheld=reason)))
        self._bbox.publish(BoundingBox(**bbox_fields(nothing, header, selection, reason)))

    def publish_views(self, header: Any, image: Image, track: Track, tracker: Tracker) -> None:
        """Publish the outputs for other tools and viewers: detections, annotations, mask and overlay, each
        only while it is subscribed to."""
        if self._vision is not None and self._detections.get_subscription_count():
            self._detections.publish(detections_message(self._vision, track, header))
        if self._foxglove is not None and self._annotations.get_subscription_count():
            # Imported only when a viewer subscribes.
            from efftam_ros.interop.annotations import annotations_message

            self._annotations.publish(annotations_message(self._foxglove, track, header))
        self._publish_pictures(header, image, track, tracker)

    def _publish_pictures(self, header: Any, image: Image, track: Track, tracker: Tracker) -> None:
        wants_mask = self._mask.get_subscription_count() > 0
        wants_overlay = self._overlay.get_subscription_count() > 0
        if not (wants_mask or wants_overlay):
            return
        mask = tracker.mask() if track.measured else None
        if wants_mask:
            # A mask is published for every box; it is empty where no target is visible.
            shown = np.zeros((image.height, image.width), np.uint8) if mask is None else mask
            pixels = np.ascontiguousarray(shown)
            self._mask.publish(fill_image(ImageMessage(), pixels, "mono8", header))
        if wants_overlay:
            # See `publish_views`.
            from efftam_ros.runtime.image.overlay import draw_overlay

            picture = to_bgr(image)
            if not picture.flags.writeable or np.may_share_memory(picture, image.rows):
                picture = picture.copy()
            draw_overlay(picture, track, mask)
            self._overlay.publish(fill_image(ImageMessage(), picture, "bgr8", header))

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
