"""The part of a pipeline that all back ends share: order of calls, state of each target, argument checks."""

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
"""Rows of the decoder's output that are the candidates of a tracked frame, or of a prompt of one point."""
SINGLE = range(1)
"""Row of the decoder's output that is the only candidate of any prompt that is not a single point."""


ANSWERS = ("boxes", "areas", "ious", "presence", "levels")
"""Names of the mask decoder's small outputs, in the order of `Decoded`. Some networks have no "levels"."""


class Decoded(NamedTuple):
    """The mask decoder's small outputs for its four masks.

    Attributes:
        boxes: float32 [4, 4], left, top, right and bottom edge of each mask, network px.
        areas: float32 [4], area of each mask, network px^2.
        ious: float32 [4], predicted IoU of each mask, 0..1.
        presence: Logit of the presence: above 0 if the network sees the target.
        levels: float32 [4, 2, 4], two further boxes for each mask (docs/bundle.md), network px; None if the
            graph does not give them.
    """

    boxes: NDArray[np.float32]
    areas: NDArray[np.float32]
    ious: NDArray[np.float32]
    presence: float
    levels: NDArray[np.float32] | None = None


def check_slots(count: int, *slots: int) -> None:
    """Raise IndexError if one of the slots is not a number from 0 to ``count`` - 1."""
    if slots and not (min(slots) >= 0 and max(slots) < count):
        bad = min(slots) if min(slots) < 0 else max(slots)
        raise IndexError(f"slot {bad} does not exist; slots are numbered from 0, and there are {count}")


