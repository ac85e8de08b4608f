"""How weights lie on disk: in half precision if asked, and in one file for the graphs that share them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

_SHARED_BYTES = 1024
_ALIGNMENT = 64


def store_as_float16(model: onnx.ModelProto, names: Iterable[str]) -> None:
    """Store these float32 initialisers as float16, each with a Cast to float32 behind it.

    Runtimes fold the Cast when they load the graph: half the disk space, and nothing else changes.
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
    for node in nodes:
        for i, name in enumerate(node.input):
            node.input[i] = renamed.get(name, name)
    del model.graph.node[:]
    model.graph.node.extend([*casts, *nodes])


def share_weights(models: Sequence[onnx.ModelProto], path: Path) -> None:
    """Move the larger initialisers of ``models`` into one file beside them, equal ones to one place."""
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
