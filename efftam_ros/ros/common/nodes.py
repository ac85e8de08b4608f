"""Functions and classes that the nodes share: QoS, publishers, subscriptions, timers, transitions, logs."""

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
except ImportError:  # ROS 2 Humble has the same classes in another module
    from rclpy.qos_event import SubscriptionEventCallbacks, UnsupportedEventTypeError

# Time between two checks whether all messages are acknowledged, s. A check takes about 1 ms.
ACKNOWLEDGED_PERIOD_S = 0.02
# Period in which lines of one kind are logged once by default, s; see `Throttle`.
PERIOD_S = 5.0

Owner = TypeVar("Owner", bound="ReportingNode")


def reliable(depth: int = 10) -> QoSProfile:
    """Return a QoS profile for reliable delivery of the newest ``depth`` messages."""
    return QoSProfile(depth=depth, reliability=ReliabilityPolicy.RELIABLE)


def sampled(depth: int = 10) -> QoSProfile:
    """Return a best-effort QoS profile, for subscriptions that must match reliable and best-effort
    publishers."""
    return QoSProfile(depth=depth, reliability=ReliabilityPolicy.BEST_EFFORT)


def latched() -> QoSProfile:
    """Return a reliable, transient-local QoS profile: late subscribers also receive the newest message."""
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
    """Return a publisher whose QoS the user may override by parameters.

    ``kind``: the message type. ``qos``: a profile that nothing else uses, because rclpy writes the overrides
    into this object.
    """
    options = QoSOverridingOptions.with_default_policies()
    return node.create_publisher(kind, topic, qos, qos_overriding_options=options)


def steady_timer(node: Node, period_s: float, call: Callable[[], None]) -> Any:
    """Return a timer on the steady clock: it keeps running if the ROS clock is set or stands still."""
    return node.create_timer(period_s, call, clock=Clock(clock_type=ClockType.STEADY_TIME))


def wait_until_acknowledged(publishers: Iterable[Any], seconds: float) -> None:
    """Wait until the subscribers have acknowledged the last messages, or ``seconds`` have passed.

    The middleware's own wait is called only with a timeout of zero, because it blocks all threads of Python
    and may use the system's clock, which may be set during the wait.
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
    """Decorate a method of a `ReportingNode` as the callback of a lifecycle transition.

    The transition succeeds unless the method raises. `ReportingNode.failed` then gives the result.
    """

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
    """A lifecycle node that logs the exceptions of its transitions; rclpy alone would discard them.

    The service ~/change_state refuses a transition that is not possible in the present state. The callback
    of rclpy would raise an exception instead, which ends the process.
    """

    def __init__(self, name: str, **kwargs: Any) -> None:
        super().__init__(name, **kwargs)
        self._make_transition = self._service_change_state.callback
        self._service_change_state.callback = self._on_change_state

    def start(self) -> None:
        """Configure and activate the node, unless the parameter autostart is false.

        If the configuration fails, the node stays unconfigured, and can be configured by a client later.
        """
        if not self.get_parameter("autostart").value:
            self.get_logger().info("autostart is false: configure and activate the node (ros2 lifecycle set)")
        elif self.trigger_configure() == TransitionCallbackReturn.SUCCESS:
            self.trigger_activate()

    def _on_change_state(self, request: Any, response: Any) -> Any:
        asked = request.transition
        # Each transition is a tuple: identifier, label, and the states before and after.
        possible = {number: label for number, label, *_ in self._state_machine.available_transitions}
        # A request may give a label, a number or both. The label takes precedence, as in rclpy.
        if asked.label in possible.values() if asked.label else asked.id in possible:
            return self._make_transition(request, response)
        self.get_logger().warning(
            f"transition {shown(asked.label) if asked.label else asked.id} refused: the node is"
            f" {self._state_machine.current_state[1]}; possible transitions:"
            f" {', '.join(f'{label} ({number})' for number, label in possible.items()) or 'none'}"
        )
        response.success = False
        return response

    def failed(self, error: Exception) -> TransitionCallbackReturn:
        """Log the exception that a transition raised, and return the transition's result."""
        self.get_logger().error("".join(traceback.format_exception(error)).rstrip())
        return TransitionCallbackReturn.ERROR

    def transition_ended(self) -> None:
        """Do nothing; subclasses override this. It is called after every transition, successful or not."""

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
    """Return a warning about the first of these topics that has several publishers; empty if none has.

    ``topics``: topics that ``node`` publishes itself. ``consequence``: the last part of the warning.
    """
    for topic in topics:
        name = node.resolve_topic_name(topic)
        found = node.get_publishers_info_by_topic(name)
        # A publisher may be discovered before the name of its node: no warning before all names are known.
        if len(found) > 1 and all(info.node_name != UNKNOWN_NODE for info in found):
            names = sorted({shown(info.node_name)[1:-1] for info in found})
            return f"{len(found)} publishers on {name} ({', '.join(names)}): {consequence}"
    return ""


