"""The node `efftam_operator`: reads parameters, runs the page's feed and server, publishes diagnostics."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from rclpy.node import Node

from efftam_operator.announce import announcement
from efftam_operator.ros.calls import Calls
from efftam_operator.ros.feed import RosFeed
from efftam_operator.ros.following import RosFollowing
from efftam_operator.ros.parameters import PARAMETERS, OperatorConfig
from efftam_operator.ros.steering import RosSteering
from efftam_operator.server import OperatorServer, serving
from efftam_ros.images.stillness import frozen_text
from efftam_ros.ros.common.nodes import check_qos_overrides, diagnostics, steady_timer
from efftam_ros.ros.common.parameters import read_parameters
from efftam_ros.ros.tracker.parameters import PARAMETERS as TRACKER_PARAMETERS

NODE_NAME = "efftam_operator"


class OperatorNode(Node):
    """Serves the page of one tracker. The page is available from `start` to `close`."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(NODE_NAME, **kwargs)
        PARAMETERS.declare(self, others=TRACKER_PARAMETERS.names())
        check_qos_overrides(self)
        config = read_parameters(self, OperatorConfig)
        self._calls = Calls(self, config.answer_s)
        self._feed = RosFeed(self, config, self._calls)
        steering = RosSteering(self, config.gimbal, config.silent_s, self._calls)
        following = RosFollowing(self, config.mavlink, self._calls)
        ends = (self._calls.forwarded(one) for one in (self._feed, steering, following))
        self.server = OperatorServer(config, *ends)
        self._serving = ExitStack()
        self._diagnostics = self.create_publisher(DiagnosticArray, "/diagnostics", 10)
        steady_timer(self, config.diagnostics_period, self._ask_health)

    def start(self) -> None:
        """Serve the page. Raises InputError when the address or the certificate can't be used."""
        server = self._serving.enter_context(serving(self.server))
        # Printed and not logged: the address contains the token, and everybody can read the log's topic.
        print(f"{NODE_NAME}: {announcement(server.urls)}", flush=True)

    def close(self) -> None:
        self._serving.close()
        self.destroy_node()

    @property
    def renewal(self) -> str:
        """Why this process should become another DDS participant (see `run_node`), or ""."""
        return self._feed.renewal

    def internal_error(self, error: Exception) -> None:
        """Report an unforeseen error of a callback by `/health` and diagnostics; called by `run_node`."""
        self.server.faults.add("the node", error)

    def _ask_health(self) -> None:
        self.server.ask_health(lambda health: self._calls.do(lambda: self._publish(health)))

    def _publish(self, health: dict[str, Any]) -> None:
        level, message = _verdict(health, self._feed.explain)
        self._diagnostics.publish(diagnostics(self, "page", level, message, health))


def _verdict(health: dict[str, Any], explain: Any) -> tuple[bytes, str]:
    if health["internal_error"]:
        return DiagnosticStatus.ERROR, health["internal_error"]
    if health["picture"]:
        return DiagnosticStatus.WARN, health["picture"]
    if health["viewers"] and not health["image_hz"]:
        return DiagnosticStatus.WARN, explain() or "no image arrives"
    if len(health["trackers"]) > 1:
        return (
            DiagnosticStatus.WARN,
            f"several trackers answer: {', '.join(health['trackers'])}; end all but one",
        )
    if health["tracker"] != "alive":
        return DiagnosticStatus.WARN, f"the tracker is {health['tracker']}"
    if health["frozen_s"]:
        return DiagnosticStatus.WARN, frozen_text(health["frozen_s"])
    return DiagnosticStatus.OK, f"{health['viewers']} page(s) open"
