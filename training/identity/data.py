"""Make crops of individuals that are seen several times, and whole images, to train the identity network on.

sources.csv lists the sources. OUT/NAME.tar gets a source's crops as JPEG images. OUT/NAME.csv contains each
crop's object and box (NAME_1, NAME_2, ... if there are many). A source with an existing table is left alone,
so that the same command adds what is missing. Data sets for judging trackers are refused.

Clips, cut-outs and photographs are read from one folder. It contains the input of `data`, training (as
collect writes it) and labelled (as label --restore writes it).
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import re
import sys
import tarfile
import tempfile
import zipfile
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import av
import cv2
import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.errors import InputError
from efftam_ros.tools.common.terminal import progress_bar
from efftam_workshop.eval.sequences import boxes_by_frame
from training.clones import Commit, find_clone
from training.labelling.reserved import refuse_reserved

SOURCES = Path(__file__).with_name("sources.csv")
COLUMNS = ("file", "group", "object", "frame", "x", "y", "w", "h", "kind", "image_w", "image_h", "cut")
KINDS = (
    "person",
    "vehicle",
    "aerial_vehicle",
    "drone",
    "bird",
    "animal",
    "sport",
    "thermal",
    "cutout",
    "other",
)
READERS = ("folders", "mot", "clips", "followed", "cutouts", "images")
OWN = ("DAVIS", "OTB", "UAV123")  # reserved data sets of which some sequences are for training

MARGIN = 0.4  # surroundings in a crop, as a share of the box's size, on each side
LONGEST = 160  # limit of a box's longer side in a crop, px
LONGEST_WHOLE = 128  # limit of an image's longer side, px, if the image shows one object alone
LONGEST_IMAGE = 480  # limit of a whole image's longer side, px
LEAST = 10  # limit of a box's shorter side in its image, px
MIN_VISIBLE = 0.5  # smallest visible share of a box, if the data set states it
MAX_CROPS = 30  # largest number of crops of an object
MAX_OBJECTS = 300  # largest number of objects of a video, or of an archive of cut-outs
CUT_OUT_VIEWS = 10  # number of views of each side of a cut-out
VEHICLE = re.compile(r"cats_v\w+_\d{5}")
QUALITY, IMAGE_QUALITY = 88, 80
ARCHIVE_BYTES = 52_000_000

KIND_OF_CLIP = (
    ("aerial_vehicle", r"uav123_(car|boat)"),
    ("sport", r"uav123_(bike|wakeboard)"),
    (
        "person",
        r"uav123_(person|group)|sbi_(Human|CAVIAR|CaV|Candela|IBM|Hall|Board)|ucsd_peds|segtrack_girl",
    ),
    (
        "person",
        r"BlurBody|Couple|David|DragonBaby|Jogging|Jumping|dance|hike|lucia|swing|stroller|rollerblade",
    ),
    ("sport", r"(?i)surf|hockey|tennis|soccer|stefan|bmx|motocross|bolt|motorrolling|paragliding|kite|biker"),
    ("sport", r"(?i)ucsd_(jump|cyclists)|horsejump|scooter|football|futebol|route_running|basketball|skat"),
    (
        "animal",
        r"(?i)animal|dog|cat|cow|bear|camel|elephant|rhino|panda|horse|flamingo|mallard|swan|sleap|fish",
    ),
    ("animal", r"(?i)poisson|mice|mouse|tracktor|underwater|zamba|raccoon|monkey|lapin"),
    ("bird", r"(?i)bird|flock|pigeon"),
    ("person", r"(?i)pedestr|walk|people|person|crowd|human|dancer|openpose|face|overpass|v_ZN|girl|man_"),
    (
        "vehicle",
        r"(?i)cdnet|highway|car|bus|boat|train|drift|motorbike|traffic|zodiac|vehicle|truck|road|lane",
    ),
)

Image = NDArray[np.uint8]
Box = tuple[float, float, float, float]
"""x, y, w, h in px of the image; x + w and y + h are exclusive."""


class View(NamedTuple):
    """An object in an image. ``image``: the image's name. ``box``: None if the image shows nothing else."""

    image: str
    frame: int
    box: Box | None = None