@dataclass(eq=False)
class TargetFrame:
    """The state of one `Look`: what the back end computes for one target in one image.

    Attributes:
        look: The views, and the prompt or memory plan, to compute.
        target: Number of the target's memory.
        size: Width and height of the image, px.
        prompt: The look's prompt in network coordinates; None on tracked images.
        rows: For each candidate, its row in the decoder's output.
        found: The candidates of each view, in the order of ``look.views``.
        is_answered: Whether ``found`` is complete.
        error: The exception that occurred while the candidates were computed, or None. `answered` raises it.
        seconds: Duration of each stage, s; see `Answers.stage_seconds`.
        can_be_remembered: Whether a candidate can still be stored in the memory.
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
        """The only view of the look. A search has several views, and this is its first."""
        return self.look.views[0]

    def read(self, view: View, decoded: Decoded) -> Candidates:
        """Return the candidates of one view in px of the image, made of the decoder's outputs.

        If the prompt is a mask, that mask is the only candidate.
        """
        boxes, areas, ious, presence, levels = decoded
        if self.prompt is not None and self.prompt.logits is not None:
            boxes, areas = boxes_and_areas(self.prompt.logits[None])
            ious, presence = np.ones(1, np.float32), CERTAIN
            # A mask prompt has sharp edges, so its boxes of all levels are the same.
            levels = None if levels is None else np.stack([boxes, boxes], axis=1)
        some = slice(self.rows.start, self.rows.stop) if isinstance(self.rows, range) else self.rows
        levels = None if levels is None else levels[some]
        return Candidates.in_view(view, boxes[some], areas[some], ious[some], presence, levels)


class Features(NamedTuple):
    """The image and view from which a target's features were computed.

    ``seconds``: by stage, how long this took, s.
    """

    image: weakref.ref[Image]
    view: View
    seconds: Mapping[str, float]

    def are_of(self, image: Image, view: View) -> bool:
        return self.image() is image and self.view == view


class FrameState(ABC):
    """Base class of all pipelines: checks every call, and stores the state of each target's last look.

    A back end implements the methods with an underscore. They are called in the right order and with checked
    arguments. A back end that computes one look after the other implements the stages `_encode`,
    `_condition`, `_attend` and `_decode`, or replaces `_compute`. A back end that computes the looks of
    several targets together overrides `_start`, `_wait` and `_remember_all`.
    """

    notice = ""
    target_bytes = 0
    is_on_gpu = False
    """Whether a GPU computes the network, so that the CPU has time for other work meanwhile."""

    def __init__(self, spec: PipelineSpec, max_targets: int = 1) -> None:
        self.spec, self.max_targets = spec, max_targets
        self._frames: dict[int, TargetFrame] = {}  # state of the last look of each target
        self._features: dict[int, Features] = {}  # image and view of the features in each target's buffer
        self._memory_seconds: dict[int, float] = {}  # how long `_remember` last took for each target, s
        self._is_closed = False

    def watch(self, watch: Watch) -> None:
        """Replace all functions that process a frame by the wrappers that ``watch`` returns for them.

        These are methods of `Pipeline`, and in back ends also functions of the libraries that they use. The
        replacement is permanent.
        """
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
            # If this look fails, nothing of the target's earlier look may be used in its place.
            self._frames.pop(look.target, None)
        if CHECKED not in image.derived:
            check_image(image)
        for look in looks:
            frames[look.target] = self._checked(image, look)
        if len(frames) < len(looks) or prompted > 1:
            raise ValueError(
                f"a call has {len(looks)} looks at {len(frames)} target(s) and {prompted} prompt(s); give at"
                " most one look per target, and one prompt"
            )
        if prompted:
            # A back end may have one buffer of prompted features for all targets. The new prompt overwrites
            # it, so an earlier prompted look can no longer be remembered.
            for other in self._frames.values():
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
                raise RuntimeError(
                    f"target {target} has no candidate to store; call look, and read its candidates first"
                )
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
        """Wait for the candidates of a look and return them, one item for each view.

        Raises the exception that occurred while the candidates were computed, and RuntimeError if `look` was
        called again for this target.
        """
        if not frame.is_answered:
            self._require_last(frame)
            self._wait(frame)
            if frame.error is not None:
                raise frame.error
            frame.is_answered = True
        return frame.found

    def mask_of(self, frame: TargetFrame, choice: int) -> NDArray[np.uint8]:
        """Return the mask of a candidate: uint8 [H, W] of the image, 255 on the target, 0 elsewhere.

        Raises RuntimeError if `look` was called again for this target, if the look is a search, or if its
        candidates were not read before.
        """
        self._require_last(frame)
        if frame.look.is_search or not frame.is_answered:
            raise RuntimeError(
                "this look has no mask; call look with one view, and read its candidates first"
            )
        return self._mask(frame, frame.rows[choice])

    def _require_last(self, frame: TargetFrame) -> None:
        if self._is_closed:
            raise RuntimeError("the pipeline is closed")
        if self._frames.get(frame.target) is not frame:
            raise RuntimeError(
                f"look was called again for target {frame.target}, so these answers are lost; use those of"
                " the last call"
            )

    def _check_target(self, target: int) -> None:
        if not 0 <= target < self.max_targets:
            raise IndexError(f"target {target} does not exist; there are {self.max_targets}, numbered from 0")

    def _checked(self, image: Image, look: Look) -> TargetFrame:
        """Check a look and return a new state for it.

        Raises IndexError for an unknown slot, ValueError for views, plan or prompt that do not belong
        together, and InputError for a prompt that the view does not show.
        """
        size, plan = (image.width, image.height), look.plan
        check_slots(self.spec.slots, *plan.slots, *plan.pointer_slots)
        if look.is_search and (look.prompt is not None or not plan.slots):
            raise ValueError(
                "a search has a prompt or no memory; give a plan with at least one slot, and no prompt"
            )
        if not look.is_search and len(look.views) != 1:
            raise ValueError(f"the look has {len(look.views)} views and is no search; give one view")
        if look.prompt is None:
            return TargetFrame(look, look.target, size)
        encoded = encode_prompt(look.prompt, look.views[0], *size)
        rows = ALTERNATIVES if encoded.multimask else SINGLE
        return TargetFrame(look, look.target, size, encoded, rows)

    # The methods below are implemented or overridden by back ends.

    def _start(self, image: Image, frames: Sequence[TargetFrame]) -> None:
        """Compute the looks of several targets, or start to compute them. `_wait` waits for the results.
        Earlier looks that were started, and for whose results nobody has waited, must end first."""
        for frame in frames:
            try:
                self._compute(image, frame)
            except Exception as error:  # stored, so that the other targets are still computed
                frame.error = error

    def _wait(self, frame: TargetFrame) -> None:
        """Wait until the candidates of all views are in ``frame.found``."""
        return

    def _remember_all(self, chosen: Sequence[Chosen]) -> None:
        """Store map and pointer of each chosen candidate in its slot of the memory."""
        for one in chosen:
            self._remember(one)

    def _compute(self, image: Image, frame: TargetFrame) -> None:
        """Compute one look, one view after the other, and store the candidates and the durations in it."""
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
        """Compute the features of a view, unless the target's buffer contains them already."""
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
        """Make the network input of this view and compute its features by the image encoder."""
        raise NotImplementedError

    def _condition(self, frame: TargetFrame) -> None:
        """Condition the features by the prompt encoder on the frame's prompt.

        For a frame without a prompt the prompt encoder gets the result of `preprocess.no_prompt`.
        """
        raise NotImplementedError

    def _attend(self, frame: TargetFrame, plan: MemoryPlan) -> None:
        """Condition the features by the memory attention on the plan's slots (at least one)."""
        raise NotImplementedError

    def _decode(self, frame: TargetFrame) -> Decoded:
        """Compute the masks by the mask decoder, and return its small outputs.

        The arrays are valid until the next call. If the frame's prompt is a mask, ``prompt.logits`` must
        replace the logits of row 0, which `_remember` and `_mask` use later.
        """
        raise NotImplementedError

    @abstractmethod
    def _remember(self, chosen: Chosen) -> None:
        """Store map and pointer of a chosen candidate in its slot of the memory."""

    @abstractmethod
    def _mask(self, frame: TargetFrame, row: int) -> NDArray[np.uint8]:
        """Return the mask of a row of the decoder's output: uint8 [H, W] of the image, 255 on the target."""

    @abstractmethod
    def _close(self) -> None:
        """Free all resources. This is called once."""


