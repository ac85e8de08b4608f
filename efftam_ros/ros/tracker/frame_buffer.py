"""Hands images and commands from the executor's thread to the loop's.

Holds the newest image, images kept for late selections, and the last command. An operator may draw a box on
an image that is several seconds old: images are therefore kept, limited in time, bytes and number. All recent
images are kept; older ones are thinned, so that the same memory covers a longer time, with enough images to
follow the target from the selected image to the newest."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from statistics import median
from typing import Any

from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.errors import InputError
from efftam_ros.core.types import Image, Prompt

# Most images kept at once, however small: every late selection searches through them.
MOST_IMAGES = 4096
# Age up to which every image is kept, and the same when the byte limit is reached, ns of stamps.
RECENT_NS, LEAST_RECENT_NS = 1_500_000_000, 500_000_000
# Least interval between kept older images, ns.
APART_NS = 200_000_000
# Largest distance of a stamp from a kept image, in periods: above one half, because the periods vary.
REACH = 0.51
# Time within which a loop that has fallen behind the camera aims to catch up, s.
CATCH_UP_S = 0.5
# Longest step of images while catching up, s: well below max_gap, beyond which the target is lost.
MOST_STEP_S = 1.0


@dataclass(eq=False)
class BufferedFrame:
    """One received image.

    Attributes:
        header: Copied unchanged into the answers.
        stamp_ns: Stamp of the image, ns.
        arrived_s: Arrival on the steady clock, s.
        nbytes: Memory cost of keeping it.
        size: Width and height, px.
        pixels: The image, or a function that decodes it and raises InputError.
        number: Its place among all received images; given by the buffer.
    """

    header: Any
    stamp_ns: int
    arrived_s: float
    nbytes: int
    size: tuple[int, int]
    pixels: Image | Callable[[], Image] = field(repr=False)
    number: int = 0


class KeptImages:
    """The kept images, iterated from oldest to newest; ``newest`` is the last. Not thread-safe."""

    def __init__(self, keep_s: float, keep_bytes: int) -> None:
        self._thinned: deque[BufferedFrame] = deque()
        self._recent: deque[BufferedFrame] = deque()
        self.newest: BufferedFrame | None = None
        self._bytes = 0
        self._forgotten_ns = 0  # stamp of the newest image when time went back
        self._held: tuple[int, BufferedFrame] | None = None  # the stamp asked for, and its image
        self.limit(keep_s, keep_bytes)

    def __iter__(self) -> Iterator[BufferedFrame]:
        return chain(self._thinned, self._recent)

    def limit(self, keep_s: float, keep_bytes: int) -> None:
        """Change the limits, in seconds of image stamps and in bytes."""
        self._keep_s, self._keep_bytes = keep_s, keep_bytes
        self._trim()

    def append(self, frame: BufferedFrame) -> None:
        """Keep a new image. If its stamp is older than the last one's (a bag loops), the others are
        forgotten: their stamps no longer identify them."""
        if self.newest is not None and frame.stamp_ns < self.newest.stamp_ns:
            self._forgotten_ns, self._bytes = self.newest.stamp_ns, 0
            self._thinned.clear()
            self._recent.clear()
            self._held = None
        self.newest = frame
        self._recent.append(frame)
        self._bytes += frame.nbytes
        self._trim()

    def hold(self, stamp_ns: int) -> None:
        """Keep the image that `find` gives for this stamp, whatever is thinned or over the byte limit, until
        ``keep_s`` or the next call; 0: none. Raises InputError as `find`."""
        self._held = (stamp_ns, self.find(stamp_ns)) if stamp_ns else None

    def find(self, stamp_ns: int) -> BufferedFrame:
        """Return the image with this stamp (0: the newest), or the nearest within half the local spacing of
        kept images: the stamp may be that of an image which did not get here.

        Raises InputError stating how far off the stamp is.
        """
        newest = self.newest
        if newest is None:
            raise InputError("no image has arrived yet; select once images come (is the topic image right?)")
        if stamp_ns == 0:
            return newest
        if self._held is not None and self._held[0] == stamp_ns:
            return self._held[1]
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
        return REACH * max(period, min(sum(around), period + APART_NS))

    def _is_full(self) -> bool:
        nbytes = self._bytes + (self._held[1].nbytes if self._held is not None else 0)
        return nbytes > self._keep_bytes or len(self._thinned) + len(self._recent) > MOST_IMAGES

    def _trim(self) -> None:
        if self.newest is None:
            return
        newest_ns, recent = self.newest.stamp_ns, self._recent
        if self._held is not None and newest_ns - self._held[1].stamp_ns > self._keep_s * 1e9:
            self._held = None
        while (age_ns := newest_ns - recent[0].stamp_ns) > LEAST_RECENT_NS and (
            age_ns > RECENT_NS or self._is_full()
        ):
            self._thin(recent.popleft())
        while (oldest := (self._thinned or recent)[0]) is not self.newest and (
            newest_ns - oldest.stamp_ns > self._keep_s * 1e9 or self._is_full()
        ):
            self._bytes -= (self._thinned or recent).popleft().nbytes

    def _thin(self, frame: BufferedFrame) -> None:
        if self._thinned and frame.stamp_ns - self._thinned[-1].stamp_ns < APART_NS:
            self._bytes -= frame.nbytes
        else:
            self._thinned.append(frame)


def seconds(stamp_ns: int) -> str:
    """Format a stamp in seconds with all nine decimals."""
    return f"{stamp_ns // 10**9}.{stamp_ns % 10**9:09d}"


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
    """The loop's next task: clear the target, or process an image, with a prompt if it was selected on.

    ``frame``: None for a clear; ``skipped``: images dropped before this one; ``command``: the command behind
    this task, None for an ordinary image; ``settings``: new settings of the tracker, from this task on.
    """

    frame: BufferedFrame | None
    prompt: Prompt | None = None
    skipped: int = 0
    command: Command | None = None
    settings: TrackerConfig | None = None


class FrameBuffer:
    """Passes images, commands and settings to the loop. All methods are thread-safe.

    Normally the newest image is taken and older ones are dropped. After a selection on an older image, the
    images since then are processed in order, in steps wide enough to catch up with the camera soon.
    """

    def __init__(self, keep_s: float, keep_bytes: int, timeout_s: float = math.inf) -> None:
        self._condition = threading.Condition()
        self._kept = KeptImages(keep_s, keep_bytes)
        self._timeout_s = timeout_s
        self._count = 0  # images received; the newest has this number
        self._cursor = 0  # number of the image that was taken last
        self._furthest = 0  # highest number that was ever taken or skipped
        self._cursor_stamp_ns = 0
        self._behind = False
        self._waiting_s: float | None = None  # since when an image has been waiting to be processed
        self._command: Task | None = None  # pending
        self._settings: TrackerConfig | None = None  # pending
        self._selecting = False  # a selection was taken and its image is in work
        self._closed = False
        self.frame_s = 0.0
        """The loop's current processing time of a frame, s; 0 before the first."""

    def limit(self, keep_s: float, keep_bytes: int, timeout_s: float = math.inf) -> None:
        """Change the limits of the kept images, in seconds of image stamps and in bytes, and the time without
        an image after which images count as stopped."""
        with self._condition:
            self._kept.limit(keep_s, keep_bytes)
            self._timeout_s = timeout_s

    @property
    def newest(self) -> BufferedFrame | None:
        with self._condition:
            return self._kept.newest

    def stale(self, now_s: float) -> str:
        """Why images can no longer be relied on; empty while they arrive, and before the first."""
        with self._condition:
            newest, timeout_s = self._kept.newest, self._timeout_s
        silence_s = 0.0 if newest is None else now_s - newest.arrived_s
        if silence_s <= timeout_s:
            return ""
        return f"no image for {silence_s:.2f} s (image_timeout is {timeout_s:g} s)"

    def done(self, frame: BufferedFrame, now_s: float) -> None:
        """The image was answered or refused; a newer one waits from now on."""
        with self._condition:
            self._waiting_s = None if frame is self._kept.newest else now_s

    def waiting_s(self, now_s: float) -> float:
        """How long the newest image or one before it has been waiting to be processed; 0 while none is."""
        with self._condition:
            return 0.0 if self._waiting_s is None else now_s - self._waiting_s

    def put(self, frame: BufferedFrame) -> None:
        """Store the newest image. Raises InputError when its stamp equals the last one's."""
        with self._condition:
            newest = self._kept.newest
            if newest is not None and frame.stamp_ns == newest.stamp_ns:
                raise InputError(
                    f"two images in a row have the stamp {seconds(frame.stamp_ns)}; the second is dropped:"
                    " stamp each image with its own time"
                )
            self._count += 1
            frame.number = self._count
            self._kept.append(frame)
            if self._waiting_s is None:
                self._waiting_s = frame.arrived_s
            self._condition.notify()

    def hold(self, stamp_ns: int) -> None:
        """Keep the image of this stamp for a selection; see `KeptImages.hold`."""
        with self._condition:
            self._kept.hold(stamp_ns)

    def find(self, stamp_ns: int) -> BufferedFrame:
        """Return the kept image that a stamp refers to. Raises InputError as `KeptImages.find` does."""
        with self._condition:
            return self._kept.find(stamp_ns)

    def select(self, frame: BufferedFrame, prompt: Prompt, command: Command) -> Command | None:
        """Request tracking from a kept image; returns the pending command that this one replaces."""
        return self._replace_pending(Task(frame, prompt, command=command))

    def clear(self, command: Command) -> Command | None:
        """Request that the target be cleared; returns the pending command that this one replaces."""
        return self._replace_pending(Task(None, command=command))

    def _replace_pending(self, task: Task) -> Command | None:
        with self._condition:
            replaced, self._command = self._command, task
            self._condition.notify()
        return None if replaced is None else replaced.command

    def reconfigure(self, settings: TrackerConfig) -> None:
        """Have the loop apply these settings with its next task."""
        with self._condition:
            self._settings = settings

    @property
    def has_selection(self) -> bool:
        """True while a selection is pending or its image is in work."""
        with self._condition:
            return self._selecting if self._command is None else self._command.frame is not None

    def resume(self) -> None:
        """Continue after the last image taken before a selection, because that selection failed."""
        with self._condition:
            self._cursor, self._behind = self._furthest, False

    def close(self) -> Command | None:
        """Make `take` return None from now on; returns the pending command, which will not be carried out."""
        with self._condition:
            self._closed = True
            pending, self._command = self._command, None
            self._condition.notify_all()
        return None if pending is None else pending.command

    def take(self, frame_s: float = 0.0) -> Task | None:
        """Wait for the next task; None once closed. ``frame_s``: current processing time of a frame, s."""
        with self._condition:
            self.frame_s, self._selecting = frame_s, False
            while not self._closed:
                newest = self._kept.newest
                if self._command is not None:
                    task, self._command = self._command, None
                    self._start(task.frame)
                elif newest is not None and newest.number > self._cursor:
                    frame = self._next_in_order(newest) if self._behind else newest
                    self._behind = self._behind and frame is not newest
                    task = Task(frame, skipped=self._advance(frame))
                else:
                    self._condition.wait()
                    continue
                if self._settings is not None:
                    task, self._settings = replace(task, settings=self._settings), None
                return task
        return None

    def _start(self, selected: BufferedFrame | None) -> None:
        if selected is not None:
            self._selecting = True
            self._behind = selected.number < self._count
            self._advance(selected)

    def _next_in_order(self, newest: BufferedFrame) -> BufferedFrame:
        """The next image while catching up: the lag shrinks by ``lag / CATCH_UP_S`` per second of work."""
        lag_s = (newest.stamp_ns - self._cursor_stamp_ns) * 1e-9
        step_s = min(self.frame_s * (1 + lag_s / CATCH_UP_S), MOST_STEP_S)
        target_ns = self._cursor_stamp_ns + int(step_s * 1e9)
        ahead = [frame for frame in self._kept if frame.number > self._cursor]
        return next((frame for frame in ahead if frame.stamp_ns >= target_ns), ahead[-1])

    def _advance(self, chosen: BufferedFrame) -> int:
        """Move the cursor; returns how many images were skipped for good."""
        skipped = max(0, chosen.number - 1 - max(self._cursor, self._furthest))
        self._cursor, self._cursor_stamp_ns = chosen.number, chosen.stamp_ns
        self._furthest = max(self._furthest, chosen.number)
        return skipped