@dataclass
class Thing:
    """One individual. No other object with the same ``group`` is the same individual."""

    group: str
    name: str
    kind: str
    views: list[View] = field(default_factory=list)


class Footage(Protocol):
    def things(self) -> list[Thing]: ...

    def images(self, names: Sequence[str]) -> Iterator[tuple[str, Image]]:
        """Yield the images with these names in any order, each with its name: uint8 [h, w, 3], BGR."""
        ...


def write_crops(
    name: str, footage: Footage, out: Path, progress: Callable[[int], object] = lambda count: None
) -> tuple[int, int]:
    """Write NAME's crops; return the numbers of objects and crops.

    ``progress`` is called with the number of images just read.
    """
    wanted: dict[str, list[tuple[Thing, View]]] = defaultdict(list)
    for thing in most_seen(footage.things()):
        for view in spread(thing.views):
            wanted[view.image].append((thing, view))
    objects: set[tuple[str, str]] = set()
    crops = 0
    with Archive(out, name, COLUMNS) as archive:
        for key, image in footage.images(sorted(wanted)):
            for thing, view in wanted[key]:
                made = cut_out(image, view.box)
                if made is None:
                    continue
                crop, box, edge = made
                file = f"{thing.group}/{thing.name}/{view.frame:06d}_{crops:06d}.jpg"
                row = [thing.group, thing.name, view.frame, *(f"{value:.2f}" for value in box), thing.kind]
                archive.add(file, crop, [*row, crop.shape[1], crop.shape[0], int(edge)])
                objects.add((thing.group, thing.name))
                crops += 1
            progress(1)
    return len(objects), crops


def most_seen(things: Iterable[Thing]) -> list[Thing]:
    """Return the objects that are seen at least twice; of a video at most `MAX_OBJECTS`, the most seen."""
    groups: dict[str, list[Thing]] = defaultdict(list)
    for thing in things:
        if len(thing.views) > 1:
            groups[thing.group].append(thing)
    kept = []
    for group in groups.values():
        if group[0].views[0].box is not None:
            group = sorted(group, key=lambda thing: -len(thing.views))[:MAX_OBJECTS]
        kept += group
    return kept


def spread(views: list[View], most: int = MAX_CROPS) -> list[View]:
    """Return at most ``most`` of the views, spread over the whole time."""
    views = sorted(views, key=lambda view: view.frame)
    picked = np.linspace(0, len(views) - 1, min(most, len(views))).round().astype(int)
    return [views[i] for i in picked]


def cut_out(image: Image, box: Box | None) -> tuple[Image, Box, bool] | None:
    """Cut the box out of an image; return the crop, the box in it, and whether the box touches an edge.

    The crop has some surroundings and is scaled down if it is large. Returns None if too little of the box is
    in the image.
    """
    height, width = image.shape[:2]
    if box is None:
        crop = resized(image, LONGEST_WHOLE / max(width, height))
        return crop, (0.0, 0.0, float(crop.shape[1]), float(crop.shape[0])), False
    x, y, w, h = box
    x0, y0, x1, y1 = max(x, 0.0), max(y, 0.0), min(x + w, width), min(y + h, height)
    if min(x1 - x0, y1 - y0) < LEAST:
        return None
    edge = x < 1 or y < 1 or x + w > width - 1 or y + h > height - 1
    left, right = int(max(0, np.floor(x0 - MARGIN * w))), int(min(width, np.ceil(x1 + MARGIN * w)))
    top, bottom = int(max(0, np.floor(y0 - MARGIN * h))), int(min(height, np.ceil(y1 + MARGIN * h)))
    whole = image[top:bottom, left:right]
    crop = resized(whole, LONGEST / max(x1 - x0, y1 - y0))
    sx, sy = crop.shape[1] / whole.shape[1], crop.shape[0] / whole.shape[0]
    return crop, ((x0 - left) * sx, (y0 - top) * sy, (x1 - x0) * sx, (y1 - y0) * sy), edge


def resized(image: Image, scale: float) -> Image:
    """Return the image scaled by ``scale``, unchanged if ``scale`` is 1 or more."""
    if scale >= 1:
        return image
    size = max(1, round(image.shape[1] * scale)), max(1, round(image.shape[0] * scale))
    return np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA), np.uint8)


