"""The ROS client of `efftam select`: sends a selection or a clear to a tracker, and prints the result."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from typing import Any

import numpy as np
import rclpy
from numpy.typing import NDArray
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node, NodeNameNonExistentError

from efftam_ros.images.message import fill_image
from efftam_ros.messages.reports import Selection
from efftam_ros.msg import SelectionResult, TargetSelection
from efftam_ros.ros.common.conversions import selection_message
from efftam_ros.ros.common.nodes import latched
from efftam_ros.ros.common.process import spin, start_ros
from efftam_ros.srv import ClearTarget, SelectTarget

SELECT, KIND = "select_target", "efftam_ros/srv/SelectTarget"
# Longest wait for the service's response, and then for the result of the selection, s. The tracker finishes
# the frame in work before it begins with a selection.
DECISION_S = 10.0


def ask(
    selection: Selection | None,
    mask: NDArray[np.uint8] | None,
    target_id: int,
    tracker: str,
    namespace: str,
    wait_s: float,
) -> int:
    """Send a selection to the node ``tracker`` and wait for the result, which is printed.

    ``selection``: None clears the target. ``mask``: the selected pixels (above 127) in an array of the
    image's height and width; None for a selection by box or points. ``target_id``: id of the target to clear;
    a selection contains its own. ``wait_s``: longest wait until the tracker's service is found, s.

    Returns 0 if the command was accepted, 1 if it was refused, and 2 if no tracker was found or it did not
    respond. Raises InputError if ROS does not start, or the selection's stamp is too large for a message.
    """
    start_ros()
    node = rclpy.create_node("efftam_select", namespace=namespace)
    try:
        message = None if selection is None else _message(selection, mask)
        return _ask(node, message, target_id, tracker, wait_s)
    finally:
        node.destroy_node()
        rclpy.try_shutdown()


def _ask(node: Node, selection: Any, target_id: int, tracker: str, wait_s: float) -> int:
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    results: list[Any] = []
    node.create_subscription(SelectionResult, "selection_result", results.append, latched())

    kind, service = (ClearTarget, "clear_target") if selection is None else (SelectTarget, SELECT)
    client = node.create_client(kind, f"{tracker}/{service}")
    if not spin(executor, client.service_is_ready, wait_s):
        print(f"efftam select: {_explain_absence(node, client.srv_name)}", file=sys.stderr)
        return 2
    asked = {"target_id": target_id} if selection is None else {"selection": selection}
    future = client.call_async(kind.Request(**asked))
    if not spin(executor, future.done, DECISION_S):
        print(
            f"efftam select: {client.srv_name} did not answer within {DECISION_S:g} s; see the tracker's log",
            file=sys.stderr,
        )
        return 2
    answer = future.result()
    if not answer.success:
        print(f"refused: {answer.message}")
        return 1
    if selection is None:
        print("cleared")
        return 0

    def decided() -> list[Any]:
        return [r for r in results if r.selection == answer.selection or _answers(r, selection)]

    # The service accepted the selection. The tracker refuses it later if the network finds no object.
    message = answer.message
    if spin(executor, decided, DECISION_S):
        message = decided()[-1].message
        if decided()[-1].outcome == SelectionResult.REFUSED:
            print(f"refused: {message}")
            return 1
    note = f": {message}" if message else ""
    print(f"selection {answer.selection} of target {answer.target_id} accepted{note}")
    return 0


def _answers(result: Any, selection: Any) -> bool:
    """Return whether ``result`` refuses this selection.

    ``result`` may be the result of an earlier selection, because the topic is latched.
    """
    return bool(result.outcome == result.REFUSED and result.header == selection.header)


def _message(selection: Selection, mask: NDArray[np.uint8] | None) -> Any:
    message = selection_message(selection)
    # A result repeats the header of its command. This frame_id marks the results of this client's command.
    message.header.frame_id = f"efftam_select_{time.time_ns()}"
    if mask is not None:
        message.kind = TargetSelection.MASK
        fill_image(message.mask, mask, "mono8")
    return message


def _explain_absence(node: Any, service: str) -> str:
    there = set()
    for place in node.get_node_names_and_namespaces():
        with suppress(NodeNameNonExistentError):  # the node has ended since it was listed
            # Each node is queried for its services: the list of all services also contains services that have
            # only clients, such as the client of this function's caller.
            there |= {
                name for name, kinds in node.get_service_names_and_types_by_node(*place) if KIND in kinds
            }
    trackers = ", ".join(sorted(name.removesuffix(f"/{SELECT}") for name in there))
    found = (
        f"these trackers were found: {trackers}; select one by --namespace, and by --node if its name differs"
        if trackers
        else "no tracker was found"
    )
    wanted = node.resolve_service_name(service)
    return (
        f"no tracker offers {wanted}; {found}; check that the tracker is configured and has the same"
        " ROS_DOMAIN_ID"
    )
