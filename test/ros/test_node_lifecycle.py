"""Transitions, parameters and what is made only for subscribers, with the node in this process."""

from __future__ import annotations

import gc
import threading
from dataclasses import fields
from pathlib import Path

import pytest
from level_node import Tracker
from level_pipeline import FRAME_NS, LevelPipeline, bright_box
from lifecycle_msgs.msg import State, Transition
from lifecycle_msgs.srv import ChangeState, GetState
from rcl_interfaces.msg import ParameterDescriptor
from rclpy.lifecycle import TransitionCallbackReturn
from rclpy.parameter import Parameter
from ros_helpers import Peer, new_namespace, stamp_of

from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.errors import BackendError, InputError
from efftam_ros.core.types import PipelineSpec
from efftam_ros.images.message import stamp_ns
from efftam_ros.ros.tracker.node import TrackerNode
from efftam_ros.runtime.backends import PipelineConfig

SUCCESS, FAILURE = TransitionCallbackReturn.SUCCESS, TransitionCallbackReturn.FAILURE


class Opener:
    """A pipeline factory that remembers what it was asked for, and fails on demand."""

    def __init__(self) -> None:
        self.asked = []
        self.opened = []
        self.threads = []  # those that opened them
        self.notice = ""
        self.error = None

    def __call__(self, config):
        self.asked.append(PipelineConfig(**{f.name: getattr(config, f.name) for f in fields(PipelineConfig)}))
        if self.error is not None:
            raise self.error
        self.opened.append(LevelPipeline())
        self.opened[-1].notice = self.notice
        self.threads.append(threading.current_thread())
        return self.opened[-1]


@pytest.fixture
def opener():
    return Opener()


@pytest.fixture
def node(ros, opener):
    """A TrackerNode that spins in a thread of its own, unconfigured."""
    parameters = ("autostart:=false", "diagnostics_period:=0.1", "image_timeout:=20.0")
    tracker = Tracker(new_namespace(), *(word for p in parameters for word in ("-p", p)), pipeline=opener)
    yield tracker.node
    tracker.end()


@pytest.fixture
def peer(node):
    other = Peer(node.get_namespace().strip("/"))
    yield other
    other.close()


def change(peer, transition, label=""):
    client = peer.node.create_client(ChangeState, "efftam_tracker/change_state")
    peer.wait(client.service_is_ready, "change_state")
    request = ChangeState.Request(transition=Transition(id=transition, label=label))
    return peer.call(client, request).success


def state(peer):
    client = peer.node.create_client(GetState, "efftam_tracker/get_state")
    peer.wait(client.service_is_ready, "get_state")
    return peer.call(client, GetState.Request()).current_state.id


CONFIGURE, ACTIVATE = Transition.TRANSITION_CONFIGURE, Transition.TRANSITION_ACTIVATE
DEACTIVATE, CLEANUP = Transition.TRANSITION_DEACTIVATE, Transition.TRANSITION_CLEANUP


def bring_up(peer):
    assert change(peer, CONFIGURE)
    assert change(peer, ACTIVATE)
    peer.wait_until_active()
    peer.warm_up()


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_each_transition_owns_its_part(node, peer, opener):
    assert state(peer) == State.PRIMARY_STATE_UNCONFIGURED
    assert opener.asked == []
    assert change(peer, CONFIGURE)
    assert opener.asked == [PipelineConfig(max_targets=4)]
    assert state(peer) == State.PRIMARY_STATE_INACTIVE
    assert peer.images.get_subscription_count() == 0
    peer.wait(peer.select_client.service_is_ready, "select_target")
    refused = peer.clear()
    assert not refused.success
    assert "the node is inactive; activate it first" in refused.message

    assert change(peer, ACTIVATE)
    peer.wait_until_active()
    peer.warm_up()
    peer.show(0)
    peer.follow(0, bright_box(0))

    assert change(peer, DEACTIVATE)
    peer.wait(lambda: peer.images.get_subscription_count() == 0, "no subscription")
    assert not opener.opened[0].closed
    assert change(peer, ACTIVATE)
    peer.wait_until_active()
    peer.warm_up()
    assert peer.show(1).state == 0  # the target did not survive

    assert change(peer, DEACTIVATE)
    assert change(peer, CLEANUP)
    assert opener.opened[0].closed
    assert state(peer) == State.PRIMARY_STATE_UNCONFIGURED


SHUTDOWN = Transition.TRANSITION_ACTIVE_SHUTDOWN