def decoded(content: bytes, flag: int = cv2.IMREAD_COLOR) -> Image | None:
    image = cv2.imdecode(np.frombuffer(content, np.uint8), flag)
    return None if image is None else np.asarray(image, np.uint8)


class Archive:
    """Writes NAME.tar and NAME.csv as a context, or NAME_1, ... if the tar gets too large.

    The files appear at the end of the context. After an exception nothing is written.
    """

    def __init__(self, out: Path, name: str, columns: Sequence[str], most: int = ARCHIVE_BYTES) -> None:
        self._out, self._name, self._columns, self._most = out, name, columns, most
        self._rows: list[list[Sequence[object]]] = []
        self._tar: tarfile.TarFile | None = None

    def __enter__(self) -> Archive:
        self._out.mkdir(parents=True, exist_ok=True)
        self._folder = tempfile.TemporaryDirectory(prefix=".identity_", dir=self._out)
        return self

    def add(self, file: str, image: Image, row: Iterable[object], quality: int = QUALITY) -> None:
        content = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, quality])[1].tobytes()
        if self._tar is None or self._tar.offset + len(content) > self._most:
            self._end_tar()
            self._rows.append([])
            self._tar = tarfile.open(self._part(len(self._rows)), "w", format=tarfile.USTAR_FORMAT)  # noqa: SIM115
        member = tarfile.TarInfo(file)
        member.size = len(content)
        self._tar.addfile(member, io.BytesIO(content))
        self._rows[-1].append((file, *row))

    def __exit__(self, error: object, *_: object) -> None:
        self._end_tar()
        for number, rows in enumerate(self._rows if error is None else [], start=1):
            name = self._name if len(self._rows) == 1 else f"{self._name}_{number}"
            self._part(number).rename(self._out / f"{name}.tar")
            with (self._out / f"{name}.csv").open("w", newline="") as file:
                csv.writer(file, lineterminator="\n").writerows([self._columns, *rows])
        self._folder.cleanup()

    def _part(self, number: int) -> Path:
        return Path(self._folder.name) / f"{number}.tar"

    def _end_tar(self) -> None:
        if self._tar is not None:
            self._tar.close()
        self._tar = None


# Readers of sources: each has the objects of a source and yields its images.


@dataclass
class Folders:
    """Images of a commit whose paths contain the object.

    ``pattern``: regular expression of the paths, with the group ``object`` and optionally ``frame``.
    """

    files: Commit
    pattern: str
    kind: str
    group: str

    def things(self) -> list[Thing]:
        things: dict[str, Thing] = {}
        for path in self.files.paths():
            match = re.fullmatch(self.pattern, path)
            if match is not None:
                found = match.groupdict()
                thing = things.setdefault(found["object"], Thing(self.group, found["object"], self.kind))
                thing.views.append(View(path, int(found.get("frame") or len(thing.views))))
        return list(things.values())

    def images(self, names: Sequence[str]) -> Iterator[tuple[str, Image]]:
        yield from _of_commit(self.files, names)


@dataclass
class Mot:
    """Sequences in the format of MOTChallenge.

    ``pattern``: regular expression of the paths of the files of boxes (gt.txt), whose images are in ../img1.
    """

    files: Commit
    pattern: str
    kind: str

    def things(self) -> list[Thing]:
        paths = self.files.paths()
        things: dict[tuple[str, str], Thing] = {}
        for truth in (path for path in paths if re.fullmatch(self.pattern, path)):
            folder = truth.rsplit("/", 2)[0]
            images = {int(Path(p).stem): p for p in paths if p.startswith(f"{folder}/img1/")}
            for line in self.files.read(truth).decode().splitlines():
                frame, target, x, y, w, h, considered, kind, visible = _mot_row(line)
                if considered and kind == 1 and visible >= MIN_VISIBLE and frame in images:
                    key = folder.replace("/", "_"), str(target)
                    thing = things.setdefault(key, Thing(*key, self.kind))
                    thing.views.append(View(images[frame], frame, (x - 1, y - 1, w, h)))
        return list(things.values())

    def images(self, names: Sequence[str]) -> Iterator[tuple[str, Image]]:
        yield from _of_commit(self.files, names)


