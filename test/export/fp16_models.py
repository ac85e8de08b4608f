"""Small hand-made graphs for the FP16 tests."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

TOKENS, WIDTH, HEADS = 64, 64, 2


def model(nodes, inputs, outputs, weights) -> onnx.ModelProto:
    """``inputs``, ``outputs``: name -> shape, float32; ``weights``: name -> array."""

    def infos(table):
        return [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in table.items()]

    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()]
    for number, node in enumerate(nodes):
        node.name = node.name or f"{node.op_type}_{number}"
    graph = helper.make_graph(nodes, "test", infos(inputs), infos(outputs), tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def transformer(blocks: int = 3, scale_first: bool = True, divide: bool = False) -> onnx.ModelProto:
    """Residual attention blocks with LayerNormalization, biases, heads and projection, as the encoder's are.

    ``x [1,64,64] -> y``; block outputs are ``block0`` to ``y``. ``divide``: queries are scaled by a Div.
    """
    random = np.random.default_rng(5)
    head = WIDTH // HEADS
    weights = {
        "heads": np.array([1, TOKENS, HEADS, head]),
        "flat": np.array([1, TOKENS, WIDTH]),
        "scale": np.float32(head**0.5 if divide else head**-0.5),
    }
    nodes = []

    def add(op, inputs, output, **attributes):
        nodes.append(helper.make_node(op, inputs, [output], f"/{output}/{op}", **attributes))
        return output

    def linear(x, name):
        spread = WIDTH**-0.5 * (
            2 if name[-2:] in (".q", ".k") else 1
        )  # scores as large as a trained network's
        weights[f"{name}.weight"] = random.normal(0, spread, (WIDTH, WIDTH)).astype(np.float32)
        weights[f"{name}.bias"] = random.normal(0, 0.1, WIDTH).astype(np.float32)
        return add("Add", [add("MatMul", [x, f"{name}.weight"], f"{name}.product"), f"{name}.bias"], name)

    def split(x, name, order):
        return add("Transpose", [add("Reshape", [x, "heads"], f"{name}.split")], name, perm=order)

    stream = "x"
    for block in range(blocks):
        b = f"b{block}"
        weights |= {f"{b}.gain": np.ones(WIDTH, np.float32), f"{b}.shift": np.zeros(WIDTH, np.float32)}
        normed = add("LayerNormalization", [stream, f"{b}.gain", f"{b}.shift"], f"{b}.norm", axis=-1)
        q, k, v = (linear(normed, f"{b}.{part}") for part in "qkv")
        q, v = split(q, f"{b}.qh", [0, 2, 1, 3]), split(v, f"{b}.vh", [0, 2, 1, 3])
        k = split(k, f"{b}.kh", [0, 2, 3, 1])
        if scale_first:
            q = add("Div" if divide else "Mul", [q, "scale"], f"{b}.scaled")
        scores = add("MatMul", [q, k], f"{b}.scores")
        mixed = add("MatMul", [add("Softmax", [scores], f"{b}.shares", axis=-1), v], f"{b}.mixed")
        joined = add("Transpose", [mixed], f"{b}.joined", perm=[0, 2, 1, 3])
        projected = linear(add("Reshape", [joined, "flat"], f"{b}.flat"), f"{b}.projected")
        stream = add("Add", [stream, projected], "y" if block == blocks - 1 else f"block{block}")
    shape = {"x": [1, TOKENS, WIDTH]}
    return model(nodes, shape, {"y": shape["x"]}, weights)


def wide_attention(queries: int = 64, keys: int = 96, head: int = 256) -> onnx.ModelProto:
    """One head with a bias on its keys, as the memory attention of the official networks has: ``q``, ``k``,
    ``v``, ``bias`` -> ``y``."""
    nodes = [
        helper.make_node("Mul", ["q", "scale"], ["scaled"]),
        helper.make_node("MatMul", ["scaled", "k"], ["scores"], "score"),
        helper.make_node("Add", ["scores", "bias"], ["biased"]),
        helper.make_node("Softmax", ["biased"], ["shares"], axis=-1),
        helper.make_node("MatMul", ["shares", "v"], ["y"], "value"),
    ]
    shape = [1, 1, queries, head]
    inputs = {"q": shape, "k": [1, 1, head, keys], "bias": [1, 1, 1, keys], "v": [1, 1, keys, head]}
    return model(nodes, inputs, {"y": shape}, {"scale": np.float32(head**-0.5)})


def tokens() -> dict[str, np.ndarray]:
    """Seeded inputs of `transformer`."""
    return {"x": np.random.default_rng(6).normal(0, 1, (1, TOKENS, WIDTH)).astype(np.float32)}