def test_a_transition_that_the_state_does_not_have_is_refused(node, peer, capfd):
    """As by a second lifecycle manager, which knows transitions by their number or label."""
    assert not change(peer, ACTIVATE)
    assert not change(peer, 99)
    assert not change(peer, CONFIGURE, label="explode")
    assert change(peer, DEACTIVATE, label="configure")
    assert not change(peer, CONFIGURE)
    assert state(peer) == State.PRIMARY_STATE_INACTIVE
    told = capfd.readouterr().err
    assert (
        "transition 3 refused: the node is unconfigured; possible transitions: configure (1),"
        " shutdown (5)" in told
    )
    assert "transition 'explode' refused: the node is unconfigured" in told
    assert change(peer, ACTIVATE)


@pytest.mark.parametrize(
    ("transition", "reason"),
    [(DEACTIVATE, "the node was deactivated"), (SHUTDOWN, "the node is shutting down")],
)
def test_the_last_word_before_a_transition_silences_the_node_is_not_valid(node, peer, transition, reason):
    bring_up(peer)
    peer.show(0)
    peer.follow(0, bright_box(0))
    for i in range(1, 7):
        peer.show(i)
    assert peer.velocities[-1].valid
    assert change(peer, transition)
    peer.spin_for(0.3)
    for message in (peer.velocities[-1], peer.boxes[-1]):
        assert not message.valid
        assert message.reason == reason
        assert stamp_ns(message.header.stamp) == stamp_of(6)


@pytest.mark.parametrize(("given", "used"), [((), "window"), (("-p", "view:=full"), "full")])
def test_diagnostics_name_the_bundle_and_the_view_that_is_used(tracker, given, used):
    pipeline = LevelPipeline()
    pipeline.spec = PipelineSpec(name="windowed", image_side=512, default_view="window")
    peer = tracker("-p", "diagnostics_period:=0.1", *given, pipeline=lambda config: pipeline)
    _, values = peer.diagnosis(lambda _, values: "view" in values, "the set-up")
    assert (values["bundle"], values["view"], values["policy"]) == ("windowed", used, "default")
    assert values["memory per target (MB)"] == "0.0"  # this pipeline has none


CPU_RUNS = "or start with backend:=onnxruntime-cpu"


@pytest.mark.parametrize(
    ("error", "backend", "line"),
    [
        (InputError("bundle /nowhere has no bundle.json"), "tensorrt", "bundle /nowhere has no bundle.json"),
        (BackendError("there is no GPU", "get one"), "onnxruntime-cpu", "there is no GPU; get one"),
        (BackendError("there is no GPU", "get one"), "tensorrt", f"there is no GPU; get one; {CPU_RUNS}"),
        (ZeroDivisionError("of the network"), "tensorrt", "ZeroDivisionError: of the network"),
    ],
)
def test_what_can_not_be_opened_fails_configure_with_its_line(
    node, peer, opener, capfd, error, backend, line
):
    threads = threading.active_count()
    assert set_parameter(node, backend=backend).successful
    opener.error = error
    assert not change(peer, CONFIGURE)
    assert state(peer) == State.PRIMARY_STATE_UNCONFIGURED
    status, _ = peer.diagnosis(lambda s, v: s.level == b"\x02", "ERROR")
    assert status.message.startswith(line)
    assert ("Traceback" in capfd.readouterr().err) == isinstance(error, ZeroDivisionError)
    assert threading.active_count() == threads
    opener.error = None
    bring_up(peer)
    peer.diagnosis(lambda s, v: s.level == b"\x00" and v["lifecycle"] == "active", "OK")


def test_one_thread_opens_uses_and_closes_the_pipeline_however_often_it_is_activated(ros, opener, capfd):
    node = TrackerNode(opener, namespace=new_namespace())
    before, notice = threading.active_count(), "the engines were built in another power mode"
    opener.notice = notice
    assert node.trigger_configure() == SUCCESS
    (line,) = [line for line in capfd.readouterr().err.splitlines() if notice in line]
    assert line.startswith("[WARN]")
    ((pipeline, worker),) = zip(opener.opened, opener.threads, strict=True)
    assert worker is not threading.current_thread()
    for _ in range(3):
        assert node.trigger_activate() == SUCCESS
        waiting = node._thread.submit(threading.current_thread)  # waits behind the loop: the same thread
        assert not waiting.done()
        assert node.trigger_deactivate() == SUCCESS
        assert waiting.result(5.0) is worker
    closed_in = []
    close = pipeline.close
    pipeline.close = lambda: closed_in.append(threading.current_thread()) or close()
    assert node.trigger_cleanup() == SUCCESS
    assert closed_in == [worker]
    assert not worker.is_alive()
    assert threading.active_count() == before
    node.close()


def test_thirty_cycles_leave_nothing_behind(ros, opener):
    node = TrackerNode(opener, namespace=new_namespace())

    def cycle():
        assert node.trigger_configure() == SUCCESS
        assert node.trigger_activate() == SUCCESS
        assert node.trigger_deactivate() == SUCCESS
        assert node.trigger_cleanup() == SUCCESS

    for _ in range(3):
        cycle()
    gc.collect()
    before = threading.active_count(), open_files(), len(list(node.subscriptions)), len(list(node.publishers))
    for _ in range(27):
        cycle()
    gc.collect()
    after = threading.active_count(), open_files(), len(list(node.subscriptions)), len(list(node.publishers))
    assert after == before
    assert all(pipeline.closed for pipeline in opener.opened)
    assert len(list(node.timers)) == 1
    node.close()


