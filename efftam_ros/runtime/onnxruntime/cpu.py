"""The onnxruntime pipeline on the CPU."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import View
from efftam_ros.core.types import Image, MemoryPlan
from efftam_ros.runtime.bundle import Bundle
from efftam_ros.runtime.frame_state import Answers, FramePipeline
from efftam_ros.runtime.image.masks import image_mask
from efftam_ros.runtime.image.preprocess import Preprocessor
from efftam_ros.runtime.image.prompts import EncodedPrompt, no_prompt
from efftam_ros.runtime.threads import default_threads, set_threads

PROVIDER = "CPUExecutionProvider"


class SharedArray:
    """A numpy array and the same memory as onnxruntime sees it."""

    def __init__(self, array: NDArray[Any]) -> None:
        self.array = array
        self.value = onnxruntime.OrtValue.ortvalue_from_numpy(array)

    @classmethod
    def zeros(cls, *shape: int) -> SharedArray:
        return cls(np.zeros(shape, np.float32))


class BoundGraph:
    """A session whose inputs and outputs lie in memory that is bound once and reused for every run."""

    def __init__(self, session: onnxruntime.InferenceSession) -> None:
        self._session = session
        self._binding = session.io_binding()
        self.inputs = {tensor.name for tensor in session.get_inputs()}
        self.outputs = {tensor.name for tensor in session.get_outputs()}

    def bind(self, **arrays: SharedArray) -> None:
        """Use this memory for these inputs and outputs; names that the graph lacks are ignored."""
        for name, array in arrays.items():
            if name in self.inputs:
                self._binding.bind_ortvalue_input(name, array.value)
            elif name in self.outputs:
                self._binding.bind_ortvalue_output(name, array.value)

    def timed_run(self) -> float:
        """Run, and return the seconds that it took."""
        start = time.perf_counter()
        self._session.run_with_iobinding(self._binding)
        return time.perf_counter() - start

    def end_profiling(self) -> Path:
        """The trace of all runs so far, for a session that was opened to write one; it ends here."""
        return Path(self._session.end_profiling())

    def run_new(self, arrays: Mapping[str, NDArray[Any]], names: list[str]) -> dict[str, SharedArray]:
        """Run on these inputs, into new memory for the named outputs (for outputs whose size changes)."""
        results = self._session.run(names, {name: arrays[name] for name in self.inputs})
        return {name: SharedArray(result) for name, result in zip(names, results, strict=True)}


@dataclass(frozen=True)
class _PromptTensors:
    """The prompt encoder's outputs, for the decoder and the memory encoder."""

    sparse: SharedArray
    dense: SharedArray
    raster: SharedArray | None

    def named(self) -> dict[str, SharedArray]:
        named = {"sparse": self.sparse, "dense": self.dense}
        return named if self.raster is None else named | {"prompt_raster": self.raster}


