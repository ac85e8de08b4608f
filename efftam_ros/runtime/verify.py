"""Checks that a back end computes what the CPU computes, by processing the same frames with both pipelines.

The back end processes the frames twice. The first run calls the pipeline as a tracker does. Nothing else
waits for the GPU between these calls, so the results are wrong if the back end itself fails to wait where it
must. The second run reads the tensors after every stage, and so finds the first stage that differs.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import cv2
import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.contract import Look, Pipeline, Remembered
from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box, View
from efftam_ros.core.types import Candidates, Image, MemoryPlan, Prompt
from efftam_ros.images.levels import Levels
from efftam_ros.runtime.bundle import Bundle
from efftam_ros.runtime.tensorrt.store import check_private, write_atomically

WIDTH, HEIGHT = 480, 360
RADIUS = 36
"""Radius of the two targets, which are striped discs, px."""
SECOND = (340.0, 200.0)
"""Centre of the second target, which does not move, px."""
SECOND_SLOT = 12
"""What is added to the number of an image to get its slot for the second target, if both share one memory.

They share one if the pipeline has a memory for only one target.
"""
LIMITS = {"mask": 0.1, "box": 0.05, "levels": 0.5, "predicted IoU": 0.05, "presence": 0.05}
TENSOR_LIMIT = 0.02
"""Largest accepted `Deviation.value` of a tensor. The limits of all other outputs are in `LIMITS`.

Tensors in FP16 with sums in FP32 deviate by 0.007, mostly because OpenCV resizes in fixed point on the CPU.
"""
ROUNDING_PX = 0.01
INT8_FACTOR = 5.0
"""Factor on all limits for INT8, which represents a number by eight bits, about two decimal digits."""


class Inspected(Pipeline, Protocol):
    """A pipeline whose tensors can be read."""

    def tensor(self, name: str, target: int = 0) -> NDArray[np.float32]:
        """Return a copy of a tensor after all earlier calls.

        ``image``, the outputs of the image encoder, ``conditioned`` and ``masks`` are those of the last look.
        ``ring_maps`` and ``ring_pointers`` are the memory of the target with this number.
        """
        ...


@dataclass(frozen=True)
class Deviation:
    """By how much one result of a pipeline differs from that of the CPU.

    Attributes:
        frame: Description of the frame, for messages.
        stage: Stage that computed the result.
        output: Name of the result.
        value: The deviation; infinite if it can't be computed, for example because the result has NaN where
            the CPU's has none. Its definition depends on ``output``. For a tensor it is the root mean square
            of the difference, divided by the root mean square of the CPU's tensor. For a mask it is 1 - IoU.
            For a box it is the largest difference of an edge, divided by the square root of the box's area.
            For predicted IoU and presence it is the largest difference. For levels it is 0 if each box lies
            between its own outer and inner level, else 1. The levels themselves are not compared, because
            they differ widely where the logits hardly change.
        limit: Largest accepted deviation.
    """

    frame: str
    stage: str
    output: str
    value: float
    limit: float

    @property
    def is_wrong(self) -> bool:
        return not self.value <= self.limit

    def __str__(self) -> str:
        return f"{self.frame}: output {self.output} of {self.stage} deviates by {self.value:.2g}"


@dataclass(frozen=True)
class Agreement:
    """The result of comparing a pipeline with the CPU.

    Attributes:
        flown: Deviations of the run without waits between the calls.
        stages: Deviations of the run that reads the tensors after every stage, in order of the stages.
        seconds: Duration of both runs, s.
    """

    flown: tuple[Deviation, ...]
    stages: tuple[Deviation, ...]
    seconds: float

    @property
    def fault(self) -> str:
        """The first deviation beyond its limit, in one line with the stage's name; "" if there is none."""
        for found in self.stages:
            if found.is_wrong:
                return f"{found}; the limit is {found.limit}"
        for found in self.flown:
            if found.is_wrong:
                return (
                    f"{found}; the limit is {found.limit}. No stage deviates when the host waits after each"
                    " call, so a wait is missing between two calls"
                )
        return ""


