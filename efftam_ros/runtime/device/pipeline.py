"""The pipeline whose tensors stay on the GPU: one stream, one wait per frame, nothing allocated per frame."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.geometry import View
from efftam_ros.core.types import Image, MemoryPlan
from efftam_ros.runtime.bundle import Bundle
from efftam_ros.runtime.cuda.api import Cuda, CudaError
from efftam_ros.runtime.cuda.device import DeviceFacts
from efftam_ros.runtime.cuda.kernel_table import MASK_VIEW, PREPROCESS_PARAMS
from efftam_ros.runtime.cuda.memory import Arena, DeviceBuffer, HostBuffer, aligned
from efftam_ros.runtime.cuda.module import KernelSet
from efftam_ros.runtime.cuda.preprocess_params import PreprocessParameters, mask_view
from efftam_ros.runtime.cuda.stream import Event, Stream
from efftam_ros.runtime.device.image import VIEW_BYTES, DeviceImage
from efftam_ros.runtime.device.memory import ATTENTION, GRAPHS, MemoryLayout
from efftam_ros.runtime.device.parameters import DECISION, MASK, PLAN, PREPROCESS, SEARCH, Parameters
from efftam_ros.runtime.device.section import Section, Stage
from efftam_ros.runtime.device.timing import StageClock
from efftam_ros.runtime.frame_state import Answers, FramePipeline
from efftam_ros.runtime.image.prompts import MOST_POINTS, EncodedPrompt, no_prompt

if TYPE_CHECKING:
    from efftam_ros.runtime.device.graph import Binding, DeviceGraph, GraphOpener
    from efftam_ros.runtime.verify.runners import Runner

STAGES = (
    "preprocess",
    "image_encoder",
    "prompt_encoder",
    "memory_attention",
    "mask_decoder",
    "memory_encoder",
)
WARM_UP_RUNS = 3  # lazily loaded kernels, autotuning, capture: all before the first frame

SEARCH_VIEWS = 16
"""Views of an image that are searched with one wait."""
TRACKING, PROMPTED = "tracking", "prompted"
"""Whose prompt tensors: what tracked frames are decoded with, made once, and the last prompted frame's."""


