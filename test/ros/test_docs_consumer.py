"""The consumer of docs/node.md does what the page says, on the real middleware."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "node.md"


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
        heard_ns = consumer.heard_ns
        publisher.publish(TargetVelocity(predicted_azimuth=0.2, predicted_elevation=-0.1, **fields))
        while consumer.heard_ns == heard_ns and time.monotonic() < until:
            executor.spin_once(timeout_sec=0.05)
        assert consumer.heard_ns > heard_ns

    yield send
    executor.shutdown()
    node.destroy_node()


def test_a_valid_message_with_a_bearing_is_used(consumer, publish):
    publish(valid=True, has_bearing=True)
    assert consumer.command == (0.2, -0.1)


@pytest.mark.parametrize(("valid", "has_bearing"), [(False, True), (True, False)])
def test_other_messages_stop_it(consumer, publish, valid, has_bearing):
    publish(valid=True, has_bearing=True)
    publish(valid=valid, has_bearing=has_bearing)
    assert consumer.command is None


def test_silence_of_half_a_second_stops_it(consumer, publish):
    publish(valid=True, has_bearing=True)
    consumer.control()
    assert consumer.command == (0.2, -0.1)
    consumer.heard_ns -= 510_000_000
    consumer.control()
    assert consumer.command is None