def _mot_row(line: str) -> tuple[int, int, float, float, float, float, bool, int, float]:
    """Parse a line of MOTChallenge.

    Returns frame, target, x, y, w, h in px from 1, whether it counts, class (1: pedestrian), visible share.
    """
    v = [float(word) for word in line.split(",")] + [1.0, 1.0, 1.0]
    return int(v[0]), int(v[1]), v[2], v[3], v[4], v[5], v[6] > 0, int(v[7]), v[8]


def _of_commit(files: Commit, names: Sequence[str]) -> Iterator[tuple[str, Image]]:
    for name in names:
        image = decoded(files.read(name))
        if image is not None:
            yield name, image


@dataclass
class Clips:
    """Folders with video.mp4 and boxes.csv, boxes_2.csv, ..., or with img/ and groundtruth_rect.txt.

    Targets with a name in meta.json are the same individuals in all clips of a scene (NAME_1, NAME_2, ...).
    """

    folders: list[Path]

    def things(self) -> list[Thing]:
        things: dict[tuple[str, str], Thing] = {}
        for number, folder in enumerate(self.folders):
            path = folder / "meta.json"
            meta = json.loads(path.read_text()) if path.is_file() else {}
            names, remarks = meta.get("target_names", []), meta.get("figures", [])
            for target, boxes in enumerate(tracks(folder), start=1):
                if len(remarks) >= target and remarks[target - 1].get("remark", "whole") != "whole":
                    continue  # a part is not another individual than its whole
                key = (folder.name, str(target))
                if len(names) >= target:
                    key = (re.sub(r"_\d+$", "", folder.name), str(names[target - 1]))
                thing = things.setdefault(key, Thing(*key, kind_of_clip(folder.name)))
                thing.views += [
                    View(f"{folder.name}/{index:06d}", 1000 * number + index, box)
                    for index, box in enumerate(boxes)
                    if box is not None
                ]
        return list(things.values())

    def images(self, names: Sequence[str]) -> Iterator[tuple[str, Image]]:
        wanted = set(names)
        for folder in self.folders:
            for index, image in enumerate(frames(folder)):
                if (name := f"{folder.name}/{index:06d}") in wanted:
                    yield name, image


def kind_of_clip(name: str) -> str:
    return next((kind for kind, pattern in KIND_OF_CLIP if re.search(pattern, name)), "other")


def tracks(folder: Path) -> Iterator[list[Box | None]]:
    """Yield for each target of a clip its boxes by frame, None where it is not visible."""
    otb = folder / "groundtruth_rect.txt"
    if otb.is_file():
        yield [_seen(line.split(",")) for line in otb.read_text().splitlines()]
    for path in sorted(folder.glob("boxes*.csv"), key=lambda path: int(re.sub(r"\D", "", path.stem) or 1)):
        yield [_seen(box) for box in boxes_by_frame(path)]


def _seen(words: Iterable[str | float]) -> Box | None:
    x, y, w, h = (float(word) for word in words)
    return (x, y, w, h) if w > 0 and h > 0 else None  # NaN: not visible


def frames(folder: Path) -> Iterator[Image]:
    video = folder / "video.mp4"
    if video.is_file():
        yield from film(str(video))
    for path in sorted((folder / "img").glob("*")):
        image = decoded(path.read_bytes())
        if image is not None:
            yield image


def film(video: str | io.BytesIO) -> Iterator[Image]:
    with av.open(video) as container:
        for frame in container.decode(video=0):
            yield np.asarray(frame.to_ndarray(format="bgr24"), np.uint8)


