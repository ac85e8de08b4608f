"""Subscriptions that report publishers whose QoS does not match."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rclpy.node import Node
from rclpy.qos import QoSProfile, qos_policy_name_from_kind
from rclpy.qos_overriding_options import QoSOverridingOptions

try:
    from rclpy.event_handler import SubscriptionEventCallbacks
except ImportError:  # Humble
    from rclpy.qos_event import SubscriptionEventCallbacks


class Subscriptions:
    """Subscriptions of a node that end together. ``report``: takes one line for each incompatible
    publisher."""

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

    def callbacks(self, topic: str) -> SubscriptionEventCallbacks:
        """Event callbacks for a subscription to ``topic``."""

        def on_incompatible(event: Any) -> None:
            policy = qos_policy_name_from_kind(event.last_policy_kind)
            self._report(
                f"a publisher of {topic} offers a QoS the subscription can't accept (policy {policy}):"
                f" nothing arrives from it; set qos_overrides.{topic}.subscription.{policy.lower()}"
            )

        return SubscriptionEventCallbacks(incompatible_qos=on_incompatible)
