"""Finds the first block of an FP16 graph whose output diverges from FP32."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from efftam_ros.runtime.verify import relative_error
from efftam_workshop.agreement.runners import Runner
from efftam_workshop.export.fp16.attention import GraphIndex
from efftam_workshop.export.onnx.folding import drop_unused, replace

DIVERGED = 0.05
"""Relative deviation (`verify.relative_error`) of a block's output that counts as diverged."""


def block_outputs(model: onnx.ModelProto) -> list[str]:
    """Output tensors of the blocks, in graph order, then the outputs of the graph.

    A block ends at a residual sum: an Add of two computed tensors that several nodes or a LayerNormalization
    read. Attention scores are never included: TensorRT does not fuse an attention whose scores are an output,
    so making them an output would hide the fault.
    """
    wires = GraphIndex(onnx.shape_inference.infer_shapes(model))
    found = []
    for node in model.graph.node:
        computed = not wires.constants.intersection(node.input)
        readers = wires.after(node.output[0])
        shared = len(readers) > 1 or any(reader.op_type == "LayerNormalization" for reader in readers)
        inside = any(reader.op_type == "Softmax" for reader in readers)
        if node.op_type == "Add" and computed and shared and not inside:
            found.append(node.output[0])
    return [*found, *(info.name for info in model.graph.output if info.name not in found)]


def first_divergent_block(
    reference: onnx.ModelProto,
    fp16: onnx.ModelProto,
    inputs: Mapping[str, NDArray[Any]],
    run: Callable[[onnx.ModelProto], Runner],
    limit: float = DIVERGED,
    run_reference: Callable[[onnx.ModelProto], Runner] | None = None,
) -> str | None:
    """Bisect for the first block output (of `block_outputs`) that deviates by more than ``limit`` (relative)
    while the one before does not; None when no output of the graph deviates.

    ``reference``: the graph that ``fp16`` was made from (`convert.plain_graph`); ``inputs`` of both by name;
    ``run`` opens a graph as a runner, ``run_reference`` (default: ``run``) those of the reference, which are
    truncated at a block.
    """
    names = block_outputs(reference)
    ends = {info.name for info in reference.graph.output}

    def diverges(name: str) -> bool:
        wanted = (run_reference or run)(_ending_at(reference, name))(inputs)[name]
        got = run(_ending_at(fp16, name))(inputs)[name]
        return not relative_error(wanted, got.astype(np.float32)) <= limit

    wrong = [name for name in names if name in ends and diverges(name)]
    if not wrong:
        return None
    right, diverged = -1, names.index(wrong[0])
    while diverged - right > 1:
        middle = (right + diverged) // 2
        if diverges(names[middle]):
            diverged = middle
        else:
            right = middle
    return names[diverged]


def _ending_at(model: onnx.ModelProto, name: str) -> onnx.ModelProto:
    """The model truncated at this tensor, which becomes its only output."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    graph = copy.graph
    kind = GraphIndex(onnx.shape_inference.infer_shapes(copy)).types[name]
    shape = [axis.dim_param or axis.dim_value for axis in kind.shape.dim]
    replace(graph.output, [onnx.helper.make_tensor_value_info(name, kind.elem_type, shape)])
    del graph.value_info[:]
    drop_unused(graph)
    read = {source for node in graph.node for source in node.input}
    replace(graph.input, [info for info in graph.input if info.name in read])
    return copy