@dataclass
class Followed:
    """Videos of commits with boxes of tracks.

    ``labels``: a zip file with one CSV file per video (frame, group, object, kind, x, y, w, h), and index.csv
    (file, repository, commit, path, terms).

    tracks.zip was made by NanoDet-m (416 px, score 0.4) on tiles of about every fifth frame. Boxes were
    linked if they overlapped by at least 0.3 and no other box came near (0.6 of that overlap). A track was
    kept if it moved by 0.4 of its size, and if the crops of its first and last third were similar (cosine
    0.6) for a network that tells people apart. The members of a group, VIDEO@N, are seen at one moment, so
    they are certainly different individuals.
    """

    labels: Path
    clones: Path

    def things(self) -> list[Thing]:
        things: dict[tuple[str, str], Thing] = {}
        with zipfile.ZipFile(self.labels) as archive:
            for source in _table(archive, "index.csv"):
                for row in _table(archive, source["file"]):
                    key = row["group"], row["object"]
                    thing = things.setdefault(key, Thing(*key, row["kind"]))
                    box = _seen([row[name] for name in "xywh"])
                    thing.views.append(View(f"{source['file']}/{row['frame']}", int(row["frame"]), box))
        return list(things.values())

    def images(self, names: Sequence[str]) -> Iterator[tuple[str, Image]]:
        wanted = set(names)
        with zipfile.ZipFile(self.labels) as archive:
            sources = _table(archive, "index.csv")
        for source in sources:
            last = max(
                (int(name.rpartition("/")[2]) for name in wanted if name.startswith(f"{source['file']}/")),
                default=-1,
            )
            git_dir = find_clone(self.clones, source["repository"])
            with Commit(git_dir, source["repository"], source["commit"]) as files:
                content = files.read(source["path"])
            for index, image in enumerate(film(io.BytesIO(content))):
                if index > last:
                    break
                if (name := f"{source['file']}/{index}") in wanted:
                    yield name, image


def _table(archive: zipfile.ZipFile, name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(archive.read(name).decode())))


@dataclass
class CutOuts:
    """Cut-outs with alpha on changing backgrounds; in each view turned, scaled, lit and blurred differently.

    ``sprites``: for each individual one or more images uint8 [h, w, 4], its sides. ``turning``: largest
    angle, degrees.
    """

    group: str
    sprites: dict[str, list[Image]]
    backdrops: list[Image]
    turning: float

    def things(self) -> list[Thing]:
        return [Thing(self.group, name, "cutout", self._views(name)) for name in self.sprites]

    def _views(self, name: str) -> list[View]:
        count = min(MAX_CROPS, CUT_OUT_VIEWS * len(self.sprites[name]))
        keys = (f"{name}#{i}" for i in range(count))
        return [View(key, number, self._placed(key)[1]) for number, key in enumerate(keys)]

    def images(self, names: Sequence[str]) -> Iterator[tuple[str, Image]]:
        for name in names:
            sprite, _, rng = self._placed(name)
            yield name, composed(sprite, self._backdrop(sprite.shape[:2], rng), rng)

    def _placed(self, name: str) -> tuple[Image, Box, np.random.Generator]:
        """Return the cut-out placed in an image uint8 [h, w, 4], its box, and the random generator."""
        rng = np.random.default_rng(zlib.crc32(name.encode()))
        sides = self.sprites[name.rpartition("#")[0]]
        sprite = sides[rng.integers(len(sides))]
        h, w = sprite.shape[:2]
        scale = float(np.exp(rng.uniform(np.log(24), np.log(150)))) / max(h, w)
        angle = rng.uniform(-self.turning, self.turning)
        matrix = cv2.getRotationMatrix2D((0, 0), angle, scale)[:, :2] @ (
            np.eye(2) + rng.uniform(-0.12, 0.12, (2, 2))
        )
        corners = matrix @ np.array([[0, w, 0, w], [0, 0, h, h]], float)
        room = np.ceil(np.ptp(corners, axis=1) * (2 + 2 * MARGIN)).astype(int)
        shift = room / 2 - (corners.max(axis=1) + corners.min(axis=1)) / 2
        way = cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR
        placed = np.asarray(
            cv2.warpAffine(sprite, np.column_stack([matrix, shift]), room.tolist(), flags=way), np.uint8
        )
        ys, xs = np.nonzero(placed[..., 3] > 64)
        if not len(xs):
            return placed, (0.0, 0.0, 0.0, 0.0), rng
        return placed, (float(xs.min()), float(ys.min()), float(np.ptp(xs) + 1), float(np.ptp(ys) + 1)), rng

    def _backdrop(self, size: tuple[int, ...], rng: np.random.Generator) -> Image:
        image = self.backdrops[rng.integers(len(self.backdrops))]
        scale = max(size[0] / image.shape[0], size[1] / image.shape[1])
        if scale > 1:
            image = np.asarray(cv2.resize(image, None, fx=scale + 0.01, fy=scale + 0.01), np.uint8)
        top, left = (int(rng.integers(0, image.shape[i] - size[i] + 1)) for i in (0, 1))
        return image[top : top + size[0], left : left + size[1]]


