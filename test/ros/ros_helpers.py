"""The other side of the tracker: publishes images, asks services, collects what comes back."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
import warnings
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

import rclpy
from diagnostic_msgs.msg import DiagnosticArray
from efftam_ros.msg import BoundingBox, SelectionResult, TargetSelection, TargetVelocity
from efftam_ros.srv import ClearTarget, SelectTarget
from level_pipeline import FRAME_NS, scene
from rclpy.executors import SingleThreadedExecutor
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import CameraInfo, Image
from support.reasons import numbered

from efftam_ros.core.geometry import Box
from efftam_ros.images.message import fill_image, stamp_ns
from efftam_ros.ros.common.dead_ports import remove_dead_ports

ROOT = Path(__file__).parents[2]
START_NS = 1_000 * 10**9
PATIENCE_S = 20.0
CLEARED = "the target was cleared"
_names = itertools.count()


def values_of(status) -> defaultdict[str, str]:
    """Of a status, by key; empty ones where it has none, as the first ones after a start lack some."""
    return defaultdict(str, {pair.key: pair.value for pair in status.values})


def new_namespace() -> str:
    return f"test_{os.getpid()}_{next(_names)}"


def stamp_of(i: int) -> int:
    """The stamp of image ``i`` of a scene, ns."""
    return START_NS + i * FRAME_NS


def box_of(message) -> Box:
    return Box(message.x, message.y, message.width, message.height)


def image_message(pixels, stamp: int, encoding: str = "bgr8") -> Image:
    message = fill_image(Image(), pixels, encoding)
    message.header.frame_id = "camera_optical_frame"
    message.header.stamp.sec, message.header.stamp.nanosec = divmod(stamp, 10**9)
    return message


def box_selection(box: Box, stamp: int = 0, **fields) -> TargetSelection:
    selection = TargetSelection(kind=TargetSelection.BOX, **fields)
    selection.header.stamp.sec, selection.header.stamp.nanosec = divmod(stamp, 10**9)
    selection.x, selection.y, selection.width, selection.height = map(float, box.xywh())
    return selection


class Peer:
    """A node beside the tracker, in its namespace. Spins only inside `wait`, so that nothing happens
    unseen."""

    def __init__(
        self, namespace: str, image_type=Image, image_qos=None, image_topic="image", best_effort_boxes=False
    ) -> None:
        self.namespace = namespace
        self.node = rclpy.create_node("peer", namespace=namespace)
        self.executor = SingleThreadedExecutor()
        self.executor.add_node(self.node)
        reliable = QoSProfile(depth=100, reliability=ReliabilityPolicy.RELIABLE)
        self.boxes: list[BoundingBox] = []
        self.velocities: list[TargetVelocity] = []
        self.results: list[SelectionResult] = []
        self.diagnostics: list = []
        best_effort = QoSProfile(depth=100, reliability=ReliabilityPolicy.BEST_EFFORT)
        boxes_qos = best_effort if best_effort_boxes else reliable
        self.node.create_subscription(BoundingBox, "bbox", numbered(self.boxes), boxes_qos)
        self.node.create_subscription(TargetVelocity, "velocity", numbered(self.velocities), reliable)
        lasting = QoSProfile(depth=10, durability=DurabilityPolicy.TRANSIENT_LOCAL)
        self.node.create_subscription(SelectionResult, "selection_result", numbered(self.results), lasting)
        self.node.create_subscription(DiagnosticArray, "/diagnostics", self._on_diagnostics, reliable)
        self.images = self.node.create_publisher(image_type, image_topic, image_qos or 10)
        self.camera_infos = self.node.create_publisher(CameraInfo, "camera_info", 10)
        self.selections = self.node.create_publisher(TargetSelection, "select", 10)
        self.select_client = self.node.create_client(SelectTarget, "efftam_tracker/select_target")
        self.clear_client = self.node.create_client(ClearTarget, "efftam_tracker/clear_target")

    def _on_diagnostics(self, message) -> None:
        ours = [s for s in message.status if s.name.startswith(f"{self.namespace}/")]
        self.diagnostics += ours

    def close(self) -> None:
        self.executor.shutdown()
        self.node.destroy_node()

    def wait(self, condition, what: str, seconds: float = PATIENCE_S) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, f"waited {seconds:g} s in vain for {what}"
            self.executor.spin_once(timeout_sec=0.02)

    def spin_for(self, seconds: float) -> None:
        """Give what must not come the time to come."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.executor.spin_once(timeout_sec=left)

    def wait_until_active(self) -> None:
        self.wait(lambda: self.images.get_subscription_count() > 0, "the tracker to subscribe to images")
        self.wait(
            lambda: self.selections.get_subscription_count() > 0, "the tracker to subscribe to selections"
        )
        self.wait(self.select_client.service_is_ready, "the service select_target")
        self.wait(self.clear_client.service_is_ready, "the service clear_target")
        for topic in ("bbox", "velocity"):
            name = self.node.resolve_topic_name(topic)
            self.wait(lambda n=name: self.node.count_publishers(n) > 0, f"a publisher of {topic}")

    def warm_up(self, make=None) -> None:
        """Send images of before the scene until one is answered: a writer can't see that a reader is not
        ready for it yet."""
        make = make or (lambda stamp: image_message(scene(0), stamp))
        self.forget()
        for attempt in itertools.count(1):
            self.images.publish(make(START_NS - 10**9 + attempt))
            self.spin_for(0.1)
            answered = {stamp_ns(b.header.stamp) for b in self.boxes if b.reason != CLEARED}
            if answered and self.velocities:
                break
            assert attempt < 100, "no image is answered"
        self.spin_for(0.1)
        self.forget()

    def begin_anew(self) -> None:
        """No target, and no image kept: stamps start over."""
        self.clear()
        self.warm_up()

    def end(self) -> None:
        self.process.end()
        self.close()

    def forget(self) -> None:
        """Drop what came so far."""
        del self.boxes[:], self.velocities[:], self.results[:], self.diagnostics[:]

    def show(self, i: int, pixels=None) -> BoundingBox:
        """Publish image ``i`` and wait for its box."""
        return self.send(image_message(scene(i) if pixels is None else pixels, stamp_of(i)))

    def send(self, message) -> BoundingBox:
        """Publish an image message and wait for its box."""
        stamp, seen = stamp_ns(message.header.stamp), len(self.boxes)
        self.images.publish(message)

        def answers():
            return [b for b in self.boxes[seen:] if stamp_ns(b.header.stamp) == stamp]

        self.wait(answers, f"the box of the image of {stamp} ns")
        self.wait(lambda: self.velocity_of(stamp) is not None, f"the velocity of the image of {stamp} ns")
        return answers()[-1]

    def velocity_of(self, stamp: int) -> TargetVelocity | None:
        """The first velocity message for this image since `forget`; later ones say that images stopped."""
        found = [v for v in self.velocities if stamp_ns(v.header.stamp) == stamp]
        return found[0] if found else None

    def call(self, client, request):
        future = client.call_async(request)
        self.wait(future.done, f"the answer of {client.srv_name}")
        return future.result()

    def select(self, selection: TargetSelection):
        return self.call(self.select_client, SelectTarget.Request(selection=selection))

    def clear(self):
        return self.call(self.clear_client, ClearTarget.Request())

    def follow(self, i: int, box: Box) -> BoundingBox:
        """Select ``box`` on image ``i``, which is the newest, and wait for the box that answers."""
        answer = self.select(box_selection(box, stamp_of(i)))
        assert answer.success, answer.message
        return self.box_of_selection(answer.selection)

    def box_of_selection(self, number: int) -> BoundingBox:
        """Wait for the first box that answers this selection."""

        def answers():
            return [b for b in self.boxes if b.selection == number]

        self.wait(answers, f"a box of selection {number}")
        return answers()[0]

    def diagnosis(self, condition, what: str):
        """The first status from now on that satisfies ``condition(status, values)``."""
        del self.diagnostics[:]

        def fitting():
            return [s for s in self.diagnostics if condition(s, values_of(s))]

        self.wait(fitting, f"diagnostics: {what}")
        status = fitting()[0]
        return status, values_of(status)


