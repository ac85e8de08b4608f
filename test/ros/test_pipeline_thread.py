"""One thread opens, uses and closes the pipeline, however often the node is activated."""

from __future__ import annotations

import threading

import pytest
from rclpy.lifecycle import TransitionCallbackReturn
from rclpy.parameter import Parameter
from ros_helpers import new_namespace

from efftam_ros.core.errors import BackendError
from efftam_ros.ros.tracker.node import TrackerNode
from simulation.null_pipeline import NullPipeline

SUCCESS, FAILURE = TransitionCallbackReturn.SUCCESS, TransitionCallbackReturn.FAILURE


class Recorded(NullPipeline):
    """Keeps the threads that it is opened and closed in, as objects: identities are used again."""

    def __init__(self) -> None:
        super().__init__()
        self.opened_in = threading.current_thread()
        self.closed_in: threading.Thread | None = None

    def close(self):
        self.closed_in = threading.current_thread()
        super().close()


class Slower(NullPipeline):
    notice = "the engines were built in another power mode"


@pytest.fixture
def made(ros):
    """The pipelines that were opened, and a node that opens them."""
    opened: list[Recorded] = []

    def factory(config):
        opened.append(Recorded())
        return opened[-1]

    node = TrackerNode(
        factory,
        namespace=new_namespace(),
        parameter_overrides=[Parameter("autostart", value=False)],
    )
    yield opened, node
    node.close()


def test_activating_again_keeps_the_thread_and_cleanup_ends_it(made) -> None:
    opened, node = made
    before = threading.active_count()
    assert node.trigger_configure() == SUCCESS
    (pipeline,) = opened
    opener = pipeline.opened_in
    assert opener is not threading.current_thread()
    for _ in range(3):
        assert node.trigger_activate() == SUCCESS
        waiting = node._thread.submit(threading.current_thread)  # waits behind the loop: the same thread
        assert not waiting.done()
        assert node.trigger_deactivate() == SUCCESS
        assert waiting.result(5.0) is opener
    assert node.trigger_cleanup() == SUCCESS
    assert pipeline.closed_in is opener
    assert not opener.is_alive()
    assert threading.active_count() == before


def test_what_the_user_should_know_of_the_network_is_a_warning(made, capfd) -> None:
    _, node = made
    node._pipeline_factory = lambda *asked: Slower()
    assert node.trigger_configure() == SUCCESS
    (line,) = [line for line in capfd.readouterr().err.splitlines() if Slower.notice in line]
    assert line.startswith("[WARN]")


def test_a_back_end_that_is_refused_leaves_no_thread(ros) -> None:
    def refuse(*asked):
        raise BackendError("there is no GPU", "get one")

    node = TrackerNode(refuse, namespace=new_namespace())
    before = threading.active_count()
    assert node.trigger_configure() == FAILURE
    assert "there is no GPU" in node.fault
    assert threading.active_count() == before
    node.close()
