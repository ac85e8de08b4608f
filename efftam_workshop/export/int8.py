"""Makes INT8 graphs: records inputs over a clip and adds Q/DQ pairs to the products with constant weights.

Quantisation is symmetric: weights per output channel, activations per tensor by the extremes that occur in
calibration. onnxruntime's quantiser is used. The FP16 conversion comes afterwards (`fp16.convert`).
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box
from efftam_ros.runtime.bundle import MANIFEST, Bundle, file_sha256
from efftam_ros.runtime.device.memory import ATTENTION, GRAPHS
from efftam_ros.runtime.verify import DISC_BOX
from efftam_workshop.agreement.compare import run_clip
from efftam_workshop.agreement.reference import seeded_clip
from efftam_workshop.agreement.runners import Arrays, CpuRunner, Runner
from efftam_workshop.export.fp16.convert import plain_graph
from efftam_workshop.export.onnx.folding import drop_unused, evaluated, replace

MIN_FRAMES = 2
METHOD = "extremes, symmetric, weights per channel"
"""How quantisation ranges are computed. The text is part of the clip's hash: a change makes engines stale."""


@dataclass(frozen=True)
class CalibrationClip:
    """Pictures uint8 [H,W,3] BGR of one size, and the target's box (px) in the first picture."""

    name: str
    frames: tuple[NDArray[np.uint8], ...]
    box: Box

    def __post_init__(self) -> None:
        if len(self.frames) < MIN_FRAMES:
            raise InputError(
                f"calibration clip {self.name} has {len(self.frames)} frames, and memory attention first"
                f" runs in the second; give at least {MIN_FRAMES}"
            )

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of pixels, box and `METHOD`, in hexadecimal digits."""
        digest = hashlib.sha256(json.dumps([METHOD, *self.box.xywh()]).encode())
        for frame in self.frames:
            digest.update(repr(frame.shape).encode())
            digest.update(frame.tobytes())
        return digest.hexdigest()


def default_clip() -> CalibrationClip:
    """Return the generated clip on which engines are compared."""
    return CalibrationClip("the seeded clip", tuple(seeded_clip()), DISC_BOX)


def recorded_inputs(
    bundle: Bundle, runners: Mapping[str, Runner], clip: CalibrationClip, modules: Collection[str]
) -> dict[str, list[Arrays]]:
    """Return the inputs of each module in ``modules``, one set per frame of ``clip``.

    The modules are run as a chain with memory. Memory attention has no inputs in the first frame.
    """
    found: dict[str, list[Arrays]] = {name: [] for name in modules}
    for number, (chain,) in enumerate(run_clip(bundle, [runners], clip.frames, clip.box)):
        for name in modules:
            if number > 0 or name != ATTENTION:
                found[name].append({key: np.array(value) for key, value in chain.inputs[name].items()})
    return found


def dynamic_inputs(samples: Sequence[Arrays]) -> list[Arrays]:
    """Convert inputs of `ATTENTION` to inputs of the memory attention of dynamic shape, which the CPU runs.

    Unused memory slots, which are zero, are removed.
    """
    found = []
    for sample in samples:
        rows = np.flatnonzero(sample["maps"].any(axis=(1, 2)))
        pointers = np.flatnonzero(sample["pointers"].any(axis=1))
        found.append(
            {
                "features": sample["features"],
                "maps": sample["maps"][rows],
                "rows": rows.astype(np.int64),
                "pointers": sample["pointers"][pointers],
            }
        )
    return found


INT8_MODULES = ("image_encoder", ATTENTION)
"""Graphs that INT8 makes faster; the other graphs are too small.

