"""The bridge's node and FOLLOW_TARGET: the service that allows it, and what it says of it; on a real link."""

from __future__ import annotations

import math
import socket
import time

import pytest
import rclpy

pytest.importorskip("pymavlink", reason="needs MAVLink: pip install 'efftam_ros[flight]'")
from efftam_ros.msg import FollowStatus, TargetPosition, VehiclePosition
from free_ports import free_port
from rclpy.qos import qos_profile_sensor_data
from ros_helpers import PATIENCE_S, new_namespace
from std_srvs.srv import SetBool
from support.reasons import numbered

from efftam_flight.mavlink.dialect import mav
from efftam_flight.mavlink.framing import Decoder, Encoder
from efftam_flight.ros.mavlink import MavlinkNode
from efftam_ros.images.message import stamp_like
from efftam_ros.ros.common.nodes import latched


class Desk:
    """The node, an ArduCopter on its link, a publisher of positions, and a caller of the service."""

    def __init__(self, *parameters: str) -> None:
        namespace, port = new_namespace(), free_port()
        given = [word for text in (f"links:=udpin:127.0.0.1:{port}", *parameters) for word in ("-p", text)]
        self.node = MavlinkNode(namespace=namespace, cli_args=["--ros-args", *given])
        self.peer = rclpy.create_node("peer", namespace=namespace)
        self.statuses: list[FollowStatus] = []
        self.places: list[VehiclePosition] = []
        self.peer.create_subscription(FollowStatus, "follow_status", numbered(self.statuses), latched())
        self.peer.create_subscription(
            VehiclePosition, "vehicle_position", self.places.append, qos_profile_sensor_data
        )
        self._position = self.peer.create_publisher(TargetPosition, "position", 10)
        self._client = self.peer.create_client(SetBool, "efftam_mavlink/enable_follow")
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.connect(("127.0.0.1", port))
        self._socket.setblocking(False)
        self._encoder, self._decoder = Encoder(1, 1), Decoder(True)
        self.received: list = []
        self.located = True
        self._executor = rclpy.executors.SingleThreadedExecutor()
        for node in (self.node, self.peer):
            self._executor.add_node(node)
        self._next_s = 0.0
        self.wait(lambda: self.statuses and self._client.service_is_ready())
        self.wait(lambda: self._position.get_subscription_count())

    def send(self, message) -> None:
        self._socket.send(self._encoder.encode(message))

    def turn(self) -> None:
        now_s = time.monotonic()
        if now_s >= self._next_s:
            self._next_s = now_s + 0.2
            self.send(mav.MAVLink_heartbeat_message(2, mav.MAV_AUTOPILOT_ARDUPILOTMEGA, 128, 5, 4, 3))
            fix = (474000000, 85500000, 460_000, 30_000, 0, 0, 0, 65535)
            self.send(mav.MAVLink_global_position_int_message(round(now_s * 1000) & 0xFFFFFFF, *fix))
            if self.located:
                self.locate()
        self.node.tick()
        self._executor.spin_once(timeout_sec=0.005)
        try:
            while True:
                self.received += self._decoder.feed(self._socket.recv(65536))
        except BlockingIOError:
            pass

    def locate(self) -> None:
        message = TargetPosition(
            target_id=1, selection=1, state=TargetPosition.TRACKING, valid=True, measured=True, steered=True,
            latitude=47.4, longitude=8.55, altitude=430.0, x=1.0, y=2.0,
        )  # fmt: skip
        message.covariance[0] = message.covariance[5] = 1.0
        message.header.stamp = stamp_like(message.header.stamp, self.node.get_clock().now().nanoseconds)
        self._position.publish(message)

    def wait(self, condition) -> None:
        end_s = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < end_s
            self.turn()

    def enable(self, wanted: bool = True) -> SetBool.Response:
        future = self._client.call_async(SetBool.Request(data=wanted))
        self.wait(future.done)
        return future.result()

    def targets(self) -> list:
        return [m for m in self.received if m.get_type() == "FOLLOW_TARGET"]

    def run(self, seconds: float) -> None:
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            self.turn()

    def close(self) -> None:
        self._executor.shutdown()
        self.node.close()
        self.peer.destroy_node()
        self._socket.close()


@pytest.fixture
def desk(ros):
    desks: list[Desk] = []

    def make(*parameters: str) -> Desk:
        desks.append(Desk(*parameters))
        return desks[-1]

    yield make
    for one in desks:
        one.close()


def test_without_the_parameter_the_service_refuses_and_not_one_message_goes_out(desk):
    one = desk()
    assert not one.statuses[-1].available
    one.run(1.0)
    answer = one.enable()
    assert not answer.success
    assert "follow" in answer.message
    one.run(1.5)
    assert one.targets() == []
    assert one.received  # the link works
    assert one.places
    assert one.places[-1].height_above_home == 30.0
    assert math.isnan(one.places[-1].range)


def test_it_is_allowed_sent_and_stopped_by_the_service(desk):
    one = desk("follow:=true")
    one.run(1.0)
    assert (one.statuses[-1].available, one.statuses[-1].enabled) == (True, False)
    assert one.targets() == []
    assert one.enable().success
    one.wait(lambda: len(one.targets()) >= 5)
    one.wait(lambda: one.statuses[-1].enabled and one.statuses[-1].sending)
    assert one.targets()[-1].get_srcSystem() == 200
    assert one.targets()[-1].lat == 474000000
    assert one.enable(False).success
    count = len(one.targets())
    one.run(1.5)
    assert len(one.targets()) <= count + 1
    assert not one.statuses[-1].enabled


def test_positions_that_fail_to_come_end_it_with_a_reason(desk):
    one = desk("follow:=true")
    one.run(1.0)
    assert one.enable().success
    one.wait(lambda: one.targets())
    one.located = False
    one.wait(lambda: not one.statuses[-1].enabled)
    assert one.statuses[-1].reason
    one.located = True
    count = len(one.targets())
    one.run(2.0)
    assert len(one.targets()) == count
