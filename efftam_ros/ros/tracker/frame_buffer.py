"""Passes images and commands from the executor's thread to the thread of the tracking loop.

The buffer contains the newest image, earlier images, and the commands that the loop has not taken yet. An
operator may draw a box on an image that is several seconds old, so earlier images are kept. Their age, bytes
and number are limited. All recent images are kept. Of older images only some are kept, so that the same
memory covers a longer time. They suffice to follow a target from the selected image to the newest.
"""

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

# Largest number of kept images, whatever their size. A selection on an older image searches through them all.
MAX_IMAGES = 4096
# Every image up to the age RECENT_NS is kept, or up to MIN_RECENT_NS if memory is short. Ages are in ns and
# computed from stamps.
RECENT_NS, MIN_RECENT_NS = 1_500_000_000, 500_000_000
# Older images are kept only if their stamps are at least this far apart, ns.
APART_NS = 200_000_000
# Largest distance between a selection's stamp and a kept image, in periods of the images. It is above one
# half, because the periods vary.
REACH = 0.51
# Time in which a target that was selected on an older image should catch up with the camera, s.
CATCH_UP_S = 0.5
# Longest step between two processed images while catching up, s. It is well below the parameter max_gap:
# a target is LOST after a longer gap.
MAX_STEP_S = 1.0
# Shortest time between two proposals while a target is followed, s.
PROPOSALS_APART_S = 1.0
# The target id that means all targets in a command to clear.
ALL = 255


class KeptImages:
    """The kept images, which can be iterated from the oldest to ``newest``. Not thread-safe."""

    def __init__(self, keep_s: float, keep_bytes: int) -> None:
        self._thinned: deque[ReceivedImage] = deque()
        self._recent: deque[ReceivedImage] = deque()
        self.newest: ReceivedImage | None = None
        self._bytes = 0
        self._forgotten_ns = 0  # stamp of the last image before the stamps went back; 0: they never did
        self._held: tuple[int, ReceivedImage] | None = None  # requested stamp, and the image found for it
        self.limit(keep_s, keep_bytes)

    def __iter__(self) -> Iterator[ReceivedImage]:
        return chain(self._thinned, self._recent)

    def limit(self, keep_s: float, keep_bytes: int) -> None:
        """Change the limits. ``keep_s``: greatest age by stamps, s. ``keep_bytes``: largest memory, bytes."""
        self._keep_s, self._keep_bytes = keep_s, keep_bytes
        self._trim()

    def append(self, frame: ReceivedImage) -> None:
        """Keep a new image.

        If its stamp is older than that of the last image (as when a bag plays in a loop), all earlier images
        are removed, because their stamps may occur a second time.
        """
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
        """Keep the image that `find` returns for this stamp, ns, even if other images of its age are removed.

        It is kept until it is older than ``keep_s``, or until the next call. With the stamp 0 no image is
        kept in this way. Raises InputError as `find` does.
        """
        self._held = (stamp_ns, self.find(stamp_ns)) if stamp_ns else None

    def find(self, stamp_ns: int) -> ReceivedImage:
        """Return the image with this stamp, ns (0: the newest), or the nearest image.

        The image with exactly this stamp may have been lost in transport or removed. The image with the
        nearest stamp is then returned, if the stamps differ by at most about half the interval between the
        kept images around ``stamp_ns``. Raises InputError if no image is near enough.
        """
        newest = self.newest
        if newest is None:
            why = "select when images arrive; if none arrives, check the topic of the images (remap image)"
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
            f" {MAX_IMAGES} images); select on a newer image or raise these limits"
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
    """A command to select, clear or steer by a target, with the data needed to report its outcome.

    ``header``: header of the message with the command, None if the message had none. ``target_id``: id of the
    target, or `ALL` in a command to clear. ``number``: number of the selection; 0 for other commands.
    ``note``: remark that is published when the command is accepted.
    """

    header: Any
    target_id: int
    number: int = 0
    note: Reason = NO_REASON


class Followed(NamedTuple):
    """Ids of all targets, sorted, and the id of the steered target (None: no target is steered)."""

    ids: tuple[int, ...]
    steered: int | None

    def added(self, target_id: int) -> Followed:
        """Return the ids after this target is selected. If no target is steered yet, this one will be."""
        ids = tuple(sorted({*self.ids, target_id}))
        return Followed(ids, target_id if self.steered is None else self.steered)

    def without(self, target_id: int) -> Followed:
        """Return the ids after this target, or `ALL`, is cleared."""
        ids = () if target_id == ALL else tuple(one for one in self.ids if one != target_id)
        return Followed(ids, self.steered if self.steered in ids else None)


NOBODY, ONE = Followed((), None), Followed((0,), 0)


@dataclass(frozen=True)
class Reconfigure:
    """Task of the loop: use these settings from now on."""

    settings: TrackerConfig


@dataclass(frozen=True)
class Steer:
    """Task of the loop: make the command's target the steered one."""

    command: Command


