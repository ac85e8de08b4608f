"""The pipeline that computes the network by onnxruntime on the CPU."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
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
from efftam_ros.runtime.frame_state import (
    ANSWERS,
    Chosen,
    Decoded,
    FrameState,
    TargetFrame,
    round_bfloat16,
)
from efftam_ros.runtime.preprocess import EncodedPrompt, Preprocessor, image_mask, no_prompt
from efftam_ros.runtime.spans import BINDING, COPIES, NETWORK, PREPROCESSING, WAIT, Watch, watch_methods

PROVIDER = "CPUExecutionProvider"
_TOPOLOGY = Path("/sys/devices/system/cpu")
# Largest number of threads. More threads do not speed up the small matrices of these networks, and occupy
# cores that the robot needs.
_MOST = 4

_SPIN_US = 10
"""How long a thread of onnxruntime waits actively ("spins") for work before it sleeps, us.

Most operators of these networks take less time than a sleeping thread needs to wake up. On two idle cores,
the graphs of a frame take 0.85 times as long as without spinning, and less CPU time. If another process
occupies one of the two cores, they take 1.04 to 1.07 times as long. Longer spinning would reduce the factor
on idle cores by at most 0.01, and increase the factor beside another process to as much as 1.4.
"""
# The first version of onnxruntime that can limit the time of spinning. Without a limit, its threads spin for
# milliseconds.
_LIMITS_SPINNING = (1, 26)


class SharedArray:
    """A numpy array, and an OrtValue of onnxruntime that uses the same memory."""

    def __init__(self, array: NDArray[Any]) -> None:
        self.array = array
        self.value = onnxruntime.OrtValue.ortvalue_from_numpy(array)

    @classmethod
    def zeros(cls, *shape: int) -> SharedArray:
        return cls(np.zeros(shape, np.float32))


class BoundGraph:
    """A session that reads its inputs from, and writes its outputs to, arrays that are bound once."""

    def __init__(self, session: onnxruntime.InferenceSession) -> None:
        self._session = session
        self._binding = session.io_binding()
        self.run = partial(session.run_with_iobinding, self._binding)
        self.inputs = {tensor.name for tensor in session.get_inputs()}
        self.outputs = {tensor.name for tensor in session.get_outputs()}

    def bind(self, **arrays: SharedArray) -> None:
        """Use these arrays for the inputs and outputs with these names in all later runs.

        Names that the graph does not have are ignored.
        """
        for name, array in arrays.items():
            if name in self.inputs:
                self._binding.bind_ortvalue_input(name, array.value)
            elif name in self.outputs:
                self._binding.bind_ortvalue_output(name, array.value)

    def run_new(self, arrays: Mapping[str, NDArray[Any]]) -> dict[str, SharedArray]:
        """Run the graph with these inputs and return its outputs, whose sizes may vary, in new arrays."""
        names = sorted(self.outputs)
        results = self._session.run(names, {name: arrays[name] for name in self.inputs})
        return {name: SharedArray(result) for name, result in zip(names, results, strict=True)}


class _Memory(BoundGraph):
    """The memory of one target, with its maps and pointers, and the memory attention that reads it."""

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
        """For each slot, the part of `maps` and `pointers` that the memory encoder writes as its outputs."""
        # The graph needs the maps of a plan side by side, so they are copied. For each possible number of
        # maps there is one OrtValue on the same memory, so that no frame has to create one.
        copies = np.zeros_like(self.maps), np.zeros_like(self.pointers), np.zeros(count, np.int64)
        self._maps_of, self._pointers_of, self._rows_of = (
            [SharedArray(array[:n]) for n in range(count + 1)] for array in copies
        )
        # Numbers of maps and pointers that are bound now. Binding takes time, so it is done only when they
        # change.
        self._counts = (-1, -1)

    def attend(self, plan: MemoryPlan) -> float:
        """Condition the features on the slots of a plan, and return how long the graph took, s."""
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
        """Round the map in a slot to bfloat16, if the bundle's ``memory_dtype`` is "bfloat16"."""
        if self._rounds:
            round_bfloat16(self.maps[slot])


