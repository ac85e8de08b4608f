"""The lifecycle node `efftam_gimbal`. It steers a gimbal by the tracker's answers while steering is
enabled."""

from __future__ import annotations

from typing import Any

from rcl_interfaces.msg import SetParametersResult
from rclpy.lifecycle import LifecycleState
from std_srvs.srv import SetBool

from efftam_flight.ros.gimbal.loop import GimbalPublishers, Loop
from efftam_flight.ros.parameters import GIMBAL, GimbalConfig
from efftam_ros.core.errors import InputError
from efftam_ros.core.reasons import ReasonCode
from efftam_ros.ros.common.nodes import ReportingNode, reported
from efftam_ros.ros.common.parameters import read_parameters

NODE_NAME = "efftam_gimbal"


class GimbalNode(ReportingNode):
    """Computes the topic `rates` from the topic `velocity`. Nothing moves until the service ``~/enable``
    enables steering. A deactivation disables it.

    | transition | effect |
    |---|---|
    | configure | reads the parameters, creates publishers and service |
    | activate | creates the subscriptions |
    | deactivate | publishes zero rates, releases the gimbal, closes the subscriptions |
    | cleanup, shutdown | destroys publishers and service |
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(NODE_NAME, **kwargs)
        GIMBAL.declare(self)
        self._config = read_parameters(self, GimbalConfig)
        self._outputs: GimbalPublishers | None = None
        self._loop: Loop | None = None
        self._enable: Any = None
        self.add_on_set_parameters_callback(self._on_set_parameters)

    def tick(self) -> float | None:
        """Do the work that is due. Return the time until the next call, s, or None while the node is
        inactive; see `run_node`."""
        return None if self._loop is None else self._loop.turn()

    def close(self) -> None:
        """Stop the gimbal and destroy the node, which can't be used afterwards."""
        self.release()
        self.destroy_node()

    @reported
    def on_configure(self, state: LifecycleState) -> None:
        self._config = read_parameters(self, GimbalConfig)
        self._outputs = GimbalPublishers(self)
        self._enable = self.create_service(SetBool, "~/enable", self._on_enable)

    @reported
    def on_activate(self, state: LifecycleState) -> None:
        assert self._outputs is not None
        self._loop = Loop(self, self._config, self._outputs)
        self.get_logger().info("active; steering is off until the service enable is called with true")

    @reported
    def on_deactivate(self, state: LifecycleState) -> None:
        self._stop()
        self.get_logger().info("inactive: zero rates were sent, nothing is steered")

    def _stop(self) -> None:
        if self._loop is not None:
            loop, self._loop = self._loop, None
            loop.close()

    def release(self) -> None:
        self._stop()
        if self._outputs is not None:
            self.destroy_service(self._enable)
            self._outputs.close()
            self._outputs = None

    def _on_enable(self, request: Any, response: Any) -> Any:
        if self._loop is None:
            response.message = "the node is inactive; activate it first (ros2 lifecycle set)"
            return response
        try:
            waits_for = self._loop.set_enabled(request.data)
        except InputError as refusal:
            response.message = str(refusal)
            return response
        response.success = True
        response.message = "steering" if request.data else "stopped"
        if waits_for:
            # The normal answer: the bridge requests control only now.
            is_requested = waits_for.code is ReasonCode.CONTROL_AWAITED
            outlook = "turns once control is granted" if is_requested else "can't turn yet"
            response.message = f"enabled; the gimbal {outlook}: {waits_for}"
        return response

    def _on_set_parameters(self, parameters: list[Any]) -> SetParametersResult:
        changes = {parameter.name: parameter.value for parameter in parameters}
        reasons = GIMBAL.refusals(changes, configured=self._outputs is not None)
        return SetParametersResult(successful=not reasons, reason="; ".join(reasons))
