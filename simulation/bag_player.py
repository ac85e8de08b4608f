"""Publishes recorded messages and their clock to a running tracker, in real time or at the tracker's
speed."""

from __future__ import annotations

import math
import struct
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from builtin_interfaces.msg import Time
from efftam_ros.msg import BoundingBox, SelectionResult, TargetSelection, TargetVelocity
from rcl_interfaces.srv import GetParameters
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import CameraInfo, CompressedImage
from sensor_msgs.msg import Image as ImageMessage

from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box
from efftam_ros.images.message import stamp_like, stamp_ns
from efftam_ros.messages.reports import Selection
from efftam_ros.ros.common.conversions import selection_message
from efftam_ros.ros.common.nodes import UNKNOWN_NODE, reliable
from efftam_ros.ros.common.process import spin

IMAGE_CLASSES = {"sensor_msgs/msg/Image": ImageMessage, "sensor_msgs/msg/CompressedImage": CompressedImage}
ANSWERS = {"bbox": BoundingBox, "velocity": TargetVelocity, "mask": ImageMessage}
# Longest wait for publishers and subscribers to appear, s.
PATIENCE_S = 30.0
# Longest wait for the tracker's answer to an image or a selection, s.
ANSWER_PATIENCE_S = 10.0
# A service call without an answer is repeated after this time, s.
CALL_PATIENCE_S = 2.0
# Length of the start of a serialized message: its encoding and the stamp of its header.
HEADER_BYTES = 12


@dataclass(frozen=True)
class Recorded:
    """A message of a bag. ``role``: "image", "camera_info" or "select". ``recorded_ns``: when it was
    recorded. ``cdr``: the serialized message."""

    role: str
    recorded_ns: int
    cdr: bytes


class BagPlayer:
    """Publishes recorded messages on `image`, `camera_info`, `select` and `/clock`, and subscribes to `bbox`.

    ``rate``: speed of the playback, 1 is real time. With 0 the player waits after each image until the
    tracker has answered it, so that no image is left out on a slow computer. ``record(topic, time_ns, cdr)``
    is called with each answer on the topics ``recorded``. ``stop`` is called often; when it returns true, the
    playing ends.
    """

    def __init__(
        self,
        node: Node,
        executor: SingleThreadedExecutor,
        image_type: str,
        rate: float = 1.0,
        stop: Callable[[], bool] = lambda: False,
        record: Callable[[str, int, bytes], None] | None = None,
        recorded: Iterable[str] = ("bbox", "velocity"),
    ) -> None:
        self._node, self._executor, self._rate, self._stop = node, executor, rate, stop
        self._image_type, self._record = image_type, record
        self._publishers = {
            "image": node.create_publisher(IMAGE_CLASSES[image_type], "image", reliable()),
            "camera_info": node.create_publisher(CameraInfo, "camera_info", reliable()),
            "select": node.create_publisher(TargetSelection, "select", reliable()),
        }
        self._clock = node.create_publisher(Clock, "/clock", reliable())
        self._now_ns = 0
        self._answered_ns = -1
        self._answered_selection = 0
        self._tag = f"bag_player_{time.time_ns()}"  # identifies the result of our selection
        self._refusal: str | None = None
        node.create_subscription(BoundingBox, "bbox", self._on_box, reliable())
        node.create_subscription(SelectionResult, "selection_result", self._on_result, reliable())
        self._recorded = tuple(recorded) if record is not None else ()
        for topic in self._recorded:
            node.create_subscription(ANSWERS[topic], topic, partial(self._keep, topic), reliable(), raw=True)

    def play(self, messages: Iterable[Recorded], box: Box | None = None) -> int:
        """Publish the messages in order. Return the number of published images.

        ``box`` is selected on the first image. Raise InputError if no tracker subscribes to the images or
        publishes answers, or if the tracker refuses the box.
        """
        self._wait_for_tracker(("bbox", "selection_result") if box is not None else ("bbox",))
        images, last_ns = 0, -1
        start_s, start_ns = time.monotonic(), -1
        for message in messages:
            start_ns = message.recorded_ns if start_ns < 0 else start_ns
            if self._rate > 0:
                self._pause_until(start_s + (message.recorded_ns - start_ns) * 1e-9 / self._rate)
            if self._stop():
                break
            if message.role == "image":
                last_ns = header_stamp_ns(message.cdr)
            self._now_ns = message.recorded_ns
            self._clock.publish(Clock(clock=stamp_like(Time(), message.recorded_ns)))
            self._publishers[message.role].publish(message.cdr)
            if message.role != "image":
                continue
            images += 1
            if images == 1 and box is not None:
                self._wait_for_answer(last_ns)
                self._select(last_ns, box)
            elif self._rate == 0:
                self._wait_for_answer(last_ns)
        if images:
            if self._rate > 0:
                self._wait_for_answer(last_ns)
            # The wait for the answer ends at the bounding box. Other answers to the image may follow it.
            self._pause_until(time.monotonic() + 0.2)
        return images

    def _wait_for_tracker(self, heard: tuple[str, ...]) -> None:
        images = self._publishers["image"]
        end = time.monotonic() + PATIENCE_S
        while images.get_subscription_count() == 0 and not self._stop():
            found = {i.topic_type for i in self._node.get_subscriptions_info_by_topic(images.topic_name)}
            if found and self._image_type not in found:
                raise InputError(
                    f"the bag has {self._image_type}, the tracker subscribes to {', '.join(sorted(found))} on"
                    f" {images.topic_name}; start it with the other image_transport (raw, compressed)"
                )
            if time.monotonic() > end:
                raise InputError(
                    f"no node subscribed to {images.topic_name} in {PATIENCE_S:g} s; is the tracker active,"
                    " and is this its topic? If not, play with --ros-args -r image:=ITS_TOPIC"
                )
            self._executor.spin_once(timeout_sec=0.05)
        wait_until_heard(self._node, self._executor, (*heard, *self._recorded), PATIENCE_S, self._stop)

    def _select(self, image_ns: int, box: Box) -> None:
        before = self._answered_selection
        selection = selection_message(Selection(image_ns, box=box))
        selection.header.frame_id = self._tag
        listeners = self._publishers["select"].get_subscription_count
        spin(self._executor, lambda: listeners() or self._stop(), math.inf)
        self._publishers["select"].publish(selection)
        self._wait(lambda: self._answered_selection != before or self._refusal is not None)
        if self._refusal is not None:
            raise InputError(f"the tracker refused the box: {self._refusal}")

    def _wait_for_answer(self, image_ns: int) -> None:
        """Wait until the tracker has answered the image, and log a warning if it does not: it may have
        refused the image."""
        self._wait(lambda: self._answered_ns == image_ns)
        if self._answered_ns != image_ns and not self._stop():
            self._node.get_logger().warning(
                f"the tracker did not answer the image of {image_ns * 1e-9:.3f} s in {ANSWER_PATIENCE_S:g} s;"
                " if the tracker refused the image, its log gives the reason"
            )

    def _wait(self, done: Callable[[], object]) -> None:
        spin(self._executor, lambda: done() or self._stop(), ANSWER_PATIENCE_S)

    def _pause_until(self, moment_s: float) -> None:
        spin(self._executor, self._stop, moment_s - time.monotonic())

    def _on_box(self, message: Any) -> None:
        self._answered_ns, self._answered_selection = stamp_ns(message.header.stamp), message.selection

    def _on_result(self, message: Any) -> None:
        if message.header.frame_id == self._tag and message.outcome == SelectionResult.REFUSED:
            self._refusal = message.message

    def _keep(self, topic: str, cdr: bytes) -> None:
        if self._record is not None:
            self._record(topic, self._now_ns, cdr)


