"""The frame protocol: order of a pipeline's calls, state of the frame, checks of arguments."""

from __future__ import annotations

import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.geometry import View
from efftam_ros.core.types import Candidates, Image, MemoryPlan, PipelineSpec, Prompt
from efftam_ros.runtime.preprocess import CERTAIN, EncodedPrompt, boxes_and_areas, encode_prompt

if TYPE_CHECKING:
    from typing_extensions import Self

ALTERNATIVES = range(1, 4)
"""Rows of the decoder's output that compete on tracked frames and after a single point."""
SINGLE = range(1)
"""Row of the single answer to an unambiguous prompt."""


class Decoded(NamedTuple):
    """The mask decoder's small outputs: ``boxes`` float32 [4,4] (left, top, right, bottom) and ``areas`` [4]
    in network px, ``ious`` [4], ``presence`` logit."""

    boxes: NDArray[np.float32]
    areas: NDArray[np.float32]
    ious: NDArray[np.float32]
    presence: float


def check_slots(count: int, *slots: int) -> None:
    """Raises IndexError for a slot that a ring of ``count`` lacks."""
    if slots and not (min(slots) >= 0 and max(slots) < count):
        bad = min(slots) if min(slots) < 0 else max(slots)
        raise IndexError(f"slot {bad} is beyond the ring's {count}")


@dataclass(frozen=True)
class _Encoded:
    """The features of an image in a view, which ``owner`` computed and ``lanes`` use."""

    image: weakref.ref[Image]
    view: View
    owner: FramePipeline
    lanes: list[FramePipeline]

    def serves(self, image: Image, view: View, lane: FramePipeline) -> bool:
        """Whether a lane can use them. One that has used them starts a new frame, which is encoded again."""
        return lane not in self.lanes and self.image() is image and self.view == view


class LanesState:
    """What the lanes of a pipeline have in common, also where they work side by side."""

    def __init__(self) -> None:
        self.lanes: list[FramePipeline] = []
        self.is_closed = False
        self._lock = threading.Lock()
        self._encoded: _Encoded | None = None

    def share(self, lane: FramePipeline, image: Image, view: View) -> bool:
        """Give a lane the features that another one has of this view; False: it must compute them."""
        with self._lock:
            encoded = self._encoded
            if encoded is not None and encoded.serves(image, view, lane):
                encoded.lanes.append(lane)
                lane._reuse(encoded.owner)
                return True
        self.end(lane)
        return False

    def keep(self, lane: FramePipeline, image: Image, view: View) -> None:
        """A lane has computed the features of this view."""
        with self._lock:
            self._encoded = _Encoded(weakref.ref(image), view, lane, [lane])

    def end(self, lane: FramePipeline) -> None:
        """A lane's features are about to change: the frames of all that have them in the same place end."""
        with self._lock:
            if self._encoded is not None and self._encoded.owner in lane._in_one_place:
                self._encoded = None
        for one in lane._in_one_place:
            one._frame.view = None

    def misuse(self) -> RuntimeError:
        """What is wrong with a call without an encoded image."""
        if self.is_closed:
            return RuntimeError("the pipeline is closed")
        return RuntimeError("no image: encode comes first in every frame")


@dataclass
class LaneFrame:
    """The frame of one lane. ``view``: of the encoded image, None where there is none; ``prompt``: of a
    prompted frame, once it was encoded; ``rows``: of the decoder's output, by candidate."""

    view: View | None = None
    prompt: EncodedPrompt | None = None
    image_size: tuple[int, int] = (0, 0)
    is_attended: bool = False
    rows: Sequence[int] = ()


