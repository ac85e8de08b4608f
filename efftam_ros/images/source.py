"""The interface of all sources of images: videos, folders of images and cameras."""

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
    """One image of a source.

    ``index``: counts from 0; ``stamp_ns``: ns on the source's clock; ``bgr``: pixels, uint8 [H, W, 3],
    C-contiguous.
    """

    index: int
    stamp_ns: int
    bgr: NDArray[np.uint8]

    @property
    def size(self) -> tuple[int, int]:
        """Width and height, px."""
        return self.bgr.shape[1], self.bgr.shape[0]


class VideoSource(Protocol):
    """A source of images of one size.

    ``path``, ``name``: path or address; the name contains no password. ``count``: number of images; None if
    it is not known. ``fps``: images per second. ``width``, ``height``: px. ``note``: a line for the user,
    such as a rotation of the images or the choice of a track; empty if there is none. ``pixel_ratio``: width
    of a pixel divided by its height. ``is_whole``: whether the last call of `frames` yielded all images.
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
        """Yield the images from index ``start`` on. Raises InputError at an image that can't be read."""
        ...


Report = Callable[[str], object]


def no_report(line: str) -> None:
    """Discard a line that a source reports."""


def checked_rate(fps: float) -> float:
    """Return ``fps``, images per second, as a float. Raises InputError if it is not finite and positive."""
    if not (np.isfinite(fps) and fps > 0):
        raise InputError(f"frame rate is {fps}; give a positive number of images per second")
    return float(fps)