class Chosen(NamedTuple):
    """A candidate to store in the memory.

    Attributes:
        frame: The look of the target that found the candidate.
        row: The candidate's row in the decoder's output.
        slot: The slot of the target's memory that is overwritten.
        present: False stores an empty mask, and the network's "no object" as the pointer.
    """

    frame: TargetFrame
    row: int
    slot: int
    present: bool


@dataclass(frozen=True)
class FrameAnswers:
    """Implements `Answers`: gives access to the results of one call of `look`."""

    state: FrameState
    frames: Mapping[int, TargetFrame]

    def candidates(self, target: int) -> list[Candidates]:
        return self.state.answered(self.frames[target])

    def mask(self, target: int, choice: int) -> NDArray[np.uint8]:
        return self.state.mask_of(self.frames[target], choice)

    def stage_seconds(self, target: int) -> Mapping[str, float]:
        return self.frames[target].seconds


def round_bfloat16(values: NDArray[np.float32]) -> None:
    """Round a contiguous float32 array in place to the nearest values of bfloat16, ties to even.

    Infinities and NaN stay. This function exists because numpy has no bfloat16.
    """
    finite = np.isfinite(values)
    bits = values.view(np.uint32)
    half = ((bits >> np.uint32(16)) & np.uint32(1)) + np.uint32(0x7FFF)
    if not finite.all():  # adding ``half`` to the bits of a NaN could turn it into an infinity or zero
        half *= finite
        np.bitwise_or(bits, np.uint32(0x10000), out=bits, where=np.isnan(values))
    bits += half
    bits &= np.uint32(0xFFFF0000)