@pytest.mark.parametrize(
    ("name", "fails"),
    [
        ("qos_overrides./select.subscription.reliability", "trigger_activate"),
        ("qos_overrides./overlay.publisher.reliability", "trigger_configure"),
    ],
)
def test_a_transition_that_fails_half_way_leaves_nothing_behind(ros, opener, name, fails):
    namespace = new_namespace()
    overrides = [Parameter(name.replace("./", f"./{namespace}/"), value="relaible")]
    node = TrackerNode(opener, namespace=namespace, parameter_overrides=overrides)

    def entities():
        made = node.subscriptions, node.publishers, node.timers, node.services
        return [sorted(map(id, each)) for each in made]

    before = entities()
    for _ in range(2):
        if fails == "trigger_activate":
            assert node.trigger_configure() == SUCCESS
        assert getattr(node, fails)() != SUCCESS
        assert "relaible" in node.fault
        assert entities() == before
    node.close()


def test_detections_are_published_where_vision_msgs_is_installed(node, peer):
    vision = pytest.importorskip("vision_msgs.msg", reason="vision_msgs is not installed")
    bring_up(peer)
    found = []
    peer.node.create_subscription(vision.Detection2DArray, "detections", found.append, 10)
    name = peer.node.resolve_topic_name("detections")
    peer.wait(lambda: node.count_subscribers(name) > 0, "the subscription to detections")
    peer.show(0)
    peer.follow(0, bright_box(0))
    i = 0
    while not (found and found[-1].detections):
        i += 1
        peer.show(i)
        peer.spin_for(0.05)
    (detection,) = found[-1].detections
    box = bright_box((stamp_ns(found[-1].header.stamp) - stamp_of(0)) // FRAME_NS)
    centre = detection.bbox.center.position
    assert (centre.x, centre.y) == pytest.approx((box.cx, box.cy), abs=0.5)
    assert (detection.bbox.size_x, detection.bbox.size_y) == pytest.approx((24, 24), abs=0.5)
    assert detection.id == "0"
    assert detection.results[0].hypothesis.score > 0.9
    assert detection.header == found[-1].header


def set_parameter(node, **values):
    (result,) = node.set_parameters([Parameter(name, value=value) for name, value in values.items()])
    return result


def test_thresholds_that_no_image_followed_apply_after_the_next_activation(node, peer):
    bring_up(peer)
    assert set_parameter(node, presence_threshold=0.9999).successful
    assert change(peer, DEACTIVATE)
    assert change(peer, ACTIVATE)
    peer.wait_until_active()
    peer.warm_up()
    peer.show(0)
    peer.follow(0, bright_box(0))
    assert not peer.show(1).measured


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"gate_iou": 1.5}, "Min: 0.0, Max: 1.0, value: 1.5"),
        ({"acquire_frames": 0}, "Min: 1, Max: 100, value: 0"),
        ({"view": "round"}, "view can't become 'round' while the node is configured"),
        ({"verify": "always"}, "verify can't become 'always' while the node is configured"),
        ({"backend": "torch"}, "deactivate and clean up the node first"),
        ({"autostart": True}, "read-only"),
        ({"lost_after": "soon"}, "Wrong parameter type"),
    ],
)
def test_refused_parameters_say_why(node, peer, values, words):
    assert change(peer, CONFIGURE)
    result = set_parameter(node, **values)
    assert not result.successful
    assert words in result.reason
    (name,) = values
    assert node.get_parameter(name).value != values[name]


def test_choices_are_checked_and_fixed_settings_count_at_the_next_configure(node, peer, opener):
    result = set_parameter(node, policy="best")
    assert result.reason == "policy is 'best'; choose one of default, samurai, efficienttam"
    assert set_parameter(node, threads=3).successful
    assert change(peer, CONFIGURE)
    assert opener.asked == [PipelineConfig(max_targets=4, threads=3)]


def test_every_setting_is_declared_with_text_and_range(node):

    for f in fields(TrackerConfig):
        descriptor: ParameterDescriptor = node.describe_parameter(f.name)
        assert descriptor.description == f.metadata["text"]
        limits = [*descriptor.floating_point_range, *descriptor.integer_range]
        if f.metadata["within"] is not None:
            assert [(r.from_value, r.to_value) for r in limits] == [f.metadata["within"]]
        for choice in f.metadata["choices"]:
            assert choice in descriptor.additional_constraints
        assert node.get_parameter(f.name).value == f.default
