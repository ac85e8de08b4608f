"""The onnxruntime pipeline on the CPU."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import View
from efftam_ros.core.types import Image, MemoryPlan
from efftam_ros.runtime.bundle import NEEDED, Bundle
from efftam_ros.runtime.frame_state import Decoded, FramePipeline, round_bfloat16
from efftam_ros.runtime.preprocess import EncodedPrompt, Preprocessor, image_mask, no_prompt

PROVIDER = "CPUExecutionProvider"
_TOPOLOGY = Path("/sys/devices/system/cpu")
_MOST = 4  # more threads do not speed up the small matrices of these networks, and occupy the robot's cores

_SPIN_US = 10
"""How long a thread spins before it sleeps. Most operators of these networks take less time than a sleeping
thread needs to wake up. On two idle cores a frame's graphs take 0.85 of the time without spinning, with less
CPU time; beside a process that occupies one of the two cores, 1.04 to 1.07. Longer spinning gains 0.01 at
most and costs up to 1.4 there."""
_LIMITS_SPINNING = (1, 26)  # first version of onnxruntime that limits the time, which is milliseconds without


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
        self.run = partial(session.run_with_iobinding, self._binding)
        self.inputs = {tensor.name for tensor in session.get_inputs()}
        self.outputs = {tensor.name for tensor in session.get_outputs()}

    def bind(self, **arrays: SharedArray) -> None:
        """Use this memory for these inputs and outputs; names that the graph lacks are ignored."""
        for name, array in arrays.items():
            if name in self.inputs:
                self._binding.bind_ortvalue_input(name, array.value)
            elif name in self.outputs:
                self._binding.bind_ortvalue_output(name, array.value)

    def run_new(self, arrays: Mapping[str, NDArray[Any]]) -> dict[str, SharedArray]:
        """Run on these inputs, into new memory (for outputs whose size changes)."""
        names = sorted(self.outputs)
        results = self._session.run(names, {name: arrays[name] for name in self.inputs})
        return {name: SharedArray(result) for name, result in zip(names, results, strict=True)}


class _Memory(BoundGraph):
    """A lane's ring of maps and pointers, and memory attention over those that a frame names."""

    def __init__(self, bundle: Bundle, session: onnxruntime.InferenceSession) -> None:
        super().__init__(session)
        outputs, count = bundle.graphs["memory_encoder"].outputs, bundle.spec.slots
        _, tokens, channels = outputs["map"].sizes
        _, pointer_channels = outputs["stored_pointer"].sizes
        self._rounds = bundle.memory_dtype == "bfloat16"
        self.maps = np.zeros((count, tokens, channels), np.float32)
        self.pointers = np.zeros((count, pointer_channels), np.float32)
        self.slots = [
            {"map": SharedArray(maps), "stored_pointer": SharedArray(pointers)}
            for maps, pointers in zip(self.maps[:, None], self.pointers[:, None], strict=True)
        ]
        """Outputs of the memory encoder, by slot."""
        # What is attended to lies side by side: one tensor per number of memories, because creating them
        # takes time in every frame.
        copies = np.zeros_like(self.maps), np.zeros_like(self.pointers), np.zeros(count, np.int64)
        self._maps_of, self._pointers_of, self._rows_of = (
            [SharedArray(array[:n]) for n in range(count + 1)] for array in copies
        )
        self._counts = (-1, -1)  # of what the graph is bound to, because binding takes time too

    def attend(self, plan: MemoryPlan) -> float:
        """Run on what the plan names, and return the seconds that the graph took."""
        counts = len(plan.slots), len(plan.pointer_slots)
        maps, rows, pointers = (
            self._maps_of[counts[0]],
            self._rows_of[counts[0]],
            self._pointers_of[counts[1]],
        )
        self.maps.take(plan.slots, axis=0, out=maps.array, mode="clip")
        rows.array[:] = plan.rows
        self.pointers.take(plan.pointer_slots, axis=0, out=pointers.array, mode="clip")
        if counts != self._counts:
            self.bind(maps=maps, rows=rows, pointers=pointers)
            self._counts = counts
        start = time.perf_counter()
        self.run()
        return time.perf_counter() - start

    def round(self, slot: int) -> None:
        """Round a stored map to the type of the network's memory."""
        if self._rounds:
            round_bfloat16(self.maps[slot])


