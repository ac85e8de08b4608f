"""Bags as recordings: images by their stamps, and the answers that were given to them."""

from __future__ import annotations

import asyncio
import random
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("rosbags", reason="bags need rosbags: pip install efftam_ros[tools]")
sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

import cv2
from bag_helpers import NS, START_NS, STORE, header, image, write_bag
from page_client import page
from runs import number_in, numbered_picture, write_run, write_video

from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box
from efftam_ros.core.types import Motion, Track, TrackState
from efftam_ros.interop.messages import bbox_fields, velocity_fields
from efftam_ros.operator.recorded.run import open_recording

COUNT, PERIOD_NS = 20, NS // 20
PACKAGE = "efftam_ros/msg"


def stamp_of(index: int) -> int:
    return START_NS + index * PERIOD_NS


def jpeg(picture: np.ndarray, stamp_ns: int):
    data = cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, 95])[1].reshape(-1)
    kind = "sensor_msgs/msg/CompressedImage"
    return kind, STORE.types[kind](header=header(stamp_ns), format="jpeg", data=data)


def images(make=image):
    return [
        ("/camera/image_raw", stamp_of(i) + 3_000_000, make(numbered_picture(i), stamp_of(i)))
        for i in range(COUNT)
    ]


def answer(index: int, state: TrackState, box: Box | None, selection: int = 1, late_ns: int = 20_000_000):
    """What the tracker publishes for an image: two messages, ``late_ns`` after its stamp."""
    motion = None if box is None else Motion(stamp_of(index), box, (30.0, 40.0), np.eye(4))
    measured = box is not None and state is TrackState.TRACKING
    track = Track(
        stamp_of(index), state, box=box, measured=measured, presence=0.9, quality=0.8, age_s=0.0,
        motion=motion, image_size=(320, 192),
    )  # fmt: skip
    at = stamp_of(index) + late_ns
    stamped = header(stamp_of(index))
    bbox = STORE.types[f"{PACKAGE}/BoundingBox"](**bbox_fields(track, stamped, selection))
    velocity = STORE.types[f"{PACKAGE}/TargetVelocity"](**velocity_fields(track, stamped, selection))
    return [
        ("/bbox", at, (f"{PACKAGE}/BoundingBox", bbox)),
        ("/velocity", at + 1, (f"{PACKAGE}/TargetVelocity", velocity)),
    ]


def box_at(index: int) -> Box:
    return Box(60.0 + 2 * index, 80.0, 40.0, 30.0)


def answers():
    said = []
    for i in range(2, 15):
        said += answer(i, TrackState.TRACKING, box_at(i))
    for i in range(15, COUNT):
        said += answer(i, TrackState.LOST, None)
    return said


@pytest.fixture(scope="module")
def flight(tmp_path_factory):
    return write_bag(tmp_path_factory.mktemp("bag") / "flight", [*images(), *answers()])


@pytest.mark.parametrize("storage", ["mcap", "sqlite3"])
@pytest.mark.parametrize("make", [image, jpeg], ids=["raw", "jpeg"])
def test_any_order_of_images_is_exact(tmp_path, make, storage):
    recording = open_recording(write_bag(tmp_path / "bag", [*images(make), *answers()], storage))
    assert list(recording.stamps_ns) == [stamp_of(i) for i in range(COUNT)]
    for index in [*range(COUNT), *random.Random(3).choices(range(COUNT), k=10)]:
        assert number_in(recording.picture(index).bgr()) == index


def test_a_run_says_what_the_tracker_said(flight):
    (run,) = open_recording(flight).runs
    assert run.name == "flight"
    assert run.boxes[:2] == [None, None]
    assert run.boxes[10].box == box_at(10)
    assert run.boxes[10].state is TrackState.TRACKING
    assert run.boxes[10].selection == 1
    assert run.motions[10].velocity == (30, 40)
    assert run.boxes[17].state is TrackState.LOST
    assert run.boxes[17].box is None


def test_an_answer_that_was_taken_back_and_one_to_a_newer_selection(tmp_path):
    """Silence takes the last answer back under its own stamp; a late selection answers old images anew."""
    said = answers()
    said += answer(10, TrackState.TRACKING, None, late_ns=700_000_000)
    other = Box(5.0, 6.0, 20.0, 20.0)
    for i in range(4, 9):
        said += answer(i, TrackState.TRACKING, other, selection=2, late_ns=900_000_000)
    (run,) = open_recording(write_bag(tmp_path / "bag", [*images(), *said])).runs
    assert run.boxes[10].box == box_at(10)
    assert [run.boxes[i].box for i in (3, 4, 8, 9)] == [box_at(3), other, other, box_at(9)]


def test_answers_alone_are_shown_on_the_images_that_were_tracked(tmp_path, flight):
    results = write_bag(tmp_path / "after", answers())
    recording = open_recording(flight, results)
    assert [run.name for run in recording.runs] == ["flight", "after"]
    assert open_recording(results, video=flight).runs[0].boxes[5].box == box_at(5)
    with pytest.raises(InputError, match="--video"):
        open_recording(results)


def test_a_bag_is_played_on_the_page(flight, serve):
    async def look() -> None:
        async with page(serve(recording=open_recording(flight)).url) as client:
            timeline = (await client.until(lambda: client.messages("timeline")))[0]
            assert timeline["runs"][0]["states"] == "--" + "2" * 13 + "4" * 5
            await client.send(op="seek", stamp=timeline["stamps"][13])
            frame = (await client.until(lambda: client.frames))[-1]
            picture = cv2.imdecode(np.frombuffer(frame.payload, np.uint8), cv2.IMREAD_COLOR)
            assert number_in(picture) == 13
            (target,) = client.messages("track")[-1]["targets"]
            assert target["box"] == list(box_at(13).xywh())

    asyncio.run(look())


def test_what_is_no_playable_bag_is_named(tmp_path, flight):
    write_video(tmp_path / "v.mp4", 3)
    run = write_run(tmp_path / "run.json", "v.mp4", "222")
    far = [(topic, at, m) for topic, at, m in answers()]
    for _, _, (_, message) in far:
        message.header = header(START_NS + 100 * NS + message.header.stamp.nanosec)
    cases = [
        (write_bag(tmp_path / "unanswered", images()), {}, "efftam replay"),
        (write_bag(tmp_path / "elsewhere", far), {"video": flight}, rf"of {START_NS // NS + 100}\.\d"),
        (
            write_bag(
                tmp_path / "two", [*images(), *answers(), *[("/b" + t, at, m) for t, at, m in answers()]]
            ),
            {},
            "/b/bbox",
        ),
        (flight, {"other": run}, "is a bag"),
        (flight, {"video": tmp_path / "v.mp4"}, "is no bag"),
        (tmp_path / "missing.mcap", {}, "missing.mcap"),
    ]
    for path, given, said in cases:
        with pytest.raises(InputError, match=said):
            open_recording(path, **given)
