"""Reads files that hold several pictures: TIFF with several pages, and animated WebP, PNG and GIF."""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.errors import InputError
from efftam_ros.images.stills.jpeg import START, jpeg_end, segments
from efftam_ros.images.streams.frames import pixels_as
from efftam_ros.images.streams.opening import file_url

MS = 1_000_000
PNG = b"\x89PNG\r\n\x1a\n"
# Most bytes of padding between two pictures in a file.
MAX_GAP = 4096
MAX_PAGES = 1_000_000
# The TIFF tag that states the kind of a page. Its bits 1 and 4 mark a reduced version of another page, and a
# mask.
SUBFILE_TAG, REDUCED_OR_MASK = 254, 1 | 4
FLAGS = cv2.IMREAD_COLOR | cv2.IMREAD_ANYDEPTH


@dataclass(frozen=True)
class Pages:
    """The pictures of one file, in order.

    ``count``: their number; ``durations_ns``: for how long each is shown, ns, or None if the file does not
    contain this; ``read``: yields the pictures as BGR, uint8 or uint16 [H, W, 3], and raises InputError.
    """

    count: int
    durations_ns: tuple[int, ...] | None
    read: Callable[[], Iterator[NDArray[Any]]]


def pages_of(path: Path) -> Pages | None:
    """Return the pictures of a file that holds several; None for a file with a single picture or of another
    kind.

    Reads the structure of the file, but no pixels. Raises OSError if the file can't be opened.
    """
    with path.open("rb") as file:
        head = file.read(16)
        if head[:3] == b"GIF":
            return _film(path)
        finder = next((find for start, find in _FINDERS if head.startswith(start)), None)
        if finder is None:
            return None
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            try:
                return finder(path, data)
            except struct.error:
                return None  # the file is truncated, which the decoder reports


def is_still(path: Path) -> bool:
    """Return whether a file holds still pictures, and not a film (GIF, animated PNG, JPEGs in a row, a
    video).

    The content decides, because names may be wrong. Only for a truncated JPEG the suffix decides. Raises
    OSError if the file can't be opened.
    """
    with path.open("rb") as file:
        head = file.read(16)
        if len(head) < 16:
            return False
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            if head.startswith(START):
                is_named = path.suffix.lower() in (".jpg", ".jpeg")
                return is_named if jpeg_end(data) is None else not follows_another(data)
            if head.startswith(PNG):
                return _png(path, data) is None and not data[_png_end(data) :][:8].startswith(PNG)
    is_webp = head[:4] == b"RIFF" and head[8:12] == b"WEBP"
    return is_webp or head[:4] in (b"II*\0", b"MM\0*") or re.match(rb"BM|P[1-6]\s", head) is not None


def begins_with_jpeg(path: str | Path) -> bool:
    """Return whether a file begins with a JPEG. Raises OSError if the file can't be opened."""
    with Path(path).open("rb") as file:
        return file.read(2) == START


def follows_another(data: Any) -> bool:
    """Return whether ``data`` holds several JPEGs, one behind the other, as some cameras store films.

    False for the second picture of a stereo or preview pair (MPO). ``data``: bytes or a mapped file that
    begins with a JPEG.
    """
    end = jpeg_end(data)
    if end is None or not data[end : end + MAX_GAP].lstrip(b"\0\r\n").startswith(START):
        return False
    return not any(kind == 0xE2 and data[at + 4 : at + 8] == b"MPF\0" for kind, at, _ in segments(data))


