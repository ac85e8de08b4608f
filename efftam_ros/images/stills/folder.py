"""Reads still pictures as a video: a folder of images, or one file with one or several pictures."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatch
from fractions import Fraction
from itertools import accumulate
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.errors import InputError
from efftam_ros.images.headers import check_size, coded_size
from efftam_ros.images.levels import AUTO, Levels
from efftam_ros.images.source import NS, Report, VideoFrame, checked_rate, no_report
from efftam_ros.images.stills.exif import exif_note, orientation_of
from efftam_ros.images.stills.jpeg import START, jpeg_end
from efftam_ros.images.stills.pages import follows_another, pages_of

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff", ".webp", ".gif", ".ppm", ".pgm")
FOLDER_FPS = 30.0
# Names of files that are no images, but often lie in a folder of images. SIDE_FILE: metadata that macOS
# stores for each image. LEFT_FILES: files that file managers make.
SIDE_FILE, LEFT_FILES = "._*", ("Thumbs.db", "desktop.ini", ".DS_Store")
FLAGS = cv2.IMREAD_COLOR | cv2.IMREAD_ANYDEPTH | cv2.IMREAD_IGNORE_ORIENTATION
# For each orientation of a TIFF, the rotation that reverses it. OpenCV always applies the orientation.
_TURNS = {3: cv2.ROTATE_180, 6: cv2.ROTATE_90_COUNTERCLOCKWISE, 8: cv2.ROTATE_90_CLOCKWISE}


class StillPictures:
    """A `VideoSource` of still pictures, which must all have one size.

    The pictures are those of a folder, in natural order (2 before 10), or those of one file. Each file may
    hold several pictures.

    ``fps``: images per second. With None, an animated WebP keeps the times that it contains, and every other
    source has 30 images per second. ``levels``: range of 16-bit images, see `fixed_range`. ``report`` is
    called with a line when the EXIF orientation changes.
    """

    pixel_ratio = Fraction(1)
    is_whole = True  # an image that can't be read is an error, so no image is left out

    def __init__(
        self, path: Path, fps: float | None = None, levels: str = AUTO, report: Report = no_report
    ) -> None:
        self.path, self.name, self._report = path, str(path), report
        self.fps, self._levels = checked_rate(FOLDER_FPS if fps is None else fps), levels
        self._is_folder = path.is_dir()
        self.files = image_files(path) if self._is_folder else [path]
        if not self.files:
            raise InputError(f"{path} holds no images ({', '.join(s[1:] for s in IMAGE_SUFFIXES)})")
        self._pages = {file: pages for file in self.files if (pages := pages_of(file))}
        self._stamps_ns = self._own_stamps() if fps is None else None
        self._is_given = fps is not None
        self.height, self.width = next(self._pictures(self.files[0], Levels(levels), 0)).shape[:2]
        self._orientation = _orientation_of(self.files[0])

    @property
    def count(self) -> int | None:
        return sum(self._pages[file].count if file in self._pages else 1 for file in self.files)

    @property
    def note(self) -> str:
        notes = [exif_note(self._orientation)]
        if self._is_folder and (others := side_files(self.path)):
            notes.append(f"{len(others)} files are skipped, because they are no images: {others[0].name} ...")
        if not self._is_folder and not self._is_given and self._pages and self._stamps_ns is None:
            notes.append(
                f"has no time stamps: {self.fps:g} images per second are assumed; if that is wrong, give"
                " --fps"
            )
        return "; ".join(filter(None, notes))

    def frames(self, start: int = 0) -> Iterator[VideoFrame]:
        period = Fraction(NS) / Fraction(self.fps).limit_denominator(1_000_000)
        levels, index = Levels(self._levels), 0
        for file in self.files:
            pages = self._pages.get(file)
            if pages is None and index < start:
                index += 1
                continue
            self._check_orientation(file)
            for bgr in self._pictures(file, levels, round(index * period)):
                if bgr.shape[:2] != (self.height, self.width):
                    raise InputError(
                        f"{file} is {bgr.shape[1]}x{bgr.shape[0]} px, the first image"
                        f" {self.width}x{self.height} px; all images of a"
                        f" {'folder' if self._is_folder else 'file'} must have one size"
                    )
                if index >= start:
                    stamps_ns = self._stamps_ns
                    stamp_ns = round(index * period) if stamps_ns is None else stamps_ns[index]
                    yield VideoFrame(index, stamp_ns, bgr)
                index += 1

    def _pictures(self, file: Path, levels: Levels, stamp_ns: int) -> Iterator[NDArray[np.uint8]]:
        pages = self._pages.get(file)
        if pages is None:
            yield read_bgr(file, levels, stamp_ns)
            return
        for picture in pages.read():
            yield levels.reduced(_checked(picture, file), stamp_ns)

    def _own_stamps(self) -> list[int] | None:
        """Return the stamps of the pictures, ns, if the source is one file that contains their durations.

        None for all other sources. Also sets `fps` to the average rate.
        """
        pages = None if self._is_folder else self._pages.get(self.path)
        durations_ns = None if pages is None else pages.durations_ns
        if durations_ns is None or min(durations_ns) <= 0:
            return None
        self.fps = len(durations_ns) * NS / sum(durations_ns)
        return list(accumulate(durations_ns, initial=0))

    def _check_orientation(self, file: Path) -> None:
        """Report a change of the EXIF orientation from the previous image to this one."""
        orientation = _orientation_of(file)
        if orientation != self._orientation:
            self._orientation = orientation
            self._report(f"{file}: {exif_note(orientation) or 'is stored as it is shown'}")


def image_files(folder: Path) -> list[Path]:
    """Return the files of a folder that have the suffix of an image, in natural order (2 before 10)."""
    found = [
        p
        for p in folder.iterdir()
        if p.suffix.lower() in IMAGE_SUFFIXES and p.is_file() and not fnmatch(p.name, SIDE_FILE)
    ]
    return sorted(found, key=lambda p: natural_key(p.name))


def side_files(folder: Path) -> list[Path]:
    """Return the files of a folder that the operating system made there and that are no images, sorted."""
    return sorted(p for p in folder.iterdir() if fnmatch(p.name, SIDE_FILE) or p.name in LEFT_FILES)


def natural_key(name: str) -> list[tuple[int, int | str]]:
    """Return a sort key that orders numbers in names by value: ``img2`` comes before ``img10``."""
    return [
        (0, int(part)) if part.isdecimal() else (1, part.lower()) for part in re.split(r"(\d+)", name) if part
    ]


def read_bgr(path: Path, levels: Levels | None = None, stamp_ns: int = 0) -> NDArray[np.uint8]:
    """Read an image file as BGR, uint8 [H, W, 3], without applying its EXIF orientation.

    ``levels``: reduces 16-bit pixels, with a range for the whole sequence; None: the range is computed from
    this image. ``stamp_ns``: the image's stamp, ns, for ``levels``.

    Raises InputError if the image can't be decoded, is truncated or has too many pixels, and if the file
    holds several pictures.
    """
    data = np.fromfile(path, np.uint8)
    pages = pages_of(path)
    try:
        if pages is not None:
            raise InputError(f"the file holds {pages.count} pictures, but only one is allowed here")
        if data[:3].tobytes() != b"GIF":  # `coded_size` does not support GIF
            check_size(*coded_size(data, "image"))
        if data[:2].tobytes() == START:
            _check_jpeg(data.tobytes())
    except InputError as refusal:
        raise InputError(f"{path} is not a readable image: {refusal}; remove or replace it") from None
    image = cv2.imdecode(data, FLAGS)
    if image is None or image.dtype not in (np.uint8, np.uint16):
        raise InputError(
            f"{path} is not a readable image of 8 or 16 bits ({data.size} bytes); remove or replace it"
        )
    if data[:4].tobytes() in (b"II*\0", b"MM\0*"):
        image = _as_stored(image, orientation_of(data))
    return (levels or Levels()).reduced(image, stamp_ns)


def _check_jpeg(data: bytes) -> None:
    """Raise InputError for a JPEG that is truncated, which OpenCV would fill with grey, and for several JPEGs
    in one file."""
    if jpeg_end(data) is None:
        raise InputError("the JPEG has no end marker, so it is cut off")
    if follows_another(data):
        raise InputError(
            "the file holds several JPEGs, one after another (with the suffix .mjpeg it is a video)"
        )


def _checked(picture: NDArray[Any], path: Path) -> NDArray[Any]:
    if picture.dtype not in (np.uint8, np.uint16):
        raise InputError(
            f"{path} has pictures of {picture.dtype}; only 8 and 16 bits can be read: convert or remove the"
            " file"
        )
    check_size(picture.shape[1], picture.shape[0])
    return picture


def _as_stored(image: NDArray[Any], orientation: int) -> NDArray[Any]:
    """Reverse the EXIF orientation (1 to 8) that OpenCV applied to the pixels of a TIFF.

    The orientations 2, 4, 5 and 7 mirror the image.
    """
    if orientation in _TURNS:
        return np.asarray(cv2.rotate(image, _TURNS[orientation]))
    if orientation in (5, 7):
        image = np.asarray(cv2.transpose(image))
    if orientation in (2, 4, 7):
        axes = {2: 1, 4: 0, 7: -1}
        image = np.asarray(cv2.flip(image, axes[orientation]))
    return image


def _orientation_of(file: Path) -> int:
    with file.open("rb") as opened:
        head = opened.read(1 << 18)
    return orientation_of(head)
