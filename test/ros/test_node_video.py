"""Video topics, as ffmpeg_image_transport and Foxglove's transport send them, into the running node."""

from __future__ import annotations

import sys

import av
import pytest
from efftam_ros.msg import BoundingBox
from level_pipeline import HEIGHT, WIDTH, bright_box, scene
from rclpy.qos import QoSProfile, ReliabilityPolicy
from ros_helpers import box_of, stamp_of

from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import iou
from efftam_ros.images.message import stamp_ns
from efftam_ros.ros.common.image_input import message_class
from efftam_ros.ros.common.transports import TRANSPORTS

KINDS = [("ffmpeg", "h264"), ("foxglove", "h264"), ("ffmpeg", "h265"), ("foxglove", "h265")]
GROUP = 10
# More than this are never sent at once: the depth of these topics.
RELIABLE = QoSProfile(depth=30, reliability=ReliabilityPolicy.RELIABLE)


def packets(codec: str, count: int) -> list[bytes]:
    """One packet per image of the scene, a key frame every ``GROUP`` images."""
    encoder = av.CodecContext.create({"h264": "libx264", "h265": "libx265"}[codec], "w")
    encoder.width, encoder.height, encoder.pix_fmt = WIDTH, HEIGHT, "yuv420p"
    encoder.framerate = 30
    x265 = f"log-level=none:keyint={GROUP}:min-keyint={GROUP}:bframes=0:repeat-headers=1"
    encoder.options = {"crf": "5", "g": str(GROUP), "tune": "zerolatency", "x265-params": x265}
    made = []
    for i in range(count):
        frame = av.VideoFrame.from_ndarray(scene(i), "bgr24")
        frame.pts = i
        made += encoder.encode(frame)
    return [bytes(packet) for packet in made]


class Sender:
    """The camera's side of a video topic, and what the node answers."""

    def __init__(self, tracker, transport: str, codec: str) -> None:
        self._transport, self._codec = transport, codec
        topic, kind = "image" + TRANSPORTS[transport].suffix, message_class(transport)
        self.peer = tracker(
            *("-p", f"image_transport:={transport}", "-p", "diagnostics_period:=0.1"),
            *("-p", "image_timeout:=20.0"),
            peer={"image_type": kind, "image_topic": topic, "image_qos": RELIABLE},
            warm_up=False,
        )

    def send(self, data: bytes, i: int) -> None:
        self.peer.images.publish(message(self._transport, self._codec, data, i))

    def answers(self, i: int) -> list[BoundingBox]:
        return [box for box in self.peer.boxes if stamp_ns(box.header.stamp) == stamp_of(i)]

    def show(self, data: bytes, i: int) -> BoundingBox:
        self.send(data, i)
        self.peer.wait(lambda: self.answers(i), f"the box of image {i}")
        return self.answers(i)[-1]

    def begin(self, key_frame: bytes, i: int) -> BoundingBox:
        """A writer can't see that a reader is not ready for it yet: send the first one until it is
        answered."""

        def answered():
            self.send(key_frame, i)
            self.peer.spin_for(0.1)
            return self.answers(i)

        self.peer.wait(answered, f"the box of image {i}")
        return self.answers(i)[-1]

    def refused_for(self, words: str, data: bytes, i: int) -> None:
        """Send this one until the node says that it can't be used, with these words."""

        def said():
            self.send(data, i)
            self.peer.spin_for(0.1)
            return any(words in v.value for s in self.peer.diagnostics for v in s.values)

        self.peer.diagnostics.clear()
        self.peer.wait(said, f"the words {words!r}")


def message(transport: str, codec: str, data: bytes, i: int):
    made = message_class(transport)()
    stamp = made.header.stamp if transport == "ffmpeg" else made.timestamp
    stamp.sec, stamp.nanosec = divmod(stamp_of(i), 10**9)
    if transport == "ffmpeg":
        made.header.frame_id, made.encoding = "nose", {"h264": "libx264", "h265": "libx265"}[codec]
    else:
        made.frame_id, made.format = "nose", codec
    made.data = data
    return made


@pytest.fixture
def start(video_messages, tracker):
    return lambda transport, codec: Sender(tracker, transport, codec)


@pytest.mark.parametrize(("transport", "codec"), KINDS)
def test_a_video_topic_is_answered_from_its_first_key_frame_and_no_message_of_a_burst_is_lost(
    transport, codec, start
):
    """Each message needs those before it, and of a burst the newest image alone is answered."""
    sender, coded = start(transport, codec), packets(codec, 3 * GROUP)
    sender.refused_for("waits for a key frame", coded[5], 5)
    assert sender.begin(coded[GROUP], GROUP).header.frame_id == "nose"
    sender.peer.follow(GROUP, bright_box(GROUP))
    for i in range(GROUP + 1, 2 * GROUP + 1):
        box = sender.show(coded[i], i)
        assert (box.image_width, box.image_height) == (WIDTH, HEIGHT)
    assert box.state == BoundingBox.TRACKING
    for i in range(2 * GROUP + 1, 3 * GROUP):
        sender.send(coded[i], i)
    sender.peer.wait(lambda: sender.answers(i), "the box of the last image")
    box = sender.answers(i)[-1]
    assert iou(box_of(box), bright_box(i)) > 0.8
    assert not sender.answers(5)


@pytest.mark.parametrize("transport", ["ffmpeg", "foxglove"])
def test_without_the_message_package_the_command_that_brings_it_is_named(transport, monkeypatch):
    package = TRANSPORTS[transport].message_type.partition("/")[0]
    monkeypatch.setitem(sys.modules, f"{package}.msg", None)
    with pytest.raises(InputError, match=f"run: apt-get install .*-{package.replace('_', '-')}$"):
        message_class(transport)