class Reference:
    """The results of the CPU in FP32, with which pipelines of the same bundle are compared.

    They are computed once, for pipelines with one target or for pipelines with several.
    """

    def __init__(self, bundle: Bundle, max_targets: int) -> None:
        # Imported here, because back ends on a GPU need onnxruntime's CPU provider only for this comparison.
        from efftam_ros.runtime.onnxruntime.cpu import OrtPipeline

        self._bundle, self._choices = bundle, dict[str, int]()
        self._images = list(images())
        with closing(OrtPipeline(bundle, max_targets=min(max_targets, 2))) as pipeline:
            flight = _Flight(bundle, pipeline, self._images, self._choices, staged=True)
            self._wanted = {(frame, output): value for frame, _, output, value in flight.run()}

    def judge(self, pipeline: Inspected, precision: str) -> Agreement:
        """Compare a pipeline with the CPU.

        ``precision``: "fp32", "tf32", "fp16" or "int8", whichever the pipeline uses. Limits depend on it.
        """
        begin = time.monotonic()
        flown, stages = (self._compared(pipeline, precision, staged) for staged in (False, True))
        return Agreement(flown, stages, time.monotonic() - begin)

    def _compared(self, pipeline: Inspected, precision: str, staged: bool) -> tuple[Deviation, ...]:
        factor = INT8_FACTOR if precision == "int8" else 1.0
        flight = _Flight(self._bundle, pipeline, self._images, self._choices, staged)
        return tuple(
            Deviation(
                frame,
                stage,
                output,
                deviation(output, self._wanted[frame, output], value),
                factor * LIMITS.get(output, TENSOR_LIMIT),
            )
            for frame, stage, output, value in flight.run()
        )


Found = tuple[str, str, str, NDArray[Any]]
"""Description of the frame, name of the stage, name of the output, and its value."""


