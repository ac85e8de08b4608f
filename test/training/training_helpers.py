"""Small procedural material for the training tests: bright shapes on dark ground, in memory and as the
folders that `python -m training data` packs."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterable
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from efftam_ros.images.source import NS
from efftam_ros.tools.common.video import VideoWriter
from training.clips import Clip
from training.material import (
    DAVIS_TRAINED_ON,
    VALIDATION_SCENES,
    Backdrop,
    Footage,
    Material,
    Photograph,
    Sprite,
    split_of,
)

ROOT = Path(__file__).resolve().parents[2]
Bytes = NDArray[np.uint8]
FPS = 25
BRIGHT, DARK = 230, 12
"""Grey levels so far apart that no camera of the training clips brings them together."""

NEVER_TRAINED_ON = ("cows", "dog", "goat", "libby")
"""The sequences of DAVIS that the evaluation has."""

BOX_ONLY = "car16_2"
"""A sequence with boxes and without masks, as the aerial ones are."""

OPEN, RESEARCH, UNKNOWN = "CC0-1.0", "no licence text in the source; research use", "as found"


def run_training(*arguments: object, timeout: float = 900.0) -> subprocess.CompletedProcess[str]:
    """`python -m training` as a process of its own."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-m", "training", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=environment)


def git(folder: Path, *words: str) -> str:
    """Run git in a folder, as somebody; what it prints."""
    identity = ["-c", "user.name=n", "-c", "user.email=e@localhost", "-c", "protocol.file.allow=always"]
    done = subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def commit_all(folder: Path) -> str:
    """Commit all that a folder holds; makes it a repository where it is none. Returns the commit."""
    for words in (["init", "--quiet"], ["add", "--all"], ["commit", "--quiet", "-m", "all"]):
        git(folder, *words)
    return git(folder, "rev-parse", "HEAD")


