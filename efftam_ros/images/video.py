"""Reads videos and folders of images, each image with its stamp."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.errors import InputError
from efftam_ros.images.file_kinds import command_for, is_bag
from efftam_ros.images.levels import AUTO, Levels, fixed_range
from efftam_ros.images.limits import check_size, coded_size

if TYPE_CHECKING:
    import av

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff", ".webp", ".ppm", ".pgm")
FOLDER_FPS = 30.0
# FFmpeg's names of streams without a container, and so without time stamps.
RAW_FORMATS = ("h264", "hevc", "mjpeg", "m4v")
NS = 1_000_000_000


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

    ``count``: None if the container does not state it; ``note``: how frames are transformed (a rotation), ""
    if they are not.
    """

    @property
    def path(self) -> Path: ...
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


def open_video(path: str | Path, fps: float | None = None, levels: str = AUTO) -> VideoSource:
    """Open a video file or a folder of images.

    ``fps`` applies to folders (default 30) and to raw streams (.h264, .mjpeg: default as coded, or 25); other
    videos have their own stamps. ``levels``: the range of 16-bit images, see `fixed_range`. Raises
    InputError: path missing, no images, unreadable file, ``fps`` given for a video.
    """
    path = Path(path)
    fixed_range(levels)
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
    return VideoFile(path, levels, fps)


class VideoFile:
    """A video read with PyAV. Stamps are the container's presentation times, also for a variable frame
    rate; those of a raw stream, which has none, are ``fps`` apart."""

    def __init__(self, path: Path, levels: str = AUTO, fps: float | None = None) -> None:
        self.path, self._levels, self._given = path, levels, None if fps is None else _checked_rate(fps)
        with self._open() as container:
            stream = container.streams.video[0]
            self._is_raw = container.format.name in RAW_FORMATS
            if fps is not None and not self._is_raw:
                raise InputError(f"{path} is a video and has its own time stamps; leave out the frame rate")
            # Of a raw stream the average is FFmpeg's default, the other one what the stream says.
            rate = stream.guessed_rate if self._is_raw else stream.average_rate or stream.guessed_rate
            self.fps = self._given or (float(rate) if rate else FOLDER_FPS)
            self.count = stream.frames or None
            first = self._decoded(container, stream, 0)
            try:
                frame = next(first)
            except StopIteration:
                raise InputError(f"{path} holds no frame; check that the recording is complete") from None
            self.rotation = _quarter_turns(path, frame.rotation)
            turned = self.rotation % 2 == 1
            self.width, self.height = (frame.height, frame.width) if turned else (frame.width, frame.height)

    @property
    def note(self) -> str:
        if self._is_raw and self._given is None:
            return f"has no time stamps: taken as {self.fps:g} images per second; give --fps if it has others"
        if not self.rotation:
            return ""
        return f"rotated by {90 * self.rotation} degrees counter-clockwise, as its metadata requires"

    def frames(self, start: int = 0) -> Iterator[VideoFrame]:
        with self._open() as container:
            stream = container.streams.video[0]
            stream.thread_type = "AUTO"
            index, stamp_ns, levels = -1, 0, Levels(self._levels)
            for index, frame in enumerate(self._decoded(container, stream, None)):
                stamp_ns = self._stamp_ns(index, frame, stream)
                if index < start:
                    continue
                # The decoder pads rows for some widths.
                pixels = _pixels(frame, levels, stamp_ns)
                bgr = np.ascontiguousarray(np.rot90(pixels, self.rotation))
                if bgr.shape != (self.height, self.width, 3):
                    raise InputError(
                        f"{self.path}: frame {index} is {bgr.shape[1]}x{bgr.shape[0]} after "
                        f"{self.width}x{self.height}; cut the video where its size changes"
                    )
                yield VideoFrame(index, stamp_ns, bgr)
            self._check_complete(index + 1, stamp_ns, stream)

    def _check_complete(self, done: int, last_ns: int, stream: Any) -> None:
        """Raise InputError for a truncated file, which the demuxer reads without an error.

        Its index lists more frames than were decoded. Edit lists may hide indexed frames, so the duration
        must be too short as well.
        """
        if self.count is None or done >= self.count or stream.duration is None:
            return
        promised_s = float((stream.start_time or 0) * stream.time_base + stream.duration * stream.time_base)
        if last_ns / NS + 2.5 / self.fps < promised_s:
            raise InputError(
                f"{self.path} ends after {done} of {self.count} frames ({last_ns / NS:.1f} of "
                f"{promised_s:.1f} s); "
                "the file is truncated, copy it again"
            )

    def _stamp_ns(self, index: int, frame: av.VideoFrame, stream: Any) -> int:
        base = frame.time_base or stream.time_base
        if self._is_raw or frame.pts is None or base is None:
            return round(index * NS / self.fps)
        return round(frame.pts * base * NS)

    def _open(self) -> av.container.InputContainer:
        import av

        try:
            container = av.open(str(self.path))
        except av.error.FFmpegError as error:
            raise InputError(
                f"{self.path} is not a readable video ({error.strerror}); convert it with ffmpeg"
            ) from None
        if not container.streams.video:
            container.close()
            raise InputError(f"{self.path} holds no video stream; give a video file or a folder of images")
        return container

    def _decoded(self, container: Any, stream: Any, only: int | None) -> Iterator[av.VideoFrame]:
        import av

        done = 0
        try:
            for frame in container.decode(stream):
                yield frame
                done += 1
                if only is not None and done > only:
                    return
        except av.error.FFmpegError as error:
            raise InputError(
                f"{self.path}: frame {done} can't be decoded ({error.strerror}); repair the file or cut "
                f"it there"
            ) from None


class ImageFolder:
    """The images of a folder in natural order (2 before 10), ``fps`` apart, all of one size."""

    note = ""

    def __init__(self, path: Path, fps: float, levels: str = AUTO) -> None:
        self.path, self.fps, self._levels = path, _checked_rate(fps), levels
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


def _pixels(frame: av.VideoFrame, levels: Levels, stamp_ns: int) -> NDArray[np.uint8]:
    """A decoded frame as uint8 [H, W, 3] BGR; grey and RGB of more than 8 bits have the range ``levels``.

    YUV of 10 and 12 bits uses its whole range, and loses only the lowest bits.
    """
    import cv2

    if max(part.bits for part in frame.format.components) > 8:
        if frame.format.name.startswith("gray"):
            grey = levels.reduced(frame.to_ndarray(format="gray16le"), stamp_ns)
            return np.asarray(cv2.cvtColor(grey, cv2.COLOR_GRAY2BGR), np.uint8)
        if frame.format.is_rgb:
            rgb = levels.reduced(frame.to_ndarray(format="rgb48le"), stamp_ns)
            return np.asarray(cv2.cvtColor(rgb, cv2.COLOR_RGB2BGR), np.uint8)
    return np.asarray(frame.to_ndarray(format="bgr24"), np.uint8)


def _quarter_turns(path: Path, degrees: float) -> int:
    """Number of counter-clockwise quarter turns, 0..3, of a rotation in degrees."""
    turns = degrees / 90
    if abs(turns - round(turns)) > 0.01:
        raise InputError(f"{path} has a rotation of {degrees:g} degrees; only multiples of 90 are supported")
    return round(turns) % 4
