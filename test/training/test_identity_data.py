"""Crops of individuals for the identity network, from sources made here."""

from __future__ import annotations

import csv
import io
import json
import tarfile
import zipfile
from argparse import Namespace
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from training_helpers import commit_all, put

from efftam_ros.core.errors import InputError
from efftam_ros.images.source import NS
from efftam_ros.tools.common.video import VideoWriter
from training.clones import Commit
from training.identity import data
from training.identity.data import CutOuts, Folders, Followed, Mot, Source

REPOSITORY = "someone/people"
ROWS = "\n".join(
    [
        "1,1,11,11,20,40,1,1,1.0",
        "2,1,13,11,20,40,1,1,0.5",
        "3,1,15,11,20,40,1,1,0.4",  # less than half of it is seen
        "1,2,41,11,30,40,1,1,1.0",
        "2,2,61,11,30,40,1,1,1.0",  # leaves at the right
        "1,3,31,31,20,40,0,1,1.0",  # does not count
        "2,3,31,31,20,40,1,8,1.0",  # no pedestrian
        "1,4,31,31,20,40,1,1,1.0",  # seen once
    ]
)


def jpeg(grey: int, width: int = 80, height: int = 60) -> bytes:
    return bytes(cv2.imencode(".jpg", np.full((height, width, 3), grey, np.uint8))[1])


