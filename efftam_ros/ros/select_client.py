"""Asks a running tracker to follow what a JSON object on stdin says; prints the node's own words.

Started by `efftam select`, which reads the command line: a process of its own, so that ROS is loaded only
here.
"""

from __future__ import annotations

import base64
import importlib
import json
import signal
import sys
import time
from contextlib import suppress
from typing import Any

from efftam_ros.core.errors import InputError
from efftam_ros.ros.common.process import SIGNALS, StopFlag, start_ros

SELECT, KIND = "select_target", "efftam_ros/srv/SelectTarget"
# How long the loop may take to begin, s: it waits for the frame in work.
DECISION_S = 10.0
NO_ROS = (
    "efftam select: ROS 2 or the built messages are not in this environment ({error}); source"
    " .venv/setup.bash, or your ROS 2 and install/setup.bash"
)


def main() -> int:
    """Returns 0: accepted, 1: refused, 2: no node was found, 130: a signal came."""
    with StopFlag() as stop:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)  # blocked by whoever started this
        text = sys.stdin.read()
        if stop.asked:  # the request may be incomplete
            return 130
        try:
            return _run(stop, json.loads(text))
        except _StoppedError:
            return 130


class _StoppedError(Exception):
    """A signal came while something was waited for."""


def _run(stop: StopFlag, request: dict[str, Any]) -> int:
    try:
        import rclpy

        importlib.import_module("efftam_ros.srv")  # the messages are built
    except ImportError as error:
        print(NO_ROS.format(error=error), file=sys.stderr)
        return 2
    try:
        start_ros()
    except InputError as error:
        print(f"efftam select: {error}", file=sys.stderr)
        return 2
    node = rclpy.create_node("efftam_select", namespace=request["namespace"])
    try:
        return _ask(stop, node, request)
    finally:
        node.destroy_node()
        rclpy.try_shutdown()


def _ask(stop: StopFlag, node: Any, request: dict[str, Any]) -> int:
    from rclpy.executors import SingleThreadedExecutor
    from rclpy.qos import DurabilityPolicy, QoSProfile

    from efftam_ros.msg import SelectionResult
    from efftam_ros.srv import ClearTarget, SelectTarget

    executor = SingleThreadedExecutor()
    executor.add_node(node)
    results: list[Any] = []
    lasting = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
    node.create_subscription(SelectionResult, "selection_result", results.append, lasting)

    def wait(done: Any, seconds: float) -> bool:
        end = time.monotonic() + seconds
        while not done() and time.monotonic() < end:
            if stop.asked:
                raise _StoppedError
            executor.spin_once(timeout_sec=0.05)
        return bool(done())

    service = f"{request['node']}/{'clear_target' if request['clear'] else SELECT}"
    client = node.create_client(ClearTarget if request["clear"] else SelectTarget, service)
    if not wait(client.service_is_ready, request["wait_s"]):
        print(f"efftam select: {_explain_absence(node, client.srv_name)}", file=sys.stderr)
        return 2
    asked = ClearTarget.Request() if request["clear"] else SelectTarget.Request(selection=_selection(request))
    future = client.call_async(asked)
    if not wait(future.done, DECISION_S):
        print(f"efftam select: {client.srv_name} does not answer in {DECISION_S:g} s", file=sys.stderr)
        return 2
    answer = future.result()
    if not answer.success:
        print(f"refused: {answer.message}")
        return 1
    if request["clear"]:
        print("cleared")
        return 0

    def decided() -> list[Any]:
        return [r for r in results if r.selection == answer.selection or _answers(r, request)]

    # The check is passed; the network may still find nothing in the image.
    if wait(decided, DECISION_S) and decided()[-1].outcome == SelectionResult.REFUSED:
        print(f"refused: {decided()[-1].message}")
        return 1
    note = f": {answer.message}" if answer.message else ""
    print(f"selection {answer.selection} accepted{note}")
    return 0


def _answers(result: Any, request: dict[str, Any]) -> bool:
    """A refusal of the command that named this stamp, and not what was kept from before."""
    stamp = result.header.stamp
    named = (stamp.sec, stamp.nanosec) == (request["sec"], request["nanosec"])
    return bool(result.outcome == result.REFUSED and named and result.header.frame_id == request["tag"])


def _selection(request: dict[str, Any]) -> Any:
    from geometry_msgs.msg import Point

    from efftam_ros.msg import TargetSelection

    selection = TargetSelection()
    # Results carry the header of their command: the tag tells ours from those of others.
    request["tag"] = f"efftam_select_{time.time_ns()}"
    selection.header.frame_id = request["tag"]
    selection.header.stamp.sec, selection.header.stamp.nanosec = request["sec"], request["nanosec"]
    if "box" in request:
        selection.kind = TargetSelection.BOX
        selection.x, selection.y, selection.width, selection.height = request["box"]
    elif "points" in request:
        selection.kind = TargetSelection.POINTS
        selection.points = [Point(x=x, y=y) for x, y in request["points"]]
        selection.labels = request["labels"]
    else:
        selection.kind = TargetSelection.MASK
        mask = selection.mask
        mask.encoding, mask.width, mask.height = "mono8", request["width"], request["height"]
        mask.step = request["width"]
        mask.data.frombytes(base64.b64decode(request["mask"]))
    return selection


def _explain_absence(node: Any, service: str) -> str:
    from rclpy.node import NodeNameNonExistentError

    there = set()
    for place in node.get_node_names_and_namespaces():
        with suppress(NodeNameNonExistentError):  # it has ended since
            # Of each node, as the list of all services holds those that have clients alone, such as this one.
            there |= {
                name for name, kinds in node.get_service_names_and_types_by_node(*place) if KIND in kinds
            }
    trackers = ", ".join(sorted(name.removesuffix(f"/{SELECT}") for name in there))
    found = (
        f"the trackers here are {trackers}: give --namespace, and --node where it is not efftam_tracker"
        if trackers
        else "none is there"
    )
    wanted = node.resolve_service_name(service)
    return f"no tracker offers {wanted}; {found}; is it configured, and on this ROS_DOMAIN_ID?"


if __name__ == "__main__":
    sys.exit(main())
