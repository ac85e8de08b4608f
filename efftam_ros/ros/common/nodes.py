"""What the nodes have in common: QoS, topics, timers, transitions, diagnostics, logs, parameters."""

from __future__ import annotations

import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from importlib import import_module
from typing import Any, TypeVar

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from rclpy.clock import Clock, ClockType
from rclpy.duration import Duration
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn
from rclpy.node import Node
from rclpy.qos import (
    DurabilityPolicy,
    HistoryPolicy,
    LivelinessPolicy,
    QoSProfile,
    ReliabilityPolicy,
    qos_policy_name_from_kind,
)
from rclpy.qos_overriding_options import QoSOverridingOptions

from efftam_ros.core.errors import InputError, shown
from efftam_ros.package_files import middleware
from efftam_ros.ros.common.publishing_nodes import UNKNOWN_NODE, PublishingNodes, identities

try:
    from rclpy.event_handler import SubscriptionEventCallbacks, UnsupportedEventTypeError
except ImportError:  # Humble
    from rclpy.qos_event import SubscriptionEventCallbacks, UnsupportedEventTypeError

# How often it is asked whether messages have been acknowledged, s: it takes about a millisecond.
ACKNOWLEDGED_PERIOD_S = 0.02
# Within which a throttled line is logged once, s.
PERIOD_S = 5.0

Owner = TypeVar("Owner", bound="ReportingNode")


def reliable(depth: int = 10) -> QoSProfile:
    """Reliable delivery of the newest ``depth`` messages."""
    return QoSProfile(depth=depth, reliability=ReliabilityPolicy.RELIABLE)


def sampled(depth: int = 10) -> QoSProfile:
    """Best effort, for subscribers to a stream whose publisher may be reliable or not."""
    return QoSProfile(depth=depth, reliability=ReliabilityPolicy.BEST_EFFORT)


def latched() -> QoSProfile:
    """Reliable and transient local: the newest message also reaches late subscribers."""
    return QoSProfile(
        depth=1, reliability=ReliabilityPolicy.RELIABLE, durability=DurabilityPolicy.TRANSIENT_LOCAL
    )


def optional_messages(package: str) -> Any:
    """Return the module of a package's messages, or None if the package is not installed."""
    try:
        return import_module(f"{package}.msg")
    except ModuleNotFoundError:
        return None


def make_publisher(node: Node, kind: Any, topic: str, qos: QoSProfile) -> Any:
    """Return a publisher whose QoS the user may override. ``qos``: a new profile, as rclpy writes overrides
    into it."""
    options = QoSOverridingOptions.with_default_policies()
    return node.create_publisher(kind, topic, qos, qos_overriding_options=options)


def steady_timer(node: Node, period_s: float, call: Callable[[], None]) -> Any:
    """Return a timer that a clock which is set or stands still does not stop."""
    return node.create_timer(period_s, call, clock=Clock(clock_type=ClockType.STEADY_TIME))


def wait_until_acknowledged(publishers: Iterable[Any], seconds: float) -> None:
    """Wait until the subscribers have acknowledged the last messages, at most so long on the steady clock.

    The middleware's own wait may go by the system's clock, which may be set meanwhile, and stops all threads
    of Python: here it is only asked.
    """
    end_s = time.monotonic() + seconds
    for publisher in publishers:
        while True:
            time.sleep(ACKNOWLEDGED_PERIOD_S)
            if publisher.wait_for_all_acked(Duration()) or time.monotonic() >= end_s:
                break


def reported(
    transition: Callable[[Owner, LifecycleState], None],
) -> Callable[[Owner, LifecycleState], TransitionCallbackReturn]:
    """Make a method the callback of a transition, which succeeds unless the method raises."""

    def run(node: Owner, state: LifecycleState) -> TransitionCallbackReturn:
        result = TransitionCallbackReturn.SUCCESS
        try:
            transition(node, state)
        except Exception as error:
            result = node.failed(error)
        node.transition_ended()
        return result

    return run


