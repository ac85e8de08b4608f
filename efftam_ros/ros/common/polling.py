"""Subscriptions that a node reads at its own rate, so that no message wakes the node up.

rclpy's executor builds its set of waitables twice for each message that wakes it. That would take most of the
computing time of a node that works at a fixed rate.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from rclpy.callback_groups import CallbackGroup
from rclpy.node import Node
from rclpy.qos import QoSProfile
from rclpy.subscription import Subscription

from efftam_ros.core.errors import InputError
from efftam_ros.ros.common.nodes import Throttle


class _NoMessages(CallbackGroup):
    """A callback group whose messages the executor does not take. It still handles the subscriptions' events,
    such as a QoS that does not match."""

    def can_execute(self, entity: Any) -> bool:
        return not isinstance(entity, Subscription)

    def beginning_execution(self, entity: Any) -> bool:
        return True

    def ending_execution(self, entity: Any) -> None:
        pass


class Polled:
    """A subscription whose messages the owner passes to ``take`` by calling `read`.

    ``period_s``: shortest time between two readings, s. ``warn``: logs the InputErrors that ``take`` raises.
    """

    def __init__(
        self,
        node: Node,
        kind: Any,
        topic: str,
        take: Callable[[Any], None],
        qos: QoSProfile,
        warn: Throttle,
        period_s: float = 0.0,
    ) -> None:
        self._period_s, self._due_s = period_s, -math.inf
        self._node, self._kind, self._topic, self._take, self._warn = node, kind, topic, take, warn
        self._subscription = node.create_subscription(kind, topic, take, qos, callback_group=_NoMessages())

    def read(self, now_s: float) -> None:
        """Pass all messages that have arrived to ``take``, in order.

        Does nothing if the last reading was less than ``period_s`` ago. ``now_s``: time on a steady clock.
        """
        if now_s < self._due_s:
            return
        self._due_s = now_s + self._period_s
        handle = self._subscription.handle
        with handle:
            while (found := handle.take_message(self._kind, False)) is not None:
                try:
                    self._take(found[0])
                except InputError as refusal:
                    self._warn(self._topic, f"{self._topic}: {refusal}")

    def close(self) -> None:
        self._node.destroy_subscription(self._subscription)
