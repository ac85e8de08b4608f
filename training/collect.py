"""Collect footage from public repositories, for judging the tracker and for training.

footage_sources.csv lists the sequences. OUT/SET/NAME gets OTB's layout, img/0001.jpg ... and
groundtruth_rect.txt, which `efftam eval` reads. If a data set has masks, it gets video.mp4, masks.npz,
boxes.csv and meta.json instead. Existing sequences are kept, so that the same command adds what is missing.
"""

from __future__ import annotations

import argparse
import csv
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.errors import InputError
from efftam_ros.tools.common.terminal import progress_bar
from efftam_workshop.eval.sequences import DAVIS_FPS
from training.clones import HOST, Commit, cloned, find_clone
from training.labelling.clips import resized, write_clip
from training.labelling.reserved import refuse_reserved
from training.material import FOOTAGE_WIDTH

SOURCES = Path(__file__).with_name("footage_sources.csv")
USES = ("set1", "set2", "set3", "validation_a", "validation_b", "davis", "training")
MAX_FRAMES = 500  # largest number of frames of a sequence
MASKS = "davis_masks"
FORMATS = ("otb", "vot_polygon", "mot", MASKS)
OWN = ("DAVIS", "DTB70", "MOT15", "OTB", "UAV123", "UAVDT")  # reserved for labelling, but not for `collect`
IMAGE_STARTS = (b"\xff\xd8\xff", b"\x89PNG", b"BM")
VIDEO_CRF = 21

Box = tuple[float, float, float, float]
ABSENT: Box = (float("nan"),) * 4


class Truth(NamedTuple):
    """Where a target's boxes are.

    ``file``: path in the repository. ``target``: id of the target, 0 if the file has a single target.
    ``start``: line of the first image, counted from 1; in the format mot its frame number.
    """

    file: str
    target: int
    start: int


@dataclass(frozen=True)
class Source:
    """Where a sequence comes from: a row of the table.

    ``pattern``: printf pattern of the images' names. ``first``: number of the first image, to which the first
    line of the annotation belongs. ``annotation``: a file of boxes, or the folder of the masks.
    """

    sequence: str
    benchmark: str
    use: str
    repository: str
    commit: str
    folder: str
    pattern: str
    annotation: str
    format: str
    first: int
    frames: int
    terms: str

    @property
    def name(self) -> str:
        return f"{self.use}/{self.sequence}"

    def truth(self) -> Truth:
        match = re.fullmatch(r"(.+?)(?:#(\d+))?(?:@(\d+))?", self.annotation)
        file, target, start = match.groups() if match else (self.annotation, None, None)
        return Truth(file, int(target or 0), int(start or (self.first if self.format == "mot" else 1)))

    def images(self) -> list[str]:
        """Return the paths of the frames in the repository."""
        return [f"{self.folder}/{self.pattern % (self.first + i)}" for i in range(self.frames)]

    def masks(self) -> list[str]:
        return [f"{self.annotation}/{Path(image).stem}.png" for image in self.images()]


def read_sources(path: Path = SOURCES) -> list[Source]:
    """Read the table of sequences. Raises InputError if a row is invalid or repeated."""
    names = [field.name for field in fields(Source)]
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        if reader.fieldnames != names:
            raise InputError(f"{path} needs the columns {','.join(names)}")
        sources = [_source(row, f"{path}, line {reader.line_num}") for row in reader]
    double = [name for name, count in Counter(source.name for source in sources).items() if count > 1]
    if double:
        raise InputError(f"{path} has {double[0]} more than once")
    return sources


def _source(row: dict[str, Any], where: str) -> Source:
    if None in row or None in row.values():
        raise InputError(f"{where} has not as many cells as there are columns")
    try:
        source = Source(**{**row, "first": int(row["first"]), "frames": int(row["frames"])})
        source.pattern % source.first
    except (TypeError, ValueError):
        raise InputError(f"{where}: first, frames or pattern is not as in 1, 500, %04d.jpg") from None
    if not re.fullmatch(r"[0-9a-f]{40}", source.commit) or source.repository.count("/") != 1:
        raise InputError(f"{where} needs OWNER/NAME and a commit of 40 digits")
    refuse_reserved(row.values(), where, OWN)
    if source.use not in USES or source.format not in FORMATS:
        raise InputError(f"{where} needs one of {', '.join(USES)} and one of {', '.join(FORMATS)}")
    if (source.format == "mot") != ("#" in source.annotation):
        raise InputError(f"{where} needs FILE#ID as the annotation if its format is mot, and only then")
    if not 2 <= source.frames <= MAX_FRAMES:
        raise InputError(f"{where} has {source.frames} frames; it needs 2 to {MAX_FRAMES}")
    return source


