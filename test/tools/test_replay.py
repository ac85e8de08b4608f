"""`efftam replay`: bags in, bags out, in both storages, with the network that ships."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import av
import bag_helpers
import cv2
import numpy as np
import pytest
from bag_helpers import (
    START_NS,
    TYPES,
    camera_info,
    compressed,
    header,
    image,
    read_messages,
    read_raw,
    selection,
    stamps,
    write_bag,
)
from rosbags.interfaces import Qos, QosDurability, QosHistory, QosLiveliness, QosReliability, QosTime
from rosbags.typesys import Stores, get_types_from_msg, get_typestore
from support.odd_videos import write
from tools_helpers import assert_refused, square_picture

from efftam_ros.core.types import TrackState
from efftam_ros.images.coded_video import FFMPEG_TYPE, FOXGLOVE_TYPE
from efftam_ros.messages.bags import (
    IMAGE_TYPES,
    choose_topic,
    count_of,
    open_typestore,
    reading,
    writing,
)
from efftam_ros.tools.cli import main

PERIOD_NS = 100_000_000
LATENCY_NS = 7_000_000  # between an image's stamp and its recording


def stamp(i: int) -> int:
    return START_NS + i * PERIOD_NS


def recorded(i: float) -> int:
    """When image i was recorded; between two images for a fraction."""
    return START_NS + round(i * PERIOD_NS) + LATENCY_NS


def pictures(count: int = 8) -> list[np.ndarray]:
    return [square_picture(40 + 3 * i, 30 + 2 * i) for i in range(count)]


def camera(count: int = 8, topic: str = "/image", make=image) -> list:
    return [(topic, recorded(i), make(p, stamp(i))) for i, p in enumerate(pictures(count))]


def box_at(i: int) -> tuple[float, float, float, float]:
    return (40 + 3 * i, 30 + 2 * i, 24, 24)


def states(bag: Path) -> list[TrackState]:
    return [TrackState(m.state) for m in read_messages(bag, "/bbox")]


TIME = QosTime(0, 0)
KIND = (QosHistory.KEEP_LAST, 5, QosReliability.RELIABLE, QosDurability.VOLATILE)
QOS = Qos(*KIND, TIME, TIME, QosLiveliness.AUTOMATIC, TIME, False)


def test_all_channels_of_a_topic_are_read_whatever_qos_the_metadata_name(tmp_path: Path) -> None:
    """As converters and editors of bags leave them."""
    bag = tmp_path / "in"
    with writing(bag, "mcap") as writer:
        made = [
            writer.add_connection(
                "/image", IMAGE_TYPES[0], typestore=bag_helpers.STORE, offered_qos_profiles=qos
            )
            for qos in ([], [QOS])
        ]
        for i, picture in enumerate(pictures(6)):
            raw = bag_helpers.STORE.serialize_cdr(image(picture, stamp(i))[1], IMAGE_TYPES[0])
            writer.write(made[i % 2], recorded(i), raw)
    text = (bag / "metadata.yaml").read_text()
    changed = text.replace("depth: 5", "depth: 7")
    assert changed != text
    (bag / "metadata.yaml").write_text(changed)
    (lone,) = bag.glob("*.mcap")
    with reading(lone) as reader:
        assert count_of(reader, choose_topic(reader, None)) == 6
    for given in (bag, lone):
        out = tmp_path / f"out of {given.name}"
        assert replay(given, "--box", "40,30,24,24", "--out", out) == 0
        assert stamps(read_messages(out, "/bbox")) == [stamp(i) for i in range(6)]


def test_16_bit_images_are_followed_and_a_range_that_hides_the_target_is_told(tmp_path: Path, capsys):
    images = camera(6)
    for i, picture in enumerate(pictures(6)):
        wide = (7500 + cv2.cvtColor(picture, cv2.COLOR_BGR2GRAY) * (600 / 255)).round().astype("<u2")
        fields = {"encoding": "mono16", "step": 320, "data": wide.view(np.uint8).reshape(-1)}
        images[i] = ("/image", recorded(i), image(picture, stamp(i), **fields))
    followed(tmp_path, images)
    assert states(tmp_path / "out")[2:] == 4 * [TrackState.TRACKING]
    assert capsys.readouterr().err == ""
    hidden = ("--box", "40,30,24,24", "--range", "0,65535", "--out", tmp_path / "hidden")
    replay(tmp_path / "in", *hidden)
    assert "grey levels" in capsys.readouterr().err


def test_one_wrong_stamp_in_a_bag_does_not_cost_the_target(tmp_path: Path) -> None:
    images = camera(16)
    images[9] = (*images[9][:2], image(pictures(16)[9], stamp(9) - 300_000_000))
    followed(tmp_path, images)
    answered = stamps(read_messages(tmp_path / "out", "/bbox"))
    assert answered == [stamp(i) for i in range(16) if i != 9]
    assert states(tmp_path / "out")[-6:] == 6 * [TrackState.TRACKING]


def replay(*arguments: object) -> int:
    return main(["replay", *map(str, arguments), "--threads", "1", "--quiet"])


def followed(tmp_path: Path, messages: list) -> None:
    """The square of `pictures` in a bag of these messages, followed into the bag "out"."""
    bag = write_bag(tmp_path / "in", messages)
    assert replay(bag, "--box", "40,30,24,24", "--out", tmp_path / "out") == 0


@pytest.mark.parametrize("storage_in", ["mcap", "sqlite3"])
@pytest.mark.parametrize("storage_out", ["mcap", "sqlite3"])
def test_every_image_gets_its_answers_with_its_own_header(tmp_path: Path, storage_in: str, storage_out: str):
    bag = write_bag(tmp_path / "in", camera(), storage_in)
    out = tmp_path / "out"
    assert replay(bag, "--box", "40,30,24,24", "--out", out, "--storage", storage_out) == 0
    boxes, velocities = read_messages(out, "/bbox"), read_messages(out, "/velocity")
    assert stamps(boxes) == stamps(velocities) == [stamp(i) for i in range(8)]
    assert {m.header.frame_id for m in boxes} == {"camera"}
    assert [r for t, r, _ in read_raw(out) if t == "/bbox"] == [recorded(i) for i in range(8)]
    assert [TrackState(m.state) for m in boxes][-1] is TrackState.TRACKING
    last = boxes[-1]
    assert (last.valid, last.measured, last.image_width, last.image_height) == (True, True, 160, 120)
    x, y, w, h = box_at(7)
    assert (last.x + last.width / 2, last.y + last.height / 2) == pytest.approx((x + w / 2, y + h / 2), abs=8)
    assert velocities[-1].valid
    assert velocities[-1].predicted_stamp == velocities[-1].header.stamp


def test_twice_gives_the_same_bytes(tmp_path: Path):
    bag = write_bag(tmp_path / "in", camera())
    for name, storage in (("a", "mcap"), ("b", "sqlite3")):
        into = ("--out", tmp_path / name, "--storage", storage)
        assert replay(bag, "--box", "40,30,24,24", *into, "--with-masks") == 0
    assert read_raw(tmp_path / "a") == read_raw(tmp_path / "b")
    assert len(read_raw(tmp_path / "a")) == 3 * 8


def test_masks_are_as_large_as_the_image_and_cover_the_target_or_nothing(tmp_path: Path):
    gone = ("/image", recorded(2), image(square_picture(900, 30), stamp(2)))
    bag = write_bag(tmp_path / "in", [*camera(2), gone])
    assert replay(bag, "--point", "52,42", "--out", tmp_path / "out", "--with-masks") == 0
    masks = read_messages(tmp_path / "out", "/mask")
    assert stamps(masks) == [stamp(i) for i in range(3)]
    for mask, is_seen in zip(masks, (True, True, False), strict=True):
        assert (mask.width, mask.height, mask.step, mask.encoding) == (160, 120, 160, "mono8")
        assert set(np.unique(mask.data)) == ({0, 255} if is_seen else {0})
    assert masks[0].data.reshape(120, 160)[42, 52] == 255


@pytest.mark.parametrize(
    ("topic", "info", "width", "has_bearing"),
    [
        ("/image", "/camera_info", 160, True),
        ("/image", "/camera_info", 640, False),
        ("/foo/image_raw", "/foo/camera_info", 160, True),
        ("/foo/image_raw", "/camera_info", 160, False),
        ("/foo/image_raw/compressed", "/foo/camera_info", 160, True),
        ("/foo/image_raw/compressed", "/foo/image_raw/camera_info", 160, False),
    ],
)
def test_the_camera_info_beside_the_images_gives_bearings_and_one_of_another_size_is_told(
    tmp_path: Path, topic, info, width, has_bearing, capsys
):
    make = compressed if topic.endswith("compressed") else image
    infos = [(info, recorded(-0.5), camera_info(width, width * 3 // 4, 200.0))]
    followed(tmp_path, infos + camera(3, topic, make))
    velocities = read_messages(tmp_path / "out", "/velocity")
    assert [m.has_bearing for m in velocities] == 3 * [has_bearing]
    for velocity in velocities if has_bearing else ():
        assert velocity.azimuth == pytest.approx(math.atan((velocity.center_x - 80) / 200))
    assert capsys.readouterr().err.count("camera_info is for 640 x 480 px") == (width == 640)


def test_of_rectified_images_the_projection_matrix_counts(tmp_path: Path):
    kind, info = camera_info(160, 120, 200.0)
    info.p[0] = info.p[5] = 100.0
    bag = write_bag(tmp_path / "in", [("/camera_info", recorded(-0.5), (kind, info)), *camera(1)])
    for words, focal_px in (((), 200), (("--rectified",), 100)):
        out = tmp_path / str(focal_px)
        assert replay(bag, "--box", "40,30,24,24", "--out", out, *words) == 0
        (velocity,) = read_messages(out, "/velocity")
        assert velocity.azimuth == pytest.approx(math.atan((velocity.center_x - 80) / focal_px))


def test_camera_info_that_can_not_be_is_told_once_and_ends_the_bearing_of_the_one_before(
    tmp_path: Path, capsys
):
    """It comes with every image."""
    focal_lengths = (200.0, 0.5, 0.5, 0.5)
    infos = [
        ("/camera_info", recorded(i - 0.5), camera_info(160, 120, f)) for i, f in enumerate(focal_lengths)
    ]
    followed(tmp_path, [*infos, *camera(4)])
    told = [v.has_bearing for v in read_messages(tmp_path / "out", "/velocity")]
    assert told == [True, False, False, False]
    (line,) = capsys.readouterr().err.splitlines()
    assert "focal length 0.5 px" in line


def two_squares(count: int = 8) -> list:
    """The square of `pictures`, and one at rest at 100, 80."""
    both = [np.maximum(picture, square_picture(100, 80)) for picture in pictures(count)]
    return [("/image", recorded(i), image(both[i], stamp(i))) for i in range(count)]


def answers_of(bag: Path) -> dict[int, list]:
    found: dict[int, list] = {}
    for message in read_messages(bag, "/bbox"):
        found.setdefault(message.target_id, []).append(message)
    return found


SECOND = (100, 80, 24, 24)


def drawn(at: float, image: int | None, box: tuple = (), target_id: int = 0, **fields) -> tuple:
    """A selection recorded at ``at`` that was drawn on this image; None: on the newest."""
    what = selection(
        0 if image is None else stamp(image), box or box_at(image), target_id=target_id, **fields
    )
    return "/select", recorded(at), what


def clear(at: float, target_id: int = 255) -> tuple:
    return "/select", recorded(at), selection(0, kind=3, target_id=target_id)


@pytest.mark.parametrize(
    ("selections", "wanted", "said"),
    [
        ([drawn(5.5, 2)], {0: (2, 8)}, "1 applied, 0 refused"),
        ([drawn(3.5, None, box_at(3))], {0: (3, 8)}, ""),  # between two images,
        ([drawn(3, None, box_at(3))], {0: (3, 8)}, ""),  # with an image,
        ([drawn(30, None, box_at(7))], {0: (7, 8)}, ""),  # and after the last one
        ([drawn(0.5, 0), clear(4.5)], {0: (0, 5)}, ""),  # counts from the next image on
        ([drawn(0.5, 0), clear(4)], {0: (0, 5)}, ""),
        ([drawn(6.1, 5), drawn(6.2, 1)], {0: (1, 8)}, "newer selection"),
        # Drawn at 5.5 on image 2, whose answers come before the CLEAR; nor does one of the same time end it.
        ([clear(4.5), drawn(5.5, 2)], {0: (2, 8)}, ""),
        ([clear(5.5), drawn(5.5, 2)], {0: (2, 8)}, ""),
        ([drawn(2.2, 2), drawn(2.3, 2, SECOND, 255)], {0: (2, 8), 1: (2, 8)}, ""),
        ([drawn(0.2, 0), drawn(0.3, 0, SECOND, 5), clear(3.5, 5)], {0: (0, 8), 5: (0, 4)}, ""),
        ([drawn(0.2, 0), drawn(0.3, 0, SECOND, 5), clear(3.5)], {0: (0, 4), 5: (0, 4)}, ""),
        ([drawn(0.2, 0), drawn(4.2, 4, target_id=5)], {0: (0, 8)}, "this object is target 0 already"),
    ],
)
def test_recorded_selections_count_from_the_image_that_was_seen(
    tmp_path: Path, selections, wanted, said, capsys
):
    """``wanted``: by target, the images in which it is followed."""
    bag = write_bag(tmp_path / "in", [*two_squares(), *selections])
    assert replay(bag, "--out", tmp_path / "out") == 0
    found = answers_of(tmp_path / "out")
    assert {s for messages in found.values() for s in stamps(messages)} == {stamp(i) for i in range(8)}
    followed = {one: [m for m in messages if m.state] for one, messages in found.items()}
    assert {one: stamps(messages) for one, messages in followed.items()} == {
        one: [stamp(i) for i in range(*images)] for one, images in wanted.items()
    }
    for messages in followed.values():
        assert messages[0].state == TrackState.ACQUIRING
        assert len(messages) < 4 or messages[-1].state == TrackState.TRACKING
    assert said in "".join(capsys.readouterr())


def test_refused_selections_are_reported_and_counted(tmp_path: Path, capsys):
    selections = (
        *(drawn(-0.5, None, box_at(0)), ("/select", recorded(1.5), selection(12345, box_at(1)))),
        *(drawn(2.5, 2, (900, 900, 20, 20)), drawn(3.5, 3, (10, 10, 0, 20))),
        *(drawn(4.5, 4, (math.nan, 10, 20, 20)), drawn(5.5, 5), drawn(6.5, 6)),
    )
    images = camera()
    images[6] = ("/image", recorded(6), image(pictures()[6], stamp(6), encoding="bgr12"))
    bag = write_bag(tmp_path / "in", [*images, *selections])
    assert replay(bag, "--out", tmp_path / "out") == 0
    captured = capsys.readouterr()
    assert "selections: 1 applied, 6 refused" in captured.out
    assert sum("refused: " in line for line in captured.err.splitlines()) == 6
    assert "the bag has no image to which it applies" in captured.err
    assert "refused: the selected image can't be used: image encoding 'bgr12'" in captured.err


@pytest.mark.parametrize("second", [("--box", "7:100,80,24,24"), ("--point", "7:112,92")])
def test_each_box_or_point_with_an_id_on_the_command_line_is_a_target(tmp_path: Path, second):
    bag, out = write_bag(tmp_path / "in", two_squares()), tmp_path / "out"
    assert replay(bag, "--box", "40,30,24,24", *second, "--with-masks", "--out", out) == 0
    found = answers_of(out)
    assert {one: stamps(messages) for one, messages in found.items()} == {
        0: [stamp(i) for i in range(8)],
        7: [stamp(i) for i in range(8)],
    }
    assert [m.target_id for m in read_messages(out, "/velocity")] == [0, 7] * 8
    assert (found[7][-1].x, found[7][-1].y) == pytest.approx((100, 80), abs=8)
    assert {one: {m.steered for m in messages} for one, messages in found.items()} == {
        0: {True},
        7: {False},
    }
    assert [found[one][0].selection for one in found] == [1, 2]
    assert stamps(read_messages(out, "/mask")) == [stamp(i) for i in range(8)]


def test_selections_are_numbered_and_counted_through_clears_and_new_ones(tmp_path: Path, capsys):
    """Each selection gets the number after the largest there is; a CLEAR after the last image counts."""
    selections = [
        *(drawn(0.2, 0), drawn(1.2, 1, SECOND, 5), drawn(2.2, 2), clear(3.5, 5)),
        *(drawn(5.2, 5, SECOND, 5), clear(7.5)),
    ]
    bag = write_bag(tmp_path / "in", [*two_squares(), *selections])
    assert replay(bag, "--out", tmp_path / "out") == 0
    found = answers_of(tmp_path / "out")
    assert [m.selection for m in found[0]] == [1, 1, 3, 3, 3, 3, 3, 3]
    assert [m.selection for m in found[5]] == [2, 2, 2, 4, 4, 4]
    said = capsys.readouterr().out
    assert "8 images processed" in said
    assert "selections: 6 applied, 0 refused" in said
    states = dict(re.findall(r"([A-Z]+) (\d+)", said))
    assert sum(map(int, states.values())) == len(found[0]) + len(found[5])


def test_unusable_images_are_named_once_for_each_reason_and_the_rest_goes_on(tmp_path: Path, capsys):
    changes = (
        ({}, ""),
        ({"encoding": "bgr12"}, "bgr12"),
        ({"step": 10}, "step is 10"),
        ({"data": np.zeros(100, np.uint8)}, "truncated"),
        ({"width": 0}, "0 x 120"),
        ({"header": header(stamp(0))}, "was already processed"),
        *[({"encoding": "bgr12"}, "")] * 6,
        ({}, ""),
    )
    messages = [
        ("/image", recorded(i), image(picture, stamp(i), **change))
        for i, (picture, (change, _)) in enumerate(zip(pictures(13), changes, strict=True))
    ]
    followed(tmp_path, messages)
    captured = capsys.readouterr()
    *lines, more = captured.err.splitlines()
    for line, word in zip(lines, filter(None, (word for _, word in changes)), strict=True):
        assert "not used" in line
        assert word in line
    assert "6 more images" in more
    assert "bgr12" in more
    assert stamps(read_messages(tmp_path / "out", "/bbox")) == [stamp(0), stamp(12)]
    assert "11 images not used" in captured.out
    assert "selections: 1 applied, 0 refused" in captured.out


def test_a_topic_without_images_is_named(tmp_path: Path, capsys):
    with writing(tmp_path / "in", "mcap") as writer:
        writer.add_connection("/image", IMAGE_TYPES[0], typestore=open_typestore())
    assert replay(tmp_path / "in", "--box", "40,30,24,24", "--out", tmp_path / "out") == 2
    assert "topic /image of" in (told := capsys.readouterr().err)
    assert "holds no images" in told


def test_the_camera_of_several_is_named_but_image_needs_no_name(tmp_path: Path, capsys):
    bag = write_bag(tmp_path / "in", [*camera(3, "/left"), *camera(3, "/right")])
    assert replay(bag, "--box", "40,30,24,24", "--out", tmp_path / "out") == 2
    assert "several image topics" in capsys.readouterr().err
    assert replay(bag, "--topic", "/right", "--box", "40,30,24,24", "--out", tmp_path / "out") == 0
    assert "/cam/bbox" not in {topic for topic, *_ in read_raw(tmp_path / "out")}
    named = tmp_path / "named"
    assert replay(bag, "--topic", "/left", "--box", "40,30,24,24", "--out", named, "--namespace", "cam") == 0
    assert {topic for topic, *_ in read_raw(named)} == {"/cam/bbox", "/cam/velocity"}
    with reading(write_bag(tmp_path / "both", [*camera(1, "/a"), *camera(1)])) as reader:
        assert choose_topic(reader, None).topic == "/image"


def test_the_json_has_the_boxes_of_the_messages_with_one_record_for_each_image(tmp_path: Path):
    images = camera()
    images[3] = ("/image", recorded(3), image(pictures()[3], stamp(3), encoding="bgr12"))
    selections = [drawn(1.2, 1), drawn(4.2, 4, SECOND, 5)]
    for i in (4, 5, 6, 7):
        images[i] = two_squares()[i]
    bag, out, file = write_bag(tmp_path / "in", [*images, *selections]), tmp_path / "out", tmp_path / "t.json"
    assert replay(bag, "--out", out, "--json", file) == 0
    run = json.loads(file.read_text())
    assert (run["video"], run["fps"], run["width"], run["height"]) == ("in", None, 160, 120)
    assert (run["backend"], run["complete"]) == ("onnxruntime-cpu", False)
    assert [frame["index"] for frame in run["frames"]] == [0, 1, 2, 4, 5, 6, 7]
    assert [frame["state"] for frame in run["frames"]][:2] == ["IDLE", "ACQUIRING"]
    written = [
        (int(frame["stamp_ns"]), one["id"], one["state"], one["box"])
        for frame in run["frames"]
        for one in frame["targets"]
    ]
    assert {one for _, one, *_ in written} == {0, 5}
    for message, (ns, target_id, state, box) in zip(read_messages(out, "/bbox"), written, strict=True):
        assert (stamps([message]), message.target_id) == ([ns], target_id)
        assert TrackState(message.state).name == state
        of_message = [message.x, message.y, message.width, message.height]
        assert box == (None if math.isnan(message.x) else pytest.approx(of_message, abs=1e-3))


def test_the_json_alone_needs_no_bag_and_is_complete(tmp_path: Path, capsys):
    bag = write_bag(tmp_path / "in", camera())
    assert replay(bag, "--box", "40,30,24,24", "--json", tmp_path / "t.json") == 0
    capsys.readouterr()
    assert replay(bag, "--box", "40,30,24,24", "--json", "-") == 0
    printed = capsys.readouterr()
    assert "8 images processed" in printed.err
    run, of_file = json.loads(printed.out), json.loads((tmp_path / "t.json").read_text())
    assert (run["frames"], run["complete"]) == (of_file["frames"], True)
    assert run["frames"][-1]["state"] == "TRACKING"
    assert run["frames"][-1]["box"] == pytest.approx(box_at(7), abs=8)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "t.json"]


def test_the_json_of_a_bag_that_breaks_off_has_the_boxes_so_far(tmp_path: Path, capsys):
    with writing(tmp_path / "in", "mcap") as writer:
        topic = writer.add_connection("/image", IMAGE_TYPES[0], typestore=bag_helpers.STORE)
        for i, picture in enumerate(pictures(4)):
            raw = bag_helpers.STORE.serialize_cdr(image(picture, stamp(i))[1], IMAGE_TYPES[0])
            writer.write(topic, recorded(i), raw if i < 3 else bytes(raw)[:20])
    out = ("--out", tmp_path / "out", "--json", tmp_path / "t.json")
    assert replay(tmp_path / "in", "--box", "40,30,24,24", *out) == 2
    assert "record it again" in capsys.readouterr().err
    run = json.loads((tmp_path / "t.json").read_text())
    assert ([frame["index"] for frame in run["frames"]], run["complete"]) == ([0, 1, 2], False)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), ("no output", "--out BAG", "--json FILE")),
        (("--json", "t.json", "--with-masks"), ("--with-masks", "--out BAG")),
        (("--json", "t.json", "--storage", "mcap"), ("--storage", "--out BAG")),
        (("--json", "t.json", "--namespace", "cam"), ("--namespace", "--out BAG")),
        (("--json", "in/t.json"), ("--json in/t.json", "the input")),
        (("--json", "o", "--out", "o"), ("the same as --out o", "another name")),
    ],
)
def test_outputs_that_do_not_fit_together_are_refused(efftam_here, tmp_path: Path, arguments, words):
    write_bag(tmp_path / "in", camera(2))
    assert_refused(efftam_here("replay", "in", "--box", "40,30,24,24", *arguments), *words)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


ZSTD = b"\x28\xb5\x2f\xfd" + bytes(60)
OTHER_KINDS = {
    "a.mcap.zstd": (ZSTD, "run: zstd -d "),
    "a.bag": (b"#ROSBAG V2.0\n" + bytes(60), "run: rosbags-convert --src "),
    "a.mcap.gz": (b"\x1f\x8b\x08" + bytes(60), "run: gunzip "),
}


@pytest.mark.parametrize("command", ["replay", "track"])
@pytest.mark.parametrize("name", OTHER_KINDS)
def test_a_file_of_another_kind_gets_its_command(efftam_here, tmp_path: Path, command: str, name: str):
    content, remedy = OTHER_KINDS[name]
    (tmp_path / name).write_bytes(content)
    out = "out" if command == "replay" else "out.mp4"
    assert_refused(efftam_here(command, name, "--box", "1,1,9,9", "--out", out), f"{remedy}{name}")


@pytest.mark.parametrize("form", ["mp4", "avi", "h264", "mpegts"])
def test_a_video_is_sent_to_track(efftam_here, tmp_path: Path, form: str):
    """By what is in the file: names may be anything."""
    write(tmp_path / "flight.dat", form=form)
    words = "flight.dat is a video, not a bag; to track in it, run: efftam track flight.dat"
    assert_refused(efftam_here("replay", "flight.dat", "--box", "1,1,9,9", "--out", "o"), words)


def test_what_cannot_be_replayed_is_one_line(efftam_here, tmp_path: Path):
    bag = write_bag(tmp_path / "in", [*camera(2), ("/camera_info", recorded(0), camera_info(160, 120, 99.0))])
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "1.JPG").touch()
    (tmp_path / "notes.txt").write_text("flight of Monday\n" * 100)
    box = ("--box", "40,30,24,24")
    for arguments, *words in (
        ((bag, "--topic", "/nope", *box), "the bag has no topic /nope", "/image (sensor_msgs/msg/Image)"),
        ((bag, "--topic", "/camera_info", *box), "does not hold images"),
        ((bag,), "TargetSelection", "--box"),
        (("nope", *box), "nope does not exist"),
        ((tmp_path, *box), "has no metadata.yaml"),
        (("images", *box), "images is a folder of images, not a bag", "run: efftam track images"),
        (("notes.txt", *box), "notes.txt is not a bag; give a folder with metadata.yaml, .mcap or .db3"),
        ((bag, "--box", "900,1,9,9"), "outside the image of 160 x 120"),
    ):
        assert_refused(efftam_here("replay", *arguments, "--out", "o"), *words)
    assert_refused(efftam_here("replay", bag, *box, "--out", bag), "exists already")
    assert not (tmp_path / "o").exists()
    (mcap,) = bag.glob("*.mcap")
    for given in (bag, mcap):
        words = f"{given} is a bag, not a video; to track in it, run: efftam replay {given} --out RESULTS"
        assert_refused(efftam_here("track", given, *box), words)


def test_a_selection_of_another_version_of_the_message_is_refused(tmp_path: Path, monkeypatch, capsys):
    """Its bytes would be read as other fields."""
    text = "std_msgs/Header header\nuint8 kind\nfloat64 x\n"
    store = get_typestore(Stores.ROS2_JAZZY)
    store.register(get_types_from_msg(text, "efftam_ros/msg/TargetSelection"))
    message = store.types["efftam_ros/msg/TargetSelection"](header=header(stamp(0)), kind=0, x=1.0)
    monkeypatch.setattr(bag_helpers, "STORE", store)
    other = ("/select", recorded(0.5), ("efftam_ros/msg/TargetSelection", message))
    bag = write_bag(tmp_path / "in", [*camera(2), other])
    assert replay(bag, "--out", tmp_path / "out") == 2
    (line,) = capsys.readouterr().err.splitlines()
    for part in ("/select", "efftam_ros/msg/TargetSelection", "use the version that recorded it"):
        assert part in line


# --- compressed video, as ffmpeg_image_transport and Foxglove record it; more in images/test_coded_video ---

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
