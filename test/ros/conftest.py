"""Tests on the real middleware: a domain of their own, the loopback only, the Fast DDS profile."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

PROFILE = str(Path(__file__).parents[2] / "config" / "fastdds_images.xml")


@pytest.fixture(scope="session")
def ros():
    """ROS in this process; skips where ROS 2 or the built messages are missing."""
    rclpy = pytest.importorskip("rclpy", reason="ROS 2 is not installed; scripts/setup_env brings it")
    pytest.importorskip("efftam_ros.msg", reason="the messages are not built; scripts/setup_env builds them")
    os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "LOCALHOST"
    os.environ["ROS_DOMAIN_ID"] = str(1 + os.getpid() % 100)
    for name in ("XFASTRTPS_DEFAULT_PROFILES_FILE", "FASTDDS_DEFAULT_PROFILES_FILE"):
        os.environ[name] = PROFILE
    rclpy.init()
    yield rclpy
    rclpy.try_shutdown()


@pytest.fixture
def processes(ros, tmp_path):
    """Start processes that end with the test: ``processes(command, **environment)``."""
    from ros_helpers import Process

    started = []

    def start(command, **environment):
        started.append(Process(command, tmp_path / f"process_{len(started)}.log", **environment))
        return started[-1]

    yield start
    for process in started:
        process.end()


@pytest.fixture
def peers(ros):
    """Make peers that are closed with the test: ``peers(namespace, ...)``."""
    from ros_helpers import Peer

    made = []

    def make(*args, **kwargs):
        made.append(Peer(*args, **kwargs))
        return made[-1]

    yield make
    for peer in made:
        peer.close()


@pytest.fixture
def tracker(ros, processes, peers):
    """Start a tracker in a process of its own and wait until it answers: ``tracker("-p", "threads:=1",
    **env)`` gives the peer beside it. ``warm_up`` makes other images than raw ones, or sends none (False)."""
    from ros_helpers import new_namespace, tracker_command

    def start(*ros_arguments, peer=None, warm_up=True, **environment):
        namespace = new_namespace()
        other = peers(namespace, **(peer or {}))
        other.process = processes(tracker_command(namespace, *ros_arguments), **environment)
        try:
            other.wait_until_active()
            if warm_up:
                other.warm_up(None if warm_up is True else warm_up)
        except AssertionError as error:
            raise AssertionError(f"{error}; the tracker said:\n{other.process.output}") from None
        return other

    return start
