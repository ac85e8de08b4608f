"""Entry point of the executable efftam_operator."""

from __future__ import annotations

from typing import Any

from efftam_ros.ros.common.process import NodeProgram, run_program

PROGRAMS = {
    "efftam_operator": NodeProgram(
        "efftam_operator.ros.node",
        "OperatorNode",
        "efftam_operator.ros.parameters",
        """Serves the operator's page: the live image with box and state, where the target is drawn. Start it
with the tracker by
  ros2 launch efftam_ros tracker.launch.py operator:=true
or on its own, in the tracker's namespace:
  efftam_operator --ros-args -r image:=/camera/image_raw -p port:=8080
For a phone: operator_address:=0.0.0.0 after `ros2 launch ...`, or -p address:=0.0.0.0; then scan the code
that is printed. More: docs/operator.md.""",
    ),
}


def main(name: str, args: list[str] | None = None, **given: Any) -> int:
    """Run the program ``name`` of `PROGRAMS`; arguments and exit status as in `run_program`."""
    return run_program(name, PROGRAMS[name], args, **given)