class _Target:
    """The buffers and the memory of one target, and the graphs bound to these buffers."""

    def __init__(self, bundle: Bundle, sessions: Mapping[str, onnxruntime.InferenceSession]) -> None:
        self.graphs = {name: BoundGraph(session) for name, session in sessions.items()}
        self.graphs["memory_attention"] = self.memory = _Memory(bundle, sessions["memory_attention"])
        preprocessor = Preprocessor(bundle.spec.image_side, bundle.mean, bundle.std)
        self.preprocess, self.network_input = preprocessor.__call__, preprocessor.output
        encoder, decoder = bundle.graphs["image_encoder"].outputs, bundle.graphs["mask_decoder"].outputs
        self.features = {name: SharedArray.zeros(*tensor.sizes) for name, tensor in encoder.items()}
        self.conditioned = SharedArray.zeros(*self.features["features"].array.shape)
        self.answers = {name: SharedArray.zeros(*tensor.sizes) for name, tensor in decoder.items()}
        arrays = {name: answer.array for name, answer in self.answers.items()}
        self.small = [arrays[name] for name in ANSWERS if name in arrays]
        logits, pointers = arrays["masks"], arrays["pointers"]
        self.candidates = [
            {"mask_logits": SharedArray(logits[:, i : i + 1]), "pointer": SharedArray(pointers[i : i + 1])}
            for i in range(4)
        ]
        self.flags = {"present": SharedArray.zeros(1), "binarize": SharedArray.zeros(1)}
        features = self.features["features"]
        self.graphs["image_encoder"].bind(image=SharedArray(self.network_input), **self.features)
        self.graphs["memory_attention"].bind(features=features, conditioned=self.conditioned)
        self.graphs["mask_decoder"].bind(conditioned=self.conditioned, **self.features, **self.answers)
        self.graphs["memory_encoder"].bind(features=features, **self.flags)
        self.tracking = self.prompted = self.encode_prompt(no_prompt(bundle.spec.image_side))
        # The prompt tensors to which the decoder is bound now. Binding takes time, so it is done only when
        # they change.
        self.decoded_with: Mapping[str, SharedArray] = {}

    @property
    def nbytes(self) -> int:
        own = *self.features.values(), *self.answers.values(), self.conditioned
        ring = self.memory.maps.nbytes + self.memory.pointers.nbytes
        return ring + sum(one.array.nbytes for one in own)

    def watch(self, watch: Watch) -> None:
        """Replace the calls of graphs, copies and preprocessing by wrappers that ``watch`` returns."""
        for name, graph in self.graphs.items():
            watch_methods(watch, NETWORK, graph, "run", "run_new", label=name)
            watch_methods(watch, BINDING, graph, "bind", label=f"bind {name}")
        watch_methods(watch, COPIES, self.memory, "attend", label="gather memory")
        watch_methods(watch, COPIES, self.memory, "round", label="round memory")
        watch_methods(watch, PREPROCESSING, self, "preprocess")

    def encode_prompt(self, encoded: EncodedPrompt) -> Mapping[str, SharedArray]:
        """Run the prompt encoder, which writes the conditioned features.

        Returns its other outputs by name. The mask decoder and the memory encoder need them as inputs.
        """
        inputs = {
            "features": self.features["features"].array,
            "points": encoded.points,
            "labels": encoded.labels,
            "mask": encoded.mask,
            "has_mask": encoded.has_mask,
        }
        results = self.graphs["prompt_encoder"].run_new(inputs)
        self.conditioned.array[:] = results.pop("conditioned").array
        return results

    def tensor(self, name: str) -> NDArray[np.float32]:
        arrays = {name: shared.array for name, shared in (*self.features.items(), *self.answers.items())}
        arrays |= {"image": self.network_input, "conditioned": self.conditioned.array}
        arrays |= {"ring_maps": self.memory.maps, "ring_pointers": self.memory.pointers}
        return arrays[name].copy()