class FramePipeline(ABC):
    """The `Pipeline` contract around what a back end computes, for one lane; the others are its copies.

    A derived class implements the methods with an underscore; they are called in order and with checked
    arguments. One without a network also overrides `_decoded` and `_searched`.
    """

    is_asynchronous = False
    has_own_features = False
    """Whether each lane has a place for features, not all of them one. Then they can work side by side."""
    side_by_side = 1
    notice = ""
    target_bytes = 0
    stage_seconds: dict[str, float]
    """See `Pipeline.stage_seconds`."""
    _next_seconds: dict[str, float]
    """What those of the next frame begin with."""
    _lane: int
    _frame: LaneFrame
    _in_one_place: Sequence[FramePipeline]
    """The lanes that have their features where this one has them."""

    def __init__(self, spec: PipelineSpec, lanes: int = 1) -> None:
        """What a derived class has assigned before is common to all lanes; `_allocate` makes the rest."""
        self.spec, self.lanes = spec, lanes
        self._all = LanesState()
        every = self._all.lanes
        every += [self, *(copy(self) for _ in range(1, lanes))]
        for index, lane in enumerate(every):
            lane._lane, lane._frame = index, LaneFrame()
            lane._in_one_place = [lane] if self.has_own_features else every
            lane.stage_seconds, lane._next_seconds = {}, {}
            lane._allocate()

    def _allocate(self) -> None:
        """Make what a lane has for itself."""
        return

    def lane(self, index: int) -> Self:
        if not 0 <= index < self.lanes:
            raise IndexError(f"lane {index} is beyond the {self.lanes} of this pipeline")
        return cast("Self", self._all.lanes[index])

    def prefetch(self, image: Image) -> None:
        return

    def encode(self, image: Image, view: View) -> None:
        frame = self._frame = LaneFrame()
        if self._all.is_closed:
            raise self._all.misuse()
        self.stage_seconds, self._next_seconds = self._next_seconds, {}
        if not self._all.share(self, image, view):
            self._encode(image, view)
            self._all.keep(self, image, view)
        frame.view, frame.image_size = view, (image.width, image.height)

    def attend(self, plan: MemoryPlan) -> None:
        frame = self._frame
        if frame.view is None:
            raise self._all.misuse()
        check_slots(self.spec.slots, *plan.slots, *plan.pointer_slots)
        if plan.slots:
            self._attend(plan)
        else:
            self._condition(None)
        frame.prompt, frame.is_attended = None, True

    def decode(self, prompt: Prompt | None) -> Candidates:
        frame = self._frame
        if frame.view is None:
            raise self._all.misuse()
        if prompt is not None:
            encoded = encode_prompt(prompt, frame.view, *frame.image_size)
            self._condition(encoded)
            frame.prompt, frame.is_attended = encoded, False
        elif not frame.is_attended:
            raise RuntimeError("decode(None) without attend: a tracked frame is conditioned on memory first")
        return self._decoded(frame.view, prompt)

    def remember(self, choice: int, slot: int, present: bool) -> None:
        if self._frame.view is None:
            raise self._all.misuse()
        check_slots(self.spec.slots, slot)
        self._remember(self._frame.rows[choice], slot, present)

    def search(self, image: Image, views: Sequence[View], plan: MemoryPlan) -> list[Candidates]:
        if self._all.is_closed:
            raise self._all.misuse()
        if not plan.slots:
            raise ValueError("search without memory: give a plan with at least one slot")
        check_slots(self.spec.slots, *plan.slots, *plan.pointer_slots)
        self._all.end(self)
        return self._searched(image, views, plan)

    def mask(self, choice: int) -> NDArray[np.uint8]:
        frame = self._frame
        if frame.view is None:
            raise self._all.misuse()
        return self._mask(frame.rows[choice], frame.view, *frame.image_size)

    def close(self) -> None:
        if not self._all.is_closed:
            self._all.is_closed = True
            for lane in self._all.lanes:
                lane._frame.view = None
            self._close()

    def _decoded(self, view: View, prompt: Prompt | None) -> Candidates:
        """The candidates of this frame, in image px; of a mask prompt its own mask."""
        encoded = self._frame.prompt
        boxes, areas, ious, presence = self._decode(encoded)
        rows = self._frame.rows = ALTERNATIVES if encoded is None or encoded.multimask else SINGLE
        if encoded is not None and encoded.logits is not None:
            boxes, areas = boxes_and_areas(encoded.logits[None])
            ious, presence = np.ones(1, np.float32), CERTAIN
        some = slice(rows.start, rows.stop)
        return Candidates.in_view(view, boxes[some], areas[some], ious[some], presence)

    def _searched(self, image: Image, views: Sequence[View], plan: MemoryPlan) -> list[Candidates]:
        """The candidates of each view, in image px."""
        self.stage_seconds, start = {}, time.perf_counter()
        some, found = slice(ALTERNATIVES.start, ALTERNATIVES.stop), []
        for view, answers in zip(views, self._search(image, views, plan), strict=True):
            boxes, areas, ious, presence = answers
            found.append(Candidates.in_view(view, boxes[some], areas[some], ious[some], presence))
        self.stage_seconds["search"] = self._next_seconds["search"] = time.perf_counter() - start
        return found

    def _search(self, image: Image, views: Sequence[View], plan: MemoryPlan) -> Iterator[Decoded]:
        """The answers of one view after the other, each of which holds until the next is asked for."""
        for view in views:
            self._encode(image, view)
            self._attend(plan)
            yield self._decode(None)

    @abstractmethod
    def _encode(self, image: Image, view: View) -> None:
        """Preprocess and run the image encoder."""

    def _reuse(self, owner: FramePipeline) -> None:
        """The features of the last `_encode` of ``owner``, of the same view, are this frame's too."""
        return

    @abstractmethod
    def _condition(self, prompt: EncodedPrompt | None) -> None:
        """Run the prompt encoder on this frame's features: conditioned on the prompt, or on nothing."""

    @abstractmethod
    def _attend(self, plan: MemoryPlan) -> None:
        """Run memory attention on at least one slot."""

    def _decode(self, prompt: EncodedPrompt | None) -> Decoded:
        """Run the mask decoder and wait for its answers, which hold until the next call. With a mask prompt
        the mask of row 0 becomes ``prompt.logits``, for `_remember` and `_mask`."""
        raise NotImplementedError

    @abstractmethod
    def _remember(self, row: int, slot: int, present: bool) -> None:
        """Encode a row of the decoder's output into a ring slot."""

    @abstractmethod
    def _mask(self, row: int, view: View, width: int, height: int) -> NDArray[np.uint8]:
        """See `Pipeline.mask`."""

    @abstractmethod
    def _close(self) -> None:
        """Free everything; called once."""


def round_bfloat16(values: NDArray[np.float32]) -> None:
    """Round a contiguous float32 array in place to the nearest bfloat16, which numpy lacks, ties to even.
    Infinities and NaN stay what they are."""
    finite = np.isfinite(values)
    bits = values.view(np.uint32)
    half = ((bits >> np.uint32(16)) & np.uint32(1)) + np.uint32(0x7FFF)
    if not finite.all():  # the carry would turn some NaN into infinity or zero
        half *= finite
        np.bitwise_or(bits, np.uint32(0x10000), out=bits, where=np.isnan(values))
    bits += half
    bits &= np.uint32(0xFFFF0000)
