"""The operator page's node as a process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from efftam_ros.ros.common.process import run_node

if TYPE_CHECKING:
    from efftam_ros.ros.operator.node import OperatorNode

HELP = """usage: efftam_operator [--ros-args [-p NAME:=VALUE] [-r FROM:=TO]]

Serves the operator's page: the live image with box and state, where the target is drawn. Start it
with the tracker by
  ros2 launch efftam_ros tracker.launch.py operator:=true
or on its own, in the tracker's namespace:
  efftam_operator --ros-args -r image:=/camera/image_raw -p port:=8080
Parameters and their meanings: docs/operator.md."""


def main(args: list[str] | None = None) -> int:
    """Serve the page until a signal; returns the exit code."""

    def make() -> OperatorNode:
        from efftam_ros.ros.operator.node import OperatorNode

        return OperatorNode()

    return run_node("efftam_operator", make, args, HELP)
