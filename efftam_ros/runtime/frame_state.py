"""The frame protocol: order of a pipeline's calls, state of the frame, checks of arguments."""

from __future__ import annotations

import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.geometry import View
from efftam_ros.core.types import Candidates, Image, MemoryPlan, PipelineSpec, Prompt
from efftam_ros.runtime.preprocess import CERTAIN, EncodedPrompt, boxes_and_areas, encode_prompt

if TYPE_CHECKING:
    from efftam_ros.core.contract import Pipeline

ALTERNATIVES = (1, 2, 3)
"""Rows of the decoder's output that compete on tracked frames and after a single point."""
SINGLE = (0,)
"""Row of the single answer to an unambiguous prompt."""


class Decoded(NamedTuple):
    """The mask decoder's small outputs: ``boxes`` float32 [4,4] (left, top, right, bottom) and ``areas`` [4]
    in network px, ``ious`` [4], ``presence`` logit."""

    boxes: NDArray[np.float32]
    areas: NDArray[np.float32]
    ious: NDArray[np.float32]
    presence: float


def rows_as_candidates(view: View, answers: Decoded, rows: Sequence[int]) -> Candidates:
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


def check_slots(count: int, *slots: int) -> None:
    """Raises IndexError for a slot that a ring of ``count`` lacks."""
    if slots and not (min(slots) >= 0 and max(slots) < count):
        bad = min(slots) if min(slots) < 0 else max(slots)
        raise IndexError(f"slot {bad} is beyond the ring's {count}")


def placed(plan: MemoryPlan, first: int) -> MemoryPlan:
    """The plan with its slots counted from ``first`` on."""
    if not first:
        return plan
    slots, pointers = (tuple(first + slot for slot in some) for some in (plan.slots, plan.pointer_slots))
    return replace(plan, slots=slots, pointer_slots=pointers)


@dataclass(frozen=True)
class _Encoded:
    """The features of an image in a view: lane ``owner`` computed them, ``lanes`` use them."""

    image: weakref.ref[Image]
    view: View
    lanes: set[int]
    owner: FramePipeline

    def serves(self, image: Image, view: View, lane: int) -> bool:
        """Whether a lane can use them. One that has used them starts a new frame, which is encoded again."""
        return lane not in self.lanes and self.image() is image and self.view == view


class LanesState:
    """What all lanes of a pipeline have in common, for lanes that work side by side too."""

    def __init__(self) -> None:
        self.is_closed = False
        self.pipelines: list[FramePipeline] = []
        """By lane, where each has buffers of its own; else none."""
        self._lock = threading.Lock()
        self._encoded: _Encoded | None = None

    def share(self, lane: FramePipeline, image: Image, view: View) -> bool:
        """Give a lane the features that another one has of this view; False: it must compute them."""
        with self._lock:
            encoded = self._encoded
            if encoded is not None and encoded.serves(image, view, lane._lane):
                encoded.lanes.add(lane._lane)
                lane._reuse(encoded.owner)
                return True
        self.forget(lane)
        return False

    def keep(self, lane: FramePipeline, image: Image, view: View) -> None:
        """A lane has computed the features of this view."""
        with self._lock:
            self._encoded = _Encoded(weakref.ref(image), view, {lane._lane}, lane)

    def forget(self, lane: FramePipeline) -> None:
        """The features that a lane has computed are about to change."""
        with self._lock:
            if self._encoded is not None and self._encoded.owner is lane:
                self._encoded = None

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


def end(frames: Sequence[LaneFrame]) -> None:
    """The features change: nothing can be done with these frames."""
    for frame in frames:
        frame.view = None