def composed(sprite: Image, backdrop: Image, rng: np.random.Generator) -> Image:
    """Return the cut-out over the background, with random light, tint, blur and noise."""
    alpha = sprite[..., 3:].astype(np.float32) / 255
    light = rng.uniform(0.65, 1.3) * rng.uniform(0.93, 1.07, 3)
    image = sprite[..., :3] * (light * alpha) + backdrop * (rng.uniform(0.8, 1.1) * (1 - alpha))
    image = np.asarray(cv2.GaussianBlur(image, (0, 0), rng.uniform(0.3, 1.2)))
    return np.asarray(np.clip(image + rng.normal(0, rng.uniform(0, 5), image.shape), 0, 255), np.uint8)


# The list of sources in sources.csv.


@dataclass(frozen=True)
class Source:
    """A row of the list of sources.

    ``pattern``: for the readers folders and mot a regular expression of paths; for followed the name of a
    file beside this module; for clips, cutouts and images one or more patterns of files in the folder of the
    material, separated by spaces.
    """

    name: str
    reader: str
    repository: str
    commit: str
    pattern: str
    kind: str
    licence: str
    terms: str
    objects: int
    crops: int


def read_sources(path: Path = SOURCES) -> list[Source]:
    """Read the list of sources. Raises InputError if a row is invalid or names a reserved data set."""
    names = [one.name for one in fields(Source)]
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        if reader.fieldnames != names:
            raise InputError(f"{path} needs the columns {','.join(names)}")
        sources = [_source(row, f"{path}, line {reader.line_num}") for row in reader]
    if len({source.name for source in sources}) < len(sources):
        raise InputError(f"{path} has a name more than once")
    return sources


def _source(row: dict[str, Any], where: str) -> Source:
    if None in row or None in row.values():
        raise InputError(f"{where} has not as many cells as there are columns")
    refuse_reserved(row.values(), where, OWN)
    if row["reader"] not in READERS or row["kind"] not in ("", *KINDS):
        raise InputError(
            f"{where}: {row['reader']!r} or {row['kind']!r} is none of {', '.join(READERS + KINDS)}"
        )
    if (row["reader"] in ("folders", "mot")) != bool(re.fullmatch(r"[0-9a-f]{40}", row["commit"])):
        raise InputError(f"{where}: folders and mot need a repository and a commit of 40 digits, others none")
    try:
        re.compile(row["pattern"])
        return Source(**{**row, "objects": int(row["objects"]), "crops": int(row["crops"])})
    except (ValueError, re.error):
        raise InputError(f"{where}: the counts are no numbers, or {row['pattern']!r} is no pattern") from None


def write(
    source: Source,
    out: Path,
    clones: Path | None,
    material: Path | None,
    progress: Callable[[int], object] = lambda count: None,
) -> tuple[int, int]:
    """Write a source's archives; return the numbers of objects and of images.

    Whole images count no objects. Raises InputError if the source's files are missing.
    """
    with ExitStack() as stack:
        if source.repository:
            git_dir = find_clone(_given(clones, "clones", source), source.repository)
            files = stack.enter_context(Commit(git_dir, source.repository, source.commit))
            if source.reader == "mot":
                return write_crops(source.name, Mot(files, source.pattern, source.kind), out, progress)
            folders = Folders(files, source.pattern, source.kind, source.name)
            return write_crops(source.name, folders, out, progress)
        if source.reader == "followed":
            labels = Path(__file__).with_name(source.pattern)
            return write_crops(source.name, Followed(labels, _given(clones, "clones", source)), out, progress)
        found = _found(source, _given(material, "material", source))
        if source.reader == "images":
            return 0, write_images(source.name, found, out, progress)
        if source.reader == "clips":
            return write_crops(source.name, Clips(found), out, progress)
        return write_crops(source.name, cut_outs(source.name, found), out, progress)


def _given(folder: Path | None, option: str, source: Source) -> Path:
    if folder is None:
        raise InputError(f"{source.name} is read from a folder; name it with --{option}")
    return folder


