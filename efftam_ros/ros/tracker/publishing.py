"""The node's outputs: makes the messages of one answer and publishes them, the urgent ones first."""

from __future__ import annotations

import threading
import time
from importlib import import_module
from typing import Any

import numpy as np
from rclpy.node import Node
from rclpy.qos import QoSProfile, ReliabilityPolicy
from rclpy.qos_overriding_options import QoSOverridingOptions
from sensor_msgs.msg import Image as ImageMessage

from efftam_ros.core.bearing import Bearing
from efftam_ros.core.errors import InputError
from efftam_ros.core.tracker import Tracker
from efftam_ros.core.types import Image, Track
from efftam_ros.interop.messages import (
    CameraModel,
    bbox_fields,
    detections_message,
    fill_image,
    velocity_fields,
)
from efftam_ros.msg import BoundingBox, TargetVelocity
from efftam_ros.ros.tracker.frame_buffer import BufferedFrame
from efftam_ros.runtime.image.encodings import to_bgr
from efftam_ros.runtime.image.overlay import draw_overlay

# Results are reliable, so that subscribers of either kind match; pictures of yesterday help nobody.
RESULT_QOS = QoSProfile(depth=10, reliability=ReliabilityPolicy.RELIABLE)
PICTURE_QOS = QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE)


def vision_messages() -> Any:
    """The module vision_msgs.msg, None where it is not installed."""
    try:
        return import_module("vision_msgs.msg")
    except ModuleNotFoundError:
        return None


class Outputs:
    """Publishers of one configured node. `publish` and `publish_stale` may be called from different
    threads."""

    def __init__(self, node: Node, with_detections: bool) -> None:
        self._node = node
        self._lock = threading.Lock()
        self._bbox = self._create(BoundingBox, "bbox", RESULT_QOS)
        self._velocity = self._create(TargetVelocity, "velocity", RESULT_QOS)
        self._mask = self._create(ImageMessage, "mask", PICTURE_QOS)
        self._overlay = self._create(ImageMessage, "overlay", PICTURE_QOS)
        self._publishers = [self._bbox, self._velocity, self._mask, self._overlay]
        self._vision = vision_messages() if with_detections else None
        if self._vision is not None:
            self._detections = self._create(self._vision.Detection2DArray, "detections", RESULT_QOS)
            self._publishers.append(self._detections)

    def _create(self, message_type: Any, topic: str, qos: QoSProfile) -> Any:
        return self._node.create_publisher(
            message_type, topic, qos, qos_overriding_options=QoSOverridingOptions.with_default_policies()
        )

    @property
    def has_detections(self) -> bool:
        return self._vision is not None

    def close(self) -> None:
        with self._lock:
            for publisher in self._publishers:
                self._node.destroy_publisher(publisher)
            self._publishers.clear()

    def publish(
        self,
        arrival: BufferedFrame,
        image: Image,
        track: Track,
        tracker: Tracker,
        camera: CameraModel | None,
        stale: str,
    ) -> tuple[float, str]:
        """Publish everything about one image. Returns the seconds from its arrival to its box, and why there
        is no bearing although the camera is known (empty when there is one).

        ``stale``: why images can't be relied on any more, empty when they can. The predicted box is for the
        image's stamp plus the time since the image arrived, by the steady clock: the image's own clock,
        without a look at any other. What passed before the arrival (exposure, transport) is not known and
        not in it.
        """
        bearing, no_bearing = _bearing(track, camera)
        with self._lock:
            self._bbox.publish(BoundingBox(**bbox_fields(track, arrival.header)))
            latency_s = time.monotonic() - arrival.arrived_s
            predicted = tracker.predict(arrival.stamp_ns + round(latency_s * 1e9))
            fields = velocity_fields(track, arrival.header, predicted, bearing, stale)
            self._velocity.publish(TargetVelocity(**fields))
        if self._vision is not None and self._detections.get_subscription_count():
            self._detections.publish(detections_message(self._vision, track, arrival.header))
        self._publish_pictures(arrival, image, track, tracker)
        return latency_s, no_bearing

    def _publish_pictures(self, arrival: BufferedFrame, image: Image, track: Track, tracker: Tracker) -> None:
        wants_mask = self._mask.get_subscription_count() > 0
        wants_overlay = self._overlay.get_subscription_count() > 0
        if not (wants_mask or wants_overlay):
            return
        mask = tracker.mask() if track.measured else None
        if wants_mask:
            # Nothing seen is an answer too: a mask for every box, empty where there is no target.
            shown = np.zeros((image.height, image.width), np.uint8) if mask is None else mask
            pixels = np.ascontiguousarray(shown)
            self._mask.publish(fill_image(ImageMessage(), pixels, "mono8", arrival.header))
        if wants_overlay:
            picture = to_bgr(image)
            if not picture.flags.writeable or np.may_share_memory(picture, image.rows):
                picture = picture.copy()
            draw_overlay(picture, track, mask)
            self._overlay.publish(fill_image(ImageMessage(), picture, "bgr8", arrival.header))

    def publish_stale(self, header: Any, track: Track, reason: str) -> None:
        """Say that the velocity can't be relied on, under the stamp of the last image."""
        with self._lock:
            if self._publishers:
                self._velocity.publish(TargetVelocity(**velocity_fields(track, header, stale=reason)))


def _bearing(track: Track, camera: CameraModel | None) -> tuple[Bearing | None, str]:
    """The bearing of the track's motion, and why there is none although the camera is calibrated."""
    if camera is None or camera.intrinsics is None or track.motion is None:
        return None, ""
    if (camera.width, camera.height) != tuple(track.image_size):
        width, height = track.image_size
        return None, (
            f"no bearing: camera_info is for {camera.width} x {camera.height} px, the image has"
            f" {width} x {height}; send the camera_info of this image topic"
        )
    motion = track.motion
    try:
        centre = (motion.box.cx, motion.box.cy)
        return camera.intrinsics.bearing(centre, motion.velocity, motion.covariance), ""
    except InputError as refusal:
        return None, f"no bearing: {refusal}"
