"""The gimbal controller's node as a process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from efftam_ros.ros.common.process import run_node

if TYPE_CHECKING:
    from efftam_ros.ros.gimbal.node import GimbalNode

HELP = """usage: efftam_gimbal [--ros-args [-p NAME:=VALUE] [--params-file FILE] [-r FROM:=TO]]

Keeps the tracked target in the middle of the picture with the gimbal, once its service ~/enable is called.
Start it with tracker and MAVLink bridge by
  ros2 launch efftam_ros flight.launch.py
or on its own:
  efftam_gimbal --ros-args --params-file config/flight.yaml
Parameters, their ranges and meanings: config/flight.yaml. Signs and first flight: docs/flight.md."""


def main(args: list[str] | None = None) -> int:
    """Run the node until a signal, after which zero rates go out; returns the exit code."""

    def make() -> GimbalNode:
        from efftam_ros.ros.gimbal.node import GimbalNode

        return GimbalNode()

    return run_node("efftam_gimbal", make, args, HELP)
