"""Reads videos and folders of images, each image with its stamp."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.errors import InputError, safe_address
from efftam_ros.images.file_kinds import command_for, is_bag
from efftam_ros.images.headers import check_size, coded_size
from efftam_ros.images.levels import AUTO, Levels, fixed_range
from efftam_ros.images.streams.decoding import (
    DEFAULT_TRACK,
    ImageDecoder,
    bgr_of,
    choose_track,
    orientation,
    orientation_note,
    oriented,
)

if TYPE_CHECKING:
    import av

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff", ".webp", ".ppm", ".pgm")
FOLDER_FPS = 30.0
# FFmpeg's names of streams without a container, and so without time stamps.
RAW_FORMATS = ("h264", "hevc", "mjpeg", "m4v")
NS = 1_000_000_000
ADDRESS_TIMEOUT_S = 10.0
INDEX_FIRST = "have its index first (ffmpeg -i IN -c copy -movflags +faststart OUT)"


@dataclass(frozen=True)
class VideoFrame:
    """One frame: index from 0, stamp in ns on the video's clock, pixels uint8 [H, W, 3] BGR, C-contiguous."""

    index: int
    stamp_ns: int
    bgr: NDArray[np.uint8]

    @property
    def size(self) -> tuple[int, int]:
        """Width and height, px."""
        return self.bgr.shape[1], self.bgr.shape[0]


class VideoSource(Protocol):
    """A sequence of frames of one size.

    ``name``: path or address without secrets. ``count``: None if the container does not state it; ``note``:
    how frames are transformed (a rotation), which track is read, "" for nothing; ``pixel_ratio``: width of a
    pixel by its height; ``is_whole``: whether the last reading came to the end and nothing was left out.
    """

    @property
    def path(self) -> Path: ...
    @property
    def name(self) -> str: ...
    @property
    def is_whole(self) -> bool: ...
    @property
    def pixel_ratio(self) -> Fraction: ...
    @property
    def fps(self) -> float: ...
    @property
    def width(self) -> int: ...
    @property
    def height(self) -> int: ...
    @property
    def count(self) -> int | None: ...
    @property
    def note(self) -> str: ...

    def frames(self, start: int = 0) -> Iterator[VideoFrame]:
        """Yield the frames from index ``start`` on. Raises InputError where one can't be read."""
        ...


Tell = Callable[[str], object]


def tell_nobody(line: str) -> None:
    """For callers who do not want to know what is noticed while a source is read."""


def open_video(
    path: str | Path,
    fps: float | None = None,
    levels: str = AUTO,
    track: int = DEFAULT_TRACK,
    tell: Tell = tell_nobody,
) -> VideoSource:
    """Open a video file or a folder of images.

    ``fps`` applies to folders (default 30) and to raw streams (.h264, .mjpeg: default as coded, or 25); other
    videos have their own stamps. ``levels``: the range of 16-bit images, see `fixed_range`. ``track``: number
    among the file's video tracks. ``tell`` takes a line on damage, when the reading ends. Raises InputError:
    path missing, no images, unreadable file, ``fps`` given for a video, no such track.
    """
    path = Path(path)
    fixed_range(levels)
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise InputError(f"{path} is a pipe or device; give a video file, a folder of images or an address")
    if is_bag(path):
        raise InputError(
            f"{path} is a bag, not a video; to track in it, run: efftam replay {path} --out RESULTS"
        )
    if other := command_for(path):
        raise InputError(other)
    if path.is_dir():
        return ImageFolder(path, FOLDER_FPS if fps is None else fps, levels)
    if not path.exists():
        raise InputError(f"{path} does not exist; give a video file or a folder of images")
    return VideoFile(path, levels, fps, track, tell)


