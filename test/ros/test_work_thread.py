"""One thread opens, uses and closes the pipeline, however often the node is activated."""

from __future__ import annotations

import threading

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed")
pytest.importorskip("efftam_ros.msg", reason="the messages are not built")

from rclpy.lifecycle import TransitionCallbackReturn
from rclpy.parameter import Parameter
from ros_helpers import new_namespace

from efftam_ros.core.errors import BackendError
from efftam_ros.core.types import Image
from efftam_ros.ros.tracker.node import TrackerNode
from efftam_ros.ros.tracker.worker import WorkThread
from efftam_ros.runtime.null_pipeline import NullPipeline

SUCCESS, FAILURE = TransitionCallbackReturn.SUCCESS, TransitionCallbackReturn.FAILURE


class TestTheThread:
    @pytest.fixture
    def thread(self):
        thread = WorkThread("test")
        yield thread
        thread.end()

    def test_is_one_for_everything_in_the_order_given(self, thread: WorkThread) -> None:
        seen: list[tuple[int, int]] = []
        done = [thread.submit(lambda n=n: seen.append((n, threading.get_ident()))) for n in range(20)]
        assert done[-1].result(5.0) is None
        assert [n for n, _ in seen] == list(range(20))
        assert {ident for _, ident in seen} == {thread.call(threading.get_ident)}
        assert threading.get_ident() not in {ident for _, ident in seen}

    def test_hands_on_what_a_call_returns_and_raises(self, thread: WorkThread) -> None:
        assert thread.call(lambda: 7) == 7
        with pytest.raises(BackendError, match="no GPU"):
            thread.call(self.refuse)
        assert thread.call(lambda: 8) == 8

    @staticmethod
    def refuse() -> None:
        raise BackendError("no GPU", "get one")

    def test_finishes_its_work_before_it_ends_and_takes_none_after(self) -> None:
        thread, gate, done = WorkThread(), threading.Event(), []
        thread.submit(gate.wait)
        last = thread.submit(lambda: done.append(1))
        gate.set()
        thread.end()
        thread.end()
        assert last.done()
        assert done == [1]
        with pytest.raises(RuntimeError, match="has ended"):
            thread.submit(lambda: None)


class Recorded(NullPipeline):
    """Keeps the threads that its methods are called in, as objects: identities are used again."""

    def __init__(self) -> None:
        super().__init__()
        self.threads = [threading.current_thread()]
        self.closed_in: threading.Thread | None = None

    def encode(self, image, view):
        self.threads.append(threading.current_thread())
        super().encode(image, view)

    def close(self):
        self.closed_in = threading.current_thread()
        super().close()


@pytest.fixture
def made(ros):
    """The pipelines that were opened, and a node that opens them."""
    opened: list[Recorded] = []

    def factory(bundle, backend, threads, verify, zero_copy):
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
    (opener,) = pipeline.threads
    assert opener is not threading.current_thread()
    for _ in range(3):
        assert node.trigger_activate() == SUCCESS
        session = node._session
        session._worker._thread.submit(lambda: None)  # waits behind the worker: the same thread
        assert session._worker._thread is node._thread
        assert node.trigger_deactivate() == SUCCESS
        node._thread.call(lambda: pipeline.encode(Image.from_array(np.zeros((48, 64, 3), np.uint8)), None))
    assert node.trigger_cleanup() == SUCCESS
    assert set(pipeline.threads) == {opener}
    assert pipeline.closed_in is opener
    assert not opener.is_alive()
    assert threading.active_count() == before


def test_a_back_end_that_is_refused_leaves_no_thread(ros) -> None:
    def refuse(*asked):
        raise BackendError("there is no GPU", "get one")

    node = TrackerNode(refuse, namespace=new_namespace())
    before = threading.active_count()
    assert node.trigger_configure() == FAILURE
    assert "there is no GPU" in node.fault
    assert threading.active_count() == before
    node.close()
