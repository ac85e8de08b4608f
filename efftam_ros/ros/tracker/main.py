"""The tracker node as a process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from efftam_ros.ros.common.process import run_node

if TYPE_CHECKING:
    from efftam_ros.ros.tracker.node import PipelineFactory, TrackerNode


def main(args: list[str] | None = None, pipeline_factory: PipelineFactory | None = None) -> int:
    """Run the node until a signal, which lets the frame in work finish; returns the exit code.

    ``pipeline_factory`` takes the place of `runtime.pipeline.open_pipeline`, for tests and benchmarks.
    """

    def make() -> TrackerNode:
        from efftam_ros.ros.tracker.node import TrackerNode

        return TrackerNode() if pipeline_factory is None else TrackerNode(pipeline_factory)

    return run_node("efftam_tracker", make, args)
