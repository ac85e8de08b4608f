"""When a node with a rate of its own gets its calls: now and then, but each turn on the time of /clock; how
often one is started again."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from types import SimpleNamespace

import pytest
import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.parameter import Parameter
from ros_helpers import new_namespace
from rosgraph_msgs.msg import Clock
from std_msgs.msg import Empty
from std_srvs.srv import Empty as SrvEmpty

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
    own, sleep = threading.current_thread(), time.sleep

    def refuse(seconds: float) -> None:
        if threading.current_thread() is own:
            pytest.fail("messages are not served meanwhile")
        sleep(seconds)

    monkeypatch.setattr(process.time, "sleep", refuse)
    turns = Turns(IDLE_S, sim_time=True)
    process._spin(turns, turns, turns)
    assert turns.timeouts == [0.0, 0.002, 0.0, 0.0005]


@pytest.mark.parametrize(("served_s", "served"), [(math.inf, 0), (0.0, len(IDLE_S))])
def test_on_wall_time_a_turn_sleeps_unless_calls_are_due(monkeypatch, served_s, served):
    slept, sleep, own = [], time.sleep, threading.current_thread()
    note = lambda s: slept.append(s) if threading.current_thread() is own else sleep(s)  # noqa: E731
    monkeypatch.setattr(process.time, "sleep", note)
    turns = Turns(IDLE_S, sim_time=False)
    turns.served_s = served_s
    process._spin(turns, turns, turns)
    assert turns.timeouts == [0.0] * served
    assert slept == ([] if served else [0.002, 0.0005])


class Boundaries:
    """A node each of whose callbacks raises once, and a stop flag that is set once all were called twice."""

    def __init__(self) -> None:
        namespace = new_namespace()
        self.calls: Counter[str] = Counter()
        self.errors: list[str] = []
        node = self.node = rclpy.create_node("supervised", namespace=namespace)
        node.internal_error = lambda error: self.errors.append(str(error))
        node.create_subscription(Empty, "topic", lambda message: self.called("subscription"), 10)
        node.create_timer(0.01, lambda: self.called("timer"))
        node.create_service(SrvEmpty, "service", self.served)
        self.guard = node.create_guard_condition(lambda: self.called("guard"))
        self.publisher = node.create_publisher(Empty, "topic", 10)
        self.client = node.create_client(SrvEmpty, "service")
        node.tick = self.tick

    def called(self, what: str) -> None:
        self.calls[what] += 1
        if self.calls[what] == 1:
            raise RuntimeError(what)

    def served(self, request, response):
        self.called("service")
        return response

    def tick(self) -> None:
        self.publisher.publish(Empty())
        self.guard.trigger()
        if self.client.service_is_ready():
            self.client.call_async(SrvEmpty.Request()).add_done_callback(lambda done: self.called("answer"))
        self.called("tick")

    @property
    def asked(self) -> bool:
        names = ("subscription", "timer", "service", "guard", "answer", "tick")
        assert self.calls["tick"] < 2000, f"not all are called again: {self.calls}"
        return all(self.calls[name] > 1 for name in names)


def test_an_unforeseen_error_at_any_boundary_of_a_node_is_reported_and_does_not_end_it(ros):
    made = Boundaries()
    executor = SingleThreadedExecutor()
    executor.add_node(made.node)
    process._spin(made, executor, made.node)
    assert set(made.errors) == {"subscription", "timer", "service", "guard", "answer", "tick"}
    executor.shutdown()
    made.node.destroy_node()


def test_a_node_whose_ros_was_shut_down_ends(ros):
    context = rclpy.Context()
    rclpy.init(context=context)
    node = rclpy.create_node("ended", namespace=new_namespace(), context=context)
    executor = SingleThreadedExecutor(context=context)
    executor.add_node(node)
    rclpy.shutdown(context=context)
    process._spin(SimpleNamespace(asked=False), executor, node)


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


def test_a_turn_that_waits_by_a_clock_which_was_set_back_is_woken():
    woken = threading.Event()
    node = SimpleNamespace(get_clock=None)
    stop = SimpleNamespace(asked=False)

    def wait_for_years(timeout_sec: float) -> None:
        assert woken.wait(20.0)
        stop.asked = True

    process._spin(stop, SimpleNamespace(spin_once=wait_for_years, wake=woken.set), node)
    assert woken.is_set()
