"""What a source of images offers, whether a video, a folder or a camera."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.errors import InputError

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


Report = Callable[[str], object]


def no_report(line: str) -> None:
    """Discard what is noticed while a source is read."""


def checked_rate(fps: float) -> float:
    """Return ``fps`` as a number. Raises InputError where it is no rate."""
    if not (np.isfinite(fps) and fps > 0):
        raise InputError(f"frame rate is {fps}; give a positive number of images per second")
    return float(fps)
