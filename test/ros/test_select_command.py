"""`efftam select` on a running tracker, as a user without ros2cli calls it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import cv2
import numpy as np
import pytest
from level_pipeline import HEIGHT, WIDTH, bright_box, grey_box
from ros_helpers import Process, box_of, new_namespace, stamp_of, tracker_command, tracker_process

from efftam_ros.core.geometry import iou

LASTING = ("-p", "image_timeout:=60.0")


@pytest.fixture(scope="module")
def _process(ros, tmp_path_factory):
    """A tracker in a process of its own, as commands that come and go may not find one in a process that has
    seen others killed (Fast DDS)."""
    log = tmp_path_factory.mktemp("tracker") / "log"
    peer = tracker_process(lambda command: Process(command, log), *LASTING)
    yield peer
    peer.end()


@pytest.fixture
def peer(_process):
    _process.begin_anew()
    return _process


def select(peer, *arguments, namespace=None, **environment):
    """Run the command while the peer goes on; the finished process."""
    command = [sys.executable, "-m", "efftam_ros", "select", *map(str, arguments)]
    command += ["--namespace", peer.namespace if namespace is None else namespace]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | environment
    )
    peer.wait(lambda: process.poll() is not None, "the end of efftam select", 40)
    return subprocess.CompletedProcess(command, process.returncode, *process.communicate())


def test_a_weak_selection_is_said_to_be_one(peer):
    peer.show(0)
    done = select(peer, "--box", "5,200,24,24")
    assert (done.returncode, done.stderr) == (0, "")
    assert "accepted: weak selection: the box is as uniform as its surroundings" in done.stdout


def test_select_by_point_and_mask_then_clear(peer, tmp_path):
    peer.show(0)
    grey = grey_box(0)
    pixels = np.zeros((HEIGHT, WIDTH), np.uint8)
    x, y, w, h = (int(v) for v in grey.xywh())
    pixels[y : y + h, x : x + w] = 255
    cv2.imwrite(str(tmp_path / "mask.png"), pixels)
    for arguments in (
        ("--point", f"{grey.cx},{grey.cy}", "--point", "5,5,0"),
        ("--mask", tmp_path / "mask.png"),
    ):
        done = select(peer, *arguments)
        assert (done.returncode, done.stderr) == (0, "")
        number = int(done.stdout.split()[1])
        assert done.stdout == f"selection {number} of target 0 accepted\n"
        assert iou(box_of(peer.box_of_selection(number)), grey) > 0.9
    done = select(peer, "--clear")
    assert (done.returncode, done.stdout) == (0, "cleared\n")
    assert peer.show(1).selection == 0


def test_a_second_target_is_added_and_cleared_by_its_id(peer):
    peer.show(0)
    for box, target, got in ((bright_box(0), 0, 0), (grey_box(0), 255, 1), (grey_box(0), 1, 1)):
        done = select(peer, "--box", ",".join(map(str, box.xywh())), "--target", target)
        assert (done.returncode, done.stderr) == (0, "")
        assert f"of target {got} accepted" in done.stdout
    done = select(peer, "--clear", "--target", 3)
    assert (done.returncode, done.stdout.split(":")[0]) == (1, "refused")
    done = select(peer, "--clear", "--target", 1)
    assert (done.returncode, done.stdout) == (0, "cleared\n")
    assert peer.show(1).target_id == 0
    assert select(peer, "--clear", "--target", 255).returncode == 0
    assert peer.show(2).selection == 0


def test_a_stamp_names_the_image(peer):
    for i in range(10):
        peer.show(i)
    stamp = stamp_of(3)
    done = select(
        peer, "--box", ",".join(map(str, bright_box(3).xywh())), "--stamp", f"{stamp // 10**9}.099000000"
    )
    assert done.returncode == 0
    first = peer.box_of_selection(int(done.stdout.split()[1]))
    assert first.header.stamp.nanosec == 99_000_000
    assert iou(box_of(first), bright_box(3)) > 0.9


def test_the_nodes_own_words_are_printed_when_it_refuses(peer):
    peer.show(0)
    done = select(peer, "--box", "500,10,20,20")
    assert done.returncode == 1
    assert done.stdout.startswith("refused: ")
    assert "lies outside the image of 320 x 240 px" in done.stdout


def test_where_no_tracker_is_the_namespaces_of_others_are_named(peer):
    done = select(peer, "--box", "1,1,9,9", "--wait", "2", namespace="nowhere")
    assert done.returncode == 2
    assert f"/{peer.namespace}" in done.stderr
    assert done.stderr.count("nowhere") == 1  # the one that was asked for; the command's own client is none
    assert "--namespace" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_tracker_of_another_name_is_found_by_it(peer, processes):
    namespace = new_namespace()
    processes(tracker_command(namespace, "-r", "__node:=second"))
    done = select(peer, "--clear", "--node", "second", "--wait", "20", namespace=namespace)
    assert (done.returncode, done.stdout) == (1, "refused: there is no target to clear\n")
    done = select(peer, "--clear", "--wait", "2", namespace=namespace)
    assert done.returncode == 2
    assert f"/{namespace}/second" in done.stderr
    assert "--node" in done.stderr


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--namespace", "a b", "--namespace is 'a b'; give a name of letters, digits and _"),
        ("--namespace", "1st", "--namespace is '1st'"),
        ("--namespace", "a//b", "--namespace is 'a//b'"),
        ("--node", "drone1/tracker", "--node is 'drone1/tracker'; give a name"),
        ("--target", "256", "--target is 256; give 0 to 254, or 255"),
        ("--stamp", "2147483648", "--stamp is 2147483648 s; a stamp has at most 2147483647 s"),
    ],
)
def test_what_no_message_can_hold_is_refused_before_ros_is_loaded(option, value, words):
    command = [sys.executable, "-m", "efftam_ros", "select", "--clear", option, value]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_without_a_home_the_remedy_is_named():
    """As in a systemd service."""
    without = {k: v for k, v in os.environ.items() if k not in ("HOME", "ROS_LOG_DIR", "ROS_HOME")}
    command = [sys.executable, "-m", "efftam_ros", "select", "--clear"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=without)
    assert done.returncode == 2
    assert "set ROS_LOG_DIR" in done.stderr.splitlines()[-1]


def test_ctrl_c_ends_it_in_one_line_while_ros_is_still_being_loaded():
    process = subprocess.Popen(
        [sys.executable, "-m", "efftam_ros", "select", "--clear"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    while "librcl.so" not in Path(f"/proc/{process.pid}/maps").read_text():
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "efftam select: interrupted\n")
