"""A camera as a process of its own: a bright square where a swinging target is, seen from the gimbal."""

from __future__ import annotations

import math
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(1, str(Path(__file__).parents[1]))

import numpy as np
import rclpy
from flight_rig import FRAME_S, path_of
from geometry_msgs.msg import QuaternionStamped
from level_pipeline import BRIGHT, HEIGHT, WIDTH
from rclpy.qos import qos_profile_sensor_data
from sensor_msgs.msg import CameraInfo, Image

from efftam_flight.angles import axis_direction, wrapped
from efftam_ros.images.message import fill_image, stamp_ns

FOCAL_PX = 200.0
SIDE_PX = 24


class LevelCamera:
    """Takes a picture at 30 Hz where the gimbal's newest attitude is known exactly."""

    def __init__(self) -> None:
        self.node = rclpy.create_node("level_camera")
        self._images = self.node.create_publisher(Image, "image", 1)
        self._infos = self.node.create_publisher(CameraInfo, "camera_info", 1)
        self._attitude: QuaternionStamped | None = None
        self.node.create_subscription(
            QuaternionStamped, "gimbal_attitude", self._see, qos_profile_sensor_data
        )
        self.node.create_timer(FRAME_S, self._shoot)

    def _see(self, message: QuaternionStamped) -> None:
        self._attitude = message

    def _shoot(self) -> None:
        attitude, self._attitude = self._attitude, None
        if attitude is None:
            return
        q = attitude.quaternion
        off = wrapped(path_of(stamp_ns(attitude.header.stamp)) - axis_direction((q.w, q.x, q.y, q.z))[0])
        picture = np.full((HEIGHT, WIDTH, 3), 20, np.uint8)
        if abs(off) < 1.0:
            left = round(WIDTH / 2 + FOCAL_PX * math.tan(off) - SIDE_PX / 2)
            top = (HEIGHT - SIDE_PX) // 2
            picture[top : top + SIDE_PX, max(left, 0) : max(left + SIDE_PX, 0)] = BRIGHT
        image = fill_image(Image(), picture, "bgr8")
        image.header.stamp = attitude.header.stamp
        image.header.frame_id = "camera_optical_frame"
        info = CameraInfo(header=image.header, width=WIDTH, height=HEIGHT)
        info.k = [FOCAL_PX, 0.0, WIDTH / 2 - 0.5, 0.0, FOCAL_PX, HEIGHT / 2 - 0.5, 0.0, 0.0, 1.0]
        self._infos.publish(info)
        self._images.publish(image)


if __name__ == "__main__":
    rclpy.init(args=sys.argv)
    rclpy.spin(LevelCamera().node)
