"""The interfaces that the tracker is built on: what runs the network, and what else observes the images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.geometry import Box, View
from efftam_ros.core.types import (
    CameraMotion,
    Candidates,
    FoundPoints,
    Image,
    MemoryPlan,
    PipelineSpec,
    Prompt,
)

NO_MEMORY = MemoryPlan()


@dataclass(frozen=True)
class Look:
    """What the network is asked about one target in one image.

    Attributes:
        target: Number of the target's memory, 0 to `Pipeline.max_targets` - 1.
        views: Regions of the image to look at: one, unless it is a search.
        plan: The remembered images that a tracked image is compared with; empty: none.
        prompt: Marks the target, px of the image: the image is then the prompted one, and ``plan`` is not
            used.
        is_search: Whether the target is searched for in any number of views; nothing of that can be
            remembered.
    """

    target: int
    views: tuple[View, ...]
    plan: MemoryPlan = NO_MEMORY
    prompt: Prompt | None = None
    is_search: bool = False


class Remembered(NamedTuple):
    """One target's image that is to be remembered.

    Attributes:
        target: Number of the target's memory.
        choice: The candidate of the target's last `Look` that shows the target.
        slot: Slot of the memory's ring that is overwritten.
        present: False stores an empty mask, and the network's "no object" as the pointer.
    """

    target: int
    choice: int
    slot: int
    present: bool


class Answers(Protocol):
    """The network's answers to the looks of one call of `Pipeline.look`, by target."""

    def candidates(self, target: int) -> Sequence[Candidates]:
        """Return the candidates in each view of the target's look. Waits until they are computed, and raises
        what went wrong in it."""
        ...

    def mask(self, target: int, choice: int) -> NDArray[np.uint8]:
        """Return the mask of a candidate at image size: uint8 [H, W], 255 on the target, 0 elsewhere. It can
        be read until the target's next look; raises RuntimeError afterwards."""
        ...

    def stage_seconds(self, target: int) -> Mapping[str, float]:
        """Duration of each stage, s; on a GPU that of the latest image that was timed.

        Stages: search, preprocess, image_encoder, memory_attention, prompt_encoder, mask_decoder, and
        memory_encoder, whose value is that of the previous image. A stage that did not run is absent.
        """
        ...


class Pipeline(Protocol):
    """Runs the network for up to ``max_targets`` targets, each with a memory of its own.

    Per image: `look`, as often as needed, then `remember` once. Threads, batches and streams are the back
    end's own affair: the answers are the same as if every look were computed alone and at once. Tensors
    (features, maps, pointers, logits) stay inside. One thread at a time calls it, except `prefetch`. Calls
    out of order raise RuntimeError, slots and targets that do not exist IndexError.
    """

    @property
    def spec(self) -> PipelineSpec: ...

    @property
    def max_targets(self) -> int:
        """Memories, and so the most targets."""
        ...

    @property
    def target_bytes(self) -> int:
        """Memory that each target takes, as far as it is known, bytes."""
        ...

    @property
    def notice(self) -> str:
        """What the user should know of how the network runs here, in one line; mostly ""."""
        ...

    def prefetch(self, image: Image) -> None:
        """Announce that this very image object will probably be looked at next, so that its bytes can be
        copied towards the device during the work on another one. Optional; may be called from any thread;
        does not raise on a bad image; changes no result."""
        ...

    def check(self, image: Image) -> None:
        """Raise InputError for an image that can't be used (unknown encoding, rows too short)."""
        ...

    def look(self, image: Image, looks: Sequence[Look]) -> Answers:
        """Run the network on an image, for several targets at once.

        Returns without waiting where the back end can compute meanwhile. Features of one view are computed
        once, however many targets ask for it, also in a later call with the same image object.

        Raises InputError (as `check`; a prompt that lies outside the view) and ValueError (two looks of one
        target, or two with a prompt; a search without memory; several views without a search). Of the targets
        named, nothing of before can be remembered then. A look with a prompt ends the frames of other targets
        that had one.
        """
        ...

    def remember(self, choices: Sequence[Remembered]) -> None:
        """Store map and pointer of candidates of this image in slots of their targets' rings.

        This ends the image: nothing more of it can be remembered. Returns without waiting where the back end
        can.
        """
        ...

    def close(self) -> None:
        """Free all resources; further calls are errors. May be called twice."""
        ...


class CameraMotionSource(Protocol):
    """Estimates the camera's motion for each image."""

    def prefetch(self, image: Image) -> None:
        """Announce that `estimate` will probably get this very image object next, so that it can be looked at
        in another thread. Optional; may be called from any thread; changes no result."""
        ...

    def estimate(self, image: Image, stamp_ns: int, targets: Sequence[Box]) -> CameraMotion:
        """Estimate the motion since the image of the previous call. Does not raise on a bad image.

        ``targets``: boxes in the previous image, px, not empty; they are excluded because they move on their
        own.
        """
        ...

    def keep(self, targets: Sequence[Box]) -> object:
        """Return the image of the last call of `estimate`, on which these targets were seen, to recognise the
        place again with `since`; None where there is none."""
        ...

    def since(self, kept: object) -> CameraMotion:
        """Return the motion from a kept image to that of the last call of `estimate`, over any time
        between."""
        ...

    def another(self) -> CameraMotionSource:
        """Return a source of the same camera for another sequence of its images."""
        ...

    def reset(self) -> None:
        """Forget the previous image; the next one starts a new sequence."""
        ...


class PointSource(Protocol):
    """Follows points on the target through consecutive images."""

    def reset(self) -> None:
        """Forget all points."""
        ...

    def follow(self, image: Image, expected: Box) -> FoundPoints:
        """Follow the points into the next image. Does not raise on a bad image.

        ``expected``: the target's predicted box there.
        """
        ...

    def keep(self, image: Image, box: Box) -> None:
        """Keep the points in the target's box of the image of the last `follow`: drop those outside it, and
        add new ones in it."""
        ...
