"""The page's `Steerer` over ROS: works with one `efftam_gimbal`, and receives the bridge's reports."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

from efftam_ros.msg import GimbalManager, GimbalStatus, VehicleHeading
from geometry_msgs.msg import QuaternionStamped
from lifecycle_msgs.msg import State
from lifecycle_msgs.srv import GetState
from rclpy.node import Node
from std_srvs.srv import SetBool

from efftam_operator.commands import CONTROLLER
from efftam_operator.feed import CommandAnswer, Controller, GimbalAngles, Reply, Sink, SteeringState, Stop
from efftam_operator.gimbal_watch import Attitude, GimbalWatch, Heading
from efftam_operator.ros.calls import Calls
from efftam_ros.images.message import stamp_ns
from efftam_ros.ros.common.nodes import Throttle, latched, sampled, steady_timer
from efftam_ros.ros.common.polling import Polled

PHASES = {
    getattr(GimbalStatus, name): name.lower().replace("_", " ")
    for name in ("OFF", "WAITING", "FOLLOWING", "PREDICTING", "FADING", "HOLDING", "CONTROL_LOST")
}
"""The name of each phase of the gimbal controller for the page, by the phase's number in GimbalStatus."""
# Interval at which the controller's lifecycle state is requested, s.
LOOK_S = 0.5
# Interval at which attitudes and the bridge's messages are read, s.
READ_S = 0.1
# The frame_id of an attitude whose yaw counts from north.
EARTH = "earth"