class OrtPipeline(FramePipeline):
    """The `Pipeline` contract on onnxruntime's CPU provider.

    Every tensor that lives longer than a call is allocated at open. Features, logits and memory stay in
    place: graphs read and write the same buffers, and a new memory is written straight into its ring slot.
    """

    _stage_seconds: dict[str, float]

    def __init__(self, bundle: Bundle, threads: int = 0, profile_folder: Path | None = None) -> None:
        """Open the bundle's graphs. ``threads``: per graph, 0 for `default_threads`. ``profile_folder``: an
        existing folder for a trace of each graph's operators, see `end_profiling`. Raises InputError when a
        graph can't be loaded or has other tensors than the bundle says."""
        super().__init__(bundle.spec)
        self._round: Callable[[NDArray[np.float32]], None] | None = None
        if bundle.memory_dtype == "bfloat16":
            from efftam_ros.runtime.bfloat16 import round_bfloat16

            self._round = round_bfloat16
        self._graphs = {
            name: _open(bundle, name, threads or default_threads(), profile_folder)
            for name in (
                "image_encoder",
                "prompt_encoder",
                "memory_attention",
                "mask_decoder",
                "memory_encoder",
            )
        }
        self._preprocess = Preprocessor(bundle.spec.image_side, bundle.mean, bundle.std)
        self._stage_seconds = {}
        self._memory_encoder_s: float | None = None
        self._allocate(bundle)
        self._no_prompt = no_prompt(bundle.spec.image_side)
        self._tracking = self._encode_prompt(self._no_prompt)
        self._prompted = self._tracking
        # What the graphs are bound to, because binding takes time in every frame.
        self._attended_counts = (-1, -1)
        self._decoded_with: _PromptTensors | None = None

    def _allocate(self, bundle: Bundle) -> None:
        spec, graphs = bundle.spec, bundle.graphs
        encoder, decoder = graphs["image_encoder"].outputs, graphs["mask_decoder"].outputs
        _, tokens, memory_channels = _static(graphs["memory_encoder"].outputs["map"].shape)
        _, channels = _static(graphs["memory_encoder"].outputs["stored_pointer"].shape)

        self._features = {name: SharedArray.zeros(*_static(tensor.shape)) for name, tensor in encoder.items()}
        self._conditioned = SharedArray.zeros(*self._features["features"].array.shape)
        self._answers = {name: SharedArray.zeros(*_static(tensor.shape)) for name, tensor in decoder.items()}
        logits, pointers = self._answers["masks"].array, self._answers["pointers"].array
        self._row_logits = [SharedArray(logits[:, row : row + 1]) for row in range(4)]
        self._row_pointers = [SharedArray(pointers[row : row + 1]) for row in range(4)]

        self._maps = np.zeros((spec.slots, tokens, memory_channels), np.float32)
        self._pointers = np.zeros((spec.slots, channels), np.float32)
        self._slot_maps = [SharedArray(self._maps[slot : slot + 1]) for slot in range(spec.slots)]
        self._slot_pointers = [SharedArray(self._pointers[slot : slot + 1]) for slot in range(spec.slots)]

        self._attended_maps = np.zeros((spec.slots, tokens, memory_channels), np.float32)
        self._attended_rows = np.zeros(spec.slots, np.int64)
        self._attended_pointers = np.zeros((spec.slots, channels), np.float32)
        # One tensor per number of memories, because creating them takes time in every frame.
        self._maps_of = [SharedArray(self._attended_maps[:n]) for n in range(spec.slots + 1)]
        self._rows_of = [SharedArray(self._attended_rows[:n]) for n in range(spec.slots + 1)]
        self._pointers_of = [SharedArray(self._attended_pointers[:n]) for n in range(spec.slots + 1)]

        self._present, self._binarize = SharedArray.zeros(1), SharedArray.zeros(1)
        self._graphs["image_encoder"].bind(image=SharedArray(self._preprocess.output), **self._features)
        self._graphs["memory_attention"].bind(
            features=self._features["features"], conditioned=self._conditioned
        )
        self._graphs["mask_decoder"].bind(conditioned=self._conditioned, **self._features, **self._answers)
        self._graphs["memory_encoder"].bind(
            features=self._features["features"], present=self._present, binarize=self._binarize
        )

    def _encode(self, image: Image, view: View) -> None:
        earlier = self._memory_encoder_s
        self._stage_seconds = {} if earlier is None else {"memory_encoder": earlier}
        self._memory_encoder_s = None
        start = time.perf_counter()
        self._preprocess(image, view)
        self._stage_seconds["preprocess"] = time.perf_counter() - start
        self._stage_seconds["image_encoder"] = self._graphs["image_encoder"].timed_run()

    def _condition(self, prompt: EncodedPrompt | None) -> None:
        encoded = self._encode_prompt(prompt or self._no_prompt)
        if prompt is not None:
            self._prompted = encoded

    def _attend(self, plan: MemoryPlan) -> None:
        maps, pointers = len(plan.slots), len(plan.pointer_slots)
        self._maps.take(plan.slots, axis=0, out=self._attended_maps[:maps], mode="clip")
        self._attended_rows[:maps] = plan.rows
        self._pointers.take(plan.pointer_slots, axis=0, out=self._attended_pointers[:pointers], mode="clip")
        if (maps, pointers) != self._attended_counts:
            self._graphs["memory_attention"].bind(
                maps=self._maps_of[maps], rows=self._rows_of[maps], pointers=self._pointers_of[pointers]
            )
            self._attended_counts = (maps, pointers)
        self._stage_seconds["memory_attention"] = self._graphs["memory_attention"].timed_run()

    def _decode(self, prompt: EncodedPrompt | None) -> Answers:
        tensors = self._tracking if prompt is None else self._prompted
        if tensors is not self._decoded_with:
            self._graphs["mask_decoder"].bind(**tensors.named())
            self._decoded_with = tensors
        self._stage_seconds["mask_decoder"] = self._graphs["mask_decoder"].timed_run()
        if prompt is not None and prompt.logits is not None:
            self._answers["masks"].array[0, 0] = prompt.logits
        answers = self._answers
        return Answers(
            answers["boxes"].array,
            answers["areas"].array,
            answers["ious"].array,
            float(answers["presence"].array[0]),
        )

    def _remember(self, row: int, slot: int, present: bool) -> None:
        self._present.array[0] = present
        is_prompted = self.prompt is not None
        self._binarize.array[0] = is_prompted
        self._graphs["memory_encoder"].bind(
            mask_logits=self._row_logits[row],
            pointer=self._row_pointers[row],
            map=self._slot_maps[slot],
            stored_pointer=self._slot_pointers[slot],
            **(self._prompted if is_prompted else self._tracking).named(),
        )
        self._memory_encoder_s = self._graphs["memory_encoder"].timed_run()
        if self._round is not None:
            self._round(self._maps[slot])

    def _mask(self, row: int, view: View, width: int, height: int) -> NDArray[np.uint8]:
        return image_mask(self._row_logits[row].array[0, 0], view, width, height)

    def end_profiling(self) -> dict[str, Path]:
        """The trace files by graph, of a pipeline opened with ``profile_folder``: JSON for chrome://tracing
        with every run since opening. Nothing is recorded afterwards."""
        return {name: graph.end_profiling() for name, graph in self._graphs.items()}

    def _close(self) -> None:
        self._graphs = {}

    def _encode_prompt(self, encoded: EncodedPrompt) -> _PromptTensors:
        """Run the prompt encoder on this frame's features."""
        graph = self._graphs["prompt_encoder"]
        start = time.perf_counter()
        inputs = {
            "features": self._features["features"].array,
            "points": encoded.points,
            "labels": encoded.labels,
            "mask": encoded.mask,
            "has_mask": encoded.has_mask,
        }
        results = graph.run_new(inputs, sorted(graph.outputs))
        self._conditioned.array[:] = results["conditioned"].array
        self._stage_seconds["prompt_encoder"] = time.perf_counter() - start
        return _PromptTensors(results["sparse"], results["dense"], results.get("prompt_raster"))


def _open(bundle: Bundle, name: str, threads: int, profile_folder: Path | None) -> BoundGraph:
    path = bundle.graphs[name].path
    options = onnxruntime.SessionOptions()
    set_threads(options, threads, onnxruntime.__version__)
    options.log_severity_level = 3
    if profile_folder is not None:
        options.enable_profiling = True
        options.profile_file_prefix = str(profile_folder / name)
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=[PROVIDER])
    except Exception as error:  # onnxruntime's errors share no base class
        raise InputError(
            f"onnxruntime can't load {path}: {str(error).splitlines()[0]}; export it again"
        ) from error
    bundle.check_session(name, session.get_inputs(), session.get_outputs())
    return BoundGraph(session)


def _static(shape: tuple[int | str, ...]) -> tuple[int, ...]:
    return tuple(int(axis) for axis in shape)
