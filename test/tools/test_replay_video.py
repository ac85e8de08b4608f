"""`efftam replay` of bags with compressed video, as ffmpeg_image_transport and Foxglove record it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import av
import numpy as np
import pytest
from bag_helpers import START_NS, TYPES, header, read_messages, stamps, write_bag
from tools_helpers import square_picture

from efftam_ros.core.errors import InputError
from efftam_ros.images.coded_video import FFMPEG_TYPE, FOXGLOVE_TYPE, VideoDecoder
from efftam_ros.tools.cli import main

PERIOD_NS = 100_000_000
CODECS = {"h264": "libx264", "h265": "libx265", "vp9": "libvpx-vp9"}
FRAMES, GROUP = 12, 6


def packets(
    codec: str, b_frames: int = 0, scale: int = 1, count: int = FRAMES, group: int = GROUP
) -> list[bytes]:
    """A square that moves, one packet per image, a key frame every ``group`` images."""

    def picture(i: int) -> np.ndarray:
        return square_picture(40 + 3 * i, 30 + 2 * i).repeat(scale, axis=0).repeat(scale, axis=1)

    first = picture(0)
    encoder = av.CodecContext.create(CODECS[codec], "w")
    encoder.width, encoder.height, encoder.pix_fmt = first.shape[1], first.shape[0], "yuv420p"
    encoder.framerate = 10
    x265 = f"log-level=none:keyint={group}:min-keyint={group}:bframes={b_frames}:repeat-headers=1"
    own = {"bf": str(b_frames), "x265-params": x265} | ({} if b_frames else {"tune": "zerolatency"})
    encoder.options = {"crf": "10", "g": str(group)} | ({"lag-in-frames": "0"} if codec == "vp9" else own)
    made = []
    for i in range(count):
        frame = av.VideoFrame.from_ndarray(picture(i), "bgr24")
        frame.pts = i
        made += encoder.encode(frame)
    return [bytes(packet) for packet in [*made, *encoder.encode(None)]]


def message(kind: str, codec: str, data: bytes, stamp_ns: int):
    head, values = header(stamp_ns), np.frombuffer(data, np.uint8)
    if kind == FOXGLOVE_TYPE:
        made = TYPES[kind](timestamp=head.stamp, frame_id=head.frame_id, data=values, format=codec)
    else:
        made = TYPES[kind](
            header=head,
            width=160,
            height=120,
            encoding=f"{CODECS[codec]};yuv420p;bgr8",
            pts=stamp_ns,
            flags=0,
            is_bigendian=False,
            data=values,
        )
    return kind, made


def bag_of(path: Path, kind: str, codec: str, skipped: int = 0, b_frames: int = 0) -> Path:
    return write_bag(
        path,
        [
            ("/camera/video", stamp := START_NS + i * PERIOD_NS, message(kind, codec, data, stamp))
            for i, data in enumerate(packets(codec, b_frames))
            if i >= skipped
        ],
    )


def replayed(bag: Path, box: str = "40,30,24,24") -> list:
    """The answers to the images of a bag."""
    out = bag.with_name("out")
    assert main(["replay", str(bag), "--box", box, "--out", str(out), "--quiet"]) == 0
    return read_messages(out, "/bbox")


@pytest.mark.parametrize("codec", ["h264", "h265"])
@pytest.mark.parametrize("kind", [FFMPEG_TYPE, FOXGLOVE_TYPE])
def test_every_image_of_a_video_topic_is_tracked_with_its_own_stamp(tmp_path: Path, kind: str, codec: str):
    boxes = replayed(bag_of(tmp_path / "bag", kind, codec))
    assert stamps(boxes) == [START_NS + i * PERIOD_NS for i in range(FRAMES)]
    assert {box.header.frame_id for box in boxes} == {"camera"}
    for i, box in enumerate(boxes):
        assert box.measured
        assert abs(box.x - (40 + 3 * i)) < 4
        assert abs(box.y - (30 + 2 * i)) < 4


@pytest.mark.parametrize("codec", ["h264", "h265"])
def test_a_video_that_begins_between_key_frames_waits_for_the_next_and_says_so(
    tmp_path: Path, codec: str, capsys
):
    boxes = replayed(bag_of(tmp_path / "bag", FFMPEG_TYPE, codec, skipped=2), "58,42,24,24")
    assert stamps(boxes) == [START_NS + i * PERIOD_NS for i in range(GROUP, FRAMES)]
    assert boxes[0].measured
    assert abs(boxes[0].x - 58) < 4
    said = capsys.readouterr()
    assert "video waits for a key frame" in said.err
    assert "4 images not used" in said.out


@pytest.mark.parametrize("counts", [True, False])
@pytest.mark.parametrize("codec", ["h264", "h265"])
@pytest.mark.parametrize("kind", [FFMPEG_TYPE, FOXGLOVE_TYPE])
def test_images_that_need_a_lost_message_are_not_used(
    tmp_path: Path, kind: str, codec: str, counts: bool, capsys
):
    """The square would be several px off in them. ffmpeg_image_transport counts its images."""
    rows = []
    for i, data in enumerate(packets(codec)):
        made = message(kind, codec, data, stamp := START_NS + i * PERIOD_NS)
        if counts and kind == FFMPEG_TYPE:
            made[1].pts = i
        if i not in (7, 8):
            rows.append(("/video", stamp, made))
    bag = write_bag(tmp_path / "bag", rows)
    boxes = replayed(bag)
    assert [(t - START_NS) // PERIOD_NS for t in stamps(boxes)] == list(range(7))
    said = capsys.readouterr()
    assert "packets are lost" in said.err
    assert "key frame" in said.err
    assert "3 images not used" in said.out


def test_a_lost_message_of_a_codec_that_does_not_tell_is_known_by_the_senders_count():
    decoder, used = VideoDecoder(), []
    for i, data in enumerate(packets("vp9")):
        made = message(FFMPEG_TYPE, "vp9", data, stamp := START_NS + i * PERIOD_NS)[1]
        made.pts = i
        if i != 4:
            with suppress(InputError):
                decoder.decode(made, stamp)
                used.append(i)
    assert used == [0, 1, 2, 3, *range(GROUP, FRAMES)]


@pytest.mark.parametrize("codec", CODECS)
def test_after_a_message_that_can_not_be_decoded_nothing_is_used_until_a_key_frame(codec: str):
    decoder, used = VideoDecoder(), []
    for i, data in enumerate(packets(codec)):
        made = message(
            FOXGLOVE_TYPE, codec, b"no video" if i == 3 else data, stamp := START_NS + i * PERIOD_NS
        )[1]
        with suppress(InputError):
            decoder.decode(made, stamp)
            used.append(i)
    assert used == [0, 1, 2, *range(GROUP, FRAMES)]


def test_a_topic_whose_counter_is_a_time_is_read_whole():
    decoder = VideoDecoder()
    for i, data in enumerate(packets("h264")):
        stamp = START_NS + i * PERIOD_NS
        made = message(FFMPEG_TYPE, "h264", data, stamp)[1]
        made.pts = i if i < 3 else 3 * i
        assert decoder.decode(made, stamp)[:2] == (160, 120)


@pytest.mark.parametrize("lost", [(5,), (5, 15, 25)], ids=["once", "again and again"])
def test_without_a_key_frame_images_are_used_again_after_two_seconds(lost: tuple[int, ...]):
    decoder, used = VideoDecoder(), []
    coded = packets("h264", count=33, group=250)
    for i, data in enumerate(coded):
        stamp = START_NS + i * PERIOD_NS
        if i not in lost:
            with suppress(InputError):
                decoder.decode(message(FOXGLOVE_TYPE, "h264", data, stamp)[1], stamp)
                used.append(i)
    assert used == [*range(5), *range(27, 33)]


@pytest.mark.parametrize("codec", ["h264", "h265"])
def test_a_wrong_stamp_costs_its_image_alone(tmp_path: Path, codec: str, capsys):
    """The images after it need its data."""
    rows = [(START_NS + i * PERIOD_NS, data) for i, data in enumerate(packets(codec))]
    stamp = [t + 3 * 10**9 if i == GROUP + 2 else t for i, (t, _) in enumerate(rows)]
    made = [message(FFMPEG_TYPE, codec, data, s) for s, (_, data) in zip(stamp, rows, strict=True)]
    bag = write_bag(tmp_path / "bag", [("/video", t, m) for (t, _), m in zip(rows, made, strict=True)])
    boxes = replayed(bag)
    assert stamps(boxes) == [t for i, (t, _) in enumerate(rows) if i != GROUP + 2]
    assert "3.000 s ahead of the arrival of its image" in capsys.readouterr().err
    assert all(abs(box.x - (40 + 3 * i)) < 4 for i, box in enumerate(boxes[-3:], start=FRAMES - 3))


def test_after_a_pause_a_video_waits_for_a_key_frame(tmp_path: Path, capsys):
    """An encoder that was started anew: what it sent first was not heard, and the rest needs it."""
    coded = packets("h264")
    rows = [(START_NS + i * PERIOD_NS, data) for i, data in enumerate(coded)]
    rows += [(t + 30 * PERIOD_NS, data) for t, data in rows[2:]]
    bag = write_bag(tmp_path / "bag", [("/video", t, message(FOXGLOVE_TYPE, "h264", d, t)) for t, d in rows])
    answered = [(t - START_NS) // PERIOD_NS for t in stamps(replayed(bag))]
    assert answered == [*range(FRAMES), *range(30 + GROUP, 30 + FRAMES)]
    assert "video waits for a key frame;" in capsys.readouterr().err


def test_after_a_pause_a_stream_of_another_size_goes_on(tmp_path: Path):
    """As a camera that was started anew sends it, on the same topic."""
    rows = [(START_NS + i * PERIOD_NS, data) for i, data in enumerate(packets("h264"))]
    rows += [(t + 60 * PERIOD_NS, data) for (t, _), data in zip(rows, packets("h264", scale=2), strict=True)]
    bag = write_bag(tmp_path / "bag", [("/video", t, message(FOXGLOVE_TYPE, "h264", d, t)) for t, d in rows])
    sizes = [(box.image_width, box.image_height) for box in replayed(bag)]
    assert sizes == FRAMES * [(160, 120)] + FRAMES * [(320, 240)]


@pytest.mark.parametrize("kind", [FFMPEG_TYPE, FOXGLOVE_TYPE])
@pytest.mark.parametrize("jump_s", [-60.0, 60.0])
def test_only_where_stamp_and_arrival_pause_an_encoder_may_be_another(kind: str, jump_s: float):
    """A bag that is played again after a pause begins between key frames; a clock that is set changes
    nothing."""
    coded, decoder = packets("h265", count=GROUP, group=60), VideoDecoder()

    def is_used(i: int, stamp_s: float, arrived_s: float) -> bool:
        made = message(kind, "h265", coded[i], START_NS + round(stamp_s * 1e9))[1]
        with suppress(InputError):
            decoder.decode(made, round(arrived_s * 1e9))
            return True
        return False

    assert all(is_used(i, 0.1 * i, 900 + 0.1 * i) for i in range(3))
    assert is_used(3, 0.3 + jump_s, 900.3)
    assert is_used(4, 0.4 + jump_s, 902.4)  # held up on the way
    assert not is_used(5, 0.3, 903.9)
    assert is_used(0, 0.4, 904.0)


def test_a_topic_may_go_on_in_another_codec():
    decoder = VideoDecoder()
    for number, codec in enumerate(("h264", "h265", "h264")):
        for i, data in enumerate(packets(codec, count=3)):
            stamp = START_NS + (3 * number + i) * PERIOD_NS
            assert decoder.decode(message(FOXGLOVE_TYPE, codec, data, stamp)[1], stamp)[:2] == (160, 120)


def test_images_of_too_many_pixels_are_refused():
    _, made = message(FOXGLOVE_TYPE, "h264", packets("h264")[0], START_NS)
    assert VideoDecoder().decode(made, 0, 160 * 120)[0] == 160
    with pytest.raises(InputError, match="160 x 120"):
        VideoDecoder().decode(made, 0, 160 * 120 - 1)


def test_b_frames_are_refused_with_their_remedy(tmp_path: Path, capsys):
    bag = bag_of(tmp_path / "bag", FOXGLOVE_TYPE, "h264", b_frames=2)
    main(["replay", str(bag), "--box", "40,30,24,24", "--out", str(tmp_path / "out"), "--quiet"])
    assert "encode it without (bf 0)" in capsys.readouterr().err


def test_an_unknown_codec_is_named(tmp_path: Path, capsys):
    bag = write_bag(tmp_path / "bag", [("/video", START_NS, message(FOXGLOVE_TYPE, "h264", b"", START_NS))])
    stored = [("/video", START_NS, (FOXGLOVE_TYPE, read_messages(bag, "/video")[0]))]
    stored[0][2][1].format = "mpeg2"
    other = write_bag(tmp_path / "other", stored)
    assert main(["replay", str(other), "--box", "1,1,9,9", "--out", str(tmp_path / "out"), "--quiet"]) == 2
    assert "codec 'mpeg2' can't be decoded; send h264 or h265" in capsys.readouterr().err
