"""What the bridge's node says of the gimbal, and which target it shows, whatever was said before."""

from __future__ import annotations

import copy
import math
import re
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import rclpy

pytest.importorskip("pymavlink", reason="needs MAVLink: pip install 'efftam_ros[flight]'")
from builtin_interfaces.msg import Time
from efftam_ros.msg import (
    BoundingBox,
    GimbalManager,
    GimbalStatus,
    SelectionResult,
    TargetSelection,
    TargetVelocity,
)
from hypothesis import given
from hypothesis import strategies as st
from rclpy.parameter import Parameter
from ros_helpers import new_namespace
from sensor_msgs.msg import CameraInfo
from std_msgs.msg import Bool
from support.reasons import assert_numbered, because

from efftam_flight.control_config import ControlConfig, GimbalCommand, Instant, Phase
from efftam_flight.ros.gimbal import loop as gimbal_loop
from efftam_flight.ros.gimbal.loop import GimbalPublishers, Loop
from efftam_flight.ros.mavlink import GimbalTopics, MavlinkNode
from efftam_flight.values import AttitudeSample, Control, GimbalLimits, Rates, VehicleSample, YawFrame
from efftam_flight.waits import BRIDGE_STATUS_S
from efftam_ros.core.errors import InputError
from efftam_ros.core.reasons import ReasonCode
from efftam_ros.messages.bearing import CameraModel
from efftam_ros.messages.fields import Outcome, reason_fields
from efftam_ros.messages.reports import ResultReport, Selection

LIMITS = (GimbalLimits(), GimbalLimits(-1.0, 0.5, -2.0, 2.5), GimbalLimits(-1.5, 0.5, -3.0, 3.0))
NEWS = st.one_of(
    st.tuples(st.just("attitude"), st.booleans(), st.booleans()),
    st.tuples(
        st.just("control"),
        st.sampled_from(list(Control)),
        st.sampled_from([because(""), because("255/190 has it")]),
    ),
    st.tuples(st.just("alive"), st.booleans()),
    st.tuples(st.just("limits"), st.sampled_from(LIMITS)),
    st.tuples(st.just("repeat"), st.sampled_from([0.0, BRIDGE_STATUS_S / 2, BRIDGE_STATUS_S])),
)


class Recorded:
    """A node whose publishers keep a copy of what they are given."""

    def __init__(self) -> None:
        self.sent: dict[str, list] = {}
        self.order: list[str] = []

    def get_clock(self) -> SimpleNamespace:
        return SimpleNamespace(now=lambda: SimpleNamespace(to_msg=Time, nanoseconds=5))

    def create_publisher(self, kind, topic, qos) -> SimpleNamespace:
        sent = self.sent.setdefault(topic, [])

        def publish(message) -> None:
            assert_numbered(message)
            sent.append(copy.deepcopy(message))
            self.order.append(topic)

        return SimpleNamespace(
            publish=publish, wait_for_all_acked=lambda timeout: not self.order.append("acked")
        )


@given(st.lists(NEWS, max_size=12))
def test_all_that_is_known_of_the_gimbal_is_said_at_every_change_and_now_and_then(news):
    node, now_s, next_s = Recorded(), 0.0, -math.inf
    topics, managers, attitudes = (
        GimbalTopics(node, yaw_lock=True),
        *map(node.sent.get, ("gimbal_manager", "gimbal_attitude")),
    )
    stops = dict.fromkeys(("pitch_min", "yaw_min"), -math.inf) | dict.fromkeys(
        ("pitch_max", "yaw_max"), math.inf
    )
    known = {"control": GimbalManager.SILENT, "alive": True, **stops}
    known |= reason_fields(ReasonCode.NO_AUTOPILOT.reason())
    known |= {"yaw_lock": True, "at_pitch_limit": False, "at_yaw_limit": False}
    for what, *values in news:
        count, is_said = len(managers), True
        if what == "attitude":
            stands = dict(zip(("at_pitch_limit", "at_yaw_limit"), values, strict=True))
            is_said = known != (known := known | stands)
            topics.attitude(AttitudeSample(1_000_000_002, (0.5, 0.1, 0.2, 0.3), YawFrame.EARTH, *values))
            said, q = attitudes[-1], attitudes[-1].quaternion
            assert (said.header.stamp, said.header.frame_id) == (Time(sec=1, nanosec=2), YawFrame.EARTH.value)
            assert (q.w, q.x, q.y, q.z) == (0.5, 0.1, 0.2, 0.3)
        elif what == "control":
            topics.control(*values)
            known |= {"control": getattr(GimbalManager, values[0].name)} | reason_fields(values[1])
        elif what == "alive":
            topics.gimbal_alive(*values)
            known |= {"alive": values[0]}
        elif what == "limits":
            topics.limits(*values)
            known |= {name: getattr(values[0], name) for name in stops}
        else:
            now_s += values[0]
            is_said, next_s = now_s >= next_s, now_s + BRIDGE_STATUS_S if now_s >= next_s else next_s
            topics.repeat(now_s)
        assert len(managers) == count + is_said
        assert not managers or {name: getattr(managers[-1], name) for name in known} == known


