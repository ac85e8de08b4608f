"""Runs the whole chain of the operator's page: camera, tracker and page's node, each as a process."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.latency import NULL_NODE
from efftam_workshop.bench.latency import TRACKER
from simulation import cpu_s, spinning

ROOT = Path(__file__).resolve().parent.parent
PATIENCE_S = 60.0
OPERATOR = TRACKER.replace("efftam_tracker", "efftam_operator")


class Chain:
    """Camera, tracker and page's node, which run inside a ``with`` block.

    At the start of the block the tracker follows the target of the scene. RuntimeError is raised there if
    something does not start in time.

    ``network``: whether the tracker computes the shipped network; false: its pipeline computes nothing.
    ``latencies``: for each image, the monotonic time at which its answer arrived, s, and the tracker's time
    from the image's arrival to its box, ms. ``newest_ns``: stamp of the last box. ``valid``: whether the last
    velocity was valid.
    """

    def __init__(self, *, network: bool) -> None:
        self._network = network
        self._stack = ExitStack()
        self.latencies: list[tuple[float, float]] = []
        self.newest_ns = 0
        self.valid = False

    def __enter__(self) -> Chain:
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def _start(self) -> None:
        camera = self._run([str(ROOT / "test" / "operator" / "scene_camera.py"), "--barcode"])
        tracker = TRACKER if self._network else NULL_NODE
        self._run(["-c", tracker, "--ros-args", "--log-level", "warn"])
        self.operator = self._run(["-c", OPERATOR, "--ros-args", "-p", "port:=0", "--log-level", "warn"])
        assert camera.stdout is not None
        assert self.operator.stdout is not None
        self.truth = json.loads(camera.stdout.readline())
        found = re.search(r"open http://127.0.0.1:(\d+)/", self.operator.stdout.readline())
        if found is None:
            raise RuntimeError("the page's node printed no address")
        self.port = int(found.group(1))
        self._listen()
        self._select()

    def _run(self, arguments: list[str]) -> subprocess.Popen[str]:
        process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, text=True)

        def end() -> None:
            process.terminate()
            try:
                process.wait(10.0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

        self._stack.callback(end)
        return process

    def _listen(self) -> None:
        import rclpy
        from efftam_ros.msg import BoundingBox, TargetVelocity
        from efftam_ros.srv import SelectTarget
        from rclpy.signals import SignalHandlerOptions

        from efftam_ros.images.message import stamp_ns

        def on_velocity(message: Any) -> None:
            self.valid = message.valid
            taken_ns = stamp_ns(message.predicted_stamp) - stamp_ns(message.header.stamp)
            if message.valid:
                self.latencies.append((time.monotonic(), taken_ns / 1e6))

        def on_box(message: Any) -> None:
            self.newest_ns = stamp_ns(message.header.stamp)

        rclpy.init(signal_handler_options=SignalHandlerOptions.NO)
        self._stack.callback(rclpy.try_shutdown)
        node = rclpy.create_node("operator_figures")
        node.create_subscription(TargetVelocity, "velocity", on_velocity, 10)
        node.create_subscription(BoundingBox, "bbox", on_box, 10)
        self._client = node.create_client(SelectTarget, "efftam_tracker/select_target")
        self._stack.enter_context(spinning(node))

    def _select(self) -> None:
        from efftam_ros.msg import TargetSelection
        from efftam_ros.srv import SelectTarget

        wait(lambda: self.newest_ns and self._client.service_is_ready(), "the tracker's answers")
        wait(lambda: len(self.truth) > self.newest_ns % 1000, "a picture of the scene")
        stamp_ns = self.newest_ns
        selection = TargetSelection(kind=TargetSelection.BOX)
        selection.header.stamp.sec, selection.header.stamp.nanosec = divmod(stamp_ns, 10**9)
        selection.x, selection.y, selection.width, selection.height = self.truth[stamp_ns % 1000]
        future = self._client.call_async(SelectTarget.Request(selection=selection))
        wait(future.done, "the answer to the selection")
        if not future.result().success:
            raise RuntimeError(f"the selection was refused: {future.result().message}")
        wait(lambda: self.valid, "the tracker to follow the target")

    def taken_ms(self, since_s: float, until_s: float) -> list[float]:
        """Return the tracker's times, ms, for the images answered between two monotonic times, s."""
        return [ms for at_s, ms in list(self.latencies) if since_s <= at_s < until_s]

    def operator_cpu_s(self) -> float:
        """Return the processor time that the page's node has used so far, s."""
        return cpu_s(self.operator.pid)


def wait(condition: Callable[[], Any], what: str, seconds: float = PATIENCE_S) -> None:
    """Wait until ``condition``, which other threads or processes change, is true.

    Raises RuntimeError with the text ``what`` if that takes longer than ``seconds``.
    """
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise RuntimeError(f"waited {seconds:g} s in vain for {what}")
        time.sleep(0.01)