def collect(
    sources: list[Source],
    out: Path,
    clones: Path | None = None,
    host: str = HOST,
    progress: Callable[[int], object] = lambda count: None,
) -> list[str]:
    """Write the sequences that OUT lacks; return one line for each failure.

    A failure does not stop the other sequences. ``progress`` is called with the number of sequences just
    finished.
    """
    failures = []
    missing = [source for source in sources if not (out / source.use / source.sequence).is_dir()]
    progress(len(sources) - len(missing))
    out.mkdir(parents=True, exist_ok=True)

    def place(source: Source) -> tuple[str, str]:
        return source.repository, source.commit

    for (repository, commit), group in groupby(sorted(missing, key=place), key=place):
        wanted = list(group)
        try:
            with _opened(repository, commit, wanted, clones, host) as files:
                for source in wanted:
                    try:
                        _write(source, files, out)
                    except InputError as error:
                        failures.append(f"{source.name}: {error}")
                    progress(1)
        except InputError as error:
            failures.append(f"{', '.join(source.name for source in wanted)}: {error}")
            progress(len(wanted))
    return failures


@contextmanager
def _opened(
    repository: str, commit: str, wanted: list[Source], clones: Path | None, host: str
) -> Iterator[Commit]:
    if clones is not None:
        with Commit(find_clone(clones, repository), repository, commit) as files:
            yield files
        return
    paths = {f"{source.folder}/" for source in wanted}
    paths |= {f"{s.annotation}/" if s.format == MASKS else s.truth().file for s in wanted}
    with (
        cloned(repository, commit, sorted(paths), host) as git_dir,
        Commit(git_dir, repository, commit) as files,
    ):
        yield files


def _write(source: Source, files: Commit, out: Path) -> None:
    """Write a sequence. Its folder gets its name only when it is complete."""
    with tempfile.TemporaryDirectory(prefix=".collect_", dir=out) as folder:
        part = Path(folder) / source.sequence
        (_write_masks if source.format == MASKS else _write_otb)(source, files, part)
        (out / source.use).mkdir(exist_ok=True)
        part.rename(out / source.use / source.sequence)


def _write_otb(source: Source, files: Commit, folder: Path) -> None:
    text = files.read(source.truth().file).decode("utf-8-sig", "replace")
    boxes = (_boxes_of_target if source.format == "mot" else _boxes)(source, text)
    (folder / "img").mkdir(parents=True)
    for number, path in enumerate(source.images(), start=1):
        (folder / "img" / f"{number:04d}{Path(path).suffix.lower()}").write_bytes(_image(files, path))
    lines = [",".join(f"{value:.10g}" for value in box) for box in boxes]
    (folder / "groundtruth_rect.txt").write_text("\n".join(lines) + "\n")


def _boxes(source: Source, text: str) -> list[Box]:
    """Return the boxes x, y, w, h of the frames, px as the data set counts them.

    A polygon gives its bounding box.
    """
    start = source.truth().start - 1
    lines = [line for line in text.splitlines() if line.strip()][start : start + source.frames]
    if len(lines) < source.frames:
        raise InputError(f"{source.annotation} has {len(lines)} lines for {source.frames} frames")
    return [_box(source, number, line) for number, line in enumerate(lines)]


def _box(source: Source, index: int, line: str) -> Box:
    row = _numbers(line)
    if source.format == "vot_polygon" and len(row) == 8:
        x, y = row[0::2], row[1::2]
        return min(x), min(y), max(x) - min(x), max(y) - min(y)
    if source.format == "otb" and len(row) == 4:
        return row[0], row[1], row[2], row[3]
    raise InputError(
        f"{source.annotation}: {line.strip()[:60]!r} is no {source.format} of frame {source.first + index}"
    )


