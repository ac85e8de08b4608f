"""The peer trackers, on stand-in networks with known answers."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path

import cv2
import numpy as np
import pytest
from test_sequences import write_own
from tools_helpers import assert_refused

from benchmarks.peers import timing
from benchmarks.peers.fear import Fear
from benchmarks.peers.nanotrack import NANOTRACK, NanoTrack
from benchmarks.peers.registry import PEERS, open_peer
from benchmarks.peers.siamese import Distances, Tuning, choose, crop
from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box
from efftam_workshop.eval.sequences import find_sequences

pytest.importorskip("onnx", reason="the stand-ins need onnx: scripts/setup_env --with-tests")
import peer_models as stand_in

GREY = np.full((160, 200, 3), 90, np.uint8)
OUTSIDE = np.array([1, 2, 3], np.uint8)
NO_WINDOW = Tuning(penalty=0.1, window=0.0, rate=0.5)

# Crops


@pytest.mark.parametrize(
    ("left", "top", "inner"),
    [
        pytest.param(-3, -2, (slice(2, 4), slice(3, 4)), id="left and top"),
        pytest.param(7, 5, (slice(0, 1), slice(0, 1)), id="right and bottom"),
        pytest.param(2, -2, (slice(2, 4), slice(0, 4)), id="top"),
        pytest.param(60, 5, (slice(0, 0), slice(0, 0)), id="wholly to the right"),
        pytest.param(-60, -60, (slice(0, 0), slice(0, 0)), id="wholly to the left"),
    ],
)
def test_a_crop_shows_the_given_colour_outside_the_image(left: int, top: int, inner):
    image = np.full((6, 8, 3), 200, np.uint8)
    expected = np.empty((4, 4, 3), np.uint8)
    expected[:] = OUTSIDE
    expected[inner] = 200
    np.testing.assert_array_equal(crop(image, (left, top, 4, 4), OUTSIDE, 4)[0], expected.transpose(2, 0, 1))


# The choice of a cell


def cells(scores: np.ndarray, sizes: dict[tuple[int, int], tuple[float, float]] | None = None) -> Distances:
    """Boxes of 20 x 20 px in every cell, or of the given width and height, centred on their points."""
    width, height = np.full(scores.shape, 20.0), np.full(scores.shape, 20.0)
    for cell, (w, h) in (sizes or {}).items():
        width[cell], height[cell] = w, h
    return Distances(scores, width / 2, height / 2, width / 2, height / 2)


def scores(count: int, known: dict[tuple[int, int], float]) -> np.ndarray:
    values = np.zeros((count, count))
    for cell, value in known.items():
        values[cell] = value
    return values


def test_unequal_distances_move_the_centre_by_half_their_difference():
    one = np.ones((3, 3))
    found = Distances(scores(3, {(1, 1): 1.0}), 4 * one, 14 * one, 16 * one, 6 * one)
    choice = choose(found, 16, (20, 20), NO_WINDOW)
    assert (choice.dx, choice.dy, choice.width, choice.height) == (6, -4, 20, 20)


ANOTHER_SHAPE = 4 * math.sqrt(65 * 35) / 40
"""Change of 20 x 20 to 40 x 10: of the context times of the aspect ratio."""


@pytest.mark.parametrize(
    ("size", "change"), [((40, 40), 2), ((10, 10), 2), ((40, 10), ANOTHER_SHAPE), ((10, 40), ANOTHER_SHAPE)]
)
def test_a_box_of_another_size_or_shape_needs_a_higher_score(size: tuple[float, float], change: float):
    """Penalty k makes 0.8 of 0.9 where exp(-k (change - 1)) is 0.8 / 0.9."""
    k = math.log(0.9 / 0.8) / (change - 1)
    found = cells(scores(5, {(1, 1): 0.9, (3, 3): 0.8}), {(1, 1): size})
    assert choose(found, 16, (20, 20), Tuning(1.001 * k, 0, 0.5)).dx == 16
    assert choose(found, 16, (20, 20), Tuning(0.999 * k, 0, 0.5)).dx == -16


def test_the_window_favours_the_middle():
    """A Hann window of 5 is 0, 0.5, 1, 0.5, 0: at (1, 1) 0.25. With weight w the outer cell wins as long as
    0.9 (1 - w) + 0.25 w > 0.5 (1 - w) + w, so below w = 0.3478."""
    found = cells(scores(5, {(1, 1): 0.9, (2, 2): 0.5}))
    assert choose(found, 16, (20, 20), Tuning(0.1, 0.347, 0.5)).dx == -16
    assert choose(found, 16, (20, 20), Tuning(0.1, 0.349, 0.5)).dx == 0


# The trackers


@pytest.fixture
def opened(tmp_path: Path) -> Callable[..., NanoTrack | Fear]:
    def open_(name: str, cell: tuple[int, int], logit: float, *edges: float) -> NanoTrack | Fear:
        if name == "fear_xs":
            stand_in.write_fear(tmp_path, stand_in.peak(16, cell, logit), stand_in.distances(16, *edges))
        else:
            count = NANOTRACK[name].cells
            classes = stand_in.two_classes(stand_in.peak(count, cell, logit))
            stand_in.write_nanotrack(tmp_path, int(name[-1]), classes, stand_in.distances(count, *edges))
        return open_peer(name, tmp_path, 1)

    return open_


WIDE = 127 / math.sqrt(100 * 60)
"""Template px per image px of a box of 60 x 20 with its context."""
AT_80 = 127 / 80
"""Of a box of 40 x 40, whose context is 80 px."""


def grown(size: float, to: float, share: float) -> float:
    return size + (to - size) * share


V2, V3 = (
    grown(40, 80, math.exp(-penalty) * 0.75 * rate) for penalty, rate in ((0.150, 0.385), (0.138, 0.348))
)
FEAR = grown(20, 40, math.exp(-0.062 * (math.sqrt(3.5 * 2.5) / 2 * 2 - 1)) * 0.8 * 0.765)
LN3, LN4 = math.log(3), math.log(4)
PIXEL = 44 + 7.5
FOLLOWED = {
    # Two cells aside and one up, of 16 px each at the template's scale.
    "a frame": ("nanotrack_v2", (80, 60, 40, 40), (6, 10), LN3, 4 * [20 * AT_80], 1,
                (80 + 32 / AT_80, 60 - 32 / AT_80, 40, 40)),
    "two frames": ("nanotrack_v2", (80, 60, 40, 40), (6, 10), LN3, 4 * [20 * AT_80], 2,
                   (80 + 64 / AT_80, 60 - 64 / AT_80, 40, 40)),
    # Softmax of (0, ln 3) is 0.75; the distances say twice the size.
    "v2 grows": ("nanotrack_v2", (80, 60, 40, 40), (8, 8), LN3, 4 * [40 * AT_80], 1,
                 (100 - V2 / 2, 80 - V2 / 2, V2, V2)),
    "v3 grows": ("nanotrack_v3", (80, 60, 40, 40), (7, 7), LN3, 4 * [40 * AT_80], 1,
                 (100 - V3 / 2, 80 - V3 / 2, V3, V3)),
    "no square": ("nanotrack_v3", (70, 70, 60, 20), (7, 7), 20.0, 2 * [30 * WIDE, 10 * WIDE], 1,
                  (70, 70, 60, 20)),
    # Three cells aside and up or down, and twice the size: it stays on the image.
    "right": ("nanotrack_v3", (80, 60, 40, 40), (4, 10), 20.0, 4 * [63.5], 30, (100, -80, 200, 160)),
    "bottom": ("nanotrack_v3", (80, 60, 40, 40), (10, 4), 20.0, 4 * [63.5], 30, (-100, 80, 200, 160)),
    # Half of the size in each frame.
    "least": ("nanotrack_v3", (90, 70, 8, 8), (7, 7), 20.0, 4 * [0.25 * 127 / 2], 30, (92, 72, 4, 4)),
    # The region of (100, 80, 22, 10) is (56, 60, 110, 50): cell (9, 6) stands at (96, 144) of 256.
    "squeezed": ("fear_xs", (100, 80, 22, 10), (9, 6), LN4, 4 * [25.6], 1, (86.25, 83.125, 22, 10)),
    # The next one is (42, 63, 110, 50), made from the rounded box (86, 83, 22, 10).
    "again": ("fear_xs", (100, 80, 22, 10), (9, 6), LN4, 4 * [25.6], 2, (72.25, 86.125, 22, 10)),
    # Sigmoid of ln 4 is 0.8; twice the width: context sqrt(3.5 x 2.5) after 2, aspect ratio 2.
    "wider": ("fear_xs", (100, 80, 20, 10), (8, 8), LN4, 2 * [51.2, 25.6], 1, (110 - FEAR / 2, 80, FEAR, 10)),
    # Three cells to the right and down in each frame.
    "edge": ("fear_xs", (150, 120, 20, 20), (11, 11), 9.0, 4 * [25.6], 8, (197, 157, 3, 3)),
    # (50, 50, 3, 3) has the region (44, 44, 15, 15); a cell is 15 / 16 px.
    "a pixel": ("fear_xs", (50, 50, 1, 1), (8, 9), 9.0, 4 * [25.6], 1,
                (PIXEL + 15 / 16 - 1.5, PIXEL - 1.5, 3, 3)),
}  # fmt: skip
"""Peer, box (px) at the start, cell of its network's answer, logit, distances, frames, box (px) then."""


