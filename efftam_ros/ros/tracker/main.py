"""The tracker node as a process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from efftam_ros.ros.common.process import run_node

if TYPE_CHECKING:
    from efftam_ros.ros.tracker.node import PipelineFactory, TrackerNode

HELP = """usage: efftam_tracker [--ros-args [-p NAME:=VALUE] [--params-file FILE] [-r FROM:=TO]]

Follows one target through the images of the topic `image`. Started by
  ros2 launch efftam_ros tracker.launch.py image:=/camera/image_raw
or by itself:
  efftam_tracker --ros-args -r image:=/camera/image_raw -p backend:=onnxruntime-cpu
Parameters with range and meaning: config/tracker.yaml. What to follow is told by `efftam select`, the service
~/select_target or the topic `select`."""


def main(args: list[str] | None = None, pipeline_factory: PipelineFactory | None = None) -> int:
    """Run the node until a signal or a shutdown; returns the exit code (2: something that the user can mend,
    named in one line).

    ``pipeline_factory`` takes the place of `runtime.pipeline.open_pipeline`, for tests and benchmarks.
    """

    def make() -> TrackerNode:
        from efftam_ros.ros.tracker.node import TrackerNode

        return TrackerNode() if pipeline_factory is None else TrackerNode(pipeline_factory)

    return run_node("efftam_tracker", make, args, HELP)
