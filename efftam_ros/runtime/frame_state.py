"""The frame protocol: order of a pipeline's calls, state of the frame, checks of arguments.

Back ends derive from `FramePipeline`; pipelines without a network use `FrameState` alone.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.geometry import View
from efftam_ros.core.types import Candidates, Image, MemoryPlan, PipelineSpec, Prompt
from efftam_ros.runtime.image.masks import boxes_and_areas
from efftam_ros.runtime.image.prompts import CERTAIN, EncodedPrompt, encode_prompt

ALTERNATIVES = (1, 2, 3)
"""Rows of the decoder's output that compete on tracked frames and after a single point."""
SINGLE = (0,)
"""Row of the single answer to an unambiguous prompt."""


class Answers(NamedTuple):
    """The mask decoder's small outputs: ``boxes`` float32 [4,4] (left, top, right, bottom) and ``areas`` [4]
    in network px, ``ious`` [4], ``presence`` logit."""

    boxes: NDArray[np.float32]
    areas: NDArray[np.float32]
    ious: NDArray[np.float32]
    presence: float


class FrameState:
    """View, prompt and conditioning of the current frame. Calls out of order raise RuntimeError."""

    def __init__(self, spec: PipelineSpec) -> None:
        self.spec = spec
        self.is_closed = False
        self.image_size = (0, 0)
        self.prompt: EncodedPrompt | None = None
        """Of a prompted frame, once its prompt was encoded."""
        self._view: View | None = None
        self._attended = False
        self._rows: tuple[int, ...] = ()

    def close(self) -> None:
        """From now on every call raises RuntimeError."""
        self.is_closed, self._view = True, None

    def begin(self) -> None:
        """Start a new frame."""
        self.require_open()
        self._view, self.prompt, self._attended, self._rows = None, None, False, ()

    def encoded(self, image: Image, view: View) -> None:
        """Record that the image was encoded."""
        self._view, self.image_size = view, (image.width, image.height)

    def attended(self) -> None:
        """Record that the features were conditioned on memory, or on nothing by an empty plan."""
        self.prompt, self._attended = None, True

    def prompted(self, encoded: EncodedPrompt) -> None:
        """Record that the features were conditioned on a prompt alone."""
        self.prompt, self._attended = encoded, False

    def encode_prompt(self, prompt: Prompt | None) -> EncodedPrompt | None:
        """The inputs of the prompt encoder, None on a tracked frame. Raises InputError."""
        view = self.require_image()
        if prompt is not None:
            return encode_prompt(prompt, view, *self.image_size)
        if not self._attended:
            raise RuntimeError("decode(None) without attend: a tracked frame is conditioned on memory first")
        return None

    def candidates(self, answers: Answers) -> Candidates:
        """The candidates of this frame, in image px; of a mask prompt its own mask."""
        prompt = self.prompt
        self._rows = ALTERNATIVES if prompt is None or prompt.multimask else SINGLE
        if prompt is not None and prompt.logits is not None:
            boxes, areas = boxes_and_areas(prompt.logits[None])
            answers = Answers(boxes, areas, np.ones(1, np.float32), CERTAIN)
        return rows_as_candidates(self.require_image(), answers, self._rows)

    def row(self, choice: int) -> int:
        """The row of candidate ``choice`` in the decoder's output."""
        self.require_image()
        return self._rows[choice]

    @property
    def is_prompted(self) -> bool:
        return self.prompt is not None

    def check_plan(self, plan: MemoryPlan) -> None:
        """Raises IndexError for a slot that the ring lacks."""
        named = (*plan.slots, *plan.pointer_slots)
        if named:
            self.check_slot(max(named) if min(named) >= 0 else min(named))

    def check_slot(self, slot: int) -> None:
        """Raises IndexError for a slot that the ring lacks."""
        if not 0 <= slot < self.spec.slots:
            raise IndexError(f"slot {slot} is beyond the ring's {self.spec.slots}")

    def check_search(self, plan: MemoryPlan) -> None:
        """Raises ValueError when there is nothing to search for, IndexError as `check_plan` does."""
        if not plan.slots:
            raise ValueError("search without memory: give a plan with at least one slot")
        self.check_plan(plan)

    def require_open(self) -> None:
        if self.is_closed:
            raise RuntimeError("the pipeline is closed")

    def require_image(self) -> View:
        """The view of the encoded image."""
        if self._view is None:
            self.require_open()
            raise RuntimeError("no image: encode comes first in every frame")
        return self._view


