"""Any picture of a video or a folder of images, by its number."""

from __future__ import annotations

import bisect
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, Protocol

import cv2
import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.errors import InputError

NS = 1_000_000_000
IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff", ".webp")
FOLDER_FPS = 30.0
MOST_KEPT_BYTES = 128 << 20


class Pictures(Protocol):
    """Pictures of one size, in order of time."""

    @property
    def stamps_ns(self) -> Sequence[int]:
        """Of every picture, rising, on the video's clock."""
        ...

    def bgr(self, index: int) -> NDArray[np.uint8]:
        """Picture ``index`` as uint8 [H, W, 3]. Raises InputError where it can't be read."""
        ...


def open_pictures(path: Path, fps: float | None = None) -> Pictures:
    """A video file or a folder of images; ``fps`` of a folder (default 30).

    Raises InputError: nothing there, no pictures, unreadable.
    """
    if path.is_dir():
        return FolderPictures(path, fps or FOLDER_FPS)
    if not path.is_file():
        raise InputError(f"{path} does not exist; give the video or the folder of images that was tracked")
    return VideoPictures(path)


class FolderPictures:
    """The images of a folder in natural order (2 before 10), ``fps`` apart."""

    def __init__(self, path: Path, fps: float) -> None:
        found = [p for p in path.iterdir() if p.suffix.lower() in IMAGE_SUFFIXES]
        self._files = sorted(found, key=lambda p: _natural(p.name))
        if not self._files:
            raise InputError(f"{path} holds no images ({', '.join(s[1:] for s in IMAGE_SUFFIXES)})")
        period = Fraction(NS) / Fraction(fps).limit_denominator(1_000_000)
        self.stamps_ns: Sequence[int] = [round(i * period) for i in range(len(self._files))]

    def bgr(self, index: int) -> NDArray[np.uint8]:
        image = cv2.imread(str(self._files[index]))
        if image is None:
            raise InputError(f"{self._files[index]} is not a readable image; remove or replace it")
        return np.asarray(image, np.uint8)


class VideoPictures:
    """A video by PyAV. Decoding starts at the key frame before the picture; what is decoded on the way is
    kept for stepping back, up to 128 MiB. Not thread-safe."""

    def __init__(self, path: Path) -> None:
        import av

        self._path = path
        try:
            self._container = av.open(str(path))
        except av.error.FFmpegError as error:
            raise InputError(f"{path} is not a readable video ({error.strerror})") from None
        if not self._container.streams.video:
            raise InputError(f"{path} holds no video stream")
        self._stream = self._container.streams.video[0]
        self._pts = self._list_times()
        if not self._pts:
            raise InputError(f"{path} holds no picture with a time; convert it with ffmpeg")
        base = self._stream.time_base or Fraction(1, NS)
        self.stamps_ns: Sequence[int] = [round(pts * base * NS) for pts in self._pts]
        self._kept: OrderedDict[int, NDArray[np.uint8]] = OrderedDict()
        self._kept_bytes = 0
        self._decoding: Iterator[Any] | None = None
        self._next = 0

    def bgr(self, index: int) -> NDArray[np.uint8]:
        if index in self._kept:
            return self._kept[index]
        # Decoding up to a second of frames is usually faster than seeking to a key frame.
        if self._decoding is None or not self._next <= index <= self._next + 30:
            self._seek(index)
        return self._decode_to(index)

    def _list_times(self) -> list[int]:
        """Presentation times of all pictures, without decoding one."""
        seen = [p.pts for p in self._container.demux(self._stream) if p.pts is not None and p.size]
        return sorted(set(seen))

    def _seek(self, index: int) -> None:
        self._container.seek(self._pts[index], stream=self._stream, backward=True)
        self._decoding = self._container.decode(self._stream)

    def _decode_to(self, index: int) -> NDArray[np.uint8]:
        import av

        assert self._decoding is not None
        try:
            for frame in self._decoding:
                if frame.pts is None:
                    continue
                # Pictures before the first listed time belong to an edit that players don't show.
                number = bisect.bisect_right(self._pts, frame.pts) - 1
                self._next = number + 1
                if number < 0:
                    continue
                self._keep(number, frame)
                if number >= index:
                    break
        except av.error.FFmpegError as error:
            self._decoding = None
            raise InputError(
                f"{self._path}: picture {index} can't be decoded ({error.strerror}); copy the file again"
            ) from None
        if index not in self._kept:
            self._decoding = None
            raise InputError(
                f"{self._path}: picture {index} of {len(self._pts)} can't be decoded; was it cut off?"
            )
        return self._kept[index]

    def _keep(self, number: int, frame: Any) -> None:
        turns = round(frame.rotation / 90) % 4
        bgr = np.ascontiguousarray(np.rot90(frame.to_ndarray(format="bgr24"), turns))
        before = self._kept.pop(number, None)
        self._kept[number] = bgr
        self._kept_bytes += bgr.nbytes - (0 if before is None else before.nbytes)
        while self._kept_bytes > MOST_KEPT_BYTES and len(self._kept) > 1:
            self._kept_bytes -= self._kept.popitem(last=False)[1].nbytes


def _natural(name: str) -> list[tuple[int, int | str]]:
    """Sort key that counts: ``img2`` before ``img10``."""
    import re

    parts = re.split(r"(\d+)", name)
    return [(0, int(part)) if part.isdecimal() else (1, part.lower()) for part in parts if part]