class DevicePipeline(FramePipeline):
    """The `Pipeline` contract on one GPU, with the graphs run by a `GraphOpener`.

    The host sees scores and boxes, and masks where somebody wants them; `decode` is the one place of a frame
    where it waits. Two non-blocking streams: an image's bytes go up and are preprocessed on one, beside the
    memory encoder of the frame before; the network runs on the other, behind an event. A tracked frame is two
    sections, each launched as one CUDA graph where the library allows it: from the plan to the answers, and
    from the choice to the memory.
    """

    is_asynchronous = True

    def __init__(
        self,
        bundle: Bundle,
        cuda: Cuda,
        facts: DeviceFacts,
        stream: Stream,
        opener: GraphOpener,
        zero_copy: bool = False,
    ) -> None:
        """Takes over ``stream`` and ``opener`` and closes them. ``zero_copy``: kernels read images from
        pinned host memory. Raises BackendError (a graph that can't run on the GPU), CudaError (too little
        memory, no kernel for this GPU) and InputError."""
        # The fixed form of memory attention has one place per temporal row.
        super().__init__(replace(bundle.spec, max_prompts=1))
        self._cuda, self._facts = cuda, facts
        self._stream, self._opener, self._zero_copy = stream, opener, zero_copy
        self._layout = MemoryLayout.of(bundle)
        self._here = threading.local()
        self._here.adopted = self._here.current = True
        self._mask_output: _MaskOutput | None = None
        self._in_flight = False  # something runs that the host has not waited for, besides the memory encoder
        self._planned = False  # the frame attends to memory: its network runs in `decode`
        self._streams = [stream]
        self._closing: list[Callable[[], None]] = [stream.close, opener.close]
        try:
            self._images = Stream(cuda)
            self._streams.append(self._images)
            self._closing.append(self._images.close)
            self._allocate(bundle)
            self._open_graphs(bundle)
            self._make_sections()
            self._warm_up()
            self._track.capture()
            self._keep.capture()
        except BaseException:
            self.close()
            raise

    @property
    def launch(self) -> Mapping[str, str]:
        """How each graph of a tracked frame is started (`Binding.launch`), and how its sections are."""
        sections = {"plan to answers": self._track.launch, "choice to memory": self._keep.launch}
        return {name: binding.launch for name, binding in self._tracked.items()} | sections

    @property
    def device_bytes(self) -> int:
        """Device memory held, as far as it is known."""
        masks = 0 if self._mask_output is None else self._mask_output.device.nbytes
        return self._arena.total_bytes + self._image.device_bytes + masks + self._opener.device_bytes

    @contextmanager
    def runners(self) -> Iterator[Mapping[str, Runner]]:
        """Every graph, to be run on host arrays: for comparing them, not for frames. What the runners hold on
        the GPU is given back at the end."""
        from efftam_ros.runtime.verify.runners import DeviceRunner

        self.frame.require_open()
        with ExitStack() as opened:
            yield {
                name: opened.enter_context(closing(DeviceRunner(self._cuda, self._stream, graph)))
                for name, graph in self._graphs.items()
            }

    @property
    def stage_interval(self) -> int:
        """Frames of which the first is timed for ``stage_seconds``, which keep the latest times; 1 for every
        frame."""
        return self._clock.interval

    @stage_interval.setter
    def stage_interval(self, frames: int) -> None:
        self._clock.interval = frames

    def _stage_seconds_now(self) -> Mapping[str, float]:
        return self._clock.seconds

    def prefetch(self, image: Image) -> None:
        self._image.stage(image)

    def _encode(self, image: Image, view: View) -> None:
        self._adopt_thread()
        self._end_abandoned_frame()
        self._clock.begin()
        parts = self._image.prepare(image, [view], self._parameters.view(PREPROCESS))
        with self._clock.time("preprocess", self._images):
            self._parameters.upload(self._images, PREPROCESS)
            self._image.upload(self._images, image, parts)
            self._preprocess(self._images, self._parameters.pointer(PREPROCESS))
        self._images.record(self._image_ready)
        self._in_flight, self._planned = True, False
        self._stream.wait(self._image_ready)

    def _condition(self, prompt: EncodedPrompt | None) -> None:
        self._run("image_encoder", self._tracked["image_encoder"])
        if prompt is None:
            self._encode_prompt(no_prompt(self.spec.image_side), TRACKING)
        else:
            self._encode_prompt(prompt, PROMPTED)

    def _attend(self, plan: MemoryPlan) -> None:
        self._layout.write_plan(plan, self._plan)
        self._planned = True

    def _decode(self, prompt: EncodedPrompt | None) -> Answers:
        if self._planned:
            self._track.run()
        elif prompt is None:
            self._run("mask_decoder", self._tracked["mask_decoder"])
            self._copy_answers_out(0)
        else:
            self._bind_prompt(self._free_decoder, PROMPTED, _tokens(prompt, self._sparse_tokens))
            self._run("mask_decoder", self._free_decoder)
            self._copy_answers_out(0)
            if prompt.logits is not None:
                self._stage("masks", prompt.logits)  # in place of the single answer, row 0
        self._await_answers()
        self._clock.read()
        return self._answers_of(0)

    def _search(self, image: Image, views: Sequence[View], plan: MemoryPlan) -> Iterator[Answers]:
        self._adopt_thread()
        self._end_abandoned_frame()
        for first in range(0, len(views), SEARCH_VIEWS):
            some = views[first : first + SEARCH_VIEWS]
            parts = self._image.prepare(image, some, self._parameters.view(SEARCH))
            nbytes = (len(some) - 1) * VIEW_BYTES + PREPROCESS_PARAMS.itemsize
            self._parameters.upload(self._stream, SEARCH, nbytes)
            self._image.upload(self._stream, image, parts)
            self._layout.write_plan(plan, self._plan)
            self._in_flight = True
            self._parameters.upload(self._stream, PLAN)
            self._gather.run(self._stream)
            for index in range(len(some)):
                self._preprocess(self._stream, self._parameters.pointer(SEARCH, index * VIEW_BYTES))
                for name in ("image_encoder", ATTENTION, "mask_decoder"):
                    self._tracked[name].run()
                self._copy_answers_out(index)
            self._await_answers()
            for index in range(len(some)):
                yield self._answers_of(index)

    def _remember(self, row: int, slot: int, present: bool) -> None:
        prompted = self.frame.is_prompted
        self._decision[:] = row, slot, present, prompted
        if not prompted:
            self._keep.run()
            return
        with self._clock.time("memory_encoder", self._stream):
            self._parameters.upload(self._stream, DECISION)
            self._choose.run(self._stream)
            self._free_memory.run()
            self._store.run(self._stream)

    def _mask(self, row: int, view: View, width: int, height: int) -> NDArray[np.uint8]:
        self._make_current()
        output = self._mask_output
        if output is None or output.size != (width, height):
            self._free_mask_output()
            output = self._mask_output = _MaskOutput(self._cuda, width, height)
        record = mask_view(view, width, height, self._low)
        self._parameters.view(MASK)[:] = np.frombuffer(record.tobytes(), np.uint8)
        # Beside the memory encoder, not behind it: the masks are there since the frame's answers are.
        stream = self._images
        self._parameters.upload(stream, MASK)
        logits = self._arena.pointer("masks") + 4 * row * self._low**2
        launch = self._kernels.launch(
            "mask_upsample", (width, height), self._parameters.pointer(MASK), logits, output.device.pointer
        )
        launch.run(stream)
        stream.copy_out(output.host, output.device.pointer, width * height)
        stream.record(self._masked)
        self._masked.wait()
        return output.host.view(np.uint8, (height, width)).copy()

    def _close(self) -> None:
        with suppress(CudaError):  # a lost GPU can't be waited for, and nothing runs on it
            self._make_current()
            self._end_all()
        for close in reversed(self._closing):
            close()

    def _allocate(self, bundle: Bundle) -> None:
        spec, layout = bundle.spec, self._layout
        encoder, prompt = bundle.graphs["image_encoder"].outputs, bundle.graphs["prompt_encoder"].outputs
        decoder = bundle.graphs["mask_decoder"].outputs
        self._low = int(decoder["masks"].shape[-1])
        tokens = prompt["sparse"].shape[1]
        self._sparse_tokens = tokens if isinstance(tokens, int) else None
        channels = int(prompt["sparse"].shape[2])
        shapes: dict[str, tuple[int, ...]] = {
            # Side by side: what the host wants to know of a frame is one copy.
            "boxes": (4, 4), "areas": (4,), "ious": (4,), "presence": (1,),
            "image": (1, 3, spec.image_side, spec.image_side),
            **{name: _static(tensor.shape) for name, tensor in encoder.items()},
            "conditioned": _static(prompt["conditioned"].shape),
            "masks": _static(decoder["masks"].shape),
            "candidate_pointers": _static(decoder["pointers"].shape),
            "points": (1, MOST_POINTS, 2), "labels": (2, MOST_POINTS),
            "prompt_mask": (1, 1, spec.image_side, spec.image_side), "has_mask": (1,),
            "mask_logits": (1, 1, self._low, self._low), "pointer": (1, layout.pointer_channels),
            "present": (1,), "binarize": (1,),
            **layout.tensors(),
        }  # fmt: skip
        for which in (TRACKING, PROMPTED):
            shapes[f"{which} sparse"] = (1, self._sparse_tokens or MOST_POINTS + 1, channels)
            shapes[f"{which} dense"] = _static(prompt["dense"].shape)
            if "prompt_raster" in prompt:
                shapes[f"{which} prompt_raster"] = _static(prompt["prompt_raster"].shape)
        blocks = {
            PREPROCESS: PREPROCESS_PARAMS.itemsize,
            PLAN: 4 * (layout.rows + layout.pointers),
            DECISION: 16,
            MASK: MASK_VIEW.itemsize,
            SEARCH: SEARCH_VIEWS * VIEW_BYTES,
        }
        shapes |= {name: (nbytes // 4,) for name, nbytes in blocks.items()}
        self._shapes = shapes
        self._arena = Arena(self._cuda, shapes)
        self._closing.append(self._arena.free)
        self._stream.zero(self._arena.pointer("boxes"), self._arena.total_bytes)
        self._parameters = Parameters(self._cuda, self._arena, blocks)
        self._closing.append(self._parameters.free)
        self._plan = self._parameters.view(PLAN).view(np.int32)
        self._decision = self._parameters.view(DECISION).view(np.int32)
        self._answers_bytes = self._arena.span("boxes", "presence")
        self._answers = self._pinned(SEARCH_VIEWS * aligned(self._answers_bytes))
        self._answer_views = [self._answers_at(index) for index in range(SEARCH_VIEWS)]
        self._staged: dict[str, int] = {}
        staging = 0
        for name in ("prompt_mask", "points", "labels", "has_mask", "masks"):
            self._staged[name] = staging
            staging += aligned(self._arena.nbytes(name))
        self._prompts = self._pinned(staging)
        self._kernels = KernelSet(self._cuda)
        self._closing.append(self._kernels.close)
        self._image_ready, self._answered, self._masked = (self._event() for _ in range(3))
        self._clock = StageClock(self._cuda, STAGES)
        self._closing.append(self._clock.close)
        parameters = PreprocessParameters(spec.image_side, bundle.mean, bundle.std)
        self._image = DeviceImage(self._cuda, self._kernels, parameters, spec.image_side, self._zero_copy)
        self._closing += [self._image.free, self._free_mask_output]
        self._make_launches()

    def _make_launches(self) -> None:
        at, layout, decision = self._arena.pointer, self._layout, self._arena.pointer(DECISION)
        self._gather = self._kernels.launch(
            "gather_memory", (layout.gathered, 1), at(PLAN),
            *map(at, ("ring_maps", "ring_pointers", "maps", "pointers", "key_bias")),
            layout.rows, layout.tokens, layout.channels, layout.pointers, layout.pointer_channels,
            layout.pointer_tokens, int(layout.pooled),
        )  # fmt: skip
        cells = self._low**2
        self._choose = self._kernels.launch(
            "choose_candidate", (cells + layout.pointer_channels + 2, 1), decision,
            *map(at, ("masks", "candidate_pointers", "mask_logits", "pointer", "present", "binarize")),
            cells, layout.pointer_channels,
        )  # fmt: skip
        self._store = self._kernels.launch(
            "store_memory", (layout.map_size + layout.pointer_channels, 1), decision,
            *map(at, ("map", "stored_pointer", "ring_maps", "ring_pointers")),
            layout.map_size, layout.pointer_channels, int(layout.rounds),
        )  # fmt: skip

    def _make_sections(self) -> None:
        """What a tracked frame runs, in order; decode's answers are those of view 0 of a search."""
        stream, tracked, upload = self._stream, self._tracked, self._parameters.uploading
        attention = (upload(stream, PLAN), partial(self._gather.run, stream), tracked[ATTENTION])
        self._track = Section(
            stream,
            self._clock,
            [
                Stage("image_encoder", (tracked["image_encoder"],)),
                Stage("memory_attention", attention),
                Stage("mask_decoder", (tracked["mask_decoder"],)),
            ],
            after=(partial(self._copy_answers_out, 0),),
        )
        choose, store = partial(self._choose.run, stream), partial(self._store.run, stream)
        steps = (upload(stream, DECISION), choose, tracked["memory_encoder"], store)
        self._keep = Section(stream, self._clock, [Stage("memory_encoder", steps)])
        self._closing += [self._track.close, self._keep.close]

    def _open_graphs(self, bundle: Bundle) -> None:
        self._graphs: dict[str, DeviceGraph] = {}
        for name in GRAPHS:
            self._graphs[name] = self._opener.open(name)
            self._closing.append(self._graphs[name].close)
        self._tracked = {
            name: self._graphs[name].binding(True) for name in GRAPHS if name != "prompt_encoder"
        }
        self._free_prompt = self._graphs["prompt_encoder"].binding(False)
        self._free_decoder = self._graphs["mask_decoder"].binding(False)
        self._free_memory = self._graphs["memory_encoder"].binding(False)
        for binding in (*self._tracked.values(), self._free_prompt, self._free_decoder, self._free_memory):
            self._bind_common(binding)
        self._bind_decoder_outputs()
        blank = no_prompt(self.spec.image_side)
        tokens = _tokens(blank, self._sparse_tokens)
        for binding in (self._tracked["mask_decoder"], self._tracked["memory_encoder"]):
            self._bind_prompt(binding, TRACKING, tokens)
        self._bind_prompt(self._free_memory, PROMPTED, tokens)
        self._encode_prompt(blank, TRACKING)

    def _bind_common(self, binding: Binding) -> None:
        """All tensors whose name means one address in every graph."""
        special = ("points", "labels", "prompt_mask", "has_mask", "pointers", "sparse", "dense")
        for name, shape in self._shapes.items():
            if " " not in name and name not in special:
                binding.bind(name, self._arena.pointer(name), shape)

    def _bind_decoder_outputs(self) -> None:
        """``pointers`` are attention's input and the decoder's output: two tensors of one name."""
        attended, candidates = self._shapes["pointers"], self._shapes["candidate_pointers"]
        self._tracked[ATTENTION].bind("pointers", self._arena.pointer("pointers"), attended)
        for binding in (self._tracked["mask_decoder"], self._free_decoder):
            binding.bind("pointers", self._arena.pointer("candidate_pointers"), candidates)

    def _bind_prompt(self, binding: Binding, which: str, tokens: int) -> None:
        """Let the prompt's tensors be those of tracked or of prompted frames."""
        for name in ("sparse", "dense", "prompt_raster"):
            key = f"{which} {name}"
            if key in self._shapes:
                shape = self._shapes[key]
                binding.bind(
                    name, self._arena.pointer(key), (1, tokens, shape[2]) if name == "sparse" else shape
                )

    def _warm_up(self) -> None:
        for _ in range(WARM_UP_RUNS):
            for name in ("image_encoder", ATTENTION, "mask_decoder", "memory_encoder"):
                self._tracked[name].run()
        self._stream.synchronize()

    def _preprocess(self, stream: Stream, description: int) -> None:
        self._image.preprocess(stream, description, self._arena.pointer("image"))

    def _await_answers(self) -> None:
        self._stream.record(self._answered)
        self._answered.wait()
        self._in_flight = False

    def _end_abandoned_frame(self) -> None:
        """A frame that was encoded and not decoded may still read what the next one writes."""
        if self._in_flight:
            self._end_all()
            self._in_flight = False

    def _end_all(self) -> None:
        for stream in self._streams:
            stream.synchronize()

    def _encode_prompt(self, encoded: EncodedPrompt, which: str) -> None:
        """Run the prompt encoder on this frame's features, into the tensors of ``which`` frames."""
        count = encoded.points.shape[1]
        side = self.spec.image_side
        inputs: dict[str, tuple[NDArray[Any], tuple[int, ...]]] = {
            "points": (encoded.points, (1, count, 2)),
            "labels": (encoded.labels, (1, count)),
            "has_mask": (encoded.has_mask, (1,)),
        }
        with self._clock.time("prompt_encoder", self._stream):
            if encoded.has_mask.any():
                self._stage("prompt_mask", encoded.mask)  # the graph ignores what is left of it later
            for name, (values, shape) in inputs.items():
                self._stage(name, values)
                self._free_prompt.bind(name, self._arena.pointer(name), shape)
            self._free_prompt.bind("mask", self._arena.pointer("prompt_mask"), (1, 1, side, side))
            self._bind_prompt(self._free_prompt, which, _tokens(encoded, self._sparse_tokens))
            self._free_prompt.run()

    def _stage(self, name: str, values: NDArray[Any]) -> None:
        """Copy a small host array to the device through pinned memory of its own."""
        offset = self._staged[name]
        self._prompts.view(values.dtype, values.shape, offset)[:] = values
        self._stream.copy_in(self._arena.pointer(name), self._prompts, values.nbytes, offset)

    def _copy_answers_out(self, index: int) -> None:
        """Copy the decoder's small outputs to their ``index``-th place on the host."""
        self._stream.copy_out(
            self._answers,
            self._arena.pointer("boxes"),
            self._answers_bytes,
            index * aligned(self._answers_bytes),
        )

    def _answers_at(self, index: int) -> list[NDArray[np.float32]]:
        """Boxes, areas, IoUs and presence at their ``index``-th place on the host."""
        at = index * aligned(self._answers_bytes)
        return [
            self._answers.view(np.float32, self._shapes[name], at + self._arena.offset(name, "boxes"))
            for name in ("boxes", "areas", "ious", "presence")
        ]

    def _answers_of(self, index: int) -> Answers:
        boxes, areas, ious, presence = self._answer_views[index]
        return Answers(boxes, areas, ious, float(presence[0]))

    def _run(self, stage: str, binding: Binding) -> None:
        with self._clock.time(stage, self._stream):
            binding.run()

    def _adopt_thread(self) -> None:
        """Make ready for frames in a thread that did not open the pipeline.

        What the libraries prepare per thread (onnxruntime its captured graphs) is prepared now, not in the
        middle of a frame. Identities of threads are used again, so that each thread keeps a mark of its own.
        """
        if not getattr(self._here, "adopted", False):
            self._make_current()
            self._warm_up()
            self._here.adopted = True

    def _make_current(self) -> None:
        """Make the device's context this thread's."""
        if not getattr(self._here, "current", False):
            self._cuda.make_current(self._facts.index)
            self._here.current = True

    def _pinned(self, nbytes: int) -> HostBuffer:
        buffer = HostBuffer(self._cuda, nbytes)
        self._closing.append(buffer.free)
        return buffer

    def _event(self) -> Event:
        event = Event(self._cuda)
        self._closing.append(event.close)
        return event

    def _free_mask_output(self) -> None:
        if self._mask_output is not None:
            self._mask_output.free()
            self._mask_output = None


class _MaskOutput:
    """Memory for one mask at image size, on the device and on the host."""

    def __init__(self, cuda: Cuda, width: int, height: int) -> None:
        self.size = (width, height)
        self.device = DeviceBuffer(cuda, width * height)
        try:
            self.host = HostBuffer(cuda, width * height)
        except BaseException:
            self.device.free()
            raise

    def free(self) -> None:
        self.device.free()
        self.host.free()


def _tokens(encoded: EncodedPrompt, fixed: int | None) -> int:
    """Tokens of the prompt in ``sparse``: the points and one of padding, unless the network has a fixed
    number."""
    return encoded.points.shape[1] + 1 if fixed is None else fixed


def _static(shape: tuple[int | str, ...]) -> tuple[int, ...]:
    return tuple(int(axis) for axis in shape)
