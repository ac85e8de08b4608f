"""The frame protocol: order of a pipeline's calls, state of each target's frame, checks of arguments."""

from __future__ import annotations

import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.contract import Look, Remembered
from efftam_ros.core.geometry import View
from efftam_ros.core.types import Candidates, Image, MemoryPlan, PipelineSpec
from efftam_ros.images.pixels import CHECKED, check_image
from efftam_ros.runtime.preprocess import CERTAIN, EncodedPrompt, boxes_and_areas, encode_prompt
from efftam_ros.runtime.spans import BACK_END, Watch, watch_methods

ALTERNATIVES = range(1, 4)
"""Rows of the decoder's output that compete on tracked frames and after a single point."""
SINGLE = range(1)
"""Row of the single answer to an unambiguous prompt."""


ANSWERS = ("boxes", "areas", "ious", "presence", "levels")
"""The mask decoder's small outputs, in the order of `Decoded`; not every network gives the last."""


class Decoded(NamedTuple):
    """The mask decoder's small outputs: ``boxes`` float32 [4,4] (left, top, right, bottom) and ``areas`` [4]
    in network px, ``ious`` [4], ``presence`` logit, ``levels`` [4,2,4] in network px, where the graph has
    them."""

    boxes: NDArray[np.float32]
    areas: NDArray[np.float32]
    ious: NDArray[np.float32]
    presence: float
    levels: NDArray[np.float32] | None = None


def check_slots(count: int, *slots: int) -> None:
    """Raises IndexError for a slot that a ring of ``count`` lacks."""
    if slots and not (min(slots) >= 0 and max(slots) < count):
        bad = min(slots) if min(slots) < 0 else max(slots)
        raise IndexError(f"slot {bad} is beyond the ring's {count}")


@dataclass(eq=False)
class TargetFrame:
    """One target's look at an image, as the back end computes it.

    Attributes:
        look: What is asked about ``target``.
        size: Width and height of the image, px.
        prompt: The look's prompt in network coordinates; None on tracked images.
        rows: Rows of the decoder's output, by candidate.
        found: The answers, by view.
        is_answered: Whether they are all there.
        error: Why they are not; raised to who asks for them.
        seconds: Duration of each stage, s, see `Answers.stage_seconds`.
        can_be_remembered: Until the image ends.
    """

    look: Look
    target: int
    size: tuple[int, int]
    prompt: EncodedPrompt | None = None
    rows: Sequence[int] = ALTERNATIVES
    found: list[Candidates] = field(default_factory=list)
    is_answered: bool = False
    error: Exception | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    can_be_remembered: bool = True

    @property
    def view(self) -> View:
        """The view of a look that is no search."""
        return self.look.views[0]

    def read(self, view: View, decoded: Decoded) -> Candidates:
        """Return the candidates of one view, px of the image; for a mask prompt its own mask."""
        boxes, areas, ious, presence, levels = decoded
        if self.prompt is not None and self.prompt.logits is not None:
            boxes, areas = boxes_and_areas(self.prompt.logits[None])
            ious, presence = np.ones(1, np.float32), CERTAIN
            levels = None if levels is None else np.stack([boxes, boxes], axis=1)  # it has no soft edge
        some = slice(self.rows.start, self.rows.stop) if isinstance(self.rows, range) else self.rows
        levels = None if levels is None else levels[some]
        return Candidates.in_view(view, boxes[some], areas[some], ious[some], presence, levels)


class Features(NamedTuple):
    """The image and view that features belong to. ``seconds``: duration of the stages that computed them,
    s."""

    image: weakref.ref[Image]
    view: View
    seconds: Mapping[str, float]

    def are_of(self, image: Image, view: View) -> bool:
        return self.image() is image and self.view == view


