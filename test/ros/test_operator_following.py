"""What the page's node hears of positions and following, and what it calls."""

from __future__ import annotations

import time
from typing import Any

import pytest
import rclpy
from efftam_ros.msg import FollowStatus, TargetPosition
from rclpy.executors import SingleThreadedExecutor
from ros_helpers import PATIENCE_S, new_namespace
from std_srvs.srv import SetBool

from efftam_operator.feed import CommandAnswer, FollowState
from efftam_operator.ros import following
from efftam_operator.ros.calls import Calls
from efftam_operator.ros.following import RosFollowing
from efftam_operator.wire import position, report_message
from efftam_ros.messages.positions import PositionReport
from efftam_ros.ros.common.nodes import latched


class Desk:
    """The follower on a node of its own, and a bridge on another."""

    def __init__(self) -> None:
        namespace = new_namespace()
        self.node = rclpy.create_node("operator", namespace=namespace)
        self.bridge = rclpy.create_node("efftam_mavlink", namespace=namespace)
        self.reports: list[Any] = []
        self.follower = RosFollowing(self.node, "efftam_mavlink", Calls(self.node, 2.0))
        self.follower.start(self.reports.append)
        self._positions = self.bridge.create_publisher(TargetPosition, "position", 10)
        self._statuses = self.bridge.create_publisher(FollowStatus, "follow_status", latched())
        self.calls: list[bool] = []
        self.bridge.create_service(SetBool, "~/enable_follow", self._on_call)
        self._executor = SingleThreadedExecutor()
        for node in (self.node, self.bridge):
            self._executor.add_node(node)
        self.wait(lambda: self._positions.get_subscription_count())

    def _on_call(self, request: Any, response: Any) -> Any:
        self.calls.append(request.data)
        response.success, response.message = not request.data, "no target is followed: select one"
        return response

    def wait(self, condition: Any) -> None:
        end_s = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < end_s
            self._executor.spin_once(timeout_sec=0.05)

    def locate(self, **fields: Any) -> None:
        self._positions.publish(TargetPosition(**{"steered": True, "valid": True, **fields}))

    def say(self, **fields: Any) -> None:
        self._statuses.publish(FollowStatus(**fields))

    def of(self, kind: type) -> list[Any]:
        return [report for report in self.reports if isinstance(report, kind)]

    def close(self) -> None:
        self._executor.shutdown()
        self.node.destroy_node()
        self.bridge.destroy_node()


@pytest.fixture
def desk(ros):
    one = Desk()
    yield one
    one.close()


def test_the_newest_position_of_the_steered_target_is_reported(desk):
    for x in (1.0, 2.0, 3.0):
        desk.locate(target_id=1, selection=4, x=x, latitude=47.4, longitude=8.55)
    desk.locate(target_id=2, steered=False, x=9.0)
    desk.wait(lambda: desk.of(PositionReport) and desk.of(PositionReport)[-1].x == 3.0)
    assert all(report.target_id == 1 for report in desk.of(PositionReport))
    shown = position(desk.of(PositionReport)[-1])
    assert (shown["op"], shown["selection"], shown["latitude"], shown["height"]) == (
        "position",
        4,
        47.4,
        "unknown",
    )


def test_the_bridges_state_is_reported_and_its_silence(desk, monkeypatch):
    desk.say(available=True, reason="the target is lost")
    wanted = FollowState(True, False, False, "the target is lost")
    desk.wait(lambda: desk.of(FollowState) == [wanted])
    assert report_message(wanted)["op"] == "follow"
    monkeypatch.setattr(following, "SILENT_S", 0.5)
    desk.wait(lambda: len(desk.of(FollowState)) == 2)
    assert not desk.of(FollowState)[-1].available
    assert desk.of(FollowState)[-1].reason


def test_both_switches_call_the_bridge_and_give_its_answer(desk):
    answers: list[CommandAnswer] = []
    desk.wait(lambda: desk.follower._client.service_is_ready())
    desk.follower.enable(answers.append)
    desk.wait(lambda: len(answers) == 1)
    desk.follower.stop(answers.append)
    desk.wait(lambda: len(answers) == 2)
    assert desk.calls == [True, False]
    assert [answer.ok for answer in answers] == [False, True]
    assert "select" in answers[0].message
