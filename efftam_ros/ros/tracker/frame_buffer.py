"""Hands images and commands from the subscriptions to the worker.

Holds the newest image, images kept for late selections, and the last command. An operator may draw a box on
an image that is several seconds old: images are therefore kept, limited in time, bytes and number. All recent
images are kept; older ones are thinned, so that the same memory covers a longer time, with enough images to
follow the target from the selected image to the newest."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain, pairwise
from statistics import median
from typing import Any

from efftam_ros.core.errors import InputError
from efftam_ros.core.types import Image, Prompt

# Most images kept at once, however small: every late selection searches through them.
MOST_IMAGES = 4096
# Age up to which every image is kept, and the same when the byte limit is reached, s of stamps.
RECENT_S, LEAST_RECENT_S = 1.5, 0.5
# Least interval between kept older images, s.
APART_S = 0.2
# Largest distance of a stamp from a kept image, in periods: above one half, because the periods vary.
REACH = 0.51


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
class KeptImage:
    """A kept image and its index among all received images."""

    number: int
    frame: BufferedFrame

    @property
    def stamp_ns(self) -> int:
        return self.frame.stamp_ns


class KeptImages:
    """The kept images, iterated from oldest to newest. Not thread-safe."""

    def __init__(self, keep_s: float, keep_bytes: int) -> None:
        self._thinned: deque[KeptImage] = deque()
        self._recent: deque[KeptImage] = deque()
        self._bytes = 0
        self._forgotten_ns = 0  # stamp of the newest image when time went back
        self.limit(keep_s, keep_bytes)

    def __iter__(self) -> Iterator[KeptImage]:
        return chain(self._thinned, self._recent)

    def __len__(self) -> int:
        return len(self._thinned) + len(self._recent)

    @property
    def newest(self) -> KeptImage | None:
        return self._recent[-1] if self._recent else None

    def limit(self, keep_s: float, keep_bytes: int) -> None:
        """Change the limits, in seconds of image stamps and in bytes."""
        self._keep_s, self._keep_bytes = keep_s, keep_bytes
        self._trim()

    def append(self, kept: KeptImage) -> None:
        """Keep a new image, newer than all others."""
        self._recent.append(kept)
        self._bytes += kept.frame.nbytes
        self._trim()

    def restart(self) -> None:
        """Forget all images, because time went back: their stamps no longer identify them."""
        if self.newest is not None:
            self._forgotten_ns = self.newest.stamp_ns
        self._thinned.clear()
        self._recent.clear()
        self._bytes = 0

    def find(self, stamp_ns: int) -> KeptImage:
        """Return the image with this stamp (0: the newest), or the nearest within half the local spacing of
        kept images: the stamp may be that of an image which did not get here.

        Raises InputError stating how far off the stamp is.
        """
        newest = self.newest
        if newest is None:
            raise InputError("no image has arrived yet; select once images come (is the topic image right?)")
        if stamp_ns == 0:
            return newest
        nearest = min(self, key=lambda kept: abs(kept.stamp_ns - stamp_ns))
        off_ns = abs(nearest.stamp_ns - stamp_ns)
        if off_ns <= self._reach_ns(stamp_ns):
            return nearest
        oldest = next(iter(self))
        age_s, kept_s = (newest.stamp_ns - stamp_ns) * 1e-9, (newest.stamp_ns - oldest.stamp_ns) * 1e-9
        if age_s < 0 and stamp_ns <= self._forgotten_ns:
            raise InputError(
                f"the selection's image ({seconds(stamp_ns)}) is from before the images' stamps went back;"
                " such images are not kept: select on a newer one"
            )
        if age_s < 0:
            raise InputError(
                f"the stamp {seconds(stamp_ns)} is {-age_s:.3f} s ahead of the newest image; copy"
                " it from the image's header, or use 0 for the newest image"
            )
        if age_s <= kept_s:
            raise InputError(
                f"no image near the stamp {seconds(stamp_ns)} was received (the nearest is"
                f" {off_ns * 1e-9:.3f} s off); copy the stamp from the image's header, or select on another"
                " image"
            )
        raise InputError(
            f"the selection's image is {age_s:.2f} s old and only {kept_s:.2f} s of images are kept"
            f" (selection_buffer {self._keep_s:g} s, selection_buffer_bytes {self._keep_bytes}, at most"
            f" {MOST_IMAGES} images); select on a newer image or raise them"
        )

    def _reach_ns(self, stamp_ns: int) -> float:
        period = median([b.stamp_ns - a.stamp_ns for a, b in pairwise(self._recent)] or [0])
        around = [b.stamp_ns - a.stamp_ns for a, b in pairwise(self) if a.stamp_ns < stamp_ns <= b.stamp_ns]
        return REACH * max(period, min(sum(around), period + APART_S * 1e9))

    def _span_s(self, oldest: KeptImage) -> float:
        return (self._recent[-1].stamp_ns - oldest.stamp_ns) * 1e-9

    def _is_full(self) -> bool:
        return self._bytes > self._keep_bytes or len(self) > MOST_IMAGES

    def _trim(self) -> None:
        while len(self._recent) > 1 and (
            self._span_s(self._recent[0]) > RECENT_S
            or (self._is_full() and self._span_s(self._recent[0]) > LEAST_RECENT_S)
        ):
            self._thin(self._recent.popleft())
        for images, fewest in ((self._thinned, 0), (self._recent, 1)):
            while len(images) > fewest and (self._is_full() or self._span_s(images[0]) > self._keep_s):
                self._bytes -= images.popleft().frame.nbytes

    def _thin(self, kept: KeptImage) -> None:
        if self._thinned and (kept.stamp_ns - self._thinned[-1].stamp_ns) * 1e-9 < APART_S:
            self._bytes -= kept.frame.nbytes
        else:
            self._thinned.append(kept)


def seconds(stamp_ns: int) -> str:
    """Format a stamp in seconds with all nine decimals."""
    return f"{stamp_ns // 10**9}.{stamp_ns % 10**9:09d}"


# Time within which a worker that has fallen behind the camera aims to catch up, s.
CATCH_UP_S = 0.5


@dataclass(frozen=True)
class Command:
    """A selection or a clear request, with what is needed to report its outcome.

    ``header``: header of the requesting message, None if it had none; ``number``: number of the selection, 0
    for a clear; ``note``: remark to report when it is accepted.
    """

    header: Any
    target_id: int
    number: int = 0
    note: str = ""


@dataclass(frozen=True)
class Task:
    """The worker's next task: clear the target, or process an image, with a prompt if it was selected on.

    ``frame``: None for a clear; ``skipped``: images dropped before this one; ``command``: the command behind
    this task, None for an ordinary image.
    """

    frame: BufferedFrame | None
    prompt: Prompt | None = None
    skipped: int = 0
    command: Command | None = None


class FrameBuffer:
    """Passes images and commands from the receiving threads to the worker. All methods are thread-safe.

    Normally the newest image is taken and older ones are dropped. After a selection on an older image, the
    images since then are processed in order, in steps wide enough to catch up with the camera soon.
    """

    def __init__(self, keep_s: float, keep_bytes: int) -> None:
        self._condition = threading.Condition()
        self._kept = KeptImages(keep_s, keep_bytes)
        self._count = 0  # images received; the newest has this number
        self._cursor = 0  # number of the image that was taken last
        self._furthest = 0  # highest number that was ever taken or skipped
        self._cursor_stamp_ns = 0
        self._behind = False
        self._task: Task | None = None  # pending command
        self._selected: KeptImage | None = None
        self._closed = False

    def limit(self, keep_s: float, keep_bytes: int) -> None:
        """Change the limits of the kept images, in seconds of image stamps and in bytes."""
        with self._condition:
            self._kept.limit(keep_s, keep_bytes)

    def put(self, frame: BufferedFrame) -> None:
        """Store the newest image. Raises InputError when its stamp equals the last one's."""
        with self._condition:
            newest = self._kept.newest
            if newest is not None and frame.stamp_ns == newest.stamp_ns:
                raise InputError(
                    f"two images in a row have the stamp {seconds(frame.stamp_ns)}; the second is dropped:"
                    " stamp each image with its own time"
                )
            if newest is not None and frame.stamp_ns < newest.stamp_ns:
                self._kept.restart()  # a bag loops
            self._count += 1
            self._kept.append(KeptImage(self._count, frame))
            self._condition.notify()

    def find(self, stamp_ns: int) -> KeptImage:
        """Return the kept image that a stamp refers to. Raises InputError as `KeptImages.find` does."""
        with self._condition:
            return self._kept.find(stamp_ns)

    def select(self, kept: KeptImage, prompt: Prompt, command: Command) -> Command | None:
        """Request tracking from a kept image; returns the pending command that this one replaces."""
        return self._replace_pending(Task(kept.frame, prompt, command=command), kept)

    def clear(self, command: Command) -> Command | None:
        """Request that the target be cleared; returns the pending command that this one replaces."""
        return self._replace_pending(Task(None, command=command), None)

    def _replace_pending(self, task: Task, selected: KeptImage | None) -> Command | None:
        with self._condition:
            replaced, self._task, self._selected = self._task, task, selected
            self._condition.notify()
        return None if replaced is None else replaced.command

    @property
    def has_selection(self) -> bool:
        """True while a selection is pending."""
        with self._condition:
            return self._selected is not None

    def resume(self) -> None:
        """Continue after the last image taken before a selection, because that selection failed."""
        with self._condition:
            self._cursor, self._behind = self._furthest, False

    def close(self) -> Command | None:
        """Make `take` return None from now on; returns the pending command, which will not be carried out."""
        with self._condition:
            self._closed = True
            waiting, self._task = self._task, None
            self._condition.notify_all()
        return None if waiting is None else waiting.command

    def take(self, frame_s: float = 0.0) -> Task | None:
        """Wait for the next task; None once closed. ``frame_s``: current processing time of a frame, s."""
        with self._condition:
            while True:
                if self._closed:
                    return None
                if self._task is not None:
                    return self._take_command(self._task)
                newest = self._kept.newest
                if newest is not None and newest.number > self._cursor:
                    return self._take_image(newest, frame_s)
                self._condition.wait()

    def _take_command(self, task: Task) -> Task:
        selected, self._task, self._selected = self._selected, None, None
        if selected is not None:
            self._behind = selected.number < self._count
            self._advance(selected)
        return task

    def _take_image(self, newest: KeptImage, frame_s: float) -> Task:
        chosen = newest
        if self._behind:
            chosen = self._next_in_order(newest, frame_s)
            self._behind = chosen is not newest
        return Task(chosen.frame, skipped=self._advance(chosen))

    def _next_in_order(self, newest: KeptImage, frame_s: float) -> KeptImage:
        """The next image while catching up: the lag shrinks by ``lag / CATCH_UP_S`` per second of work."""
        lag_s = (newest.stamp_ns - self._cursor_stamp_ns) * 1e-9
        target_ns = self._cursor_stamp_ns + int(frame_s * (1 + lag_s / CATCH_UP_S) * 1e9)
        ahead = [kept for kept in self._kept if kept.number > self._cursor]
        return next((kept for kept in ahead if kept.stamp_ns >= target_ns), ahead[-1])

    def _advance(self, chosen: KeptImage) -> int:
        """Move the cursor; returns how many images were skipped for good."""
        skipped = max(0, chosen.number - 1 - max(self._cursor, self._furthest))
        self._cursor, self._cursor_stamp_ns = chosen.number, chosen.frame.stamp_ns
        self._furthest = max(self._furthest, chosen.number)
        return skipped
