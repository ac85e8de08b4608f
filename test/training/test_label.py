"""Labelling of footage: from videos made here, with networks that know the answer."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray
from training_helpers import commit_all

from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box
from efftam_ros.tools.common.video import NS, VideoWriter
from training.__main__ import main
from training.label import Tools, label, open_tasks
from training.labelling.archive import DONE, pack, restore
from training.labelling.clips import read_masks
from training.labelling.proposals import MOTION, bounds
from training.labelling.reserved import reserved_name
from training.labelling.segmenter import Frame, Outline
from training.labelling.sources import Video, read_videos
from training.material import FOOTAGE_WIDTH, load_material, pack_material

WIDE, HIGH, SIDE, FRAMES = 640, 360, 60, 110
COMMIT = "a" * 40
RESERVED_PATHS = [
    "data/LaSOT/bear-2.mp4",
    "demo/got10k_val_1.mp4",
    "UAVTrack_112/bike.mp4",
    "VisDrone2019-SOT/uav1.mp4",
    "anti-uav/ir.mp4",
    "vot2018_lt.mp4",
    "DAVIS/cows.mp4",
    "SeaDronesSee/7.mp4",
    "videos/vtest.avi",
    "TownCentreXVID.mp4",
    "Drone-detection-dataset/V_DRONE_001.mp4",
]


def corner(index: int) -> tuple[int, int]:
    """Where the square is in frame ``index``: x, y in px."""
    return 40 + 4 * index, 100 + index


def picture(index: int) -> Frame:
    """A red, checked square that moves over a grey ground with structure."""
    ground = np.random.default_rng(1).integers(90, 130, (HIGH // 8, WIDE // 8)).astype(np.uint8)
    frame = cv2.cvtColor(cv2.resize(ground, (WIDE, HIGH)), cv2.COLOR_GRAY2BGR)
    x, y = corner(index)
    rows, columns = np.mgrid[:SIDE, :SIDE] // 10
    frame[y : y + SIDE, x : x + SIDE] = (20, 20, 230)
    frame[y : y + SIDE, x : x + SIDE][(rows + columns) % 2 == 0] = (20, 20, 90)
    return np.asarray(frame, np.uint8)


def write_video(path: Path, count: int = FRAMES, fps: int = 15) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with VideoWriter(path, WIDE, HIGH, fps, crf=14) as writer:
        for index in range(count):
            writer.write(picture(index), index * NS // fps)
    return path


def square(frame: Frame) -> NDArray[np.bool_]:
    """The square's pixels, seen by their colour."""
    return np.asarray(frame[..., 2].astype(int) > frame[..., 1].astype(int) + 35)


class Eye:
    """A segmenter that outlines what is red, and counts its calls."""

    def __init__(self, quality: float = 0.95) -> None:
        self.quality, self.asked = quality, 0

    def outline(self, items: Sequence[tuple[Frame, Box]]) -> list[Outline]:
        self.asked += len(items)
        return [Outline(square(frame), self.quality) for frame, _ in items]

    def click(
        self, frame: Frame, points: Sequence[tuple[float, float]], wanted: Callable[[Outline], bool]
    ) -> list[tuple[int, Outline]]:
        outline = Outline(square(frame), self.quality)
        on = [i for i, (x, y) in enumerate(points) if outline.mask[int(y), int(x)]]
        return [(on[0], outline)] if on and wanted(outline) else []


class Hand:
    """A tracker that follows what is red; ``leaves``: the update at which it jumps off, if any."""

    def __init__(self, leaves: int | None = None, score: float = 1.0) -> None:
        self.score, self._leaves, self._updates = score, leaves, 0

    def start(self, bgr: Frame, box: Box) -> None:
        self._updates = 0

    def update(self, bgr: Frame) -> Box:
        self._updates += 1
        if self._leaves is not None and self._updates >= self._leaves:
            return Box(0.0, 0.0, 20.0, 20.0)
        return bounds(square(bgr))


def tools() -> Tools:
    return Tools(Eye(), (Hand(), Hand()))


@pytest.fixture(scope="module")
def clones(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Video]:
    """A folder of clones with one repository, and its video."""
    folder = tmp_path_factory.mktemp("clones")
    work = folder / "someone+films"
    write_video(work / "clips" / "street.mp4")
    return folder, Video("someone/films", commit_all(work), "clips/street.mp4", "research use")


