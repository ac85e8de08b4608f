"""The node `efftam_camera`: a stream in, images with stamps and calibration out; once as a process."""

from __future__ import annotations

import re
import signal
import socket
import sys
import time
from itertools import islice

import numpy as np
import pytest
from diagnostic_msgs.msg import DiagnosticStatus
from free_ports import free_port
from rclpy.parameter import Parameter
from ros_helpers import ROOT, new_namespace, values_of
from sensor_msgs.msg import CameraInfo, Image
from support.odd_videos import lose_packets, turn, write, write_tracks
from support.streams import clock_sender, sender, web_server

from efftam_ros.core.errors import InputError
from efftam_ros.images.camera import Camera, open_source
from efftam_ros.images.message import stamp_ns
from efftam_ros.ros.camera import CameraNode, read_calibration

CALIBRATION = """image_width: 320
image_height: 240
camera_name: nose
camera_matrix: {rows: 3, cols: 3, data: [300.0, 0.0, 160.5, 0.0, 301.0, 119.5, 0.0, 0.0, 1.0]}
distortion_model: plumb_bob
distortion_coefficients: {rows: 1, cols: 5, data: [0.1, -0.2, 0.001, 0.002, 0.0]}
rectification_matrix: {rows: 3, cols: 3, data: [1, 0, 0, 0, 1, 0, 0, 0, 1]}
projection_matrix: {rows: 3, cols: 4, data: [290.0, 0, 160, 0, 0, 291, 119, 0, 0, 0, 1, 0]}
"""


def command(namespace: str, *parameters: str) -> list[str]:
    words = [word for parameter in parameters for word in ("-p", parameter)]
    script = str(ROOT / "scripts" / "efftam_camera")
    return [sys.executable, script, "--ros-args", "-r", f"__ns:=/{namespace}", *words]


@pytest.fixture
def heard(peers):
    """A peer and what it hears of the node in its namespace: images, calibrations."""
    peer = peers(new_namespace())
    images, infos = [], []
    peer.node.create_subscription(Image, "image", images.append, 10)
    peer.node.create_subscription(CameraInfo, "camera_info", infos.append, 10)
    return peer, images, infos


class Running:
    """A node in this process, and what it logs."""

    def __init__(self, peer, capfd, **parameters) -> None:
        self._capfd, self._read = capfd, ""
        overrides = [Parameter(name, value=value) for name, value in parameters.items()]
        self.node = CameraNode(namespace=peer.namespace, parameter_overrides=overrides)
        peer.executor.add_node(self.node)

    @property
    def output(self) -> str:
        self._read += "".join(self._capfd.readouterr())
        return self._read


@pytest.fixture
def camera(heard, capfd):
    """``camera(stream)`` starts the node beside the peer, in this process."""
    started = []

    def start(stream: str, **parameters) -> Running:
        settings = {"stream": stream, "diagnostics_period": 0.2, "timeout": 1.0, **parameters}
        started.append(Running(heard[0], capfd, **settings))
        started[-1].node.start()
        return started[-1]

    yield start
    for running in started:
        running.node.close()


def said(peer, words: str, level: bytes) -> bool:
    return any(s.level == level and words in s.message for s in peer.diagnostics)


def test_a_stream_becomes_images_with_calibration_and_ends_in_order(heard, processes, tmp_path):
    peer, images, infos = heard
    file = tmp_path / "nose.yaml"
    file.write_text(CALIBRATION)
    port = free_port()
    parameters = (f"stream:=udp://127.0.0.1:{port}", f"calibration:={file}", "frame_id:=nose", "timeout:=0.5")
    process = processes(command(peer.namespace, *parameters))
    peer.wait(
        lambda: said(peer, f"waiting to open udp://127.0.0.1:{port}", DiagnosticStatus.WARN), "a status"
    )
    with sender(port):
        peer.wait(lambda: len(images) >= 20 and len(infos) >= 20, "images and calibrations")
        peer.wait(lambda: said(peer, "images/s of 320x240 px", DiagnosticStatus.OK), "an OK")
    image, stamps = images[-1], [stamp_ns(m.header.stamp) for m in images]
    assert (image.width, image.height, image.encoding, image.step) == (320, 240, "bgr8", 960)
    assert image.header.frame_id == "nose"
    assert stamps == sorted(set(stamps))
    assert abs(stamps[-1] - time.time_ns()) < 60 * 10**9
    info = next(i for i in infos if i.header == images[-5].header)
    assert (info.width, info.height, info.distortion_model) == (320, 240, "plumb_bob")
    assert (info.k[0], info.k[5], info.p[0], list(info.d)) == (300, 119.5, 290, [0.1, -0.2, 0.001, 0.002, 0])
    peer.forget()
    peer.wait(
        lambda: said(peer, "nothing arrives; the next attempt in", DiagnosticStatus.WARN), "the silence"
    )
    del images[:], infos[:]
    with sender(port, size="640x480"):
        peer.wait(
            lambda: said(peer, "nose.yaml is for 320x240 px; calibrate", DiagnosticStatus.WARN), "the size"
        )
        peer.wait(lambda: any(m.width == 640 for m in images), "images of the other size")
    assert all(i.header.stamp != m.header.stamp for m in images if m.width == 640 for i in infos)
    process.send(signal.SIGTERM)
    assert process.wait() == 0
    assert "Traceback" not in process.output