def _boxes_of_target(source: Source, text: str) -> list[Box]:
    """Return the boxes of one target from lines "frame, id, x, y, w, h, ...".

    Frames without a line get `ABSENT`. Raises InputError if the first frame has no box.
    """
    _, target, start = source.truth()
    boxes: dict[float, Box] = {}
    for line in text.splitlines():
        row = _numbers(line)
        if row[1:2] == [target] and len(row) >= 6:
            boxes[row[0]] = (row[2], row[3], row[4], row[5])
    if start not in boxes:
        raise InputError(f"{source.annotation} has no box of frame {start}, where the sequence begins")
    return [boxes.get(number, ABSENT) for number in range(start, start + source.frames)]


def _numbers(line: str) -> list[float]:
    """Return the numbers in a line; an empty list if it contains anything else."""
    try:
        return [float(word) for word in re.split(r"[,;\s]+", line.strip()) if word]
    except ValueError:
        return []


def _image(files: Commit, path: str) -> bytes:
    content = files.read(path)
    if not content.startswith(IMAGE_STARTS):
        raise InputError(f"{path} is no JPEG, PNG or BMP image")
    return content


def _write_masks(source: Source, files: Commit, folder: Path) -> None:
    """Write the video, one merged mask of all objects per frame, the boxes and a description.

    Footage for training is reduced to the width at which training loads it. Other footage keeps its size.
    """
    first = _decoded(_image(files, source.images()[0]), cv2.IMREAD_COLOR, source.images()[0])
    size = _video_size(source, first.shape[1], first.shape[0])

    def pairs() -> Iterator[tuple[NDArray[np.uint8], NDArray[np.bool_]]]:
        for path, mask_path in zip(source.images(), source.masks(), strict=True):
            frame = _decoded(_image(files, path), cv2.IMREAD_COLOR, path)
            mask = _decoded(_image(files, mask_path), cv2.IMREAD_GRAYSCALE, mask_path)
            if mask.shape != frame.shape[:2]:
                raise InputError(f"{mask_path} is {mask.shape} px, its frame {frame.shape[:2]}")
            yield frame, (resized((mask > 0).astype(np.uint8) * np.uint8(255), size) > 127)[None]

    write_clip(folder, pairs(), _description(source, size), DAVIS_FPS, VIDEO_CRF)


def _decoded(content: bytes, flag: int, path: str) -> NDArray[np.uint8]:
    image = cv2.imdecode(np.frombuffer(content, np.uint8), flag)
    if image is None:
        raise InputError(f"{path} can't be decoded")
    return np.asarray(image, np.uint8)


def _video_size(source: Source, width: int, height: int) -> tuple[int, int]:
    scale = min(1.0, FOOTAGE_WIDTH / width) if source.use == "training" else 1.0
    return round(width * scale), round(height * scale)


def _description(source: Source, size: tuple[int, int]) -> dict[str, object]:
    return {
        "name": source.sequence,
        "data_set": source.benchmark,
        "source_repository": source.repository,
        "source_commit": source.commit,
        "source_path": f"{source.folder}, {source.annotation}",
        "terms": source.terms,
        "frame_range_in_source": [source.first, source.first + source.frames - 1],
        "ground_truth": "all annotated pixels of the frame merged; boxes.csv = tight box of the mask",
        "fps_nominal": DAVIS_FPS,
        "frames": source.frames,
        "width": size[0],
        "height": size[1],
        "has_masks": True,
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("out", type=Path, metavar="OUT", help="folder for the sequences")
    parser.add_argument(
        "--use", nargs="+", choices=USES, default=list(USES), metavar="SET", help=f"sets: {', '.join(USES)}"
    )
    parser.add_argument(
        "--clones",
        type=Path,
        metavar="FOLDER",
        help="read the clones FOLDER/OWNER+NAME, bare or not; default: clone what is needed from GitHub",
    )
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


def run(args: argparse.Namespace) -> int:
    sources = [source for source in read_sources() if source.use in args.use]
    with progress_bar(len(sources), "collecting", unit="sequence", quiet=args.quiet) as bar:
        failures = collect(sources, args.out, args.clones, progress=bar.update)
    for use in sorted(set(args.use)):
        of_use = [source for source in sources if source.use == use]
        there = sum((args.out / use / source.sequence).is_dir() for source in of_use)
        print(f"{args.out / use}: {there} of {len(of_use)} sequences")
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures else 0
