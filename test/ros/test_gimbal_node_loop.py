"""What the gimbal node's loop makes of its topics, in this process."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
import rclpy
from efftam_ros.msg import GimbalManager, GimbalStatus, TargetVelocity
from geometry_msgs.msg import QuaternionStamped, TwistStamped
from rclpy.duration import Duration
from rclpy.executors import SingleThreadedExecutor
from ros_helpers import PATIENCE_S, new_namespace
from sensor_msgs.msg import CameraInfo

from efftam_flight.control_config import ControlConfig
from efftam_flight.ros.gimbal.loop import GimbalPublishers, Loop
from efftam_flight.values import Rates
from efftam_ros.core.errors import InputError
from efftam_ros.core.reasons import ReasonCode
from efftam_ros.images.message import stamp_ns
from efftam_ros.ros.common.nodes import latched, reliable


class Flight:
    """Camera, tracker and bridge around an enabled loop: a target 0.1 rad right of the axis of a gimbal that
    stands still."""

    def __init__(self) -> None:
        namespace = new_namespace()
        self.node = rclpy.create_node("gimbal", namespace=namespace)
        self.outputs = GimbalPublishers(self.node)
        self.loop = Loop(self.node, ControlConfig(first_rate=0.0), self.outputs)
        self.loop.set_enabled(True)
        self.focal_px, self.late_s = 900.0, 0.0
        self.targets = [{"steered": True, "azimuth": 0.1, "selection": 1}]
        self.rates: list[TwistStamped] = []
        self.statuses: list[GimbalStatus] = []
        self.peer = rclpy.create_node("peer", namespace=namespace)
        self.peer.create_subscription(GimbalStatus, "gimbal_status", self.statuses.append, reliable())
        self.peer.create_subscription(TwistStamped, "rates", self.rates.append, reliable(1000))
        self._velocity = self.peer.create_publisher(TargetVelocity, "velocity", reliable())
        self._attitude = self.peer.create_publisher(QuaternionStamped, "gimbal_attitude", reliable())
        self._camera_info = self.peer.create_publisher(CameraInfo, "camera_info", reliable())
        self.manager = self.peer.create_publisher(GimbalManager, "gimbal_manager", latched())
        self.manager.publish(GimbalManager(control=GimbalManager.HELD, alive=True, yaw_lock=True))
        self._executor = SingleThreadedExecutor()
        self._executor.add_node(self.peer)

    def run_until(self, holds) -> GimbalStatus:
        """Turn the loop and publish at its rate until a status holds."""
        end_s = time.monotonic() + PATIENCE_S
        while not (self.statuses and holds(self.statuses[-1])):
            assert time.monotonic() < end_s, f"waited {PATIENCE_S:g} s in vain; last: {self.statuses[-1:]}"
            self._publish()
            self._executor.spin_once(timeout_sec=max(self.loop.turn(), 0.0))
        return self.statuses[-1]

    def _publish(self) -> None:
        stamp = self.peer.get_clock().now().to_msg()
        info = CameraInfo(width=1280, height=720)
        info.k = [self.focal_px, 0.0, 639.5, 0.0, self.focal_px, 359.5, 0.0, 0.0, 1.0]
        attitude = QuaternionStamped()
        attitude.header.stamp = stamp
        seen = self.peer.get_clock().now() - Duration(seconds=self.late_s)
        self._attitude.publish(attitude)
        self._camera_info.publish(info)
        said = {"state": TargetVelocity.TRACKING, "valid": True, "measured": True, "has_bearing": True}
        for target in self.targets:
            velocity = TargetVelocity(**said, **target)
            velocity.header.stamp = seen.to_msg()
            self._velocity.publish(velocity)

    def close(self) -> None:
        self.loop.close()
        self._executor.shutdown()
        for node in (self.node, self.peer):
            node.destroy_node()


@pytest.fixture
def flight(ros):
    made = Flight()
    yield made
    made.close()


def test_a_camera_that_loses_its_calibration_stops_the_gimbal(flight):
    """A zoom camera says so with a focal length of zero, also while the tracker still gives bearings."""
    flight.run_until(lambda status: status.phase == GimbalStatus.FOLLOWING and status.yaw_rate > 0.05)
    flight.focal_px = 0.0
    stopped = flight.run_until(lambda status: status.phase == GimbalStatus.HOLDING)
    assert "camera_info" in stopped.reason
    assert (stopped.pitch_rate, stopped.yaw_rate) == (0.0, 0.0)
    flight.focal_px = 900.0
    flight.run_until(lambda status: status.phase == GimbalStatus.FOLLOWING)


def test_steering_is_refused_while_another_node_publishes_rates(flight):
    """A second controller, say: the gimbal would follow both by turns."""
    flight.loop.set_enabled(False)
    other = flight.peer.create_publisher(TwistStamped, "rates", reliable())
    flight.run_until(lambda status: flight.node.count_publishers("rates") == 2)
    with pytest.raises(InputError, match=r"2 publishers on .*/rates"):
        flight.loop.set_enabled(True)
    flight.loop.set_enabled(False)
    flight.peer.destroy_publisher(other)
    flight.run_until(lambda status: flight.node.count_publishers("rates") == 1)
    flight.loop.set_enabled(True)


def test_answers_of_a_target_that_is_not_steered_by_never_move_the_gimbal(flight):
    other = {"target_id": 1, "steered": False, "azimuth": -0.4, "selection": 2}
    flight.targets = [other]
    flight.run_until(lambda status: len(flight.statuses) > 5)  # a second
    assert {status.phase for status in flight.statuses} == {GimbalStatus.WAITING}
    assert {message.twist.angular.z for message in flight.rates} <= {0.0}
    flight.targets = [other, {"steered": True, "azimuth": 0.1, "selection": 1}, other]
    flight.run_until(lambda status: status.phase == GimbalStatus.FOLLOWING and status.yaw_rate > 0.05)
    count = len(flight.statuses)
    flight.run_until(lambda status: len(flight.statuses) > count + 5)
    assert all(status.yaw_rate >= 0.0 for status in flight.statuses)


def test_a_switch_of_target_is_announced_and_stays_within_the_limits(flight, capfd):
    first = {"target_id": 0, "azimuth": 0.1, "selection": 1}
    second = {"target_id": 1, "azimuth": -0.4, "selection": 2}
    flight.targets = [first | {"steered": True}, second | {"steered": False}]
    flight.run_until(lambda status: status.phase == GimbalStatus.FOLLOWING and status.yaw_rate > 0.05)
    flight.targets = [second | {"steered": True}, first | {"steered": False}]
    flight.run_until(
        lambda status: status.reason_code == ReasonCode.STEERING_SWITCHED and status.yaw_rate < -0.05
    )
    flight.run_until(lambda status: status.phase == GimbalStatus.FOLLOWING and not status.reason)
    assert "now steering by target 1 (before: target 0)" in capfd.readouterr().err
    limits = ControlConfig()
    # To the right is negative about the axis that points up.
    yaws = [(stamp_ns(message.header.stamp) * 1e-9, -message.twist.angular.z) for message in flight.rates]
    assert min(yaw for _, yaw in yaws) < -0.05
    for (before_s, before), (after_s, after) in pairwise(yaws):
        most = limits.max_acceleration * (after_s - before_s) + 1e-3
        assert min(before, 0.0) - most <= after <= max(before, 0.0) + most
        assert abs(after) <= limits.max_rate.yaw


def test_a_bridge_that_reads_rates_in_another_frame_ends_steering_that_was_enabled_before_it_was_heard(
    flight,
):
    flight.run_until(lambda status: status.phase == GimbalStatus.FOLLOWING and status.yaw_rate > 0.05)
    flight.manager.publish(GimbalManager(control=GimbalManager.HELD, alive=True, yaw_lock=False))
    stopped = flight.run_until(lambda status: not status.enabled and not status.sending)
    assert stopped.yaw_rate == 0.0
    with pytest.raises(InputError, match="yaw_lock is True in efftam_gimbal and False in efftam_mavlink"):
        flight.loop.set_enabled(True)


def test_answers_that_are_late_now_and_then_are_not_logged_each_time(flight, capfd):
    """At 15 Hz each answer is followed, then predicted, then the next one comes."""
    for _ in range(5):
        flight.late_s = 0.0
        flight.run_until(lambda status: status.phase == GimbalStatus.FOLLOWING)
        flight.late_s = 0.3
        flight.run_until(lambda status: status.phase == GimbalStatus.PREDICTING)
    lines = [
        line for line in capfd.readouterr().err.splitlines() if "following" in line or "predicting" in line
    ]
    assert len(lines) == 1


def test_an_attitude_that_arrives_while_a_slow_turn_is_at_work_is_not_from_the_future(flight, capfd):
    """As on a machine with too much to do."""
    read = flight.loop._topics[0].read

    def held_up(now_s: float) -> None:
        read(now_s)
        time.sleep(0.1)
        flight._publish()
        time.sleep(0.1)  # until it is there

    flight.loop._topics[0].read = held_up
    for _ in range(5):
        flight.loop._due_s = 0.0
        flight.loop.turn()
    flight.loop._topics[0].read = read
    flight.run_until(lambda status: status.phase == GimbalStatus.FOLLOWING)
    assert "compare the clocks" not in capfd.readouterr().err


def test_a_gimbal_that_moved_is_given_back_once_the_zeros_are_out(flight, monkeypatch):
    flight.run_until(lambda status: status.phase == GimbalStatus.FOLLOWING and status.yaw_rate > 0.05)
    outputs, said = flight.outputs, []
    for name in ("want_gimbal", "send_rates"):
        call = getattr(outputs, name)
        monkeypatch.setattr(
            outputs, name, lambda what, *more, call=call: said.append(what) or call(what, *more)
        )
    flight.loop.set_enabled(False)
    flight.run_until(lambda status: said[-1:] == [False])
    count = len(flight.statuses)
    flight.run_until(lambda status: len(flight.statuses) > count + 2)
    given_back = said.index(False)
    assert Rates() in said[:given_back]
    assert set(said[given_back:]) == {False}
