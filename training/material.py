"""Pack the folders of cut-outs, photographs and footage into one file, the training dataset.

`pack_material` writes a ZIP archive with an index that contains every item's group, split and licence.
`load_material` decodes one split. Items of one group (crops of one photograph, renderings of one mesh,
windows of one scene) are always in the same split.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import io
import json
import re
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.errors import InputError

Bytes = NDArray[np.uint8]
MATERIAL = Path("runs/material.zip")

REQUIRED_FOLDERS = ("synthetic", "real_masks", "sequences", "sequences_train")
DAVIS_TRAINED_ON = (
    "blackswan",
    "camel",
    "car-roundabout",
    "drift-straight",
    "horsejump-high",
    "motocross-jump",
)
VALIDATION_SCENES = ("sbi_CAVIAR2", "sbi_HumanBody2", "ucsd_boats", "ucsd_cyclists", "ucsd_jump")
CUT_OUT_APART = ("CATS drone view vehicles", "Aerial cars (jekhor)")
"""Data sets of photographs whose objects are also packed as cut-outs and would otherwise count twice."""
VALIDATION_SHARE = 10  # one group in ten is for validation
OPEN_TERMS = re.compile(r"CC0|CC-BY|CC BY|MIT|BSD|GPL|public domain", re.IGNORECASE)
RESEARCH_TERMS = re.compile(r"research|no licence|Flickr|non-commercial|-NC|citation", re.IGNORECASE)

SPRITE_SIDE = 152  # longest side of a cut-out, px
FOOTAGE_WIDTH = 480  # largest width of a frame, px; the network's input has 192
MIN_OBJECT = 150  # smallest area of an object in a photograph, px
IGNORED = 255  # label of pixels that count neither as object nor as background


@dataclass(frozen=True)
class Sprite:
    """A cut-out: ``rgba`` uint8 [h,w,4], in RGB order with straight alpha, tightly cropped."""

    rgba: Bytes
    name: str
    kind: str


@dataclass(frozen=True)
class Backdrop:
    """A photograph that is a background for cut-outs: ``rgb`` uint8 [h,w,3]."""

    rgb: Bytes
    name: str
    kind: str


@dataclass(frozen=True)
class Photograph:
    """A photograph: ``rgb`` uint8 [h,w,3]; ``labels`` uint8 [h,w], 0 background, 1..n objects, 255
    ignored."""

    rgb: Bytes
    labels: Bytes
    name: str


@dataclass(frozen=True)
class Footage:
    """A clip: ``frames`` uint8 [h,w,3] RGB; ``tracks``, for each target its masks uint8 [h,w], 0 or 255."""

    frames: list[Bytes]
    tracks: list[list[Bytes]]
    name: str
    scene: str


@dataclass
class Material:
    """One split of the dataset, decoded."""

    sprites: list[Sprite] = field(default_factory=list)
    backdrops: list[Backdrop] = field(default_factory=list)
    photographs: list[Photograph] = field(default_factory=list)
    footage: list[Footage] = field(default_factory=list)

    def summary(self) -> str:
        tracks = sum(len(clip.tracks) for clip in self.footage)
        return (
            f"{len(self.sprites)} cut-outs, {len(self.backdrops)} backdrops,"
            f" {len(self.photographs)} photographs, {len(self.footage)} clips with {tracks} tracks"
        )


def split_of(group: str) -> str:
    """Return "validation" for one group in ten, else "train"; it depends only on the group's name."""
    digest = int.from_bytes(hashlib.sha256(group.encode()).digest()[:4], "big")
    return "validation" if digest % VALIDATION_SHARE == 0 else "train"


def is_open(terms: str) -> bool:
    """Return whether documented terms permit more than research. Unknown terms count as research only."""
    return bool(OPEN_TERMS.search(terms)) and not RESEARCH_TERMS.search(terms)


def scene_of(clip: str) -> str:
    """Return the scene of a clip, its name without the number: ``cdnet_highway`` for ``cdnet_highway_10``."""
    return re.sub(r"_\d+$", "", clip)


