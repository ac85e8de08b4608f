"""Reads sequences with ground truth: the package's format, DAVIS and OTB.

Boxes are used as published. OTB counts pixels from 1; this shifts both the truth and the prompt by one pixel.
"""

from __future__ import annotations

import codecs
import csv
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.errors import InputError, shown
from efftam_ros.images.levels import Levels
from efftam_ros.images.source import NS, VideoFrame
from efftam_ros.images.stills.folder import image_files, natural_key, read_bgr
from efftam_ros.images.video import open_video

FORMATS = "a folder with video.mp4 and boxes.csv, DAVIS or OTB"
DAVIS_FPS = 24.0
OTB_FPS = 30.0
# Largest frame number that is read from a table of boxes.
MAX_FRAMES = 1_000_000
MARKS = ("boxes.csv", "JPEGImages", "img")
# First and last frame with published ground truth, counted from 1, for the OTB sequences whose folder also
# has images without ground truth. Source: the benchmark's own list.
OTB_RANGES = {
    "david": (300, 770),
    "football1": (1, 74),
    "freeman3": (1, 460),
    "freeman4": (1, 283),
    "diving": (1, 215),
}


@dataclass(frozen=True)
class Sequence:
    """One target in one video.

    ``boxes``: float64 [N, 4] x, y, w, h in px, NaN where the target is absent. ``mask(index)``: the true
    mask, bool [H, W]; ``mask`` is None if the sequence has no masks. ``frames()`` yields the N frames.
    """

    name: str
    boxes: NDArray[np.float64]
    source: Callable[[], Iterator[VideoFrame]] = field(repr=False)
    mask: Callable[[int], NDArray[np.bool_]] | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.boxes)

    @property
    def video(self) -> str:
        """The video's name: the sequence's name without the target's number."""
        return self.name.partition("#")[0]

    def frames(self) -> Iterator[VideoFrame]:
        """Yield one frame per box. Raises InputError at the end of a video that is shorter."""
        count = 0
        for frame in self.source():
            if count == len(self.boxes):
                return
            yield frame
            count += 1
        if count < len(self.boxes):
            raise InputError(
                f"{self.name} has {len(self.boxes)} boxes but only {count} frames; give the whole video, or"
                " remove the last boxes"
            )