class _Flight:
    """Processes the frames of the comparison with one pipeline.

    The frames are a prompted one, tracked ones in a window and in the full view (one with the next image
    announced), a search, and frames with a second target. If the pipeline has memories for two targets, both
    are processed at once, first in the same view and then each in a view of its own.

    ``choices``: by frame, the candidate that is remembered. Missing entries are added, so that all pipelines
    that are run with the same dictionary remember the same candidates. ``staged``: whether the tensors are
    read after every stage.
    """

    def __init__(
        self,
        bundle: Bundle,
        pipeline: Inspected,
        pictures: list[Image],
        choices: dict[str, int],
        staged: bool,
    ) -> None:
        self._pipeline, self._images, self._choices, self._staged = pipeline, pictures, choices, staged
        self._side, self._last_row = pipeline.spec.image_side, pipeline.spec.temporal_rows - 1
        self._features = tuple(bundle.graphs["image_encoder"].outputs)
        self._second, self._second_slot = (1, 0) if pipeline.max_targets > 1 else (0, SECOND_SLOT)
        self._remembered: list[tuple[str, Remembered]] = []

    def run(self) -> Iterator[Found]:
        """Yield all results, in the order in which they are computed.

        The content of the memory is read after the last frame, because reading a tensor makes the host wait
        for the GPU. With ``staged`` the memory is read after each frame.
        """
        full = View.full(WIDTH, HEIGHT, self._side)
        yield from self._frame(0, self._window(0), Prompt(box=DISC_BOX))
        yield from self._frame(1, self._window(1))
        yield from self._frame(2, full, announced=3)
        yield from self._frame(3, full, present=False)
        yield from self._search(4)
        yield from self._frame(4, self._window(4))
        both = View.window(260, 180, 330, self._side)
        click = Prompt(points=(SECOND,), labels=(1,))
        if self._second == 0:
            yield from self._frame(5, both, click, second=True)
            yield from self._frame(6, both, second=True)
        else:
            yield from self._both(5, (both, both), click)
            yield from self._both(6, (both, both))
            yield from self._both(7, (self._window(7), View.window(*SECOND, 220, self._side)))
        for remembered in () if self._staged else self._remembered:
            yield from self._memory(*remembered)

    def _frame(
        self,
        number: int,
        view: View,
        prompt: Prompt | None = None,
        *,
        announced: int | None = None,
        present: bool = True,
        second: bool = False,
    ) -> Iterator[Found]:
        frame, target = self._named(number, prompt, second), self._second if second else 0
        look = Look(target, (view,), self._plan(number, second), prompt)
        answers = self._pipeline.look(self._images[number], [look])
        (candidates,) = answers.candidates(target)
        if self._staged:
            attended = "memory_attention" if prompt is None else "prompt_encoder"
            for stage, names in (
                ("preprocess", ("image",)),
                ("image_encoder", self._features),
                (attended, ("conditioned",)),
                ("mask_decoder", ("masks",)),
            ):
                for name in names:
                    yield frame, stage, name, self._pipeline.tensor(name, target)
        yield from self._answers(frame, candidates)
        yield frame, "mask", "mask", answers.mask(target, self._choices[frame])
        if announced is not None:
            self._pipeline.prefetch(self._images[announced])
        yield from self._remember({frame: self._remembering(frame, number, second, present)})

    def _both(self, number: int, views: tuple[View, View], click: Prompt | None = None) -> Iterator[Found]:
        """Process both targets in one image by one call and yield the results.

        ``views``: the view of each target. ``click``: prompt that selects the second target, or None.
        """
        prompts = {0: None, self._second: click}
        looks = [
            Look(target, (view,), self._plan(number, target > 0), prompts[target])
            for target, view in zip(prompts, views, strict=True)
        ]
        answers, remembered = self._pipeline.look(self._images[number], looks), dict[str, Remembered]()
        for target, prompt in prompts.items():
            frame, (candidates,) = self._named(number, prompt, target > 0), answers.candidates(target)
            yield from self._answers(frame, candidates)
            yield frame, "mask", "mask", answers.mask(target, self._choices[frame])
            remembered[frame] = self._remembering(frame, number, target > 0)
        yield from self._remember(remembered)

    def _search(self, number: int) -> Iterator[Found]:
        views = [View.window(x, y, 220, self._side) for x, y in (SECOND, (400, 300), (176, 158))]
        look = Look(0, tuple(views), self._plan(number, False), is_search=True)
        found = self._pipeline.look(self._images[number], [look]).candidates(0)
        for index, candidates in enumerate(found):
            yield from self._answers(f"window {index} of the search in image {number}", candidates, "search")

    def _answers(self, frame: str, candidates: Candidates, stage: str = "mask_decoder") -> Iterator[Found]:
        choice = self._choices.setdefault(frame, int(candidates.ious.argmax()))
        yield frame, stage, "predicted IoU", candidates.ious
        yield frame, stage, "presence", 1 / (1 + np.exp(-np.array([candidates.presence_logit])))
        yield frame, stage, "box", candidates.boxes[choice]
        if candidates.levels is not None:
            outer, _, inner = candidates.levels[choice]
            shrinks = np.array([1, 1, -1, -1])
            in_order = (outer * shrinks <= candidates.boxes[choice] * shrinks + ROUNDING_PX) & (
                candidates.boxes[choice] * shrinks <= inner * shrinks + ROUNDING_PX
            )
            yield frame, stage, "levels", in_order.astype(np.float32)

    def _remembering(self, frame: str, number: int, second: bool, present: bool = True) -> Remembered:
        target, slot = (self._second, number + self._second_slot) if second else (0, number)
        return Remembered(target, self._choices[frame], slot, present)

    def _remember(self, remembered: Mapping[str, Remembered]) -> Iterator[Found]:
        self._pipeline.remember(list(remembered.values()))
        for entry in remembered.items():
            if self._staged:
                yield from self._memory(*entry)
            else:
                self._remembered.append(entry)

    def _memory(self, frame: str, remembered: Remembered) -> Iterator[Found]:
        for name in ("ring_maps", "ring_pointers"):
            tensor = self._pipeline.tensor(name, remembered.target)
            yield frame, "memory_encoder", name, tensor[remembered.slot]

    def _plan(self, number: int, second: bool) -> MemoryPlan:
        """Return a plan for image ``number`` with all earlier frames of the target.

        The prompted frame has the last temporal row. The others have the rows from 0 on, the latest first.
        """
        first, offset = (5, self._second_slot) if second else (0, 0)
        slots = tuple(offset + index for index in (first, *range(number - 1, first, -1)))
        return MemoryPlan(slots, (self._last_row, *range(len(slots) - 1)), slots)

    def _window(self, number: int) -> View:
        """Return a window around the moving target, with a scale at which pixels must be interpolated."""
        return View.window(160 + 4 * number, 150 + 2 * number, 220, self._side)

    def _named(self, number: int, prompt: Prompt | None, second: bool) -> str:
        kind = "tracked" if prompt is None else "prompted"
        which = "second" if second else "first"
        return f"image {number} ({self._images[number].encoding}), {which} target {kind}"


def deviation(output: str, wanted: NDArray[Any], value: NDArray[Any]) -> float:
    """Return the deviation of a result from the wanted one; see `Deviation.value` for its definition."""
    if wanted.shape != value.shape or not np.array_equal(np.isfinite(wanted), np.isfinite(value)):
        return float("inf")
    if output == "mask":
        union = np.count_nonzero(wanted | value)
        return 1 - np.count_nonzero(wanted & value) / union if union else 0.0
    if not np.isfinite(wanted).all():  # both are NaN: the box of an empty mask
        return 0.0
    if output in ("predicted IoU", "presence", "levels"):
        return float(np.abs(value - wanted).max())
    if output == "box":
        left, top, right, bottom = wanted.tolist()
        return float(np.abs(value - wanted).max() / max(1.0, ((right - left) * (bottom - top)) ** 0.5))
    return relative_error(wanted, value)


