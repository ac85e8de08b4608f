"""Damaged bags are refused in one line, whatever the library trips over; foreign ones are read or named."""

from __future__ import annotations

import random
import shutil
import struct
import zlib
from pathlib import Path

import pytest
from bag_helpers import NS, START_NS, STORE, camera_info, image, read_messages, selection, write_bag
from tools_helpers import square_picture

from efftam_ros.core.errors import InputError
from efftam_ros.images.levels import Levels
from efftam_ros.messages.bags import choose_topic, reading
from efftam_ros.tools.replay import read_images, read_selections

MUTATIONS = 150


def bag(folder: Path, storage: str) -> Path:
    messages = [("/camera_info", START_NS, camera_info(160, 120, 200.0))]
    for i in range(3):
        stamp = START_NS + i * NS // 10
        messages.append(("/image", stamp, image(square_picture(40, 30)[::8, ::8].copy(), stamp)))
    messages.append(("/select", START_NS + 1, selection(START_NS, (4, 3, 3, 3))))
    return write_bag(folder / "bag", messages, storage)


def read_all(path: Path) -> int:
    """Everything that a replay reads, without the network: the number of usable images."""
    usable = 0
    with reading(path) as reader:
        topic = choose_topic(reader, None)
        read_selections(reader, STORE)
        for recorded in read_images(reader, STORE, topic, False, Levels()):
            try:
                recorded.read()
            except InputError:
                continue
            usable += 1
    return usable


def damaged(data: bytes, dice: random.Random) -> bytes:
    """Some bytes changed, a piece cut out, or the end missing."""
    content = bytearray(data)
    kind = dice.randrange(3)
    at = dice.randrange(len(content))
    if kind == 0:
        for _ in range(dice.randint(1, 8)):
            content[dice.randrange(len(content))] = dice.randrange(256)
    elif kind == 1:
        del content[at : at + dice.randint(1, 200)]
    else:
        del content[at:]
    return bytes(content)


@pytest.mark.parametrize("storage", ["mcap", "sqlite3"])
@pytest.mark.parametrize("part", ["metadata", "messages"])
def test_no_damage_gives_a_traceback(tmp_path: Path, storage: str, part: str):
    whole = bag(tmp_path, storage)
    assert read_all(whole) == 3
    name = (
        "metadata.yaml"
        if part == "metadata"
        else next(p.name for p in whole.iterdir() if p.suffix != ".yaml")
    )
    content = (whole / name).read_bytes()
    refusals = []
    for number in range(MUTATIONS):
        dice = random.Random(zlib.crc32(f"{storage} {part} {number}".encode()))
        copy = tmp_path / "copy"
        shutil.copytree(whole, copy)
        (copy / name).write_bytes(damaged(content, dice))
        try:
            read_all(copy)
        except InputError as refusal:
            refusals.append(str(refusal))
        shutil.rmtree(copy)
    assert len(refusals) > MUTATIONS // 10
    assert [text for text in refusals if "\n" in text or len(text) > 600] == []


@pytest.mark.parametrize(
    "content", [b"", b"\x89MCAP0\r\n", b"no bag at all", b"SQLite format 3\0" + bytes(200)]
)
@pytest.mark.parametrize("suffix", [".mcap", ".db3"])
def test_files_that_are_none_are_refused(tmp_path: Path, suffix: str, content: bytes):
    path = tmp_path / f"bag{suffix}"
    path.write_bytes(content)
    with pytest.raises(InputError):
        read_all(path)


def test_a_recording_that_was_cut_off_is_told_how_to_recover_it(tmp_path: Path):
    whole = bag(tmp_path, "mcap")
    (file,) = whole.glob("*.mcap")
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(InputError, match=rf"mcap recover {file}"):
        read_all(file)
    with pytest.raises(InputError, match=rf"mcap recover {file} .*ros2 bag reindex {whole}"):
        read_all(whole)


# --- MCAP files as other recorders write them: JSON and protobuf beside ROS 2, no word on what is inside ---

IMAGE = "sensor_msgs/msg/Image"
ROS = ("cdr", "ros2msg", STORE.generate_msgdef(IMAGE, ros_version=2)[0].encode())
JSON, PROTOBUF = (
    ("json", "jsonschema", b'{"type": "object"}'),
    ("protobuf", "protobuf", b"\x0a\x03\xff\xfeabc"),
)


def text(content: str | bytes) -> bytes:
    data = content.encode() if isinstance(content, str) else content
    return struct.pack("<I", len(data)) + data


def record(kind: int, body: bytes) -> bytes:
    return bytes([kind]) + struct.pack("<Q", len(body)) + body