In these graphs only products with constant weights are quantised.
"""
PRODUCTS = ("MatMul", "Gemm")

Inputs = Mapping[str, NDArray[Any]]


def quantizable(model: onnx.ModelProto) -> list[str]:
    """Return the names of the products whose weights are constant, once operators on weights are folded."""
    return _constant_products(with_folded_weights(model))


def quantize(model: onnx.ModelProto, samples: Sequence[Inputs]) -> onnx.ModelProto:
    """Return the graph with Q/DQ pairs before the products that `quantizable` names.

    All its tensors are FP32. ``samples``: realistic inputs of the graph; activations beyond their extremes
    saturate. ``model``: in FP32, with its weights loaded; not modified. Raises InputError if there are no
    samples or no product to quantise.
    """
    folded = with_folded_weights(model)
    nodes = _constant_products(folded)
    if not nodes:
        raise InputError("the graph has no product with constant weights; build it in FP16")
    if not samples:
        raise InputError("there are no calibration inputs; give a clip of at least two frames")
    with tempfile.TemporaryDirectory(prefix="efftam-int8-") as folder, _quiet():
        out = Path(folder) / "quantized.onnx"
        quantize_static(
            folded,
            out,
            _Samples(samples),
            quant_format=QuantFormat.QDQ,
            op_types_to_quantize=list(PRODUCTS),
            per_channel=True,
            activation_type=QuantType.QInt8,
            weight_type=QuantType.QInt8,
            nodes_to_quantize=nodes,
            extra_options={
                "ActivationSymmetric": True,
                "WeightSymmetric": True,
                "AddQDQPairToWeight": True,
                "OpTypesToExcludeOutputQuantization": list(PRODUCTS),
                "QuantizeBias": False,
            },
        )
        return onnx.load(out)


def _constant_products(folded: onnx.ModelProto) -> list[str]:
    constant = {tensor.name for tensor in folded.graph.initializer}
    return [n.name for n in folded.graph.node if n.op_type in PRODUCTS and n.input[1] in constant]


def with_folded_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy in which tensors computed from weights alone are weights.

    Exported graphs transpose, slice and join weights because several graphs share them.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    graph = copy.graph
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    kept = []
    for node in graph.node:
        names = [name for name in node.input if name]
        if len(node.output) != 1 or not names or not all(name in tensors for name in names):
            kept.append(node)
            continue
        value = evaluated(copy, node, {name: numpy_helper.to_array(tensors[name]) for name in names})
        tensors[node.output[0]] = numpy_helper.from_array(value, node.output[0])
    replace(graph.node, kept)
    replace(graph.initializer, tensors.values())
    drop_unused(graph)
    return copy


class _Samples(CalibrationDataReader):
    def __init__(self, samples: Sequence[Inputs]) -> None:
        self._left: Iterator[Inputs] = iter(samples)

    def get_next(self) -> dict[str, NDArray[Any]] | None:
        sample = next(self._left, None)
        return None if sample is None else dict(sample)


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide the quantiser's advice to run a preprocessing step, which would rename tensors."""
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.ERROR)
    try:
        yield
    finally:
        root.setLevel(level)


CPU_ATTENTION = "memory_attention"
"""Name of the memory attention of dynamic shape, which the CPU runs instead of `ATTENTION`."""


def write_quantized_bundle(bundle: Bundle, clip: CalibrationClip, out: Path) -> list[str]:
    """Write ``bundle`` to the new folder ``out``, with Q/DQ pairs at the products that INT8 engines quantise.

    Parts that are FP16 on a GPU are FP32 in the written bundle. Returns the names of the quantised graphs.
    After an error ``out`` is removed.
    """
    runners = {name: CpuRunner(bundle.graphs[name].path) for name in GRAPHS}
    samples = recorded_inputs(bundle, runners, clip, INT8_MODULES)
    written = []
    try:
        shutil.copytree(bundle.folder, out)
        for module, inputs in samples.items():
            name, given = (CPU_ATTENTION, dynamic_inputs(inputs)) if module == ATTENTION else (module, inputs)
            model = plain_graph(onnx.load(bundle.graphs[name].path))
            if quantizable(model):
                (out / bundle.graphs[name].path.name).write_bytes(quantize(model, given).SerializeToString())
                written.append(name)
        _list_again(out, [bundle.graphs[name].path.name for name in written])
    except BaseException:  # removes an incomplete bundle, for example after the disk became full
        shutil.rmtree(out, ignore_errors=True)
        raise
    return written


def _list_again(folder: Path, files: list[str]) -> None:
    """Update the hashes and sizes of changed files in the manifest."""
    path = folder / MANIFEST
    manifest = json.loads(path.read_text())
    for name in files:
        changed = folder / name
        manifest["files"][name] = {"sha256": file_sha256(changed), "bytes": changed.stat().st_size}
    path.write_text(json.dumps(manifest, indent=2) + "\n")
