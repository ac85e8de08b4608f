"""Entry point of the executables efftam_gimbal, efftam_mavlink and efftam_position."""

from __future__ import annotations

from typing import Any

from efftam_ros.ros.common.process import NodeProgram, run_program

PROGRAMS = {
    "efftam_gimbal": NodeProgram(
        "efftam_flight.ros.gimbal.node",
        "GimbalNode",
        "efftam_flight.ros.parameters:GIMBAL",
        """Keeps the tracked target in the middle of the picture with the gimbal, once its service ~/enable is
called. Start it with tracker and MAVLink bridge by
  ros2 launch efftam_ros flight.launch.py
or on its own:
  efftam_gimbal --ros-args --params-file config/flight.yaml
Signs of angles and first flight: docs/flight.md. A file with all parameters: config/flight.yaml.""",
    ),
    "efftam_position": NodeProgram(
        "efftam_flight.ros.position",
        "PositionNode",
        "efftam_flight.ros.parameters:POSITION",
        """Publishes the position of the tracked target on the ground: topic position. Start it with tracker,
gimbal controller and MAVLink bridge by
  ros2 launch efftam_ros flight.launch.py
or on its own:
  efftam_position --ros-args --params-file config/flight.yaml
Requirements and limits: docs/position.md. A file with all parameters: config/flight.yaml.""",
    ),
    "efftam_mavlink": NodeProgram(
        "efftam_flight.ros.mavlink",
        "MavlinkNode",
        "efftam_flight.ros.parameters:MAVLINK",
        """The MAVLink bridge: a camera with tracking for ground stations, and the gimbal manager's client.
Start it with tracker and gimbal controller by
  ros2 launch efftam_ros flight.launch.py links:=udpin:0.0.0.0:14540
or on its own:
  efftam_mavlink --ros-args -p links:=udpin:0.0.0.0:14540
Wiring: docs/flight.md. A file with all parameters: config/flight.yaml.""",
    ),
}


def main(name: str, args: list[str] | None = None, **given: Any) -> int:
    """Run the node of this name until it ends, and return the exit code; see `run_program`."""
    return run_program(name, PROGRAMS[name], args, **given)
