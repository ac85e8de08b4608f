"""Plays frames into a running tracker node and records its answers, one per frame."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import rclpy
from numpy.typing import NDArray
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, HistoryPolicy, QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import Image as ImageMessage

from efftam_ros.core.geometry import Box
from efftam_ros.core.types import Motion, Track, TrackState
from efftam_ros.interop.messages import fill_image, stamp_ns
from efftam_ros.msg import BoundingBox, TargetSelection, TargetVelocity
from efftam_ros.ros.common.process import start_ros
from efftam_ros.ros.playback.discovery import wait_until_heard
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
    """What the node said about one frame. ``mask``: uint8 [H, W] or None; ``delay_s``: from publishing the
    image to receiving its box."""

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
        self._selection = 0  # which selection's answers are waited for
        self._boxes: dict[int, tuple[BoundingBox, float]] = {}
        self._velocities: dict[int, TargetVelocity] = {}
        self._masks: dict[int, NDArray[np.uint8]] = {}
        node.create_subscription(BoundingBox, "bbox", self._on_box, _QOS)
        node.create_subscription(TargetVelocity, "velocity", self._on_velocity, _QOS)
        node.create_subscription(ImageMessage, "mask", self._on_mask, _QOS)

    def _on_box(self, message: BoundingBox) -> None:
        if self._is_first(message, self._boxes):
            self._boxes[_stamp_ns(message)] = message, time.monotonic()

    def _on_velocity(self, message: TargetVelocity) -> None:
        if self._is_first(message, self._velocities):
            self._velocities[_stamp_ns(message)] = message

    def _is_first(self, message: Any, known: dict[int, Any]) -> bool:
        """The answer to an image, and not what takes it back while the next one is awaited."""
        return message.selection >= self._selection and _stamp_ns(message) not in known

    def _on_mask(self, message: ImageMessage) -> None:
        rows = np.frombuffer(message.data, np.uint8).reshape(message.height, message.step)
        self._masks[_stamp_ns(message)] = rows[:, : message.width]

    def _wait(self, done: Callable[[], bool], what: str, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not done():
            if time.monotonic() > end:
                raise TimeoutError(f"{what} within {seconds:g} s; is the tracker node running and active?")
            self._executor.spin_once(timeout_sec=0.02)

    def play(self, frames: Iterable[NDArray[np.uint8]], fps: float, box: Box) -> Iterator[Answer]:
        """Play bgr8 [H, W, 3] frames, selecting ``box`` on the first; yields the answers, one per frame."""
        self._wait(lambda: self._images.get_subscription_count() > 0, "no subscriber on the image topic", 30)
        self._wait(self._select.service_is_ready, "no service select_target", 30)
        wait_until_heard(self._node, self._executor, ("bbox", "velocity", "mask"), 30)
        begin = time.monotonic()
        for i, frame in enumerate(frames):
            stamp = NS + round(i * NS / fps)
            self._pause_until(begin + i / fps)
            sent = time.monotonic()
            message = fill_image(ImageMessage(), frame, "bgr8")
            message.header.frame_id = "camera"
            message.header.stamp.sec, message.header.stamp.nanosec = divmod(stamp, NS)
            self._images.publish(message)
            if i == 0:
                self._wait_for_answer(stamp, i)
                self._choose(message, box)
            self._wait_for_answer(stamp, i)
            yield self._answer(stamp, sent)

    def _wait_for_answer(self, stamp: int, index: int) -> None:
        answered: list[dict[int, Any]] = [self._boxes, self._velocities]
        self._wait(lambda: all(stamp in known for known in answered), f"no answer for image {index}", 30)
        if self._boxes[stamp][0].measured:
            self._wait(lambda: stamp in self._masks, f"no mask for image {index}", 10)

    def _choose(self, image: ImageMessage, box: Box) -> None:
        selection = TargetSelection(header=image.header, kind=TargetSelection.BOX)
        selection.x, selection.y, selection.width, selection.height = box.xywh()
        # The node answers for the selected image once more, now with the target in it and under the number of
        # the next selection.
        self._selection = 1
        for known in (self._boxes, self._velocities, self._masks):
            known.pop(_stamp_ns(image), None)
        call = self._select.call_async(SelectTarget.Request(selection=selection))
        self._wait(call.done, "no answer from select_target", 30)
        if not call.result().success:
            raise RuntimeError(f"the selection was refused: {call.result().message}")

    def _pause_until(self, moment: float) -> None:
        while (left := moment - time.monotonic()) > 0:
            self._executor.spin_once(timeout_sec=left)

    def _answer(self, stamp: int, sent: float) -> Answer:
        box, received = self._boxes.pop(stamp)
        track = track_from_messages(box, self._velocities.pop(stamp))
        return Answer(track, self._masks.pop(stamp, None) if box.measured else None, received - sent)


def play(frames: Iterable[NDArray[np.uint8]], fps: float, box: Box) -> Iterator[Answer]:
    """Play the frames as `Player.play` does, from a node that lives as long."""
    start_ros()
    node = rclpy.create_node("efftam_demo")
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    try:
        yield from Player(node, executor).play(frames, fps, box)
    finally:
        executor.shutdown()
        node.destroy_node()
        rclpy.try_shutdown()


def _stamp_ns(message: Any) -> int:
    return stamp_ns(message.header.stamp)


def track_from_messages(box: BoundingBox, velocity: TargetVelocity) -> Track:
    """The Track that the node published, as far as messages carry it."""
    motion = None
    at_image = Box.from_centre(velocity.center_x, velocity.center_y, velocity.width, velocity.height)
    if at_image.is_finite:
        motion = Motion(
            _stamp_ns(velocity),
            at_image,
            (velocity.velocity_x, velocity.velocity_y),
            np.array(velocity.covariance).reshape(4, 4),
            (velocity.width_rate, velocity.height_rate),
        )
    seen = Box(box.x, box.y, box.width, box.height)
    return Track(
        stamp_ns=_stamp_ns(box),
        state=TrackState(box.state),
        box=seen if seen.is_finite else None,
        measured=box.measured,
        presence=box.presence,
        quality=box.quality,
        age_s=box.age,
        motion=motion,
        image_size=(box.image_width, box.image_height),
        reason=box.reason,
    )
