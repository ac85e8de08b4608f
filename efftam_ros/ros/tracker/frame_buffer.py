"""Hands images and commands from the subscriptions to the worker.

Holds the newest image, images kept for late selections, and the last command.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

from efftam_ros.core.errors import InputError
from efftam_ros.core.types import Prompt
from efftam_ros.ros.tracker.kept_images import BufferedFrame, Kept, KeptImages, seconds

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
        self._selected: Kept | None = None
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
                # Time went back (a bag loops): the kept stamps no longer identify these images.
                self._kept.clear()
            self._count += 1
            self._kept.append(Kept(self._count, frame))
            self._condition.notify()

    def find(self, stamp_ns: int) -> Kept:
        """Return the kept image that a stamp refers to. Raises InputError as `KeptImages.find` does."""
        with self._condition:
            return self._kept.find(stamp_ns)

    def select(self, kept: Kept, prompt: Prompt, command: Command) -> Command | None:
        """Request tracking from a kept image; returns the pending command that this one replaces."""
        return self._order(Task(kept.frame, prompt, command=command), kept)

    def clear(self, command: Command) -> Command | None:
        """Request that the target be cleared; returns the pending command that this one replaces."""
        return self._order(Task(None, command=command), None)

    def _order(self, task: Task, selected: Kept | None) -> Command | None:
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

    def _take_image(self, newest: Kept, frame_s: float) -> Task:
        chosen = newest
        if self._behind:
            chosen = self._next_in_order(newest, frame_s)
            self._behind = chosen is not newest
        return Task(chosen.frame, skipped=self._advance(chosen))

    def _next_in_order(self, newest: Kept, frame_s: float) -> Kept:
        """The next image while catching up: the lag shrinks by ``lag / CATCH_UP_S`` per second of work."""
        lag_s = (newest.stamp_ns - self._cursor_stamp_ns) * 1e-9
        target_ns = self._cursor_stamp_ns + int(frame_s * (1 + lag_s / CATCH_UP_S) * 1e9)
        ahead = [kept for kept in self._kept if kept.number > self._cursor]
        return next((kept for kept in ahead if kept.stamp_ns >= target_ns), ahead[-1])

    def _advance(self, chosen: Kept) -> int:
        """Move the cursor; returns how many images were skipped for good."""
        skipped = max(0, chosen.number - 1 - max(self._cursor, self._furthest))
        self._cursor, self._cursor_stamp_ns = chosen.number, chosen.frame.stamp_ns
        self._furthest = max(self._furthest, chosen.number)
        return skipped
