"""The bridge's way to the gimbal controller: attitude, heading and the manager's word as topics."""

from __future__ import annotations

import math
from typing import Any

from geometry_msgs.msg import QuaternionStamped
from rclpy.node import Node

from efftam_ros.flight.values import AttitudeSample, Control, GimbalLimits, VehicleSample
from efftam_ros.interop.messages import stamp_like
from efftam_ros.msg import GimbalManager, VehicleHeading
from efftam_ros.ros.common.conversions import CONTROLS
from efftam_ros.ros.common.nodes import latched, sampled

NUMBERS = {control: number for number, control in CONTROLS.items()}
REPEAT_S = 1.0


class GimbalTopics:
    """Publishes what the bridge hears; implements its `GimbalPort`. One thread at a time."""

    def __init__(self, node: Node, yaw_lock: bool) -> None:
        self._clock = node.get_clock()
        self._attitude = node.create_publisher(QuaternionStamped, "gimbal_attitude", sampled())
        self._heading = node.create_publisher(VehicleHeading, "vehicle_heading", sampled())
        self._manager = node.create_publisher(GimbalManager, "gimbal_manager", latched())
        self._known = GimbalManager(
            control=GimbalManager.UNKNOWN,
            alive=True,
            yaw_lock=yaw_lock,
            pitch_min=-math.inf,
            pitch_max=math.inf,
            yaw_min=-math.inf,
            yaw_max=math.inf,
        )
        self._next_s = -math.inf

    def attitude(self, sample: AttitudeSample) -> None:
        at_limits = (sample.at_pitch_limit, sample.at_yaw_limit)
        if at_limits != (self._known.at_pitch_limit, self._known.at_yaw_limit):
            self._known.at_pitch_limit, self._known.at_yaw_limit = at_limits
            self._publish_known()
        message = QuaternionStamped()
        _stamp(message, sample.stamp_ns)
        message.header.frame_id = sample.yaw_frame.value
        q = message.quaternion
        q.w, q.x, q.y, q.z = map(float, sample.q)
        self._attitude.publish(message)

    def vehicle(self, sample: VehicleSample) -> None:
        message = VehicleHeading(yaw=float(sample.yaw), yaw_rate=float(sample.yaw_rate))
        _stamp(message, sample.stamp_ns)
        self._heading.publish(message)

    def control(self, control: Control, reason: str) -> None:
        self._known.control, self._known.reason = NUMBERS[control], reason
        self._publish_known()

    def gimbal_alive(self, alive: bool) -> None:
        self._known.alive = alive
        self._publish_known()

    def limits(self, limits: GimbalLimits) -> None:
        known = self._known
        known.pitch_min, known.pitch_max = limits.pitch_min, limits.pitch_max
        known.yaw_min, known.yaw_max = limits.yaw_min, limits.yaw_max
        self._publish_known()

    def repeat(self, now_s: float) -> None:
        """Say what is known now and then: its absence tells that the bridge ended."""
        if now_s >= self._next_s:
            self._next_s = now_s + REPEAT_S
            self._publish_known()

    def _publish_known(self) -> None:
        self._known.header.stamp = self._clock.now().to_msg()
        self._manager.publish(self._known)


def _stamp(message: Any, ns: int) -> None:
    message.header.stamp = stamp_like(message.header.stamp, max(ns, 0))