class ReportingNode(LifecycleNode):
    """A lifecycle node whose transitions are `reported`: rclpy discards the exceptions of its callbacks.

    The service ~/change_state refuses a transition that the state does not have; rclpy's own callback raises
    then, which would end the process.
    """

    def __init__(self, name: str, **kwargs: Any) -> None:
        super().__init__(name, **kwargs)
        self._make_transition = self._service_change_state.callback
        self._service_change_state.callback = self._on_change_state

    def start(self) -> None:
        """Configure and activate, unless the parameter autostart is false. Where that fails, the node stays
        unconfigured, waiting for corrected parameters."""
        if not self.get_parameter("autostart").value:
            self.get_logger().info("autostart is off: waiting to be configured")
        elif self.trigger_configure() == TransitionCallbackReturn.SUCCESS:
            self.trigger_activate()

    def _on_change_state(self, request: Any, response: Any) -> Any:
        asked = request.transition
        # Identifier, label, and the states before and after.
        possible = {number: label for number, label, *_ in self._state_machine.available_transitions}
        # As in rclpy, a label counts more than a number.
        if asked.label in possible.values() if asked.label else asked.id in possible:
            return self._make_transition(request, response)
        self.get_logger().warning(
            f"transition {shown(asked.label) if asked.label else asked.id} refused: the node is"
            f" {self._state_machine.current_state[1]}; possible are"
            f" {', '.join(f'{label} ({number})' for number, label in possible.items()) or 'none'}"
        )
        response.success = False
        return response

    def failed(self, error: Exception) -> TransitionCallbackReturn:
        self.get_logger().error("".join(traceback.format_exception(error)).rstrip())
        return TransitionCallbackReturn.ERROR

    def transition_ended(self) -> None:
        """Called after every transition, successful or not."""

    @reported
    def on_cleanup(self, state: LifecycleState) -> None:
        self.release()

    @reported
    def on_shutdown(self, state: LifecycleState) -> None:
        self.release()

    @reported
    def on_error(self, state: LifecycleState) -> None:
        self.release()

    def release(self) -> None:
        """Release what `on_configure` created."""
        raise NotImplementedError


def other_publishers(node: Node, topics: Sequence[str], consequence: str) -> str:
    """Name the first of a node's own topics that another node publishes too, and the consequence, in one
    line; empty when there is none."""
    for topic in topics:
        name = node.resolve_topic_name(topic)
        found = node.get_publishers_info_by_topic(name)
        # A publisher may be discovered before the name of its node; wait until a later check knows the name.
        if len(found) > 1 and all(info.node_name != UNKNOWN_NODE for info in found):
            names = sorted({shown(info.node_name)[1:-1] for info in found})
            return f"{len(found)} publishers on {name} ({', '.join(names)}): {consequence}"
    return ""


class OtherPublishers:
    """Other nodes that publish what this node does. One that was started again is not taken for a second."""

    def __init__(self, node: Node, topics: Sequence[str], consequence: str) -> None:
        self._node, self._consequence = node, consequence
        self._nodes = {topic: PublishingNodes() for topic in topics}

    def look(self, now_s: float) -> str:
        """Return the first of the topics that another node publishes too, and the consequence, in one line;
        empty when there is none. ``now_s``: of a steady clock."""
        for name, nodes in self._nodes.items():
            topic = self._node.resolve_topic_name(name)
            names, _ = nodes.look(identities(self._node.get_publishers_info_by_topic(topic)), now_s)
            if len(names) > 1:
                shown_names = ", ".join(shown(name)[1:-1] for name in sorted(set(names)))
                return f"{len(names)} publishers on {topic} ({shown_names}): {self._consequence}"
        return ""


def diagnostics(
    node: Node, title: str, level: int | bytes, message: str, values: Mapping[str, object], device: str = ""
) -> DiagnosticArray:
    """Return a message of one status, named by node and title. ``device``: its hardware_id."""
    status = DiagnosticStatus(
        level=bytes([level]) if isinstance(level, int) else level,
        name=f"{node.get_fully_qualified_name().lstrip('/')}: {title}",
        message=message,
        hardware_id=device,
        values=[KeyValue(key=key, value=str(value)) for key, value in values.items()],
    )
    array = DiagnosticArray(status=[status])
    array.header.stamp = node.get_clock().now().to_msg()
    return array


