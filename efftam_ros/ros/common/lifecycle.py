"""Base of the lifecycle nodes: reports why a transition failed (rclpy discards the exceptions of its
callbacks), and which other nodes publish the same topics."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn
from rclpy.node import Node

from efftam_ros.core.errors import shown

# rclpy's name for a node whose name has not been discovered yet.
UNKNOWN_NODE = "_NODE_NAME_UNKNOWN_"

Owner = TypeVar("Owner", bound="ReportingNode")


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
    """A lifecycle node whose transitions are `reported`.

    The service ~/change_state refuses a transition that the state does not have; rclpy's own callback raises
    then, which would end the process.
    """

    def __init__(self, name: str, **kwargs: Any) -> None:
        super().__init__(name, **kwargs)
        self._make_transition = self._service_change_state.callback
        self._service_change_state.callback = self._on_change_state

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
        """Log why a transition failed; returns the transition's result."""
        self.get_logger().error("".join(traceback.format_exception(error)).rstrip())
        return TransitionCallbackReturn.ERROR

    def transition_ended(self) -> None:
        """Called after every transition, successful or not."""

    @reported
    def on_cleanup(self, state: LifecycleState) -> None:
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