def rows_as_candidates(view: View, answers: Answers, rows: Sequence[int]) -> Candidates:
    """Consecutive rows of the decoder's answers as Candidates in image px.

    The arrays are new; the box of an empty mask is NaN.
    """
    chosen = slice(rows[0], rows[-1] + 1)
    boxes, areas = view.edges_to_image(answers.boxes[chosen]), answers.areas[chosen]
    boxes[areas == 0] = np.nan
    return Candidates(
        boxes=boxes,
        areas=(areas / (view.scale_x * view.scale_y)).astype(np.float32),
        ious=answers.ious[chosen].astype(np.float32),
        presence_logit=float(answers.presence),
    )


class FramePipeline(ABC):
    """The `Pipeline` contract around what a back end computes.

    A derived class implements the methods with an underscore; they are called in order and with checked
    arguments.
    """

    is_asynchronous = False

    def __init__(self, spec: PipelineSpec) -> None:
        self.frame = FrameState(spec)
        self._search_s = 0.0
        self._has_searched = False  # since the last frame

    @property
    def spec(self) -> PipelineSpec:
        return self.frame.spec

    @property
    def stage_seconds(self) -> Mapping[str, float]:
        seconds = self._stage_seconds_now()
        return {**seconds, "search": self._search_s} if self._search_s else seconds

    def prefetch(self, image: Image) -> None:
        return

    def encode(self, image: Image, view: View) -> None:
        self.frame.begin()
        self._search_s, self._has_searched = self._search_s if self._has_searched else 0.0, False
        self._encode(image, view)
        self.frame.encoded(image, view)

    def attend(self, plan: MemoryPlan) -> None:
        self.frame.require_image()
        self.frame.check_plan(plan)
        if plan.slots:
            self._attend(plan)
        else:
            self._condition(None)
        self.frame.attended()

    def decode(self, prompt: Prompt | None) -> Candidates:
        encoded = self.frame.encode_prompt(prompt)
        if encoded is not None:
            self._condition(encoded)
            self.frame.prompted(encoded)
        return self.frame.candidates(self._decode(encoded))

    def remember(self, choice: int, slot: int, present: bool) -> None:
        row = self.frame.row(choice)
        self.frame.check_slot(slot)
        self._remember(row, slot, present)

    def search(self, image: Image, views: Sequence[View], plan: MemoryPlan) -> list[Candidates]:
        self.frame.begin()
        self.frame.check_search(plan)
        start = time.perf_counter()
        found = [
            rows_as_candidates(view, answers, ALTERNATIVES)
            for view, answers in zip(views, self._search(image, views, plan), strict=True)
        ]
        self._search_s, self._has_searched = time.perf_counter() - start, True
        return found

    def mask(self, choice: int) -> NDArray[np.uint8]:
        return self._mask(self.frame.row(choice), self.frame.require_image(), *self.frame.image_size)

    def close(self) -> None:
        if not self.frame.is_closed:
            self.frame.close()
            self._close()

    @abstractmethod
    def _stage_seconds_now(self) -> Mapping[str, float]:
        """See `Pipeline.stage_seconds`, without the search."""

    @abstractmethod
    def _encode(self, image: Image, view: View) -> None:
        """Preprocess and run the image encoder."""

    @abstractmethod
    def _condition(self, prompt: EncodedPrompt | None) -> None:
        """Run the prompt encoder on this frame's features: conditioned on the prompt, or on nothing."""

    @abstractmethod
    def _attend(self, plan: MemoryPlan) -> None:
        """Run memory attention on at least one slot."""

    @abstractmethod
    def _decode(self, prompt: EncodedPrompt | None) -> Answers:
        """Run the mask decoder and wait for its answers, which hold until the next call. With a mask prompt
        the mask of row 0 becomes ``prompt.logits``, for `_remember` and `_mask`."""

    @abstractmethod
    def _remember(self, row: int, slot: int, present: bool) -> None:
        """Encode a row of the decoder's output into a ring slot."""

    @abstractmethod
    def _mask(self, row: int, view: View, width: int, height: int) -> NDArray[np.uint8]:
        """See `Pipeline.mask`."""

    @abstractmethod
    def _close(self) -> None:
        """Free everything; called once."""

    def _search(self, image: Image, views: Sequence[View], plan: MemoryPlan) -> Iterator[Answers]:
        """The answers of one view after the other, each of which holds until the next is asked for."""
        for view in views:
            self._encode(image, view)
            self._attend(plan)
            yield self._decode(None)
