"""What the node of a simulated flight writes down of the messages that it hears."""

from __future__ import annotations

import math
import time

import rclpy
from efftam_ros.msg import BoundingBox, GimbalStatus
from rclpy.executors import SingleThreadedExecutor
from ros_helpers import PATIENCE_S

from efftam_ros.messages.bearing import Intrinsics
from efftam_ros.ros.common.nodes import reliable
from simulation.node import SimulationNode
from simulation.record import RecordWriter, read_record


def test_answers_and_the_gimbals_status_are_recorded_field_by_field(ros, tmp_path):
    writer = RecordWriter(tmp_path)
    node = SimulationNode(writer, Intrinsics(900.0, 900.0, 319.5, 179.5), 640, 360)
    peer = rclpy.create_node("peer")
    boxes = peer.create_publisher(BoundingBox, "bbox", reliable())
    statuses = peer.create_publisher(GimbalStatus, "gimbal_status", reliable())
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    answer = BoundingBox(
        state=2, selection=3, measured=True, valid=False, presence=0.25, quality=0.75, age=0.5
    )
    answer.header.stamp.sec, answer.header.stamp.nanosec = 7, 8
    answer.x, answer.y, answer.width, answer.height, answer.reason = 10.0, 20.0, 30.0, 40.0, "why"
    status = GimbalStatus(phase=3, law=1, pitch_rate=0.125, yaw_rate=-0.5, reason="because")
    end_s = time.monotonic() + PATIENCE_S
    while not (boxes.get_subscription_count() and statuses.get_subscription_count()):
        assert time.monotonic() < end_s
        executor.spin_once(timeout_sec=0.01)
    boxes.publish(answer)
    statuses.publish(status)
    while node.answer is None or node.status is None:
        assert time.monotonic() < end_s
        executor.spin_once(timeout_sec=0.1)
    executor.shutdown()
    answer.width = math.nan
    node._on_bbox(answer)
    for one in (node, peer):
        one.destroy_node()
    writer.close()
    record = read_record(tmp_path)
    (heard, without_width), (steering,) = record.answers, record.steering
    assert (heard.stamp_ns, heard.selection, heard.state) == (7_000_000_008, 3, 2)
    assert (heard.measured, heard.valid, heard.reason) == (True, False, "why")
    assert tuple(heard.box) == (10.0, 20.0, 30.0, 40.0)
    assert without_width.box is None
    assert (heard.presence, heard.quality, heard.age_s) == (0.25, 0.75, 0.5)
    assert (steering.phase, steering.law, steering.reason) == (3, 1, "because")
    assert (steering.pitch_rate, steering.yaw_rate) == (0.125, -0.5)
    assert set(node.first_answers) == {3}
