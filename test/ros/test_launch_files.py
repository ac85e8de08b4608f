"""The launch files, evaluated and run by the real launch system; skipped where it can't be imported."""

from __future__ import annotations

import asyncio
import io
import logging
import os
import signal
import time
from pathlib import Path

import pytest

# A folder of this name beside the tests would be imported as an empty package: ask for its contents.
pytest.importorskip("launch.actions", reason="ROS 2's launch is not installed (the wheels lack it)")
pytest.importorskip("launch_ros.actions", reason="ROS 2's launch_ros is not installed (the wheels lack it)")

from ament_index_python.packages import get_package_share_directory, get_packages_with_prefixes
from launch.actions import DeclareLaunchArgument, IncludeLaunchDescription, RegisterEventHandler
from launch.event_handlers import OnProcessExit, OnProcessStart
from launch.launch_context import LaunchContext
from launch.launch_description_sources import PythonLaunchDescriptionSource
from launch.launch_service import LaunchService

from efftam_ros.ros.common.process import DEVICE_LOST, MAX_DEVICE_RESTARTS, USER_ERROR
from launch import LaunchDescription

pytestmark = pytest.mark.usefixtures("ros")

FILES = ("tracker.launch.py", "replay.launch.py", "flight.launch.py")
PROFILES = ("FASTRTPS_DEFAULT_PROFILES_FILE", "FASTDDS_DEFAULT_PROFILES_FILE")
PLAYS = "ros2bag" in get_packages_with_prefixes()
SHARE = Path(get_package_share_directory("efftam_ros"))


def description_of(file: str) -> LaunchDescription:
    source = PythonLaunchDescriptionSource(str(SHARE / "launch" / file))
    return source.get_launch_description(LaunchContext())


class Launch:
    """A launch file under the real launch system, and what it started: commands, environments, exit codes."""

    def __init__(self, file: str, *, argv: tuple[str, ...] = (), **arguments: str) -> None:
        self.started: list = []
        self.codes: dict[str, int] = {}
        self.ended: list[int] = []
        self.service = LaunchService(argv=argv, noninteractive=True)
        self.said = io.StringIO()  # by the launch file
        logging.getLogger("launch.user").addHandler(logging.StreamHandler(self.said))
        source = PythonLaunchDescriptionSource(str(SHARE / "launch" / file))
        watchers = [
            RegisterEventHandler(OnProcessStart(on_start=lambda event, _: self.started.append(event))),
            RegisterEventHandler(OnProcessExit(on_exit=lambda event, _: self._ended(event))),
        ]
        include = IncludeLaunchDescription(source, launch_arguments=arguments.items())
        self.service.include_launch_description(LaunchDescription([*watchers, include]))

    def _ended(self, event) -> None:
        self.codes[Path(event.cmd[0]).name] = event.returncode
        self.ended.append(event.returncode)

    def run(self, use=None) -> int:
        """Run until ``use`` returns, or by default until every process has ended; launch's own exit code."""

        async def both() -> int:
            ended = asyncio.create_task(self.service.run_async(shutdown_when_idle=True))
            if use is not None:
                await asyncio.to_thread(use)
                await self.service.shutdown()
            return await ended

        before = os.environ.copy()
        try:
            return asyncio.run(both())
        finally:
            os.environ.clear()
            os.environ.update(before)

    def run_until_started(self, processes: int) -> int:
        def use() -> None:
            end = time.monotonic() + 20
            while len(self.started) < processes and time.monotonic() < end:
                time.sleep(0.02)

        return self.run(use)


@pytest.fixture
def _no_profile(monkeypatch):
    for name in PROFILES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("file", FILES)
def test_every_argument_is_described(file):
    arguments = [e for e in description_of(file).entities if isinstance(e, DeclareLaunchArgument)]
    assert {"bundle", "backend", "params", "namespace", "log_level"} <= {a.name for a in arguments}
    for argument in arguments:
        assert len(argument.description) > 10