def test_the_controllers_status_is_said_at_every_change_and_now_and_then():
    node = Recorded()
    outputs, said = GimbalPublishers(node), node.sent["gimbal_status"]
    following = GimbalCommand(
        Rates(0.1, 0.2), True, Phase.FOLLOWING, reason=ReasonCode.UNSEEN.reason(unseen_s=0.1)
    )
    later = ReasonCode.UNSEEN.reason(unseen_s=0.25)
    for at_s, command, enabled, count in (
        (0.0, following, True, 1),
        (0.1, replace(following, rates=Rates(0.3, 0.2), reason=later), True, 1),  # another value alone
        (0.1, replace(following, phase=Phase.HOLDING), True, 2),
        (0.1, following, False, 3),
        (0.2, following, False, 3),
        (0.31, following, False, 4),
        (0.4, following, False, 4),
    ):
        outputs.send_status(command, enabled, Instant(7, at_s))
        assert len(said) == count
    assert (said[-1].header.stamp, said[-1].enabled, said[-1].phase) == (
        Time(nanosec=7),
        False,
        said[0].phase,
    )


def test_a_controller_that_ends_stops_the_gimbal_gives_it_back_and_says_so_in_this_order():
    node = Recorded()
    outputs = GimbalPublishers(node)
    outputs.want_gimbal(True)
    outputs.want_gimbal(True)  # said once: else it would be taken back from who took it
    outputs.send_rates(Rates(0.1, -0.2), 1)
    assert (node.sent["rates"][0].twist.angular.y, node.sent["rates"][0].twist.angular.z) == (-0.1, 0.2)
    node.order.clear()
    outputs.stop()
    assert node.order == ["rates", "acked", "steering_enabled", "gimbal_status", "acked", "acked"]
    assert node.sent["rates"][-1].twist.angular.z == 0.0
    assert [message.data for message in node.sent["steering_enabled"]] == [False, True, False]
    assert node.sent["gimbal_status"][-1].phase == GimbalStatus.OFF


def test_the_heading_has_the_time_of_its_sample():
    node = Recorded()
    for stamp_ns, stamp in ((3_000_000_004, Time(sec=3, nanosec=4)), (-4, Time())):
        GimbalTopics(node, yaw_lock=True).vehicle(VehicleSample(stamp_ns, 1.5, -0.25))
        said = node.sent["vehicle_heading"][-1]
        assert (said.header.stamp, said.yaw, said.yaw_rate) == (stamp, 1.5, -0.25)


@pytest.fixture
def bridge(ros):
    links = [Parameter("links", value="udpout:127.0.0.1:9"), Parameter("landing_target", value=True)]
    node = MavlinkNode(namespace=new_namespace(), parameter_overrides=links)
    yield node
    node.close()


