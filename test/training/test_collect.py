"""Footage brought back from repositories: from real ones made here, whose last commit deletes it."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
from training_helpers import commit_all, git, put

from efftam_ros.core.errors import InputError
from efftam_workshop.eval.sequences import Sequence, find_sequences
from training.collect import MAX_FRAMES, Source, collect, read_sources
from training.material import FOOTAGE_WIDTH

REPOSITORY = "someone/Some.Tracker"
OTB = [(10.0, 20.0, 30.0, 40.0), (11.5, 21.0, 30.0, 40.0), (math.nan,) * 4]
WIDE, HIGH = 640, 360  # of the images with masks
MASK_BOX = (100.0, 60.0, 80.0, 40.0)
FIRST = 300


def picture(grey: int, size: tuple[int, int] = (64, 48), ending: str = ".jpg") -> bytes:
    return bytes(cv2.imencode(ending, np.full((size[1], size[0], 3), grey, np.uint8))[1])


def lines(rows: list[tuple[float, ...]], mark: str = ",", end: str = "\n") -> str:
    return end.join(mark.join(f"{value:g}" for value in row) for row in rows)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of repositories, as a host has them."""
    host = tmp_path_factory.mktemp("host")
    work = host / REPOSITORY
    work.mkdir(parents=True)
    git(work, "init", "--quiet")
    git(work, "config", "uploadpack.allowFilter", "true")
    git(work, "config", "uploadpack.allowAnySHA1InWant", "true")
    for i in range(3):
        put(work / f"seq [a]/Otb/img/{FIRST + i:04d}.jpg", picture(40 * i))
        put(work / f"vot/{i + 1:08d}.png", picture(40 * i, ending=".png"))
        put(work / f"masks/JPEG/{i:05d}.jpg", picture(90, (WIDE, HIGH)))
        mask = np.zeros((HIGH, WIDE), np.uint8)
        if i < 2:
            x, y, w, h = (int(value) for value in MASK_BOX)
            mask[y : y + h, x : x + w] = 255
        put(work / f"masks/PNG/{i:05d}.png", bytes(cv2.imencode(".png", mask)[1]))
    put(work / "seq [a]/Otb/img/0303.jpg", picture(5))  # the benchmark has no box for it
    put(work / "seq [a]/Otb/groundtruth_rect.txt", lines(OTB, "\t", "\r\n"))
    put(work / "vot/groundtruth.txt", lines([(10, 9, 30, 12, 28, 52, 8, 49), (1, 2, 3, 4), (2, 3, 4, 5)]))
    put(work / "vot/polygons.txt", lines([(10, 9, 30, 12, 28, 52, 8, 49)] * 3))
    put(work / "vot/parts.txt", lines([(1, 1, 2, 2), (2, 2, 3, 3), (3, 3, 4, 4)]))
    mot = [(1, 7, 1, 2, 3, 4, 1), (2, 7, 5, 6, 7, 8, 1), (2, 8, 1, 1, 9, 9, 1), (4, 7, 6, 6, 7, 8, 0)]
    put(work / "vot/gt.txt", lines([*mot, (3, 8, 2, 1, 9, 9, 1)]))
    put(work / "lfs.txt", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    put(work / "text/0001.jpg", "no image")
    put(work / "text/0002.jpg", "no image")
    put(work / "weights.bin", bytes(range(256)) * 64)
    commit_all(work)
    git(work, "rm", "-r", "--quiet", ".")
    put(work / "readme", "moved")
    commit_all(work)
    return host


@pytest.fixture(scope="module")
def otb(host: Path) -> Source:
    return Source(
        sequence="Otb",
        benchmark="OTB-100",
        use="set1",
        repository=REPOSITORY,
        commit=git(host / REPOSITORY, "rev-parse", "HEAD^"),
        folder="seq [a]/Otb/img",
        pattern="%04d.jpg",
        annotation="seq [a]/Otb/groundtruth_rect.txt",
        format="otb",
        first=FIRST,
        frames=3,
        terms="research use",
    )


@pytest.fixture(scope="module")
def vot(otb: Source) -> Source:
    return replace(
        otb, sequence="Vot", folder="vot", pattern="%08d.png", annotation="vot/polygons.txt",
        format="vot_polygon", first=1,
    )  # fmt: skip


@pytest.fixture(scope="module")
def masks(otb: Source) -> Source:
    return replace(
        otb, sequence="Masks", use="davis", folder="masks/JPEG", pattern="%05d.jpg", annotation="masks/PNG",
        format="davis_masks", first=0,
    )  # fmt: skip


def got(folder: Path, host: Path, *sources: Source, clones: Path | None = None) -> Sequence:
    """The only sequence of a folder in which these were collected."""
    assert collect(list(sources), folder, clones, host.as_uri()) == []
    (sequence,) = find_sequences(folder / sources[0].use)
    return sequence


def test_frames_and_boxes_are_those_of_the_commit(tmp_path, host, otb):
    sequence = got(tmp_path, host, otb)
    np.testing.assert_array_equal(sequence.boxes, OTB)
    assert [round(frame.bgr.mean()) for frame in sequence.frames()] == [0, 40, 80]
    stored = sorted((tmp_path / "set1/Otb/img").iterdir())
    assert [path.name for path in stored] == ["0001.jpg", "0002.jpg", "0003.jpg"]
    assert [path.read_bytes() for path in stored] == [picture(40 * i) for i in range(3)]


@pytest.mark.parametrize("bare", [True, False])
@pytest.mark.parametrize("inside", ["", "repo"])
def test_a_clone_that_is_there_gives_the_same(tmp_path, host, otb, bare, inside):
    clone = tmp_path / "clones" / REPOSITORY.replace("/", "+") / inside
    clone.parent.mkdir(parents=True, exist_ok=True)
    git(tmp_path, "clone", "--quiet", *(["--bare"] if bare else []), str(host / REPOSITORY), str(clone))
    sequence = got(tmp_path / "out", tmp_path / "nowhere", otb, clones=tmp_path / "clones")
    np.testing.assert_array_equal(sequence.boxes, OTB)
    assert (tmp_path / "out/set1/Otb/img/0003.jpg").read_bytes() == picture(80)


@pytest.mark.parametrize(("use", "scale"), [("davis", 1.0), ("training", FOOTAGE_WIDTH / WIDE)])
def test_masks_come_as_a_sequence_of_the_package(tmp_path, host, masks, use, scale):
    """For training not wider than it is loaded."""
    sequence = got(tmp_path, host, replace(masks, use=use))
    np.testing.assert_array_equal(sequence.boxes, [[v * scale for v in MASK_BOX]] * 2 + [[math.nan] * 4])
    assert sequence.mask is not None
    assert [int(sequence.mask(i).sum()) for i in range(3)] == [80 * 40 * scale**2] * 2 + [0]
    frames = [frame.bgr for frame in sequence.frames()]
    assert [frame.shape for frame in frames] == [(HIGH * scale, WIDE * scale, 3)] * 3
    assert all(abs(frame.mean() - 90) < 3 for frame in frames)  # 0.4 measured; black would be 90 off
    meta = json.loads((tmp_path / use / "Masks/meta.json").read_text())
    assert (meta["terms"], meta["source_commit"], meta["frames"]) == (masks.terms, masks.commit, 3)
    assert meta["has_masks"] is True


def broken(source: Source, **changes: object) -> Source:
    return replace(source, sequence="Broken", **changes)


BROKEN = [
    ({"frames": 4}, "groundtruth_rect.txt has 3 lines for 4 frames"),
    ({"first": 302}, "0304.jpg is not in"),
    ({"annotation": "seq [a]/none.txt"}, "none.txt is not in"),
    ({"annotation": "seq [a]"}, "is a folder"),
    ({"annotation": "lfs.txt"}, "Git LFS"),
    ({"annotation": "vot/polygons.txt"}, "is no otb of frame 300"),
    ({"annotation": "seq [a]/Otb/groundtruth_rect.txt@2"}, "@2 has 2 lines for 3 frames"),
    ({"annotation": "vot/gt.txt#8@1", "format": "mot"}, "#8@1 has no box of frame 1, where"),
    ({"annotation": "vot/groundtruth.txt", "format": "vot_polygon"}, "is no vot_polygon of frame 301"),
    ({"folder": "text", "first": 1, "frames": 2}, "0001.jpg is no JPEG"),
    ({"repository": "someone/gone"}, "someone/gone"),
    ({"commit": "0" * 40}, f"{REPOSITORY} at 0000000000"),
]


@pytest.mark.parametrize(("changes", "told"), BROKEN, ids=[told for _, told in BROKEN])
def test_a_failure_is_one_line_and_stops_no_other(tmp_path, host, otb, vot, changes, told):
    done: list[int] = []
    failures = collect([broken(otb, **changes), otb, vot], tmp_path, None, host.as_uri(), done.append)
    (line,) = failures
    assert told in line
    assert "set1/Broken" in line
    assert "\n" not in line
    assert sum(done) == 3
    assert sorted(path.name for path in (tmp_path / "set1").iterdir()) == ["Otb", "Vot"]
    assert [path.name for path in tmp_path.iterdir()] == ["set1"]  # nothing half written


def test_the_same_again_brings_what_was_missing(tmp_path, host, otb, vot):
    collect([otb, broken(otb, frames=4)], tmp_path, None, host.as_uri())
    kept = tmp_path / "set1/Otb/groundtruth_rect.txt"
    kept.write_text("kept")
    assert collect([otb, vot, broken(otb)], tmp_path, None, host.as_uri()) == []
    assert kept.read_text() == "kept"
    assert sorted(path.name for path in (tmp_path / "set1").iterdir()) == ["Broken", "Otb", "Vot"]


def test_what_is_judged_was_not_trained_on():
    """Each use has footage of its own: neither a name nor a folder of frames occurs in two."""
    sources = read_sources()
    for key in (lambda s: s.sequence.lower().removeprefix("davis_"), lambda s: (s.repository, s.folder)):
        uses: dict[object, set[str]] = {}
        for source in sources:
            uses.setdefault(key(source), set()).add(source.use)
        assert not {name: found for name, found in uses.items() if len(found) > 1}


HEADER = "sequence,benchmark,use,repository,commit,folder,pattern,annotation,format,first,frames,terms"
ROW = f"a,OTB-100,set1,x/y,{'0' * 40},f,%04d.jpg,a.txt,otb,1,2,research"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (",research", ""),
        (",research", ",research,more"),
        ("%04d.jpg", "img.jpg"),
        (",1,2,", ",one,2,"),
        (",1,2,", ",1,1,"),
        (",1,2,", f",1,{MAX_FRAMES + 1},"),
        ("0" * 40, "0" * 10),
        ("x/y", "xy"),
        ("set1", "set9"),
        ("otb,1", "voc,1"),
        ("a.txt,otb", "a.txt,mot"),
        ("a.txt", "a.txt#1"),
        ("\n", f"\n{ROW}\n"),
    ],
)
def test_a_wrong_row_is_refused_with_its_place(tmp_path, old, new):
    path = tmp_path / "sources.csv"
    path.write_text(f"{HEADER}\n{ROW.replace(old, new)}\n" if old != "\n" else f"{HEADER}\n{ROW}\n{ROW}\n")
    with pytest.raises(InputError, match=rf"{re.escape(str(path))}(, line 2| has set1/a)"):
        read_sources(path)


def test_halves_of_the_validation_are_those_of_the_hash():
    """What shares images follows its first row."""
    halves: dict[tuple[str, str], str] = {}
    uses = Counter()
    for source in read_sources():
        if source.use.startswith("validation_"):
            digest = hashlib.sha256(f"{source.benchmark}/{source.sequence}".encode()).hexdigest()
            half = halves.setdefault((source.repository, source.folder), "ab"[int(digest[-1], 16) % 2])
            assert source.use == f"validation_{half}", source.sequence
            uses[half] += 1
    assert min(uses.values()) >= 0.4 * sum(uses.values()) >= 8