@pytest.mark.parametrize("case", FOLLOWED)
def test_a_peer_follows_its_networks_answers_as_its_authors_do(opened, case: str):
    name, start, cell, logit, edges, frames, expected = FOLLOWED[case]
    peer = opened(name, cell, logit, *edges)
    peer.start(GREY, Box(*start))
    for _ in range(frames):
        box = peer.update(GREY)
    assert box.xywh() == pytest.approx(expected, abs=1e-3)


class Recorder:
    """Stands for a network: keeps its inputs and gives the same outputs each time."""

    def __init__(self, *outputs: np.ndarray) -> None:
        self.outputs = list(outputs)
        self.inputs: list[dict[str, np.ndarray]] = []

    def __call__(self, **inputs: np.ndarray) -> list[np.ndarray]:
        self.inputs.append(inputs)
        return self.outputs


def extent(crops: np.ndarray) -> list[int]:
    """First and last column and row of the image in a crop of `COORDINATES`."""
    columns, rows = crops[0, 0], crops[0, 1]
    return [round(float(value)) for value in (columns[0, 0], columns[0, -1], rows[0, 0], rows[-1, 0])]


COORDINATES = np.zeros((200, 250, 3), np.uint8)
COORDINATES[:, :, 0] = np.arange(250)
COORDINATES[:, :, 1] = np.arange(200)[:, None]


