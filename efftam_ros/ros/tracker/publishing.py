"""The node's publishers: builds the messages for one answer and publishes them, those for control first."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from rclpy.duration import Duration
from rclpy.node import Node
from rclpy.qos import QoSProfile
from sensor_msgs.msg import Image as ImageMessage

from efftam_ros.core.errors import InputError
from efftam_ros.core.targets import NEXT_FREE, Step
from efftam_ros.core.types import Image, Track, TrackState
from efftam_ros.images.encodings import to_bgr
from efftam_ros.images.message import MOST_FRAME_ID, fill_image
from efftam_ros.messages.camera_info import CameraModel, bearing_of
from efftam_ros.messages.fields import About, bbox_fields, detections_message, velocity_fields
from efftam_ros.messages.selection import Outcome
from efftam_ros.msg import BoundingBox, SelectionResult, TargetVelocity, Tracks
from efftam_ros.ros.common.nodes import latched, make_publisher, optional_messages, other_publishers, reliable
from efftam_ros.ros.tracker.frame_buffer import BufferedFrame, Command

if TYPE_CHECKING:
    from efftam_ros.core.bearing import Bearing
    from efftam_ros.core.geometry import Box

IDLE = TrackState.IDLE
# Depths of the output queues: of one message per image, of one per target, and of pictures, of which only the
# newest is worth delivering. Outputs are reliable, so subscribers of either reliability match.
IMAGE_DEPTH, TARGET_DEPTH, PICTURE_DEPTH = 10, 40, 1
# How long to wait for the last messages to be acknowledged before the publishers are destroyed, s.
ACKNOWLEDGED_S = 0.5


@dataclass(frozen=True)
class Answer:
    """A published answer: what it said, and when its image arrived and it was published on the steady
    clock."""

    about: About
    track: Track
    arrived_s: float
    published_s: float


class Outputs:
    """Publishers of a configured node, and the answer that was published last for each target.

    Thread-safe: the loop publishes answers, the executor's thread takes the last ones back. ``views`` are the
    loop's alone. ``camera``: the images' calibration, None if unknown; replaced as a whole.
    """

    def __init__(self, node: Node, with_detections: bool) -> None:
        self._node = node
        self._lock = threading.Lock()
        self._publishers: list[Any] = []
        self._answers: dict[int, Answer] = {}  # by target
        self._unsent: dict[int, Answer] = {}  # answers whose box waits for those of targets before it
        self._boxes: dict[int, BoundingBox] = {}  # the last message of each target
        self._ending = ""  # why all answers are withheld
        self.camera: CameraModel | None = None
        try:
            self._bbox = self._create(BoundingBox, "bbox", reliable(TARGET_DEPTH))
            self._velocity = self._create(TargetVelocity, "velocity", reliable(TARGET_DEPTH))
            self._tracks = self._create(Tracks, "tracks", reliable(IMAGE_DEPTH))
            self._proposals = self._create(BoundingBox, "proposal", reliable(IMAGE_DEPTH))
            self._results = self._create(SelectionResult, "selection_result", latched())
            self.views = Views(self._create, with_detections)
        except BaseException:
            self._destroy()
            raise

    def _create(self, message_type: Any, topic: str, qos: QoSProfile) -> Any:
        made = make_publisher(self._node, message_type, topic, qos)
        self._publishers.append(made)
        return made

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
    def answers(self) -> dict[int, Answer]:
        """The last published answer for each target; empty before the first of this activation."""
        with self._lock:
            return dict(self._answers)

    def begin(self) -> None:
        """Start an activation: nothing has been answered, and the camera is not known."""
        with self._lock:
            self._answers, self._unsent, self._ending, self.camera = {}, {}, "", None

    def publish(
        self, frame: BufferedFrame, step: Step, about: About, stale: str, box_waits: bool = False
    ) -> tuple[Answer, str]:
        """Publish box and velocity of one target for one image.

        ``stale``: why the input is, empty if it is not; the velocity then contains no numbers; ``box_waits``:
        until those of targets with smaller ids are published, or `finish`. The predicted box is for the
        image's stamp plus the time since the image arrived on the steady clock, so only the image's own clock
        is used. Delays before arrival (exposure, transport) are unknown and not included.

        Returns the answer, and why it has no bearing although the camera is known (empty when it has one).
        """
        target_id, track, tracker, _ = step
        with self._lock:
            about = about._replace(withheld=stale or self._ending or about.withheld)
            now_s = time.monotonic()
            answer = Answer(about, track, frame.arrived_s, now_s)
            # A target that was cleared has nothing to be taken back once another answer is there.
            if len(self._answers) > 1 or target_id not in self._answers:
                self._answers = {k: one for k, one in self._answers.items() if one.track.state is not IDLE}
            self._answers[target_id] = answer
            self._unsent[target_id] = answer
            if not box_waits:
                self._send_boxes(target_id)
            moving = replace(track, motion=None) if stale else track
            predicted = tracker.predict(frame.stamp_ns + round((now_s - frame.arrived_s) * 1e9))
            bearing, no_bearing = _bearing(moving, self.camera)
            # Stays NaN where the camera model has no inverse at the predicted position.
            later = None if bearing is None else _bearing(replace(moving, motion=predicted), self.camera)[0]
            self._velocity.publish(
                TargetVelocity(**velocity_fields(moving, about, predicted, bearing, later))
            )
            return answer, no_bearing

    def finish(self, header: Any, steered: int | None, with_tracks: bool) -> None:
        """All targets of this image are answered: publish the boxes that still wait, and ``with_tracks`` the
        list of all. ``steered``: the target to steer by."""
        with self._lock:
            self._send_boxes(NEXT_FREE)
            if with_tracks and self._tracks.get_subscription_count():
                ids = [key for key, one in self._answers.items() if one.track.state is not IDLE]
                shown = [self._boxes[key] for key in sorted(ids)]
                named = (NEXT_FREE if shown else 0) if steered is None else steered
                self._tracks.publish(Tracks(header=header, steered=named, targets=shown))

    def _send_boxes(self, last_id: int) -> None:
        for target_id in sorted(self._unsent):
            if target_id <= last_id:
                answer = self._unsent.pop(target_id)
                withheld = self._ending or answer.about.withheld
                self._send_box(answer.track, answer.about._replace(withheld=withheld))

    def _send_box(self, track: Track, about: About) -> None:
        box = self._boxes[about.target_id] = BoundingBox(**bbox_fields(track, about))
        self._bbox.publish(box)

    def steer(self, target_id: int) -> None:
        """Answers of this target are those to steer by from now on, also when they are taken back."""
        with self._lock:
            self._answers = {
                key: replace(one, about=one.about._replace(steered=key == target_id))
                for key, one in self._answers.items()
            }

    def take_back(self, reason: str, answer: Answer, told: Track | None = None) -> bool:
        """Invalidate a target's last answer: publish it again under its own stamp, without numbers.

        ``told``: what the target's state and age are by now. Does nothing, and returns False, when a newer
        one was published since.
        """
        with self._lock:
            is_latest = answer is self._answers.get(answer.about.target_id)
            if is_latest:
                self._publish_not_valid(answer, reason, told)
            return is_latest

    def clear(self, target_id: int, reason: str) -> Track | None:
        """Publish and return an IDLE answer at once, because there may be no further image to answer; None
        when nothing was answered yet."""
        with self._lock:
            answer = self._answers.get(target_id)
            if answer is None:
                return None
            last = answer.track
            track = Track(last.stamp_ns, IDLE, image_size=last.image_size, reason=reason)
            self._answers[target_id] = answer = replace(
                answer, track=track, about=answer.about._replace(selection=0)
            )
            self._publish_not_valid(answer, reason)
            return track

    def end(self, reason: str) -> None:
        """Invalidate the last answers and, until `begin`, every one that follows."""
        with self._lock:
            self._ending = reason
            for _, answer in sorted(self._answers.items()):
                self._publish_not_valid(answer, reason)

    def _publish_not_valid(self, answer: Answer, reason: str, told: Track | None = None) -> None:
        if not self._publishers:
            return
        nothing = replace(told or answer.track, box=None, motion=None, measured=False)
        about = answer.about._replace(withheld=reason)
        self._velocity.publish(TargetVelocity(**velocity_fields(nothing, about)))
        self._unsent.pop(about.target_id, None)
        self._send_box(nothing, about)

    def propose(
        self, header: Any, target_id: int, box: Box | None, reason: str, size: tuple[int, int] = (0, 0)
    ) -> None:
        """Publish the box that a prompt on the image of this header and size, px, gives; without one, why."""
        track = Track(0, IDLE, box, measured=box is not None, image_size=size)
        fields = bbox_fields(track, About(header, target_id=target_id, steered=False))
        with self._lock:
            if self._publishers:
                self._proposals.publish(BoundingBox(**fields | {"reason": reason}))

    def publish_result(self, command: Command, outcome: Outcome, message: str = "") -> None:
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


class Views:
    """Publishers of what is only computed while it is subscribed to. The loop's alone.

    ``create``: makes a publisher of (message type, topic, QoS).
    """

    def __init__(self, create: Callable[[Any, str, QoSProfile], Any], with_detections: bool) -> None:
        self._mask = create(ImageMessage, "mask", reliable(PICTURE_DEPTH))
        self._mask_labels = create(ImageMessage, "mask_labels", reliable(PICTURE_DEPTH))
        self._overlay = create(ImageMessage, "overlay", reliable(PICTURE_DEPTH))
        self._vision = optional_messages("vision_msgs") if with_detections else None
        if self._vision is not None:
            self._detections = create(self._vision.Detection2DArray, "detections", reliable(IMAGE_DEPTH))
        self._tracks: dict[int, Track] = {}  # of this image
        self._labels: NDArray[np.uint8] | None = None
        self._picture: NDArray[np.uint8] | None = None

    @property
    def facts(self) -> dict[str, str]:
        """Whether the optional output is there, as a value for diagnostics."""
        return {"detections": "not published" if self._vision is None else "published"}

    def add(self, header: Any, image: Image, step: Step, is_steered: bool, are_several: bool) -> None:
        """Take one target's answer for this image, while its mask can be read.

        The mask of the target that is steered by is published at once. ``are_several``: there are other
        targets, so that each is drawn with its id.
        """
        target_id, track, tracker, _ = step
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
            from efftam_ros.images.overlay import draw_overlay

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
        if labels is not None:
            self._mask_labels.publish(fill_image(ImageMessage(), labels, "mono8", header))
        if picture is not None:
            self._overlay.publish(fill_image(ImageMessage(), picture, "bgr8", header))


def _nothing(image: Image) -> NDArray[np.uint8]:
    return np.zeros((image.height, image.width), np.uint8)
