"""Runs an ONNX graph of convolutions as a PyTorch module, on the device that trains.

`_OPERATORS` contains the operators of exported convolutional backbones and of networks that describe crops.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import onnx
import torch
import torch.nn.functional as F
from onnx import NodeProto, numpy_helper
from torch import Tensor, nn

from efftam_ros.core.errors import InputError


class ConvolutionalGraph(nn.Module):
    """An ONNX graph with one input and one output. Its weights are buffers, so that they are not trained."""

    def __init__(self, path: Path) -> None:
        """Read the graph. Raises InputError, naming the operators, if some are not in `_OPERATORS`."""
        super().__init__()
        graph = onnx.load(path).graph
        unknown = sorted({node.op_type for node in graph.node} - set(_OPERATORS))
        if any(_attributes(node).get("auto_pad", b"NOTSET") != b"NOTSET" for node in graph.node):
            unknown.append("auto_pad")
        if unknown or len(graph.input) != 1:
            raise InputError(
                f"{path} can't be run on a GPU: it has {', '.join(unknown) or 'several inputs'};"
                f" known are one input and {', '.join(_OPERATORS)}; train with --device cpu"
            )
        self._input, self._output = graph.input[0].name, graph.output[0].name
        self._nodes = [(node, _attributes(node)) for node in graph.node]
        self._weights = {}
        for index, tensor in enumerate(graph.initializer):
            self.register_buffer(f"weight{index}", torch.from_numpy(numpy_helper.to_array(tensor).copy()))
            self._weights[tensor.name] = f"weight{index}"

    def forward(self, x: Tensor) -> Tensor:
        values = {name: getattr(self, buffer) for name, buffer in self._weights.items()}
        values[self._input] = x
        for node, attributes in self._nodes:
            inputs = [values[name] if name else None for name in node.input]
            values[node.output[0]] = _OPERATORS[node.op_type](*inputs, **attributes)
        out: Tensor = values[self._output]
        return out


def _attributes(node: NodeProto) -> dict[str, Any]:
    return {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}


def _conv(x: Tensor, weight: Tensor, bias: Tensor | None = None, **attributes: Any) -> Tensor:
    top, left, bottom, right = attributes.get("pads", (0, 0, 0, 0))
    if (top, left) != (bottom, right):
        x, top, left = F.pad(x, (left, right, top, bottom)), 0, 0
    strides, dilations = attributes.get("strides", (1, 1)), attributes.get("dilations", (1, 1))
    return F.conv2d(
        x, weight, bias, tuple(strides), (top, left), tuple(dilations), attributes.get("group", 1)
    )


def _pool(pool: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def run(x: Tensor, **attributes: Any) -> Tensor:
        pads = attributes.get("pads", (0, 0, 0, 0))
        return pool(x, tuple(attributes["kernel_shape"]), tuple(attributes["strides"]), tuple(pads[:2]))

    return run


def _norm(
    x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor, **attributes: Any
) -> Tensor:
    return F.batch_norm(x, mean, variance, scale, bias, eps=attributes["epsilon"])


_OPERATORS: Mapping[str, Callable[..., Tensor]] = {
    "Conv": _conv,
    "Relu": torch.relu,
    "Clip": torch.clamp,
    "Add": torch.add,
    "Mul": torch.mul,
    "Sub": torch.sub,
    "Div": torch.div,
    "Sigmoid": torch.sigmoid,
    "MaxPool": _pool(F.max_pool2d),
    "AveragePool": _pool(F.avg_pool2d),
    "GlobalAveragePool": lambda x: x.mean((2, 3), keepdim=True),
    "BatchNormalization": _norm,
    "Gemm": lambda x, weight, bias, **_: F.linear(x, weight, bias),
    "Shape": lambda x: torch.tensor(x.shape),
    "Gather": lambda x, index, **_: x[int(index)],
    "Unsqueeze": lambda x, *_, **__: x.reshape(1),
    "Concat": lambda *parts, **_: torch.cat([part.cpu() for part in parts]),
    "Reshape": lambda x, shape: x.reshape(tuple(shape.tolist())),
}