def put(path: Path, content: bytes | str) -> None:
    """Write a file and the folders that it lies in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


def name_on(side: str, prefix: str, group: str = "{}") -> str:
    """The first of prefix + a, b, c, ... whose group falls on this side of the split."""
    names = (f"{prefix}{first}{second}" for first in "abcdefghijkl" for second in "abcdefghijkl")
    return next(name for name in names if split_of(group.format(name)) == side)


def disc(side: int = 64, grey: int = BRIGHT) -> Bytes:
    """A filled circle that touches its picture's edges, uint8 [side,side,4] with straight alpha."""
    rgba = np.zeros((side, side, 4), np.uint8)
    rgba[..., :3] = grey
    cv2.circle(rgba, (side // 2, side // 2), side // 2 - 1, (grey, grey, grey, 255), -1)
    return rgba


def plate(colour: tuple[int, int, int], width: int = 48, height: int = 32) -> Bytes:
    """A rectangle of an RGB colour whose upper left quarter is cut away."""
    rgba = np.zeros((height, width, 4), np.uint8)
    rgba[:] = (*colour, 255)
    rgba[: height // 2, : width // 2, 3] = 0
    return rgba


def ground(seed: int = 0, height: int = 120, width: int = 160, grey: int = DARK) -> Bytes:
    """Dark uneven ground, uint8 [h,w,3]."""
    noise = np.random.default_rng(seed).normal(grey, 3, (height // 4, width // 4, 3)).clip(0, 40)
    return np.asarray(cv2.resize(noise.astype(np.uint8), (width, height)), np.uint8)


def bright_footage(
    name: str = "plaza", frames: int = 16, size: tuple[int, int] = (160, 120), side: int = 36
) -> Footage:
    """A bright square that moves 2 px right and 1 px down per frame."""
    width, height = size
    pictures, masks = [], []
    for index in range(frames):
        picture, mask = ground(3, height, width), np.zeros((height, width), np.uint8)
        rows, columns = (slice(first, first + side) for first in (20 + index, 24 + 2 * index))
        picture[rows, columns], mask[rows, columns] = BRIGHT, 255
        pictures.append(picture)
        masks.append(mask)
    return Footage(pictures, [masks], name, name)


def bright_photograph(name: str = "photo", height: int = 120, width: int = 160) -> Photograph:
    """One bright square of 40 px, and unknown pixels at the left border."""
    rgb, labels = ground(5, height, width), np.zeros((height, width), np.uint8)
    rgb[40:80, 60:100], labels[40:80, 60:100] = BRIGHT, 1
    labels[:, :50] = 255
    return Photograph(rgb, labels, name)


def bright_material() -> Material:
    """Bright things on dark ground, one of each type."""
    return Material(
        sprites=[Sprite(disc(), "disc", "photo")],
        backdrops=[Backdrop(ground(seed), f"ground{seed}", "aerial") for seed in (1, 2)],
        photographs=[bright_photograph()],
        footage=[bright_footage()],
    )


def same(one: Clip, other: Clip) -> bool:
    return all(bool((a == b).all()) if a.shape == b.shape else False for a, b in zip(one, other, strict=True))


def write_source(folder: Path) -> None:
    """The four folders of sources, small: cut-outs, backdrops, photographs, sequences of all kinds."""
    _write_synthetic(folder / "synthetic")
    _write_photographs(folder / "real_masks")
    for name in (*DAVIS_TRAINED_ON, *NEVER_TRAINED_ON):
        write_sequence(folder / "sequences" / name, bright_footage(name), "research")
    write_sequence(folder / "sequences" / BOX_ONLY, bright_footage(BOX_ONLY), RESEARCH, with_masks=False)
    scenes = (VALIDATION_SCENES[0], f"{VALIDATION_SCENES[0]}_2", "street", "street_2", "street_10")
    for name in scenes:
        write_sequence(folder / "sequences_train" / name, bright_footage(name), RESEARCH)
    boxes_alone = folder / "sequences_train" / "boxes_alone"
    write_sequence(boxes_alone, bright_footage("boxes_alone"), OPEN, with_masks=False)


AERIAL_DATA_SET = "CATS drone view vehicles"
"""Photographs whose vehicles are cut-outs too."""


def write_aerial(folder: Path) -> None:
    """The optional folder of aerial material: by their names all of its groups would be held out."""
    folder.mkdir(parents=True)
    van = name_on("validation", "cats_v", "photo_aerial:{}")
    place = name_on("validation", "cats_place_")
    vans = {f"{van}_0070{number}.webp": plate((200, 30, 20)) for number in range(2)}
    _write_tar(folder / "vans.tar", {name: _webp(rgba) for name, rgba in vans.items()})
    rows = [["vans.tar", name, "photo_aerial", RESEARCH, 48, 32, "1.jpg", 0.9] for name in vans]
    header = ["tar", "file", "kind", "licence", "width", "height", "source_image", "box_iou"]
    _write_csv(folder / "cutouts_vehicles.csv", header, rows)
    places = {f"{place}_{number}.webp": ground(20 + number) for number in range(2)}
    _write_tar(folder / "places.tar", {name: _webp(rgb) for name, rgb in places.items()})
    header = ["tar", "file", "kind", "licence", "source", "width", "height"]
    lines = [["places.tar", name, "aerial", RESEARCH, "here", 160, 120] for name in places]
    _write_csv(folder / "backdrops_vehicles.csv", header, lines)
    street = name_on("validation", "cats_street_")
    photographs = folder / "photographs_vehicles"
    photographs.mkdir()
    picture = bright_photograph(street)
    _write_tar(photographs / "images.tar", {f"{street}.webp": _webp(picture.rgb)})
    _write_tar(photographs / "masks.tar", {f"{street}.png": _coded(".png", picture.labels)})
    row = [street, AERIAL_DATA_SET, "here", RESEARCH, 160, 120]
    _write_csv(photographs / "index.csv", ["file", "dataset", "source", "terms", "width", "height"], [row])
    for name in ("uav_quay_1", "uav_quay_2"):
        write_sequence(folder / "sequences_aerial" / name, bright_footage(name), RESEARCH)


def write_sequence(folder: Path, clip: Footage, terms: str, with_masks: bool = True) -> None:
    """A sequence's folder: video.mp4, meta.json and masks.npz."""
    folder.mkdir(parents=True)
    height, width = clip.frames[0].shape[:2]
    with VideoWriter(folder / "video.mp4", width, height, FPS, crf=8) as writer:
        for index, rgb in enumerate(clip.frames):
            writer.write(np.ascontiguousarray(rgb[..., ::-1]), index * NS // FPS)
    (folder / "meta.json").write_text(json.dumps({"name": clip.name, "terms": terms}))
    if not with_masks:
        return
    bits = {
        "bits" if number == 0 else f"bits_{number + 1}": np.packbits(
            np.stack(track).reshape(len(track), -1) > 0, axis=1
        )
        for number, track in enumerate(clip.tracks)
    }
    shape = np.array([len(clip.frames), height, width], np.int32)
    np.savez(folder / "masks.npz", shape=shape, **bits)


def _write_synthetic(folder: Path) -> None:
    folder.mkdir(parents=True)
    cutouts = list(_cutouts())
    for tar in {tar for tar, *_ in cutouts}:
        files = {f"{name}.webp": _webp(rgba) for other, name, _, _, rgba in cutouts if other == tar}
        _write_tar(folder / tar, files)
    rows = [
        [tar, f"{name}.webp", kind, licence, rgba.shape[1], rgba.shape[0]]
        for tar, name, kind, licence, rgba in cutouts
    ]
    _write_csv(folder / "cutouts.csv", ["tar", "file", "kind", "licence", "width", "height"], rows)
    names = [name_on("train", "field_"), name_on("validation", "moor_")]
    pictures = {f"{name}_{number}.webp": ground(number) for name in names for number in range(3)}
    _write_tar(folder / "backgrounds.tar", {name: _webp(rgb) for name, rgb in pictures.items()})
    header = ["tar", "file", "kind", "licence", "source", "width", "height"]
    lines = [["backgrounds.tar", name, "aerial", OPEN, "here", 160, 120] for name in pictures]
    _write_csv(folder / "backgrounds.csv", header, lines)


def _cutouts() -> Iterable[tuple[str, str, str, str, Bytes]]:
    """Tar, name, kind, licence, picture; numbered ones and colours of one mesh are one group each."""
    for side in ("train", "validation"):
        beast = name_on(side, "animals__", "photo:{}")
        for number, ending in enumerate(("", "-1", "-2")):
            yield "cutouts_photo.tar", beast + ending, "photo", "GPL-2.0-or-later", disc(40 + 8 * number)
        car = name_on(side, "car_", "render_aerial:{}")
        for colour, rgb in (("blue_1", (20, 40, 230)), ("red_12", (230, 30, 20)), ("white", (240, 240, 240))):
            yield "cutouts_render_aerial.tar", f"{car}_{colour}", "render_aerial", "CC-BY-4.0", plate(rgb)
    for terms, prefix in ((RESEARCH, "duck"), (UNKNOWN, "goose")):
        yield "cutouts_photo.tar", name_on("train", prefix, "photo:{}"), "photo", terms, disc(32)


def _write_photographs(folder: Path) -> None:
    """Two windows of one drive, which share a group, and single photographs."""
    folder.mkdir(parents=True)
    terms = {"camvid_0001_0": "CC BY-NC", "camvid_0001_1": "CC BY-NC", "single_7": OPEN, "single_8": RESEARCH}
    photographs = {stem: bright_photograph(stem) for stem in terms}
    images = {f"{stem}.webp": _webp(photograph.rgb) for stem, photograph in photographs.items()}
    masks = {f"{stem}.png": _coded(".png", photograph.labels) for stem, photograph in photographs.items()}
    _write_tar(folder / "images.tar", images)
    _write_tar(folder / "masks.tar", masks)
    rows = [[stem, "made", "here", text, 160, 120] for stem, text in terms.items()]
    _write_csv(folder / "index.csv", ["file", "dataset", "source", "terms", "width", "height"], rows)


def _webp(rgb: Bytes) -> bytes:
    """Lossless, so that pixels can be compared."""
    order = cv2.COLOR_RGBA2BGRA if rgb.shape[2] == 4 else cv2.COLOR_RGB2BGR
    return _coded(".webp", np.asarray(cv2.cvtColor(rgb, order), np.uint8), cv2.IMWRITE_WEBP_QUALITY, 101)


def _coded(suffix: str, image: Bytes, *flags: int) -> bytes:
    done, content = cv2.imencode(suffix, image, list(flags))
    assert done
    return content.tobytes()


def _write_tar(path: Path, files: dict[str, bytes]) -> None:
    with tarfile.open(path, "w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))


def _write_csv(path: Path, header: list[str], rows: Iterable[Iterable[object]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)