class RosSteering:
    """Reports the state of gimbal controller, bridge and gimbal, and enables and stops steering.

    All methods run in the executor's thread. Nothing is reported before the first sign of a controller: a
    status or an offered service. ``gimbal``: name of the controller's node. ``silent_s``: time without a
    status after which the controller counts as silent, s; it sends five a second.
    """

    def __init__(self, node: Node, gimbal: str, silent_s: float, calls: Calls) -> None:
        self._node, self._silent_s, self._calls = node, silent_s, calls
        self._sink: Sink | None = None
        # What the controller last reported. Fields on the chain, the STOP and the angles keep their defaults.
        self._last = SteeringState(Controller.GONE)
        self._reported: SteeringState | None = None
        self._watch = GimbalWatch()
        self._limits: dict[str, tuple[int | None, int | None]] = {}  # fields of GimbalAngles
        self._stop_replies: list[Reply] = []  # for STOP commands that were not answered yet
        # Monotonic time of the controller's last status; before the first one, the time at which its services
        # were found; None: nothing was found yet.
        self._received_s: float | None = None
        self._inactive_s = float("-inf")
        self._enable_client = node.create_client(SetBool, f"{gimbal}/enable")
        self._state_client = node.create_client(GetState, f"{gimbal}/get_state")
        self._topics: list[Polled] = []

    def start(self, sink: Sink) -> None:
        self._sink = sink
        node, warn = self._node, Throttle(lambda text: self._node.get_logger().warning(text))
        node.create_subscription(GimbalStatus, "gimbal_status", self._on_status, sampled())
        # These topics have no callbacks and are read every READ_S, because up to a hundred attitudes a second
        # arrive.
        self._topics = [
            Polled(node, GimbalManager, "gimbal_manager", self._on_manager, latched(), warn),
            Polled(node, QuaternionStamped, "gimbal_attitude", self._on_attitude, sampled(), warn),
            Polled(node, VehicleHeading, "vehicle_heading", self._on_heading, sampled(), warn),
        ]
        steady_timer(node, READ_S, self._read)
        steady_timer(node, LOOK_S, self._look)

    def enable(self, reply: Reply) -> None:
        def answered(answer: CommandAnswer) -> None:
            if answer.ok:
                self._watch.forget_stop()
                self._judge_stop()
            reply(answer)

        self._command(True, answered)

    def stop(self, reply: Reply) -> None:
        """Stop the gimbal.

        ``reply`` is ok once the gimbal's attitude shows that it is at rest. After `CONFIRM_S` without that,
        ``reply`` is a refusal with the reason. `SteeringState.stop` continues to report the STOP's state.
        """
        self._watch.begin_stop(time.monotonic())
        self._stop_replies.append(reply)

        def answered(answer: CommandAnswer) -> None:
            self._watch.answer_stop("" if answer.ok else answer.message)

        self._command(False, answered)
        self._report()

    def _command(self, enabled: bool, answered: Callable[[CommandAnswer], None]) -> None:
        self._calls.command(self._enable_client, SetBool.Request(data=enabled), answered, CONTROLLER)

    def _on_status(self, message: Any) -> None:
        self._received_s = time.monotonic()
        if message.enabled and not self._last.enabled:
            self._watch.forget_stop()
        phase = PHASES.get(message.phase, f"phase {message.phase}")
        self._report(SteeringState(Controller.RUNNING, message.enabled, phase, message.reason))

    def _on_manager(self, message: Any) -> None:
        is_silent = message.control == GimbalManager.SILENT
        self._limits = {
            "pitch_limits": (_degrees(message.pitch_min), _degrees(message.pitch_max)),
            "yaw_limits": (_degrees(message.yaw_min), _degrees(message.yaw_max)),
        }
        self._watch.hear_manager(is_silent, message.alive, time.monotonic())

    def _on_attitude(self, message: Any) -> None:
        q, header = message.quaternion, message.header
        attitude = Attitude(stamp_ns(header.stamp), (q.w, q.x, q.y, q.z), header.frame_id == EARTH)
        self._watch.hear_attitude(attitude, time.monotonic())

    def _on_heading(self, message: Any) -> None:
        heading = Heading(stamp_ns(message.header.stamp), message.yaw, message.yaw_rate)
        self._watch.hear_heading(heading, time.monotonic())

    def _read(self) -> None:
        now_s = time.monotonic()
        for topic in self._topics:
            topic.read(now_s)
        if self._watch.stop in (Stop.WAITING, Stop.UNCONFIRMED):
            self._judge_stop()

    def _judge_stop(self) -> None:
        """Report the state of the last STOP. Answer the STOP commands unless the state is WAITING."""
        doubt = self._report()
        if self._watch.stop is Stop.WAITING:
            return
        replies, self._stop_replies = self._stop_replies, []
        for reply in replies:
            if self._watch.stop is Stop.STOPPED:
                reply(CommandAnswer(True, "stopped"))
            elif self._watch.stop is Stop.UNCONFIRMED:
                reply(CommandAnswer(False, f"STOP is not confirmed: {doubt}"))
            else:
                reply(CommandAnswer(False, "steering was enabled again"))

    def _look(self) -> None:
        """Request the controller's lifecycle state, and report if no status has arrived for ``silent_s``."""
        now_s = time.monotonic()
        is_offered = self._state_client.service_is_ready()
        if is_offered and not self._calls.waits_for(self._state_client):
            self._calls.ask(self._state_client, GetState.Request(), self._on_state)
        if self._received_s is None:
            if not is_offered:
                return
            self._received_s = now_s
        if now_s - self._received_s <= self._silent_s:
            if self._reported is not None:
                self._report()  # the controller sends, but the silence of bridge or gimbal may have changed
        elif now_s - self._inactive_s <= 2 * LOOK_S:
            self._report(SteeringState(Controller.INACTIVE))
        else:
            gone = Controller.SILENT if is_offered else Controller.GONE
            self._report(SteeringState(gone, self._last.enabled, self._last.phase))

    def _on_state(self, response: Any) -> None:
        if response.current_state.id in (State.PRIMARY_STATE_UNCONFIGURED, State.PRIMARY_STATE_INACTIVE):
            self._inactive_s = time.monotonic()

    def _report(self, controller: SteeringState | None = None) -> str:
        """Report the state of steering if it has changed. Returns why the last STOP is not confirmed, or "".

        ``controller``: new state of the controller; None: unchanged.
        """
        self._last = controller or self._last
        if self._received_s is None:
            return self._watch.judge_stop(time.monotonic())
        now_s, last = time.monotonic(), self._last
        doubt = self._watch.judge_stop(now_s)
        link, silent_s = self._watch.silence(now_s, last.enabled) or (None, 0.0)
        if link is None and last.controller in (Controller.SILENT, Controller.GONE):
            silent_s = now_s - self._received_s
        state = SteeringState(
            *(last.controller, last.enabled, last.phase, last.reason),
            *(link, round(silent_s, 1), self._watch.stop, doubt),
            angles=self._angles(now_s),
        )
        if self._sink is not None and state != self._reported:
            self._reported = state
            self._sink(state)
        return doubt

    def _angles(self, now_s: float) -> GimbalAngles | None:
        pitch, yaw = self._watch.angles(now_s) or (math.nan, None)
        pitch_deg = _degrees(pitch)
        if pitch_deg is None:
            return None
        return GimbalAngles(pitch_deg, None if yaw is None else _degrees(yaw), **self._limits)


def _degrees(angle: float) -> int | None:
    """Return an angle given in rad as whole degrees; None if it is not finite."""
    return round(math.degrees(angle)) if math.isfinite(angle) else None