class FramePipeline(ABC):
    """The `Pipeline` contract around what a back end computes.

    A derived class implements the methods with an underscore; they are called in order and with checked
    arguments, slots counted through all lanes. One without a network also overrides `_decoded`
    and `_searched`.
    """

    is_asynchronous = False
    side_by_side = 1
    notice = ""
    target_bytes = 0
    _stage_seconds: Mapping[str, float]
    """See `Pipeline.stage_seconds`, without the search."""

    def __init__(self, spec: PipelineSpec, lanes: int = 1, state: LanesState | None = None) -> None:
        """``state``: of the lanes before, for a pipeline that is the next one alone."""
        self.spec, self.lanes = spec, lanes
        self._all = state or LanesState()
        self._lane = len(self._all.pipelines)  # whose frame this is
        self._frames = [LaneFrame() for _ in range(lanes)]
        self._frame = self._frames[self._lane]
        self._search_s = 0.0
        self._has_searched = False  # since the last frame

    @property
    def stage_seconds(self) -> Mapping[str, float]:
        seconds = self._stage_seconds
        return {**seconds, "search": self._search_s} if self._search_s else seconds

    def lane(self, index: int) -> Pipeline:
        if not 0 <= index < self.lanes:
            raise IndexError(f"lane {index} is beyond the {self.lanes} of this pipeline")
        if self._all.pipelines:
            return self._all.pipelines[index]
        return self if self.lanes == 1 else Lane(self, index)

    def prefetch(self, image: Image) -> None:
        return

    def encode(self, image: Image, view: View) -> None:
        frame = self._frame
        frame.view = frame.prompt = None
        frame.is_attended, frame.rows = False, ()
        if self._all.is_closed:
            raise self._all.misuse()
        self._search_s, self._has_searched = self._search_s if self._has_searched else 0.0, False
        if self.lanes == 1:
            self._encode(image, view)
        elif not self._all.share(self, image, view):
            end(self._frames)
            self._encode(image, view)
            self._all.keep(self, image, view)
        frame.view, frame.image_size = view, (image.width, image.height)

    def attend(self, plan: MemoryPlan) -> None:
        frame = self._frame
        if frame.view is None:
            raise self._all.misuse()
        check_slots(self.spec.slots, *plan.slots, *plan.pointer_slots)
        if plan.slots:
            self._attend(placed(plan, self._lane * self.spec.slots) if self._lane else plan)
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
        self._remember(self._frame.rows[choice], self._lane * self.spec.slots + slot, present)

    def search(self, image: Image, views: Sequence[View], plan: MemoryPlan) -> list[Candidates]:
        self._frame.view = None
        if self._all.is_closed:
            raise self._all.misuse()
        if not plan.slots:
            raise ValueError("search without memory: give a plan with at least one slot")
        check_slots(self.spec.slots, *plan.slots, *plan.pointer_slots)
        self._all.forget(self)
        end(self._frames)
        start = time.perf_counter()
        found = self._searched(image, views, placed(plan, self._lane * self.spec.slots))
        self._search_s, self._has_searched = time.perf_counter() - start, True
        return found

    def mask(self, choice: int) -> NDArray[np.uint8]:
        frame = self._frame
        if frame.view is None:
            raise self._all.misuse()
        return self._mask(frame.rows[choice], frame.view, *frame.image_size)

    def close(self) -> None:
        if not self._all.is_closed:
            self._all.is_closed = True
            end(self._frames)
            self._close()

    def enter(self, lane: int) -> FramePipeline:
        """The pipeline, for this lane from now on."""
        self._lane, self._frame = lane, self._frames[lane]
        return self

    def _decoded(self, view: View, prompt: Prompt | None) -> Candidates:
        """The candidates of this frame, in image px; of a mask prompt its own mask."""
        encoded = self._frame.prompt
        answers = self._decode(encoded)
        self._frame.rows = ALTERNATIVES if encoded is None or encoded.multimask else SINGLE
        if encoded is not None and encoded.logits is not None:
            boxes, areas = boxes_and_areas(encoded.logits[None])
            answers = Decoded(boxes, areas, np.ones(1, np.float32), CERTAIN)
        return rows_as_candidates(view, answers, self._frame.rows)

    def _searched(self, image: Image, views: Sequence[View], plan: MemoryPlan) -> list[Candidates]:
        """The candidates of each view, in image px."""
        return [
            rows_as_candidates(view, answers, ALTERNATIVES)
            for view, answers in zip(views, self._search(image, views, plan), strict=True)
        ]

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


class Lane:
    """One of a pipeline's memories, itself a `Pipeline`: slots and a frame of its own, and the
    network, which works for one lane at a time. Where another lane encodes another view or searches, the
    frame ends."""

    def __init__(self, whole: FramePipeline, index: int) -> None:
        self._whole, self._index = whole, index
        self.spec, self.lanes, self.is_asynchronous = whole.spec, whole.lanes, whole.is_asynchronous
        self.side_by_side, self.target_bytes = whole.side_by_side, whole.target_bytes
        self.notice = whole.notice
        self.lane, self.prefetch, self.close = whole.lane, whole.prefetch, whole.close

    @property
    def stage_seconds(self) -> Mapping[str, float]:
        return self._whole.stage_seconds

    def encode(self, image: Image, view: View) -> None:
        self._whole.enter(self._index).encode(image, view)

    def search(self, image: Image, views: Sequence[View], plan: MemoryPlan) -> list[Candidates]:
        return self._whole.enter(self._index).search(image, views, plan)

    def attend(self, plan: MemoryPlan) -> None:
        self._whole.enter(self._index).attend(plan)

    def decode(self, prompt: Prompt | None) -> Candidates:
        return self._whole.enter(self._index).decode(prompt)

    def remember(self, choice: int, slot: int, present: bool) -> None:
        self._whole.enter(self._index).remember(choice, slot, present)

    def mask(self, choice: int) -> NDArray[np.uint8]:
        return self._whole.enter(self._index).mask(choice)


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
