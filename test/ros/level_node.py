"""The tracker node with a `LevelPipeline` in the place of the network: in this process, or its own one."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

from level_pipeline import LOST, LevelPipeline  # noqa: E402

from efftam_ros.core.errors import PipelineLostError  # noqa: E402
from efftam_ros.ros.common.process import _spin  # noqa: E402


class Spinning:
    """A node that is started and spins in a thread of this process until `end`, as `run_node` has it."""

    def __init__(self, node) -> None:
        from rclpy.executors import SingleThreadedExecutor

        self.node, self.asked = node, False
        node.start()
        self._executor = SingleThreadedExecutor()
        self._executor.add_node(node)
        self._thread = threading.Thread(target=_spin, args=(self, self._executor, node), daemon=True)
        self._thread.start()

    def end(self) -> None:
        if not self.asked:
            self.asked = True
            self._thread.join()
            self._executor.shutdown()
            self.node.close()


class Tracker(Spinning):
    """The tracker's node, and what it logs. ``pipeline``: makes one of a configuration; without it there is a
    `LevelPipeline` of the other arguments."""

    def __init__(self, namespace: str, *arguments: str, pipeline=None) -> None:
        from efftam_ros.ros.tracker.node import TrackerNode

        lines = self._lines = []

        class Node(TrackerNode):
            def get_logger(self):
                return Log(super().get_logger(), lines)

        pipeline = pipeline or (lambda config: LevelPipeline(max_targets=config.max_targets))
        super().__init__(Node(pipeline, namespace=namespace, cli_args=["--ros-args", *arguments]))

    @property
    def output(self) -> str:
        return "\n".join(self._lines)


class Log:
    """A logger that also keeps its lines."""

    def __init__(self, logger, lines: list[str]) -> None:
        self._logger, self._lines = logger, lines

    def __getattr__(self, name: str):
        log = getattr(self._logger, name)
        if name not in ("fatal", "error", "warning", "info"):
            return log

        def kept(text: str, **how) -> None:
            self._lines.append(f"[{name.upper()}] {text}")
            # One call for each severity, as rclpy ties it to the line of code.
            log(text, **how) if name == "info" else self._logger.info(f"[{name.upper()}] {text}", **how)

        return kept


def open_level_pipeline(config):
    time.sleep(float(os.environ.get("TEST_OPEN_DELAY", "0")))
    if "TEST_LOST_AT_START" in os.environ:
        raise PipelineLostError(LOST)
    return LevelPipeline(float(os.environ.get("TEST_FRAME_DELAY", "0")), config.max_targets)


if __name__ == "__main__":
    if "TEST_RENEWAL_S" in os.environ:
        from efftam_ros.ros.common import image_input

        image_input.RENEWAL_S = float(os.environ["TEST_RENEWAL_S"])
    from efftam_ros.ros.main import main

    sys.exit(main("efftam_tracker", pipeline_factory=open_level_pipeline))