class OrtPipeline(FrameState):
    """A `Pipeline` that uses onnxruntime's CPU provider.

    All buffers except those for prompts are allocated when the pipeline is opened. The graphs read and write
    the same buffers in every frame, and the memory encoder writes its outputs directly into the slot of the
    memory. Every target has buffers of its own, and all targets share the sessions of the graphs. Several
    targets are computed at the same time, in threads.
    """

    def __init__(self, bundle: Bundle, threads: int = 0, max_targets: int = 1) -> None:
        """Open the bundle's graphs.

        Args:
            bundle: The network.
            threads: Number of threads that compute a graph, and largest number of targets that are computed
                at the same time; 0: `default_threads`.
            max_targets: Largest number of targets.

        Raises:
            InputError: A graph can't be loaded, or has other tensors than the bundle declares.
        """
        super().__init__(bundle.spec, max_targets)
        threads = threads or default_threads()
        self._no_prompt = no_prompt(bundle.spec.image_side)
        self._sessions = {name: _open(bundle, name, threads) for name in NEEDED}
        self._targets = [_Target(bundle, self._sessions) for _ in range(max_targets)]
        self.target_bytes = self._targets[0].nbytes
        at_once = min(threads, max_targets)
        # The pool starts its threads only when looks of several targets are submitted.
        self._pool = ThreadPoolExecutor(at_once, "network") if at_once > 1 else None
        self._begun: dict[TargetFrame, Future[None]] = {}

    def watch(self, watch: Watch) -> None:
        super().watch(watch)
        watch_methods(watch, WAIT, self, "_wait", label="wait for a thread")
        for target in self._targets:
            target.watch(watch)

    def _start(self, image: Image, frames: Sequence[TargetFrame]) -> None:
        self._settle()
        for frame in frames if self.max_targets > 1 else ():
            if not frame.look.is_search:
                self._share_features(image, frame, frames)
        if self._pool is None or len(frames) < 2:
            super()._start(image, frames)
            return
        for frame in frames:
            self._begun[frame] = self._pool.submit(self._compute, image, frame)

    def _wait(self, frame: TargetFrame) -> None:
        if frame in self._begun:
            self._begun.pop(frame).result()

    def _settle(self) -> None:
        """Wait for the looks that were started and not waited for."""
        wait(self._begun.values())
        self._begun.clear()

    def _share_features(self, image: Image, frame: TargetFrame, frames: Sequence[TargetFrame]) -> None:
        """Copy the features of a target's view from another target that has features of the same view.

        If no target has such features, and several of the looks ``frames`` need them, they are computed here,
        so that the threads do not compute them once for each target.
        """
        owners = [target for target, made in self._features.items() if made.are_of(image, frame.view)]
        if frame.target in owners:
            return
        if owners:
            owner = owners[0]
            for name, features in self._targets[frame.target].features.items():
                features.array[:] = self._targets[owner].features[name].array
            self._features[frame.target] = self._features[owner]._replace(seconds={})
        elif sum(other.look.views == frame.look.views for other in frames) > 1:
            self._make_features(image, frame, frame.view)

    def _encode(self, frame: TargetFrame, image: Image, view: View) -> None:
        target, start = self._targets[frame.target], time.perf_counter()
        target.preprocess(image, view)
        preprocessed = time.perf_counter()
        target.graphs["image_encoder"].run()
        frame.seconds["preprocess"] = preprocessed - start
        frame.seconds["image_encoder"] = time.perf_counter() - preprocessed

    def _condition(self, frame: TargetFrame) -> None:
        target, start = self._targets[frame.target], time.perf_counter()
        target.prompted = target.encode_prompt(frame.prompt or self._no_prompt)
        frame.seconds["prompt_encoder"] = time.perf_counter() - start

    def _attend(self, frame: TargetFrame, plan: MemoryPlan) -> None:
        frame.seconds["memory_attention"] = self._targets[frame.target].memory.attend(plan)

    def _decode(self, frame: TargetFrame) -> Decoded:
        target, start = self._targets[frame.target], time.perf_counter()
        decoder = target.graphs["mask_decoder"]
        tensors = target.tracking if frame.prompt is None else target.prompted
        if tensors is not target.decoded_with:
            decoder.bind(**tensors)
            target.decoded_with = tensors
        decoder.run()
        frame.seconds["mask_decoder"] = time.perf_counter() - start
        if frame.prompt is not None and frame.prompt.logits is not None:
            target.answers["masks"].array[0, 0] = frame.prompt.logits
        boxes, areas, ious, presence, *levels = target.small
        return Decoded(boxes, areas, ious, float(presence[0]), *levels)

    def _remember_all(self, chosen: Sequence[Chosen]) -> None:
        if self._pool is None or len(chosen) < 2:
            super()._remember_all(chosen)
            return
        remembered = [self._pool.submit(self._remember, one) for one in chosen]
        wait(remembered)
        for one in remembered:
            one.result()

    def _remember(self, chosen: Chosen) -> None:
        frame, row, slot, present = chosen
        target, is_prompted = self._targets[frame.target], frame.prompt is not None
        target.flags["present"].array[0], target.flags["binarize"].array[0] = present, is_prompted
        prompt = target.prompted if is_prompted else target.tracking
        graph, memory = target.graphs["memory_encoder"], target.memory
        graph.bind(**target.candidates[row], **memory.slots[slot], **prompt)
        start = time.perf_counter()
        graph.run()
        self._memory_seconds[frame.target] = time.perf_counter() - start
        memory.round(slot)

    def _mask(self, frame: TargetFrame, row: int) -> NDArray[np.uint8]:
        logits = self._targets[frame.target].answers["masks"].array[0, row]
        return image_mask(logits, frame.view, *frame.size)

    def tensor(self, name: str, target: int = 0) -> NDArray[np.float32]:
        """Return a copy of a tensor of this target, by a name that `verify.Inspected.tensor` lists."""
        return self._targets[target].tensor(name)

    def _close(self) -> None:
        self._settle()
        if self._pool is not None:
            self._pool.shutdown()
        self._targets.clear()
        self._sessions.clear()


