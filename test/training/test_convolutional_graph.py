"""A backbone gives in PyTorch what it gives in onnxruntime, and says which operator is not known here."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from efftam_ros.core.errors import InputError
from training.convolutional_graph import ConvolutionalGraph
from training.tensor_runner import TensorRunner


def backbone(path: Path, *more: onnx.NodeProto) -> Path:
    """Strided, padded on two sides, grouped and dilated convolutions, a shortcut and a clipped activation."""
    rng = np.random.default_rng(3)
    weights = {
        "w1": rng.normal(0, 0.1, (8, 3, 3, 3)),
        "b1": rng.normal(0, 0.1, 8),
        "w2": rng.normal(0, 0.3, (8, 1, 3, 3)),
        "low": np.array(0.0),
        "high": np.array(6.0),
        "scale": np.array(0.25),
    }
    nodes = [
        helper.make_node("Mul", ["image", "scale"], ["small"]),
        helper.make_node("Conv", ["small", "w1", "b1"], ["a"], strides=[2, 2], pads=[0, 0, 1, 1]),
        helper.make_node("Clip", ["a", "low", "high"], ["b"]),
        helper.make_node("Conv", ["b", "w2"], ["c"], group=8, pads=[2, 2, 2, 2], dilations=[2, 2]),
        helper.make_node("Add", ["b", "c"], ["d"]),
        helper.make_node("Relu", ["d"], ["features"]),
        *more,
    ]
    inputs = [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, "h", "w"])]
    outputs = [helper.make_tensor_value_info("features", TensorProto.FLOAT, [1, 8, "a", "b"])]
    stored = [numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "backbone", inputs, outputs, stored)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_the_features_are_those_of_onnxruntime_for_a_batch(tmp_path):
    path = backbone(tmp_path / "backbone.onnx")
    images = torch.from_numpy(np.random.default_rng(4).normal(0, 3, (2, 3, 32, 48)).astype(np.float32))
    wanted = torch.cat([TensorRunner(path)({"image": image})["features"] for image in images.split(1)])
    torch.testing.assert_close(ConvolutionalGraph(path)(images), wanted)
    assert wanted.shape == (2, 8, 16, 24)


def test_an_operator_that_is_not_known_is_named(tmp_path):
    path = backbone(tmp_path / "backbone.onnx", helper.make_node("Softmax", ["d"], ["e"]))
    with pytest.raises(InputError, match="Softmax"):
        ConvolutionalGraph(path)


def test_padding_that_the_graph_leaves_to_the_runtime_is_named(tmp_path):
    node = helper.make_node("Conv", ["d", "w2"], ["e"], group=8, auto_pad="SAME_UPPER")
    path = backbone(tmp_path / "backbone.onnx", node)
    with pytest.raises(InputError, match="auto_pad"):
        ConvolutionalGraph(path)
