"""MCAP files as other recorders write them: JSON and protobuf beside ROS 2, and no word on what is inside."""

from __future__ import annotations

import struct
from pathlib import Path

from bag_helpers import NS, START_NS, STORE, image, read_messages
from tools_helpers import square_picture

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
