"""The process: signals end it with code 0 and without a traceback, mistakes of the user with code 2 and one
line."""

from __future__ import annotations

import importlib
import math
import os
import signal
import subprocess
import sys

import pytest
from level_pipeline import LOST, bright_box, scene
from ros_helpers import ROOT, image_message, new_namespace, stamp_of, tracker_command

from efftam_ros.images.message import stamp_ns
from efftam_ros.ros.common.process import DEVICE_LOST
from efftam_ros.ros.main import main
from simulation.processes import PACKAGES


@pytest.mark.parametrize(
    ("numbers", "delay"),
    [((signal.SIGINT,), "0"), ((signal.SIGTERM,), "0.2"), ((signal.SIGINT, signal.SIGTERM), "0.6")],
)
def test_signals_let_the_frame_in_work_finish_and_the_last_word_is_not_valid(tracker_process, numbers, delay):
    """A gimbal that holds the last rate it was told must not be left with one."""
    peer = tracker_process("-p", "image_timeout:=20.0", TEST_FRAME_DELAY=delay)
    peer.show(0)
    peer.follow(0, bright_box(0))
    for i in range(1, 7):
        peer.show(i)
    assert peer.velocities[-1].valid
    peer.images.publish(image_message(scene(7), stamp_of(7)))
    for number in numbers:
        peer.spin_for(float(delay) / 3)
        peer.process.send(number)
    assert peer.process.wait() == 0
    peer.spin_for(0.3)  # what was sent before the end
    for message in (peer.velocities[-1], peer.boxes[-1]):
        assert not message.valid
        assert message.reason == "the node is shutting down"
    assert math.isnan(peer.velocities[-1].velocity_x)
    measured = [stamp_ns(box.header.stamp) for box in peer.boxes if box.measured]
    assert delay == "0" or measured[-1] == stamp_of(7)
    assert "Traceback" not in peer.process.output
    (configured,) = [line for line in peer.process.output.splitlines() if "configured" in line]
    assert "null on onnxruntime-cpu" in configured


def fatal_lines(process) -> list[str]:
    return [line for line in process.output.splitlines() if "[FATAL]" in line]


def test_a_lost_gpu_ends_the_process_with_a_code_of_its_own_after_the_last_word(tracker_process, tmp_path):
    lost = tmp_path / "lost"
    peer = tracker_process("-p", "image_timeout:=20.0", TEST_LOST_FILE=str(lost))
    peer.show(0)
    peer.follow(0, bright_box(0))
    for i in range(1, 4):
        peer.show(i)
    assert peer.velocities[-1].valid
    lost.touch()
    peer.images.publish(image_message(scene(4), stamp_of(4)))
    assert peer.process.wait() == DEVICE_LOST
    peer.spin_for(0.3)
    for message in (peer.velocities[-1], peer.boxes[-1]):
        assert not message.valid
        assert LOST in message.reason
    (line,) = fatal_lines(peer.process)
    assert LOST in line
    assert "Traceback" not in peer.process.output


def test_a_gpu_that_is_lost_while_the_node_is_configured_ends_the_process_too(processes):
    process = processes(tracker_command(new_namespace()), TEST_LOST_AT_START="1")
    assert process.wait() == DEVICE_LOST
    (line,) = fatal_lines(process)
    assert LOST in line
    assert "Traceback" not in process.output


def test_a_signal_while_the_network_is_loaded_ends_the_process_in_order(processes, peers):
    namespace = new_namespace()
    peer = peers(namespace)
    process = processes(tracker_command(namespace), TEST_OPEN_DELAY="1.5")
    name = f"/{namespace}/efftam_tracker/set_parameters"
    services = peer.node.get_service_names_and_types
    peer.wait(lambda: name in dict(services()), "the node to appear")
    process.send(signal.SIGTERM)
    assert process.wait() == 0
    assert "Traceback" not in process.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("-p", "lost_after:=1"), "give a number with a decimal point from 0 to 60"),
        (("-p", "policy:=best"), "policy is 'best'; choose one of default, samurai, efficienttam"),
        (("--params-file", "/nowhere/tracker.yaml"), "/nowhere/tracker.yaml"),
    ],
)
def test_a_wrong_parameter_ends_the_start_with_one_line(processes, arguments, words):
    process = processes(tracker_command(new_namespace(), *arguments))
    assert process.wait() == 2
    (line,) = [line for line in process.output.splitlines() if line.startswith("efftam_tracker: ")]
    assert words in line
    assert "Traceback" not in process.output


NODES = (
    "efftam_tracker",
    "efftam_gimbal",
    "efftam_mavlink",
    "efftam_position",
    "efftam_operator",
    "efftam_camera",
)


@pytest.mark.parametrize("name", NODES)
def test_help_is_printed_and_starts_nothing(capsys, name):
    package = PACKAGES.get(name.removeprefix("efftam_"), "efftam_ros")
    run = importlib.import_module(f"{package}.ros.main").main
    assert run(name, [name, "--help"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"usage: {name}")
    assert "--ros-args" in printed
    assert f'main("{name}")' in (ROOT / "scripts" / name).read_text()


def test_help_of_which_nobody_reads_the_end_is_no_error():
    reader, writer = os.pipe()
    os.close(reader)  # as `head` does after its lines
    command = [sys.executable, ROOT / "scripts" / "efftam_mavlink", "--help"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("efftam_camera", ["--foo"]),
        ("efftam_tracker", ["--ros-args", "-r", "__ns:=/a", "--", "--foo"]),
        ("efftam_tracker", ["backend:=tensorrt"]),
    ],
)
def test_an_argument_that_is_not_of_ros_is_refused(capsys, name, arguments):
    assert main(name, [name, *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{name}: unknown argument {arguments[-1]!r}")
    assert "--ros-args -p NAME:=VALUE" in line


def test_a_missing_package_is_one_line_with_the_command_that_brings_it(processes, tmp_path):
    """A Python in which cv2 can't be found."""
    hide = "import sys; sys.modules['cv2'] = None; import runpy; sys.argv = ['efftam_tracker'];"
    process = processes(
        [sys.executable, "-c", f"{hide} runpy.run_path({str(ROOT / 'scripts' / 'efftam_tracker')!r})"]
    )
    assert process.wait() == 2
    (line,) = process.output.splitlines()
    assert "opencv-python-headless is not installed" in line
    assert f"{sys.executable} -m pip install opencv-python-headless" in line


def test_a_second_tracker_on_the_same_topics_is_told(tracker_process, processes):
    peer = tracker_process("-p", "diagnostics_period:=0.1", "-p", "image_timeout:=60.0")
    other = processes(tracker_command(peer.namespace, "-r", "__node:=another"))
    said = "2 publishers on"
    status, _ = peer.diagnosis(lambda s, v: said in s.message and "efftam_tracker:" in s.name, "the other")
    assert status.level == b"\x01"
    assert "another" in status.message
    assert "its own namespace" in status.message
    peer.wait(lambda: said in peer.process.output, "the same in the log")
    other.end()


def test_topics_at_the_root_of_the_graph_are_mentioned(processes, peers):
    peer = peers(new_namespace())
    process = processes([*tracker_command("x")[:2], "--ros-args", "-r", "image:=/nobody/image"])
    peer.wait(lambda: "active" in process.output, "the start")
    assert "topics are in the root namespace (/bbox, /velocity, ...)" in process.output
    assert "namespace:=NAME" in process.output
