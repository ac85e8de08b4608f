"""Runs on disk: any picture by its number, and what the JSON says of it."""

from __future__ import annotations

import asyncio
import json
import math
import random
from types import SimpleNamespace

import cv2
import pytest
from runs import FPS, number_in, numbered_picture, write_run, write_video

from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box
from efftam_ros.core.types import Track, TrackState
from efftam_ros.interop.messages import bbox_fields
from efftam_ros.operator.recorded.messages import box_report
from efftam_ros.operator.recorded.pictures import open_pictures
from efftam_ros.operator.recorded.playback import Playback
from efftam_ros.operator.recorded.run import open_recording
from efftam_ros.operator.settings import Settings

pytest.importorskip("av", reason="videos need av: pip install efftam_ros[tools]")
COUNT = 100


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    write_video(folder / "flight.mp4", COUNT)
    write_run(folder / "track.json", "flight.mp4", "1" * 5 + "2" * 45 + "3" * 20 + "4" * 30)
    return folder


@pytest.mark.parametrize("seed", range(3))
def test_any_order_of_pictures_is_exact(folder, seed):
    pictures = open_pictures(folder / "flight.mp4")
    assert len(pictures.stamps_ns) == COUNT
    orders = [range(COUNT), range(COUNT - 1, -1, -1), random.Random(seed).choices(range(COUNT), k=60)]
    for index in orders[seed]:
        assert number_in(pictures.bgr(index)) == index


def test_stamps_are_the_video_s(folder):
    stamps = open_pictures(folder / "flight.mp4").stamps_ns
    assert list(stamps) == [i * 1_000_000_000 // FPS for i in range(COUNT)]


def test_a_folder_of_images_counts_in_natural_order(tmp_path):
    for index in range(12):
        cv2.imwrite(str(tmp_path / f"img{index}.png"), numbered_picture(index))
    pictures = open_pictures(tmp_path, 10)
    assert [number_in(pictures.bgr(i)) for i in range(12)] == list(range(12))
    assert pictures.stamps_ns[3] == 300_000_000


def test_a_run_says_what_the_json_says(folder):
    recording = open_recording(folder)
    (run,) = recording.runs
    assert run.name == "track"
    assert run.boxes[10].box == Box(80, 80, 40, 30)
    assert run.boxes[10].state is TrackState.TRACKING
    assert run.motions[10].velocity == (50, 0)
    assert run.boxes[99].box is None
    assert run.boxes[59].age_s == pytest.approx(10 / FPS)
    assert run.boxes[10].image_size == (320, 192)


def test_pictures_before_the_selection_have_no_track(folder, tmp_path):
    write_run(tmp_path / "late.json", str(folder / "flight.mp4"), "2" * 10, start=40)
    (run,) = open_recording(tmp_path / "late.json").runs
    assert [i for i, box in enumerate(run.boxes) if box is not None] == list(range(40, 50))


def test_two_runs_are_told_apart_by_what_differs(folder, tmp_path):
    other = tmp_path / "after"
    other.mkdir()
    write_run(other / "track.json", str(folder / "flight.mp4"), "2" * COUNT)
    assert [run.name for run in open_recording(folder, other).runs] == [folder.name, "after"]


def test_exact_stamps_are_preferred_to_float_seconds(folder, tmp_path):
    path = write_run(tmp_path / "run.json", str(folder / "flight.mp4"), "2")
    data = json.loads(path.read_text())
    data["frames"][0].update(stamp=1795298319.5171087, stamp_ns="1795298319517108788")
    path.write_text(json.dumps(data))
    assert open_recording(path).runs[0].boxes[0].stamp_ns == 1795298319517108788


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("missing.json", None, "missing.json"),
        ("broken.json", "{", "not JSON"),
        ("other.json", "{}", "no run"),
        ("novideo.json", '{"video": "gone.mp4", "frames": []}', "gone.mp4"),
        ("frame.json", '{"video": "flight.mp4", "frames": [{"index": 1}]}', "stamp"),
        ("state.json", '{"video": "flight.mp4", "frames": [{"index":0,"stamp":0,"box":null,"measured":false,'
         '"state":"FLYING","presence":0,"iou":0,"velocity":null}]}', "FLYING"),
        ("long.json", '{"video": "flight.mp4", "frames": [{"index":500,"stamp":0,"box":null,"measured":false,'
         '"state":"LOST","presence":0,"iou":0,"velocity":null}]}', "500"),
    ],
)  # fmt: skip
def test_what_is_no_run_is_named(folder, name, text, said):
    if text is not None:
        (folder / name).write_text(text)
    try:
        with pytest.raises(InputError, match=said):
            open_recording(folder / name)
    finally:
        (folder / name).unlink(missing_ok=True)


def test_a_video_that_was_cut_off_is_named(folder, tmp_path):
    data = (folder / "flight.mp4").read_bytes()
    (tmp_path / "cut.mp4").write_bytes(data[: len(data) // 2])
    with pytest.raises(InputError, match=r"cut\.mp4"):
        open_pictures(tmp_path / "cut.mp4").bgr(COUNT - 1)


def test_runs_of_two_videos_are_not_compared(folder, tmp_path):
    write_video(tmp_path / "other.mp4", 3)
    write_run(tmp_path / "run.json", "other.mp4", "222")
    with pytest.raises(InputError, match="one video"):
        open_recording(folder, tmp_path / "run.json")


@pytest.mark.parametrize("unknown", [(), ("y",), ("x", "y", "width", "height")])
def test_a_box_of_a_message_is_known_as_a_whole_or_not_at_all(unknown):
    header = SimpleNamespace(stamp=SimpleNamespace(sec=1, nanosec=0))
    track = Track(10**9, TrackState.TRACKING, Box(1, 2, 30, 40), True, 0.9, 0.8, image_size=(640, 360))
    fields = bbox_fields(track, header) | dict.fromkeys(unknown, math.nan)
    assert box_report(SimpleNamespace(**fields)).box == (None if unknown else Box(1, 2, 30, 40))


def test_who_left_is_shown_nothing_more(folder):
    """A page that asked while its link was full, and closed: the last acknowledgement may still come."""
    credit = SimpleNamespace(is_ready=False, acknowledged=lambda seq, now_s: None)
    shown = []
    viewer = SimpleNamespace(credit=credit, shown_seq=0, track=shown.append, show=shown.append)

    class Page:
        """Hashable, unlike a SimpleNamespace."""

        def __getattr__(self, name):
            return getattr(viewer, name)

    async def leave() -> None:
        playback, leaving = Playback(open_recording(folder), Settings()), Page()
        playback.seek(leaving, 0)
        playback.left(leaving)
        credit.is_ready = True
        playback.acknowledged(leaving, 1)
        assert len(asyncio.all_tasks()) == 1
        playback.close()

    asyncio.run(leave())
    assert shown == []
