"""The camera's node as a process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from efftam_ros.ros.common.process import run_node

if TYPE_CHECKING:
    from efftam_ros.ros.camera.node import CameraNode

HELP = """usage: efftam_camera [--ros-args [-p NAME:=VALUE] [-r FROM:=TO]]

Publishes a stream (rtsp://..., udp://@:5600), a V4L2 device or a video file as image, with camera_info from
a calibration file. Start it with the tracker by
  ros2 launch efftam_ros tracker.launch.py stream:=rtsp://192.168.0.10:554/live
or on its own:
  efftam_camera --ros-args -p stream:=/dev/video0 -p calibration:=camera.yaml -r image:=/camera/image_raw
Parameters: ros2 param list /efftam_camera, ros2 param describe /efftam_camera NAME; docs/node.md."""


def main(args: list[str] | None = None) -> int:
    """Run the node until a signal; returns the exit code."""

    def make() -> CameraNode:
        from efftam_ros.ros.camera.node import CameraNode

        return CameraNode()

    return run_node("efftam_camera", make, args, HELP)
