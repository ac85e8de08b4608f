"""Tests on the real middleware: a domain of their own, the loopback only, the Fast DDS profile."""

from __future__ import annotations

import os
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

import pytest

PROFILE = Path(__file__).parents[2] / "config" / "fastdds_images.xml"
# By default a process tells of itself every three seconds, and tests start many.
QUICK_DISCOVERY = """<rtps>
        <builtin><discovery_config>
          <leaseAnnouncement><sec>0</sec><nanosec>200000000</nanosec></leaseAnnouncement>
        </discovery_config></builtin>"""


FREE_OF_ROS = (
    "test_dead_ports.py",
    "test_docs_cpp.py",
    "test_docs_node.py",
    "test_frame_buffer.py",
    "test_messages.py",
    "test_package.py",
    "test_target_table.py",
)
"""Files that can be read without ROS."""


def _missing() -> str:
    """Why tests on the middleware can't run here; empty where they can."""
    if find_spec("rclpy") is None:
        return "ROS 2 is not installed; scripts/setup_env brings it"
    built = find_spec("efftam_ros.msg") is not None
    return "" if built else "the messages are not built; scripts/setup_env builds them"


MISSING = _missing()


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    is_left_out = collection_path.name.startswith("test_") and collection_path.name not in FREE_OF_ROS
    return True if MISSING and is_left_out else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "ros" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.ros)


def pytest_terminal_summary(terminalreporter) -> None:
    if MISSING:
        terminalreporter.write_line(f"test/ros is left out: {MISSING}")


@pytest.fixture(scope="session")
def ros(tmp_path_factory):
    """ROS in this process; skips where ROS 2 or the built messages are missing."""
    if MISSING:
        pytest.skip(MISSING)
    import rclpy

    os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "LOCALHOST"
    # Neighbours have a domain of their own: other runs by the process, workers of one run by their number,
    # and commands that take one of 1 to 101 at random. From 102 to 214 they meet the ephemeral ports.
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    run = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()
    os.environ["ROS_DOMAIN_ID"] = str(215 + (4 * run + int(worker)) % 16)
    profile = tmp_path_factory.mktemp("profile") / PROFILE.name
    profile.write_text(PROFILE.read_text().replace("<rtps>", QUICK_DISCOVERY))
    for name in ("FASTRTPS_DEFAULT_PROFILES_FILE", "FASTDDS_DEFAULT_PROFILES_FILE"):
        os.environ[name] = str(profile)
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


def _start(made, peer, arguments, warm_up=True, **network):
    """A tracker in this process beside a peer; it ends with ``made``."""
    from level_node import Tracker

    made.callback(peer.close)
    peer.process = Tracker(peer.namespace, *arguments, **network)
    made.callback(peer.process.end)
    peer.wait_until_active()
    if warm_up:
        peer.warm_up(None if warm_up is True else warm_up)
    return peer


@pytest.fixture
def tracker(ros):
    """Start a tracker in this process: ``tracker("-p", "threads:=1")`` gives the peer beside it,
    once it answers. ``peer``: arguments for the Peer; ``warm_up`` makes other images than raw ones, or sends
    none (False)."""
    from ros_helpers import Peer, new_namespace

    with ExitStack() as made:

        def start(*arguments, peer=None, namespace=None, **how):
            beside = Peer(namespace or new_namespace(), **(peer or {}))
            return _start(made, beside, arguments, **how)

        yield start


@pytest.fixture
def tracker_process(processes):
    """The same in a process of its own: ``tracker_process("-p", "threads:=1", **environment)``."""
    import ros_helpers

    with ExitStack() as made:

        def start(*arguments, **environment):
            peer = ros_helpers.tracker_process(processes, *arguments, **environment)
            made.callback(peer.close)
            return peer

        yield start


@pytest.fixture(scope="module")
def lasting_tracker(ros):
    """`tracker` for a whole module, as most tests only need one without a target."""
    from ros_helpers import Peer, new_namespace

    with ExitStack() as made:
        yield lambda *arguments, **how: _start(made, Peer(new_namespace()), arguments, **how)


@pytest.fixture(scope="module")
def _quick(lasting_tracker):
    return lasting_tracker("-p", "image_timeout:=60.0", "-p", "diagnostics_period:=0.1")


@pytest.fixture
def peer(_quick):
    """The peer of a tracker without a target, whose images begin anew."""
    _quick.begin_anew()
    return _quick


@pytest.fixture(scope="session")
def _generated_messages(ros):
    """What a process needs in its environment to find the messages that are not installed."""
    from support.message_packages import environment, generated, load, missing

    if not (definitions := missing()):
        return {}
    prefix = generated(definitions)
    load(prefix)
    return environment(prefix)


@pytest.fixture
def video_messages(_generated_messages, monkeypatch):
    """The messages of video topics and of Foxglove, for this process and those that it starts: as installed,
    else generated."""
    for name, value in _generated_messages.items():
        monkeypatch.setenv(name, value)
