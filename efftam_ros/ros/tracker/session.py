"""What lives while the node is active: subscriptions, frame buffer, worker, and the watch over stale
input."""

from __future__ import annotations

import time
import traceback
from dataclasses import dataclass, replace
from typing import Any

from rclpy.clock import Clock, ClockType
from rclpy.node import Node
from rclpy.qos import QoSProfile, ReliabilityPolicy, qos_policy_name_from_kind
from rclpy.qos_overriding_options import QoSOverridingOptions
from sensor_msgs.msg import CameraInfo, CompressedImage
from sensor_msgs.msg import Image as ImageMessage

from efftam_ros.core.errors import MOST_SHOWN, InputError, PipelineLostError
from efftam_ros.core.tracker import Tracker
from efftam_ros.core.types import Image, Prompt, Track, TrackState
from efftam_ros.interop.messages import (
    CameraModel,
    Kind,
    camera_model,
    check_header,
    check_selection,
    compressed_size,
    image_from_compressed,
    selection_prompt,
    stamp_ns,
)
from efftam_ros.msg import TargetSelection
from efftam_ros.ros.common.images import image_reader
from efftam_ros.ros.common.throttle import Throttle
from efftam_ros.ros.tracker.diagnostics import Statistics
from efftam_ros.ros.tracker.frame_buffer import BufferedFrame, FrameBuffer
from efftam_ros.ros.tracker.parameters import NodeConfig
from efftam_ros.ros.tracker.publishing import Outputs
from efftam_ros.ros.tracker.worker import Worker

try:
    from rclpy.event_handler import SubscriptionEventCallbacks
except ImportError:  # Humble
    from rclpy.qos_event import SubscriptionEventCallbacks

# Depth 1: what waits is replaced by what comes. Best effort matches every camera driver.
IMAGE_QOS = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)
SELECTION_QOS = QoSProfile(depth=10, reliability=ReliabilityPolicy.RELIABLE)
# How often per image_timeout it is looked whether images still come.
WATCHES = 5
# Lines of information of one kind per period of the throttle: a target's changes of state come in bursts.
INFORMED = 10
# What keeping an image costs besides its bytes and texts: the message and what Python wraps around it.
OVERHEAD_BYTES = 2048


@dataclass(frozen=True)
class _Camera:
    message: Any
    model: CameraModel | None


