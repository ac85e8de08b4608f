"""Interfaces that the tracker needs: the network, the source of camera motion, the source of points."""

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
    Image,
    MemoryPlan,
    PipelineSpec,
    Prompt,
)

NO_MEMORY = MemoryPlan()


@dataclass(frozen=True)
class Look:
    """A request to the network: find one target in one image.

    Attributes:
        target: Number of the target's memory, 0 to `Pipeline.max_targets` - 1.
        views: Regions of the image that the network receives: exactly one, unless ``is_search``.
        plan: Memory slots that the network compares the image with; empty: none.
        prompt: Marks the target, in px of the image, where the target is selected on this image. ``plan`` is
            then not used. None on all other images.
        is_search: Whether a missed target is searched for, in any number of views. The results of such a look
            can't be stored in the memory.
    """

    target: int
    views: tuple[View, ...]
    plan: MemoryPlan = NO_MEMORY
    prompt: Prompt | None = None
    is_search: bool = False


class Remembered(NamedTuple):
    """A request to the network: store what it computed for one target in this image.

    Attributes:
        target: Number of the target's memory.
        choice: Index of the candidate that shows the target, among those of the target's last `Look`.
        slot: Slot of the memory's ring that is overwritten.
        present: Whether the target is visible. False stores an empty mask, and the pointer by which the
            network represents "no object".
    """

    target: int
    choice: int
    slot: int
    present: bool


class Answers(Protocol):
    """The network's answers to one call of `Pipeline.look`. ``target``: number of a target's memory."""

    def candidates(self, target: int) -> Sequence[Candidates]:
        """Return the candidates in each view of the target's look, in the order of the views.

        Waits until they are computed. Raises the exception that ended the computation, and RuntimeError after
        the target's next look.
        """
        ...

    def mask(self, target: int, choice: int) -> NDArray[np.uint8]:
        """Return the mask of candidate ``choice`` at image size: uint8 [H, W], 255 on the target, 0
        elsewhere.

        Raises RuntimeError after the target's next look, and before `candidates` was called.
        """
        ...

    def stage_seconds(self, target: int) -> Mapping[str, float]:
        """Return the duration of each stage in s, by name. On a GPU not every image is timed: the durations
        are those of the latest timed image.

        Stages: search, preprocess, image_encoder, memory_attention, prompt_encoder, mask_decoder, and
        memory_encoder. A stage that did not run is absent. The memory encoder runs after the answer, so its
        duration is that of the previous image.
        """
        ...


class Pipeline(Protocol):
    """Runs the network for up to ``max_targets`` targets, each with a memory of its own.

    For each image, `look` is called as often as needed, then `remember` once. A back end may compute in
    threads, batches or streams of its own. The answers are the same as if every look were computed alone and
    immediately. Tensors (features, maps, pointers, logits) never leave the back end.

    `prefetch` may be called from any thread; only one thread at a time may call the other methods. A call out
    of order raises RuntimeError. A slot or target that does not exist raises IndexError.
    """

    @property
    def spec(self) -> PipelineSpec: ...

    @property
    def max_targets(self) -> int:
        """Number of memories, which is the largest number of targets that can be followed at once."""
        ...

    @property
    def target_bytes(self) -> int:
        """Bytes of memory that each target takes; 0 where that is not known."""
        ...

    @property
    def notice(self) -> str:
        """One line for the user about how the network runs on this computer; "" where there is nothing to
        report."""
        ...

    def prefetch(self, image: Image) -> None:
        """Announce the image object that `look` will probably get next, so that its bytes can be copied to
        the device meanwhile.

        Calling it is optional and changes no result. It may be called from any thread, and does not raise on
        a bad image.
        """
        ...

    def check(self, image: Image) -> None:
        """Raise InputError for an image that the network can't read: unknown encoding, or rows too short."""
        ...

    def look(self, image: Image, looks: Sequence[Look]) -> Answers:
        """Run the network on an image, for several targets at once.

        Returns without waiting where the back end can compute in the background. The features of a view are
        computed once, even if several targets, or later calls with the same image object, need them.

        After a look with a prompt, another target's earlier look can't be remembered any more if it had a
        prompt too.

        Raises:
            InputError: The image can't be read, see `check`; or a prompt lies outside the view.
            ValueError: Two looks are of one target; two looks have a prompt; a search has no memory; or a
                look that is no search has several views.

        A look replaces the target's earlier look, which can't be remembered any more, even if an error is
        raised.
        """
        ...

    def remember(self, choices: Sequence[Remembered]) -> None:
        """Store the memory map and the pointer of each choice in the named slot of its target's ring.

        This ends the image: nothing more of it can be remembered. Returns without waiting where the back end
        can compute in the background.
        """
        ...

    def close(self) -> None:
        """Free all resources. `look` and `remember` raise RuntimeError afterwards; a second `close` does
        nothing."""
        ...


class CameraMotionSource(Protocol):
    """Estimates the camera's motion for each image."""

    def prefetch(self, image: Image) -> None:
        """Announce the image object that `estimate` will probably get next, so that another thread can
        analyse it meanwhile. Calling it is optional and changes no result. It may be called from any
        thread."""
        ...

    def estimate(self, image: Image, stamp_ns: int, targets: Sequence[Box]) -> CameraMotion:
        """Estimate the camera's motion since the image of the previous call. Does not raise on a bad image:
        the motion is then unknown.

        ``targets``: boxes of moving objects in the previous image, px, none of them empty. The image inside
        these boxes is not used.
        """
        ...

    def keep(self, targets: Sequence[Box]) -> object:
        """Return a reduced copy of the image of the last call of `estimate`, for later calls of `since`; None
        before the first image. ``targets``: boxes of moving objects in this image, px."""
        ...

    def since(self, kept: object) -> CameraMotion:
        """Return the camera's motion from a kept image to the image of the last call of `estimate`.

        ``kept``: a value that `keep` returned at any earlier time. The motion is unknown where the two images
        do not show the same place.
        """
        ...

    def another(self) -> CameraMotionSource:
        """Return a new source of the same kind, for another sequence of images of the same camera."""
        ...

    def reset(self) -> None:
        """Forget the previous image: the next image starts a new sequence."""
        ...
