"""Receives images and their calibration from the topics, for the loop."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from rclpy.node import Node
from rclpy.qos import QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import CameraInfo

from efftam_ros.core.errors import MOST_SHOWN, InputError
from efftam_ros.core.types import Image
from efftam_ros.interop.messages import (
    camera_model,
    check_header,
    compressed_size,
    image_from_compressed,
    image_from_message,
    stamp_ns,
)
from efftam_ros.ros.common.image_input import ImageInput
from efftam_ros.ros.common.subscriptions import Subscriptions
from efftam_ros.ros.tracker.frame_buffer import BufferedFrame
from efftam_ros.ros.tracker.parameters import NodeConfig
from efftam_ros.ros.tracker.shared import Shared

if TYPE_CHECKING:
    from efftam_ros.ros.tracker.attitude_input import AttitudeInput

# Memory of a kept image besides its data and strings: the message and its Python objects.
OVERHEAD_BYTES = 2048


class Receiver:
    """Checks every image and puts it into the buffer; hands the calibration to the outputs. All in the
    executor's thread.

    ``prefetch``: takes each raw image before it is buffered, see `Tracker.prefetch`.
    """

    def __init__(
        self,
        node: Node,
        shared: Shared,
        config: NodeConfig,
        subscriptions: Subscriptions,
        prefetch: Callable[[Image], None],
        attitude: AttitudeInput | None,
    ) -> None:
        self._buffer, self._outputs, self._statistics, self._log = shared
        self._config, self._subscriptions, self._prefetch, self._attitude = (
            config,
            subscriptions,
            prefetch,
            attitude,
        )
        self._camera_info: Any = None  # the last message
        receive = self._on_compressed if config.image_transport == "compressed" else self._on_image
        transport, reliability = config.image_transport, config.image_reliability
        self.input = ImageInput(node, transport, reliability, receive, subscriptions.callbacks)
        self._subscribe_camera_info()

    def close(self) -> None:
        self.input.close()

    def reconfigure(self, config: NodeConfig) -> None:
        before, self._config = self._config, config
        if config.rectified != before.rectified and self._camera_info is not None:
            self._read_camera(self._camera_info)

    def look(self) -> None:
        """Follow changes of the image publishers."""
        self.input.look()
        if self.input.camera_info_topic != self._camera_topic:
            self._subscriptions.remove(self._camera_subscription)
            self._subscribe_camera_info()

    def explain_no_image(self) -> str:
        """Why no image was accepted yet."""
        refusal = self._statistics.refusal
        why = f"every image is refused: {refusal}" if refusal else self.input.explain()
        return f"no image has arrived yet: {why}"

    def _on_image(self, message: Any) -> None:
        now_s = time.monotonic()
        try:
            image = image_from_message(message, self._config.max_image_pixels)
            self._prefetch(image)
            self._put(message, now_s, (image.width, image.height), image)
        except InputError as refusal:
            self._statistics.image_refused(str(refusal))

    def _on_compressed(self, message: Any) -> None:
        now_s, most = time.monotonic(), self._config.max_image_pixels
        message.format = message.format[: MOST_SHOWN + 1]  # only used in refusals
        try:
            # Decoding takes milliseconds, so the loop does it, and only for images that are used.
            decode = partial(image_from_compressed, message, most)
            self._put(message, now_s, compressed_size(message, most), decode)
        except InputError as refusal:
            self._statistics.image_refused(str(refusal))

    def _put(
        self, message: Any, now_s: float, size: tuple[int, int], pixels: Image | Callable[[], Image]
    ) -> None:
        header, stamp = message.header, stamp_ns(message.header.stamp)
        check_header(header)
        if stamp == 0:
            raise InputError("image stamp is zero; set header.stamp to the time of exposure in the driver")
        nbytes = len(message.data) + len(header.frame_id) + OVERHEAD_BYTES
        self._buffer.put(BufferedFrame(header, stamp, now_s, nbytes, size, pixels))
        self._statistics.image_received(now_s, stamp, len(message.data))

    def _subscribe_camera_info(self) -> None:
        self._camera_topic = self.input.camera_info_topic
        newest_wins = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)
        self._camera_subscription = self._subscriptions.add(
            CameraInfo, self._camera_topic, self._on_camera_info, newest_wins
        )

    def _on_camera_info(self, message: Any) -> None:
        # camera_info comes with every image and rarely changes.
        if self._camera_info is None or _calibration(message) != _calibration(self._camera_info):
            self._read_camera(message)

    def _read_camera(self, message: Any) -> None:
        self._camera_info = message
        try:
            self._outputs.camera = model = camera_model(message, self._config.rectified)
        except InputError as refusal:
            self._outputs.camera = model = None
            self._statistics.no_bearing(str(refusal))
        if self._attitude is not None:
            self._attitude.set_camera(None if model is None else model.intrinsics)
        if model is not None and model.intrinsics is None:
            said = "camera_info is not calibrated (k[0] is 0): no bearing is published"
            self._log.inform("camera_info", said)

    def describe_camera(self) -> str:
        """State of the calibration, for diagnostics."""
        message, model = self._camera_info, self._outputs.camera
        if message is None:
            return f"none on {self._camera_topic}"
        state = "refused"
        if model is not None:
            state = "calibrated" if model.intrinsics is not None else "not calibrated"
        return f"{state}, {message.width} x {message.height} px, {self._camera_topic}"


def _calibration(message: Any) -> tuple[Any, ...]:
    """The fields of a CameraInfo that affect the bearing."""
    roi = message.roi
    region = (roi.x_offset, roi.y_offset, roi.width, roi.height, message.binning_x, message.binning_y)
    # As bytes: a NaN equals itself.
    matrices = (bytes(message.k), bytes(message.d), bytes(message.p))
    return (message.width, message.height, message.distortion_model, *region, *matrices)