def test_what_controller_tracker_and_camera_say_reaches_the_bridge(bridge, monkeypatch):
    said = []
    for name in ("set_rates", "take_control", "selection_result", "set_camera"):
        monkeypatch.setattr(
            bridge._bridge, name, lambda *what, name=name, **how: said.append((name, *what, how))
        )
    node, rates = Recorded(), Rates(pitch=0.125, yaw=-0.25)
    controller = GimbalPublishers(node)
    controller.send_rates(rates, 1)
    controller.want_gimbal(True)
    bridge._on_rates(node.sent["rates"][-1])
    # The first word may have been said long ago: what is asked for then is not asked for anew.
    for message in (*node.sent["steering_enabled"][::-1], Bool(data=True)):
        bridge._on_steering(message)
    result = SelectionResult(outcome=SelectionResult.REFUSED, message="why", target_id=3, selection=4)
    result.header.stamp.sec = 5
    bridge._on_result(result)
    bridge._on_camera_info(CameraInfo(width=64, height=48))
    assert said == [
        ("set_rates", rates, {}),
        *(("take_control", *wanted) for wanted in ((True, {"fresh": False}), (False, {"fresh": True}))),
        ("take_control", True, {"fresh": True}),
        ("selection_result", ResultReport(5_000_000_000, Outcome.REFUSED, "why", 3, 4), {}),
        ("set_camera", CameraModel(None, 64, 48), {}),
    ]


@pytest.fixture
def loop(ros):
    """A controller's loop that only notes what it is told; the outputs go to `Recorded`."""
    node = rclpy.create_node("gimbal", namespace=new_namespace())
    made = Loop(node, ControlConfig(), GimbalPublishers(Recorded()))
    made._control = Mock(enabled=False)
    yield made
    made.close()
    node.destroy_node()


def test_what_the_bridge_says_reaches_the_controller_as_it_was(loop):
    node, control = Recorded(), loop._control
    topics = GimbalTopics(node, yaw_lock=True)
    heard = {one.topic_name.rpartition("/")[2] for one in loop._node.subscriptions}
    assert heard >= {"camera_info", "velocity", *node.sent}
    taken = ReasonCode.OTHER_IN_CONTROL.reason(name="255/190")
    topics.limits(LIMITS[1])
    topics.control(Control.OTHER, taken)
    topics.gimbal_alive(False)
    sample = AttitudeSample(7, (0.5, 0.1, 0.2, 0.3), YawFrame.VEHICLE, True, False)
    topics.attitude(sample)
    for message in node.sent["gimbal_manager"]:
        loop._on_manager(message)
    loop._on_attitude(node.sent["gimbal_attitude"][-1])
    vehicle = VehicleSample(9, 1.5, -0.25)
    topics.vehicle(vehicle)
    loop._on_heading(node.sent["vehicle_heading"][-1])
    last = {name: args for name, args, _ in control.method_calls}
    assert last["on_limits"] == (LIMITS[1],)
    assert last["on_control"] == (Control.OTHER, taken)
    assert last["on_control"][1].code is ReasonCode.OTHER_IN_CONTROL
    assert last["on_gimbal_alive"] == (False,)
    assert last["on_attitude"][0] == sample
    assert last["on_vehicle"] == (vehicle,)


def test_enabling_says_what_it_waits_for_and_asks_for_the_gimbal(loop, monkeypatch):
    monkeypatch.setattr(GimbalPublishers, "others", "")
    said = loop._outputs._node.sent["steering_enabled"]
    silent = ReasonCode.AUTOPILOT_SILENT.reason(duration="")
    loop._control.waits_for = silent
    for enabled, waits_for, wanted in (
        (True, silent, [False, True]),
        (False, "", [False, True]),  # the zeros are not out yet
    ):
        assert loop.set_enabled(enabled) == waits_for
        assert loop._control.set_enabled.call_args.args == (enabled,)
        assert [message.data for message in said] == wanted
    monkeypatch.setattr(GimbalPublishers, "others", "2 publishers")
    assert loop.set_enabled(False) == ""  # to stop is never refused
    with pytest.raises(InputError, match="2 publishers"):
        loop.set_enabled(True)
    assert loop._control.set_enabled.call_args.args == (False,)


