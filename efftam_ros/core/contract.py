"""What the tracker asks of a pipeline: the one interface behind which every back end hides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.geometry import View
from efftam_ros.core.types import Candidates, Image, MemoryPlan, PipelineSpec, Prompt


class Pipeline(Protocol):
    """Runs the network for one target. Calls per frame, in this order::

        encode(image, view)
        attend(plan)            # tracked frames; left out on a prompted frame
        decode(prompt)          # the frame's one wait; prompt=None on tracked frames
        remember(choice, slot, present)   # only when the frame is to be kept
        mask(choice)            # only when somebody wants it

    Between frames, `search` looks at several windows of one image. Tensors (features, maps, pointers, logits)
    stay inside. Not thread-safe, except for `prefetch`. Calls out of order raise RuntimeError, slots that do
    not exist IndexError.
    """

    @property
    def spec(self) -> PipelineSpec: ...

    @property
    def is_asynchronous(self) -> bool:
        """True when `remember` only enqueues work and returns at once."""
        ...

    @property
    def stage_seconds(self) -> Mapping[str, float]:
        """Seconds of each stage of the current frame: search, preprocess, image_encoder, memory_attention,
        prompt_encoder, mask_decoder; memory_encoder's are those of the frame before. A stage that did not run
        is absent."""
        ...

    def prefetch(self, image: Image) -> None:
        """This very image will probably be encoded next: its bytes may be brought closer to the device while
        another frame is in work. Optional, from any thread, never raises on a bad image, changes no
        result."""
        ...

    def encode(self, image: Image, view: View) -> None:
        """Image bytes in, features stay inside. Raises InputError (unknown encoding, rows too short)."""
        ...

    def attend(self, plan: MemoryPlan) -> None:
        """Condition the features on the remembered slots; an empty plan conditions on nothing."""
        ...

    def decode(self, prompt: Prompt | None) -> Candidates:
        """Masks for this frame, as boxes and scores. A prompt (image px) makes it a prompted frame, decoded
        without history. Raises InputError when the prompt misses the view."""
        ...

    def remember(self, choice: int, slot: int, present: bool) -> None:
        """Encode candidate ``choice`` of this frame into ring slot ``slot`` (map and pointer). With
        ``present`` False the mask is stored as empty and the pointer as the network's "no object"."""
        ...

    def search(self, image: Image, views: Sequence[View], plan: MemoryPlan) -> list[Candidates]:
        """Candidates in each of several views of one image, with one wait for all. Nothing is remembered, and
        no frame is left to decode or remember: `encode` comes next. ``plan`` names at least one slot (else
        ValueError). Raises InputError as `encode` does."""
        ...

    def mask(self, choice: int) -> NDArray[np.uint8]:
        """Candidate ``choice`` at image size: uint8 [H, W], 255 on the target, 0 elsewhere."""
        ...

    def close(self) -> None:
        """Free everything; further calls are errors. Safe to call twice."""
        ...