@pytest.mark.usefixtures("_no_profile")
def test_the_tracker_gets_what_the_arguments_say():
    launch = Launch(
        "tracker.launch.py",
        image="/cam/image_raw",
        camera_info="/cam/calibration",
        backend="tensorrt",
        precision="int8",
        params="jetson",
        namespace="drone",
        use_sim_time="true",
        log_level="debug",
    )
    launch.run_until_started(1)
    (tracker,) = launch.started
    line = " ".join(tracker.cmd)
    assert tracker.cmd[0].endswith("/lib/efftam_ros/efftam_tracker")
    assert "image:=/cam/image_raw" in line
    assert "camera_info:=/cam/calibration" in line
    assert "__ns:=/drone" in line
    assert "--log-level debug" in line
    shipped, given = (Path(tracker.cmd[i + 1]) for i, p in enumerate(tracker.cmd) if p == "--params-file")
    assert shipped == SHARE / "config" / "jetson.yaml"
    assert "use_sim_time: true" in given.read_text()
    assert "backend: tensorrt" in given.read_text()
    assert "precision: int8" in given.read_text()
    assert "bundle" not in given.read_text()
    for name in PROFILES:
        assert tracker.env[name] == str(SHARE / "config" / "fastdds_images.xml")


def told(started, name: str) -> tuple[str, str]:
    """The command line of a program that was started, and the parameters that the launch file gives it."""
    assert started.cmd[0].endswith(f"/lib/efftam_ros/{name}")
    given = [started.cmd[i + 1] for i, part in enumerate(started.cmd) if part == "--params-file"]
    return " ".join(started.cmd), Path(given[-1]).read_text()


@pytest.mark.parametrize("file", FILES)
def test_the_operators_page_is_started_when_asked_for(file, tmp_path):
    arguments = {"operator": "true", "operator_port": "0", "namespace": "drone"}
    if file == "replay.launch.py":
        if not PLAYS:
            pytest.skip("ros2 bag is not installed")
        arguments |= {"bag": str(tmp_path / "no_bag")}
    launch = Launch(file, **arguments)
    launch.run_until_started(2 if file == "tracker.launch.py" else 3)
    line, parameters = told(launch.started[1], "efftam_operator")
    assert "__ns:=/drone" in line
    assert "image:=" in line
    assert "port: 0" in parameters
    assert "address: 127.0.0.1" in parameters


@pytest.mark.parametrize("file", ["tracker.launch.py", "flight.launch.py"])
def test_a_stream_is_published_on_the_trackers_image_topic(file, tmp_path):
    launch = Launch(file, stream="udp://@:5600", calibration="nose.yaml", image="/cam/image_raw")
    launch.run_until_started(2 if file == "tracker.launch.py" else 4)
    line, parameters = told(launch.started[0], "efftam_camera")
    assert "image:=/cam/image_raw" in line
    assert "camera_info:=/cam/camera_info" in line
    assert "stream: udp://@:5600" in parameters
    assert "calibration: nose.yaml" in parameters


@pytest.mark.parametrize("file", ["tracker.launch.py", "flight.launch.py"])
def test_what_the_command_gives_in_vain_is_told_and_nothing_else(file):
    launch = Launch(file, argv=("imgae:=/x", "lost_after:=2", "operator:=false", "links:=x", "mission:=5"))
    launch.run_until_started(1)
    told = launch.said.getvalue().splitlines()
    assert [line.partition(":=")[0] for line in told] == ["imgae", "lost_after"]
    assert told[0].endswith("did you mean image?")
    assert told[1].endswith("params:=FILE")


def test_a_stream_with_a_compressed_transport_is_refused():
    launch = Launch("tracker.launch.py", stream="udp://@:5600", image_transport="compressed")
    assert launch.run(lambda: None) == 1
    assert launch.started == []