def test_a_tick_that_is_late_is_not_made_up_for_by_several(loop, monkeypatch):
    ticks, now_s = [], loop._due_s
    monkeypatch.setattr(gimbal_loop, "time", SimpleNamespace(monotonic=lambda: now_s))
    loop._tick = lambda now: ticks.append(round(now_s - began_s, 3))
    began_s = now_s
    for at_s in (0.0, 0.01, 0.02, 0.03, 0.045, 0.05, 0.06, 1.0, 1.001, 1.019, 1.021):
        now_s = began_s + at_s + 1e-6
        loop.turn()
    assert ticks == [0.0, 0.02, 0.045, 0.06, 1.0, 1.021]


def test_a_bridge_is_silent_once_it_was_heard_and_says_nothing_for_long(loop, monkeypatch):
    now_s = 100.0
    monkeypatch.setattr(gimbal_loop, "time", SimpleNamespace(monotonic=lambda: now_s))
    loop._control.tick.return_value = GimbalCommand(Rates(0.0, 0.0), False, Phase.HOLDING)
    bridge = Recorded()
    GimbalTopics(bridge, yaw_lock=True).control(Control.OTHER, because("of another"))
    for event, is_silent in (
        (1e6, False),  # none was heard
        ("heard", False),
        (gimbal_loop.BRIDGE_SILENT_S, False),
        (0.01, True),
        ("heard", False),
        (gimbal_loop.BRIDGE_SILENT_S + 0.01, True),
    ):
        loop._control.on_control.reset_mock()
        if event == "heard":
            loop._on_manager(bridge.sent["gimbal_manager"][-1])
        else:
            now_s += event
        loop._tick(Instant(0, now_s))
        said = [one.args for one in loop._control.on_control.call_args_list]
        assert ((Control.SILENT, ReasonCode.BRIDGE_SILENT.reason()) in said) is is_silent, event


def test_a_switch_of_target_is_one_between_two_that_were_followed(loop, capfd):
    tracking, idle, lost = TargetVelocity.TRACKING, TargetVelocity.IDLE, TargetVelocity.LOST
    for target_id, steered, state in (
        (5, True, idle),
        (0, True, tracking),  # the first one is no switch
        (1, False, tracking),
        (2, True, idle),  # nothing is followed: nor is this
        (0, True, lost),
        (1, True, lost),
        (1, True, tracking),
    ):
        count = len(loop._control.on_estimate.mock_calls)
        loop._on_velocity(TargetVelocity(target_id=target_id, steered=steered, state=state))
        assert len(loop._control.on_estimate.mock_calls) == count + steered
    lines = [line for line in capfd.readouterr().err.splitlines() if "now steering" in line]
    assert [re.findall(r"target (\d) \(before: target (\d)\)", line) for line in lines] == [[("1", "0")]]


def test_a_selection_that_no_tracker_would_get_is_answered(bridge):
    assert bridge._tracker.select(Selection(1)) == "no tracker subscribes to selections; start efftam_tracker"


def test_the_station_is_shown_the_target_that_is_steered_by_and_its_stop_is_for_that_one(bridge, capfd):
    node = bridge
    boxes, velocities, selections = [], [], []
    node._bridge.track, node._bridge.estimate = boxes.append, velocities.append
    node._tracker._selections = SimpleNamespace(publish=selections.append, get_subscription_count=lambda: 1)
    tracking, idle = BoundingBox.TRACKING, BoundingBox.IDLE
    for target_id, steered, state, stops in (
        (1, False, tracking, 0),
        (0, True, tracking, 0),
        (2, False, tracking, 0),
        (2, True, tracking, 2),
        (0, False, tracking, 2),
        (2, True, idle, 0),
        (2, True, tracking, 2),
    ):
        count = len(boxes)
        node._on_box(BoundingBox(target_id=target_id, steered=steered, state=state))
        node._on_velocity(TargetVelocity(target_id=target_id, steered=steered, state=state))
        assert len(boxes) == len(velocities) == count + steered
        assert node._tracker.select(Selection(1)) is None
        assert (selections[-1].kind, selections[-1].target_id) == (TargetSelection.CLEAR, stops)
    lines = [line for line in capfd.readouterr().err.splitlines() if "now show target" in line]
    assert [re.findall(r"target (\d) \(before: target (\d)\)", line) for line in lines] == [[("2", "0")]]
