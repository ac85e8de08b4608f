"""Writes a run's weights as the network that ships: identity.onnx, its manifest and its card."""

from __future__ import annotations

import argparse
import hashlib
import json
import tempfile
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import Tensor, nn

from training.identity.judge import load_network
from training.identity.network import SIDE, SIZE, IdentityNetwork

SHIPPED = Path("efftam_ros/models/identity")
GRAPH, MANIFEST = "identity.onnx", "identity.json"
OPSET = 17


class _FromBytes(nn.Module):
    """Takes crops as they are stored: uint8 [n,SIDE,SIDE,3] BGR."""

    def __init__(self, network: IdentityNetwork) -> None:
        super().__init__()
        self.network = network

    def forward(self, crops: Tensor) -> Tensor:
        vectors: Tensor = self.network(crops.permute(0, 3, 1, 2).float())
        return vectors


def export(run: Path, out: Path, licence: str) -> int:
    """Write the weights of the folder ``run`` into ``out``, stored in a byte each; returns the graph's bytes.

    Raises InputError when the run has no weights.
    """
    network = load_network(run)
    recipe = json.loads((run / "recipe.json").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / GRAPH
        crops = torch.zeros(1, SIDE, SIDE, 3, dtype=torch.uint8)
        torch.onnx.export(
            _FromBytes(network),
            (crops,),
            str(path),
            input_names=["crops"],
            output_names=["vectors"],
            dynamic_axes={"crops": {0: "n"}, "vectors": {0: "n"}},
            opset_version=OPSET,
            dynamo=False,
        )
        model = in_bytes(onnx.load(path))
    out.mkdir(parents=True, exist_ok=True)
    content = model.SerializeToString()
    (out / GRAPH).write_bytes(content)
    manifest = {
        "format": 1,
        "side": SIDE,
        "size": SIZE,
        "sha256": hashlib.sha256(content).hexdigest(),
        "licence": licence,
        "note": f"{recipe['steps_done']} steps, {recipe['objects_of_data']} objects, seed {recipe['seed']}",
    }
    (out / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    return len(content)


def in_bytes(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same graph, its weights stored as int8 with a scale of each output; computation stays float32."""
    graph = model.graph
    for tensor in list(graph.initializer):
        values = numpy_helper.to_array(tensor)
        if values.dtype != np.float32 or values.size < 256:
            continue
        scale = np.abs(values).max(tuple(range(1, values.ndim)), keepdims=True) / 127
        stored, plain, scales = (f"{tensor.name}.{part}" for part in ("stored", "plain", "scale"))
        in_steps = np.round(values / np.maximum(scale, np.finfo(np.float32).tiny)).astype(np.int8)
        graph.initializer.append(numpy_helper.from_array(in_steps, stored))
        graph.initializer.append(numpy_helper.from_array(scale, scales))
        graph.initializer.remove(tensor)
        graph.node.insert(0, onnx.helper.make_node("Mul", [plain, scales], [tensor.name]))
        graph.node.insert(0, onnx.helper.make_node("Cast", [stored], [plain], to=onnx.TensorProto.FLOAT))
    onnx.checker.check_model(model)
    return model


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--run", type=Path, default=Path("runs/identity"), dest="folder", help="default %(default)s"
    )
    parser.add_argument("--out", type=Path, default=SHIPPED, help="default %(default)s")
    parser.add_argument("--licence", default="research use: see README.md", help="default %(default)s")


def run(args: argparse.Namespace) -> int:
    size = export(args.folder, args.out, args.licence)
    print(f"{args.out}: {size / 1e6:.2f} MB")
    return 0
