"""Images kept so that a selection can refer to an older image; bounded in time, bytes and number.

An operator who draws a box does so on an image that may be several seconds old. The newest images are all
kept; older ones are thinned, so that the same memory covers several times the duration: enough to follow the
target from the selected image to the newest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain, pairwise
from statistics import median
from typing import Any

from efftam_ros.core.errors import InputError
from efftam_ros.core.types import Image

# Most images kept at once, however small: every late selection searches through them.
MOST_IMAGES = 4096
# Time over which every image is kept, and its minimum when the byte limit is reached, s of stamps.
WHOLE_S, LEAST_WHOLE_S = 1.5, 0.5
# Least interval between kept older images, s.
APART_S = 0.2


@dataclass(frozen=True)
class BufferedFrame:
    """One received image.

    Attributes:
        header: Copied unchanged into the answers.
        stamp_ns: Stamp of the image, ns.
        arrived_s: Arrival on the steady clock, s.
        nbytes: Memory cost of keeping it.
        size: Width and height, px.
        read: Returns the pixels; raises InputError.
    """

    header: Any
    stamp_ns: int
    arrived_s: float
    nbytes: int
    size: tuple[int, int]
    read: Callable[[], Image] = field(repr=False)


@dataclass(frozen=True)
class Kept:
    """A kept image and its index among all received images."""

    number: int
    frame: BufferedFrame

    @property
    def stamp_ns(self) -> int:
        return self.frame.stamp_ns


class KeptImages:
    """The kept images, iterated from oldest to newest. Not thread-safe."""

    def __init__(self, keep_s: float, keep_bytes: int) -> None:
        self._thinned: deque[Kept] = deque()
        self._whole: deque[Kept] = deque()
        self._bytes = 0
        self.limit(keep_s, keep_bytes)

    def __iter__(self) -> Iterator[Kept]:
        return chain(self._thinned, self._whole)

    def __len__(self) -> int:
        return len(self._thinned) + len(self._whole)

    @property
    def newest(self) -> Kept | None:
        return self._whole[-1] if self._whole else None

    def limit(self, keep_s: float, keep_bytes: int) -> None:
        """Change the limits, in seconds of image stamps and in bytes."""
        self._keep_s, self._keep_bytes = keep_s, keep_bytes
        self._trim()

    def append(self, kept: Kept) -> None:
        """Keep a new image, newer than all others."""
        self._whole.append(kept)
        self._bytes += kept.frame.nbytes
        self._trim()

    def clear(self) -> None:
        self._thinned.clear()
        self._whole.clear()
        self._bytes = 0

    def find(self, stamp_ns: int) -> Kept:
        """Return the image with this stamp (0: the newest), or the nearest within half the local spacing of
        kept images.

        Raises InputError stating how far off the stamp is.
        """
        newest = self.newest
        if newest is None:
            raise InputError("no image has arrived yet; select once images come (is the topic image right?)")
        if stamp_ns == 0:
            return newest
        nearest = min(self, key=lambda kept: abs(kept.stamp_ns - stamp_ns))
        if abs(nearest.stamp_ns - stamp_ns) <= self._reach_ns(stamp_ns):
            return nearest
        oldest = next(iter(self))
        age_s, kept_s = (newest.stamp_ns - stamp_ns) * 1e-9, (newest.stamp_ns - oldest.stamp_ns) * 1e-9
        if age_s < 0:
            raise InputError(
                f"the stamp {seconds(stamp_ns)} is {-age_s:.3f} s ahead of the newest image; copy"
                " it from the image's header, or use 0 for the newest image"
            )
        if age_s <= kept_s:
            raise InputError(
                f"no image near the stamp {seconds(stamp_ns)} was received; copy it from the image's header"
            )
        raise InputError(
            f"the selection's image is {age_s:.2f} s old and only {kept_s:.2f} s of images are kept"
            f" (selection_buffer {self._keep_s:g} s, selection_buffer_bytes {self._keep_bytes}, at most"
            f" {MOST_IMAGES} images); select on a newer image or raise them"
        )

    def _reach_ns(self, stamp_ns: int) -> float:
        gaps = [b.stamp_ns - a.stamp_ns for a, b in pairwise(self._whole)]
        period = median(gaps) if gaps else 0.0
        thinned = bool(self._thinned) and stamp_ns < self._whole[0].stamp_ns
        return (period + APART_S * 1e9 if thinned else period) / 2

    def _span_s(self, oldest: Kept) -> float:
        return (self._whole[-1].stamp_ns - oldest.stamp_ns) * 1e-9

    def _is_full(self) -> bool:
        return self._bytes > self._keep_bytes or len(self) > MOST_IMAGES

    def _trim(self) -> None:
        while len(self._whole) > 1 and (
            self._span_s(self._whole[0]) > WHOLE_S
            or (self._is_full() and self._span_s(self._whole[0]) > LEAST_WHOLE_S)
        ):
            self._thin(self._whole.popleft())
        for images, fewest in ((self._thinned, 0), (self._whole, 1)):
            while len(images) > fewest and (self._is_full() or self._span_s(images[0]) > self._keep_s):
                self._bytes -= images.popleft().frame.nbytes

    def _thin(self, kept: Kept) -> None:
        if self._thinned and (kept.stamp_ns - self._thinned[-1].stamp_ns) * 1e-9 < APART_S:
            self._bytes -= kept.frame.nbytes
        else:
            self._thinned.append(kept)


def seconds(stamp_ns: int) -> str:
    """Format a stamp in seconds with all nine decimals."""
    return f"{stamp_ns // 10**9}.{stamp_ns % 10**9:09d}"