def test_images_that_can_not_be_decoded_are_told_in_one_line_and_the_others_come(heard, camera):
    peer, images, _ = heard
    port = free_port()
    running = camera(f"udp://127.0.0.1:{port}")
    with sender(port, damaged=20):
        peer.wait(lambda: said(peer, "arrive damaged or not at all", DiagnosticStatus.WARN), "the damage")
        count = len(images)
        peer.wait(lambda: len(images) > count + 30, "images of after it")
        peer.wait(lambda: peer.diagnostics[-1].level == DiagnosticStatus.OK, "all is well again")
    (line,) = [line for line in running.output.splitlines() if "arrive damaged" in line]
    assert "lower the camera's bit rate" in line
    assert "Traceback" not in running.output


@pytest.mark.parametrize("boundary", [(CameraNode, "_publish"), (Camera, "_put"), (Camera, "_after")])
def test_an_unforeseen_error_ends_neither_thread_and_is_told(heard, camera, monkeypatch, boundary):
    peer, images, _ = heard
    owner, name = boundary
    method, raised = getattr(owner, name), []

    def raises_once(*given, **named):
        if not raised:
            raised.append(name)
            raise RuntimeError("planted")
        return method(*given, **named)

    port = free_port()
    with sender(port):
        running = camera(f"udp://127.0.0.1:{port}")
        peer.wait(lambda: len(images) > 3, "images")
        monkeypatch.setattr(owner, name, raises_once)
        peer.wait(lambda: raised, "the error")
        count = len(images)
        peer.wait(lambda: len(images) > count + 5, "images of after it")
    assert "planted" in running.output


# What is told of a finished video, by the node and by `efftam track`, which reads it with `open_source`.
ODD = {
    "clip.mp4": (write, ""),
    "turned.mp4": (
        lambda file: (write(file), turn(file, 0, 1 << 16, 1 << 16, 0)),
        "mirrored and rotated by 90",
    ),
    "tracks.mp4": (write_tracks, "track 2 is read; choose another by --track"),
    "lossy.ts": (lambda file: (write(file, form="mpegts"), lose_packets(file, [20, 40])), "lost packets: "),
}


@pytest.mark.parametrize("name", ODD)
def test_of_a_finished_video_the_node_shows_once_in_order_what_efftam_track_reads(
    heard, camera, tmp_path, name
):
    peer, images, _ = heard
    make, words = ODD[name]
    make(tmp_path / name)
    told = []
    with web_server(tmp_path) as address:
        source = open_source(f"{address}/{name}", report=told.append)
        frames = list(source.frames())
        running = camera(f"{address}/{name}")
        peer.wait(lambda: said(peer, "no more", DiagnosticStatus.WARN), "the end")
        peer.spin_for(0.5)  # the last image may come after the status
    last = frames[-1]
    assert {(m.width, m.height) for m in images} == {(source.width, source.height)}
    assert len(images) > 5
    for message in images:
        ns = stamp_ns(message.header.stamp) - stamp_ns(images[-1].header.stamp)
        assert min(abs(ns - (frame.stamp_ns - last.stamp_ns)) for frame in frames) < 2_000_000
    assert np.array_equal(np.frombuffer(images[-1].data, np.uint8).reshape(last.bgr.shape), last.bgr)
    for text in ("\n".join([source.note, *told]), running.output):
        assert words in text
    assert source.is_whole is (name != "lossy.ts")