@pytest.fixture(scope="module")
def labelled(clones: tuple[Path, Video], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the clips of the video's segments."""
    out = tmp_path_factory.mktemp("labelled")
    folder, video = clones
    assert label(open_tasks([video], out, 2), out, tools(), folder) == []
    return out


def write_list(path: Path, rows: Sequence[dict[str, str]]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_reserved_data_sets_are_refused_by_name_anywhere_in_a_row_and_as_whole_words_only(
    tmp_path: Path,
) -> None:
    assert [path for path in RESERVED_PATHS if reserved_name([path]) is None] == []
    others = ["someone/pets", "videos/otbound.mp4", "robotbench/pivot.mp4", "davison/a.mp4"]
    assert reserved_name(others) is None
    row = {
        "repository": "someone/films",
        "commit": COMMIT,
        "path": "a.mp4",
        "terms": "",
        "shows": "PETS 2009",
    }
    with pytest.raises(InputError, match=r"^\S*list.csv, line 2 names PETS, .*; leave it out$"):
        read_videos([str(write_list(tmp_path / "list.csv", [row]))])
    with pytest.raises(InputError, match="LaSOT"):
        read_videos([str(write_video(tmp_path / "lasot" / "a.mp4", 2))])


def test_a_moving_object_becomes_a_clip_that_training_loads(
    labelled: Path, source: Path, tmp_path: Path
) -> None:
    clips = sorted(path.parent for path in labelled.glob("*/meta.json"))
    meta = json.loads((clips[0] / "meta.json").read_text())
    assert meta["figures"][0]["kind"] == MOTION
    assert meta["source_path"] == "clips/street.mp4"
    masks = read_masks(clips[0])
    assert masks.shape == (1, meta["frames"], HIGH * FOOTAGE_WIDTH // WIDE, FOOTAGE_WIDTH)
    scale = FOOTAGE_WIDTH / WIDE
    for number, mask in zip(meta["frames_in_source"], masks[0], strict=True):
        box, (x, y) = bounds(mask), corner(number)
        assert abs(box.x - scale * x) < 2
        assert abs(box.y - scale * y) < 2
        assert abs(box.width - scale * SIDE) < 3
    folder = tmp_path / "material"
    folder.mkdir()
    for part in source.iterdir():
        (folder / part.name).symlink_to(part)
    (folder / "sequences_train").unlink()
    (folder / "sequences_train").mkdir()
    (folder / "sequences_train" / clips[0].name).symlink_to(clips[0])
    pack_material(folder, tmp_path / "material.zip")
    packed = [load_material(tmp_path / "material.zip", split) for split in ("train", "validation")]
    assert clips[0].name in [clip.name for material in packed for clip in material.footage]


def test_what_is_done_is_not_done_again(labelled: Path, clones: tuple[Path, Video]) -> None:
    folder, video = clones
    assert open_tasks([video], labelled, 2) == []
    third = open_tasks([video], labelled, 3)
    assert [task.segment for task in third] == [2]
    before = {path: path.stat().st_mtime_ns for path in labelled.rglob("*")}
    (labelled / DONE / open_tasks([video], Path("none"), 1)[0].mark).unlink()
    eye = Eye()
    label(open_tasks([video], labelled, 2), labelled, Tools(eye, (Hand(), Hand())), folder)
    clips = [path for path in before if DONE not in path.parts and path.is_file()]
    assert clips
    assert all(path.stat().st_mtime_ns == before[path] for path in clips)


def test_a_missing_clone_stops_no_other_video_and_is_tried_again(
    clones: tuple[Path, Video], tmp_path: Path
) -> None:
    folder, video = clones
    gone = Video("someone/gone", COMMIT, "a.mp4")
    tasks = open_tasks([gone, video], tmp_path, 1)
    failures = label(tasks, tmp_path, tools(), folder)
    assert len(failures) == 1
    assert "has no clone" in failures[0]
    assert [task.video for task in open_tasks([gone, video], tmp_path, 1)] == [gone]


def test_restored_labels_have_identical_masks(
    labelled: Path, clones: tuple[Path, Video], tmp_path: Path
) -> None:
    clips, tracks = pack(labelled, tmp_path / "labels.zip", {})
    out = tmp_path / "again"
    there, restored, failures = restore(tmp_path / "labels.zip", out, clones[0])
    assert (there, restored, failures) == (clips, tracks, [])
    originals = sorted(path.parent for path in labelled.glob("*/meta.json"))
    assert originals
    for folder in originals:
        assert (read_masks(out / folder.name) == read_masks(folder)).all()
        for name in ("boxes.csv", "meta.json"):
            assert (out / folder.name / name).read_text() == (folder / name).read_text()
        films = [cv2.VideoCapture(str(place / "video.mp4")) for place in (folder, out / folder.name)]
        one, other = (film.read()[1].astype(int) for film in films)
        assert np.abs(one - other).max() < 8
    assert open_tasks([clones[1]], out, 2) == []  # goes on where the labels end
    restored_at = (out / originals[0].name).stat().st_mtime_ns
    restore(tmp_path / "labels.zip", out, clones[0])
    assert (out / originals[0].name).stat().st_mtime_ns == restored_at


def test_wrong_and_double_tracks_are_not_packed(
    labelled: Path, clones: tuple[Path, Video], tmp_path: Path
) -> None:
    names = [path.parent.name for path in labelled.glob("*/meta.json")]
    with pytest.raises(InputError, match="no labelled clip"):
        pack(labelled, tmp_path / "labels.zip", {(name, 1): "wrong" for name in names})
    remarks = {(names[0], 1): "part", (names[1], 1): "double"}
    clips, _ = pack(labelled, tmp_path / "labels.zip", remarks)
    assert clips == len(names) - 1
    restore(tmp_path / "labels.zip", tmp_path / "out", clones[0])
    meta = json.loads((tmp_path / "out" / names[0] / "meta.json").read_text())
    assert meta["figures"][0]["remark"] == "part"
    assert not (tmp_path / "out" / names[1]).exists()


def test_the_command_packs_and_restores(
    labelled: Path, clones: tuple[Path, Video], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labels, out = str(tmp_path / "labels.zip"), tmp_path / "out"
    assert main(["label", str(labelled), "--pack", labels]) == 0
    assert main(["label", str(out), "--restore", labels, "--clones", str(clones[0])]) == 0
    count = len(list(labelled.glob("*/meta.json")))
    assert capsys.readouterr().out.splitlines()[-1] == f"{out}: {count} clips, {count} tracks"