def find_sequences(folder: str | Path) -> list[Sequence]:
    """Return the sequences of a folder: a single sequence, a data set's root, or a folder of sequences.

    Raises InputError if there is none or one is invalid.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder; give {FORMATS}, or a folder of these")
    found = _read(folder)
    if not found:
        for child in sorted(
            (p for p in folder.iterdir() if _is_sequence(p)), key=lambda p: natural_key(p.name)
        ):
            found += _read(child)
    if not found:
        raise InputError(f"{folder} holds no sequence; give {FORMATS}, or a folder of these")
    return [_checked(sequence) for sequence in found]


def folders_read(folder: Path) -> list[Path]:
    """Return the folders whose files `find_sequences` reads: ``folder``, or those of sequences in it."""

    def is_read(one: Path) -> bool:
        return any((one / mark).exists() for mark in MARKS) or bool(image_files(one))

    return [folder] if is_read(folder) else [p for p in folder.iterdir() if p.is_dir() and is_read(p)]


def _is_sequence(path: Path) -> bool:
    """Return whether ``path`` may be the folder of a sequence. macOS adds copies like ._name to archives."""
    return path.is_dir() and path.name != "__MACOSX" and not path.name.startswith("._")


def _read(folder: Path) -> list[Sequence]:
    if (folder / "boxes.csv").is_file():
        others = sorted(folder.glob("boxes_*.csv"), key=lambda p: natural_key(p.name))
        if not others:
            return [read_own(folder)]
        return [read_own(folder, path) for path in [folder / "boxes.csv", *others]]
    if (folder / "JPEGImages").is_dir() and (folder / "Annotations").is_dir():
        return read_davis(folder)
    if (folder / "img").is_dir() and _otb_truths(folder):
        return read_otb(folder)
    parents = [parent.name for parent in folder.parents]
    if "JPEGImages" in parents and image_files(folder):  # ``folder`` is one sequence of DAVIS
        root = folder.parents[parents.index("JPEGImages") + 1]
        return [s for s in read_davis(root) if s.video == folder.name]
    return []


def read_own(folder: Path, table: Path | None = None) -> Sequence:
    """Read a sequence in the package's format.

    - video.mp4
    - boxes.csv with the columns ``frame,x,y,w,h``. Frames count from 0 and increase. With nan or without a
      row the target is absent.
    - masks.npz (optional) with ``shape`` [N, H, W] and ``bits``, one row of ``np.packbits`` per frame.

    ``table``: if there are several targets, the table of one of them: boxes.csv, boxes_2.csv, ... The
    sequences are then called ``name#1``, ``name#2``, ..., and only the first can have masks. Raises
    InputError if the video is missing, or if a table or the masks are invalid.
    """
    path = table or folder / "boxes.csv"
    boxes = boxes_by_frame(path)
    video = folder / "video.mp4"
    if not video.is_file():
        raise InputError(f"{video} is missing; put the video beside boxes.csv")
    number = path.stem.partition("_")[2]
    return Sequence(
        folder.name if table is None else f"{folder.name}#{number or 1}",
        boxes,
        lambda: open_video(video).frames(),
        None if number else _packed_masks(folder / "masks.npz", len(boxes)),
    )


def boxes_by_frame(path: Path) -> NDArray[np.float64]:
    """Read boxes x, y, w, h, float64 [N, 4], from a table with a column ``frame``.

    Frames without a row are NaN. Raises InputError for missing columns, invalid numbers, and frames that are
    not in increasing order.
    """
    found: dict[int, list[float]] = {}
    lines = table_lines(path)
    # Spreadsheets separate columns by a comma, a semicolon or a tab, depending on the user's language.
    separator = next((mark for mark in ",;\t" if lines and mark in lines[0]), ",")
    rows = csv.DictReader(lines, delimiter=separator)
    rows.fieldnames = [name.strip() for name in rows.fieldnames or ()]
    missing = [name for name in ("frame", *"xywh") if name not in rows.fieldnames]
    if missing:
        raise InputError(f"{path} has no column {missing[0]}; its first line must be frame,x,y,w,h")
    for row in rows:
        try:
            frame, box = int(row["frame"]), [float(row[k]) for k in "xywh"]
        except (TypeError, ValueError):
            values = ",".join(str(row[name] or "") for name in ("frame", *"xywh"))
            raise InputError(
                f"{path}, line {rows.line_num}: {shown(values)} is not a frame number and four numbers"
                " x,y,w,h, px; correct the line or remove it"
            ) from None
        if frame < 0 or frame <= max(found, default=-1):
            raise InputError(
                f"{path} has frame {frame} after {max(found, default='nothing')}; frame numbers must be 0 or"
                " more and increase"
            )
        if frame > MAX_FRAMES:
            raise InputError(f"{path} has the frame number {frame}; at most {MAX_FRAMES} is allowed")
        found[frame] = box
    boxes = np.full((max(found, default=-1) + 1, 4), np.nan)
    for frame, box in found.items():
        boxes[frame] = box
    return boxes


def table_lines(path: Path) -> list[str]:
    """Return the lines of a text file in UTF-8, or in UTF-16 with a byte order mark as spreadsheets write it.

    Raises InputError for other encodings.
    """
    data = path.read_bytes()
    encoding = "utf-16" if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"
    try:
        return data.decode(encoding).splitlines()
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path} is no text in UTF-8 or UTF-16 (byte {error.start}); save it as CSV in UTF-8"
        ) from None


def read_davis(root: Path) -> list[Sequence]:
    """Read DAVIS 2016 and 2017: JPEGImages/ and Annotations/, perhaps with a sub-folder for the resolution.

    A video with several objects becomes one sequence per object, ``name#1``, ``name#2``, ... Raises
    InputError if an annotation is missing.
    """
    sequences = []
    for images in sorted(
        (p for p in (root / "JPEGImages").glob("**/*") if p.is_dir()), key=lambda p: natural_key(p.name)
    ):
        annotations = root / "Annotations" / images.relative_to(root / "JPEGImages")
        files = image_files(images)
        if not files or not annotations.is_dir():
            continue
        labels = [annotations / f"{file.stem}.png" for file in files]
        missing = [label for label in labels if not label.is_file()]
        if missing:
            raise InputError(
                f"{missing[0]} is missing; DAVIS has an annotation for each of its {len(files)} images"
            )
        objects = sorted(int(i) for i in np.unique(_label_image(labels[0])) if i)
        for number in objects:
            masks = _label_masks(labels, number)
            name = images.name if len(objects) == 1 else f"{images.name}#{number}"
            boxes = np.array([mask_box(masks(i)) for i in range(len(files))])
            sequences.append(Sequence(name, boxes, _image_source(files, DAVIS_FPS), masks))
    return sequences


def read_otb(folder: Path) -> list[Sequence]:
    """Read OTB: img/ and groundtruth_rect.txt, or groundtruth_rect.1.txt, ... for several targets.

    Raises InputError if the numbers of boxes and images differ.
    """
    files = image_files(folder / "img")
    sequences = []
    truths = _otb_truths(folder)
    for truth in truths:
        boxes = read_boxes(truth)
        first, last = OTB_RANGES.get(folder.name.lower(), (1, len(files)))
        part = files[first - 1 : last] if len(files) > len(boxes) else files
        if len(part) != len(boxes):
            raise InputError(
                f"{truth} has {len(boxes)} boxes for {len(files)} images; they must be equal in number"
            )
        number = re.search(r"\.(\d+)\.txt$", truth.name)
        name = f"{folder.name}#{number[1]}" if number and len(truths) > 1 else folder.name
        sequences.append(Sequence(name, boxes, _image_source(part, OTB_FPS)))
    return sequences


def read_boxes(path: Path) -> NDArray[np.float64]:
    """Read boxes [N, 4] from a text file with four numbers per line; NaN where the target is absent.

    The numbers are separated by comma, tab, semicolon or space. A box that is NaN or has no area means that
    the target is absent. Raises InputError for other lines.
    """
    rows = []
    for number, line in enumerate(table_lines(path), start=1):
        numbers = [number for number in re.split(r"[,;\s]+", line.strip()) if number]
        if not numbers:
            continue
        try:
            row = [float(number) for number in numbers]
        except ValueError:
            row = []
        if len(row) != 4:
            raise InputError(
                f"{path}, line {number}: {line.strip()[:60]!r} is not a box; it needs four numbers x,y,w,h"
            )
        rows.append(row)
    boxes = np.array(rows, np.float64).reshape(-1, 4)
    with np.errstate(invalid="ignore"):
        boxes[~((boxes[:, 2] > 0) & (boxes[:, 3] > 0))] = np.nan
    return boxes


def mask_box(mask: NDArray[np.bool_]) -> tuple[float, float, float, float]:
    """Return the bounding box x, y, w, h of a mask in px; four NaN if the mask is empty."""
    columns, rows = np.flatnonzero(mask.any(axis=0)), np.flatnonzero(mask.any(axis=1))
    if not columns.size:
        return (float("nan"),) * 4
    x, y = float(columns[0]), float(rows[0])
    return x, y, columns[-1] + 1.0 - x, rows[-1] + 1.0 - y


def _checked(sequence: Sequence) -> Sequence:
    if len(sequence) < 2:
        raise InputError(f"{sequence.name} has {len(sequence)} frames; a sequence needs at least two")
    if not np.isfinite(sequence.boxes[0]).all():
        raise InputError(
            f"{sequence.name} has no box in its first frame, so nothing can be selected; remove its start"
        )
    if not np.isfinite(sequence.boxes[1:]).all(axis=1).any():
        raise InputError(f"{sequence.name} has no box after its first frame; there is nothing to score")
    return sequence


def _image_source(files: list[Path], fps: float) -> Callable[[], Iterator[VideoFrame]]:
    def frames() -> Iterator[VideoFrame]:
        levels = Levels()
        for index, file in enumerate(files):
            stamp_ns = round(index * NS / fps)
            yield VideoFrame(index, stamp_ns, read_bgr(file, levels, stamp_ns))

    return frames


def _otb_truths(folder: Path) -> list[Path]:
    return sorted(folder.glob("groundtruth_rect*.txt"), key=lambda p: natural_key(p.name))


def _packed_masks(path: Path, count: int) -> Callable[[int], NDArray[np.bool_]] | None:
    if not path.is_file():
        return None
    try:
        with np.load(path) as arrays:
            n, height, width = (int(v) for v in arrays["shape"])
            bits = arrays["bits"]
        if bits.shape != (n, (height * width + 7) // 8) or bits.dtype != np.uint8:
            raise ValueError(
                f"bits is {bits.dtype} {list(bits.shape)}, which does not fit {n} masks of {width} x {height}"
                " px"
            )
    except (OSError, KeyError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(f"{path} has no valid packed masks ({shown(error)}); write it again") from None
    if n != count:
        raise InputError(f"{path} has {n} masks for {count} boxes; they must be equal in number")

    def mask(index: int) -> NDArray[np.bool_]:
        return np.unpackbits(bits[index], count=height * width).reshape(height, width).astype(bool)

    return mask


def _label_masks(labels: list[Path], number: int) -> Callable[[int], NDArray[np.bool_]]:
    return lambda index: _label_image(labels[index]) == number


def _label_image(path: Path) -> NDArray[np.uint8]:
    """Read the object numbers of an annotation image, uint8 [H, W].

    The pixels of a palette image are object numbers. Black and white images of DAVIS 2016 give 0 and 255.
    """
    from PIL import Image

    with Image.open(path) as image:
        return np.asarray(image if image.mode in ("P", "L") else image.convert("L"), np.uint8)