class OrtPipeline(FramePipeline):
    """The `Pipeline` contract on onnxruntime's CPU provider.

    Every tensor that lives longer than a call is allocated at open. Features, logits and memory stay in
    place: graphs read and write the same buffers, and a new memory is written straight into its ring slot.
    Lanes share the graphs' sessions alone, and so work beside one another.
    """

    has_own_features = True

    def __init__(self, bundle: Bundle, threads: int = 0, lanes: int = 1) -> None:
        """Open the bundle's graphs. ``threads``: per graph, 0 for `default_threads`. Raises InputError when a
        graph can't be loaded or has other tensors than the bundle says."""
        threads = threads or default_threads()
        self._bundle, self._no_prompt = bundle, no_prompt(bundle.spec.image_side)
        self._sessions = {name: _open(bundle, name, threads) for name in NEEDED}
        self.side_by_side = min(threads, lanes)
        super().__init__(bundle.spec, lanes)

    def _allocate(self) -> None:
        bundle, sessions = self._bundle, self._sessions
        self._graphs = {name: BoundGraph(session) for name, session in sessions.items()}
        self._graphs["memory_attention"] = self._memory = _Memory(bundle, sessions["memory_attention"])
        self._preprocess = Preprocessor(bundle.spec.image_side, bundle.mean, bundle.std)
        encoder, decoder = bundle.graphs["image_encoder"].outputs, bundle.graphs["mask_decoder"].outputs
        self._features = {name: SharedArray.zeros(*tensor.sizes) for name, tensor in encoder.items()}
        self._conditioned = SharedArray.zeros(*self._features["features"].array.shape)
        self._answers = {name: SharedArray.zeros(*tensor.sizes) for name, tensor in decoder.items()}
        arrays = {name: answer.array for name, answer in self._answers.items()}
        self._small = tuple(arrays[name] for name in ("boxes", "areas", "ious", "presence"))
        logits, pointers = arrays["masks"], arrays["pointers"]
        self._candidates = [
            {"mask_logits": SharedArray(logits[:, i : i + 1]), "pointer": SharedArray(pointers[i : i + 1])}
            for i in range(4)
        ]
        self._flags = {"present": SharedArray.zeros(1), "binarize": SharedArray.zeros(1)}
        features = self._features["features"]
        self._graphs["image_encoder"].bind(image=SharedArray(self._preprocess.output), **self._features)
        self._graphs["memory_attention"].bind(features=features, conditioned=self._conditioned)
        self._graphs["mask_decoder"].bind(conditioned=self._conditioned, **self._features, **self._answers)
        self._graphs["memory_encoder"].bind(features=features, **self._flags)
        self._tracking = self._prompted = self._encode_prompt(self._no_prompt)
        # What the decoder is bound to, because binding takes time in every frame.
        self._decoded_with: Mapping[str, SharedArray] = {}

    @property
    def target_bytes(self) -> int:  # type: ignore[override]
        own = *self._features.values(), *self._answers.values(), self._conditioned
        ring = self._memory.maps.nbytes + self._memory.pointers.nbytes
        return ring + sum(one.array.nbytes for one in own)

    def _reuse(self, owner: FramePipeline) -> None:
        assert isinstance(owner, OrtPipeline)
        for name, features in self._features.items():
            features.array[:] = owner._features[name].array

    def _encode(self, image: Image, view: View) -> None:
        start = time.perf_counter()
        self._preprocess(image, view)
        preprocessed = time.perf_counter()
        self._graphs["image_encoder"].run()
        self.stage_seconds["preprocess"] = preprocessed - start
        self.stage_seconds["image_encoder"] = time.perf_counter() - preprocessed

    def _condition(self, prompt: EncodedPrompt | None) -> None:
        self._prompted = self._encode_prompt(prompt or self._no_prompt)

    def _attend(self, plan: MemoryPlan) -> None:
        self.stage_seconds["memory_attention"] = self._memory.attend(plan)

    def _decode(self, prompt: EncodedPrompt | None) -> Decoded:
        tensors = self._tracking if prompt is None else self._prompted
        if tensors is not self._decoded_with:
            self._graphs["mask_decoder"].bind(**tensors)
            self._decoded_with = tensors
        start = time.perf_counter()
        self._graphs["mask_decoder"].run()
        self.stage_seconds["mask_decoder"] = time.perf_counter() - start
        if prompt is not None and prompt.logits is not None:
            self._answers["masks"].array[0, 0] = prompt.logits
        boxes, areas, ious, presence = self._small
        return Decoded(boxes, areas, ious, float(presence[0]))

    def _remember(self, row: int, slot: int, present: bool) -> None:
        is_prompted = self._frame.prompt is not None
        self._flags["present"].array[0], self._flags["binarize"].array[0] = present, is_prompted
        prompt = self._prompted if is_prompted else self._tracking
        graph, memory = self._graphs["memory_encoder"], self._memory
        graph.bind(**self._candidates[row], **memory.slots[slot], **prompt)
        start = time.perf_counter()
        graph.run()
        self._next_seconds["memory_encoder"] = time.perf_counter() - start
        memory.round(slot)

    def _mask(self, row: int, view: View, width: int, height: int) -> NDArray[np.uint8]:
        return image_mask(self._answers["masks"].array[0, row], view, width, height)

    def tensor(self, name: str) -> NDArray[np.float32]:
        """See `verify.Inspected`."""
        arrays = {name: shared.array for name, shared in (*self._features.items(), *self._answers.items())}
        arrays |= {"image": self._preprocess.output, "conditioned": self._conditioned.array}
        arrays |= {"ring_maps": self._memory.maps, "ring_pointers": self._memory.pointers}
        return arrays[name].copy()

    def _close(self) -> None:
        for lane in self._all.lanes:
            assert isinstance(lane, OrtPipeline)
            lane._graphs = {}
            del lane._memory
        self._sessions.clear()

    def _encode_prompt(self, encoded: EncodedPrompt) -> Mapping[str, SharedArray]:
        """Run the prompt encoder on this frame's features. Returns what the decoder and the memory encoder
        need of the prompt."""
        start = time.perf_counter()
        inputs = {
            "features": self._features["features"].array,
            "points": encoded.points,
            "labels": encoded.labels,
            "mask": encoded.mask,
            "has_mask": encoded.has_mask,
        }
        results = self._graphs["prompt_encoder"].run_new(inputs)
        self._conditioned.array[:] = results.pop("conditioned").array
        self.stage_seconds["prompt_encoder"] = time.perf_counter() - start
        return results


