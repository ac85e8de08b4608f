"""The interfaces that the tracker is built on: a back end's pipeline, and what else observes the images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

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


class Pipeline(Protocol):
    """Runs the network for one target, or for one target per lane. Calls per frame, in this order::

        encode(image, view)
        attend(plan)            # tracked frames only
        decode(prompt)          # the only synchronisation of a frame; prompt=None on tracked frames
        remember(choice, slot, present)   # only if the frame is to be stored
        mask(choice)            # only if a mask is needed

    Between frames, `search` evaluates several windows of one image. Tensors (features, maps, pointers,
    logits) stay inside the pipeline. Not thread-safe, except for `prefetch` and `side_by_side`. Calls out of
    order raise RuntimeError, slots that do not exist IndexError.
    """

    @property
    def spec(self) -> PipelineSpec: ...

    @property
    def lanes(self) -> int:
        """Memories of the network: how many targets it serves."""
        ...

    def lane(self, index: int) -> Pipeline:
        """One of them as a pipeline, with slots of its own; the pipeline itself is lane 0.

        Of an image that several lanes encode in the same view the features are computed once, and each can be
        attended to before the first is decoded. Where another lane encodes another view or searches, the
        frame ends, and what belongs to it raises RuntimeError then, unless lanes work side by side. Raises
        IndexError.
        """
        ...

    @property
    def target_bytes(self) -> int:
        """Memory that each lane takes, as far as it is known, bytes."""
        ...

    @property
    def side_by_side(self) -> int:
        """How many lanes may work at once, in a thread each, with the results of one after the other; 1: the
        pipeline is for one thread at a time."""
        ...

    @property
    def is_asynchronous(self) -> bool:
        """True when `remember` only enqueues work and returns at once."""
        ...

    @property
    def notice(self) -> str:
        """What the user should know of how the network runs here, in one line; mostly ""."""
        ...

    @property
    def stage_seconds(self) -> Mapping[str, float]:
        """Duration of each stage of the current frame, s; on a GPU that of the latest frame that was timed.

        Stages: search, preprocess, image_encoder, memory_attention, prompt_encoder, mask_decoder, and
        memory_encoder, whose value is that of the previous frame. A stage that did not run is absent.
        """
        ...

    def prefetch(self, image: Image) -> None:
        """Announce that this very image object will probably be encoded next, so that its bytes can be copied
        towards the device during another frame. Optional; may be called from any thread; does not raise on a
        bad image; changes no result."""
        ...

    def encode(self, image: Image, view: View) -> None:
        """Compute and keep the image's features. Raises InputError (unknown encoding, rows too short)."""
        ...

    def attend(self, plan: MemoryPlan) -> None:
        """Condition the features on the stored slots; an empty plan means no history."""
        ...

    def decode(self, prompt: Prompt | None) -> Candidates:
        """Compute this frame's masks, returned as boxes and scores.

        A prompt (image px) makes it a prompted frame, decoded without history. Raises InputError when the
        prompt lies outside the view.
        """
        ...

    def remember(self, choice: int, slot: int, present: bool) -> None:
        """Encode candidate ``choice`` of this frame into ring slot ``slot`` (map and pointer).

        If ``present`` is False, the mask is stored as empty and the pointer as the network's "no object".
        """
        ...

    def search(self, image: Image, views: Sequence[View], plan: MemoryPlan) -> list[Candidates]:
        """Compute the candidates in several views of one image, with a single synchronisation.

        Nothing is stored, and the frame can't be decoded or remembered afterwards: `encode` comes next.
        ``plan`` names at least one slot (else ValueError). Raises InputError as `encode` does.
        """
        ...

    def mask(self, choice: int) -> NDArray[np.uint8]:
        """The mask of candidate ``choice`` at image size: uint8 [H, W], 255 on the target, 0 elsewhere."""
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
        """The image of the last call of `estimate`, on which these targets were seen, to recognise the place
        again with `since`; None where there is none."""
        ...

    def since(self, kept: object) -> CameraMotion:
        """The motion from a kept image to that of the last call of `estimate`, over any time between."""
        ...

    def another(self) -> CameraMotionSource:
        """A source of the same camera for another sequence of its images."""
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
        """The target is in this box of the image of the last `follow`: points outside it are dropped, and new
        ones are added in it."""
        ...