@pytest.mark.usefixtures("_no_profile")
@pytest.mark.parametrize("image", ["/cam/image_raw", "/cam/image_raw/compressed"])
def test_flight_starts_tracker_gimbal_positions_and_bridge(image):
    links = "udpout:127.0.0.1:24550"
    given = {"image": image, "namespace": "drone", "links": links, "yaw_lock": "false", "follow": "true"}
    launch = Launch("flight.launch.py", **given)
    launch.run_until_started(4)
    started = {Path(event.cmd[0]).name: event for event in launch.started}
    flight = ("efftam_gimbal", "efftam_mavlink", "efftam_position")
    assert set(started) == {"efftam_tracker", *flight}
    for name in flight:
        command = started[name].cmd
        shipped, given = (Path(command[i + 1]) for i, p in enumerate(command) if p == "--params-file")
        assert shipped == SHARE / "config" / "flight.yaml"
        assert ("yaw_lock: false" in given.read_text()) == (name != "efftam_position")
        assert ("follow: true" in given.read_text()) == (name == "efftam_mavlink")
        assert (links in given.read_text()) == (name == "efftam_mavlink")
        assert "camera_info:=/cam/camera_info" in " ".join(command)
        assert "__ns:=/drone" in " ".join(command)
        for profile in PROFILES:
            assert started[name].env[profile] == str(SHARE / "config" / "fastdds_flight.xml")
    for profile in PROFILES:
        assert started["efftam_tracker"].env[profile] == str(SHARE / "config" / "fastdds_images.xml")


@pytest.mark.usefixtures("_no_profile")
@pytest.mark.skipif(not PLAYS, reason="ros2 bag is not installed")
def test_the_replay_starts_tracker_and_player_in_simulated_time(tmp_path):
    bag = str(tmp_path / "no_bag")
    launch = Launch("replay.launch.py", bag=bag, rate="0.5", image="/cam/image_raw", namespace="drone")
    launch.run_until_started(2)
    (tracker, parameters), player = told(launch.started[0], "efftam_tracker"), launch.started[1].cmd
    assert "image:=/cam/image_raw" in tracker
    assert "use_sim_time: true" in parameters
    assert player[:7] == ["ros2", "bag", "play", bag, "--clock", "--rate", "0.5"]
    assert player[7:] == ["--topics", "/cam/image_raw", "/cam/camera_info", "/drone/select"]
    assert launch.started[1].env[PROFILES[0]] == str(SHARE / "config" / "fastdds_images.xml")


@pytest.mark.skipif(PLAYS, reason="ros2 bag is installed")
def test_without_ros2_bag_the_command_that_replays_is_named(caplog, tmp_path):
    launch = Launch("replay.launch.py", bag=str(tmp_path / "no_bag"))
    assert launch.run() == 1
    assert f"efftam replay {tmp_path / 'no_bag'} --topic /camera/image_raw" in caplog.text


@pytest.mark.skipif(not PLAYS, reason="ros2 bag is not installed")
@pytest.mark.parametrize("rate", ["0", "-1", "nan", "fast"])
def test_a_speed_that_is_none_is_refused(caplog, tmp_path, rate):
    launch = Launch("replay.launch.py", bag=str(tmp_path / "no_bag"), rate=rate)
    assert launch.run() == 1
    assert f"rate:={rate} is not a speed" in caplog.text


@pytest.mark.parametrize(("file", "nodes"), [("tracker.launch.py", 1), ("flight.launch.py", 4)])
def test_a_profile_of_the_users_own_stays(monkeypatch, tmp_path, file, nodes):
    own = tmp_path / "profile.xml"
    own.write_text((SHARE / "config" / "fastdds_images.xml").read_text())
    monkeypatch.setenv(PROFILES[0], str(own))
    launch = Launch(file)
    launch.run_until_started(nodes)
    assert [event.env[PROFILES[0]] for event in launch.started] == [str(own)] * nodes


@pytest.mark.parametrize("params", ["desert", "flight"])
def test_an_unknown_parameter_file_is_named_with_those_that_ship(caplog, params):
    launch = Launch("tracker.launch.py", params=params)
    assert launch.run(lambda: None) == 1
    assert "shipped ones: desktop, jetson, tracker" in caplog.text
    assert launch.started == []


