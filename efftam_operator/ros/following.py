"""The page's `Follower` over ROS: receives positions, and calls the services of one `efftam_mavlink`."""

from __future__ import annotations

import time
from typing import Any

from efftam_ros.msg import FollowStatus, TargetPosition
from rclpy.node import Node
from std_srvs.srv import SetBool

from efftam_operator.commands import BRIDGE
from efftam_operator.feed import FollowState, Reply, Sink
from efftam_operator.ros.calls import Calls
from efftam_ros.messages.positions import PositionReport, position_report
from efftam_ros.ros.common.nodes import Throttle, latched, sampled, steady_timer
from efftam_ros.ros.common.polling import Polled

# Interval at which positions and states are read, s. The map on the page needs no more.
READ_S = 0.2
# The bridge counts as silent after this time without a state, s. It sends one a second.
SILENT_S = 3.0
# Queue depth for positions: up to eight targets have one for each image between two reads.
POSITIONS = 40


class RosFollowing:
    """Reports the steered target's position, and switches whether the autopilot receives it.

    All methods run in the executor's thread. ``bridge``: name of the MAVLink bridge's node.
    """

    def __init__(self, node: Node, bridge: str, calls: Calls) -> None:
        self._node, self._calls = node, calls
        self._sink: Sink | None = None
        self._client = node.create_client(SetBool, f"{bridge}/enable_follow")
        self._topics: list[Polled] = []
        self._position: PositionReport | None = None  # newest position that was not reported yet
        self._received_s: float | None = None
        self._reported: FollowState | None = None

    def start(self, sink: Sink) -> None:
        self._sink = sink
        node, warn = self._node, Throttle(lambda text: self._node.get_logger().warning(text))
        self._topics = [
            Polled(node, TargetPosition, "position", self._on_position, sampled(POSITIONS), warn),
            Polled(node, FollowStatus, "follow_status", self._on_status, latched(), warn),
        ]
        steady_timer(node, READ_S, self._read)

    def enable(self, reply: Reply) -> None:
        self._calls.command(self._client, SetBool.Request(data=True), reply, BRIDGE)

    def stop(self, reply: Reply) -> None:
        self._calls.command(self._client, SetBool.Request(data=False), reply, BRIDGE)

    def _read(self) -> None:
        now_s = time.monotonic()
        for topic in self._topics:
            topic.read(now_s)
        position, self._position = self._position, None
        if position is not None and self._sink is not None:
            self._sink(position)
        if self._received_s is not None and now_s - self._received_s > SILENT_S:
            self._received_s = None
            self._report(FollowState(False, reason=f"{BRIDGE} is silent"))

    def _on_position(self, message: Any) -> None:
        if message.steered:
            self._position = position_report(message)

    def _on_status(self, message: Any) -> None:
        self._received_s = time.monotonic()
        self._report(FollowState(message.available, message.enabled, message.sending, message.reason))

    def _report(self, state: FollowState) -> None:
        if state != self._reported and self._sink is not None:
            self._reported = state
            self._sink(state)
