"""Entry point of the tracker node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from efftam_ros.ros.common.process import run_node

if TYPE_CHECKING:
    from efftam_ros.ros.tracker.node import PipelineFactory, TrackerNode

HELP = """usage: efftam_tracker [--ros-args [-p NAME:=VALUE] [--params-file FILE] [-r FROM:=TO]]

Tracks one target in the images of the topic `image`. Start it with
  ros2 launch efftam_ros tracker.launch.py image:=/camera/image_raw
or on its own:
  efftam_tracker --ros-args -r image:=/camera/image_raw -p backend:=onnxruntime-cpu
Parameters, their ranges and meanings: config/tracker.yaml. Select the target with `efftam select`, the
service ~/select_target or the topic `select`."""


def main(args: list[str] | None = None, pipeline_factory: PipelineFactory | None = None) -> int:
    """Run the node until a signal or a shutdown.

    ``pipeline_factory`` replaces `runtime.pipeline.open_pipeline` in tests and benchmarks. Returns the exit
    code; 2 for an error that the user can correct, reported in one line.
    """

    def make() -> TrackerNode:
        from efftam_ros.ros.tracker.node import TrackerNode

        return TrackerNode() if pipeline_factory is None else TrackerNode(pipeline_factory)

    return run_node("efftam_tracker", make, args, HELP)