class VideoFile:
    """A video read with PyAV, from a file or an address. Stamps are the container's presentation times, also
    for a variable frame rate; they grow, by 1 / ``fps`` where there is none or it goes back."""

    def __init__(
        self,
        source: str | Path,
        levels: str = AUTO,
        fps: float | None = None,
        track: int = DEFAULT_TRACK,
        tell: Tell = tell_nobody,
    ) -> None:
        self._source, self.name = str(source), safe_address(str(source))
        self.path, self._levels, self._track, self._tell = Path(self.name), levels, track, tell
        self._given = None if fps is None else _checked_rate(fps)
        self.is_whole = False
        """Whether the last reading came to the track's end, and nothing was left out."""
        with self._open() as container:
            stream, self._choice = choose_track(container, track, self.name)
            self._is_raw = container.format.name in RAW_FORMATS
            if fps is not None and not self._is_raw:
                raise InputError(
                    f"{self.name} is a video and has its own time stamps; leave out the frame rate"
                )
            # Of a raw stream the average is FFmpeg's default, the other one what the stream says.
            rate = stream.guessed_rate if self._is_raw else stream.average_rate or stream.guessed_rate
            self.fps = self._given or (float(rate) if rate else FOLDER_FPS)
            self.count = stream.frames or None
            self.pixel_ratio = stream.sample_aspect_ratio or Fraction(1)
            try:
                frame, _ = next(self._decoded(container, stream, ImageDecoder(stream)))
            except StopIteration:
                raise InputError(
                    f"{self.name} holds no frame; check that the recording is complete"
                ) from None
            self._turn = orientation(frame, self.name)
            self.width, self.height = frame.width, frame.height
            if self._turn[0]:
                self.width, self.height = self.height, self.width
                self.pixel_ratio = 1 / self.pixel_ratio

    @property
    def note(self) -> str:
        notes = [self._choice, orientation_note(*self._turn)]
        if self._is_raw and self._given is None:
            notes.append(
                f"has no time stamps: taken as {self.fps:g} images per second; give --fps if it has others"
            )
        return "; ".join(filter(None, notes))

    def frames(self, start: int = 0) -> Iterator[VideoFrame]:
        self.is_whole = False
        with self._open() as container:
            stream, _ = choose_track(container, self._track, self.name)
            stream.thread_type = "AUTO"
            stamp_ns, levels, decoder = 0, Levels(self._levels), ImageDecoder(stream)
            period_ns, shift_ns = round(NS / self.fps), 0
            try:
                for index, (frame, is_whole) in enumerate(self._decoded(container, stream, decoder)):
                    last_ns, own_ns = stamp_ns, self._own_ns(index, frame, stream)
                    stamp_ns = (last_ns + period_ns) * (index > 0) if own_ns is None else own_ns + shift_ns
                    if index and stamp_ns <= last_ns:  # of parts that were joined, or where none was written
                        shift_ns += last_ns + period_ns - stamp_ns
                        stamp_ns = last_ns + period_ns
                    if index < start or not is_whole:
                        continue
                    bgr = oriented(frame, bgr_of(frame, levels, stamp_ns), self.name)
                    if bgr.shape != (self.height, self.width, 3):
                        raise InputError(
                            f"{self.name}: frame {index} is {bgr.shape[1]}x{bgr.shape[0]} after "
                            f"{self.width}x{self.height}; cut the video where its size changes"
                        )
                    yield VideoFrame(index, stamp_ns, bgr)
                self._check_complete(decoder.packets, stamp_ns, stream)
                self.is_whole = not decoder.damaged
            except InputError:
                decoder.damaged = 0  # one line is enough
                raise
            finally:
                if decoder.damaged:
                    self._tell(f"{self.name}: {damage_text(decoder, 'copy or record it again')}")

    def _check_complete(self, done: int, last_ns: int, stream: Any) -> None:
        """Raise InputError for a truncated file, which the demuxer reads without an error.

        Its index lists more frames than it has packets. Edit lists may hide indexed frames, so the duration
        must be too short as well.
        """
        if self.count is None or done >= self.count or stream.duration is None:
            return
        promised_s = float((stream.start_time or 0) * stream.time_base + stream.duration * stream.time_base)
        if last_ns / NS + 2.5 / self.fps < promised_s:
            raise InputError(
                f"{self.name} ends after {done} of {self.count} frames ({last_ns / NS:.1f} of "
                f"{promised_s:.1f} s); "
                "the file is truncated, copy it again"
            )

    def _own_ns(self, index: int, frame: av.VideoFrame, stream: Any) -> int | None:
        base = frame.time_base or stream.time_base
        if self._is_raw:
            return round(index * NS / self.fps)
        return None if frame.pts is None or base is None else round(frame.pts * base * NS)

    def _open(self) -> av.container.InputContainer:
        import av

        is_address = self.name != self._source or "://" in self._source
        try:
            return av.open(self._source, timeout=ADDRESS_TIMEOUT_S if is_address else None)
        except (av.error.FFmpegError, OSError) as error:
            raise InputError(
                f"{self.name} is not a readable video ({_reason(error)}); convert it with ffmpeg"
            ) from None

    def _decoded(
        self, container: Any, stream: Any, decoder: ImageDecoder
    ) -> Iterator[tuple[av.VideoFrame, bool]]:
        import av

        done = 0
        try:
            for packet in container.demux(stream):
                for found in decoder.decode(packet):
                    yield found
                    done += 1
        except (av.error.FFmpegError, OSError) as error:
            remedy = "repair the file or cut it there"
            if not done and self._source.startswith("http"):
                remedy = f"where the server sends no parts of files, copy it here, or {INDEX_FIRST}"
            raise InputError(
                f"{self.name} can't be read behind frame {done} ({_reason(error)}); {remedy}"
            ) from None


