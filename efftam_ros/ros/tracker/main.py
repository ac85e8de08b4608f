"""The node as a process: from the command line to an orderly end.

SIGINT and SIGTERM end it with code 0: the frame in work is finished and published. They are taken from the
first line on, and a second one changes nothing, so that no moment exists in which a signal leaves a
traceback or half an answer. Imports of ROS and of the network wait until that is arranged.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from efftam_ros.ros.common.signals import StopFlag

if TYPE_CHECKING:
    from efftam_ros.ros.tracker.node import PipelineFactory

HELP = """usage: efftam_tracker [--ros-args [-p NAME:=VALUE] [--params-file FILE] [-r FROM:=TO]]

Follows one target through the images of the topic `image`. Started by
  ros2 launch efftam_ros tracker.launch.py image:=/camera/image_raw
or by itself:
  efftam_tracker --ros-args -r image:=/camera/image_raw -p backend:=onnxruntime-cpu
Parameters with range and meaning: config/tracker.yaml. What to follow is told by `efftam select`, the service
~/select_target or the topic `select`."""
# Packages whose absence is told in one line, by import name.
NEEDED = {"cv2": "opencv-python-headless", "numpy": "numpy", "onnxruntime": "onnxruntime"}
# Longest time until a signal is noticed while nothing arrives, s.
PATIENCE_S = 0.1


def main(args: list[str] | None = None, pipeline_factory: PipelineFactory | None = None) -> int:
    """Run the node until a signal; returns the exit code (2: something that the user can mend, named in one
    line).

    ``pipeline_factory`` takes the place of `runtime.pipeline.open_pipeline`, for tests and benchmarks.
    """
    if {"-h", "--help"} & set((sys.argv if args is None else args)[1:]):
        print(HELP)
        return 0
    with StopFlag() as stop:
        return _run(stop, args, pipeline_factory)


def _run(stop: StopFlag, args: list[str] | None, pipeline_factory: PipelineFactory | None) -> int:
    import rclpy
    from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
    from rclpy.signals import SignalHandlerOptions

    from efftam_ros.core.errors import InputError

    try:
        from efftam_ros.ros.tracker.node import NODE_NAME, TrackerNode
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in NEEDED:
            raise
        print(
            f"efftam_tracker: the Python package {missing} is not installed for {sys.executable}; run:"
            f" {sys.executable} -m pip install {NEEDED[missing]}",
            file=sys.stderr,
        )
        return 2

    try:
        rclpy.init(args=args, signal_handler_options=SignalHandlerOptions.NO)
    except RuntimeError as error:  # a parameter file or an argument that rcl can't read
        print(f"{NODE_NAME}: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    node = None
    executor = SingleThreadedExecutor()
    try:
        node = TrackerNode() if pipeline_factory is None else TrackerNode(pipeline_factory)
        executor.add_node(node)
        if not stop.asked:
            node.start()
        while not stop.asked:
            executor.spin_once(timeout_sec=PATIENCE_S)
    except InputError as refusal:
        print(f"{NODE_NAME}: {refusal}", file=sys.stderr)
        return 2
    except ExternalShutdownException:
        pass
    finally:
        if node is not None:
            node.close()
        executor.shutdown()
        rclpy.try_shutdown()
    return 0
