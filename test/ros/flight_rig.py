"""What the flight nodes are tested between: a stand-in tracker, the wire to a stand-in autopilot, a ground
station."""

from __future__ import annotations

import math
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import rclpy
from efftam_ros.msg import (
    BoundingBox,
    GimbalManager,
    GimbalStatus,
    SelectionResult,
    TargetSelection,
    TargetVelocity,
)
from free_ports import free_port
from geometry_msgs.msg import QuaternionStamped, TwistStamped
from lifecycle_msgs.srv import ChangeState
from rclpy.executors import SingleThreadedExecutor
from rclpy.qos import DurabilityPolicy, QoSProfile, qos_profile_sensor_data
from ros_helpers import PATIENCE_S
from sensor_msgs.msg import CameraInfo
from std_srvs.srv import SetBool
from support.reasons import numbered

from efftam_flight.angles import axis_direction, wrapped
from efftam_flight.mavlink.dialect import mav
from efftam_flight.mavlink.framing import Decoder, Encoder
from efftam_flight.mavlink.links.opening import connect
from efftam_ros.images.message import stamp_like, stamp_ns

ROOT = Path(__file__).parents[2]
WIDTH, HEIGHT, FOCAL_PX = 1280, 720, 900.0
FRAME_S = 1 / 30
AUTOPILOT = [sys.executable, "-m", "simulation", "autopilot"]


def node_command(name: str, namespace: str, *arguments: str) -> list[str]:
    program = str(ROOT / "scripts" / name)
    return [sys.executable, program, "--ros-args", "-r", f"__ns:=/{namespace}", *arguments]


def path_of(stamp: int) -> float:
    """Yaw of the target from north at a stamp, rad: it swings by 34 degrees, at most 31 deg/s."""
    return 0.6 * math.sin(0.9 * stamp / 1e9)