class Subscriptions:
    """Subscriptions that end together. ``report``: takes one line for each incompatible publisher."""

    def __init__(self, node: Node, report: Callable[[str], None]) -> None:
        self._node, self._report = node, report
        self._made: list[Any] = []

    def add(self, message_type: Any, topic: str, callback: Callable[[Any], None], qos: QoSProfile) -> Any:
        """Subscribe. ``qos`` must be a new profile: rclpy writes overrides into the object it is given."""
        made = self._node.create_subscription(
            message_type,
            topic,
            callback,
            qos,
            event_callbacks=self.callbacks(self._node.resolve_topic_name(topic)),
            qos_overriding_options=QoSOverridingOptions.with_default_policies(),
        )
        self._made.append(made)
        return made

    def remove(self, subscription: Any) -> None:
        self._made.remove(subscription)
        self._node.destroy_subscription(subscription)

    def close(self) -> None:
        while self._made:
            self.remove(self._made[-1])

    def callbacks(self, topic: str, lost: Callable[[Any], None] | None = None) -> SubscriptionEventCallbacks:
        """Event callbacks for a subscription to ``topic``; ``lost``: called for messages lost in
        transport."""

        def on_incompatible(event: Any) -> None:
            policy = qos_policy_name_from_kind(event.last_policy_kind)
            self._report(
                f"a publisher of {topic} offers a QoS the subscription can't accept (policy {policy}):"
                f" nothing arrives from it; set qos_overrides.{topic}.subscription.{policy.lower()}"
            )

        events = _EventCallbacks(incompatible_qos=on_incompatible, message_lost=lost)
        events.report = lambda: self._report(f"{middleware()} does not count the messages that {topic} loses")
        return events


class _EventCallbacks(SubscriptionEventCallbacks):
    """Subscribes also where the middleware does not count lost messages (DDS and Zenoh do)."""

    report: Callable[[], None]

    def create_event_handlers(self, *arguments: Any) -> Any:
        try:
            return super().create_event_handlers(*arguments)
        except UnsupportedEventTypeError:
            self.message_lost = None
            self.report()
            return super().create_event_handlers(*arguments)


class Throttle:
    """Passes ``burst`` lines per kind and period to ``write``, with the number that was suppressed."""

    def __init__(self, write: Callable[[str], object], burst: int = 1, period_s: float = PERIOD_S) -> None:
        self._write, self._burst, self._period_s = write, burst, period_s
        self._lock = threading.Lock()
        self._passed: dict[str, deque[float]] = {}  # when the last lines of a kind were passed
        self._held: dict[str, int] = {}

    def __call__(self, kind: str, text: str) -> None:
        now = time.monotonic()
        with self._lock:
            passed = self._passed.setdefault(kind, deque(maxlen=self._burst))
            if len(passed) == self._burst and now - passed[0] < self._period_s:
                self._held[kind] = self._held.get(kind, 0) + 1
                return
            passed.append(now)
            held = self._held.pop(kind, 0)
        self._write(f"{text} ({held} more like it)" if held else text)


class ThrottledLog:
    """A node's log in which each kind of line appears once per period, and each kind of information ten
    times. Thread-safe. ``remind`` is for warnings of a lasting state.
    """

    def __init__(self, logger: Any) -> None:
        # rclpy ties each logging call site to one severity, so each severity needs its own.
        self.fail = Throttle(lambda text: logger.error(text))
        self.warn = Throttle(lambda text: logger.warning(text))
        self.remind = Throttle(lambda text: logger.warning(text), period_s=30.0)
        self.inform = Throttle(lambda text: logger.info(text), burst=10)


Config = TypeVar("Config")

# Policies of which a QoS override names one.
QOS_POLICIES: Mapping[str, type[Enum]] = {
    "durability": DurabilityPolicy,
    "history": HistoryPolicy,
    "liveliness": LivelinessPolicy,
    "reliability": ReliabilityPolicy,
}


def check_qos_overrides(node: Node) -> None:
    """Raise InputError for a QoS override given at start-up that names no policy, which rclpy reports only
    when the topic is used."""
    for name, parameter in node._parameter_overrides.items():
        policies = QOS_POLICIES.get(name.rpartition(".")[2])
        if name.startswith("qos_overrides.") and policies is not None:
            allowed = [policy.lower() for policy in policies.__members__ if policy != "UNKNOWN"]
            if parameter.value not in allowed:
                raise InputError(
                    f"parameter {name} is {shown(parameter.value)}; give one of {', '.join(allowed)}"
                )
