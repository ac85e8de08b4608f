"""Video topics, as ffmpeg_image_transport and Foxglove's transport send them, into the running node."""

from __future__ import annotations

import sys

import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed")
pytest.importorskip("efftam_ros.msg", reason="the messages are not built")

import av
from efftam_ros.msg import BoundingBox
from level_pipeline import HEIGHT, WIDTH, scene
from ros_helpers import stamp_of

from efftam_ros.core.errors import InputError
from efftam_ros.interop.messages import stamp_ns
from efftam_ros.ros.common.image_input import TRANSPORTS, camera_info_beside, message_class

pytestmark = pytest.mark.ros


def packets(count: int) -> list[bytes]:
    encoder = av.CodecContext.create("libx264", "w")
    encoder.width, encoder.height, encoder.pix_fmt, encoder.framerate = WIDTH, HEIGHT, "yuv420p", 30
    encoder.options = {"crf": "5", "g": "10", "tune": "zerolatency"}
    made = []
    for i in range(count):
        frame = av.VideoFrame.from_ndarray(scene(i), "bgr24")
        frame.pts = i
        made += encoder.encode(frame)
    return [bytes(packet) for packet in made]


def message(transport: str, data: bytes, i: int):
    made = message_class(transport)()
    stamp = made.header.stamp if transport == "ffmpeg" else made.timestamp
    stamp.sec, stamp.nanosec = divmod(stamp_of(i), 10**9)
    if transport == "ffmpeg":
        made.header.frame_id, made.encoding = "nose", "libx264"
    else:
        made.frame_id, made.format = "nose", "h264"
    made.data = data
    return made


@pytest.mark.parametrize("transport", ["ffmpeg", "foxglove"])
def test_a_video_topic_is_answered_from_its_first_key_frame(transport, tracker):
    package = TRANSPORTS[transport].message_type.partition("/")[0]
    kind = getattr(pytest.importorskip(f"{package}.msg"), TRANSPORTS[transport].message_type.split("/")[-1])
    peer = tracker(
        *("-p", f"image_transport:={transport}", "-p", "diagnostics_period:=0.1"),
        *("-p", "image_timeout:=20.0", "-p", "publish_annotations:=false"),
        peer={"image_type": kind, "image_topic": f"image/{transport}"},
        warm_up=False,
    )
    coded = packets(30)

    def show(i: int) -> BoundingBox:
        peer.images.publish(message(transport, coded[i], i))
        answered = lambda: [b for b in peer.boxes if stamp_ns(b.header.stamp) == stamp_of(i)]  # noqa: E731
        peer.wait(answered, f"the box of image {i}")
        return answered()[-1]

    def waits() -> bool:
        peer.images.publish(message(transport, coded[5], 5))  # again: a writer can't see that it is heard
        return any("waits for a key frame" in s.message for s in peer.diagnostics)

    peer.wait(waits, "the wait for a key frame")
    assert show(10).header.frame_id == "nose"
    for i in range(11, 30):
        box = show(i)
        assert (box.image_width, box.image_height) == (WIDTH, HEIGHT)
    assert not any(stamp_ns(b.header.stamp) == stamp_of(5) for b in peer.boxes)


@pytest.mark.parametrize("transport", ["ffmpeg", "foxglove"])
def test_without_the_message_package_the_command_that_brings_it_is_named(transport, monkeypatch):
    package = TRANSPORTS[transport].message_type.partition("/")[0]
    monkeypatch.setitem(sys.modules, f"{package}.msg", None)
    with pytest.raises(InputError, match=f"run: apt-get install .*-{package.replace('_', '-')}$"):
        message_class(transport)


def test_the_calibration_is_beside_every_transport():
    for transport in TRANSPORTS.values():
        assert camera_info_beside("/nose/image_raw" + transport.suffix) == "/nose/camera_info"
