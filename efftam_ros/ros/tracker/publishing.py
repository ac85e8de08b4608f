"""The tracker's publishers: makes the messages of an answer and publishes them, those for control first."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from rclpy.node import Node
from rclpy.qos import QoSProfile
from sensor_msgs.msg import Image as ImageMessage

from efftam_ros.core.errors import InputError
from efftam_ros.core.reasons import NO_REASON, Reason, ReasonCode
from efftam_ros.core.targets import NEXT_FREE, Step
from efftam_ros.core.types import Image, Track
from efftam_ros.images.message import MAX_FRAME_ID, ReceivedImage, fill_image
from efftam_ros.images.pixels import to_bgr
from efftam_ros.messages.bearing import CameraModel, bearing_of
from efftam_ros.messages.fields import (
    About,
    Outcome,
    bbox_fields,
    detections_message,
    reason_fields,
    velocity_fields,
)
from efftam_ros.msg import BoundingBox, SelectionResult, TargetVelocity, Tracks
from efftam_ros.ros.common.nodes import (
    OtherPublishers,
    latched,
    make_publisher,
    optional_messages,
    reliable,
    wait_until_acknowledged,
)
from efftam_ros.ros.tracker.frame_buffer import Command
from efftam_ros.ros.tracker.table import IDLE, PublishedAnswer, TargetRow, TargetTable

if TYPE_CHECKING:
    from efftam_ros.core.geometry import Box
    from efftam_ros.messages.bearing import Bearing

# Depths of the publishers' queues: for topics with one message per image, for topics with one message per
# target and image, and for pictures, of which only the newest is worth delivering.
IMAGE_DEPTH, TARGET_DEPTH, PICTURE_DEPTH = 10, 40, 1
# Period in which a message with valid = false is repeated after the answers have stopped, s.
REPEAT_S = 0.5
# The most probable place of a lost target is published as a proposal if its log-odds are above this value.
EVEN_ODDS = 0.0
# Longest wait until the last messages are acknowledged, before the publishers are destroyed, s.
ACKNOWLEDGED_S = 0.5


class Outputs:
    """The publishers of a configured node.

    The loop's thread publishes answers. The executor's thread publishes that the last answers are not valid
    any more. Both use the lock of ``table``. Only the loop's thread uses ``views``. ``camera``: the images'
    calibration, None if unknown. It is always replaced by a new object, so no lock is needed.
    """

    def __init__(self, node: Node, with_detections: bool) -> None:
        self._node = node
        self.table = TargetTable()
        self._publishers: list[Any] = []
        self._ending = NO_REASON  # why no answer is valid any more, while the session ends; else empty
        self.camera: CameraModel | None = None
        self._others = OtherPublishers(
            node,
            ("bbox", "velocity"),
            "subscribers receive messages of all of them; give each tracker its own namespace",
        )
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
        """One line on other nodes that publish this node's output topics; empty when there are none."""
        return self._others.look(time.monotonic())

    def close(self) -> None:
        """Wait until the last messages are acknowledged, then destroy the publishers."""
        with self.table.lock:
            if self._publishers:
                wait_until_acknowledged((self._velocity, self._bbox, self._results), ACKNOWLEDGED_S)
            self._destroy()

    def _destroy(self) -> None:
        for publisher in self._publishers:
            self._node.destroy_publisher(publisher)
        self._publishers.clear()

    def begin(self, table: TargetTable) -> None:
        """Start an activation with a new table of targets. The camera is not known yet."""
        self.table, self._ending, self.camera = table, NO_REASON, None

    def publish(
        self, frame: ReceivedImage, step: Step, about: About, stale: Reason
    ) -> tuple[PublishedAnswer, str]:
        """Publish velocity and box of one target for one image, the velocity first: control waits for it.

        ``about``: header and target; its selection number is taken from the table. ``stale``: why the image
        is too old for steering, so that the velocity contains no numbers; empty if it is not.

        The predicted box is for the present time on the image's clock: the image's stamp plus the time since
        its arrival. Delays before the arrival (exposure, transport) are not known and not included.

        Returns the answer and a fault. The fault is the reason why the answer has no bearing; it is empty if
        the answer has a bearing, or if the camera's calibration is not known.
        """
        target_id, track, tracker, seconds = step
        with self.table.lock:
            known = self.table.rows.get(target_id)
            selection = 0 if known is None or track.state is IDLE else known.selection
            about = about._replace(selection=selection, withheld=stale or self._ending or about.withheld)
            now_s = time.monotonic()
            answer = PublishedAnswer(about, track, frame.arrived_s, now_s)
            row = self.table.keep(target_id, answer)
            row.seconds = seconds
            moving = replace(track, motion=None) if stale else track
            predicted = tracker.motion_at(frame.stamp_ns + round((now_s - frame.arrived_s) * 1e9))
            bearing, no_bearing = _bearing(moving, self.camera)
            # The predicted bearing is NaN if the camera model has no inverse at the predicted position.
            later = None if bearing is None else _bearing(replace(moving, motion=predicted), self.camera)[0]
            self._velocity.publish(
                TargetVelocity(**velocity_fields(moving, about, predicted, bearing, later))
            )
            self._send_box(row, track, about)
            return answer, no_bearing

    def publish_tracks(self, header: Any, steered: int | None) -> None:
        """Publish the list of all targets, after the answers to an image.

        ``header``: of that image. ``steered``: id of the steered target, None if no target is steered.
        """
        with self.table.lock:
            if self._tracks.get_subscription_count():
                rows = [self.table.rows[one] for one in sorted(self.table.rows)]
                shown = [row.box for row in rows if row.answer and row.answer.track.state is not IDLE]
                named = (NEXT_FREE if shown else 0) if steered is None else steered
                self._tracks.publish(Tracks(header=header, steered=named, targets=shown))

    def _send_box(self, row: TargetRow, track: Track, about: About) -> None:
        row.box = BoundingBox(**bbox_fields(track, about))
        self._bbox.publish(row.box)

    def take_back(
        self, answer: PublishedAnswer, reason: Reason, now_s: float, track: Track | None = None
    ) -> bool:
        """Publish a target's last answer again, under its own stamp, with valid = false and without numbers.

        Call this regularly. It publishes the first time, then every `REPEAT_S` unless the target is IDLE, and
        not at all after a newer answer. ``track``: the target's present state and age; None: those of the
        answer. Returns whether the answer was published.
        """
        with self.table.lock:
            row = self.table.rows.get(answer.about.target_id)
            if row is None or row.answer is not answer:
                return False
            before_s = row.taken_back_s
            if before_s is not None and (answer.track.state is IDLE or now_s - before_s < REPEAT_S):
                return False
            row.taken_back_s = now_s
            self._publish_not_valid(row, answer, reason, track)
            return True

    def clear(self, target_id: int, reason: Reason) -> Track | None:
        """Publish an IDLE answer for a target and return its track.

        It is published at once, because no further image may arrive. Returns None without publishing if the
        target never had an answer.
        """
        with self.table.lock:
            answer = self.table.clear(target_id, reason)
            if answer is None:
                return None
            self._publish_not_valid(self.table.rows[target_id], answer, reason)
            return answer.track

    def end(self, reason: Reason) -> None:
        """Publish the last answers again with valid = false. No later answer is valid, until `begin`."""
        with self.table.lock:
            self._ending = reason
            for target_id, answer in self.table.answers.items():
                self._publish_not_valid(self.table.rows[target_id], answer, reason)

    def _publish_not_valid(
        self, row: TargetRow, answer: PublishedAnswer, reason: Reason, track: Track | None = None
    ) -> None:
        if not self._publishers:
            return
        nothing = replace(track or answer.track, box=None, motion=None, measured=False)
        about = answer.about._replace(withheld=reason)
        self._velocity.publish(TargetVelocity(**velocity_fields(nothing, about)))
        self._send_box(row, nothing, about)

    def propose(
        self, header: Any, target_id: int, box: Box | None, reason: Reason, size: tuple[int, int] = (0, 0)
    ) -> None:
        """Publish a proposal: the box that the network gives for a prompt, or the reason why there is none.

        ``header``, ``size``: header and (width, height), px, of the image with the prompt.
        """
        track = Track(0, IDLE, box, measured=box is not None, image_size=size)
        fields = bbox_fields(track, About(header, target_id=target_id, steered=False))
        with self.table.lock:
            if self._publishers:
                self._proposals.publish(BoundingBox(**fields | reason_fields(reason)))

    def suggest(self, header: Any, target_id: int, track: Track) -> None:
        """Publish the most probable place of a lost target as a proposal, which a person may confirm.

        Nothing is published if no place is probable enough (`EVEN_ODDS`).
        """
        if track.hypotheses and track.hypotheses[0].score > EVEN_ODDS:
            suggested = replace(track, box=track.hypotheses[0].box, reason=ReasonCode.SUGGESTED.reason())
            fields = bbox_fields(suggested, About(header, target_id=target_id, steered=False))
            with self.table.lock:
                if self._publishers:
                    self._proposals.publish(BoundingBox(**fields))

    def publish_result(self, command: Command, outcome: Outcome, reason: Reason = NO_REASON) -> None:
        """Publish the outcome of a command on `selection_result`."""
        result = SelectionResult(
            target_id=command.target_id,
            outcome=int(outcome),
            message=str(reason),
            reason_code=int(reason.code),
        )
        if command.header is not None:
            result.header.stamp = command.header.stamp
            result.header.frame_id = command.header.frame_id[:MAX_FRAME_ID]
        if outcome is Outcome.ACCEPTED:
            result.selection = command.number
        with self.table.lock:
            if self._publishers:
                self._results.publish(result)


