"""Video topics, message by message: which images are used after a loss, a pause, another encoder."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from types import SimpleNamespace

import av
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from efftam_ros.core.errors import InputError
from efftam_ros.images.coded_video import VideoDecoder
from efftam_ros.images.message import ImageReader

NAMES = {
    "h264": ("h264", "H264", "libx264;yuv420p;bgr8"),
    "h265": ("HEVC", "libx265"),
    "vp9": ("libvpx-vp9",),
}
ENCODERS = {"h264": "libx264", "h265": "libx265", "vp9": "libvpx-vp9"}
PERIOD_NS, S = 100_000_000, 10**9
GROUP = 6


def picture(number: int, side: int = 64) -> np.ndarray:
    """A pattern whose lightness tells its number."""
    pattern = np.random.default_rng(0).integers(0, 40, (side, side, 1), np.uint8)
    return (pattern + 10 + 8 * number % 200).astype(np.uint8).repeat(3, axis=2)


@cache
def packets(
    codec: str, count: int = 24, group: int = GROUP, side: int = 64, b_frames: int = 0
) -> list[bytes]:
    """One packet per image, a key frame every ``group`` images."""
    encoder = av.CodecContext.create(ENCODERS[codec], "w")
    encoder.width, encoder.height, encoder.pix_fmt, encoder.framerate = side, side, "yuv420p", 10
    x265 = f"log-level=none:keyint={group}:min-keyint={group}:bframes={b_frames}:repeat-headers=1"
    own = {"bf": str(b_frames), "x265-params": x265} | ({} if b_frames else {"tune": "zerolatency"})
    encoder.options = {"crf": "5", "g": str(group)} | ({"lag-in-frames": "0"} if codec == "vp9" else own)
    made = []
    for i in range(count):
        frame = av.VideoFrame.from_ndarray(picture(i, side), "bgr24")
        frame.pts = i
        made += encoder.encode(frame)
    return [bytes(packet) for packet in [*made, *encoder.encode(None)]]


def message(name: str, data: bytes, stamp_ns: int, count: int | None = None) -> SimpleNamespace:
    """Foxglove's, or ffmpeg_image_transport's with its ``count`` of images."""
    stamp = SimpleNamespace(sec=stamp_ns // S, nanosec=stamp_ns % S)
    if count is None:
        return SimpleNamespace(timestamp=stamp, format=name, data=data)
    return SimpleNamespace(header=SimpleNamespace(stamp=stamp), encoding=name, data=data, pts=count)


class Topic:
    """A topic and what must be used of it: images from a key frame on, without what needs a lost one."""

    def __init__(self, name: str, codec: str, has_counts: bool) -> None:
        self.decoder, self.name, self.codec, self.has_counts = VideoDecoder(), name, codec, has_counts
        self.number, self.last_ns, self.now_ns = 0, (0, 0), (1000 * S, 5 * S)  # stamp and arrival
        self.is_started = self.is_damaged = False
        self.used: list[tuple[int, object]] = []
        self.refusals: list[tuple[bool, str]] = []
        self.expected: list[int] = []

    def send(self, data: bytes) -> None:
        if all(abs(now - last) > S for now, last in zip(self.now_ns, self.last_ns, strict=True)):
            self.is_started = self.is_damaged = False
        self.last_ns = self.now_ns
        made = message(self.name, data, self.now_ns[0], self.number if self.has_counts else None)
        try:
            width, height, convert = self.decoder.decode(made, self.now_ns[1])
            assert (width, height) == (64, 64)
            self.used.append((self.number, convert))
        except InputError as refusal:
            self.refusals.append((self.is_started, str(refusal)))

    def image(self) -> None:
        self.send(packets(self.codec)[self.number])
        if self.number % GROUP == 0:
            self.is_started, self.is_damaged = True, False
        if self.is_started and not self.is_damaged:
            self.expected.append(self.number)
        self.lose(is_damage=False)

    def spoilt(self) -> None:
        self.send(b"no video")
        self.lose()

    def empty(self) -> None:
        self.send(b"")

    def lose(self, is_damage: bool = True) -> None:
        self.is_damaged |= is_damage
        self.number += 1
        self.wait(0.1, 0.1)

    def wait(self, stamp_s: float, arrival_s: float) -> None:
        self.now_ns = self.now_ns[0] + round(stamp_s * S), self.now_ns[1] + round(arrival_s * S)


STEP = {step.__name__: step for step in (Topic.image, Topic.lose, Topic.spoilt, Topic.empty)}
# What passes before the next message, s: by its stamp, and by its arrival.
BREAKS = {"pause": (3, 3), "played again": (-30, 2), "set": (60, 0), "set back": (-60, 0), "held up": (0, 2)}


@settings(max_examples=100)
@given(
    st.sampled_from([(name, codec) for codec in ("h264", "h265") for name in NAMES[codec]]),
    st.booleans(),
    st.lists(st.sampled_from([*STEP, *["image"] * 3, *BREAKS]), max_size=14),
)
@example(("h264", "h264"), True, ["image"] * 7 + ["lose"] + ["image"] * 3)  # the key frame comes next
@example(("h264", "h264"), True, ["image"] * 4 + ["lose", "pause"] + ["image"] * 7)
@example(("HEVC", "h265"), False, ["image", "spoilt", "image", "empty"] + ["image"] * 8)
@example(("HEVC", "h265"), False, ["set", "held up", "image", "set", "image", "held up"] + ["image"] * 3)
def test_images_are_used_from_a_key_frame_on_and_none_that_needs_a_lost_one(form, has_counts, steps):
    """After a pause of stamps and arrivals the encoder may be another one, whose key frame nobody heard."""
    topic = Topic(*form, has_counts)
    for step in ["image"] * 4 + steps:
        if step in STEP:
            STEP[step](topic)
        elif not topic.is_damaged:  # stamps also tell how long the damage lasts
            topic.wait(*BREAKS[step])
    assert [number for number, _ in topic.used] == topic.expected
    for is_started, said in topic.refusals:
        assert ("packets are lost" if is_started else "waits for a key frame; send one") in said
    for number, convert in topic.used:  # later, on another thread
        assert abs(int(np.median(convert().rows)) - int(np.median(picture(number)))) <= 4


LONG = {"count": 60, "group": 250}


@pytest.mark.parametrize(
    ("codec", "counts", "sent", "wrong", "used"),
    [
        # The sender's count tells of a lost message where the codec does not; a count may be a time.
        ("vp9", lambda i: i, {"count": 12}, {4: None}, [*range(4), *range(6, 12)]),
        ("vp9", lambda i: i, {"count": 18}, {4: None, 8: None}, [*range(4), 6, 7, *range(12, 18)]),
        ("h264", lambda i: i if i < 3 else 3 * i, {"count": 12}, {}, [*range(12)]),
        # What can't be decoded is as lost, and a key frame that is cut off ends no damage.
        ("vp9", None, {"count": 12}, {3: 0}, [*range(3), *range(6, 12)]),
        ("h264", None, {"count": 24}, {6: 500, 17: None}, [*range(6), *range(12, 17), *range(18, 24)]),
        ("h264", None, {"count": 24}, {3: None, 6: 500}, [*range(3), *range(12, 24)]),
        # Without a key frame images are used again after two seconds; a further loss in them changes nothing.
        ("h264", None, LONG, {5: None}, [*range(5), *range(27, 60)]),
        ("h264", None, LONG, {5: None, 15: None, 25: None}, [*range(5), *range(27, 60)]),
        ("h264", None, LONG, {5: None, 30: None}, [*range(5), 27, 28, 29, *range(52, 60)]),
    ],
)
def test_which_images_are_used_by_the_senders_count_and_without_key_frames(codec, counts, sent, wrong, used):
    """``wrong``: by message, None: lost, else so many bytes are left of it."""
    decoder, found = VideoDecoder(), []
    for i, data in enumerate(packets(codec, **sent)):
        left = wrong.get(i, len(data))
        if left is not None:
            made = message(codec, data[:left] or b"no video", S + i * PERIOD_NS, counts and counts(i))
            with suppress(InputError):
                decoder.decode(made, i * PERIOD_NS)
                found.append(i)
    assert found == used


def test_a_topic_may_go_on_in_another_codec_and_after_a_pause_in_another_size():
    decoder, at_ns = VideoDecoder(), S
    for codec, side, pause in (("h264", 64, 0), ("h265", 64, 0), ("h264", 64, 0), ("h264", 128, 20)):
        at_ns += pause * PERIOD_NS
        for data in packets(codec, 3, side=side):
            at_ns += PERIOD_NS
            width, _, convert = decoder.decode(message(codec, data, at_ns), at_ns)
            assert (width, convert().width) == (side, side)


def test_a_packet_is_received_under_its_own_stamp_and_counts_as_the_decoded_image():
    made = message("h264", packets("h264")[0], 5 * S + 7)
    made.frame_id = "nose"
    got = ImageReader("foxglove", SimpleNamespace).read(made, 9 * S)
    assert (got.header.frame_id, got.stamp_ns, got.arrived_s) == ("nose", 5 * S + 7, 9.0)
    assert (got.size, got.nbytes, got.image().width) == ((64, 64), 64 * 64 * 3 // 2, 64)


def test_what_can_not_be_decoded_is_refused_with_the_remedy():
    key, following = packets("h264")[:2]
    assert VideoDecoder().decode(message("h264", key, 0), 0, 64 * 64)[0] == 64
    with pytest.raises(InputError, match="64 x 64"):
        VideoDecoder().decode(message("h264", key, 0), 0, 64 * 64 - 1)
    with pytest.raises(InputError, match=r"waits for a key frame; send one"):
        VideoDecoder().decode(message("h264", following, 0), 0)
    with pytest.raises(InputError, match="codec 'mpeg2' can't be decoded; send h264 or h265"):
        VideoDecoder().decode(message("mpeg2", key, 0), 0)
    decoder, said = VideoDecoder(), ""
    for i, data in enumerate(packets("h264", b_frames=2)):
        try:
            decoder.decode(message("h264", data, i * PERIOD_NS), i * PERIOD_NS)
        except InputError as refusal:
            said += str(refusal)
    assert "encode it without them (ffmpeg: -bf 0)" in said
