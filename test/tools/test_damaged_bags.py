"""Damaged bags are refused in one line, whatever the library that reads them trips over."""

from __future__ import annotations

import random
import shutil
import zlib
from pathlib import Path

import pytest
from bag_helpers import NS, START_NS, camera_info, image, selection, write_bag
from tools_helpers import square_picture

from efftam_ros.core.errors import InputError
from efftam_ros.images.encodings import Levels
from efftam_ros.messages.bags import choose_topic, open_typestore, reading
from efftam_ros.tools.replay import read_images, read_selections

STORE = open_typestore()
MUTATIONS = 150


def bag(folder: Path, storage: str) -> Path:
    messages = [("/camera_info", START_NS, camera_info(160, 120, 200.0))]
    for i in range(3):
        stamp = START_NS + i * NS // 10
        messages.append(("/image", stamp, image(square_picture(40, 30)[::8, ::8].copy(), stamp)))
    messages.append(("/select", START_NS + 1, selection(START_NS, (4, 3, 3, 3))))
    return write_bag(folder / "bag", messages, storage)


def read_all(path: Path) -> int:
    """Everything that a replay reads, without the network: the number of usable images."""
    usable = 0
    with reading(path) as reader:
        topic = choose_topic(reader, None)
        read_selections(reader, STORE)
        for recorded in read_images(reader, STORE, topic, False, Levels()):
            try:
                recorded.read()
            except InputError:
                continue
            usable += 1
    return usable


def damaged(data: bytes, dice: random.Random) -> bytes:
    """Some bytes changed, a piece cut out, or the end missing."""
    content = bytearray(data)
    kind = dice.randrange(3)
    at = dice.randrange(len(content))
    if kind == 0:
        for _ in range(dice.randint(1, 8)):
            content[dice.randrange(len(content))] = dice.randrange(256)
    elif kind == 1:
        del content[at : at + dice.randint(1, 200)]
    else:
        del content[at:]
    return bytes(content)


@pytest.mark.parametrize("storage", ["mcap", "sqlite3"])
@pytest.mark.parametrize("part", ["metadata", "messages"])
def test_no_damage_gives_a_traceback(tmp_path: Path, storage: str, part: str):
    whole = bag(tmp_path, storage)
    assert read_all(whole) == 3
    name = (
        "metadata.yaml"
        if part == "metadata"
        else next(p.name for p in whole.iterdir() if p.suffix != ".yaml")
    )
    content = (whole / name).read_bytes()
    refusals = []
    for number in range(MUTATIONS):
        dice = random.Random(zlib.crc32(f"{storage} {part} {number}".encode()))
        copy = tmp_path / "copy"
        shutil.copytree(whole, copy)
        (copy / name).write_bytes(damaged(content, dice))
        try:
            read_all(copy)
        except InputError as refusal:
            refusals.append(str(refusal))
        shutil.rmtree(copy)
    assert len(refusals) > MUTATIONS // 10
    assert [text for text in refusals if "\n" in text or len(text) > 600] == []


@pytest.mark.parametrize(
    "content", [b"", b"\x89MCAP0\r\n", b"no bag at all", b"SQLite format 3\0" + bytes(200)]
)
@pytest.mark.parametrize("suffix", [".mcap", ".db3"])
def test_files_that_are_none_are_refused(tmp_path: Path, suffix: str, content: bytes):
    path = tmp_path / f"bag{suffix}"
    path.write_bytes(content)
    with pytest.raises(InputError):
        read_all(path)


def test_a_recording_that_was_cut_off_is_told_how_to_recover_it(tmp_path: Path):
    whole = bag(tmp_path, "mcap")
    (file,) = whole.glob("*.mcap")
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(InputError, match=rf"mcap recover {file}"):
        read_all(file)
    with pytest.raises(InputError, match=rf"mcap recover {file} .*ros2 bag reindex {whole}"):
        read_all(whole)