def pack_material(source: Path, out: Path, progress: Callable[[], object] = lambda: None) -> dict[str, int]:
    """Pack the folders under ``source`` into the archive ``out``.

    Returns the number of items by type and split. The folders are ``synthetic``, ``real_masks``,
    ``sequences``, ``sequences_train`` and optionally ``aerial`` and ``more``. Sequences without masks are
    left out; of ``sequences`` only `DAVIS_TRAINED_ON` are packed, because the others are for evaluation.
    Raises InputError if a folder is missing, or a tar or member that an index names.
    """
    for name in REQUIRED_FOLDERS:
        if not (source / name).is_dir():
            raise InputError(f"{source} has no folder {name}; see training/README.md for what data needs")
    index: list[dict[str, str]] = []
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.with_suffix(".part")
    with zipfile.ZipFile(partial, "w", zipfile.ZIP_STORED) as archive:
        for item, files in _items(source):
            for name, content in files.items():
                archive.writestr(name, content)
            index.append(item)
            progress()
        archive.writestr("index.json", json.dumps(index, indent=0))
    partial.replace(out)
    counts: dict[str, int] = {}
    for item in index:
        key = f"{item['type']} {item['split']}"
        counts[key] = counts.get(key, 0) + 1
    return counts


def _items(source: Path) -> Iterator[tuple[dict[str, str], dict[str, bytes]]]:
    yield from _cutouts(source / "synthetic" / "cutouts.csv")
    yield from _backdrops(source / "synthetic" / "backgrounds.csv")
    yield from _photographs(source / "real_masks")
    for name in DAVIS_TRAINED_ON:
        yield _clip(source / "sequences" / name, "davis", "CC BY 4.0 (DAVIS)")
    yield from _clips(source / "sequences_train", "footage")
    # All of these are for training: a new held-out item would change the validation clips and their scores.
    for folder, items in (("aerial", _aerial_items), ("more", _more_items)):
        if (source / folder).is_dir():
            for item, files in items(source / folder):
                item["split"] = "train"
                yield item, files


def _more_items(folder: Path) -> Iterator[tuple[dict[str, str], dict[str, bytes]]]:
    yield from _photographs(folder / "photographs")
    yield from _clips(folder / "sequences", "footage")


def _aerial_items(folder: Path) -> Iterator[tuple[dict[str, str], dict[str, bytes]]]:
    yield from _cutouts(folder / "cutouts_vehicles.csv")
    yield from _backdrops(folder / "backdrops_vehicles.csv")
    yield from _photographs(folder / "photographs_vehicles")
    yield from _clips(folder / "sequences_aerial", "aerial")


