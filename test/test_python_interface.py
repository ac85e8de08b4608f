"""`import efftam_ros`: what a program of a user's does, on real frames, with the network that ships."""

from __future__ import annotations

import contextlib
import copy
import doctest
import io
import json
import math
import multiprocessing
import os
import pickle
import re
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from itertools import count, islice
from pathlib import Path

import cv2
import numpy as np
import pytest
from free_ports import free_port
from support.streams import sender

import efftam_ros as et
from efftam_ros import api
from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.types import Image
from efftam_ros.images.source import NS
from efftam_ros.runtime.backends import PipelineConfig
from efftam_ros.tools.common.video import VideoWriter
from simulation.null_pipeline import NullPipeline

ROOT = Path(__file__).parent.parent
BOX, SECOND = (40, 30, 24, 24), (110, 80, 24, 24)
FIVE_LINES = (ROOT / "docs" / "api.md").read_text().split("```python\n")[1].split("```")[0]


def picture(number: int) -> np.ndarray:
    """Image ``number``, BGR: a yellow square of 24 px on a dark slope, moved by (3, 2) px per image."""
    image = np.empty((120, 160, 3), np.uint8)
    image[:] = np.linspace(20, 70, 160, dtype=np.uint8)[None, :, None]
    x, y = 40 + 3 * number, 30 + 2 * number
    image[y : y + 24, x : x + 24] = (60, 200, 250)
    return image


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """8 images at 10 fps."""
    path = tmp_path_factory.mktemp("clip") / "clip.mp4"
    with VideoWriter(path, 160, 120, 10.0) as writer:
        for i in range(8):
            writer.write(picture(i), i * NS // 10)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("images")
    for i in range(8):
        cv2.imwrite(str(path / f"{i}.png"), picture(i))
    return path


@pytest.fixture(scope="module")
def shared() -> Iterator[et.Tracker]:
    with et.Tracker(max_targets=3) as tracker:
        yield tracker


@pytest.fixture
def tracker(shared: et.Tracker) -> et.Tracker:
    shared.reset()
    return shared


def follows_the_square(results: list[et.Result]) -> bool:
    """Whether the last box lies on the square of its image."""
    assert results[-1].box is not None
    x, y, w, h = results[-1].box
    last = len(results) - 1
    return abs(x + w / 2 - 52 - 3 * last) < 4 and abs(y + h / 2 - 42 - 2 * last) < 4


def facts(result: et.Result) -> tuple:
    return result.time, result.state, result.box, result.velocity, result.presence


def test_results_equal_those_of_the_command(tracker: et.Tracker, clip: Path, tmp_path: Path):
    box, file = ",".join(map(str, BOX)), tmp_path / "t.json"
    command = [sys.executable, "-m", "efftam_ros", "track", clip, "--box", box, "--json", file, "--quiet"]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    frames = json.loads(file.read_text())["frames"]
    results = list(tracker.track(clip, box=BOX))
    assert [r.time for r in results] == [f["stamp"] for f in frames]
    assert [str(r.state) for r in results] == [f["state"] for f in frames]
    assert [list(r.box) for r in results] == [f["box"] for f in frames]
    assert [list(r.velocity) for r in results] == [f["velocity"] for f in frames]
    assert [(r.measured, r.presence, r.quality, r.reason) for r in results] == [
        (f["measured"], f["presence"], f["iou"], f["reason"]) for f in frames
    ]
    likeness = [f["likeness"] for f in frames]
    assert [None if math.isnan(r.likeness) else r.likeness for r in results] == likeness
    assert likeness[0] is None is not likeness[-1]
    confidence = [f["confidence"] for f in frames]
    assert [None if math.isnan(r.confidence) else r.confidence for r in results] == confidence
    assert confidence[0] is None is not confidence[-1]


def test_a_folder_a_list_and_a_loop_give_the_same(tracker: et.Tracker, folder: Path):
    pictures = [picture(i) for i in range(8)]
    of_folder = [facts(r) for r in tracker.track(folder, box=BOX, fps=10)]
    assert [facts(r) for r in tracker.track(pictures, box=BOX, fps=10)] == of_folder
    timed = ((image, i / 10) for i, image in enumerate(pictures))
    assert [facts(r) for r in tracker.track(timed, box=BOX)] == of_folder
    tracker.reset()
    looped = [tracker.start(pictures[0], BOX, time=0)]
    looped += [tracker.update(image, time=i / 10) for i, image in enumerate(pictures) if i]
    assert [facts(r) for r in looped] == of_folder


def test_the_target_may_be_marked_in_four_ways(tracker: et.Tracker):
    mask = np.zeros((120, 160), bool)
    mask[30:54, 40:64] = True
    for prompt in (
        {"box": np.array(BOX)},
        {"point": (52, 42)},
        {"points": [(46, 40), (58, 48), (34, 24)], "labels": [1, 1, 0]},
        {"mask": mask},
        {"mask": 255 * mask.astype(np.uint8)},
    ):
        assert follows_the_square(list(tracker.track(map(picture, range(4)), **prompt))), prompt


def test_a_camera_gives_its_newest_images_with_the_time_of_their_arrival(tracker: et.Tracker):
    port, before = free_port(), time.time()
    with sender(port):
        results = list(islice(tracker.track(f"udp://127.0.0.1:{port}", box=BOX), 5))
    times = [r.time for r in results]
    assert times == sorted(set(times))
    assert before < times[0] < times[-1] < time.time()
    assert results[0].measured


def test_channels_are_named(tracker: et.Tracker):
    bgr = tracker.start(picture(0), BOX)
    with et.Tracker(channels="rgb") as rgb_tracker:
        rgb = rgb_tracker.start(picture(0)[..., ::-1], BOX)
        assert facts(rgb)[1:] == facts(bgr)[1:]
        assert facts(rgb_tracker.start(picture(0), BOX))[2:] != facts(bgr)[2:]


def test_grey_images_and_images_of_the_core_are_taken(tracker: et.Tracker):
    greys = [cv2.cvtColor(picture(i), cv2.COLOR_BGR2GRAY) for i in range(4)]
    assert follows_the_square(list(tracker.track(greys, box=BOX)))
    images = [Image.from_array(cv2.cvtColor(picture(i), cv2.COLOR_BGR2RGBA), "rgba8") for i in range(4)]
    by_image = [facts(r) for r in tracker.track(images, box=BOX)]
    assert by_image == [facts(r) for r in tracker.track(map(picture, range(4)), box=BOX)]


def test_an_array_may_be_used_again(tracker: et.Tracker):
    expected = [facts(r) for r in tracker.track(map(picture, range(6)), box=BOX)]
    buffer = np.empty((120, 160, 3), np.uint8)

    def images() -> Iterator[np.ndarray]:
        for i in range(6):
            buffer[:] = picture(i)
            yield buffer
            buffer[:] = 0

    assert [facts(r) for r in tracker.track(images(), box=BOX)] == expected
    for given in (buffer, buffer[..., 0].copy(), np.asfortranarray(buffer), buffer[::-1]):
        assert not np.shares_memory(tracker._image(given).rows, given)


def test_a_mask_is_made_when_it_is_read_and_changes_nothing(tracker: et.Tracker):
    expected = [facts(r) for r in tracker.track(map(picture, range(5)), box=BOX)]
    kept, found = [], []
    unread = None
    for i, result in enumerate(tracker.track(map(picture, range(5)), box=BOX)):
        found.append(facts(result))
        if i != 2:
            kept.append((i, result.mask))
        unread = result if i == 2 else unread
    assert found == expected
    for i, mask in kept:
        assert (mask.dtype, mask.shape, set(np.unique(mask))) == (np.uint8, (120, 160), {0, 255})
        square = np.zeros((120, 160), bool)
        square[30 + 2 * i : 54 + 2 * i, 40 + 3 * i : 64 + 3 * i] = True
        assert (square & (mask > 0)).sum() > 0.8 * (square | (mask > 0)).sum()
    with pytest.raises(
        et.InputError,
        match=r"mask of the result of time 0.067 s is no longer kept; read result.mask" " before",
    ):
        assert unread.mask is None
    assert result.mask is kept[-1][1]


def test_a_target_that_disappears_has_no_mask_and_then_no_box(tracker: et.Tracker):
    results = list(tracker.track(map(picture, range(6)), box=BOX, fps=10))
    empty = picture(0)
    empty[30:54, 40:64] = empty[:24, 40:64]
    gone = [tracker.update(empty, time=0.5 + i / 10) for i in range(1, 14)]
    assert results[-1].state is et.State.TRACKING
    assert et.State.COASTING in {r.state for r in gone}
    assert gone[-1].state is et.State.LOST
    assert (gone[-1].box, gone[-1].velocity, gone[-1].mask) == (None, None, None)
    assert gone[-1].reason
    assert gone[-1].age > 1.0


def test_time_is_in_seconds_and_goes_on_by_the_frame_rate(tracker: et.Tracker):
    assert tracker.start(picture(0), BOX).time == 0
    assert tracker.update(picture(1)).time == pytest.approx(1 / 30)
    assert tracker.update(picture(2), time=1.5).time == 1.5
    assert tracker.update(picture(3)).time == pytest.approx(1.5 + 1 / 30)
    with pytest.raises(
        et.InputError, match=r"time is 1.4 s, but the last image has the time 1.53333 s; times must" " grow"
    ):
        tracker.update(picture(4), time=1.4)
    assert tracker.update(picture(4), time=1.6).state is et.State.TRACKING
    assert tracker.start(picture(0), BOX, time=0.5).time == 0.5
    tracker.reset()
    assert tracker.start(picture(0), BOX).time == 0
    with pytest.raises(et.InputError, match=r"time is nan; give seconds as a finite number"):
        tracker.update(picture(1), time=float("nan"))


def test_a_result_reads_well(tracker: et.Tracker):
    result = list(tracker.track(map(picture, range(4)), box=BOX, fps=10))[-1]
    assert re.fullmatch(
        r"Result\(time=0.300 s, TRACKING, box=\((\d+\.\d, ){3}\d+\.\d\), velocity=\(\d+\.\d, \d+\.\d\), "
        r"presence=\d\.\d\d\)",
        repr(result),
    )
    assert (result.box.x, result.box.width, result.velocity.x) == (
        result.box[0],
        result.box[2],
        result.velocity[0],
    )


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> et.Tracker:
    """Its network sees each target where it was drawn."""
    monkeypatch.setattr(api, "open_pipeline", lambda config: NullPipeline(max_targets=config.max_targets))
    return et.Tracker(max_targets=3)


def test_images_without_times_come_at_the_rate_of_the_source_or_else_at_the_trackers(
    quick: et.Tracker, folder: Path
):
    tracker = et.Tracker(fps=20)
    pictures = [picture(i) for i in range(8)]
    for source in (folder, str(folder), pictures, np.stack(pictures)):
        for fps, period_s in ((None, 0.05), (10, 0.1)):
            times = [result.time for result in tracker.track(source, BOX, fps=fps)]
            assert times == pytest.approx([i * period_s for i in range(8)])


def test_every_argument_of_the_tracker_and_every_setting_arrives(monkeypatch: pytest.MonkeyPatch):
    given: list[object] = []
    monkeypatch.setattr(api, "open_pipeline", given.append)
    monkeypatch.setattr(api, "open_targets", lambda _, config: given.append(config))
    et.Tracker("tensorrt", "/a", "fp16", "samurai", 2, max_targets=3, view="full", lost_after=2.0)
    assert given == [
        PipelineConfig("/a", "tensorrt", "fp16", max_targets=3, threads=2),
        TrackerConfig(policy="samurai", view="full", lost_after=2.0),
    ]


def refused(call: Callable, *arguments: object, **named: object) -> None:
    with pytest.raises(et.InputError):
        call(*arguments, **named)


@pytest.mark.parametrize(
    ("act", "ends_loop", "ends_mask"),
    [
        (lambda tracker: tracker.start(picture(0), BOX), True, True),
        (lambda tracker: tracker.track([picture(0)], box=BOX), True, True),
        (lambda tracker: tracker.reset(), True, True),
        (lambda tracker: tracker.close(), True, True),
        (lambda tracker: tracker.update(picture(0)), False, True),
        (lambda tracker: tracker.add(picture(0), SECOND), False, True),
        (lambda tracker: tracker.steer(0), False, False),
        (lambda tracker: refused(tracker.start, picture(0), (500, 0, 24, 24)), False, False),
        (lambda tracker: refused(tracker.add, picture(0), BOX), False, True),  # once the network saw it
        (lambda tracker: refused(tracker.update, picture(0), time=0.0), False, False),
    ],
    ids=["start", "track", "reset", "close", "update", "add", "steer", "no start", "no add", "no update"],
)
def test_a_loop_and_a_mask_are_of_the_target_that_they_were_begun_with(
    quick: et.Tracker, act: Callable, ends_loop: bool, ends_mask: bool
):
    loop = quick.track(map(picture, count()), box=BOX)
    result = next(loop)
    act(quick)
    if ends_mask:
        with pytest.raises(et.InputError, match=r"mask of the result of time 0.000 s is no longer kept"):
            assert result.mask is None
    else:
        assert result.mask is not None
    if ends_loop:
        with pytest.raises(et.InputError, match="closed or another target was selected"):
            next(loop)
    else:
        assert next(loop).measured


def test_a_tracker_that_was_left_is_closed_and_refused(quick: et.Tracker, monkeypatch: pytest.MonkeyPatch):
    freed: list[NullPipeline] = []
    monkeypatch.setattr(NullPipeline, "close", lambda pipeline: freed.append(pipeline))
    with quick:
        pass
    assert len(freed) == 1
    for call in (
        lambda: quick.start(picture(0), BOX),
        lambda: quick.update(picture(0)),
        lambda: quick.add(picture(0), BOX),
        lambda: quick.remove(0),
        lambda: quick.track("x", box=BOX),
        quick.reset,
    ):
        with pytest.raises(et.InputError, match="the tracker is closed; make a new one"):
            call()


MASK = np.ones((120, 160), bool)
WRONG_TARGETS = [
    ({}, "no target is given; give one of box=(x, y, width, height), point, points and mask"),
    ({"box": BOX, "point": (50, 40)}, "box and point are given; give one of"),
    ({"box": (40, 30, 24)}, "box is (40, 30, 24); give (x, y, width, height), 4 finite numbers in px"),
    ({"box": "40,30,24,24"}, "box is '40,30,24,24'; give (x, y, width, height)"),
    (
        {"box": (100, 60, 130, 100)},
        "box x=100 y=60 width=130 height=100 leaves the image of 160 x 120 px; if these are edges x0, y0, x1,"
        " y1, give x, y, width, height: 100, 60, 30, 40",
    ),
    ({"point": (50, 40, 1)}, "point is (50, 40, 1); give (x, y), 2 finite numbers in px"),
    ({"points": [(50, 40), 7]}, "point 1 is 7; give (x, y), 2 finite numbers in px"),
    ({"points": []}, "give a box"),
    ({"box": BOX, "labels": [1]}, "labels are given without points"),
    ({"mask": MASK.T}, "mask is 120 x 160 px, the image 160 x 120 px"),
    ({"mask": MASK.astype(float)}, "mask is float64; give bool or uint8"),
]


@pytest.mark.parametrize(("prompt", "line"), WRONG_TARGETS)
def test_a_wrong_target_is_one_line_and_leaves_the_one_before(tracker: et.Tracker, prompt: dict, line: str):
    tracker.start(picture(0), BOX)
    for call in (tracker.start, lambda image, **p: tracker.track([image], **p)):
        with pytest.raises(et.InputError, match=re.escape(line)) as refusal:
            call(picture(0), **prompt)
        assert "\n" not in str(refusal.value)
    assert tracker.update(picture(1)).measured


WRONG_IMAGES = [
    (picture(0) / 255, "image is float64 (120, 160, 3); give uint8, 0 to 255: (255 * image).astype"),
    (
        picture(0).astype(np.uint16) * 16,
        "image is uint16 (120, 160, 3); give uint8, 0 to 255: (image * (255 / image.max())).astype",
    ),
    (
        picture(0).transpose(2, 0, 1),
        "(3, 120, 160); give [H, W, 3], or [H, W] if grey (channels are last: image.transpose(1, 2, 0))",
    ),
    (np.zeros((4, 4, 4), np.uint8), "image has the shape (4, 4, 4); give [H, W, 3]"),
    (None, "image is a NoneType; OpenCV returns None for what it can't read: check the path or the camera"),
    ("a.png", "image is 'a.png'; convert it to a numpy array"),
    (Image.from_array(picture(0), "none"), "none"),
]


@pytest.mark.parametrize(("image", "line"), WRONG_IMAGES)
def test_a_wrong_image_is_one_line_and_leaves_the_target(tracker: et.Tracker, image: object, line: str):
    tracker.start(picture(0), BOX)
    for call in (tracker.update, lambda i: tracker.start(i, BOX), lambda i: tracker.track([i], box=BOX)):
        with pytest.raises(et.InputError, match=re.escape(line)):
            call(image)
    assert tracker.update(picture(1)).measured


def test_a_rate_that_is_given_replaces_the_times_of_a_video(tracker: et.Tracker, clip: Path):
    """A phone's slow motion says 30 images per second of the 240 that were taken."""
    times = [result.time for result in tracker.track(clip, box=BOX, fps=240)]
    assert times == pytest.approx([i / 240 for i in range(len(times))], abs=1e-8)


def test_a_result_goes_to_another_process_with_its_mask(tracker: et.Tracker):
    results = tracker.track(map(picture, range(4)), box=BOX)
    first, queue = next(results), multiprocessing.get_context("spawn").Queue()
    copies = [pickle.loads(pickle.dumps(first)), copy.deepcopy(first), copy.copy(first)]
    queue.put(first)
    copies.append(queue.get(timeout=60))
    for one in copies:
        assert facts(one) == facts(first)
        assert np.array_equal(one.mask, first.mask)
    second = next(results)
    third = next(results)
    for late in (pickle.loads(pickle.dumps(second)), copy.deepcopy(second)):
        assert facts(late) == facts(second)
        with pytest.raises(et.InputError, match=r"read result\.mask before"):
            assert late.mask is None
    with_mask = third.mask
    next(results)
    assert np.array_equal(pickle.loads(pickle.dumps(third)).mask, with_mask)
    for result in (first, third):
        queue.put(result)
    assert [queue.get(timeout=60).time for _ in range(2)] == [first.time, third.time]


def test_a_wrong_source_is_one_line(tracker: et.Tracker, clip: Path, tmp_path: Path):
    (tmp_path / "text.mp4").write_text("no video")
    (tmp_path / "empty").mkdir()
    item = (picture(0), 0.0, "x")
    for source, fps, line in (
        (tmp_path / "none.mp4", None, "does not exist; give a video file or a folder of images"),
        (tmp_path / "text.mp4", None, "is not a readable video"),
        (tmp_path / "empty", None, "holds no images (jpg, "),
        (3.5, None, "source is a float; give a video file, a folder of images, a camera or an iterable"),
        (picture(0), None, "source is an array (120, 160, 3); give"),
        ([], None, "the source (a list) holds no image"),
        ([item], None, "item 0 of the source is a tuple of 3 items; give an image or (image, time in s)"),
        ([picture(0)], 0, "fps is 0; give images per second"),
        (0, 30, "camera 0 is live: its images have their own times; leave out the frame rate"),
        (97, None, "camera 97 can't be opened: "),
        (Path("/dev/video97"), None, "camera /dev/video97 can't be opened: "),
        ("rtsp://127.0.0.1:9/stream1", None, "camera rtsp://127.0.0.1:9/stream1 can't be opened: "),
    ):
        with pytest.raises(et.InputError, match=re.escape(line)):
            tracker.track(source, box=BOX, fps=fps)
    with pytest.raises(et.InputError, match=r"time is 0.5 s, but the last image has the time 0.5 s"):
        list(tracker.track([(picture(0), 0.5), (picture(1), 0.5)], box=BOX))


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ({"channels": "RBG"}, "channels is 'RBG'; choose one of bgr, rgb"),
        ({"fps": 0}, "fps is 0; give images per second"),
        ({"backend": "tpu"}, "'tpu' is not known; choose one of onnxruntime-cpu"),
        ({"lost": 2}, "setting 'lost' is not known; choose among view, window_factor, lost_after"),
        ({"bundle": "/nowhere"}, "/nowhere"),
    ],
)
def test_a_wrong_argument_of_the_tracker_is_one_line(arguments: dict, line: str):
    with pytest.raises(et.InputError, match=re.escape(line)) as refusal:
        et.Tracker(**arguments)
    assert "\n" not in str(refusal.value)


