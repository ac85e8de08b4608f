"""What waits for the worker: the newest image, images kept for late selections, and the last command."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from efftam_ros.core.errors import InputError
from efftam_ros.core.types import Image, Prompt

# A worker that runs behind the camera aims to be level again in about this time, s.
CATCH_UP_S = 0.5
# Images kept at once, however small: every late selection looks through them.
MOST_IMAGES = 4096


@dataclass(frozen=True)
class BufferedFrame:
    """One image as it arrived. ``arrived_s``: steady clock; ``nbytes``: what keeping it costs; ``size``:
    width and height, px; ``read`` makes the pixels (raises InputError); ``header`` goes into the answers
    unchanged."""

    header: Any
    stamp_ns: int
    arrived_s: float
    nbytes: int
    size: tuple[int, int]
    read: Callable[[], Image] = field(repr=False)


@dataclass(frozen=True)
class Command:
    """A selection or a clear, as far as its outcome is told. ``header`` of the message that asked (None: it
    had none); ``number`` of the selection, 0 for a clear."""

    header: Any
    target_id: int
    number: int = 0


@dataclass(frozen=True)
class Task:
    """What to do next: forget the target, or process an image, with a prompt when it was selected on.
    ``command``: what asked for it, None for an image as it came."""

    frame: BufferedFrame | None
    prompt: Prompt | None = None
    skipped: int = 0
    command: Command | None = None


@dataclass
class _Kept:
    number: int
    frame: BufferedFrame


class FrameBuffer:
    """Between the threads that receive and the one that works. Every method may be called from any thread.

    Images are taken newest first: what arrives meanwhile replaces what waits. After a selection on an older
    image the images since then are gone through in order, in steps wide enough to be level with the camera
    soon.
    """

    def __init__(self, keep_s: float, keep_bytes: int) -> None:
        self._condition = threading.Condition()
        self._kept: deque[_Kept] = deque()
        self._keep_s, self._keep_bytes = keep_s, keep_bytes
        self._bytes = 0
        self._count = 0  # images received; the newest has this number
        self._cursor = 0  # number of the image that was taken last
        self._furthest = 0  # highest number that was ever taken or skipped
        self._cursor_stamp_ns = 0
        self._behind = False
        self._task: Task | None = None  # a command that waits
        self._selected: _Kept | None = None
        self._closed = False

    def limit(self, keep_s: float, keep_bytes: int) -> None:
        """Change how much is kept, in s of image stamps and in bytes."""
        with self._condition:
            self._keep_s, self._keep_bytes = keep_s, keep_bytes
            self._trim()

    def put(self, frame: BufferedFrame) -> None:
        """Store the newest image. Raises InputError when its stamp equals the last one's."""
        with self._condition:
            newest = self._kept[-1].frame if self._kept else None
            if newest is not None and frame.stamp_ns == newest.stamp_ns:
                raise InputError(
                    f"two images in a row have the stamp {_seconds(frame.stamp_ns)}; the second is dropped:"
                    " stamp each image with its own time"
                )
            if newest is not None and frame.stamp_ns < newest.stamp_ns:
                # Time went back (a bag loops): stamps of before mean other images now.
                self._kept.clear()
                self._bytes = 0
            self._count += 1
            self._kept.append(_Kept(self._count, frame))
            self._bytes += frame.nbytes
            self._trim()
            self._condition.notify()

    def find(self, stamp_ns: int) -> BufferedFrame:
        """The kept image with this stamp, 0: the newest. Raises InputError saying how far off the stamp
        is."""
        with self._condition:
            return self._find(stamp_ns).frame

    def select(
        self, stamp_ns: int, prompt: Callable[[BufferedFrame], Prompt], command: Command
    ) -> Command | None:
        """Ask the worker to start on a kept image; returns the command that this one takes the place of.

        ``prompt`` makes what is marked on the image, and may raise InputError, as `find` does; then nothing
        changes.
        """
        with self._condition:
            kept = self._find(stamp_ns)
        made = prompt(kept.frame)
        return self._order(Task(kept.frame, made, command=command), kept)

    def clear(self, command: Command) -> Command | None:
        """Ask the worker to forget the target; returns the command that this one takes the place of."""
        return self._order(Task(None, command=command), None)

    def _order(self, task: Task, selected: _Kept | None) -> Command | None:
        with self._condition:
            replaced, self._task, self._selected = self._task, task, selected
            self._condition.notify()
        return None if replaced is None else replaced.command

    @property
    def has_selection(self) -> bool:
        """True while a selection waits for the worker."""
        with self._condition:
            return self._selected is not None

    def resume(self) -> None:
        """Go on after the last image that was taken before a selection, because that selection came to
        nothing."""
        with self._condition:
            self._cursor, self._behind = self._furthest, False

    def close(self) -> Command | None:
        """Let `take` return None from now on; returns the command that nobody will carry out."""
        with self._condition:
            self._closed = True
            waiting, self._task = self._task, None
            self._condition.notify_all()
        return None if waiting is None else waiting.command

    def take(self, frame_s: float = 0.0) -> Task | None:
        """Wait for something to do; None once closed. ``frame_s``: what a frame takes at present."""
        with self._condition:
            while True:
                if self._closed:
                    return None
                if self._task is not None:
                    return self._take_command(self._task)
                if self._kept and self._kept[-1].number > self._cursor:
                    return self._take_image(frame_s)
                self._condition.wait()

    def _take_command(self, task: Task) -> Task:
        selected, self._task, self._selected = self._selected, None, None
        if selected is not None:
            self._behind = selected.number < self._count
            self._advance(selected)
        return task

    def _take_image(self, frame_s: float) -> Task:
        chosen = self._kept[-1]
        if self._behind:
            chosen = self._next_in_order(frame_s)
            self._behind = chosen is not self._kept[-1]
        return Task(chosen.frame, skipped=self._advance(chosen))

    def _next_in_order(self, frame_s: float) -> _Kept:
        """The image to go to while behind: the lag shrinks by ``lag / CATCH_UP_S`` per second of work."""
        lag_s = (self._kept[-1].frame.stamp_ns - self._cursor_stamp_ns) * 1e-9
        target_ns = self._cursor_stamp_ns + int(frame_s * (1 + lag_s / CATCH_UP_S) * 1e9)
        ahead = [kept for kept in self._kept if kept.number > self._cursor]
        return next((kept for kept in ahead if kept.frame.stamp_ns >= target_ns), ahead[-1])

    def _advance(self, chosen: _Kept) -> int:
        """Move the cursor; returns how many images were passed over for good."""
        skipped = max(0, chosen.number - 1 - max(self._cursor, self._furthest))
        self._cursor, self._cursor_stamp_ns = chosen.number, chosen.frame.stamp_ns
        self._furthest = max(self._furthest, chosen.number)
        return skipped

    def _find(self, stamp_ns: int) -> _Kept:
        if not self._kept:
            raise InputError("no image has arrived yet; select once images come (is the topic image right?)")
        if stamp_ns == 0:
            return self._kept[-1]
        for kept in reversed(self._kept):
            if kept.frame.stamp_ns == stamp_ns:
                return kept
        newest, oldest = self._kept[-1].frame.stamp_ns, self._kept[0].frame.stamp_ns
        age_s, kept_s = (newest - stamp_ns) * 1e-9, (newest - oldest) * 1e-9
        if age_s < 0:
            raise InputError(
                f"the stamp {_seconds(stamp_ns)} is {-age_s:.3f} s ahead of the newest image; copy"
                " it from the image's header, or use 0 for the newest image"
            )
        if age_s <= kept_s:
            raise InputError(
                f"no image with the stamp {_seconds(stamp_ns)} was received; copy it from the image's header"
            )
        raise InputError(
            f"the selection's image is {age_s:.2f} s old and only {kept_s:.2f} s of images are kept"
            f" (selection_buffer {self._keep_s:g} s, selection_buffer_bytes {self._keep_bytes}, at most"
            f" {MOST_IMAGES} images); select on a newer image or raise them"
        )

    def _trim(self) -> None:
        while len(self._kept) > 1 and (
            self._bytes > self._keep_bytes
            or len(self._kept) > MOST_IMAGES
            or self._kept[-1].frame.stamp_ns - self._kept[0].frame.stamp_ns > self._keep_s * 1e9
        ):
            self._bytes -= self._kept.popleft().frame.nbytes


def _seconds(stamp_ns: int) -> str:
    return f"{stamp_ns // 10**9}.{stamp_ns % 10**9:09d}"