def damage_text(of: Any, remedy: str) -> str:
    """``of``: an `ImageDecoder` or a camera, which count damage."""
    return (
        f"damaged or lost packets: {of.damaged}; {of.left_out} images that need them are left out: {remedy}"
    )


def _reason(error: Exception) -> str:
    """Without the source's name, which may hold a password."""
    return str(getattr(error, "strerror", None) or type(error).__name__)


class ImageFolder:
    """The images of a folder in natural order (2 before 10), ``fps`` apart, all of one size."""

    note = ""
    pixel_ratio = Fraction(1)
    is_whole = True  # an image that can't be read is an error

    def __init__(self, path: Path, fps: float, levels: str = AUTO) -> None:
        self.path, self.name = path, str(path)
        self.fps, self._levels = _checked_rate(fps), levels
        self.files = image_files(path)
        if not self.files:
            raise InputError(f"{path} holds no images ({', '.join(s[1:] for s in IMAGE_SUFFIXES)})")
        self.count: int | None = len(self.files)
        self.height, self.width = read_bgr(self.files[0]).shape[:2]

    def frames(self, start: int = 0) -> Iterator[VideoFrame]:
        period = Fraction(NS) / Fraction(self.fps).limit_denominator(1_000_000)
        levels = Levels(self._levels)
        for index in range(start, len(self.files)):
            stamp_ns = round(index * period)
            bgr = read_bgr(self.files[index], levels, stamp_ns)
            if bgr.shape[:2] != (self.height, self.width):
                raise InputError(
                    f"{self.files[index]} is {bgr.shape[1]}x{bgr.shape[0]} after {self.width}x{self.height}; "
                    "all images of a folder must have one size"
                )
            yield VideoFrame(index, stamp_ns, bgr)


def _checked_rate(fps: float) -> float:
    if not (np.isfinite(fps) and fps > 0):
        raise InputError(f"frame rate is {fps}; give a positive number of images per second")
    return float(fps)


def image_files(folder: Path) -> list[Path]:
    found = [p for p in folder.iterdir() if p.suffix.lower() in IMAGE_SUFFIXES and p.is_file()]
    return sorted(found, key=lambda p: natural_key(p.name))


def natural_key(name: str) -> list[tuple[int, int | str]]:
    """Sort key for natural order: ``img2`` before ``img10``."""
    return [
        (0, int(part)) if part.isdecimal() else (1, part.lower()) for part in re.split(r"(\d+)", name) if part
    ]


def read_bgr(path: Path, levels: Levels | None = None, stamp_ns: int = 0) -> NDArray[np.uint8]:
    """Read an image as uint8 [H, W, 3] BGR. Raises InputError if it can't be decoded or has too many pixels.

    ``levels``: of the sequence that it belongs to; reduces 16-bit pixels.
    """
    import cv2

    data = np.fromfile(path, np.uint8)
    try:
        check_size(*coded_size(data, "image"))
    except InputError as refusal:
        raise InputError(f"{path} is not a readable image: {refusal}; remove or replace it") from None
    image = cv2.imdecode(data, cv2.IMREAD_COLOR | cv2.IMREAD_ANYDEPTH)
    if image is None or image.dtype not in (np.uint8, np.uint16):
        raise InputError(
            f"{path} is not a readable image of 8 or 16 bits ({data.size} bytes); remove or replace it"
        )
    return (levels or Levels()).reduced(image, stamp_ns)
