"""Checks the weights of an exported network, rounds them to their number format and stores them."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import onnx
import torch
from onnx import numpy_helper

from efftam_ros.core.errors import InputError
from efftam_workshop.export.onnx.folding import rename_inputs, replace
from efftam_workshop.model.common.network import Network

WeightType = Literal["float32", "float16"]

FLOAT16_MAX = 65504.0
_SHARED_BYTES = 1024
_ALIGNMENT = 64


def prepare(network: Network, weights: WeightType = "float32") -> Network:
    """Return a copy of ``network`` with the weights that the bundle stores, rounded to float16 if required.

    Graphs are traced from the copy and compared with it. Raises InputError for a weight that is not finite
    or, for float16, out of range.
    """
    prepared = copy.deepcopy(network).float().cpu().eval().requires_grad_(False)
    _check_finite(prepared)
    if weights == "float16":
        _round_to_float16(prepared)
    return prepared


def _check_finite(network: Network) -> None:
    for name, value in network.state_dict().items():
        if not torch.isfinite(value).all():
            raise InputError(f"weight {name} holds NaN or infinity; get the checkpoint again")


def _round_to_float16(network: Network) -> None:
    for name, parameter in network.named_parameters():
        peak = float(parameter.abs().max())
        if peak > FLOAT16_MAX:
            raise InputError(
                f"weight {name} reaches {peak:g}, the limit of float16 is {FLOAT16_MAX:g}; use float32"
            )
        parameter.data = parameter.data.half().float()
    network.load_state_dict(network.state_dict())  # recomputes the tables that are derived from parameters


def store_as_float16(model: onnx.ModelProto, names: Iterable[str]) -> None:
    """Store the initialisers ``names`` as float16, each followed by a Cast to float32.

    Runtimes fold the Cast when they load the graph, so only the file size changes.
    """
    wanted = set(names)
    casts = []
    for tensor in model.graph.initializer:
        if tensor.name not in wanted or tensor.data_type != onnx.TensorProto.FLOAT:
            continue
        value = numpy_helper.to_array(tensor)
        tensor.CopyFrom(numpy_helper.from_array(value.astype(np.float16), tensor.name))
        casts.append(
            onnx.helper.make_node(
                "Cast", [tensor.name], [f"{tensor.name}.float32"], to=onnx.TensorProto.FLOAT
            )
        )
    renamed = {cast.input[0]: cast.output[0] for cast in casts}
    nodes = list(model.graph.node)
    rename_inputs(nodes, renamed)
    replace(model.graph.node, [*casts, *nodes])


def share_weights(models: Sequence[onnx.ModelProto], path: Path) -> None:
    """Move the large initialisers of ``models`` to one file of external data; equal ones are stored once."""
    places: dict[bytes, tuple[int, int]] = {}
    with path.open("wb") as file:
        for model in models:
            for tensor in model.graph.initializer:
                if len(tensor.raw_data) < _SHARED_BYTES:
                    continue
                content = bytes(tensor.raw_data)
                if content not in places:
                    file.write(bytes(-file.tell() % _ALIGNMENT))
                    places[content] = (file.tell(), file.write(content))
                _point_to(tensor, path.name, *places[content])


def _point_to(tensor: onnx.TensorProto, location: str, offset: int, length: int) -> None:
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    del tensor.external_data[:]
    for key, value in (("location", location), ("offset", str(offset)), ("length", str(length))):
        tensor.external_data.add(key=key, value=value)