def _bearing(track: Track, camera: CameraModel | None) -> tuple[Bearing | None, str]:
    if camera is None:
        return None, ""
    try:
        return bearing_of(track.motion, track.image_size, camera), ""
    except InputError as refusal:
        return None, str(refusal)


class Views:
    """Publishers of masks, overlay and detections, which are computed only while they have subscribers.

    Only the loop's thread may use this object. ``create``: makes a publisher from message type, topic and
    QoS. ``with_detections``: publish detections too, if vision_msgs is installed.
    """

    def __init__(self, create: Callable[[Any, str, QoSProfile], Any], with_detections: bool) -> None:
        self._mask = create(ImageMessage, "mask", reliable(PICTURE_DEPTH))
        self._mask_labels = create(ImageMessage, "mask_labels", reliable(PICTURE_DEPTH))
        self._overlay = create(ImageMessage, "overlay", reliable(PICTURE_DEPTH))
        self._vision = optional_messages("vision_msgs") if with_detections else None
        if self._vision is not None:
            self._detections = create(self._vision.Detection2DArray, "detections", reliable(IMAGE_DEPTH))
        self._labels: NDArray[np.uint8] | None = None
        self._picture: NDArray[np.uint8] | None = None

    @property
    def facts(self) -> dict[str, str]:
        """Whether the optional topic `detections` is published, as a value for diagnostics."""
        return {"detections": "not published" if self._vision is None else "published"}

    def add(self, header: Any, image: Image, step: Step, is_steered: bool, are_several: bool) -> None:
        """Add one target's answer to the pictures of this image. Call it while the target's mask can be read.

        The mask of the steered target is published at once. ``are_several``: several targets exist, so each
        is drawn with its id.
        """
        target_id, track, tracker, _ = step
        wants_mask = is_steered and self._mask.get_subscription_count() > 0
        wants_labels = self._mask_labels.get_subscription_count() > 0
        wants_overlay = self._overlay.get_subscription_count() > 0
        if not (wants_mask or wants_labels or wants_overlay):
            return
        mask = tracker.mask() if track.measured else None
        if wants_mask:
            # A mask is published for every answer. It is empty if the target is not visible.
            shown = _nothing(image) if mask is None else np.ascontiguousarray(mask)
            self._mask.publish(fill_image(ImageMessage(), shown, "mono8", header))
        if wants_labels:
            if self._labels is None:
                self._labels = _nothing(image)
            if mask is not None:
                # Where masks overlap, the pixel belongs to the mask that was added first. The steered
                # target's mask is added before all others.
                self._labels[(mask > 0) & (self._labels == 0)] = target_id + 1
        if wants_overlay:
            # Imported only when a viewer subscribes to the overlay.
            from efftam_ros.images.overlay import draw_overlay

            if self._picture is None:
                picture = to_bgr(image)
                is_own = picture.flags.writeable and not np.may_share_memory(picture, image.rows)
                self._picture = picture if is_own else picture.copy()
            draw_overlay(self._picture, track, mask, target_id if are_several else None, is_steered)

    def publish_common(self, header: Any, tracks: Mapping[int, Track]) -> None:
        """Publish the messages that cover all targets of this image. ``tracks``: the answers by target id."""
        labels, picture = self._labels, self._picture
        self._labels = self._picture = None
        if self._vision is not None and self._detections.get_subscription_count():
            self._detections.publish(detections_message(self._vision, tracks, header))
        if labels is not None:
            self._mask_labels.publish(fill_image(ImageMessage(), labels, "mono8", header))
        if picture is not None:
            self._overlay.publish(fill_image(ImageMessage(), picture, "bgr8", header))


def _nothing(image: Image) -> NDArray[np.uint8]:
    return np.zeros((image.height, image.width), np.uint8)