def test_importing_the_package_loads_nothing_heavy():
    heavy = ("numpy", "cv2", "onnxruntime", "av", "efftam_ros.api", "efftam_ros.core")
    code = f"""
import sys, efftam_ros as et
assert not [m for m in {heavy} if m in sys.modules]
assert {{"Tracker", "Result", "State", "InputError", "BackendError", "__version__"}} <= set(dir(et))
assert not hasattr(et, "tracker") and not [m for m in {heavy} if m in sys.modules]
assert et.Tracker.__module__ == "efftam_ros.api" and "onnxruntime" not in sys.modules
from efftam_ros import *
assert issubclass(InputError, ValueError)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def flight(folder: Path) -> None:
    """The clip of docs/api.md: 10 images at 10 fps, a target of 60 x 40 px from (600, 340) on."""
    with VideoWriter(folder / "flight.mp4", 1280, 720, 10.0) as writer:
        for i in range(10):
            image = np.empty((720, 1280, 3), np.uint8)
            image[:] = np.linspace(20, 90, 1280, dtype=np.uint8)[None, :, None]
            image[340 + 3 * i : 380 + 3 * i, 600 + 6 * i : 660 + 6 * i] = (60, 200, 250)
            writer.write(image, i * NS // 10)


def test_the_examples_of_the_documentation_run_and_print_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    flight(tmp_path)
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(
        r"```python\n(.*?)```\n\n```text\n(.*?)```", (ROOT / "docs" / "api.md").read_text(), re.S
    )
    assert len(blocks) == 2
    names: dict[str, object] = {}
    for code, shown in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, names)
        got = re.sub(r"-?\d+\.\d+", "N", printed.getvalue())
        expected = re.sub(r"-?\d+\.\d+", "N", shown)
        assert doctest.OutputChecker().check_output(expected, got, doctest.ELLIPSIS), printed.getvalue()
        for line in (0, -1):  # by other processors' arithmetic a little different
            numbers, wanted = (
                [float(number) for number in re.findall(r"-?\d+\.\d+", text.splitlines()[line])]
                for text in (printed.getvalue(), shown)
            )
            assert numbers[:1] == wanted[:1]  # the time
            assert numbers == pytest.approx(wanted, abs=2.0)


def test_a_wheel_tracks_a_video_by_five_lines(tmp_path: Path):
    source = tmp_path / "source"  # as building leaves files there
    for folder in ("efftam_ros", "efftam_workshop", "msg"):
        shutil.copytree(ROOT / folder, source / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("setup.py", "pyproject.toml", "package.xml", "LICENSE"):
        shutil.copy(ROOT / file, source)
    built = [sys.executable, "setup.py", "-q", "bdist_wheel", "-d", str(tmp_path / "wheels")]
    subprocess.run(built, cwd=source, check=True, capture_output=True)
    (wheel,) = (tmp_path / "wheels").glob("efftam_ros-*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    assert (tmp_path / "site" / "efftam_ros" / "py.typed").is_file()
    flight(tmp_path)
    assert len(FIVE_LINES.strip().splitlines()) == 5
    # Its command for evaluation is there, and names the extra where what it needs is not.
    evaluation = "import sys; sys.modules['tqdm'] = None; from efftam_ros.tools.cli import main\n"
    evaluation += "sys.exit(main(['eval', '.']))"
    done = subprocess.run(
        [sys.executable, "-c", f"{FIVE_LINES}print(et.__file__)\n{evaluation}"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site")},
        capture_output=True,
        text=True,
        check=False,
    )
    *lines, file = done.stdout.splitlines()
    assert (len(lines), done.returncode) == (10, 2), done.stderr
    assert file == str(tmp_path / "site" / "efftam_ros" / "__init__.py")
    (line,) = done.stderr.splitlines()
    assert "this command needs tqdm" in line
    assert "pip install '.[workshop]'" in line


# ---- several targets ---------------------------------------------------------------------------------------


def two_squares(index: int) -> np.ndarray:
    """The second one is at rest."""
    image = picture(index)
    image[80:104, 110:134] = (60, 200, 250)
    return image


def test_several_targets_have_a_result_each_with_its_mask(tracker: et.Tracker):
    tracker.start(two_squares(0), BOX, time=0.0)
    added = tracker.add(two_squares(0), SECOND)
    assert (added.time, added.target_id, tracker.ids) == (0.0, 1, [0, 1])
    for index in (1, 2):
        results = tracker.update_all(two_squares(index))
    assert [result.target_id for result in results] == [0, 1]
    for result, near in zip(results, ((46, 34), (110, 80)), strict=True):
        assert result.box[:2] == pytest.approx(near, abs=8)
        ys, xs = np.nonzero(result.mask)
        assert (xs.min(), ys.min()) == (pytest.approx(near[0], abs=8), pytest.approx(near[1], abs=8))


def test_the_steered_target_is_the_one_that_update_and_state_tell_of(tracker: et.Tracker):
    tracker.start(two_squares(0), BOX, time=0.0)
    tracker.add(two_squares(0), SECOND, target_id=7)
    assert tracker.update(two_squares(1)).target_id == 0
    tracker.steer(7)
    assert tracker.update(two_squares(2)).target_id == 7
    states = {result.target_id: result.state for result in tracker.update_all(picture(3))}  # 7 is gone
    assert list(states) == [0, 7]
    assert states[0] is not states[7]
    for target_id in (0, 7):
        tracker.steer(target_id)
        assert tracker.state is states[target_id]
    tracker.remove(0)
    assert (tracker.ids, tracker.update(two_squares(4)).target_id) == ([7], 7)


@pytest.mark.parametrize(("removed", "box"), [(None, SECOND), (0, BOX)])
def test_a_start_replaces_all_targets_also_after_the_steered_one_was_removed(
    tracker: et.Tracker, removed: int | None, box: tuple
):
    tracker.start(two_squares(0), BOX, time=0.0)
    tracker.add(two_squares(0), SECOND)
    tracker.add(two_squares(0), (10, 80, 24, 24))
    if removed is not None:
        tracker.remove(removed)
    tracker.start(two_squares(0), box, time=0.0)
    assert len(tracker.ids) == 1
    assert tracker.update(two_squares(1)).box[:2] == pytest.approx(box[:2], abs=8)


def test_a_target_is_added_on_the_last_image_or_a_later_one(quick: et.Tracker):
    """On an earlier one the time of all others would go back."""
    quick.start(picture(0), box=(20, 20, 30, 20), time=1.0)
    quick.update(picture(1), time=1.5)
    with pytest.raises(et.InputError, match=r"time is 1\.2 s, but the last image has the time 1\.5 s"):
        quick.add(picture(0), box=(90, 70, 20, 20), time=1.2)
    assert quick.ids == [0]
    quick.add(picture(1), box=(90, 70, 20, 20), time=1.5)
    assert all(result.state is not et.State.LOST for result in quick.update_all(picture(2), time=1.6))


def test_what_can_t_be_followed_added_or_removed_is_refused_with_the_ids(quick: et.Tracker):
    with pytest.raises(et.InputError, match=r"no target yet; select one with start\(image, box="):
        quick.update(picture(0))
    assert quick.state is et.State.IDLE
    quick.start(picture(0), BOX, time=0.0)
    quick.add(picture(0), SECOND)
    with pytest.raises(et.InputError, match="target 1 already"):
        quick.add(picture(0), SECOND)
    with pytest.raises(et.InputError, match=r"no target 5; present targets: 0, 1"):
        quick.remove(5)
    assert quick.ids == [0, 1]
    with pytest.raises(et.InputError, match=r"max_targets is 9; it must lie in \[1, 8\]"):
        et.Tracker(max_targets=9)
    single = et.Tracker()
    single.start(picture(0), BOX)
    with pytest.raises(et.InputError, match=r"max_targets is 1, .*et\.Tracker\(max_targets=2\)"):
        single.add(picture(0), SECOND)
    assert single.add(picture(0), SECOND, target_id=0).box == SECOND


def test_a_tracker_that_is_left_at_the_interpreters_end_says_nothing(tmp_path: Path):
    code = (
        "import numpy, efftam_ros as et\n"
        "t = et.Tracker()\n"
        "image = numpy.random.default_rng(0).integers(0, 255, (120, 160, 3), numpy.uint8)\n"
        "r = t.start(image, box=(40, 30, 24, 24))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_what_is_noticed_in_a_source_is_a_warning_and_the_track_can_be_chosen(tmp_path: Path):
    import av

    with av.open(str(tmp_path / "two.mkv"), "w") as out:
        for width in (320, 160):
            stream = out.add_stream("libx264", rate=10)
            stream.width, stream.height, stream.pix_fmt = width, 120, "yuv420p"
        for stream in out.streams:
            frame = av.VideoFrame.from_ndarray(np.full((120, stream.width, 3), 90, np.uint8), "bgr24")
            out.mux([*stream.encode(frame), *stream.encode(None)])
    with et.Tracker() as tracker:
        with pytest.warns(UserWarning, match=r"two\.mkv: holds several video tracks"):
            tracker.track(tmp_path / "two.mkv", (40, 30, 24, 24))
        with pytest.raises(et.InputError, match="outside the image of 160 x 120"):
            tracker.track(tmp_path / "two.mkv", (200, 30, 24, 24), video_track=1)