def _found(source: Source, material: Path) -> list[Path]:
    found = [path for pattern in source.pattern.split() for path in sorted(material.glob(pattern))]
    if not found:
        raise InputError(f"{source.name} has nothing in {material} that is named like {source.pattern}")
    return found


def cut_outs(name: str, archives: list[Path]) -> CutOuts:
    """Read tar files of cut-outs; the last tar file contains the backgrounds.

    Files STEM_01, STEM_02, ... are sides of one object. Vehicles are called PLACE_IIINN with the number III
    of the image and the number NN of the vehicle. One vehicle is seen in several images, so of each place
    only the image with most vehicles is used.
    """
    files = {Path(file).stem: content for path in archives[:-1] for file, content in members(path)}
    of_image = Counter(stem[:-2] for stem in files if VEHICLE.fullmatch(stem))
    fullest = {image[:-3]: image for image, _ in reversed(of_image.most_common())}
    sprites: dict[str, list[Image]] = defaultdict(list)
    for stem, content in files.items():
        image = decoded(content, cv2.IMREAD_UNCHANGED)
        if image is None or image.ndim != 3 or image.shape[2] != 4:
            continue
        if not VEHICLE.fullmatch(stem):
            sprites[re.sub(r"[-_]\d+$", "", stem)].append(image)
        elif fullest[stem[:-5]] == stem[:-2]:
            sprites[stem].append(image)
    names = sorted(sprites)
    picked = np.linspace(0, len(names) - 1, min(MAX_OBJECTS, len(names))).round().astype(int)
    backdrops = [image for _, content in members(archives[-1]) if (image := decoded(content)) is not None]
    from_above = any("aerial" in f"{path.parent.name}/{path.name}" for path in archives)
    kept = {names[i]: sprites[names[i]] for i in picked}
    return CutOuts(name, kept, backdrops, turning=180 if from_above else 30)


def members(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the names and contents of a tar file's members, ordered by name."""
    with tarfile.open(path) as archive:
        for member in sorted(archive.getmembers(), key=lambda member: member.name):
            file = archive.extractfile(member)
            if file is not None:
                yield member.name, file.read()


def write_images(name: str, paths: list[Path], out: Path, progress: Callable[[int], object]) -> int:
    """Write whole images, for random boxes; return their number.

    They are the images of tar files, and the first and the last image of videos.
    """
    count = 0
    with Archive(out, name, ("file", "source")) as archive:
        for path in paths:
            for source, image in _images_of(path):
                image = resized(image, LONGEST_IMAGE / max(image.shape[:2]))
                archive.add(f"{count:06d}.jpg", image, [f"{path.parent.name}/{source}"], IMAGE_QUALITY)
                count += 1
                progress(1)
    return count


def _images_of(path: Path) -> Iterator[tuple[str, Image]]:
    if path.suffix == ".tar":
        for file, content in members(path):
            image = decoded(content)
            if image is not None:
                yield file, image
        return
    images = list(film(str(path)))
    yield from ((path.name, image) for image in images[:: max(1, len(images) - 1)])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("out", type=Path, metavar="OUT", help="folder for the archives")
    parser.add_argument("names", nargs="*", metavar="NAME", help="names of sources; default: all")
    parser.add_argument("--clones", type=Path, metavar="FOLDER", help="clones OWNER+NAME, bare or not")
    parser.add_argument(
        "--material", type=Path, metavar="FOLDER", help="folder of clips, cut-outs and photographs"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


def run(args: argparse.Namespace) -> int:
    sources = read_sources(SOURCES)
    unknown = set(args.names) - {source.name for source in sources}
    if unknown:
        raise InputError(f"{min(unknown)} is no source of {SOURCES.name}")
    failures = 0
    for source in sources:
        there = any((args.out / f"{source.name}{end}.csv").is_file() for end in ("", "_1"))
        if there or (args.names and source.name not in args.names):
            continue
        try:
            with progress_bar(None, source.name, unit="image", quiet=args.quiet) as bar:
                objects, crops = write(source, args.out, args.clones, args.material, bar.update)
            print(f"{source.name}: {objects} objects, {crops} images")
        except InputError as error:
            failures += 1
            print(f"{source.name}: {error}", file=sys.stderr)
    return 1 if failures else 0
