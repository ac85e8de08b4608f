"""What the gimbal node publishes: rates, what it does and why, whether it wants the gimbal."""

from __future__ import annotations

import time

from geometry_msgs.msg import TwistStamped
from rclpy.duration import Duration
from rclpy.node import Node
from std_msgs.msg import Bool

from efftam_ros.flight.control_config import GimbalCommand, Instant, Phase
from efftam_ros.flight.values import STOPPED, Rates
from efftam_ros.interop.messages import stamp_like
from efftam_ros.msg import GimbalStatus
from efftam_ros.ros.common.conversions import status_message
from efftam_ros.ros.common.nodes import latched, other_publishers, reliable

# How long the last words wait for their readers before the publishers go, s.
ACKNOWLEDGED_S = 0.5
STATUS_S = 0.2


class Outputs:
    """Publishers of one configured node."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._rates = node.create_publisher(TwistStamped, "rates", reliable())
        self._status = node.create_publisher(GimbalStatus, "gimbal_status", reliable())
        self._steering = node.create_publisher(Bool, "steering_enabled", latched())
        self._said: tuple[object, ...] = ()
        self._next_status_s = 0.0
        self._wanted: bool | None = None
        self.want_gimbal(False)

    def send_rates(self, rates: Rates, stamp_ns: int) -> None:
        """In axes forward-left-up, as REP 103 has them."""
        message = TwistStamped()
        message.header.stamp = stamp_like(message.header.stamp, stamp_ns)
        angular = message.twist.angular
        angular.x, angular.y, angular.z = rates.to_twist()
        self._rates.publish(message)

    def want_gimbal(self, wanted: bool) -> None:
        """Whether the bridge shall take the gimbal; said at every change."""
        if wanted != self._wanted:
            self._wanted = wanted
            self._steering.publish(Bool(data=wanted))

    def send_status(self, command: GimbalCommand, enabled: bool, now: Instant) -> None:
        """At a change of what is done or why, and now and then. Numbers in a reason are no change."""
        words = "".join(c for c in command.reason if not c.isdigit())
        said = (enabled, command.phase, command.law, command.send, words, command.at_stop)
        if said == self._said and now.steady_s < self._next_status_s:
            return
        self._said, self._next_status_s = said, now.steady_s + STATUS_S
        message = status_message(command, enabled)
        message.header.stamp = stamp_like(message.header.stamp, now.stamp_ns)
        self._status.publish(message)

    @property
    def others(self) -> str:
        """Other publishers of rates, as a message; empty when there are none."""
        return other_publishers(
            self._node, ("rates",), "the gimbal would receive the rates of all of them; end the others first"
        )

    def stop(self) -> None:
        """Zero rates, the gimbal given back, the last status, and wait until all have arrived."""
        now = Instant(self._node.get_clock().now().nanoseconds, time.monotonic())
        self.send_rates(STOPPED, now.stamp_ns)
        self._rates.wait_for_all_acked(Duration(seconds=ACKNOWLEDGED_S))
        self.want_gimbal(False)
        self.send_status(GimbalCommand(STOPPED, False, Phase.OFF), False, now)
        for publisher in (self._steering, self._status):
            publisher.wait_for_all_acked(Duration(seconds=ACKNOWLEDGED_S))

    def close(self) -> None:
        for publisher in (self._rates, self._status, self._steering):
            self._node.destroy_publisher(publisher)
