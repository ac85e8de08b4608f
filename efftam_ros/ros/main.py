"""Entry point of the executables efftam_tracker and efftam_camera."""

from __future__ import annotations

from typing import Any

from efftam_ros.ros.common.process import NodeProgram, run_program

PROGRAMS = {
    "efftam_tracker": NodeProgram(
        "efftam_ros.ros.tracker.node",
        "TrackerNode",
        "efftam_ros.ros.tracker.parameters",
        """Tracks targets in the images of the topic `image`. Start it with
  ros2 launch efftam_ros tracker.launch.py image:=/camera/image_raw
or on its own:
  efftam_tracker --ros-args -r image:=/camera/image_raw -p backend:=onnxruntime-cpu
Select the target with `efftam select`, the service ~/select_target or the topic `select`.
A file with all parameters: config/tracker.yaml.""",
    ),
    "efftam_camera": NodeProgram(
        "efftam_ros.ros.camera",
        "CameraNode",
        "efftam_ros.ros.camera_parameters",
        """Publishes a stream (rtsp://..., udp://@:5600), a V4L2 device or a video file as image, with
camera_info from a calibration file. Start it with the tracker by
  ros2 launch efftam_ros tracker.launch.py stream:=rtsp://192.168.0.10:554/live
or on its own:
  efftam_camera --ros-args -p stream:=/dev/video0 -p calibration:=camera.yaml -r image:=/camera/image_raw
More: docs/camera.md.""",
    ),
}


def main(name: str, args: list[str] | None = None, **given: Any) -> int:
    """Run the node ``name``, a key of `PROGRAMS`, and return its exit code. See `run_program`."""
    return run_program(name, PROGRAMS[name], args, **given)
