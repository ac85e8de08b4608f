"""Small ONNX files with the tensors of the peers' networks and known answers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ABSENT = -50.0
"""Logit of a cell that is not the target."""


def distances(count: int, left: float, top: float, right: float, bottom: float) -> np.ndarray:
    """The same distances in every cell, [1, 4, count, count]."""
    values = np.array([left, top, right, bottom], np.float32).reshape(1, 4, 1, 1)
    return np.tile(values, (1, 1, count, count))


def peak(count: int, cell: tuple[int, int], logit: float) -> np.ndarray:
    """``logit`` in one cell (row, column), `ABSENT` in the others, [count, count]."""
    values = np.full((count, count), ABSENT, np.float32)
    values[cell] = logit
    return values


def two_classes(foreground: np.ndarray) -> np.ndarray:
    """NanoTrack's logits, [1, 2, n, n]: zero for the background."""
    return np.stack([np.zeros_like(foreground), foreground])[None]


def write_backbone(path: Path, names: tuple[str, str], channels: int, kernel: int, side: int | None = None):
    """A backbone whose first three channels are the image's, averaged over ``kernel`` px at stride 16.

    ``side``: the one height and width that the file declares, None for any.
    """
    weights = np.zeros((channels, 3, 1, 1), np.float32)
    weights[:3, :, 0, 0] = np.eye(3)
    image, features = names
    sizes = ["h", "w"] if side is None else [side, side]
    nodes = [
        helper.make_node("AveragePool", [image], ["mean"], kernel_shape=[kernel] * 2, strides=[16, 16]),
        helper.make_node("Conv", ["mean", "weights"], [features]),
    ]
    open_sizes = ["fh", "fw"] if side is None else [16, 16]
    _write(path, nodes, {image: [1, 3, *sizes]}, {features: [1, channels, *open_sizes]}, weights=weights)


def write_head(path: Path, inputs: dict[str, list[int]], **outputs: np.ndarray):
    """A head that gives the same outputs for every input."""
    nodes = [helper.make_node("Identity", [f"{name}_value"], [name]) for name in outputs]
    values = {f"{name}_value": value for name, value in outputs.items()}
    _write(path, nodes, inputs, {name: list(value.shape) for name, value in outputs.items()}, **values)


def write_nanotrack(
    folder: Path, version: int, classes: np.ndarray, edges: np.ndarray, *, side: int | None = None
) -> None:
    """Both files of a NanoTrack version with a head that always answers ``classes`` and ``edges``."""
    channels = {2: 48, 3: 96}[version]
    write_backbone(
        folder / f"nanotrack_v{version}_backbone.onnx", ("input", "output"), channels, kernel=15, side=side
    )
    shapes = {"input1": [1, channels, 8, 8], "input2": [1, channels, 16, 16]}
    write_head(folder / f"nanotrack_v{version}_head.onnx", shapes, output1=classes, output2=edges)


def write_fear(folder: Path, logits: np.ndarray, edges: np.ndarray) -> None:
    """Both files of FEAR-XS with a head that always answers ``logits`` [16, 16] and ``edges``."""
    write_backbone(folder / "fear_xs_backbone.onnx", ("image", "features"), 256, kernel=16)
    shapes = {"image": [1, 3, 256, 256], "template": [1, 256, 8, 8]}
    write_head(folder / "fear_xs_track.onnx", shapes, bbox=edges, cls=logits[None, None])


def _write(path: Path, nodes: list, inputs: dict, outputs: dict, **constants: np.ndarray) -> None:
    graph = helper.make_graph(
        nodes,
        "stand-in",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs.items()],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path)