@dataclass(frozen=True)
class Clear:
    """Task of the loop: clear the command's target, or all targets."""

    command: Command


@dataclass(frozen=True)
class Marked:
    """A prompt on a kept image, from a selection or from a request for a proposal."""

    command: Command
    frame: ReceivedImage
    prompt: Prompt


@dataclass(frozen=True)
class Process:
    """Task of the loop: process an image.

    ``skipped``: number of images before this one that are not processed. ``ids``: the targets to look for in
    the image besides the selected one; None: all. ``selection``: the selection on this image; None if the
    image has none.
    """

    frame: ReceivedImage
    skipped: int = 0
    ids: frozenset[int] | None = None
    selection: Marked | None = None


@dataclass(frozen=True)
class Propose:
    """Task of the loop: publish the box that the network gives for a prompt, without selecting a target."""

    request: Marked


Task = Reconfigure | Steer | Clear | Process | Propose


class FrameBuffer:
    """Passes images, commands and settings to the loop. All methods are thread-safe.

    ``keep_s``, ``keep_bytes``: limits of the kept images, see `KeptImages`. ``timeout_s``: time without an
    image after which images count as stopped, s.

    Normally the loop gets the newest image for all targets. Images that arrive while the loop is processing
    an image are dropped, except the newest. For a target that was selected on an older image, the loop gets
    later images in the order of their arrival. Some of these images are skipped, so that the target soon
    catches up with the camera. Each target that catches up and the group of all other targets get images in
    turn.
    """

    def __init__(self, keep_s: float, keep_bytes: int, timeout_s: float = math.inf) -> None:
        self._condition = threading.Condition()
        self._kept = KeptImages(keep_s, keep_bytes)
        self._timeout_s = timeout_s
        self._count = 0  # number of images received; also the number of the newest image
        self._furthest = 0  # highest number of an image that the loop took or skipped
        # The last processed image of each target that catches up with the camera, by target id. The order is
        # that in which these targets have their turns.
        self._behind: dict[int, ReceivedImage] = {}
        # True: the loop gets the newest image next. False: it gets an image for a target that catches up.
        self._newest_has_turn = True
        self._waiting_s: float | None = None  # when an unprocessed image began to wait, s; None: none waits
        # Commands that the loop has not taken yet. The key of a command to select or clear is the target id,
        # the key of a command to steer is None.
        self._commands: dict[int | None, Marked | Clear | Steer] = {}
        self._proposal: Marked | None = None  # newest request for a proposal, not taken by the loop yet
        # Time of the last proposal, s on the steady clock, and `_furthest` at that time.
        self._proposed_s, self._proposed_image = -math.inf, -1
        self._settings: TrackerConfig | None = None  # new settings, not taken by the loop yet
        self._followed = NOBODY
        self._selecting: int | None = None  # the target whose selection the loop is processing
        self._closed = False
        self.frame_s = 0.0
        """Time that the loop now needs to process an image for all targets, s; 0 before the first image."""

    def limit(self, keep_s: float, keep_bytes: int, timeout_s: float = math.inf) -> None:
        """Change the limits.

        ``keep_s``: greatest age of kept images, by stamps, s. ``keep_bytes``: largest memory for them, bytes.
        ``timeout_s``: time without an image after which images count as stopped, s.
        """
        with self._condition:
            self._kept.limit(keep_s, keep_bytes)
            self._timeout_s = timeout_s

    @property
    def newest(self) -> ReceivedImage | None:
        with self._condition:
            return self._kept.newest

    def stale(self, now_s: float) -> Reason:
        """Return the reason IMAGES_STOPPED if the newest image arrived more than ``timeout_s`` ago.

        Else the reason is empty, also before the first image. `limit` changes ``timeout_s``.
        """
        with self._condition:
            newest, timeout_s = self._kept.newest, self._timeout_s
        silence_s = 0.0 if newest is None else now_s - newest.arrived_s
        if silence_s <= timeout_s:
            return NO_REASON
        return ReasonCode.IMAGES_STOPPED.reason(silence_s=silence_s, timeout_s=timeout_s)

    def done(self, frame: ReceivedImage, now_s: float) -> None:
        """Record that an image was answered or refused. From ``now_s`` on, a newer one counts as waiting."""
        with self._condition:
            self._waiting_s = None if frame is self._kept.newest else now_s

    def waiting_s(self, now_s: float) -> float:
        """Return for how long an image has been waiting to be processed, s; 0 if no image waits."""
        with self._condition:
            return 0.0 if self._waiting_s is None else now_s - self._waiting_s

    def put(self, frame: ReceivedImage) -> None:
        """Store the newest image. Raises InputError when its stamp equals that of the image before."""
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
        """Keep the image of this stamp, ns, for a selection that is being drawn. See `KeptImages.hold`."""
        with self._condition:
            self._kept.hold(stamp_ns)

    def find(self, stamp_ns: int) -> ReceivedImage:
        """Return the kept image with this stamp, ns, or the nearest one. Raises InputError if none is near.

        See `KeptImages.find`.
        """
        with self._condition:
            return self._kept.find(stamp_ns)

    def select(self, command: Command, frame: ReceivedImage, prompt: Prompt) -> list[Command]:
        """Let the loop select the command's target on a kept image.

        Returns the commands that were waiting for the loop and are replaced by this one.
        """
        return self._request(command.target_id, Marked(command, frame, prompt))

    def clear(self, command: Command) -> list[Command]:
        """Let the loop clear the command's target, or all targets.

        Returns the commands that were waiting for the loop and are replaced by this one.
        """
        return self._request(command.target_id, Clear(command))

    def steer(self, command: Command) -> None:
        """Let the loop make the command's target the steered one."""
        self._request(None, Steer(command))

    def _request(self, key: int | None, request: Marked | Clear | Steer) -> list[Command]:
        with self._condition:
            keys = list(self._commands) if key == ALL else [key] * (key in self._commands)
            replaced = _to_report(self._commands.pop(one) for one in keys)
            self._commands[key] = request
            self._condition.notify()
        return replaced

    def propose(self, command: Command, frame: ReceivedImage, prompt: Prompt) -> Command | None:
        """Let the loop publish the box that the network gives for a prompt on a kept image.

        Returns the request that was waiting for the loop and is replaced by this one, or None.
        """
        with self._condition:
            replaced, self._proposal = self._proposal, Marked(command, frame, prompt)
            self._condition.notify()
        return None if replaced is None else replaced.command

    def reconfigure(self, settings: TrackerConfig) -> None:
        """Let the loop apply these settings before its next task."""
        with self._condition:
            self._settings = settings
            self._condition.notify()

    @property
    def followed(self) -> Followed:
        """The targets that exist once the loop has carried out all waiting commands."""
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
        """Let this target be processed in the newest images again, because its selection failed."""
        with self._condition:
            self._behind.pop(target_id, None)

    def close(self) -> list[Command]:
        """Make `take` return None from now on. Return the waiting commands, which are not carried out."""
        with self._condition:
            self._closed = True
            pending = _to_report(self._commands.values())
            self._commands.clear()
            self._condition.notify_all()
        return pending

    def take(self, frame_s: float = 0.0, followed: Followed = ONE) -> Task | None:
        """Wait for the next task of the loop and return it; None once the buffer is closed.

        ``frame_s``: time that the loop now needs to process an image for all targets, s. ``followed``: the
        targets that exist now.
        """
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
            # The loop publishes the outcome before the next `take`. A selection that follows the outcome must
            # already find the target cleared.
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
        # The image is processed for the other targets too if it is the newest and they have not been
        # processed in it yet.
        ids = self._level if is_newest and not was_taken else frozenset()
        return Process(frame, ids=ids, selection=request)

    def _next_proposal(self) -> Propose | None:
        """Return the request for a proposal, if there is one and it may be computed now; else None.

        If targets exist, it may be computed `PROPOSALS_APART_S` after the last one. Between two proposals, a
        waiting image is always taken first.
        """
        request, now_s, taken = self._proposal, time.monotonic(), self._furthest
        is_early = self._followed.ids and now_s - self._proposed_s < PROPOSALS_APART_S
        if request is None or is_early or self._count > taken == self._proposed_image:
            return None
        self._proposal, self._proposed_s, self._proposed_image = None, now_s, taken
        return Propose(request)

    @property
    def _level(self) -> frozenset[int] | None:
        """Ids of the targets that do not have to catch up with the camera; None: all targets."""
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
        """Return the next image for a target that catches up and was processed in the image ``last``.

        The step between the two images is so wide that the lag behind the camera shrinks by ``lag /
        CATCH_UP_S`` per second.
        """
        lag_s = (newest.stamp_ns - last.stamp_ns) * 1e-9
        step_s = min(self.frame_s * (1 + lag_s / CATCH_UP_S), MAX_STEP_S)
        target_ns = last.stamp_ns + int(step_s * 1e9)
        ahead = [frame for frame in self._kept if frame.number > last.number]
        return next((frame for frame in ahead if frame.stamp_ns >= target_ns), ahead[-1])

    def _advance(self, chosen: ReceivedImage) -> int:
        """Record that the loop takes this image. Return how many images before it will never be processed."""
        skipped = max(0, chosen.number - 1 - self._furthest)
        self._furthest = max(self._furthest, chosen.number)
        return skipped


def _to_report(requests: Iterable[Marked | Clear | Steer]) -> list[Command]:
    """Return the commands to select or clear. Commands to steer that are not carried out are not reported."""
    return [request.command for request in requests if not isinstance(request, Steer)]


def _not_kept(fault: str) -> InputError:
    return InputError(ReasonCode.IMAGE_NOT_KEPT.reason(fault=fault))