class Process:
    """A program of ours in a process of its own; what it says goes to a file."""

    def __init__(self, command: list[str], log: Path, **environment: str) -> None:
        remove_dead_ports(int(os.environ["ROS_DOMAIN_ID"]))  # of processes that a test has killed
        self.log = log
        with log.open("w") as output:
            self._process = subprocess.Popen(
                command,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=os.environ | environment,
                preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # ignored under nohup
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def output(self) -> str:
        return self.log.read_text()

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self, seconds: float = PATIENCE_S) -> int:
        """The exit code."""
        return self._process.wait(seconds)

    def end(self) -> None:
        if self._process.poll() is None:
            if "COVERAGE_PROCESS_CONFIG" in os.environ:  # a killed process keeps what it measured to itself
                self._process.terminate()
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(5.0)
            self._process.kill()
            self._process.wait()
            remove_dead_ports(int(os.environ["ROS_DOMAIN_ID"]))


def tracker_process(start, *ros_arguments: str, **environment: str) -> Peer:
    """The peer of a tracker in a process that ``start`` makes of a command. Fast DDS may take a busy process
    for dead and deliver nothing to it: such a one is started anew, once."""
    for is_last in (False, True):
        peer = Peer(new_namespace())
        peer.process = start(tracker_command(peer.namespace, *ros_arguments), **environment)
        try:
            peer.wait_until_active()
            peer.warm_up()
            return peer
        except AssertionError as error:
            is_alive = peer.process.alive
            peer.end()
            if is_last or not is_alive:
                raise AssertionError(f"{error}; the tracker said:\n{peer.process.output}") from None
            warnings.warn(f"a tracker was started anew: {error}", stacklevel=2)
    raise AssertionError


def tracker_command(namespace: str, *ros_arguments: str) -> list[str]:
    """The command line of `level_node.py` with ROS arguments such as ``-p image_timeout:=1.0``."""
    node = str(Path(__file__).parent / "level_node.py")
    return [sys.executable, node, "--ros-args", "-r", f"__ns:=/{namespace}", *ros_arguments]
