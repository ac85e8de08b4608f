"""The page's `Steering` over ROS: the state topic and the services of one `efftam_gimbal`."""

from __future__ import annotations

import time
from typing import Any

from efftam_ros.msg import GimbalStatus
from lifecycle_msgs.msg import State
from lifecycle_msgs.srv import GetState
from rclpy.node import Node
from std_srvs.srv import SetBool

from efftam_operator.commands import CONTROLLER
from efftam_operator.feed import Controller, Reply, Sink, SteeringState
from efftam_operator.ros.calls import Calls
from efftam_ros.ros.common.nodes import sampled, steady_timer

PHASES = {
    getattr(GimbalStatus, name): name.lower().replace("_", " ")
    for name in ("OFF", "WAITING", "FOLLOWING", "PREDICTING", "FADING", "HOLDING", "CONTROL_LOST")
}
"""A phase of the gimbal controller, by its number in the message, as the page shows it."""
# How often the controller's lifecycle state is asked for, s.
LOOK_S = 0.5


class RosSteering:
    """Says what the controller does, from the first sign of it on; enables and stops it. All in the
    executor's thread.

    ``gimbal``: name of the controller's node. ``silent_s``: time without a status after which it is called
    silent (it speaks five times a second).
    """

    def __init__(self, node: Node, gimbal: str, silent_s: float, calls: Calls) -> None:
        self._node, self._silent_s, self._calls = node, silent_s, calls
        self._sink: Sink | None = None
        self._last = SteeringState(Controller.GONE)
        # Monotonic times, None while there was no sign of a controller.
        self._heard_s: float | None = None
        self._inactive_s = float("-inf")
        self._enable_client = node.create_client(SetBool, f"{gimbal}/enable")
        self._state_client = node.create_client(GetState, f"{gimbal}/get_state")

    def start(self, sink: Sink) -> None:
        self._sink = sink
        self._node.create_subscription(GimbalStatus, "gimbal_status", self._on_status, sampled())
        steady_timer(self._node, LOOK_S, self._look)

    def enable(self, reply: Reply) -> None:
        self._calls.command(self._enable_client, SetBool.Request(data=True), reply, CONTROLLER)

    def stop(self, reply: Reply) -> None:
        self._calls.command(self._enable_client, SetBool.Request(data=False), reply, CONTROLLER)

    def _on_status(self, message: Any) -> None:
        self._heard_s = time.monotonic()
        phase = PHASES.get(message.phase, f"phase {message.phase}")
        self._tell(SteeringState(Controller.RUNNING, message.enabled, phase, message.reason))

    def _look(self) -> None:
        """Find out why a controller says nothing: a status speaks for itself."""
        now_s = time.monotonic()
        is_offered = self._state_client.service_is_ready()
        if is_offered and not self._calls.waits_for(self._state_client):
            self._calls.ask(self._state_client, GetState.Request(), self._on_state)
        if self._heard_s is None:
            if not is_offered:
                return
            self._heard_s = now_s
        if now_s - self._heard_s <= self._silent_s:
            return
        if now_s - self._inactive_s <= 2 * LOOK_S:
            self._tell(SteeringState(Controller.INACTIVE))
        else:
            gone = Controller.SILENT if is_offered else Controller.GONE
            self._tell(SteeringState(gone, self._last.enabled, self._last.phase))

    def _on_state(self, response: Any) -> None:
        if response.current_state.id in (State.PRIMARY_STATE_UNCONFIGURED, State.PRIMARY_STATE_INACTIVE):
            self._inactive_s = time.monotonic()

    def _tell(self, state: SteeringState) -> None:
        self._last = state
        if self._sink is not None:
            self._sink(state)