def test_nanotracks_crops_are_squares_with_context():
    """The box 40 x 40 around (120, 100): template 80 px, search region 80 x 255 / 127 = 160.63 px."""
    features = np.ones((1, 96, 8, 8), np.float32)
    backbone = Recorder(features)
    classes = stand_in.two_classes(stand_in.peak(15, (7, 7), 9.0))
    head = Recorder(classes, stand_in.distances(15, 32, 32, 32, 32))
    peer = NanoTrack("nanotrack_v3", NANOTRACK["nanotrack_v3"], backbone, head)
    peer.start(COORDINATES, Box(100, 80, 40, 40))
    peer.update(COORDINATES)
    template, search = (call["input"] for call in backbone.inputs)
    assert (template.shape, search.shape) == ((1, 3, 127, 127), (1, 3, 255, 255))
    assert extent(template) == [80, 159, 60, 139]
    assert extent(search) == [40, 200, 20, 180]
    assert head.inputs[0]["input1"] is features


def test_fears_crops_are_the_box_grown_in_rgb():
    features = np.ones((1, 256, 8, 8), np.float32)
    backbone = Recorder(features)
    logits = stand_in.peak(16, (8, 8), 9.0)[None, None]
    track = Recorder(stand_in.distances(16, 25.6, 25.6, 25.6, 25.6), logits)
    peer = Fear("fear_xs", backbone, track)
    peer.start(COORDINATES, Box(100, 80, 20, 10))
    peer.update(COORDINATES)
    template, search = backbone.inputs[0]["image"], track.inputs[0]["image"]
    assert (template.shape, search.shape) == ((1, 3, 128, 128), (1, 3, 256, 256))
    assert extent(template[:, ::-1]) == [96, 123, 78, 91]
    assert extent(search[:, ::-1]) == [60, 159, 60, 109]
    assert track.inputs[0]["template"] is features