@pytest.mark.usefixtures("_no_profile")
@pytest.mark.parametrize(
    ("wheel", "asked", "backend"),
    [(True, "", "onnxruntime-cuda"), (False, "", "onnxruntime-cpu"), (True, "tensorrt", "tensorrt")],
)
def test_on_a_jetson_it_starts_with_cuda_where_that_is_installed_and_names_tensorrt(
    monkeypatch, tmp_path, wheel, asked, backend
):
    if wheel:
        info = tmp_path / "onnxruntime_gpu-1.23.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: onnxruntime-gpu\nVersion: 1.23.0\n")
        monkeypatch.syspath_prepend(tmp_path)
    launch = Launch("tracker.launch.py", params="jetson", backend=asked)
    launch.run_until_started(1)
    (tracker,) = launch.started
    _, given = (Path(tracker.cmd[i + 1]) for i, p in enumerate(tracker.cmd) if p == "--params-file")
    assert f"backend: {backend}" in given.read_text()
    assert ("add backend:=tensorrt" in launch.said.getvalue()) is (not asked)


@pytest.fixture
def executables(monkeypatch, tmp_path):
    """Programs in place of the installed ones: made by a name and the lines of a shell script."""
    programs = tmp_path / "lib" / "efftam_ros"
    index = tmp_path / "share" / "ament_index" / "resource_index" / "packages"
    for folder in (programs, index):
        folder.mkdir(parents=True)
    (index / "efftam_ros").touch()
    description_of("flight.launch.py")  # finds the files that it shares before the folder in front of them

    def make(name: str, script: str) -> None:
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)

    monkeypatch.setenv("AMENT_PREFIX_PATH", f"{tmp_path}:{os.environ['AMENT_PREFIX_PATH']}")
    return make


@pytest.mark.usefixtures("_no_profile")
@pytest.mark.parametrize(
    ("code", "starts"), [(DEVICE_LOST, 1 + MAX_DEVICE_RESTARTS), (USER_ERROR, 1), (0, 1)]
)
def test_a_tracker_that_lost_its_gpu_is_started_again_but_not_for_ever(executables, code, starts):
    executables("efftam_tracker", f"exit {code}")
    launch = Launch("tracker.launch.py")
    assert launch.run() == 0
    assert launch.ended == [code] * starts
    assert len({event.pid for event in launch.started}) == starts
    assert ("lost its GPU and is not started again" in launch.said.getvalue()) is (code == DEVICE_LOST)


@pytest.mark.usefixtures("_no_profile")
def test_a_node_that_hung_is_started_again_and_called_so(executables, tmp_path):
    executables(
        "efftam_tracker", f"test -e {tmp_path}/ended && exit 0; touch {tmp_path}/ended; kill -VTALRM $$"
    )
    launch = Launch("tracker.launch.py")
    assert launch.run() == 0
    assert launch.ended == [-signal.SIGVTALRM, 0]
    said = "efftam_tracker hung at the place that it printed above and is started again in 1 s"
    assert said in launch.said.getvalue()


@pytest.mark.usefixtures("_no_profile")
def test_every_node_that_crashes_is_started_again(executables, tmp_path):
    nodes = ("camera", "tracker", "operator", "gimbal", "mavlink", "position")
    names = [f"efftam_{node}" for node in nodes]
    for name in names:
        first = tmp_path / f"{name}.started"
        executables(name, f"test -e {first} && exit 0\ntouch {first}\nkill -9 $$")
    launch = Launch("flight.launch.py", operator="true", stream="udp://@:5600")
    assert launch.run() == 0
    started = [Path(event.cmd[0]).name for event in launch.started]
    assert {name: started.count(name) for name in names} == dict.fromkeys(names, 2)


def test_the_launched_tracker_answers_and_ends_cleanly(peers):
    from level_pipeline import scene
    from ros_helpers import image_message, new_namespace, stamp_of

    namespace = new_namespace()
    peer = peers(namespace)
    launch = Launch("tracker.launch.py", image=f"/{namespace}/image", namespace=namespace)

    def use() -> None:
        peer.wait_until_active()
        peer.warm_up()
        peer.send(image_message(scene(0), stamp_of(0)))

    assert launch.run(use) == 0
    assert launch.codes == {"efftam_tracker": 0}