def _open(bundle: Bundle, name: str, threads: int) -> Any:
    path = bundle.graphs[name].path
    options = onnxruntime.SessionOptions()
    set_threads(options, threads, onnxruntime.__version__)
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=[PROVIDER])
    except Exception as error:  # onnxruntime's errors share no base class
        raise InputError(
            f"onnxruntime can't load {path}: {str(error).splitlines()[0]}; export the bundle again"
        ) from error
    bundle.check_session(name, session.get_inputs(), session.get_outputs())
    return session


def default_threads() -> int:
    """Return one thread per physical core that this process may use, at most four."""
    try:
        usable = os.sched_getaffinity(0)
    except AttributeError:  # macOS does not have this function
        usable = set(range(os.cpu_count() or 1))
    cores = {_siblings(cpu) for cpu in usable}
    return max(1, min(len(cores), _MOST))


def set_threads(options: Any, threads: int, version: str) -> None:
    """Set the number of threads of a session, and how long they spin.

    If this ``version`` of onnxruntime can't limit the time of spinning, spinning is switched off.
    ``options``: the SessionOptions that are changed.
    """
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    spins = tuple(int(part) for part in version.split(".")[:2]) >= _LIMITS_SPINNING
    options.add_session_config_entry("session.intra_op.allow_spinning", str(int(spins)))
    if spins:
        options.add_session_config_entry("session.intra_op.spin_duration_us", str(_SPIN_US))


def _siblings(cpu: int) -> str:
    """Return the list of logical CPUs on the same physical core as this one, as the system writes it.

    Where the system does not report this, the result is the number of this CPU alone.
    """
    try:
        return (_TOPOLOGY / f"cpu{cpu}" / "topology" / "thread_siblings_list").read_text().strip()
    except OSError:
        return str(cpu)
