"""Hands images and commands from the executor's thread to the loop's.

Holds the newest image, images kept for late selections, and the commands that wait. An operator may draw a
box on an image that is several seconds old: images are therefore kept, limited in time, bytes and number. All
recent images are kept; older ones are thinned, so that the same memory covers a longer time, with enough
images to follow the target from the selected image to the newest."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, pairwise
from statistics import median
from typing import Any, NamedTuple

from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.errors import InputError
from efftam_ros.core.reasons import NO_REASON, Reason, ReasonCode
from efftam_ros.core.types import Prompt
from efftam_ros.images.message import ReceivedImage

# Most images kept at once, however small: every late selection searches through them.
MAX_IMAGES = 4096
# Age up to which every image is kept, and the same when the byte limit is reached, ns of stamps.
RECENT_NS, MIN_RECENT_NS = 1_500_000_000, 500_000_000
# Least interval between kept older images, ns.
APART_NS = 200_000_000
# Largest distance of a stamp from a kept image, in periods: above one half, because the periods vary.
REACH = 0.51
# Time within which a loop that has fallen behind the camera aims to catch up, s.
CATCH_UP_S = 0.5
# Longest step of images while catching up, s: well below max_gap, beyond which the target is lost.
MAX_STEP_S = 1.0
# Least time between two proposals while a target is followed, s.
PROPOSALS_APART_S = 1.0
# In the place of an id, in a command to clear.
ALL = 255


class KeptImages:
    """The kept images, iterated from oldest to newest; ``newest`` is the last. Not thread-safe."""

    def __init__(self, keep_s: float, keep_bytes: int) -> None:
        self._thinned: deque[ReceivedImage] = deque()
        self._recent: deque[ReceivedImage] = deque()
        self.newest: ReceivedImage | None = None
        self._bytes = 0
        self._forgotten_ns = 0  # stamp of the newest image when time went back
        self._held: tuple[int, ReceivedImage] | None = None  # the stamp asked for, and its image
        self.limit(keep_s, keep_bytes)

    def __iter__(self) -> Iterator[ReceivedImage]:
        return chain(self._thinned, self._recent)

    def limit(self, keep_s: float, keep_bytes: int) -> None:
        """Change the limits, in seconds of image stamps and in bytes."""
        self._keep_s, self._keep_bytes = keep_s, keep_bytes
        self._trim()

    def append(self, frame: ReceivedImage) -> None:
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

    def find(self, stamp_ns: int) -> ReceivedImage:
        """Return the image with this stamp (0: the newest), or the nearest within half the local spacing of
        kept images: the stamp may be that of an image which did not get here.

        Raises InputError stating how far off the stamp is.
        """
        newest = self.newest
        if newest is None:
            why = "select once images come (is the topic image right?)"
            raise InputError(ReasonCode.NO_IMAGE.reason(why=why))
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
            raise _not_kept(
                f"the selection's image ({seconds(stamp_ns)}) is from before the images' stamps went back;"
                " such images are not kept: select on a newer one"
            )
        if age_s < 0:
            raise _not_kept(
                f"the stamp {seconds(stamp_ns)} is {-age_s:.3f} s ahead of the newest image; copy"
                " it from the image's header, or use 0 for the newest image"
            )
        if age_s <= kept_s:
            raise _not_kept(
                f"no image near the stamp {seconds(stamp_ns)} was received (the nearest is"
                f" {off_ns * 1e-9:.3f} s off); copy the stamp from the image's header, or select on another"
                " image"
            )
        raise _not_kept(
            f"the selection's image is {age_s:.2f} s old and only {kept_s:.2f} s of images are kept"
            f" (selection_buffer {self._keep_s:g} s, selection_buffer_bytes {self._keep_bytes}, at most"
            f" {MAX_IMAGES} images); select on a newer image or raise them"
        )

    def _reach_ns(self, stamp_ns: int) -> float:
        period = median([b.stamp_ns - a.stamp_ns for a, b in pairwise(self._recent)] or [0])
        around = [b.stamp_ns - a.stamp_ns for a, b in pairwise(self) if a.stamp_ns < stamp_ns <= b.stamp_ns]
        return REACH * max(period, min(sum(around), period + APART_NS))

    def _is_full(self) -> bool:
        nbytes = self._bytes + (self._held[1].nbytes if self._held is not None else 0)
        return nbytes > self._keep_bytes or len(self._thinned) + len(self._recent) > MAX_IMAGES

    def _trim(self) -> None:
        if self.newest is None:
            return
        newest_ns, recent = self.newest.stamp_ns, self._recent
        if self._held is not None and newest_ns - self._held[1].stamp_ns > self._keep_s * 1e9:
            self._held = None
        while (age_ns := newest_ns - recent[0].stamp_ns) > MIN_RECENT_NS and (
            age_ns > RECENT_NS or self._is_full()
        ):
            self._thin(recent.popleft())
        while (oldest := (self._thinned or recent)[0]) is not self.newest and (
            newest_ns - oldest.stamp_ns > self._keep_s * 1e9 or self._is_full()
        ):
            self._bytes -= (self._thinned or recent).popleft().nbytes

    def _thin(self, frame: ReceivedImage) -> None:
        if self._thinned and frame.stamp_ns - self._thinned[-1].stamp_ns < APART_NS:
            self._bytes -= frame.nbytes
        else:
            self._thinned.append(frame)


def seconds(stamp_ns: int) -> str:
    """Format a stamp in seconds with all nine decimals."""
    return f"{stamp_ns // 10**9}.{stamp_ns % 10**9:09d}"


@dataclass(frozen=True)
class Command:
    """A selection, a request to clear or to steer by a target, with what is needed to report its outcome.

    ``header``: header of the requesting message, None if it had none; ``target_id``: a target's own, or `ALL`
    for a clear; ``number``: number of the selection, 0 for others; ``note``: remark to report when it is
    accepted.
    """

    header: Any
    target_id: int
    number: int = 0
    note: Reason = NO_REASON


class Followed(NamedTuple):
    """Ids of the targets, in order, and of the one that is steered by."""

    ids: tuple[int, ...]
    steered: int | None

    def added(self, target_id: int) -> Followed:
        """Return the same once this target is selected; the first one is steered by."""
        ids = tuple(sorted({*self.ids, target_id}))
        return Followed(ids, target_id if self.steered is None else self.steered)

    def without(self, target_id: int) -> Followed:
        """Return the same once this target, or `ALL`, is cleared."""
        ids = () if target_id == ALL else tuple(one for one in self.ids if one != target_id)
        return Followed(ids, self.steered if self.steered in ids else None)


NOBODY, ONE = Followed((), None), Followed((0,), 0)


@dataclass(frozen=True)
class Reconfigure:
    """Use these settings from now on."""

    settings: TrackerConfig


@dataclass(frozen=True)
class Steer:
    """Steer by the command's target."""

    command: Command