def _tiff(path: Path, data: Any) -> Pages | None:
    order = "<" if data[:2] == b"II" else ">"
    (directory,) = struct.unpack_from(f"{order}I", data, 4)
    wanted: list[int] = []
    seen: set[int] = set()
    while directory and directory not in seen and len(seen) < MAX_PAGES:
        number = len(seen)
        seen.add(directory)
        (entries,) = struct.unpack_from(f"{order}H", data, directory)
        kind = 0
        for entry in range(entries):
            (tag,) = struct.unpack_from(f"{order}H", data, directory + 2 + 12 * entry)
            if tag == SUBFILE_TAG:
                (kind,) = struct.unpack_from(f"{order}I", data, directory + 10 + 12 * entry)
        if not kind & REDUCED_OR_MASK:
            wanted.append(number)
        (directory,) = struct.unpack_from(f"{order}I", data, directory + 2 + 12 * entries)
    return Pages(len(wanted), None, partial(_tiff_pages, path, wanted)) if len(wanted) > 1 else None


def _tiff_pages(path: Path, numbers: list[int]) -> Iterator[NDArray[Any]]:
    for number in numbers:
        try:
            done, pages = cv2.imreadmulti(str(path), number, 1, flags=FLAGS)
        except cv2.error:
            done, pages = False, ()
        if not done or not pages:
            raise InputError(f"{path}: page {number} can't be read; remove or replace the file")
        yield pages[0]


def _webp(path: Path, data: Any) -> Pages | None:
    if data[8:16] != b"WEBPVP8X" or not data[20] & 2:
        return None
    durations, at = [], 12
    while at + 8 <= len(data):
        (size,) = struct.unpack_from("<I", data, at + 4)
        if data[at : at + 4] == b"ANMF":
            durations.append(MS * int.from_bytes(data[at + 20 : at + 23], "little"))
        at += 8 + size + size % 2
    return Pages(len(durations), tuple(durations), partial(_webp_pictures, path, len(durations)))


def _webp_pictures(path: Path, count: int) -> Iterator[NDArray[Any]]:
    cv: Any = cv2
    if not hasattr(cv, "imreadanimation"):
        raise InputError(
            f"{path} is an animation of {count} pictures, which only OpenCV 4.11 and newer can read: install"
            " a newer opencv-python-headless, or split the file into single pictures (magick FILE.webp"
            " picture_%04d.png)"
        )
    done, animation = cv.imreadanimation(str(path))
    if not done or len(animation.frames) < count:
        raise InputError(f"{path} is cut off or damaged; copy it again")
    for picture in animation.frames:
        yield np.ascontiguousarray(picture[..., :3])


def _png(path: Path, data: Any) -> Pages | None:
    kinds = {kind for kind, _ in _png_chunks(data)}
    return _film(path) if b"acTL" in kinds else None


def _png_end(data: Any) -> int:
    return next((end for kind, end in _png_chunks(data) if kind == b"IEND"), len(data))


def _png_chunks(data: Any) -> Iterator[tuple[bytes, int]]:
    """Yield the kind of each chunk of a PNG, and the offset of the chunk's end."""
    at = len(PNG)
    while at + 8 <= len(data):
        size, kind = struct.unpack_from(">I4s", data, at)
        at += 12 + size
        yield kind, at


def _film(path: Path) -> Pages | None:
    """Return the pictures of a GIF or animated PNG, which FFmpeg reads as a video.

    None if the file holds only one picture, or can't be read.
    """
    import av

    try:
        with av.open(file_url(path)) as container:
            count = sum(1 for packet in container.demux(video=0) if packet.size)
    except (av.error.FFmpegError, OSError, IndexError):
        return None
    return Pages(count, None, partial(_film_pictures, path)) if count > 1 else None


def _film_pictures(path: Path) -> Iterator[NDArray[Any]]:
    import av

    try:
        with av.open(file_url(path)) as container:
            for frame in container.decode(video=0):
                yield pixels_as("bgr24", frame)
    except (av.error.FFmpegError, OSError):
        raise InputError(f"{path} is cut off or damaged; copy it again") from None


_FINDERS: tuple[tuple[bytes, Callable[[Path, Any], Pages | None]], ...] = (
    (b"II*\0", _tiff),
    (b"MM\0*", _tiff),
    (b"RIFF", _webp),
    (PNG, _png),
)
