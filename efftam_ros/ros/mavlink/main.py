"""The MAVLink bridge's node as a process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from efftam_ros.ros.common.process import run_node

if TYPE_CHECKING:
    from efftam_ros.ros.mavlink.node import MavlinkNode

HELP = """usage: efftam_mavlink [--ros-args [-p NAME:=VALUE] [--params-file FILE] [-r FROM:=TO]]

The MAVLink bridge: a camera with tracking for ground stations, and the gimbal manager's client. Start it with
tracker and gimbal controller by
  ros2 launch efftam_ros flight.launch.py links:=udpin:0.0.0.0:14540
or on its own:
  efftam_mavlink --ros-args -p links:=udpin:0.0.0.0:14540
Parameters, their ranges and meanings: config/flight.yaml. Wiring: docs/flight.md."""


def main(args: list[str] | None = None) -> int:
    """Run the node until a signal, after which zero rates leave on the wire; returns the exit code."""

    def make() -> MavlinkNode:
        from efftam_ros.core.errors import InputError

        try:
            from efftam_ros.ros.mavlink.node import MavlinkNode
        except ModuleNotFoundError as error:
            if "pymavlink" not in str(error):
                raise
            raise InputError(str(error)) from error
        return MavlinkNode()

    return run_node("efftam_mavlink", make, args, HELP)