@dataclass(frozen=True)
class Clear:
    """Forget the command's target, or all."""

    command: Command


@dataclass(frozen=True)
class Marked:
    """A prompt on a kept image: of a selection, or of a request for the box that it would give."""

    command: Command
    frame: ReceivedImage
    prompt: Prompt


@dataclass(frozen=True)
class Process:
    """Process an image.

    ``skipped``: images dropped before this one; ``ids``: the targets to process besides the selected one,
    None for all; ``selection``: what is selected on it, None for an ordinary image.
    """

    frame: ReceivedImage
    skipped: int = 0
    ids: frozenset[int] | None = None
    selection: Marked | None = None


@dataclass(frozen=True)
class Propose:
    """Publish the box that a prompt gives; nothing is selected."""

    request: Marked


Task = Reconfigure | Steer | Clear | Process | Propose


class FrameBuffer:
    """Passes images, commands and settings to the loop. All methods are thread-safe.

    Normally the newest image is taken for all targets and older ones are dropped. A target that was selected
    on an older image goes through the images since then in order, in steps wide enough to catch up with the
    camera soon. Targets that catch up, and all others together, take turns.
    """

    def __init__(self, keep_s: float, keep_bytes: int, timeout_s: float = math.inf) -> None:
        self._condition = threading.Condition()
        self._kept = KeptImages(keep_s, keep_bytes)
        self._timeout_s = timeout_s
        self._count = 0  # images received; the newest has this number
        self._furthest = 0  # highest number that was ever taken or skipped
        # The last image of each target that catches up with the camera, in the order of their turns.
        self._behind: dict[int, ReceivedImage] = {}
        self._newest_has_turn = True  # of the targets that have caught up with the camera
        self._waiting_s: float | None = None  # since when an image has been waiting to be processed
        # Pending: one per target, and under None one to steer.
        self._commands: dict[int | None, Marked | Clear | Steer] = {}
        self._proposal: Marked | None = None  # pending: the newest request
        self._proposed_s, self._proposed_image = -math.inf, -1  # when one was computed, newest image by then
        self._settings: TrackerConfig | None = None  # pending
        self._followed = NOBODY
        self._selecting: int | None = None  # the target whose selection is being processed
        self._closed = False
        self.frame_s = 0.0
        """The loop's current time for one step of each target, s; 0 before the first."""

    def limit(self, keep_s: float, keep_bytes: int, timeout_s: float = math.inf) -> None:
        """Change the limits of the kept images, in seconds of image stamps and in bytes, and the time without
        an image after which images count as stopped."""
        with self._condition:
            self._kept.limit(keep_s, keep_bytes)
            self._timeout_s = timeout_s

    @property
    def newest(self) -> ReceivedImage | None:
        with self._condition:
            return self._kept.newest

    def stale(self, now_s: float) -> Reason:
        """Return why images can no longer be relied on; empty while they arrive, and before the first."""
        with self._condition:
            newest, timeout_s = self._kept.newest, self._timeout_s
        silence_s = 0.0 if newest is None else now_s - newest.arrived_s
        if silence_s <= timeout_s:
            return NO_REASON
        return ReasonCode.IMAGES_STOPPED.reason(silence_s=silence_s, timeout_s=timeout_s)

    def done(self, frame: ReceivedImage, now_s: float) -> None:
        """Note that the image was answered or refused; a newer one waits from now on."""
        with self._condition:
            self._waiting_s = None if frame is self._kept.newest else now_s

    def waiting_s(self, now_s: float) -> float:
        """Return how long the newest image or one before it has been waiting to be processed; 0 while none
        is."""
        with self._condition:
            return 0.0 if self._waiting_s is None else now_s - self._waiting_s

    def put(self, frame: ReceivedImage) -> None:
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

    def find(self, stamp_ns: int) -> ReceivedImage:
        """Return the kept image that a stamp refers to. Raises InputError as `KeptImages.find` does."""
        with self._condition:
            return self._kept.find(stamp_ns)

    def select(self, command: Command, frame: ReceivedImage, prompt: Prompt) -> list[Command]:
        """Select the command's target on a kept image; return the pending commands that this one replaces."""
        return self._request(command.target_id, Marked(command, frame, prompt))

    def clear(self, command: Command) -> list[Command]:
        """Have the command's target, or all, cleared; returns the pending commands that this one replaces."""
        return self._request(command.target_id, Clear(command))

    def steer(self, command: Command) -> None:
        """Have the node steer by the command's target."""
        self._request(None, Steer(command))

    def _request(self, key: int | None, request: Marked | Clear | Steer) -> list[Command]:
        with self._condition:
            keys = list(self._commands) if key == ALL else [key] * (key in self._commands)
            replaced = _to_report(self._commands.pop(one) for one in keys)
            self._commands[key] = request
            self._condition.notify()
        return replaced

    def propose(self, command: Command, frame: ReceivedImage, prompt: Prompt) -> Command | None:
        """Request the box that the network gives for a prompt on a kept image; returns the pending request
        that this one replaces."""
        with self._condition:
            replaced, self._proposal = self._proposal, Marked(command, frame, prompt)
            self._condition.notify()
        return None if replaced is None else replaced.command

    def reconfigure(self, settings: TrackerConfig) -> None:
        """Have the loop apply these settings before its next task."""
        with self._condition:
            self._settings = settings
            self._condition.notify()

    @property
    def followed(self) -> Followed:
        """The targets that there are once the pending commands are carried out."""
        with self._condition:
            found = self._followed
            if self._selecting is not None:
                found = found.added(self._selecting)
            for request in self._commands.values():
                target_id = request.command.target_id
                if isinstance(request, Steer):
                    found = found._replace(steered=target_id)
                elif isinstance(request, Marked):
                    found = found.added(target_id)
                else:
                    found = found.without(target_id)
        return found

    def resume(self, target_id: int) -> None:
        """End a target's catching up, because its selection failed."""
        with self._condition:
            self._behind.pop(target_id, None)

    def close(self) -> list[Command]:
        """Make `take` return None from now on; returns the pending commands, which are dropped."""
        with self._condition:
            self._closed = True
            pending = _to_report(self._commands.values())
            self._commands.clear()
            self._condition.notify_all()
        return pending

    def take(self, frame_s: float = 0.0, followed: Followed = ONE) -> Task | None:
        """Wait for the next task; None once closed. ``frame_s``: current time for one step of each target, s;
        ``followed``: the targets that there are."""
        with self._condition:
            self.frame_s, self._followed, self._selecting = frame_s, followed, None
            for gone in self._behind.keys() - followed.ids:
                del self._behind[gone]
            while not self._closed:
                if self._settings is not None:
                    settings, self._settings = self._settings, None
                    return Reconfigure(settings)
                task = self._next_command() or self._next_proposal() or self._next_image()
                if task is not None:
                    return task
                self._condition.wait(None if self._proposal is None else PROPOSALS_APART_S)
        return None

    def _next_command(self) -> Task | None:
        if not self._commands:
            return None
        request = self._commands.pop(next(iter(self._commands)))
        if isinstance(request, Clear):
            # The targets that selections refer to must not lag behind the outcome that is published.
            self._followed = self._followed.without(request.command.target_id)
        if not isinstance(request, Marked):
            return request
        frame, target_id = request.frame, request.command.target_id
        self._selecting = target_id
        self._behind.pop(target_id, None)
        was_taken, is_newest = frame.number <= self._furthest, frame.number == self._count
        if not is_newest:
            self._behind[target_id] = frame
        self._advance(frame)
        # The other targets were processed in this image, or continue with the newest.
        ids = self._level if is_newest and not was_taken else frozenset()
        return Process(frame, ids=ids, selection=request)

    def _next_proposal(self) -> Propose | None:
        """Return the request, when it has its turn: without a target at once, but in turn with images; with
        one ``PROPOSALS_APART_S`` after the last."""
        request, now_s, taken = self._proposal, time.monotonic(), self._furthest
        is_early = self._followed.ids and now_s - self._proposed_s < PROPOSALS_APART_S
        if request is None or is_early or self._count > taken == self._proposed_image:
            return None
        self._proposal, self._proposed_s, self._proposed_image = None, now_s, taken
        return Propose(request)

    @property
    def _level(self) -> frozenset[int] | None:
        """The targets that have caught up with the camera; None: all."""
        return frozenset(self._followed.ids) - self._behind.keys() if self._behind else None

    def _next_image(self) -> Process | None:
        newest, level = self._kept.newest, self._level if self._behind else None
        is_new = newest is not None and newest.number > self._furthest
        if newest is None or not (is_new or self._behind):
            return None
        if is_new and (level is None or (level and self._newest_has_turn)):
            self._newest_has_turn = False
            return Process(newest, skipped=self._advance(newest), ids=level)
        self._newest_has_turn = True
        target_id = next(iter(self._behind))
        frame = self._next_in_order(self._behind.pop(target_id), newest)
        if frame is newest:
            ids = self._level if is_new else frozenset({target_id})
            return Process(frame, skipped=self._advance(frame), ids=ids)
        self._behind[target_id] = frame
        return Process(frame, skipped=0 if level else self._advance(frame), ids=frozenset({target_id}))

    def _next_in_order(self, last: ReceivedImage, newest: ReceivedImage) -> ReceivedImage:
        """Return the next image while catching up: the lag shrinks by ``lag / CATCH_UP_S`` per second of
        work."""
        lag_s = (newest.stamp_ns - last.stamp_ns) * 1e-9
        step_s = min(self.frame_s * (1 + lag_s / CATCH_UP_S), MAX_STEP_S)
        target_ns = last.stamp_ns + int(step_s * 1e9)
        ahead = [frame for frame in self._kept if frame.number > last.number]
        return next((frame for frame in ahead if frame.stamp_ns >= target_ns), ahead[-1])

    def _advance(self, chosen: ReceivedImage) -> int:
        """Take the image; return how many images will never be processed."""
        skipped = max(0, chosen.number - 1 - self._furthest)
        self._furthest = max(self._furthest, chosen.number)
        return skipped


def _to_report(requests: Iterable[Marked | Clear | Steer]) -> list[Command]:
    """Return the commands whose outcome is published: to select and to clear."""
    return [request.command for request in requests if not isinstance(request, Steer)]


def _not_kept(fault: str) -> InputError:
    return InputError(ReasonCode.IMAGE_NOT_KEPT.reason(fault=fault))
