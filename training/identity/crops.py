"""Reads the material of a training run into memory: pictures of objects with some of their surroundings."""

from __future__ import annotations

import csv
import hashlib
import tarfile
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.errors import InputError

# Side to which a picture is resized, px. The box in it is then about as large as the network's input.
CANVAS = 176
# A group with more objects is a collection, of which single objects are held out.
LARGE = 200
HELD_OUT = 10  # one group in this many is held out: it is not trained on


@dataclass(frozen=True)
class Pictures:
    """Pictures of objects.

    ``pixels``: uint8 [n,CANVAS,CANVAS,3] BGR. ``boxes``: float32 [n,4], left, top, right, bottom as shares of
    the picture. ``objects``, ``groups``: int64 [n], numbers of the object and of its footage; two objects of
    one group are never the same individual. ``frames``: float64 [n], order in the footage. ``kinds``: [n],
    names. ``held``: bool [n], True for pictures that are not trained on.
    """

    pixels: NDArray[np.uint8]
    boxes: NDArray[np.float32]
    objects: NDArray[np.int64]
    groups: NDArray[np.int64]
    frames: NDArray[np.float64]
    kinds: NDArray[np.str_]
    held: NDArray[np.bool_]


def is_held_out(group: str) -> bool:
    """Return whether footage is held out for validation, by a hash of its name: the same in each run."""
    return int(hashlib.sha256(group.encode()).hexdigest(), 16) % HELD_OUT == 0


def load_pictures(folder: Path) -> Pictures:
    """Read all pairs NAME.csv and NAME.tar of a folder except images*. Raises InputError if there is none."""
    pixels, rows = [], []
    for table in sorted(folder.glob("*.csv")):
        if not table.stem.startswith("images"):
            with table.open(newline="", encoding="utf-8") as file:
                found = list(csv.DictReader(file))
            pixels.append(_read(table.with_suffix(".tar"), [row["file"] for row in found]))
            source = table.stem.split("__")[0]
            rows += [{**row, "group": f"{source}/{row['group']}"} for row in found]
    if not rows:
        raise InputError(
            f"{folder} has no pictures of objects; make them with `python -m training identity data`"
        )
    size = np.array([[float(row["image_w"]), float(row["image_h"])] for row in rows], np.float32)
    corner = np.array([[float(row["x"]), float(row["y"])] for row in rows], np.float32)
    extent = np.array([[float(row["w"]), float(row["h"])] for row in rows], np.float32)
    boxes = np.concatenate([corner / size, (corner + extent) / size], 1)
    names = [row["group"] for row in rows]
    return Pictures(
        np.concatenate(pixels),
        boxes,
        np.unique([f"{row['group']}\n{row['object']}" for row in rows], return_inverse=True)[1],
        np.unique(names, return_inverse=True)[1],
        np.array([float(row["frame"]) for row in rows]),
        np.array([row["kind"] for row in rows]),
        np.array([is_held_out(unit) for unit in _units(rows)]),
    )


def _units(rows: Sequence[dict[str, str]]) -> list[str]:
    """Return for each row what is held out as a whole: its footage, or its object in a large collection."""
    objects = Counter(group for group, _ in {(row["group"], row["object"]) for row in rows})
    large = {group for group, count in objects.items() if count > LARGE}
    return [row["group"] + (f"/{row['object']}" if row["group"] in large else "") for row in rows]


def load_images(folder: Path) -> NDArray[np.uint8]:
    """Read whole images, from which random boxes are cut: uint8 [n,h,w,3] BGR, all resized to one size."""
    found: list[NDArray[np.uint8]] = []
    for table in sorted(folder.glob("images*.csv")):
        with table.open(newline="", encoding="utf-8") as file:
            names = [row["file"] for row in csv.DictReader(file)]
        found.append(_read(table.with_suffix(".tar"), names, (384, 288)))
    return np.concatenate(found) if found else np.zeros((0, 288, 384, 3), np.uint8)


def _read(archive: Path, names: Sequence[str], size: tuple[int, int] = (CANVAS, CANVAS)) -> NDArray[np.uint8]:
    with tarfile.open(archive) as tar:
        content = {m.name: f.read() for m in tar if m.isfile() and (f := tar.extractfile(m)) is not None}

    def decoded(name: str) -> NDArray[np.uint8]:
        image = cv2.imdecode(np.frombuffer(content[name], np.uint8), cv2.IMREAD_COLOR)
        if image is None:
            raise InputError(f"{name} of {archive} is not an image; make the archive again")
        is_smaller = image.shape[1] > size[0]
        interpolation = cv2.INTER_AREA if is_smaller else cv2.INTER_LINEAR
        return np.asarray(cv2.resize(image, size, interpolation=interpolation), np.uint8)

    with ThreadPoolExecutor() as pool:
        out = np.empty((len(names), size[1], size[0], 3), np.uint8)
        for index, picture in enumerate(pool.map(decoded, names)):
            out[index] = picture
    return out
