"""The nodes as processes: `main` runs the one of a name."""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

from efftam_ros.ros.common.process import run_node


class NodeProgram(NamedTuple):
    """Module and class of a node, and what --help prints below the usage."""

    module: str
    node: str
    text: str


PROGRAMS = {
    "efftam_tracker": NodeProgram(
        "tracker.node",
        "TrackerNode",
        """Tracks one target in the images of the topic `image`. Start it with
  ros2 launch efftam_ros tracker.launch.py image:=/camera/image_raw
or on its own:
  efftam_tracker --ros-args -r image:=/camera/image_raw -p backend:=onnxruntime-cpu
Parameters, their ranges and meanings: config/tracker.yaml. Select the target with `efftam select`, the
service ~/select_target or the topic `select`.""",
    ),
    "efftam_camera": NodeProgram(
        "camera",
        "CameraNode",
        """Publishes a stream (rtsp://..., udp://@:5600), a V4L2 device or a video file as image, with
camera_info from a calibration file. Start it with the tracker by
  ros2 launch efftam_ros tracker.launch.py stream:=rtsp://192.168.0.10:554/live
or on its own:
  efftam_camera --ros-args -p stream:=/dev/video0 -p calibration:=camera.yaml -r image:=/camera/image_raw
Parameters: ros2 param list /efftam_camera, ros2 param describe /efftam_camera NAME; docs/camera.md.""",
    ),
    "efftam_operator": NodeProgram(
        "operator.node",
        "OperatorNode",
        """Serves the operator's page: the live image with box and state, where the target is drawn. Start it
with the tracker by
  ros2 launch efftam_ros tracker.launch.py operator:=true
or on its own, in the tracker's namespace:
  efftam_operator --ros-args -r image:=/camera/image_raw -p port:=8080
Parameters and their meanings: docs/operator.md.""",
    ),
    "efftam_gimbal": NodeProgram(
        "gimbal.node",
        "GimbalNode",
        """Keeps the tracked target in the middle of the picture with the gimbal, once its service ~/enable is
called. Start it with tracker and MAVLink bridge by
  ros2 launch efftam_ros flight.launch.py
or on its own:
  efftam_gimbal --ros-args --params-file config/flight.yaml
Parameters, their ranges and meanings: config/flight.yaml. Signs and first flight: docs/flight.md.""",
    ),
    "efftam_mavlink": NodeProgram(
        "mavlink",
        "MavlinkNode",
        """The MAVLink bridge: a camera with tracking for ground stations, and the gimbal manager's client.
Start it with tracker and gimbal controller by
  ros2 launch efftam_ros flight.launch.py links:=udpin:0.0.0.0:14540
or on its own:
  efftam_mavlink --ros-args -p links:=udpin:0.0.0.0:14540
Parameters, their ranges and meanings: config/flight.yaml. Wiring: docs/flight.md.""",
    ),
}


def main(name: str, args: list[str] | None = None, **given: Any) -> int:
    """Run the node until a signal or a shutdown; returns the exit code, 2 for an error that the user can
    correct, reported in one line. ``given``: to the node's class, in tests and benchmarks."""
    program = PROGRAMS[name]

    def make() -> Any:
        # Once signals are handled: this takes a second or more.
        return getattr(import_module(f"efftam_ros.ros.{program.module}"), program.node)(**given)

    usage = f"usage: {name} [--ros-args [-p NAME:=VALUE] [--params-file FILE] [-r FROM:=TO]]"
    return run_node(name, make, args, f"{usage}\n\n{program.text}")