def film(path: Path, count: int) -> None:
    """Frames of 96 x 64 px, each with its own grey."""
    writer = VideoWriter(path, 96, 64, 10.0, crf=18)
    for i in range(count):
        writer.write(np.full((64, 96, 3), 40 + 40 * i, np.uint8), i * NS // 10)
    writer.close()


@pytest.fixture(scope="module")
def clones(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of one clone: people by name, a sequence of MOTChallenge and a video."""
    folder = tmp_path_factory.mktemp("clones")
    work = folder / REPOSITORY.replace("/", "+")
    for person, count in (("ann", 3), ("ben", 2), ("once", 1)):
        for i in range(count):
            put(work / f"crops/{person}/{i}.jpg", jpeg(60 * i, 100, 200))
    put(work / "track/seq/gt/gt.txt", ROWS + "\n")
    for i in (1, 2, 3):
        put(work / f"track/seq/img1/{i:06d}.jpg", jpeg(50 * i))
    film(work / "film.mp4", 4)
    put(work / "notes.txt", "nothing to see")
    return folder


@pytest.fixture(scope="module")
def commit(clones: Path) -> str:
    return commit_all(clones / REPOSITORY.replace("/", "+"))


@pytest.fixture
def files(clones: Path, commit: str) -> Any:
    with Commit(clones / REPOSITORY.replace("/", "+") / ".git", REPOSITORY, commit) as opened:
        yield opened


def source(reader: str, pattern: str, commit: str = "", kind: str = "") -> Source:
    repository = REPOSITORY if commit else ""
    return Source("some", reader, repository, commit, pattern, kind, "MIT", "MIT", 0, 0)


def table(out: Path, name: str = "some") -> list[dict[str, str]]:
    """The table's rows, each of which has its image in the archive in the size that is told."""
    with (out / f"{name}.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    with tarfile.open(out / f"{name}.tar") as archive:
        assert archive.getnames() == [row["file"] for row in rows]
        for row in rows:
            content = archive.extractfile(row["file"])
            assert content is not None
            image = cv2.imdecode(np.frombuffer(content.read(), np.uint8), cv2.IMREAD_COLOR)
            if "image_w" in row:
                assert image.shape == (int(row["image_h"]), int(row["image_w"]), 3)
    return rows


def box(row: dict[str, str]) -> list[float]:
    return [float(row[key]) for key in "xywh"]


@pytest.mark.parametrize(
    ("box", "shape", "place", "cut"),
    [
        ((50.0, 40.0, 30.0, 20.0), (36, 54, 3), (12.0, 8.0, 30.0, 20.0), False),
        ((-10.0, 40.0, 30.0, 20.0), (36, 32, 3), (0.0, 8.0, 20.0, 20.0), True),
        ((200.0, 200.0, 320.0, 160.0), (144, 288, 3), (64.0, 32.0, 160.0, 80.0), False),
        (None, (128, 128, 3), (0.0, 0.0, 128.0, 128.0), False),
    ],
    ids=["enlarged", "clipped", "scaled down", "whole image"],
)
def test_a_crop_is_the_box_enlarged_clipped_to_the_image_and_at_most_so_large(box, shape, place, cut) -> None:
    found = data.cut_out(np.zeros((800, 800, 3), np.uint8), box)
    assert found is not None
    assert (found[0].shape, *found[1:]) == (shape, place, cut)


@pytest.mark.parametrize("box", [(50.0, 40.0, 30.0, 9.0), (195.0, 40.0, 30.0, 20.0)])
def test_a_box_too_small_or_with_too_little_of_it_in_the_image_has_no_crop(box) -> None:
    assert data.cut_out(np.zeros((100, 200, 3), np.uint8), box) is None


def test_folders_of_people_are_whole_images_and_who_is_seen_once_is_left_out(
    files: Commit, tmp_path: Path
) -> None:
    footage = Folders(files, r"crops/(?P<object>\w+)/(?P<frame>\d)\.jpg", "person", "some")
    assert data.write_crops("some", footage, tmp_path) == (2, 5)
    rows = table(tmp_path)
    assert Counter(row["object"] for row in rows) == {"ann": 3, "ben": 2}
    assert {(row["group"], row["kind"], row["cut"]) for row in rows} == {("some", "person", "0")}
    assert box(rows[0]) == [0, 0, 64, 128]
    assert [row["frame"] for row in rows if row["object"] == "ann"] == ["0", "1", "2"]


def test_boxes_of_motchallenge_that_count_and_are_seen(files: Commit, tmp_path: Path) -> None:
    assert data.write_crops("some", Mot(files, r"track/.*/gt\.txt", "person"), tmp_path) == (2, 4)
    rows = table(tmp_path)
    assert [(row["object"], row["frame"], row["cut"]) for row in rows] == [
        ("1", "1", "0"),
        ("2", "1", "0"),
        ("1", "2", "0"),
        ("2", "2", "1"),
    ]
    assert {row["group"] for row in rows} == {"track_seq"}
    assert box(rows[0]) == [8, 10, 20, 40]  # the file counts pixels from 1
    assert box(rows[3]) == [12, 10, 20, 40]


def test_clips_with_named_targets_are_joined_and_parts_left_out(tmp_path: Path) -> None:
    for number, names in ((1, ["red", "blue"]), (2, ["blue"])):
        clip = tmp_path / f"clips/pair_{number}"
        put(clip / "meta.json", json.dumps({"target_names": names}))
        film(clip / "video.mp4", 3)
        for target in range(1, len(names) + 1):
            absent = [[1, *["nan"] * 4]] if target == 1 else []  # in a row of its own, or by none
            rows = [[0, 10, 10, 20, 20], *absent, [2, 14, 10, 20, 20]]
            text = "\n".join(",".join(map(str, row)) for row in [["frame", *"xywh"], *rows])
            put(clip / ("boxes.csv" if target == 1 else f"boxes_{target}.csv"), text)
    part = tmp_path / "clips/walk_1"
    put(part / "meta.json", json.dumps({"figures": [{"remark": "part"}]}))
    put(part / "boxes.csv", "frame,x,y,w,h\n0,0,0,30,30\n1,0,0,30,30\n")
    film(part / "video.mp4", 2)
    otb = tmp_path / "clips/Walker"
    put(otb / "groundtruth_rect.txt", "10,10,20,30\n12,10,20,30\n")
    for i in (1, 2):
        put(otb / f"img/{i:04d}.jpg", jpeg(90))

    assert data.write(source("clips", "clips/*"), tmp_path, None, tmp_path) == (3, 8)
    rows = table(tmp_path)
    counts = Counter((row["group"], row["object"]) for row in rows)
    assert counts == {("pair", "red"): 2, ("pair", "blue"): 4, ("Walker", "1"): 2}
    assert {int(row["frame"]) % 1000 for row in rows if row["group"] == "pair"} == {0, 2}
    assert {row["kind"] for row in rows if row["group"] == "Walker"} == {"person"}


def test_tracks_of_a_video_get_its_frames(clones: Path, commit: str, tmp_path: Path) -> None:
    labels = tmp_path / "tracks.zip"
    with zipfile.ZipFile(labels, "w") as archive:
        index = f"file,repository,commit,path,terms\na.csv,{REPOSITORY},{commit},film.mp4,MIT\n"
        archive.writestr("index.csv", index)
        rows = "0,film@0,1,person,10,10,20,30\n2,film@0,1,person,12,10,20,30\n"
        archive.writestr("a.csv", "frame,group,object,kind,x,y,w,h\n" + rows)
    images = dict(Followed(labels, clones).images(["a.csv/0", "a.csv/2"]))
    assert [round(float(image.mean()) / 40) for image in images.values()] == [1, 3]
    assert data.write_crops("some", Followed(labels, clones), tmp_path) == (1, 2)
    assert [row["group"] for row in table(tmp_path)] == ["film@0"] * 2


def sprite(side: int = 60) -> np.ndarray:
    """A red square with alpha."""
    image = np.zeros((side, side, 4), np.uint8)
    image[..., 2:] = 255
    return image


def test_cut_outs_lie_in_their_boxes_and_are_the_same_each_time() -> None:
    green = np.zeros((200, 200, 3), np.uint8)
    green[..., 1] = 160
    footage = CutOuts("cut", {"square": [sprite()]}, [green], turning=180)
    views = footage.things()[0].views
    assert len(views) == data.CUT_OUT_VIEWS
    images = dict(footage.images([view.image for view in views]))
    for view in views:
        image = images[view.image].astype(int)
        x, y, w, h = (round(value) for value in view.box or pytest.fail("no box"))
        red = image[..., 2] > image[..., 1]
        assert red[y : y + h, x : x + w].sum() == red.sum() > 0.4 * w * h
    again = dict(footage.images([views[0].image]))
    assert (again[views[0].image] == images[views[0].image]).all()
    assert len({image.shape for image in images.values()}) > 1


def tar(path: Path, images: dict[str, np.ndarray]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as archive:
        for name, image in images.items():
            content = cv2.imencode(".png", image)[1].tobytes()
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def test_sides_of_a_thing_are_one_object_and_vehicles_are_taken_from_one_image(tmp_path: Path) -> None:
    names = ["car_01", "car_02", "cats_v0b00_00100", "cats_v0b00_00200", "cats_v0b00_00201"]
    tar(tmp_path / "cut.tar", {f"{name}.png": sprite() for name in names})
    tar(tmp_path / "behind.tar", {"a.png": np.zeros((300, 500, 3), np.uint8)})
    made = data.cut_outs("cut", [tmp_path / "cut.tar", tmp_path / "behind.tar"])
    assert {name: len(sides) for name, sides in made.sprites.items()} == {
        "car": 2,
        "cats_v0b00_00200": 1,
        "cats_v0b00_00201": 1,
    }

    (tmp_path / "clip").mkdir()
    film(tmp_path / "clip/video.mp4", 5)
    images = source("images", "behind.tar cut.tar clip/video.mp4")
    assert data.write(images, tmp_path, None, tmp_path) == (0, 8)
    assert [row["source"] for row in table(tmp_path)][-2:] == ["clip/video.mp4"] * 2


def test_many_crops_are_split_and_an_error_leaves_nothing(tmp_path: Path) -> None:
    image = np.random.default_rng(0).integers(0, 255, (64, 64, 3), np.uint8)
    with data.Archive(tmp_path, "some", ("file", "n"), most=20_000) as archive:
        for i in range(9):
            archive.add(f"{i}.jpg", image, [i])
    parts = sorted(tmp_path.glob("*.tar"))
    assert [part.stem for part in parts] == [f"some_{i}" for i in range(1, len(parts) + 1)]
    assert len(parts) > 1
    assert [row["n"] for part in parts for row in table(tmp_path, part.stem)] == [str(i) for i in range(9)]

    with suppress(ZeroDivisionError), data.Archive(tmp_path / "b", "some", ("file",)) as archive:
        archive.add("0.jpg", image, [])
        raise ZeroDivisionError
    assert not list((tmp_path / "b").iterdir())


def listed(path: Path, *sources: Source) -> Path:
    with path.open("w", newline="") as file:
        rows = [vars(one) for one in sources]
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_what_trackers_are_judged_on_is_refused(tmp_path: Path) -> None:
    good = source("clips", "clips/*")
    assert data.read_sources(listed(tmp_path / "list.csv", good)) == [good]
    for bad in ("LaSOT/*", "data/MOT17/train", "got10k", "VisDrone2019-MOT"):
        with pytest.raises(InputError, match=r"line 2 names .* leave it out"):
            data.read_sources(listed(tmp_path / "list.csv", replace(good, pattern=bad)))


def test_the_same_command_again_makes_what_is_missing(
    clones: Path, commit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    people = source("folders", r"crops/(?P<object>\w+)/(?P<frame>\d)\.jpg", commit, "person")
    far = replace(people, name="far", repository="no/where")
    monkeypatch.setattr(data, "SOURCES", listed(tmp_path / "sources.csv", people, far))
    args = Namespace(out=tmp_path / "out", names=[], clones=clones, material=None, quiet=True)
    assert data.run(args) == 1
    printed = capsys.readouterr()
    assert printed.out == "some: 2 objects, 5 images\n"
    assert printed.err.startswith("far: no/where has no clone")
    before = (tmp_path / "out/some.tar").stat().st_mtime_ns
    assert data.run(Namespace(**{**vars(args), "names": ["some"]})) == 0
    assert (tmp_path / "out/some.tar").stat().st_mtime_ns == before
    with pytest.raises(InputError, match="other is no source"):
        data.run(Namespace(**{**vars(args), "names": ["other"]}))
