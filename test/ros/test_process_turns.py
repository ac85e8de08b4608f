"""When a node with a rate of its own gets its calls: now and then, but each turn on the time of /clock; how
often one is started again."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.parameter import Parameter
from ros_helpers import new_namespace
from rosgraph_msgs.msg import Clock

from efftam_ros.ros.common import process

IDLE_S = (0.0, 0.002, -0.001, 0.0005)


class Turns:
    """A stop flag that allows each of ``idle_s`` once, the node that returns them, and its executor."""

    served_s = math.inf

    def __init__(self, idle_s, sim_time: bool) -> None:
        self._left = list(idle_s)
        self._clock = SimpleNamespace(ros_time_is_active=sim_time)
        self.timeouts: list[float] = []

    @property
    def asked(self) -> bool:
        return not self._left

    def tick(self) -> float:
        return self._left.pop(0)

    def get_clock(self) -> SimpleNamespace:
        return self._clock

    def spin_once(self, timeout_sec: float) -> None:
        self.timeouts.append(timeout_sec)


def test_on_the_time_of_clock_every_turn_waits_for_messages_instead_of_sleeping(monkeypatch):
    monkeypatch.setattr(process.time, "sleep", lambda s: pytest.fail("messages are not served meanwhile"))
    turns = Turns(IDLE_S, sim_time=True)
    process._spin(turns, turns, turns)
    assert turns.timeouts == [0.0, 0.002, 0.0, 0.0005]


@pytest.mark.parametrize(("served_s", "served"), [(math.inf, 0), (0.0, len(IDLE_S))])
def test_on_wall_time_a_turn_sleeps_unless_calls_are_due(monkeypatch, served_s, served):
    slept: list[float] = []
    monkeypatch.setattr(process.time, "sleep", slept.append)
    turns = Turns(IDLE_S, sim_time=False)
    turns.served_s = served_s
    process._spin(turns, turns, turns)
    assert turns.timeouts == [0.0] * served
    assert slept == ([] if served else [0.002, 0.0005])


def test_a_node_that_lost_its_gpu_is_started_again_three_times_a_minute():
    restarts = process.Restarts()
    lost = process.DEVICE_LOST
    assert [restarts.wait_s(lost, now_s) for now_s in (100.0, 110.0, 159.9)] == [1.0] * 3
    assert restarts.wait_s(lost, 159.95) is None
    assert restarts.wait_s(lost, 160.0) == 1.0  # the first is a minute ago
    assert restarts.wait_s(lost, 169.0) is None


@pytest.mark.parametrize("code", [1, -9, -11, 134])
def test_a_node_that_crashed_or_was_killed_is_started_again_as_often_as_it_takes(code):
    restarts = process.Restarts()
    assert [restarts.wait_s(code, 100.0 + 10 * i) for i in range(12)] == [1.0] * 3 + [10.0] * 9
    assert restarts.wait_s(code, 400.0) == 1.0


@pytest.mark.parametrize("code", [0, process.USER_ERROR])
def test_a_node_that_ended_on_request_or_by_an_error_of_the_user_stays_ended(code):
    assert process.Restarts().wait_s(code, 100.0) is None


def test_clock_reaches_a_node_that_is_never_due_for_calls(ros):
    camera = rclpy.create_node("simulator", namespace=new_namespace())
    clock = camera.create_publisher(Clock, "/clock", 10)
    overrides = [Parameter("use_sim_time", value=True)]
    node = rclpy.create_node("flight", namespace=new_namespace(), parameter_overrides=overrides)
    turns = 0

    def tick() -> float:
        nonlocal turns
        turns += 1
        message = Clock()
        message.clock.sec = 1000 + turns
        clock.publish(message)
        return 0.01

    class Stop:
        @property
        def asked(self) -> bool:
            return node.get_clock().now().nanoseconds > 0 or turns > 1000

    node.tick, node.served_s = tick, math.inf
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    process._spin(Stop(), executor, node)
    assert node.get_clock().now().nanoseconds > 1000 * 10**9
    executor.shutdown()
    for made in (node, camera):
        made.destroy_node()