class OtherPublishers:
    """Looks for other nodes that publish the topics of ``node``. A restarted node is not counted twice.

    ``consequence``: the last part of the warning that `look` returns.
    """

    def __init__(self, node: Node, topics: Sequence[str], consequence: str) -> None:
        self._node, self._consequence = node, consequence
        self._nodes = {topic: PublishingNodes() for topic in topics}

    def look(self, now_s: float) -> str:
        """Return a warning about the first of the topics that several nodes publish; empty if none is.

        ``now_s``: time on a steady clock.
        """
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
    """Return a message for /diagnostics with one status.

    The name of the status consists of the node's name and ``title``. ``level``: a level of DiagnosticStatus.
    ``values``: values by name, converted to text. ``device``: the hardware_id. The stamp is the present time
    of the node's clock.
    """
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
    """Subscriptions that are destroyed together, by `close`.

    ``report``: called with one line if a publisher's QoS is incompatible, or lost messages can't be counted.
    """

    def __init__(self, node: Node, report: Callable[[str], None]) -> None:
        self._node, self._report = node, report
        self._made: list[Any] = []

    def add(self, message_type: Any, topic: str, callback: Callable[[Any], None], qos: QoSProfile) -> Any:
        """Make and return a subscription whose QoS the user may override by parameters.

        ``qos``: a profile that nothing else uses, because rclpy writes the overrides into this object.
        """
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
        """Return the event callbacks for a subscription to ``topic``, a resolved name.

        ``lost``: called with rclpy's event when messages were lost in transport; None: losses are ignored.
        """

        def on_incompatible(event: Any) -> None:
            policy = qos_policy_name_from_kind(event.last_policy_kind)
            self._report(
                f"a publisher of {topic} offers a QoS the subscription can't accept (policy {policy}):"
                f" nothing arrives from it; set qos_overrides.{topic}.subscription.{policy.lower()}"
            )

        events = _EventCallbacks(incompatible_qos=on_incompatible, message_lost=lost)
        events.report = lambda: self._report(f"{middleware()} can't count the lost messages of {topic}")
        return events


class _EventCallbacks(SubscriptionEventCallbacks):
    """Event callbacks that also work with a middleware that can't count lost messages (DDS and Zenoh can).

    ``report``: called if the middleware can't count them.
    """

    report: Callable[[], None]

    def create_event_handlers(self, *arguments: Any) -> Any:
        try:
            return super().create_event_handlers(*arguments)
        except UnsupportedEventTypeError:
            self.message_lost = None
            self.report()
            return super().create_event_handlers(*arguments)


class Throttle:
    """Passes at most ``burst`` lines of each kind per ``period_s`` to ``write``. Thread-safe.

    The next line that is passed gives the number of lines of its kind that were suppressed before.
    """

    def __init__(self, write: Callable[[str], object], burst: int = 1, period_s: float = PERIOD_S) -> None:
        self._write, self._burst, self._period_s = write, burst, period_s
        self._lock = threading.Lock()
        # Times of the last `burst` lines that were passed to `write`, s on the steady clock, by kind.
        self._passed: dict[str, deque[float]] = {}
        self._held: dict[str, int] = {}  # number of suppressed lines not reported yet, by kind

    def __call__(self, kind: str, text: str) -> None:
        now = time.monotonic()
        with self._lock:
            passed = self._passed.setdefault(kind, deque(maxlen=self._burst))
            if len(passed) == self._burst and now - passed[0] < self._period_s:
                self._held[kind] = self._held.get(kind, 0) + 1
                return
            passed.append(now)
            held = self._held.pop(kind, 0)
        self._write(f"{text} ({held} similar lines left out)" if held else text)


class ThrottledLog:
    """A node's log that limits how often lines of one kind appear. Thread-safe.

    Per 5 s and kind, ``fail`` logs one error, ``warn`` one warning and ``inform`` ten lines of level INFO.
    ``remind`` logs one warning per 30 s and kind, for states that last.
    """

    def __init__(self, logger: Any) -> None:
        # rclpy allows only one severity at each line of code that logs. So each severity has its own lambda.
        self.fail = Throttle(lambda text: logger.error(text))
        self.warn = Throttle(lambda text: logger.warning(text))
        self.remind = Throttle(lambda text: logger.warning(text), period_s=30.0)
        self.inform = Throttle(lambda text: logger.info(text), burst=10)


Config = TypeVar("Config")

# The QoS policies whose value is a name, and the types that contain the allowed names.
QOS_POLICIES: Mapping[str, type[Enum]] = {
    "durability": DurabilityPolicy,
    "history": HistoryPolicy,
    "liveliness": LivelinessPolicy,
    "reliability": ReliabilityPolicy,
}


def check_qos_overrides(node: Node) -> None:
    """Raise InputError if a QoS override given at start-up has a value that its policy does not have.

    rclpy would report such a value only when the topic is first used.
    """
    for name, parameter in node._parameter_overrides.items():
        policies = QOS_POLICIES.get(name.rpartition(".")[2])
        if name.startswith("qos_overrides.") and policies is not None:
            allowed = [policy.lower() for policy in policies.__members__ if policy != "UNKNOWN"]
            if parameter.value not in allowed:
                raise InputError(
                    f"parameter {name} is {shown(parameter.value)}; give one of {', '.join(allowed)}"
                )
