"""Traces a PyTorch function to an ONNX graph whose weights have the same names as in the network."""

from __future__ import annotations

import copy
import io
import warnings
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import numpy_helper

from efftam_workshop.export.onnx.folding import constants, fold_constants, rename_inputs, replace
from efftam_workshop.export.onnx.graphs import ExportGraph, GraphModule
from efftam_workshop.model.common.network import Network

OPSET = 20
NAMELESS = "constant."
"""Prefix of the names of initialisers that are neither weights nor tables of the network."""
_PREFIX = "network."
_NAMED_TABLE_VALUES = 16
"""Constants with fewer values are not matched with tables, because a few zeros could match by accident."""


class Tracer:
    """Traces the graphs of one network."""

    def __init__(self, network: Network) -> None:
        self._network = network
        # The exporter merges parameters with equal content and loses one of the names. In this copy all
        # contents differ.
        self._distinct = copy.deepcopy(network).eval().requires_grad_(False)
        for number, parameter in enumerate(self._distinct.parameters()):
            parameter.data.fill_(number)

    def trace(self, graph: ExportGraph) -> onnx.ModelProto:
        """Export ``graph`` with the TorchScript exporter and return the model.

        Parameters and persistent buffers become initialisers with the names of the network's state dict.
        Tables (other buffers) become initialisers with the buffer's name. Everything that depends only on
        shapes and tables is folded.
        """
        model = _export(graph, self._distinct)
        _name_weights(model, self._network)
        fold_constants(model)
        _name_tables(model, self._network)
        _state_shapes(model, graph)
        model.producer_name, model.producer_version = "efftam_ros", ""
        model.graph.name = graph.name
        return model


def _export(graph: ExportGraph, network: Network) -> onnx.ModelProto:
    buffer = io.BytesIO()
    module = GraphModule(network, graph.function).eval()
    axes = {name: dict(named) for name, named in graph.axes.items()}
    for name, shape in graph.outputs.items():
        axes[name] = {i: size for i, size in enumerate(shape) if isinstance(size, str)}
    with torch.no_grad(), warnings.catch_warnings():
        # The exporter warns that it is deprecated, and that some shapes become constant, which is intended.
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module,
            tuple(graph.inputs.values()),
            buffer,  # type: ignore[arg-type]  # file objects are accepted, the annotation lacks them
            input_names=list(graph.inputs),
            output_names=list(graph.outputs),
            dynamic_axes=axes,
            opset_version=OPSET,
            dynamo=False,
            do_constant_folding=False,
            keep_initializers_as_inputs=False,
        )
    return onnx.load_model_from_string(buffer.getvalue())


def _name_weights(model: onnx.ModelProto, network: Network) -> None:
    weights = network.state_dict()
    renamed = {t.name: t.name.removeprefix(_PREFIX) for t in model.graph.initializer}
    for tensor in model.graph.initializer:
        name = renamed[tensor.name]
        tensor.CopyFrom(numpy_helper.from_array(weights[name].detach().cpu().numpy(), name))
    rename_inputs(model.graph.node, renamed)


def _name_tables(model: onnx.ModelProto, network: Network) -> None:
    """Turn Constant nodes into initialisers.

    Equal constants become one initialiser. If a buffer of ``network`` has the same content, the initialiser
    gets its name.
    """
    tables = {_content(b.detach().cpu().numpy()): name for name, b in network.named_buffers()}
    names: dict[tuple[bytes, tuple[int, ...]], str] = {}
    taken = {t.name for t in model.graph.initializer}
    renamed: dict[str, str] = {}
    for old, value in constants(model.graph).items():
        key = (_content(value), value.shape)
        if key not in names:
            table = tables.get(key[0]) if value.size >= _NAMED_TABLE_VALUES else None
            name = table if table is not None and table not in taken else f"{NAMELESS}{len(names)}"
            taken.add(name)
            names[key] = name
            model.graph.initializer.append(numpy_helper.from_array(value, name))
        renamed[old] = names[key]
    nodes = [node for node in model.graph.node if node.op_type != "Constant"]
    rename_inputs(nodes, renamed)
    replace(model.graph.node, nodes)


def _content(value: NDArray[Any]) -> bytes:
    return value.dtype.str.encode() + np.ascontiguousarray(value).tobytes()


def _state_shapes(model: onnx.ModelProto, graph: ExportGraph) -> None:
    """Write the shapes of the outputs into the graph; the exporter leaves computed shapes undefined."""
    for info in model.graph.output:
        shape = graph.outputs[info.name]
        info.CopyFrom(onnx.helper.make_tensor_value_info(info.name, onnx.TensorProto.FLOAT, shape))
    del model.graph.value_info[:]
