"""Plays frames into a running tracker node and records its answers, one per frame."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from diagnostic_msgs.msg import DiagnosticArray
from numpy.typing import NDArray
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, HistoryPolicy, QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import Image as ImageMessage

from efftam_ros.core.geometry import Box
from efftam_ros.core.types import Motion, Track, TrackState
from efftam_ros.msg import BoundingBox, TargetSelection, TargetVelocity
from efftam_ros.ros.messages import fill_image
from efftam_ros.srv import SelectTarget

NS = 1_000_000_000
_QOS = QoSProfile(
    history=HistoryPolicy.KEEP_LAST,
    depth=10,
    reliability=ReliabilityPolicy.RELIABLE,
    durability=DurabilityPolicy.VOLATILE,
)


@dataclass
class Answer:
    """What the node said about one frame. ``mask``: uint8 [H, W] or None; ``delay_s``: image published to
    box received."""

    track: Track
    mask: NDArray[np.uint8] | None
    delay_s: float


class Player:
    """Publishes on `image`, selects through the node's service, collects `bbox`, `velocity` and `mask`.

    Frames go out at their own pace, but the next one waits until the node has answered the last, so that a
    slow machine shows every frame instead of skipping. Raises TimeoutError naming what did not come.
    """

    def __init__(self, node: Node, executor: SingleThreadedExecutor, tracker: str = "efftam_tracker") -> None:
        self._node, self._executor = node, executor
        self._images = node.create_publisher(ImageMessage, "image", _QOS)
        self._select = node.create_client(SelectTarget, f"{tracker}/select_target")
        self._boxes: dict[int, tuple[BoundingBox, float]] = {}
        self._velocities: dict[int, TargetVelocity] = {}
        self._masks: dict[int, NDArray[np.uint8]] = {}
        self.diagnostics: dict[str, str] = {}
        node.create_subscription(BoundingBox, "bbox", self._on_box, _QOS)
        node.create_subscription(TargetVelocity, "velocity", self._on_velocity, _QOS)
        node.create_subscription(ImageMessage, "mask", self._on_mask, _QOS)
        node.create_subscription(DiagnosticArray, "/diagnostics", self._on_diagnostics, _QOS)

    def _on_box(self, message: BoundingBox) -> None:
        self._boxes[_stamp_ns(message)] = message, time.monotonic()

    def _on_velocity(self, message: TargetVelocity) -> None:
        if message.valid or _stamp_ns(message) not in self._velocities:
            self._velocities[_stamp_ns(message)] = message

    def _on_mask(self, message: ImageMessage) -> None:
        rows = np.frombuffer(message.data, np.uint8).reshape(message.height, message.step)
        self._masks[_stamp_ns(message)] = rows[:, : message.width]

    def _on_diagnostics(self, message: DiagnosticArray) -> None:
        for status in message.status:
            self.diagnostics.update({item.key: item.value for item in status.values})

    def _wait(self, done, what: str, seconds: float) -> None:  # type: ignore[no-untyped-def]
        end = time.monotonic() + seconds
        while not done():
            if time.monotonic() > end:
                raise TimeoutError(f"{what} within {seconds:g} s; is the tracker node running and active?")
            self._executor.spin_once(timeout_sec=0.02)

    def play(
        self, frames: Iterable[NDArray[np.uint8]], fps: float, box: Box, start_ns: int = NS
    ) -> list[Answer]:
        """Play bgr8 [H, W, 3] frames; ``box`` is the selection on the first one. Stamps count from
        ``start_ns``."""
        self._wait(lambda: self._images.get_subscription_count() > 0, "no subscriber on the image topic", 30)
        self._wait(self._select.service_is_ready, "no service select_target", 30)
        answers, begin = [], time.monotonic()
        for i, frame in enumerate(frames):
            stamp = start_ns + round(i * NS / fps)
            self._pause_until(begin + i / fps)
            sent = time.monotonic()
            message = fill_image(ImageMessage(), frame, "bgr8")
            message.header.frame_id = "camera"
            message.header.stamp.sec, message.header.stamp.nanosec = divmod(stamp, NS)
            self._images.publish(message)
            if i == 0:
                self._wait(lambda s=stamp: s in self._boxes, "no bbox for the first image", 30)
                self._choose(message, box)
                self._boxes.pop(stamp)
                self._velocities.pop(stamp, None)
            self._wait(
                lambda s=stamp: s in self._boxes and s in self._velocities, f"no bbox for image {i}", 30
            )
            self._wait_for_mask(stamp)
            answers.append(self._answer(stamp, sent))
        return answers

    def _choose(self, image: ImageMessage, box: Box) -> None:
        selection = TargetSelection(header=image.header, kind=TargetSelection.BOX)
        selection.x, selection.y, selection.width, selection.height = box.xywh()
        # The node answers for the selected image once more, now with the target in it.
        known = self._boxes.pop(_stamp_ns(image))
        call = self._select.call_async(SelectTarget.Request(selection=selection))
        self._wait(call.done, "no answer from select_target", 30)
        if not call.result().success:
            raise RuntimeError(f"the selection was refused: {call.result().message}")
        self._wait(lambda: _stamp_ns(image) in self._boxes, "no bbox for the selected image", 30)
        del known

    def _pause_until(self, moment: float) -> None:
        while (left := moment - time.monotonic()) > 0:
            self._executor.spin_once(timeout_sec=left)

    def _wait_for_mask(self, stamp: int) -> None:
        box, _ = self._boxes[stamp]
        if box.measured:
            self._wait(lambda: stamp in self._masks, "no mask for a measured box", 10)

    def _answer(self, stamp: int, sent: float) -> Answer:
        box, received = self._boxes.pop(stamp)
        track = track_from_messages(box, self._velocities.pop(stamp))
        return Answer(track, self._masks.pop(stamp, None) if box.measured else None, received - sent)


def _stamp_ns(message) -> int:  # type: ignore[no-untyped-def]
    return int(message.header.stamp.sec) * NS + int(message.header.stamp.nanosec)


def track_from_messages(box: BoundingBox, velocity: TargetVelocity) -> Track:
    """The Track that the node published, as far as messages carry it."""
    motion = None
    if velocity.valid:
        predicted = Box(
            velocity.predicted_x, velocity.predicted_y, velocity.predicted_width, velocity.predicted_height
        )
        at_image = Box.from_centre(velocity.center_x, velocity.center_y, predicted.width, predicted.height)
        covariance = np.array(velocity.covariance).reshape(4, 4)
        motion = Motion(_stamp_ns(velocity), at_image, (velocity.velocity_x, velocity.velocity_y), covariance)
    return Track(
        stamp_ns=_stamp_ns(box),
        state=TrackState(box.state),
        box=Box(box.x, box.y, box.width, box.height) if box.valid else None,
        measured=box.measured,
        presence=box.presence,
        quality=box.quality,
        age_s=box.age,
        motion=motion,
        image_size=(box.image_width, box.image_height),
        reason=box.reason,
    )