def relative_error(wanted: NDArray[np.float32], value: NDArray[np.float32]) -> float:
    """Return the root mean square of the difference, divided by the root mean square of ``wanted``.

    The result is infinite if ``value`` has an infinity or NaN.
    """
    if not np.isfinite(value).all():
        return float("inf")
    scale = float(np.sqrt(np.mean(np.square(wanted, dtype=np.float64))))
    error = float(np.sqrt(np.mean(np.square(np.subtract(value, wanted, dtype=np.float64)))))
    return error / max(scale, 1e-12)


def picture(*discs: tuple[tuple[float, float], tuple[int, int, int]]) -> NDArray[np.uint8]:
    """Return a picture, uint8 [360, 480, 3] BGR, of striped discs on a coarse pattern.

    ``discs``: centre (x, y) in px and colour (blue, green, red) of each disc.
    """
    random = np.random.default_rng(7)
    drawn = np.kron(random.integers(60, 190, (18, 24, 3)), np.ones((20, 20, 1)))
    rows, columns = np.mgrid[:HEIGHT, :WIDTH]
    for (x, y), colour in discs:
        stripes = np.where(((columns - x) // 8 % 2 == 0)[..., None], colour, (20, 200, 230))
        drawn = np.where((np.hypot(columns - x, rows - y) < RADIUS)[..., None], stripes, drawn)
    return drawn.astype(np.uint8)


def moving_disc(number: int) -> tuple[tuple[float, float], tuple[int, int, int]]:
    """Return centre (x, y), px, and colour (blue, green, red) of the moving disc in image ``number``."""
    return (160 + 4 * number, 150 + 2 * number), (20, 20, 230)


DISC_BOX = Box(160 - RADIUS, 150 - RADIUS, 2 * RADIUS, 2 * RADIUS)
"""The box around the moving disc in the first image."""


def images() -> Iterator[Image]:
    """Yield eight images of two striped discs, of which one moves, on a coarse pattern.

    The images have the most frequent encodings of cameras in turn: bgr8, nv12, and mono8 as it is made from
    mono16.
    """
    levels = Levels()
    for number in range(8):
        bgr = picture(moving_disc(number), (SECOND, (230, 80, 20)))
        if number % 3 == 0:
            yield Image.from_array(bgr)
        elif number % 3 == 1:
            planes = cv2.cvtColor(bgr, cv2.COLOR_BGR2YUV_I420)
            chroma = planes[HEIGHT:].reshape(2, -1).T.reshape(HEIGHT // 2, WIDTH)
            yield Image(np.concatenate([planes[:HEIGHT], chroma]), WIDTH, HEIGHT, "nv12")
        else:
            thermal = 3000 + 16 * cv2.cvtColor(bgr, cv2.COLOR_BGR2GRAY).astype(np.uint16)
            yield Image.from_array(levels.reduced(thermal, number * 33_000_000), "mono8")


class AgreementRecord:
    """A file which records that a pipeline agreed with the CPU.

    ``folder``: the folder of the file. ``parts``: everything on which the results of the pipeline depend. The
    name of the file contains a hash of ``parts``.
    """

    def __init__(self, folder: Path, parts: Mapping[str, Any]) -> None:
        self._parts = json.loads(json.dumps(parts, sort_keys=True))
        key = hashlib.sha256(json.dumps(self._parts, sort_keys=True).encode()).hexdigest()
        self.path = folder / f"verified-{key[:16]}.json"

    @property
    def agreed(self) -> bool:
        """Whether the file exists and is complete.

        A file does not count if every user may write the file or its folder.
        """
        try:
            check_private(self.path.parent)
            check_private(self.path)
            return bool(json.loads(self.path.read_bytes())["key"] == self._parts)
        except (OSError, ValueError, KeyError, TypeError, InputError):
            return False

    def keep(self, agreement: Agreement) -> None:
        """Write the file if the pipeline agrees, else remove it.

        A folder that can't be written causes no error. The comparison then runs at every start.
        """
        entry = {"key": self._parts, "deviations": [asdict(found) for found in agreement.flown]}
        try:
            if agreement.fault:
                self.path.unlink(missing_ok=True)
                return
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self.path, (json.dumps(entry, indent=1) + "\n").encode())
        except OSError:
            return
