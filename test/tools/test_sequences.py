"""Every format as it is published, in small: our own, DAVIS, OTB."""

from __future__ import annotations

import re
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image
from tools_helpers import square_picture

from efftam_ros.core.errors import InputError
from efftam_ros.images.source import NS
from efftam_ros.tools.common.video import VideoWriter
from efftam_workshop.eval.sequences import _packed_masks, find_sequences, read_boxes


def write_images(folder: Path, count: int, suffix: str = ".jpg", first: int = 1) -> None:
    folder.mkdir(parents=True)
    for i in range(count):
        cv2.imwrite(str(folder / f"{first + i:05d}{suffix}"), square_picture(40 + i, 30, 96, 72, 16))


def write_own(folder: Path, rows: list[str], *, frames: int = 3, masks: np.ndarray | None = None) -> Path:
    folder.mkdir(parents=True)
    with VideoWriter(folder / "video.mp4", 96, 72, 10.0) as writer:
        for i in range(frames):
            writer.write(square_picture(40 + i, 30, 96, 72, 16), i * NS // 10)
    (folder / "boxes.csv").write_text("\n".join(["frame,x,y,w,h", *rows]) + "\n")
    if masks is not None:
        bits = np.array([np.packbits(mask) for mask in masks])
        np.savez_compressed(folder / "masks.npz", shape=np.array(masks.shape), bits=bits)
    return folder


def test_our_own_format(tmp_path: Path):
    masks = np.zeros((3, 72, 96), bool)
    masks[:, 30:46, 40:56] = True
    write_own(tmp_path / "car", ["0,40,30,16,16", "1,nan,nan,nan,nan", "2,42.5,30,16,16"], masks=masks)
    (sequence,) = find_sequences(tmp_path / "car")
    assert (sequence.name, len(sequence)) == ("car", 3)
    assert np.isnan(sequence.boxes[1]).all()
    assert sequence.boxes[2].tolist() == [42.5, 30, 16, 16]
    assert np.array_equal(sequence.mask(2), masks[2])
    assert [f.stamp_ns for f in sequence.frames()] == [0, 100_000_000, 200_000_000]


def test_boxes_belong_to_the_frames_that_their_rows_name(tmp_path: Path):
    """What has no row is absent; the video may go on behind the last one."""
    write_own(tmp_path / "car", ["0,40,30,16,16", "2,42,30,16,16", "4,44,30,16,16", "5,45,30,16,16"])
    (sequence,) = find_sequences(tmp_path / "car")
    assert sequence.boxes[:, 0].tolist() == pytest.approx([40, np.nan, 42, np.nan, 44, 45], nan_ok=True)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (["0,1,1,9,9", "2,1,1,9,9", "1,1,1,9,9"], "frame 1 after 2"),
        (["0,1,1,9,9", "0,1,1,9,9"], "frame 0 after 0"),
        (["-1,1,1,9,9"], "frame -1"),
        (["0,1,1,9,9", "99999999,1,1,9,9"], "at most 1000000"),
        (["one,1,1,9,9"], "line 2: 'one,1,1,9,9'"),
        (["0,1,1,9,9", "1,1,1,9,x"], "line 3: '1,1,1,9,x'"),
        (["0,1,1,9,9", "1,1,1"], "line 3: '1,1,1,,'"),
        (["0,1,1,9,9"], "at least two"),
        (["0,nan,nan,nan,nan", "1,1,1,9,9"], "no box in its first frame"),
        (["0,1,1,9,9", "1,nan,nan,nan,nan"], "nothing to score"),
    ],
)
def test_a_table_that_makes_no_sense_is_refused(tmp_path: Path, rows: list[str], words: str):
    write_own(tmp_path / "car", rows)
    with pytest.raises(InputError, match=words):
        find_sequences(tmp_path / "car")


def test_a_table_without_a_column_is_refused_by_its_name(tmp_path: Path):
    folder = write_own(tmp_path / "car", ["0,1,1,9,9"])
    (folder / "boxes.csv").write_text("frame,x,y,width,h\n0,1,1,9,9\n1,1,1,9,9\n")
    with pytest.raises(InputError, match="no column w;"):
        find_sequences(folder)


def test_further_targets_have_tables_of_their_own(tmp_path: Path):
    """The masks are the first one's."""
    folder = write_own(
        tmp_path / "car", [f"{i},40,30,16,16" for i in range(3)], masks=np.ones((3, 72, 96), bool)
    )
    (folder / "boxes_2.csv").write_text("frame,x,y,w,h\n0,1,2,9,9\n1,1,2,9,9\n2,1,2,9,9\n")
    one, two = find_sequences(folder)
    assert (one.name, two.name, one.video, two.video) == ("car#1", "car#2", "car", "car")
    assert two.boxes[0].tolist() == [1, 2, 9, 9]
    assert (one.mask is None, two.mask is None) == (False, True)


def test_a_folder_of_sequences_in_natural_order(tmp_path: Path):
    for name in ("car10", "car2"):
        write_own(tmp_path / name, ["0,1,1,9,9", "1,1,1,9,9", "2,1,1,9,9"])
    (tmp_path / "notes").mkdir()
    assert [s.name for s in find_sequences(tmp_path)] == ["car2", "car10"]


def write_davis(root: Path, labels: list[np.ndarray], name: str = "goat", palette: bool = True) -> None:
    write_images(root / "JPEGImages" / "480p" / name, len(labels), first=0)
    annotations = root / "Annotations" / "480p" / name
    annotations.mkdir(parents=True)
    for i, label in enumerate(labels):
        image = Image.fromarray(label.astype(np.uint8), "P" if palette else "L")
        if palette:
            image.putpalette([0, 0, 0, 128, 0, 0, 0, 128, 0] + [0] * 759)
        image.save(annotations / f"{i:05d}.png")