def header_stamp_ns(cdr: bytes) -> int:
    """Return the stamp, ns, of a serialized message that begins with a std_msgs/Header. Raise InputError if
    the message is too short."""
    if len(cdr) < HEADER_BYTES:
        raise InputError(
            f"the bag has a message of {len(cdr)} bytes on its image topic that is no image; record it again"
        )
    order = "<" if cdr[1] & 1 else ">"
    seconds, nanoseconds = struct.unpack_from(f"{order}iI", cdr, 4)
    return int(seconds * 10**9 + nanoseconds)


def wait_until_heard(
    node: Node,
    executor: SingleThreadedExecutor,
    topics: Iterable[str],
    patience_s: float,
    stop: Callable[[], bool] = lambda: False,
) -> None:
    """Wait until the publishers of ``topics`` send to the subscriptions that ``node`` has made so far.

    A publisher sends only to subscriptions that it has discovered, and nothing reports which these are. A
    subscription may discover the publisher long before the publisher discovers it. Discovery keeps the order
    in which endpoints were made. So when a node answers a call through a client that is made now, this node
    has discovered all earlier subscriptions. The call is `get_parameters`, which each ROS 2 node answers.

    Raise InputError if a topic has no publisher within ``patience_s``, or if its node does not answer the
    call.
    """
    end = time.monotonic() + patience_s
    publishers: set[str] = set()
    for topic in topics:
        resolved = node.resolve_topic_name(topic)
        while not stop():
            found = [
                f"{info.node_namespace.rstrip('/')}/{info.node_name}"
                for info in node.get_publishers_info_by_topic(resolved)
            ]
            if found and not any(UNKNOWN_NODE in name for name in found):
                publishers.update(found)
                break
            if time.monotonic() > end:
                raise InputError(
                    f"no node published {resolved} in {patience_s:g} s; is the tracker active, and in this"
                    " namespace?"
                )
            executor.spin_once(timeout_sec=0.05)
    for name in sorted(publishers):
        _call(node, executor, name, end, stop)


def _call(
    node: Node, executor: SingleThreadedExecutor, name: str, end: float, stop: Callable[[], bool]
) -> None:
    client = node.create_client(GetParameters, f"{name}/get_parameters")

    def is_answered() -> bool:
        answer = client.call_async(GetParameters.Request())
        return spin(executor, lambda: answer.done() or stop(), CALL_PATIENCE_S)

    try:
        while not (is_answered() or stop()):
            if time.monotonic() > end:
                raise InputError(f"the node {name} answers no calls; is it hanging? start it again")
    finally:
        node.destroy_client(client)