class Session:
    """Receives, tracks and publishes from its creation until `close`. Called in the executor's thread,
    except for the methods of `worker.Listener`."""

    def __init__(
        self, node: Node, tracker: Tracker, outputs: Outputs, statistics: Statistics, config: NodeConfig
    ) -> None:
        self._node, self._tracker, self._outputs = node, tracker, outputs
        self._statistics, self._config = statistics, config
        self._log = node.get_logger()
        # rclpy allows a line of code one severity for good: each needs a line of its own.
        self._fail = Throttle(lambda text: self._log.error(text))
        self._warn = Throttle(lambda text: self._log.warning(text))
        self._inform = Throttle(lambda text: self._log.info(text), burst=INFORMED)
        self._read_raw, self.conversion = image_reader()
        self._camera = _Camera(None, None)
        self._newest: BufferedFrame | None = None
        self._stale_said = False
        self._last = Track(0, TrackState.IDLE)
        self.frame_buffer = FrameBuffer(config.selection_buffer, config.selection_buffer_bytes)
        self._worker = Worker(tracker, self.frame_buffer, self)
        self._subscriptions = [
            self._subscribe_to_images(),
            self._subscribe(CameraInfo, "camera_info", self._on_camera_info, IMAGE_QOS),
            self._subscribe(TargetSelection, "select", self._on_selection, SELECTION_QOS),
        ]
        self._steady = Clock(clock_type=ClockType.STEADY_TIME)
        self._watch = self._start_watch()
        self._worker.start()

    def close(self) -> None:
        """Finish the frame in work, publish it, and stop receiving."""
        for subscription in self._subscriptions:
            self._node.destroy_subscription(subscription)
        self._subscriptions.clear()
        self._node.destroy_timer(self._watch)
        self._worker.stop()

    # What the node asks for

    @property
    def image_topic(self) -> str:
        """The resolved name of the image topic."""
        return str(self._node.resolve_topic_name("image"))

    @property
    def has_target(self) -> bool:
        return self._worker.state is not TrackState.IDLE or self.frame_buffer.has_selection

    def reconfigure(self, config: NodeConfig) -> None:
        """Use what may change while active."""
        before, self._config = self._config, config
        self.frame_buffer.limit(config.selection_buffer, config.selection_buffer_bytes)
        if config.image_timeout != before.image_timeout:
            self._node.destroy_timer(self._watch)
            self._watch = self._start_watch()
        if config.rectified != before.rectified and self._camera.message is not None:
            self._read_camera(self._camera.message)

    def reconfigure_tracker(self, config: Any) -> None:
        """Use these thresholds from the next image on."""
        self._worker.reconfigure(config)

    def select(self, message: Any) -> None:
        """Carry out a TargetSelection. Raises InputError; then nothing changes."""
        if check_selection(message) is Kind.CLEAR:
            self.frame_buffer.clear()
            self._inform("selection", "target cleared")
            return

        def prompt(frame: BufferedFrame) -> Prompt:
            return selection_prompt(message, *frame.size, self._config.max_image_pixels)

        try:
            self.frame_buffer.select(stamp_ns(message.header.stamp), prompt)
        except InputError as refusal:
            self._statistics.selection_refused(str(refusal))
            raise
        self._inform("selection", f"selection accepted: {Kind(message.kind).name}")

    # Subscriptions

    def _subscribe(self, message_type: Any, topic: str, callback: Any, qos: QoSProfile) -> Any:
        resolved = self._node.resolve_topic_name(topic)

        def on_incompatible(event: Any) -> None:
            policy = qos_policy_name_from_kind(event.last_policy_kind)
            reason = (
                f"a publisher of {resolved} offers a QoS the subscription can't accept (policy {policy}):"
                f" nothing arrives from it; set qos_overrides.{resolved}.subscription.{policy.lower()}"
            )
            self._statistics.incompatible_qos(reason)
            self._warn("qos", reason)

        return self._node.create_subscription(
            message_type,
            topic,
            callback,
            qos,
            event_callbacks=SubscriptionEventCallbacks(incompatible_qos=on_incompatible),
            qos_overriding_options=QoSOverridingOptions.with_default_policies(),
        )

    def _subscribe_to_images(self) -> Any:
        if self._config.image_transport == "compressed":
            self.conversion = "OpenCV's decoder"
            return self._subscribe(CompressedImage, "image", self._on_compressed, IMAGE_QOS)
        return self._subscribe(ImageMessage, "image", self._on_image, IMAGE_QOS)

    def _on_image(self, message: Any) -> None:
        now_s = time.monotonic()
        try:
            image = self._read_raw(message, self._config.max_image_pixels)
        except InputError as refusal:
            self.image_refused(str(refusal))
            return
        self._receive(message, now_s, (image.width, image.height), lambda: image)

    def _on_compressed(self, message: Any) -> None:
        now_s, most = time.monotonic(), self._config.max_image_pixels
        message.format = message.format[: MOST_SHOWN + 1]  # for refusals alone
        try:
            size = compressed_size(message, most)
        except InputError as refusal:
            self.image_refused(str(refusal))
            return
        # Decoding takes milliseconds: left to the worker, and to images that are really used.
        self._receive(message, now_s, size, lambda: image_from_compressed(message, most))

    def _receive(self, message: Any, now_s: float, size: tuple[int, int], read: Any) -> None:
        stamp = stamp_ns(message.header.stamp)
        nbytes = len(message.data) + len(message.header.frame_id) + OVERHEAD_BYTES
        frame = BufferedFrame(message.header, stamp, now_s, nbytes, size, read)
        try:
            check_header(message.header)
            if stamp == 0:
                raise InputError(
                    "image stamp is zero; set header.stamp to the time of exposure in the driver"
                )
            self.frame_buffer.put(frame)
        except InputError as refusal:
            self.image_refused(str(refusal))
            return
        self._newest, self._stale_said = frame, False
        self._statistics.image_received(now_s, stamp)

    def _on_camera_info(self, message: Any) -> None:
        # Sent with every image and seldom changed.
        if self._camera.message is None or _calibration(message) != _calibration(self._camera.message):
            self._read_camera(message)

    def _read_camera(self, message: Any) -> None:
        try:
            self._camera = _Camera(message, camera_model(message, self._config.rectified))
        except InputError as refusal:
            self._camera = _Camera(message, None)
            self._no_bearing(str(refusal))
            return
        model = self._camera.model
        if model is not None and model.intrinsics is None:
            self._inform("camera_info", "camera_info is not calibrated (k[0] is 0): no bearing is published")

    def _on_selection(self, message: Any) -> None:
        try:
            self.select(message)
        except InputError as refusal:
            self._warn("selection", f"selection refused: {refusal}")

    # Stale input

    def _start_watch(self) -> Any:
        period_s = self._config.image_timeout / WATCHES
        return self._node.create_timer(period_s, self._look_for_images, clock=self._steady)

    def _stale(self) -> str:
        """Why images can't be relied on any more; empty while they come."""
        assert self._newest is not None
        silence_s = time.monotonic() - self._newest.arrived_s
        if silence_s <= self._config.image_timeout:
            return ""
        return f"no image for {silence_s:.2f} s (image_timeout is {self._config.image_timeout:g} s)"

    def _look_for_images(self) -> None:
        if self._newest is None or self._stale_said:
            return
        reason = self._stale()
        if reason:
            self._stale_said = True
            self._outputs.publish_stale(self._newest.header, replace(self._last, motion=None), reason)
            self._warn(
                "stale", f"{reason}; is the camera running, and does it publish on {self.image_topic}?"
            )

    # worker.Listener

    def deliver(self, frame: BufferedFrame, image: Image, track: Track) -> None:
        camera = self._camera.model
        latency_s, no_bearing = self._outputs.publish(
            frame, image, track, self._tracker, camera, self._stale()
        )
        self._statistics.answered(time.monotonic(), latency_s, track)
        if no_bearing:
            self._no_bearing(no_bearing)
        if track.state is not self._last.state:
            because = f": {track.reason}" if track.reason else ""
            self._inform("state", f"{self._last.state.name} -> {track.state.name}{because}")
        self._last = track

    def image_refused(self, reason: str) -> None:
        self._statistics.image_refused(reason)
        self._warn("image", f"image refused: {reason}")

    def selection_refused(self, reason: str) -> None:
        self._statistics.selection_refused(reason)
        self._warn("selection", f"selection refused: {reason}")

    def skipped(self, images: int) -> None:
        self._statistics.dropped(images)

    def failed(self, error: Exception) -> None:
        self._statistics.failed(f"{type(error).__name__}: {error}", isinstance(error, PipelineLostError))
        self._fail("failure", "".join(traceback.format_exception(error)).rstrip())

    def _no_bearing(self, reason: str) -> None:
        self._statistics.no_bearing(reason)
        self._warn("bearing", reason)


def _calibration(message: Any) -> tuple[Any, ...]:
    """What of a CameraInfo the bearing depends on."""
    roi = message.roi
    region = (roi.x_offset, roi.y_offset, roi.width, roi.height, message.binning_x, message.binning_y)
    matrices = (tuple(message.k), tuple(message.d), tuple(message.p))
    return (message.width, message.height, message.distortion_model, *region, *matrices)