def test_a_backbone_that_declares_one_size_is_run_on_two(
    opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    same = 20 * 127 / 80
    edges = stand_in.distances(16, same, same, same, same)
    classes = stand_in.two_classes(stand_in.peak(16, (8, 9), 3.0))
    stand_in.write_nanotrack(tmp_path, 2, classes, edges, side=255)
    peer = open_peer("nanotrack_v2", tmp_path, 1)
    peer.start(GREY, Box(80, 60, 40, 40))
    assert peer.update(GREY).cx == pytest.approx(100 + 16 * 80 / 127, abs=1e-4)
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(InputError, match="pip install onnx"):
        open_peer("nanotrack_v2", tmp_path, 1)


# Files that don't fit


@pytest.mark.parametrize("name", [name for name in PEERS if name not in ("csrt", "kcf", "mosse")])
def test_a_folder_without_the_files_is_refused(tmp_path: Path, name: str):
    with pytest.raises(InputError, match="--peer-models DIR"):
        open_peer(name)
    with pytest.raises(InputError, match="holds") as refusal:
        open_peer(name, tmp_path)
    assert "backbone" in str(refusal.value)
    with pytest.raises(InputError, match="is not a folder"):
        open_peer(name, tmp_path / "missing")


def test_two_files_for_one_are_refused_by_name(opened, tmp_path: Path):
    opened("nanotrack_v3", (7, 7), 1.0, 1.0, 1.0, 1.0, 1.0)
    (tmp_path / "nanotrack_v3_head_old.onnx").touch()
    with pytest.raises(InputError, match=r"2 files .*nanotrack_v3_head.onnx, nanotrack_v3_head_old.onnx"):
        open_peer("nanotrack_v3", tmp_path)


def test_other_tensors_are_refused_with_what_is_and_what_must_be(opened, tmp_path: Path):
    """The head of another version, and the two files under each other's names."""
    opened("nanotrack_v2", (8, 8), 1.0, 1.0, 1.0, 1.0, 1.0)
    opened("nanotrack_v3", (7, 7), 1.0, 1.0, 1.0, 1.0, 1.0)
    backbone, head = tmp_path / "nanotrack_v3_backbone.onnx", tmp_path / "nanotrack_v3_head.onnx"
    kept = head.read_bytes()
    head.write_bytes((tmp_path / "nanotrack_v2_head.onnx").read_bytes())
    with pytest.raises(InputError, match=r"input1 \[1, 48, 8, 8\].*expected float32 input1 \[1, 96, 8, 8\]"):
        open_peer("nanotrack_v3", tmp_path)
    head.write_bytes(backbone.read_bytes())
    backbone.write_bytes(kept)
    with pytest.raises(InputError, match=r"input1 .*expected float32 input \[1, 3, \?, \?\]"):
        open_peer("nanotrack_v3", tmp_path)


def test_files_that_do_not_fit_each_other_are_refused_at_the_start(opened, tmp_path: Path):
    """Features of 9 x 9 instead of 8 x 8, which an open size does not tell in advance."""
    opened("fear_xs", (8, 8), 1.0, 1.0, 1.0, 1.0, 1.0)
    stand_in.write_backbone(tmp_path / "fear_xs_backbone.onnx", ("image", "features"), 256, kernel=32)
    peer = open_peer("fear_xs", tmp_path, 1)
    peer.start(GREY, Box(100, 80, 20, 10))
    with pytest.raises(InputError, match="two files of the same peer"):
        peer.update(GREY)


def test_numbers_that_are_not_finite_are_refused(tmp_path: Path):
    edges = stand_in.distances(16, 1.0, 1.0, math.nan, 1.0)
    stand_in.write_fear(tmp_path, stand_in.peak(16, (8, 8), 1.0), edges)
    peer = open_peer("fear_xs", tmp_path, 1)
    peer.start(GREY, Box(100, 80, 20, 10))
    with pytest.raises(InputError, match=r"fear_xs_track\.onnx: bbox .* not finite"):
        peer.update(GREY)


def test_unknown_peers_get_the_list():
    with pytest.raises(InputError, match=r"'siamese' is not a peer tracker; choose from csrt, .*fear_xs"):
        open_peer("siamese")


def test_the_command_runs_peers_and_refuses_in_one_line(benchmark_here, tmp_path: Path):
    write_own(tmp_path / "one", [f"{i},{40 + i},30,16,16" for i in range(3)], frames=3)
    command = ("peers", "one", "--only-peers", "--threads", "1", "--peers")
    assert_refused(benchmark_here(*command, "fear_xs"), "fear_xs", "--peer-models DIR")
    assert_refused(
        benchmark_here(*command, "nanotrack_v3", "--peer-models", "."), "0 files nanotrack_v3_backbone*"
    )
    (tmp_path / "fear_xs_track.onnx").write_bytes(b"not a network")
    stand_in.write_backbone(tmp_path / "fear_xs_backbone.onnx", ("image", "features"), 256, kernel=16)
    assert_refused(benchmark_here(*command, "fear_xs", "--peer-models", "."), "fear_xs_track.onnx", "fetch")
    same = stand_in.distances(16, 25.6, 25.6, 25.6, 25.6)
    stand_in.write_fear(tmp_path, stand_in.peak(16, (8, 8), 9.0), same)
    result = benchmark_here(*command, "fear_xs", "--peer-models", ".")
    assert (result.returncode, result.stderr) == (0, "")
    assert "fear_xs" in result.stdout
    beside = benchmark_here("peers", "one", "--threads", "1", "--peers", "mosse", "--quiet")
    assert (beside.returncode, beside.stderr) == (0, "")
    means = beside.stdout[beside.stdout.index("mean over 1 sequences") :]
    assert {"default", "mosse"} <= {line.split()[0] for line in means.splitlines() if line}
    assert_refused(benchmark_here("peers", "one"), "--peers csrt")


def test_times_of_ours_and_of_peers_are_taken_side_by_side(benchmark_here, tmp_path: Path, monkeypatch):
    """On each number of cores and size of image, with the target in view and without it."""
    monkeypatch.setattr(timing, "SIZES", ((160, 96), (192, 108)))
    monkeypatch.setattr(timing, "WARM_UP", 3)
    monkeypatch.setattr(timing, "ABSENT", 2)
    stand_in.write_fear(
        tmp_path, stand_in.peak(16, (8, 8), 9.0), stand_in.distances(16, 25.6, 25.6, 25.6, 25.6)
    )
    usable = os.sched_getaffinity(0)
    if len(usable) < 2:
        pytest.skip("needs two processors")
    asked = ("peers", "--time", "--peers", "fear_xs", "--peer-models", ".", "--frames", "2", "--quiet")
    result = benchmark_here(*asked, "--json", "t.json")
    assert (result.returncode, result.stderr) == (0, "")
    assert os.sched_getaffinity(0) == usable
    rows = json.loads((tmp_path / "t.json").read_text())["times"]
    ours, theirs = rows[::2], rows[1::2]
    assert [(one["cores"], tuple(one["image"])) for one in ours] == list(product((1, 2), timing.SIZES))
    assert all("compact_192" in one["name"] for one in ours)
    assert {one["name"] for one in theirs} == {"fear_xs"}
    for phase in timing.PHASES:
        assert all(one[phase]["of_ours"] == 1 for one in ours)
        for one, other in zip(ours, theirs, strict=True):
            assert other[phase]["of_ours"] == pytest.approx(other[phase]["ms"] / one[phase]["ms"])
            assert other[phase]["others"] >= 0
    assert len([line for line in result.stdout.splitlines() if "fear_xs" in line]) == 4
    assert_refused(benchmark_here(*asked, "one"), "--time", "leave out one")
    assert_refused(benchmark_here("peers", "--peers", "csrt"), "FOLDER", "--time")


# OpenCV's trackers


@pytest.mark.skipif(not hasattr(cv2, "legacy"), reason="needs OpenCV's contrib modules")
def test_an_opencv_tracker_follows_the_square(tmp_path: Path):
    folder = write_own(tmp_path / "square", [f"{i},{40 + i},30,16,16" for i in range(8)], frames=8)
    (square,) = find_sequences(folder)
    peer = open_peer("csrt")
    frames = list(square.frames())
    peer.start(frames[0].bgr, Box(*square.boxes[0]))
    for frame in frames[1:]:
        box = peer.update(frame.bgr)
        assert box is not None
        assert box.cx == pytest.approx(48 + frame.index, abs=3)
