"""A node that computes without end inside a library is ended; one that waits or works is not."""

from __future__ import annotations

import signal
import sys
import time

import pytest
from ros_helpers import Process

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the limit needs a timer of Linux")

# A node whose turns may compute for 1 s. `sum` holds the interpreter's lock, as rclpy does while it takes a
# message.
NODE = """
import functools, sys, threading, time
from rclpy.node import Node
from efftam_ros.ros.common import process, turn_limit

process.TurnLimit = functools.partial(turn_limit.TurnLimit, 1)

def compute(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass

class Turning(Node):
    turns = 0

    def start(self):
        print("started", flush=True)

    def close(self):
        self.destroy_node()

    def tick(self):
        self.turns += 1
        if self.turns <= 2:
            {work}
        if self.turns == 3:
            print("goes on", flush=True)
        return 0.01

sys.exit(process.run_node("turning", lambda: Turning("turning"), ["turning"]))
"""


def wait_for(text: str, process: Process) -> None:
    end_s = time.monotonic() + 60
    while text not in process.output:
        assert process.alive, process.output
        assert time.monotonic() < end_s, process.output
        time.sleep(0.02)


@pytest.fixture
def turning(processes):
    """Start a node that does this in each of its first two turns, and then tells that it goes on."""
    return lambda work: processes([sys.executable, "-c", NODE.format(work=work)])


def test_a_turn_without_end_ends_the_process_which_tells_where_it_was(turning):
    process = turning("sum(range(10**12))")
    assert process.wait(60) == -signal.SIGVTALRM
    assert "goes on" not in process.output
    assert "in tick" in process.output


@pytest.mark.parametrize(
    "work",
    [
        pytest.param("time.sleep(1.5)", id="it waits"),
        pytest.param("compute(0.7)", id="it computes for less"),
        pytest.param(
            "other = threading.Thread(target=compute, args=[1.5]); other.start(); other.join()",
            id="another thread computes",
        ),
    ],
)
def test_turns_that_do_not_compute_for_longer_than_the_limit_follow_each_other(turning, work):
    process = turning(work)
    wait_for("goes on", process)
    process.send(signal.SIGINT)
    assert process.wait() == 0


def test_a_process_that_was_stopped_goes_on(turning):
    process = turning("time.sleep(0.01)")
    wait_for("started", process)
    process.send(signal.SIGSTOP)
    time.sleep(1.5)
    process.send(signal.SIGCONT)
    wait_for("goes on", process)