def _open(bundle: Bundle, name: str, threads: int) -> Any:
    path = bundle.graphs[name].path
    options = onnxruntime.SessionOptions()
    set_threads(options, threads, onnxruntime.__version__)
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=[PROVIDER])
    except Exception as error:  # onnxruntime's errors share no base class
        raise InputError(
            f"onnxruntime can't load {path}: {str(error).splitlines()[0]}; export it again"
        ) from error
    bundle.check_session(name, session.get_inputs(), session.get_outputs())
    return session


def default_threads() -> int:
    """One thread per physical core that this process may use, at most four."""
    try:
        usable = os.sched_getaffinity(0)
    except AttributeError:  # not on macOS
        usable = set(range(os.cpu_count() or 1))
    cores = {_siblings(cpu) for cpu in usable}
    return max(1, min(len(cores), _MOST))


def set_threads(options: Any, threads: int, version: str) -> None:
    """Set a session's threads. A ``version`` that can't limit the time of spinning does not spin."""
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    spins = tuple(int(part) for part in version.split(".")[:2]) >= _LIMITS_SPINNING
    options.add_session_config_entry("session.intra_op.allow_spinning", str(int(spins)))
    if spins:
        options.add_session_config_entry("session.intra_op.spin_duration_us", str(_SPIN_US))


def _siblings(cpu: int) -> str:
    """The logical CPUs that share a core with this one; the CPU alone where the system does not say."""
    try:
        return (_TOPOLOGY / f"cpu{cpu}" / "topology" / "thread_siblings_list").read_text().strip()
    except OSError:
        return str(cpu)