class FrameState(ABC):
    """The `Pipeline` contract around what a back end computes: it keeps each target's frame, checks every
    call, and reads the decoder's numbers.

    A back end implements the methods with an underscore, which are called in order and with checked
    arguments. One that computes a look at once implements `_compute`, or the five stages that it consists of;
    one that computes several together overrides `_start`, `_wait` and `_remember_all`.
    """

    notice = ""
    target_bytes = 0
    is_on_gpu = False
    """Whether the network leaves the host's processor to others."""

    def __init__(self, spec: PipelineSpec, max_targets: int = 1) -> None:
        self.spec, self.max_targets = spec, max_targets
        self._frames: dict[int, TargetFrame] = {}  # of each target's last look
        self._features: dict[int, Features] = {}  # of each target, where a target has a place for them
        self._memory_seconds: dict[int, float] = {}  # of each target's last image that was remembered
        self._is_closed = False

    def watch(self, watch: Watch) -> None:
        """Replace the calls of a frame by ``watch``, permanently: those of the contract, and those of
        the libraries that the back end computes with. Without it they cost nothing more."""
        watch_methods(watch, BACK_END, self, "look", "remember")
        watch_methods(watch, BACK_END, self, "answered", label="candidates")

    def prefetch(self, image: Image) -> None:
        return

    def check(self, image: Image) -> None:
        check_image(image)

    def look(self, image: Image, looks: Sequence[Look]) -> FrameAnswers:
        if self._is_closed:
            raise RuntimeError("the pipeline is closed")
        prompted, frames = 0, dict[int, TargetFrame]()
        for look in looks:
            self._check_target(look.target)
            prompted += look.prompt is not None
            self._frames.pop(look.target, None)  # an unusable answer must not leave an earlier one in place
        if CHECKED not in image.derived:
            check_image(image)
        for look in looks:
            frames[look.target] = self._checked(image, look)
        if len(frames) < len(looks) or prompted > 1:
            raise ValueError(f"one look per target and one prompt per call: {looks}")
        if prompted:
            for other in self._frames.values():  # what a prompt conditions has one place
                other.can_be_remembered &= other.prompt is None
        self._frames |= frames
        try:
            self._start(image, list(frames.values()))
        except BaseException:
            for target in frames:
                self._frames.pop(target, None)
            raise
        return FrameAnswers(self, frames)

    def remember(self, choices: Sequence[Remembered]) -> None:
        if self._is_closed:
            raise RuntimeError("the pipeline is closed")
        chosen = []
        for target, choice, slot, present in choices:
            self._check_target(target)
            check_slots(self.spec.slots, slot)
            frame = self._frames.get(target)
            if frame is None or frame.look.is_search or not (frame.is_answered and frame.can_be_remembered):
                raise RuntimeError(f"no image to remember of target {target}: look, and read its candidates")
            chosen.append(Chosen(frame, frame.rows[choice], slot, present))
        for frame in self._frames.values():
            frame.can_be_remembered = False
        if chosen:
            self._remember_all(chosen)

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._frames.clear()
            self._close()

    def answered(self, frame: TargetFrame) -> list[Candidates]:
        """Return the candidates of a target's frame, by view; waits for them."""
        if not frame.is_answered:
            self._require_last(frame)
            self._wait(frame)
            if frame.error is not None:
                raise frame.error
            frame.is_answered = True
        return frame.found

    def mask_of(self, frame: TargetFrame, choice: int) -> NDArray[np.uint8]:
        """See `Answers.mask`."""
        self._require_last(frame)
        if frame.look.is_search or not frame.is_answered:
            raise RuntimeError("no mask: look at one view, and read its candidates")
        return self._mask(frame, frame.rows[choice])

    def _require_last(self, frame: TargetFrame) -> None:
        if self._is_closed:
            raise RuntimeError("the pipeline is closed")
        if self._frames.get(frame.target) is not frame:
            raise RuntimeError(f"target {frame.target} was looked at again: these answers are gone")

    def _check_target(self, target: int) -> None:
        if not 0 <= target < self.max_targets:
            raise IndexError(f"target {target} is beyond the {self.max_targets} of this pipeline")

    def _checked(self, image: Image, look: Look) -> TargetFrame:
        """Return the frame of a look, checked. Raises as `Pipeline.look`."""
        size, plan = (image.width, image.height), look.plan
        check_slots(self.spec.slots, *plan.slots, *plan.pointer_slots)
        if look.is_search and (look.prompt is not None or not plan.slots):
            raise ValueError("search without memory: give a plan with at least one slot, and no prompt")
        if not look.is_search and len(look.views) != 1:
            raise ValueError(f"{len(look.views)} views: give one, or search")
        if look.prompt is None:
            return TargetFrame(look, look.target, size)
        encoded = encode_prompt(look.prompt, look.views[0], *size)
        rows = ALTERNATIVES if encoded.multimask else SINGLE
        return TargetFrame(look, look.target, size, encoded, rows)

    # What a back end computes

    def _start(self, image: Image, frames: Sequence[TargetFrame]) -> None:
        """Compute the looks, or start computing them: `_wait` waits for the results. Looks that were started
        before, and not waited for, end first."""
        for frame in frames:
            try:
                self._compute(image, frame)
            except Exception as error:  # a fault of one target does not keep the others from being looked at
                frame.error = error

    def _wait(self, frame: TargetFrame) -> None:
        """Wait until all answers of a frame are in ``frame.found``."""
        return

    def _remember_all(self, chosen: Sequence[Chosen]) -> None:
        """Encode rows of the decoder's output into ring slots."""
        for one in chosen:
            self._remember(one)

    def _compute(self, image: Image, frame: TargetFrame) -> None:
        """Compute one look, view by view."""
        begin_s = time.perf_counter()
        for view in frame.look.views:
            self._make_features(image, frame, view)
            if frame.prompt is None and frame.look.plan.slots:
                self._attend(frame, frame.look.plan)
            else:
                self._condition(frame)
            frame.found.append(frame.read(view, self._decode(frame)))
        if frame.look.is_search:
            frame.seconds = {"search": time.perf_counter() - begin_s}
        elif frame.target in self._memory_seconds:
            frame.seconds["memory_encoder"] = self._memory_seconds.pop(frame.target)

    def _make_features(self, image: Image, frame: TargetFrame, view: View) -> None:
        """Compute the features of a view, unless those of the target are of this image and view."""
        made = self._features.get(frame.target)
        if made is None or not made.are_of(image, view):
            self._features.pop(frame.target, None)
            others, frame.seconds = frame.seconds, {}
            self._encode(frame, image, view)
            self._features[frame.target] = Features(weakref.ref(image), view, dict(frame.seconds))
            frame.seconds |= others
        else:
            frame.seconds |= made.seconds

    def _encode(self, frame: TargetFrame, image: Image, view: View) -> None:
        """Preprocess and run the image encoder."""
        raise NotImplementedError

    def _condition(self, frame: TargetFrame) -> None:
        """Run the prompt encoder on the features: conditioned on the frame's prompt, or on nothing."""
        raise NotImplementedError

    def _attend(self, frame: TargetFrame, plan: MemoryPlan) -> None:
        """Run memory attention on at least one slot."""
        raise NotImplementedError

    def _decode(self, frame: TargetFrame) -> Decoded:
        """Run the mask decoder and wait for its answers, which hold until the next call. With a mask prompt
        the mask of row 0 becomes ``prompt.logits``, for `_remember` and `_mask`."""
        raise NotImplementedError

    @abstractmethod
    def _remember(self, chosen: Chosen) -> None:
        """Encode a row of the decoder's output into a ring slot."""

    @abstractmethod
    def _mask(self, frame: TargetFrame, row: int) -> NDArray[np.uint8]:
        """See `Answers.mask`."""

    @abstractmethod
    def _close(self) -> None:
        """Free everything; called once."""


class Chosen(NamedTuple):
    """A frame to be remembered: a row of the decoder's output, and the slot that it goes to."""

    frame: TargetFrame
    row: int
    slot: int
    present: bool


@dataclass(frozen=True)
class FrameAnswers:
    """The `Answers` contract: the frames of one call of `look`, by target."""

    state: FrameState
    frames: Mapping[int, TargetFrame]

    def candidates(self, target: int) -> list[Candidates]:
        return self.state.answered(self.frames[target])

    def mask(self, target: int, choice: int) -> NDArray[np.uint8]:
        return self.state.mask_of(self.frames[target], choice)

    def stage_seconds(self, target: int) -> Mapping[str, float]:
        return self.frames[target].seconds


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
