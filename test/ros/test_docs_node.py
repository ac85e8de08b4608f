"""docs/node.md on the real middleware: its consumer does what the page says, its topics have that QoS."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"
PAGE = README.parent / "docs" / "node.md"


@pytest.fixture
def consumer(ros):
    (source,) = (
        block
        for block in re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.S | re.M)
        if "class" in block
    )
    names = {"__name__": "page"}
    exec(compile(source, str(PAGE), "exec"), names)
    node = names["Consumer"]()
    yield node
    node.destroy_node()


@pytest.fixture
def publish(ros, consumer):
    """Publish a TargetVelocity and let the consumer have it."""
    from efftam_ros.msg import TargetVelocity
    from rclpy.executors import SingleThreadedExecutor

    node = ros.create_node("stand_in_for_the_tracker")
    publisher = node.create_publisher(TargetVelocity, "velocity", 10)
    executor = SingleThreadedExecutor()
    executor.add_node(consumer)

    def send(**fields):
        until = time.monotonic() + 10
        while publisher.get_subscription_count() == 0 and time.monotonic() < until:
            executor.spin_once(timeout_sec=0.05)
        received_ns = consumer.received_ns
        angles = {"predicted_azimuth": 0.2, "predicted_elevation": -0.1}
        publisher.publish(TargetVelocity(steered=True, **angles, **fields))
        while consumer.received_ns == received_ns and time.monotonic() < until:
            executor.spin_once(timeout_sec=0.05)
        assert consumer.received_ns > received_ns

    yield send
    executor.shutdown()
    node.destroy_node()


def test_a_valid_message_with_a_bearing_is_used(consumer, publish):
    publish(valid=True, has_bearing=True)
    assert consumer.command == (0.2, -0.1)


def test_messages_of_a_target_that_is_not_steered_by_count_for_nothing(consumer, publish):
    from efftam_ros.msg import TargetVelocity

    publish(valid=True, has_bearing=True)
    received_ns = consumer.received_ns
    consumer.on_velocity(TargetVelocity(valid=False))
    consumer.on_velocity(TargetVelocity(valid=True, has_bearing=True, predicted_azimuth=0.7))
    assert (consumer.command, consumer.received_ns) == ((0.2, -0.1), received_ns)


@pytest.mark.parametrize(("valid", "has_bearing"), [(False, True), (True, False)])
def test_other_messages_stop_it(consumer, publish, valid, has_bearing):
    publish(valid=True, has_bearing=True)
    publish(valid=valid, has_bearing=has_bearing)
    assert consumer.command is None


def test_silence_of_half_a_second_stops_it(consumer, publish):
    publish(valid=True, has_bearing=True)
    consumer.control()
    assert consumer.command == (0.2, -0.1)
    consumer.received_ns -= 510_000_000
    consumer.control()
    assert consumer.command is None


def test_the_readmes_consumer_prints_the_steered_target_while_it_is_valid(ros):
    from efftam_ros.msg import TargetVelocity

    (source,) = (
        b for b in re.findall(r"^```python\n(.*?)^```", README.read_text(), re.S | re.M) if "spin" in b
    )
    node = ros.create_node("stand_in_for_the_tracker")
    publisher = node.create_publisher(TargetVelocity, "velocity", 10)
    with subprocess.Popen([sys.executable, "-u", "-c", source], stdout=subprocess.PIPE, text=True) as process:
        try:
            until = time.monotonic() + 30
            while publisher.get_subscription_count() == 0 and time.monotonic() < until:
                time.sleep(0.05)
            for x, (steered, valid) in enumerate([(True, False), (False, True), (True, True)]):
                publisher.publish(TargetVelocity(steered=steered, valid=valid, center_x=float(x)))
            assert process.stdout.readline() == "2.0 0.0 0.0 0.0\n"
        finally:
            process.kill()
    node.destroy_node()


def test_the_launch_arguments_have_the_defaults_that_the_page_states():
    source = ast.parse((README.parent / "efftam_ros" / "ros" / "common" / "launching.py").read_text())
    calls = [node.args for node in ast.walk(source) if isinstance(node, ast.Call) and len(node.args) > 2]
    # The launch file makes these three from the fields of PipelineConfig.
    arguments = dict.fromkeys(("bundle", "backend", "precision"), "")
    for name, default, *_ in calls:
        if isinstance(name, ast.Constant) and isinstance(default, ast.Constant):
            arguments[name.value] = default.value
    _, _, text = PAGE.read_text().partition("## Launch arguments")
    rows = re.findall(r"^\| (`[^|]+`) \| (?:`([^`]+)` )?\|", text.partition("## Parameters")[0], re.M)
    stated = {name: default for names, default in rows for name in re.findall(r"\w+", names)}
    assert stated == arguments


def test_topics_have_the_qos_that_the_page_states(peer):
    from rclpy.qos import DurabilityPolicy, ReliabilityPolicy

    _, _, inputs = PAGE.read_text().partition("### Inputs")
    inputs, _, outputs = inputs.partition("### Outputs")
    row = re.compile(r"^\| `(\w+)` \|[^|]+\| ([RB]) \d+(, latched)? ", re.M)
    rows = [(True, *found) for found in row.findall(inputs)]
    rows += [(False, *found) for found in row.findall(outputs)]
    node, checked = peer.node, set()
    for is_input, topic, reliability, latched in rows:
        name = node.resolve_topic_name(topic)
        of = node.get_subscriptions_info_by_topic if is_input else node.get_publishers_info_by_topic
        for found in (info.qos_profile for info in of(name) if info.node_name == "efftam_tracker"):
            wanted = ReliabilityPolicy.RELIABLE if reliability == "R" else ReliabilityPolicy.BEST_EFFORT
            assert found.reliability is wanted, topic
            assert (found.durability is DurabilityPolicy.TRANSIENT_LOCAL) == bool(latched), topic
            checked.add(topic)
    always = {"camera_info", "select", "bbox", "velocity", "selection_result"}
    assert checked >= always
