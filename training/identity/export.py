"""Writes a run's weights as the network that ships: identity.onnx and its manifest."""

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
    """The network with stored crops as input: uint8 [n,SIDE,SIDE,3] BGR."""

    def __init__(self, network: IdentityNetwork) -> None:
        super().__init__()
        self.network = network

    def forward(self, crops: Tensor) -> Tensor:
        vectors: Tensor = self.network(crops.permute(0, 3, 1, 2).float())
        return vectors


def export(run: Path, out: Path, licence: str) -> int:
    """Write the weights of the folder ``run`` to ``out``, as float16; return the graph's size in bytes.

    Raises InputError if the run has no weights.
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
        model = halved(onnx.load(path))
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


def halved(model: onnx.ModelProto) -> onnx.ModelProto:
    """Store the graph's weights as float16, in place, and return it; the computation stays float32."""
    graph = model.graph
    for tensor in list(graph.initializer):
        values = numpy_helper.to_array(tensor)
        if values.dtype != np.float32 or values.size < 256:
            continue
        stored = f"{tensor.name}.stored"
        graph.initializer.append(numpy_helper.from_array(values.astype(np.float16), stored))
        graph.initializer.remove(tensor)
        graph.node.insert(
            0, onnx.helper.make_node("Cast", [stored], [tensor.name], to=onnx.TensorProto.FLOAT)
        )
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