class _Tars:
    """Reads members of the tar files in one folder; each tar file is read once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tars: dict[str, dict[str, bytes]] = {}

    def member(self, tar: str, name: str) -> bytes:
        """Return the content of a member. Raises InputError if the tar file or the member does not exist."""
        path = self._folder / tar
        if tar not in self._tars:
            if not path.is_file():
                raise InputError(f"there is no {path}, which an index in {self._folder} names; add it")
            self._tars[tar] = _members(path)
        if name not in self._tars[tar]:
            raise InputError(f"{path} has no member {name}, which an index in {self._folder} names; add it")
        return self._tars[tar][name]


def _members(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as tar:
        files = ((member.name, tar.extractfile(member)) for member in tar.getmembers())
        return {name: file.read() for name, file in files if file is not None}


def _cutouts(index: Path) -> Iterator[tuple[dict[str, str], dict[str, bytes]]]:
    tars = _Tars(index.parent)
    for row in csv.DictReader(index.open()):
        stem = Path(row["file"]).stem
        # Renderings of one mesh, and views of one animal, have names that differ in a final number or colour.
        group = re.sub(r"[-_]?\d+$", "", stem)
        if row["kind"] == "render_aerial":
            group = re.sub(r"_(blue|red|white|black|green)$", "", group)
        name = f"cutouts/{row['kind']}/{row['file']}"
        item = _item("cutout", name, row["kind"], f"{row['kind']}:{group}", row["licence"])
        yield item, {name: tars.member(row["tar"], row["file"])}


def _backdrops(index: Path) -> Iterator[tuple[dict[str, str], dict[str, bytes]]]:
    tars = _Tars(index.parent)
    for row in csv.DictReader(index.open()):
        group = re.sub(r"_\d+$", "", Path(row["file"]).stem)
        name = f"backdrops/{row['file']}"
        item = _item("backdrop", name, row["kind"], group, row["licence"])
        yield item, {name: tars.member(row["tar"], row["file"])}


def _photographs(folder: Path) -> Iterator[tuple[dict[str, str], dict[str, bytes]]]:
    tars = _Tars(folder)
    for row in csv.DictReader((folder / "index.csv").open()):
        stem = row["file"]
        group = stem.rpartition("_")[0] if stem.startswith("camvid") else stem
        name = f"photographs/{stem}.webp"
        item = _item("photograph", name, row["dataset"], group, row["terms"])
        item["masks"] = f"photographs/{stem}.png"
        image, masks = tars.member("images.tar", f"{stem}.webp"), tars.member("masks.tar", f"{stem}.png")
        yield item, {name: image, item["masks"]: masks}


def _clips(folder: Path, kind: str) -> Iterator[tuple[dict[str, str], dict[str, bytes]]]:
    """Yield the clips of a folder that have masks."""
    for clip in sorted(folder.iterdir()):
        if (clip / "masks.npz").exists():
            yield _clip(clip, kind, json.loads((clip / "meta.json").read_text())["terms"])


def _clip(folder: Path, kind: str, terms: str) -> tuple[dict[str, str], dict[str, bytes]]:
    scene = scene_of(folder.name)
    name = f"footage/{folder.name}.mp4"
    item = _item("footage", name, kind, scene, terms)
    item["split"] = "validation" if scene in VALIDATION_SCENES else "train"
    item["masks"] = f"footage/{folder.name}.npz"
    return item, {
        name: (folder / "video.mp4").read_bytes(),
        item["masks"]: (folder / "masks.npz").read_bytes(),
    }


def _item(type_: str, name: str, kind: str, group: str, terms: str) -> dict[str, str]:
    return {
        "type": type_,
        "file": name,
        "kind": kind,
        "group": group,
        "split": split_of(group),
        "terms": terms,
        "use": "open" if is_open(terms) else "research",
    }


def require_archive(path: Path) -> None:
    """Raise InputError if the dataset archive does not exist."""
    if not path.is_file():
        raise InputError(f"there is no dataset {path}; make it with python -m training data")


def load_material(path: Path, split: str = "train", open_only: bool = False) -> Material:
    """Decode one split, "train" or "validation". ``open_only`` leaves out items licensed for research only.

    Raises InputError if the archive is missing or damaged, or has no cut-outs or no backgrounds of the split.
    """
    require_archive(path)
    material = Material()
    try:
        with zipfile.ZipFile(path) as archive:
            for item in json.loads(archive.read("index.json")):
                if item["split"] == split and (item["use"] == "open" or not open_only):
                    _add(material, item, archive)
    except (zipfile.BadZipFile, KeyError) as error:
        raise InputError(
            f"{path} is not a complete dataset archive ({error}); make it again with python -m training data"
        ) from None
    if not material.sprites or not material.backdrops:
        raise InputError(f"{path} has no cut-outs or no backgrounds of the split {split!r}; pack it again")
    return material


def _add(material: Material, item: dict[str, str], archive: zipfile.ZipFile) -> None:
    content, name = archive.read(item["file"]), Path(item["file"]).stem
    if item["type"] == "cutout":
        material.sprites.append(Sprite(_decode(content, alpha=True), name, item["kind"]))
    elif item["type"] == "backdrop":
        material.backdrops.append(Backdrop(_decode(content), name, item["kind"]))
    elif item["type"] == "photograph":
        photograph = Photograph(_decode(content), _picture(archive.read(item["masks"])), name)
        if photograph.rgb.shape[:2] == photograph.labels.shape:
            material.photographs.append(photograph)
            if item["kind"] not in CUT_OUT_APART:
                material.sprites.extend(objects_of(photograph))
    else:
        material.footage.append(_footage(content, archive.read(item["masks"]), name, item["group"]))


def _decode(content: bytes, alpha: bool = False) -> Bytes:
    image = _picture(content, cv2.IMREAD_UNCHANGED if alpha else cv2.IMREAD_COLOR)
    if alpha and image.shape[2] == 3:
        image = np.asarray(cv2.cvtColor(image, cv2.COLOR_BGR2BGRA), np.uint8)
    rgb = cv2.cvtColor(image, cv2.COLOR_BGRA2RGBA if alpha else cv2.COLOR_BGR2RGB)
    return np.asarray(rgb, np.uint8)


def _picture(content: bytes, flag: int = cv2.IMREAD_UNCHANGED) -> Bytes:
    image = cv2.imdecode(np.frombuffer(content, np.uint8), flag)
    if image is None:
        raise InputError("the dataset has an image that can't be decoded; pack it again")
    return np.asarray(image, np.uint8)


def objects_of(photograph: Photograph) -> Iterable[Sprite]:
    """Yield as cut-outs the complete objects of a photograph, which do not touch its border."""
    height, width = photograph.labels.shape
    for label in range(1, int(photograph.labels[photograph.labels != IGNORED].max(initial=0)) + 1):
        mask = photograph.labels == label
        if mask.sum() < 400 or mask.mean() > 0.45:
            continue
        x0, y0, x1, y1 = mask_bounds(mask)
        if x0 <= 1 or y0 <= 1 or x1 >= width - 1 or y1 >= height - 1:
            continue
        alpha = mask[y0:y1, x0:x1, None].astype(np.uint8) * 255
        rgba = np.concatenate([photograph.rgb[y0:y1, x0:x1], alpha], 2)
        shrink = min(1.0, SPRITE_SIDE / max(rgba.shape[:2]))
        if shrink < 1:
            rgba = cv2.resize(rgba, None, fx=shrink, fy=shrink, interpolation=cv2.INTER_AREA)
        yield Sprite(np.asarray(rgba, np.uint8), f"{photograph.name}#{label}", "real")


def mask_bounds(mask: NDArray[Any]) -> tuple[int, int, int, int]:
    """Return left, top, right, bottom of a non-empty mask, right and bottom exclusive."""
    rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
    return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1


def _footage(video: bytes, masks: bytes, name: str, scene: str) -> Footage:
    with av.open(io.BytesIO(video)) as container:
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    stored = np.load(io.BytesIO(masks))
    count, height, width = (int(n) for n in stored["shape"])
    scale = min(1.0, FOOTAGE_WIDTH / width)
    size = (round(width * scale), round(height * scale))
    tracks = []
    for key in stored.files:
        if key.startswith("bits"):
            bits = np.unpackbits(stored[key], axis=1, count=height * width).reshape(count, height, width)
            tracks.append([_shrunk(mask * np.uint8(255), size) for mask in bits[: len(frames)]])
    return Footage([_shrunk(frame, size) for frame in frames[:count]], tracks, name, scene)


def _shrunk(image: Bytes, size: tuple[int, int]) -> Bytes:
    if image.shape[1::-1] == size:
        return image
    return np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA), np.uint8)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source", type=Path, help="holds the folders synthetic, real_masks, sequences and sequences_train"
    )
    parser.add_argument("--out", type=Path, default=MATERIAL, help="default %(default)s")


def run(args: argparse.Namespace) -> int:
    from tqdm import tqdm

    with tqdm(desc="packing", unit="item", delay=0.1) as bar:  # an early error shows no bar
        counts = pack_material(args.source, args.out, bar.update)
    for kind, count in sorted(counts.items()):
        print(f"{kind:24}{count:6}")
    print(f"{args.out}: {args.out.stat().st_size / 1e6:.1f} MB")
    return 0
