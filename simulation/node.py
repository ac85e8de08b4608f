"""The node `efftam_simulation`: publishes the camera's images, and records what the real nodes publish."""

from __future__ import annotations

import math
import threading
import time
from typing import Any

import numpy as np
from efftam_ros.msg import BoundingBox, GimbalStatus
from numpy.typing import NDArray
from rclpy.node import Node
from sensor_msgs.msg import CameraInfo, Image
from std_srvs.srv import SetBool

from efftam_ros.images.message import fill_image, stamp_like, stamp_ns
from efftam_ros.messages.bearing import Intrinsics
from efftam_ros.ros.common.nodes import reliable
from simulation.record import Answer, RecordWriter, Steering

FRAME_ID = "camera_optical_frame"


class SimulationNode(Node):
    """Publishes images and calibration, and writes answers and statuses to the record. The callbacks run in
    the thread of the executor."""

    def __init__(self, record: RecordWriter, intrinsics: Intrinsics, width: int, height: int) -> None:
        super().__init__("efftam_simulation")
        self.answer: Answer | None = None
        self.first_answers: dict[int, float] = {}  # when the first answer to each selection arrived, s
        self.status: Steering | None = None
        self._record = record
        self._lock = threading.Lock()
        self._info = CameraInfo(width=width, height=height, distortion_model="plumb_bob", d=[0.0] * 5)
        k = intrinsics
        self._info.k = [k.fx, 0.0, k.cx, 0.0, k.fy, k.cy, 0.0, 0.0, 1.0]
        self._info.p = [k.fx, 0.0, k.cx, 0.0, 0.0, k.fy, k.cy, 0.0, 0.0, 0.0, 1.0, 0.0]
        self._info.header.frame_id = FRAME_ID
        self._images = self.create_publisher(Image, "image", reliable(1))
        self._infos = self.create_publisher(CameraInfo, "camera_info", reliable(1))
        self.create_subscription(BoundingBox, "bbox", self._on_bbox, reliable())
        self.create_subscription(GimbalStatus, "gimbal_status", self._on_status, reliable())
        self._enable = self.create_client(SetBool, "efftam_gimbal/enable")

    def publish(self, bgr: NDArray[np.uint8], stamp_ns_: int) -> None:
        """Publish a picture and its calibration. ``bgr``: uint8 [height, width, 3]."""
        message = fill_image(Image(), bgr, "bgr8")
        message.header.frame_id = FRAME_ID
        message.header.stamp = stamp_like(message.header.stamp, stamp_ns_)
        self._info.header.stamp = message.header.stamp
        self._infos.publish(self._info)
        self._images.publish(message)

    @property
    def can_enable(self) -> bool:
        return bool(self._enable.service_is_ready())

    def enable(self, yes: bool) -> Any:
        """Call the gimbal controller's service that enables or disables steering. Return the future of its
        response."""
        return self._enable.call_async(SetBool.Request(data=yes))

    def write(self, entry: Any) -> None:
        """Write one line of the record. Any thread may call this."""
        with self._lock:
            self._record.write(entry)

    def event(self, name: str, time_s: float) -> None:
        with self._lock:
            self._record.event(name, time_s)

    def _on_bbox(self, message: Any) -> None:
        now_s = time.monotonic()
        box = (message.x, message.y, message.width, message.height)
        answer = Answer(
            time_s=now_s,
            stamp_ns=stamp_ns(message.header.stamp),
            selection=message.selection,
            state=message.state,
            measured=message.measured,
            valid=message.valid,
            box=box if all(map(math.isfinite, box)) else None,
            presence=message.presence,
            quality=message.quality,
            age_s=message.age if math.isfinite(message.age) else None,
            reason=message.reason,
        )
        self.first_answers.setdefault(message.selection, now_s)
        self.answer = answer
        self.write(answer)

    def _on_status(self, message: Any) -> None:
        self.status = Steering(
            time_s=time.monotonic(),
            phase=message.phase,
            law=message.law,
            pitch_rate=message.pitch_rate,
            yaw_rate=message.yaw_rate,
            reason=message.reason,
        )
        self.write(self.status)