def wait(condition, what: str, seconds: float = PATIENCE_S) -> None:
    """For what happens in other threads and processes."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited {seconds:g} s in vain for {what}"
        time.sleep(0.01)


class Listener:
    """Hears the flight nodes, and calls them; in a thread of its own."""

    def __init__(self, name: str, namespace: str) -> None:
        self.node = rclpy.create_node(name, namespace=namespace)
        self.rates: list[tuple[float, float]] = []  # stamp, s; yaw rate
        self.statuses: list[GimbalStatus] = []
        self.managers: list[GimbalManager] = []
        node, lasting = self.node, QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
        node.create_subscription(TwistStamped, "rates", self._on_rates, 50)
        node.create_subscription(GimbalStatus, "gimbal_status", numbered(self.statuses), 50)
        node.create_subscription(GimbalManager, "gimbal_manager", numbered(self.managers), lasting)
        self.enable_client = node.create_client(SetBool, "efftam_gimbal/enable")
        self.change_client = node.create_client(ChangeState, "efftam_gimbal/change_state")
        self._executor = SingleThreadedExecutor()
        self._executor.add_node(node)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._spin, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _spin(self) -> None:
        while not self._ended.is_set():
            self._executor.spin_once(timeout_sec=0.05)

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        self._executor.shutdown()
        self.node.destroy_node()

    def _on_rates(self, message: TwistStamped) -> None:
        self.rates.append((stamp_ns(message.header.stamp) / 1e9, -message.twist.angular.z))

    def call(self, client, request):
        wait(client.service_is_ready, client.srv_name)
        future = client.call_async(request)
        wait(future.done, f"the answer of {client.srv_name}")
        return future.result()

    def enable(self, yes: bool = True):
        return self.call(self.enable_client, SetBool.Request(data=yes))

    def change_state(self, transition: int) -> None:
        request = ChangeState.Request()
        request.transition.id = transition
        assert self.call(self.change_client, request).success


class StandInTracker(Listener):
    """Says at 30 Hz where a swinging target is, seen from the gimbal."""

    def __init__(self, namespace: str) -> None:
        super().__init__("stand_in_tracker", namespace)
        self.state, self.speaks, self.refuses = TargetVelocity.TRACKING, True, False
        self.selections: list[TargetSelection] = []
        self.off_axis: list[float] = []
        self._selection = 1
        self._box = (0.45, 0.4, 0.1, 0.2)
        node, lasting = self.node, QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
        self._velocity = node.create_publisher(TargetVelocity, "velocity", 10)
        self._bbox = node.create_publisher(BoundingBox, "bbox", 10)
        self._results = node.create_publisher(SelectionResult, "selection_result", lasting)
        self._camera_info = node.create_publisher(CameraInfo, "camera_info", 10)
        node.create_subscription(QuaternionStamped, "gimbal_attitude", self._see, qos_profile_sensor_data)
        node.create_subscription(TargetSelection, "select", self._on_selection, 10)
        self._attitude: QuaternionStamped | None = None
        node.create_timer(FRAME_S, self._speak)
        self.start()

    def _see(self, message: QuaternionStamped) -> None:
        self._attitude = message

    def _on_selection(self, message: TargetSelection) -> None:
        self.selections.append(message)
        result = SelectionResult()
        result.header.stamp = message.header.stamp
        if self.refuses:
            result.outcome, result.message = SelectionResult.REFUSED, "nothing is there"
        elif message.kind == TargetSelection.CLEAR:
            result.outcome, self.state = SelectionResult.CLEARED, TargetVelocity.IDLE
        else:
            self._selection += 1
            self.state, result.selection = TargetVelocity.TRACKING, self._selection
            self._box = (message.x, message.y, message.width, message.height)
            if message.kind == TargetSelection.POINTS:
                self._box = (message.points[0].x - 0.05, message.points[0].y - 0.05, 0.1, 0.1)
        self._results.publish(result)

    def _speak(self) -> None:
        if not self.speaks:
            return
        info = CameraInfo(width=WIDTH, height=HEIGHT)
        info.k = [FOCAL_PX, 0.0, WIDTH / 2 - 0.5, 0.0, FOCAL_PX, HEIGHT / 2 - 0.5, 0.0, 0.0, 1.0]
        self._camera_info.publish(info)
        # The picture is taken where an attitude is known exactly, as a camera with a trigger does.
        stamp, yaw = self.node.get_clock().now().nanoseconds, 0.0
        if self._attitude is not None:
            q = self._attitude.quaternion
            stamp = stamp_ns(self._attitude.header.stamp)
            yaw = axis_direction((q.w, q.x, q.y, q.z))[0]
        azimuth = wrapped(path_of(stamp) - yaw)
        self.off_axis.append(azimuth)
        known = self.state not in (TargetVelocity.IDLE, TargetVelocity.LOST)
        said = {
            "state": self.state,
            "valid": known,
            "measured": known,
            "selection": self._selection,
            "steered": True,
        }
        velocity = TargetVelocity(
            image_shift=math.nan,
            has_bearing=known,
            azimuth=azimuth,
            elevation=0.0,
            azimuth_rate=0.0,
            elevation_rate=0.0,
            **said,
        )
        velocity.header.stamp = stamp_like(velocity.header.stamp, stamp)
        self._velocity.publish(velocity)
        x, y, width, height = self._box
        box = BoundingBox(image_width=WIDTH, image_height=HEIGHT, **said)
        box.x, box.y, box.width, box.height = x * WIDTH, y * HEIGHT, width * WIDTH, height * HEIGHT
        box.header.stamp = velocity.header.stamp
        self._bbox.publish(box)


class Wire:
    """UDP between bridge and autopilot, written down: what the bridge sends, and when."""

    def __init__(self) -> None:
        self.bridge_port = free_port()
        self._to_autopilot = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._to_autopilot.bind(("127.0.0.1", 0))
        self._to_bridge = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._to_bridge.bind(("127.0.0.1", 0))
        self.autopilot_port = self._to_autopilot.getsockname()[1]
        self._autopilot: tuple[str, int] | None = None
        self._decoder, self._down_decoder = Decoder(datagrams=True), Decoder(datagrams=True)
        self.sent: list[tuple[float, object]] = []
        self.yaws: list[tuple[float, float]] = []  # of the gimbal, by its own word: when, rad
        self.cut = False  # nothing of the bridge's arrives any more
        self.deaf = False  # nothing of the autopilot's
        self._ended = threading.Event()
        self._threads = [
            threading.Thread(target=self._carry, args=(sock, take), daemon=True)
            for sock, take in ((self._to_autopilot, self._down), (self._to_bridge, self._up))
        ]
        for thread in self._threads:
            thread.start()

    def _carry(self, sock: socket.socket, take) -> None:
        sock.settimeout(0.05)
        while not self._ended.is_set():
            try:
                take(*sock.recvfrom(65536))
            except (TimeoutError, ConnectionError):
                continue

    def _down(self, data: bytes, peer: tuple[str, int]) -> None:
        self._autopilot = peer
        if self.deaf:
            return
        self._to_bridge.sendto(data, ("127.0.0.1", self.bridge_port))
        for message in self._down_decoder.feed(data):
            if message.get_type() == "GIMBAL_DEVICE_ATTITUDE_STATUS":
                self.yaws.append((time.monotonic(), axis_direction(tuple(message.q))[0]))

    def _up(self, data: bytes, peer: tuple[str, int]) -> None:
        if self.cut:
            return
        self.sent += [(time.monotonic(), message) for message in self._decoder.feed(data)]
        if self._autopilot is not None:
            self._to_autopilot.sendto(data, self._autopilot)

    def rates(self) -> list[tuple[float, float]]:
        """When, and which yaw rate, rad/s."""
        return [
            (at, m.angular_velocity_z)
            for at, m in list(self.sent)
            if m.get_type() == "GIMBAL_MANAGER_SET_ATTITUDE"
        ]

    def turns(self) -> bool:
        rates = self.rates()
        return bool(rates) and rates[-1][1] != 0.0

    def stands(self) -> bool:
        """The last rates were zero, more than once in case of a loss."""
        rates = self.rates()
        return len(rates) > 1 and not any(rate for _, rate in rates[-2:])

    def gimbal_stands(self) -> bool:
        """The gimbal has not turned, by its last six messages."""
        last = [yaw for _, yaw in self.yaws[-6:]]
        return len(last) == 6 and max(last) - min(last) < 1e-4

    def close(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()
        self._to_autopilot.close()
        self._to_bridge.close()


class Station:
    """A ground station behind the autopilot."""

    def __init__(self) -> None:
        self.port = free_port()
        self._link = connect(f"udpin:127.0.0.1:{self.port}")
        self._encoder, self._decoder = Encoder(255, 190), Decoder(datagrams=True)
        self.heard: list = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        next_beat_s = 0.0
        while not self._ended.wait(0.01):
            for _, data in self._link.receive():
                self.heard += self._decoder.feed(data)
            if time.monotonic() >= next_beat_s:
                next_beat_s = time.monotonic() + 1.0
                self.send(mav.MAVLink_heartbeat_message(mav.MAV_TYPE_GCS, 8, 0, 0, 4, 3))

    def send(self, message) -> None:
        self._link.send(self._encoder.encode(message))

    def command(self, number: int, *parameters: float) -> None:
        filled = [*parameters, *[0.0] * 7][:7]
        self.send(mav.MAVLink_command_long_message(1, 100, number, 0, *filled))

    def messages(self, kind: str) -> list:
        return [m for m in list(self.heard) if m.get_type() == kind]

    def sees_camera(self) -> bool:
        return any(m.get_srcComponent() == 100 for m in self.messages("HEARTBEAT"))

    def answers(self, command: int) -> list[int]:
        """Results of a command that are final."""
        acks = [m for m in self.messages("COMMAND_ACK") if m.command == command]
        return [m.result for m in acks if m.result != mav.MAV_RESULT_IN_PROGRESS]

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        self._link.close()


class Rig:
    """All of it: autopilot, bridge and gimbal node as processes. ``listen`` makes who hears them."""

    def __init__(
        self,
        namespace: str,
        start,
        listen: Callable[[str], Any] = StandInTracker,
        flavour: str = "px4",
        bridge_arguments: Sequence[str] = (),
    ) -> None:
        self.wire, self.station = Wire(), Station()
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        self.autopilot = start(
            [
                *(*AUTOPILOT, flavour),
                *("--companion", f"udpout:127.0.0.1:{self.wire.autopilot_port}"),
                *("--station", f"udpout:127.0.0.1:{self.station.port}"),
            ],
            PYTHONPATH=path,
        )
        links = f"links:=udpin:127.0.0.1:{self.wire.bridge_port}"
        command = node_command("efftam_mavlink", namespace, "-p", links, *bridge_arguments)
        self.start_bridge = lambda: start(command, PYTHONPATH=path)
        self.bridge = self.start_bridge()
        self.gimbal = start(node_command("efftam_gimbal", namespace), PYTHONPATH=path)
        self.tracker = listen(namespace)

    def ready(self) -> Rig:
        """Wait until everybody has heard everybody."""
        tracker = self.tracker
        wait(self.station.sees_camera, "the bridge at the station")
        wait(lambda: tracker.statuses, "the gimbal node")
        wait(lambda: tracker.managers, "the bridge")
        if isinstance(tracker, StandInTracker):
            wait(lambda: tracker.off_axis and tracker._attitude is not None, "the gimbal's attitude")
            wait(tracker._velocity.get_subscription_count, "the gimbal node at velocity")
            wait(tracker._bbox.get_subscription_count, "the bridge at bbox")
        return self

    def begin_anew(self) -> Rig:
        """A target in sight, steering off, nothing selected, and nothing heard but that."""
        tracker = self.tracker
        tracker.state, tracker.speaks, tracker.refuses = TargetVelocity.TRACKING, True, False
        assert tracker.enable(False).success
        for heard in (
            tracker.rates,
            tracker.statuses,
            tracker.selections,
            tracker.off_axis,
            self.station.heard,
        ):
            heard.clear()
        wait(
            lambda: tracker.statuses and tracker.statuses[-1].phase == GimbalStatus.OFF, "steering to be off"
        )
        wait(lambda: tracker.managers[-1].control != GimbalManager.HELD, "the gimbal to be given back")
        self.wire.sent.clear()
        return self

    def follow(self) -> Rig:
        """Enable steering and wait until the gimbal turns, by its attitude."""
        answer = self.tracker.enable()
        assert answer.success, answer.message
        try:
            wait(
                lambda: self.tracker.statuses[-1].law == GimbalStatus.LINE_OF_SIGHT and self.wire.turns(),
                "rates on the wire",
            )
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self._account()}") from error
        return self

    def _account(self) -> str:
        """What everybody said last."""
        lines = [str(said[-1:]) for said in (self.tracker.statuses, self.tracker.managers, self.wire.rates())]
        return "\n".join([*lines, *(process.output[-1500:] for process in (self.gimbal, self.bridge))])

    def close(self) -> None:
        self.tracker.close()
        self.wire.close()
        self.station.close()