LIVE = {"groups": ("udp", 30, 30, 5), "another rate": ("udp", 30, 15, 1), "no times": ("http", 0, 15, 1)}


@pytest.mark.parametrize("case", LIVE)
def test_of_a_live_stream_node_and_efftam_track_have_the_senders_times(heard, camera, case):
    peer, images, _ = heard
    kind, told, sent, at_once = LIVE[case]
    port = free_port(socket.SOCK_STREAM if kind == "http" else socket.SOCK_DGRAM)
    source, lines = f"{kind}://pilot:secret@127.0.0.1:{port}/live", []
    with clock_sender(kind, port, told, sent, at_once):
        running = camera(source)
        peer.wait(lambda: len(images) >= 60, "images")

        def times() -> set[str]:
            return {values_of(status)["times"] for status in peer.diagnostics}

        if case != "groups":
            peer.wait(lambda: any("arrival" in one for one in times()), "times of arrival")
        output = running.output
        running.node._camera.close()
        frames = list(islice(open_source(source, report=lines.append).frames(), 60))[30:]
    period_s = (frames[-1].stamp_ns - frames[0].stamp_ns) / (frames[-1].index - frames[0].index) / 1e9
    periods = np.diff([stamp_ns(m.header.stamp) for m in images[30:]]) * sent / 1e9
    assert period_s == pytest.approx(1 / sent, rel=0.05)
    # Of a group the newest may be taken; where the sender gets no processor time, its images come late.
    assert np.percentile(np.abs(periods - np.round(periods)), 30) < 0.1
    assert np.median(periods) > 0.9
    assert any("arrival" in one for one in times()) is (case != "groups")
    for text in ("\n".join(lines), output):
        assert text.count("do not run at the rate of the arrivals") == (case == "another rate")
        assert "secret" not in text
    assert all("secret" not in str(status) for status in peer.diagnostics)


def test_the_latency_is_taken_off_the_stamps(heard, camera):
    peer, images, _ = heard
    port = free_port()
    camera(f"udp://127.0.0.1:{port}", latency=5.0)
    with sender(port):
        peer.wait(lambda: images, "an image")
    assert time.time_ns() - stamp_ns(images[0].header.stamp) > 5 * 10**9


def test_a_file_that_is_no_video_is_an_error_that_names_it(heard, camera, tmp_path):
    peer, *_ = heard
    file = tmp_path / "notes.mp4"
    file.write_bytes(b"flight of Monday" * 100)
    camera(str(file))
    peer.wait(lambda: said(peer, f"camera {file} gives no images", DiagnosticStatus.ERROR), "the error")


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"stream": ""}, "stream is empty; give rtsp://"),
        ({"stream": "nowhere.mp4"}, "stream nowhere.mp4 is neither a URL nor a device nor a file"),
        ({"calibration": "/nowhere.yaml"}, "calibration /nowhere.yaml can't be read"),
        ({"latency": -1.0}, "a number with a decimal point from 0 to 5"),
        ({"hardware_decoder": "abacus"}, "hardware_decoder is 'abacus'"),
    ],
)
def test_a_wrong_parameter_is_refused_at_the_start(camera, parameters, words):
    with pytest.raises(InputError, match=re.escape(words)):
        camera(**{"stream": "udp://@:9", **parameters})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("camera_matrix", "matrix"), "'camera_matrix' is missing"),
        (("0.0, 0.0, 1.0]", "0.0, 0.0]"), "camera_matrix has 8 values, 9 are needed"),
        (("plumb_bob", "wide"), "wide"),
        (("image_width: 320", "image_width: wide"), "wide"),
        (("image_width: 320", "{"), "is no YAML"),
        (
            ("image_width: 320", "%YAML:1.0\nimage_width: 320"),
            "OpenCV's own format; write it in that of camera",
        ),
    ],
)
def test_a_file_that_is_no_calibration_is_refused_with_its_fault(tmp_path, change, words):
    file = tmp_path / "camera.yaml"
    file.write_text(CALIBRATION.replace(*change))
    with pytest.raises(InputError, match=words):
        read_calibration(str(file))
