"""Lifecycle nodes that say why a transition failed: rclpy discards what its callbacks raise."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import TypeVar

from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn

Owner = TypeVar("Owner", bound="ReportingNode")


def reported(
    transition: Callable[[Owner, LifecycleState], None],
) -> Callable[[Owner, LifecycleState], TransitionCallbackReturn]:
    """The callback of a transition, of a method that does it: successful unless the method raises."""

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
    """A lifecycle node whose transitions are `reported`."""

    def failed(self, error: Exception) -> TransitionCallbackReturn:
        """Say why a transition failed; returns its result."""
        self.get_logger().error("".join(traceback.format_exception(error)).rstrip())
        return TransitionCallbackReturn.ERROR

    def transition_ended(self) -> None:
        """Called after every transition, successful or not."""

    @reported
    def on_cleanup(self, state: LifecycleState) -> None:
        self.release()

    def release(self) -> None:
        """Free what `on_configure` took."""
        raise NotImplementedError
