"""`efftam replay` of bags with compressed video, as ffmpeg_image_transport and Foxglove record it."""

from __future__ import annotations

from pathlib import Path

import av
import numpy as np
import pytest
from bag_helpers import START_NS, TYPES, header, read_messages, stamps, write_bag
from tools_helpers import square_picture

from efftam_ros.images.coded_video import FFMPEG_TYPE, FOXGLOVE_TYPE
from efftam_ros.tools.cli import main

PERIOD_NS = 100_000_000
CODECS = {"h264": "libx264", "h265": "libx265"}
FRAMES, GROUP = 12, 6


def packets(codec: str) -> list[bytes]:
    """A square that moves, one packet per image, a key frame every ``GROUP`` images."""
    encoder = av.CodecContext.create(CODECS[codec], "w")
    encoder.width, encoder.height, encoder.pix_fmt, encoder.framerate = 160, 120, "yuv420p", 10
    x265 = f"log-level=none:keyint={GROUP}:min-keyint={GROUP}:bframes=0:repeat-headers=1"
    encoder.options = {"crf": "10", "g": str(GROUP), "tune": "zerolatency", "x265-params": x265}
    made = []
    for i in range(FRAMES):
        frame = av.VideoFrame.from_ndarray(square_picture(40 + 3 * i, 30 + 2 * i), "bgr24")
        frame.pts = i
        made += encoder.encode(frame)
    return [bytes(packet) for packet in [*made, *encoder.encode(None)]]


def message(kind: str, codec: str, data: bytes, stamp_ns: int):
    head, values = header(stamp_ns), np.frombuffer(data, np.uint8)
    if kind == FOXGLOVE_TYPE:
        made = TYPES[kind](timestamp=head.stamp, frame_id=head.frame_id, data=values, format=codec)
    else:
        size = {"width": 160, "height": 120, "encoding": f"{CODECS[codec]};yuv420p;bgr8"}
        made = TYPES[kind](header=head, **size, pts=stamp_ns, flags=0, is_bigendian=False, data=values)
    return kind, made


def stamp(i: int) -> int:
    return START_NS + i * PERIOD_NS


def bag_of(path: Path, kind: str, codec: str, left_out=(), wrong: dict[int, int] | None = None) -> Path:
    """``wrong``: by image, how far its stamp is off, ns."""
    rows = [
        ("/camera/video", stamp(i), message(kind, codec, data, stamp(i) + (wrong or {}).get(i, 0)))
        for i, data in enumerate(packets(codec))
        if i not in left_out
    ]
    return write_bag(path, rows)


def replayed(bag: Path, box: str = "40,30,24,24") -> list:
    """The answers to the images of a bag."""
    out = bag.with_name("out")
    assert main(["replay", str(bag), "--box", box, "--out", str(out), "--quiet"]) == 0
    return read_messages(out, "/bbox")


@pytest.mark.parametrize(("kind", "codec"), [(FFMPEG_TYPE, "h265"), (FOXGLOVE_TYPE, "h264")])
def test_every_image_of_a_video_topic_is_tracked_with_its_own_stamp(tmp_path: Path, kind: str, codec: str):
    boxes = replayed(bag_of(tmp_path / "bag", kind, codec))
    assert stamps(boxes) == [stamp(i) for i in range(FRAMES)]
    assert {box.header.frame_id for box in boxes} == {"camera"}
    for i, box in enumerate(boxes):
        assert box.measured
        assert (box.x, box.y) == pytest.approx((40 + 3 * i, 30 + 2 * i), abs=4)


@pytest.mark.parametrize(
    ("left_out", "box", "used", "said"),
    [
        ((0, 1), "58,42,24,24", range(GROUP, FRAMES), ("video waits for a key frame", "4 images not used")),
        # The square would be several px off in those behind.
        ((7, 8), "40,30,24,24", range(7), ("packets are lost", "key frame", "3 images not used")),
    ],
)
def test_images_without_their_key_frame_or_a_lost_one_are_not_used_and_it_is_told(
    tmp_path: Path, left_out, box, used, said, capsys
):
    boxes = replayed(bag_of(tmp_path / "bag", FFMPEG_TYPE, "h264", left_out), box)
    assert stamps(boxes) == [stamp(i) for i in used]
    assert boxes[0].x == pytest.approx(float(box.partition(",")[0]), abs=4)
    told = "".join(capsys.readouterr())
    assert all(words in told for words in said)


def test_a_wrong_stamp_costs_its_image_alone(tmp_path: Path, capsys):
    """The images after it need its data."""
    boxes = replayed(bag_of(tmp_path / "bag", FFMPEG_TYPE, "h264", wrong={GROUP + 2: 3 * 10**9}))
    assert stamps(boxes) == [stamp(i) for i in range(FRAMES) if i != GROUP + 2]
    assert "3.000 s ahead of the arrival of its image" in capsys.readouterr().err
    assert all(abs(box.x - (40 + 3 * i)) < 4 for i, box in enumerate(boxes[-3:], start=FRAMES - 3))