def write_mcap(
    file: Path, profile: str, channels: list[tuple], messages: list[tuple[int, int, bytes]]
) -> None:
    """By the format's description, with one chunk. ``channels``: topic, schema, and `JSON` or the like;
    ``messages``: channel from 1, time, content."""
    heads, chunk = b"", b""
    for number, (topic, schema, (encoding, schema_encoding, schema_data)) in enumerate(channels, 1):
        head = struct.pack("<H", number) + text(schema) + text(schema_encoding) + text(schema_data)
        heads += record(3, head)
        heads += record(4, struct.pack("<HH", number, number) + text(topic) + text(encoding) + text(b""))
    places: dict[int, list[tuple[int, int]]] = {}
    for number, (channel, time_ns, data) in enumerate(messages):
        places.setdefault(channel, []).append((time_ns, len(chunk)))
        chunk += record(5, struct.pack("<HIQQ", channel, number, time_ns, time_ns) + data)
    span = struct.pack("<QQ", messages[0][1], messages[-1][1])
    start = b"\x89MCAP0\r\n" + record(1, text(profile) + text("by hand")) + heads
    body = record(
        6, span + struct.pack("<QI", len(chunk), 0) + text("") + struct.pack("<Q", len(chunk)) + chunk
    )
    indices, offsets = b"", b""
    for channel, found in places.items():
        offsets += struct.pack("<HQ", channel, len(start) + len(body) + len(indices))
        pairs = b"".join(struct.pack("<QQ", *pair) for pair in found)
        indices += record(7, struct.pack("<H", channel) + text(pairs))
    before = len(start) + len(body) + len(indices)
    end = record(15, struct.pack("<I", 0))
    index = span + struct.pack("<QQ", len(start), len(body)) + text(offsets)
    index += struct.pack("<Q", len(indices)) + text("")
    index += struct.pack("<QQ", len(chunk), len(chunk))
    amounts = b"".join(struct.pack("<HQ", channel, len(found)) for channel, found in places.items())
    statistics = struct.pack("<QHIIII", len(messages), len(channels), len(channels), 0, 0, 1) + span
    summary = heads + record(8, index) + record(11, statistics + text(amounts))
    footer = record(2, struct.pack("<QQI", before + len(end), 0, 0))
    file.write_bytes(start + body + indices + end + summary + footer + b"\x89MCAP0\r\n")


def ros_images(count: int = 4) -> list[tuple[int, int, bytes]]:
    found = []
    for i in range(count):
        stamp = START_NS + i * NS // 10
        kind, message = image(square_picture(40 + 3 * i, 30), stamp)
        found.append((1, stamp, bytes(STORE.serialize_cdr(message, kind))))
    return found


def test_the_ros_channels_are_read_and_the_others_named_once(tmp_path: Path, efftam_here):
    for profile in ("ros2", ""):
        file, out = tmp_path / f"mixed{profile}.mcap", tmp_path / f"out{profile}"
        others = [(2, START_NS + 1, b'{"x": 1}'), (3, START_NS + 2, b"\x0a\x01x")]
        write_mcap(
            file,
            profile,
            [
                ("/image", IMAGE, ROS),
                ("/odom", "Odom", JSON),
                ("/cam/compressed", "foxglove.CompressedImage", PROTOBUF),
            ],
            sorted([*ros_images(), *others], key=lambda m: m[1]),
        )
        result = efftam_here("replay", file, "--box", "40,30,24,24", "--out", out, "--quiet")
        assert result.returncode == 0, result.stderr
        (line,) = result.stderr.splitlines()
        assert "/cam/compressed (protobuf), /odom (json)" in line
        assert len(read_messages(out, "/bbox")) == 4


def test_a_bag_without_a_channel_of_ros_2_is_not_called_broken(tmp_path: Path, efftam_here):
    kept = tmp_path / "other.mcap", tmp_path / "one.mcap"
    write_mcap(kept[0], "", [("/cam", "foxglove.CompressedImage", PROTOBUF)], [(1, START_NS, b"\x0a\x01x")])
    ros_1 = [("/image", "sensor_msgs/Image", ("ros1", "ros1msg", b""))]
    write_mcap(kept[1], "ros1", ros_1, ros_images())
    for file, words in zip(
        kept, (("/cam (protobuf)", "no image topic"), ("Profile is not ros2", "rosbags-convert")), strict=True
    ):
        result = efftam_here("replay", file, "--box", "40,30,24,24", "--out", tmp_path / "out")
        assert result.returncode == 2
        for word in words:
            assert word in result.stderr
        assert "broken" not in result.stderr
        assert "recover" not in result.stderr
