"""Runs the graphs of a network, and the kernels of its memory, on one stream of the GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from efftam_ros.runtime.bundle import Bundle
from efftam_ros.runtime.cuda.module import KernelSet
from efftam_ros.runtime.cuda.stream import Stream
from efftam_ros.runtime.device.memory import ATTENTION, GRAPHS
from efftam_ros.runtime.device.section import Section, Stage, StageClock
from efftam_ros.runtime.device.tensors import (
    DECISION,
    DECISION_BYTES,
    OUTPUTS,
    PLAN,
    PROMPTED,
    TRACKING,
    DeviceTensors,
)
from efftam_ros.runtime.preprocess import EncodedPrompt, no_prompt
from efftam_ros.runtime.spans import BINDING, LAUNCH, Watch, watch_methods

if TYPE_CHECKING:
    from efftam_ros.runtime.device.graph import Binding, DeviceGraph, GraphOpener

SECTIONS = ("plan to answers", "features to answers", "choice to memory")
"""Names of the `Section` objects of a target, in the order of `LaneSections`, for measurements.

Each name states with what the GPU's work in the section begins and ends.
"""
# How often each graph runs before the first frame. In these runs the libraries load kernels, choose the
# fastest ones, and capture CUDA graphs.
WARM_UP_RUNS = 3


@dataclass(frozen=True)
class LaneSections:
    """The GPU's work in a tracked frame of one target, as sections that are enqueued as a whole.

    Attributes:
        track: From the network's input and the memory plan to the decoder's answers.
        again: The same as ``track``, but from features that the image encoder computed before.
        keep: From the chosen candidate to its map and pointer in the memory.
        gather: The first steps of ``again``: they copy the slots of the memory plan to the attention's
            inputs.
        choose: The first steps of ``keep``: they copy the chosen candidate to the memory encoder's inputs.
        store: The last step of ``keep``: it copies the memory encoder's outputs to the slot.
    """

    track: Section
    again: Section
    keep: Section
    gather: Sequence[Callable[[], None]]
    choose: Sequence[Callable[[], None]]
    store: Callable[[], None]


class DeviceNetwork:
    """The opened graphs of a network with their bindings, and the `LaneSections` of all targets.

    Attributes:
        graphs: The opened graphs by name.
        tracked: The bindings that tracked frames use. Their addresses are fixed. Prompted frames use other
            bindings, because prompts differ in size.
        lanes: The sections of each target.
    """

    def __init__(
        self,
        bundle: Bundle,
        opener: GraphOpener,
        tensors: DeviceTensors,
        kernels: KernelSet,
        stream: Stream,
        clock: StageClock,
        closing: ExitStack,
    ) -> None:
        """Open the graphs and bind them to ``tensors``.

        Everything that must be closed is registered with ``closing``. Raises BackendError if a graph can't
        run on the GPU.
        """
        self._tensors, self._stream, self._clock = tensors, stream, clock
        self._blank = no_prompt(bundle.spec.image_side)
        self.graphs: dict[str, DeviceGraph] = {}
        for name in GRAPHS:
            self.graphs[name] = opener.open(name)
            closing.callback(self.graphs[name].close)
        self.tracked = {name: self.graphs[name].binding(True) for name in GRAPHS if name != "prompt_encoder"}
        # The bindings that prompted frames use. Their addresses and shapes may change before every run.
        self._free = {
            name: self.graphs[name].binding(False)
            for name in ("prompt_encoder", "mask_decoder", "memory_encoder")
        }
        self._bind()
        self.lanes = [self._sections_of(lane, kernels) for lane in range(tensors.lanes)]
        for lane in self.lanes:
            for section in (lane.track, lane.again, lane.keep):
                closing.callback(section.close)

    def watch(self, watch: Watch) -> None:
        """Replace the launches and bindings of graphs and sections by wrappers that ``watch`` returns."""
        for graph, binding in (*self.tracked.items(), *self._free.items()):
            name = "memory_attention" if graph == ATTENTION else graph
            watch_methods(watch, LAUNCH, binding, "run", label=name)
            watch_methods(watch, BINDING, binding, "bind", label=f"bind {name}")
        for lane in self.lanes:
            for section, label in zip((lane.track, lane.again, lane.keep), SECTIONS, strict=True):
                watch_methods(watch, LAUNCH, section, "run", label=label)

    def capture(self) -> None:
        """Run every graph, and then capture the sections as CUDA graphs."""
        self.warm_up()
        for lane in self.lanes:
            for section in (lane.track, lane.again, lane.keep):
                section.capture()

    def warm_up(self) -> None:
        # In the first runs of a graph the libraries choose kernels and allocate memory. Both are forbidden
        # during a capture, so they must happen before.
        for _ in range(WARM_UP_RUNS):
            self.run_tracked()
            self.tracked["memory_encoder"].run()
            for binding in self._free.values():
                binding.run()
        self._stream.synchronize()

    def encode_prompt(self, prompt: EncodedPrompt | None) -> None:
        """Condition the current features by the prompt encoder.

        ``prompt``: the prompt; None for a tracked frame. A tracked frame uses the prompt encoder only if its
        memory plan has no slot.
        """
        encoded, which = (self._blank, TRACKING) if prompt is None else (prompt, PROMPTED)
        binding, stream, tensors = self._free["prompt_encoder"], self._stream, self._tensors
        count = encoded.points.shape[1]
        with self._clock.time("prompt_encoder", stream):
            if encoded.has_mask.any():
                # The mask is not removed after this prompt. Later prompts without a mask ignore it, because
                # their ``has_mask`` is 0.
                tensors.stage(stream, "prompt_mask", encoded.mask)
            # The number of points differs from prompt to prompt, so the shapes are bound again.
            for name, values, shape in (
                ("points", encoded.points, (1, count, 2)),
                ("labels", encoded.labels, (1, count)),
                ("has_mask", encoded.has_mask, (1,)),
            ):
                tensors.stage(stream, name, values)
                binding.bind(name, tensors.at(name), shape)
            binding.bind("mask", tensors.at("prompt_mask"), tensors.shapes["prompt_mask"])
            self._bind_prompt(binding, which, tensors.tokens(encoded))
            binding.run()

    def encode_image(self) -> None:
        self._run("image_encoder", self.tracked["image_encoder"])

    def decode(self, prompt: EncodedPrompt | None, lane: int) -> None:
        """Run the mask decoder after the prompt encoder, and copy its answers to the host.

        ``prompt``: the prompt that was encoded; None for a tracked frame. ``lane``: number of the target.
        """
        binding = (self.tracked if prompt is None else self._free)["mask_decoder"]
        if prompt is not None:
            self._bind_prompt(binding, PROMPTED, self._tensors.tokens(prompt))
        self._run("mask_decoder", binding)
        self._tensors.keep_output(self._stream, lane)
        self._tensors.copy_answers_out(self._stream, lane)
        # If the prompt is a mask, this mask is remembered and not the decoder's. It replaces row 0, which is
        # the only candidate.
        if prompt is not None and prompt.logits is not None:
            self._tensors.stage(self._stream, "masks", prompt.logits, lane)

    def run_tracked(self, encodes: bool = True) -> None:
        """Run the graphs of a tracked frame up to the decoder's outputs, one by one.

        `LaneSections.gather` must have copied the slots of the memory to the attention's inputs. With
        ``encodes`` False the image encoder does not run, and the features that it computed before are used.
        """
        for name in ("image_encoder", ATTENTION, "mask_decoder")[not encodes :]:
            self.tracked[name].run()

    def keep_prompted(self, lane: int) -> None:
        """Store map and pointer of the chosen candidate of a prompted frame in the memory."""
        sections = self.lanes[lane]
        with self._clock.time("memory_encoder", self._stream):
            for step in sections.choose:
                step()
            self._free["memory_encoder"].run()
            sections.store()

    def _run(self, stage: str, binding: Binding) -> None:
        with self._clock.time(stage, self._stream):
            binding.run()

    def _bind(self) -> None:
        tensors = self._tensors
        special = ("points", "labels", "prompt_mask", "has_mask", "pointers", "sparse", "dense")
        for binding in (*self.tracked.values(), *self._free.values()):
            # Most tensors have the same address in every graph that has an input or output of their name.
            for name, shape in tensors.shapes.items():
                if " " not in name and name not in special:
                    binding.bind(name, tensors.at(name), shape)
        # Two different tensors have the name "pointers": an input of the attention, an output of the decoder.
        self.tracked[ATTENTION].bind("pointers", tensors.at("pointers"), tensors.shapes["pointers"])
        for binding in (self.tracked["mask_decoder"], self._free["mask_decoder"]):
            name = "candidate_pointers"
            binding.bind("pointers", tensors.at(name), tensors.shapes[name])
        tokens = tensors.tokens(self._blank)
        for binding in (self.tracked["mask_decoder"], self.tracked["memory_encoder"]):
            self._bind_prompt(binding, TRACKING, tokens)
        self._bind_prompt(self._free["memory_encoder"], PROMPTED, tokens)
        self._bind_prompt(self._free["mask_decoder"], PROMPTED, tokens)
        self.encode_prompt(None)

    def _bind_prompt(self, binding: Binding, which: str, tokens: int) -> None:
        """Bind the tensors of the encoded prompt.

        ``which``: `TRACKING` for tracked frames, `PROMPTED` for prompted frames. ``tokens``: number of tokens
        of the tensor ``sparse``.
        """
        for name in ("sparse", "dense", "prompt_raster"):
            shape = self._tensors.shapes.get(f"{which} {name}")
            if shape is not None:
                bound = (1, tokens, shape[2]) if name == "sparse" else shape
                binding.bind(name, self._tensors.at(f"{which} {name}"), bound)

    def _sections_of(self, lane: int, kernels: KernelSet) -> LaneSections:
        """Return the sections of a target. ``lane``: number of the target."""
        stream, tensors, tracked = self._stream, self._tensors, self.tracked
        at, layout, upload = tensors.at, tensors.layout, tensors.parameters.uploading
        plan_at, decision_at, cells = lane * tensors.plan_bytes, lane * DECISION_BYTES, tensors.low**2
        gather = kernels.launch(
            "gather_memory", (layout.gathered, 1), at(PLAN) + plan_at,
            *map(at, ("ring_maps", "ring_pointers", "maps", "pointers", "key_bias")),
            layout.rows, layout.tokens, layout.channels, layout.pointers, layout.pointer_channels,
            layout.pointer_tokens, int(layout.pooled),
        )  # fmt: skip
        choose = kernels.launch(
            "choose_candidate", (cells + layout.pointer_channels + 2, 1), at(DECISION) + decision_at,
            *(tensors.of_lane(name, lane) for name in OUTPUTS),
            *map(at, ("mask_logits", "pointer", "present", "binarize")), cells, layout.pointer_channels,
        )  # fmt: skip
        store = kernels.launch(
            "store_memory", (layout.map_size + layout.pointer_channels, 1), at(DECISION) + decision_at,
            *map(at, ("map", "stored_pointer", "ring_maps", "ring_pointers")),
            layout.map_size, layout.pointer_channels, int(layout.rounds),
        )  # fmt: skip
        gathering = upload(stream, PLAN, tensors.plan_bytes, plan_at), partial(gather.run, stream)
        choosing = upload(stream, DECISION, DECISION_BYTES, decision_at), partial(choose.run, stream)
        storing = partial(store.run, stream)
        stages = [
            Stage("image_encoder", (tracked["image_encoder"],)),
            Stage("memory_attention", (*gathering, tracked[ATTENTION])),
            Stage("mask_decoder", (tracked["mask_decoder"],)),
        ]
        keeping = Stage("memory_encoder", (*choosing, tracked["memory_encoder"], storing))
        after = partial(tensors.keep_output, stream, lane), partial(tensors.copy_answers_out, stream, lane)
        return LaneSections(
            track=Section(stream, self._clock, stages, after),
            again=Section(stream, self._clock, stages[1:], after),
            keep=Section(stream, self._clock, [keeping]),
            gather=gathering,
            choose=choosing,
            store=storing,
        )
