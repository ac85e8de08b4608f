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
from efftam_ros.ros.common.image_input import TRANSPORTS, message_class

KINDS = [("ffmpeg", "h264"), ("foxglove", "h264"), ("ffmpeg", "h265"), ("foxglove", "h265")]
GROUP = 10
# More than this are never sent at once: the depth of these topics.
RELIABLE = QoSProfile(depth=30, reliability=ReliabilityPolicy.RELIABLE)


def packets(codec: str, count: int, scale: int = 1, group: int = GROUP) -> list[bytes]:
    """One packet per image of the scene, a key frame every ``group`` images."""
    encoder = av.CodecContext.create({"h264": "libx264", "h265": "libx265"}[codec], "w")
    encoder.width, encoder.height, encoder.pix_fmt = WIDTH * scale, HEIGHT * scale, "yuv420p"
    encoder.framerate = 30
    x265 = f"log-level=none:keyint={group}:min-keyint={group}:bframes=0:repeat-headers=1"
    encoder.options = {"crf": "5", "g": str(group), "tune": "zerolatency", "x265-params": x265}
    made = []
    for i in range(count):
        picture = scene(i).repeat(scale, axis=0).repeat(scale, axis=1)
        frame = av.VideoFrame.from_ndarray(picture, "bgr24")
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

    def start_anew(self) -> None:
        """As an encoder that is started anew, after longer than a pause of a video may last."""
        kind, topic = self.peer.images.msg_type, self.peer.images.topic_name
        self.peer.node.destroy_publisher(self.peer.images)
        self.peer.spin_for(1.2)
        self.peer.images = self.peer.node.create_publisher(kind, topic, RELIABLE)
        self.peer.wait(lambda: self.peer.images.get_subscription_count() > 0, "the subscription")

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
def test_a_video_topic_is_answered_from_its_first_key_frame(transport, codec, start):
    sender, coded = start(transport, codec), packets(codec, 3 * GROUP)
    sender.refused_for("waits for a key frame", coded[5], 5)
    assert sender.begin(coded[GROUP], GROUP).header.frame_id == "nose"
    sender.peer.follow(GROUP, bright_box(GROUP))
    for i in range(GROUP + 1, 3 * GROUP):
        box = sender.show(coded[i], i)
        assert (box.image_width, box.image_height) == (WIDTH, HEIGHT)
    assert box.state == BoundingBox.TRACKING
    assert iou(box_of(box), bright_box(i)) > 0.8
    assert not sender.answers(5)


@pytest.mark.parametrize(("transport", "codec"), KINDS[::3])
def test_of_a_burst_no_message_is_lost(transport, codec, start):
    """Each message needs those before it; the node answers the newest image alone."""
    sender, coded = start(transport, codec), packets(codec, 29, group=60)
    sender.begin(coded[0], 0)
    sender.peer.follow(0, bright_box(0))
    _, before = sender.peer.diagnosis(lambda s, v: "images received" in v, "the number of images")
    for i in range(1, 29):
        sender.send(coded[i], i)
    sender.peer.wait(lambda: sender.answers(28), "the box of the last image")
    received = str(int(before["images received"]) + 28)
    _, values = sender.peer.diagnosis(lambda s, v: v["images received"] >= received, "all images")
    assert values["images received"] == received
    assert values["images refused"] == before["images refused"]


@pytest.mark.parametrize(("transport", "codec"), KINDS[::3])
def test_after_loss_and_damage_the_next_key_frame_makes_all_well(transport, codec, start):
    sender, coded = start(transport, codec), packets(codec, 2 * GROUP + 4)
    sender.begin(coded[0], 0)
    sender.peer.follow(0, bright_box(0))
    sender.show(coded[1], 1)
    sender.refused_for("image can't be decoded", b"no video", 2)
    sender.send(coded[6], 6)  # 2 to 5 are lost
    sender.peer.diagnosis(lambda s, v: "packets are lost" in v["last refused image"], "the loss")
    for i in range(7, 2 * GROUP):
        sender.send(coded[i], i)
    for i in range(2 * GROUP, 2 * GROUP + 4):
        box = sender.show(coded[i], i)
    assert iou(box_of(box), bright_box(i)) > 0.8


@pytest.mark.parametrize(("transport", "codec"), KINDS[::3])
def test_an_encoder_that_is_started_anew_is_taken_from_its_key_frame_with_another_size_too(
    transport, codec, start
):
    sender, coded = start(transport, codec), packets(codec, GROUP)
    sender.begin(coded[0], 0)
    sender.show(coded[1], 1)
    sender.start_anew()
    sender.refused_for("waits for a key frame", coded[2], 40)  # its key frame was sent before it was heard
    assert not sender.answers(40)
    larger = packets(codec, GROUP, scale=2)
    sender.begin(larger[0], 50)
    box = sender.show(larger[1], 51)
    assert (box.image_width, box.image_height) == (2 * WIDTH, 2 * HEIGHT)


def test_a_short_pause_needs_no_key_frame(start):
    sender, coded = start("ffmpeg", "h264"), packets("h264", 4)
    sender.begin(coded[0], 0)
    for i in range(1, 4):
        sender.peer.spin_for(0.3)
        sender.show(coded[i], 25 * i)  # 0.8 s later by its stamp


@pytest.mark.parametrize("transport", ["ffmpeg", "foxglove"])
def test_without_the_message_package_the_command_that_brings_it_is_named(transport, monkeypatch):
    package = TRANSPORTS[transport].message_type.partition("/")[0]
    monkeypatch.setitem(sys.modules, f"{package}.msg", None)
    with pytest.raises(InputError, match=f"run: apt-get install .*-{package.replace('_', '-')}$"):
        message_class(transport)