def test_davis_2016_black_and_white(tmp_path: Path):
    label = np.zeros((72, 96), np.uint8)
    label[30:46, 40:60] = 255
    write_davis(tmp_path, [label, label * 0, label], palette=False)
    (sequence,) = find_sequences(tmp_path)
    assert sequence.name == "goat"
    assert sequence.boxes[0].tolist() == [40, 30, 20, 16]
    assert np.isnan(sequence.boxes[1]).all()
    assert sequence.mask(2).sum() == 320
    assert [round(f.stamp_ns * 24 / NS) for f in sequence.frames()] == [0, 1, 2]


def test_davis_2017_one_sequence_per_object(tmp_path: Path):
    label = np.zeros((72, 96), np.uint8)
    label[10:20, 10:20], label[40:50, 60:80] = 1, 2
    write_davis(tmp_path, [label, label])
    write_davis(tmp_path, [label.clip(0, 1)] * 2, "dog")
    assert [one.name for one in find_sequences(tmp_path)] == ["dog", "goat#1", "goat#2"]
    one, two = find_sequences(tmp_path / "JPEGImages" / "480p" / "goat")
    assert (one.boxes[1].tolist(), two.boxes[1].tolist()) == ([10, 10, 10, 10], [60, 40, 20, 10])


@pytest.mark.parametrize("separator", [",", "\t", " ", ", "], ids=["comma", "tab", "space", "both"])
def test_otb_by_any_separator(tmp_path: Path, separator: str):
    folder = tmp_path / "Walking"
    write_images(folder / "img", 3)
    lines = [separator.join(map(str, (10 + i, 20, 30, 40))) for i in range(3)]
    (folder / "groundtruth_rect.txt").write_text("\r\n".join(lines) + "\r\n")
    (sequence,) = find_sequences(folder)
    assert sequence.boxes[2].tolist() == [12, 20, 30, 40]
    assert len(list(sequence.frames())) == 3


def test_otb_with_two_targets(tmp_path: Path):
    folder = tmp_path / "Jogging"
    write_images(folder / "img", 2)
    for i in (1, 2):
        (folder / f"groundtruth_rect.{i}.txt").write_text(f"{i},1,5,5\n{i},2,5,5\n")
    assert [s.name for s in find_sequences(folder)] == ["Jogging#1", "Jogging#2"]


def test_otb_whose_truth_starts_late(tmp_path: Path):
    """David's truth begins at image 300 of 770."""
    folder = tmp_path / "David"
    (folder / "img").mkdir(parents=True)
    for i in range(1, 771):
        (folder / "img" / f"{i:04d}.jpg").touch()
    picture = cv2.imencode(".jpg", np.full((8, 8, 3), 99, np.uint8))[1].tobytes()
    (folder / "img" / "0300.jpg").write_bytes(picture)
    (folder / "groundtruth_rect.txt").write_text("1,1,2,2\n" * 471)
    (sequence,) = find_sequences(folder)
    assert len(sequence) == 471
    assert next(iter(sequence.frames())).bgr.mean() == pytest.approx(99, abs=2)


def test_boxes_without_area_are_absent_and_a_line_that_is_no_box_is_named(tmp_path: Path):
    path = tmp_path / "gt.txt"
    path.write_text("1,2,3,4\n0,0,0,0\n\n5,6,7,-1\n")
    boxes = read_boxes(path)
    assert np.isnan(boxes[1:]).all()
    assert boxes[0].tolist() == [1, 2, 3, 4]
    path.write_text("1,2,3,4\n1,2,3\n")
    with pytest.raises(InputError, match=r"line 2: '1,2,3' is not a box"):
        read_boxes(path)


def test_a_folder_without_a_whole_sequence_is_refused(tmp_path: Path):
    with pytest.raises(InputError, match="holds no sequence"):
        find_sequences(tmp_path)
    with pytest.raises(InputError, match="is not a folder"):
        find_sequences(tmp_path / "nope")
    (sequence,) = find_sequences(write_own(tmp_path / "s", [f"{i},1,1,9,9" for i in range(4)], frames=3))
    with pytest.raises(InputError, match="4 boxes but only 3 frames"):
        list(sequence.frames())


def bomb(width: int, height: int, shape: list[int] | None = None) -> dict[str, np.ndarray]:
    return {"shape": np.array([4, height, width]), "bits": np.zeros(shape or [4, 1 << 20], np.uint8)}


GOOD = bomb(96, 72, [4, 864])


@pytest.mark.parametrize(
    ("stored", "count", "words"),
    [
        (bomb(96, 72), 4, "bits is uint8 [4, 1048576], which does not fit 4 masks of 96 x 72 px"),
        (bomb(96, 72, [4, 863]), 4, "bits is uint8 [4, 863]"),
        ({"shape": np.array([4, 72, 96])}, 4, "bits"),
        (GOOD | {"shape": np.array([4, 72, 96], object)}, 4, "Object arrays"),
        (GOOD, 3, "4 masks for 3 boxes"),
        (GOOD, 5, "4 masks for 5 boxes"),
        (b"PK\x03\x04" + bytes(100), 4, "no valid packed masks"),
    ],
)
def test_packed_masks_that_are_not_what_they_say_are_refused(tmp_path, stored, count, words):
    path = tmp_path / "masks.npz"
    if isinstance(stored, bytes):
        path.write_bytes(stored)
    else:
        np.savez_compressed(path, **stored)
    with pytest.raises(InputError, match=re.escape(words)):
        _packed_masks(path, count)
