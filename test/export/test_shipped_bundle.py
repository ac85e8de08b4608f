"""The bundle that ships: small, honest about what it is, able to track."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest
import torch
from support.tensors import TensorRunner

import efftam_ros
from efftam_ros.core.geometry import Box, iou
from efftam_ros.runtime.bundle import default_bundle

FOLDER = Path(efftam_ros.__file__).parent / "models" / "compact_192"


@pytest.fixture(scope="module")
def run():
    graphs = json.loads((FOLDER / "bundle.json").read_text())["graphs"]
    sessions = {name: TensorRunner(FOLDER / entry["file"]) for name, entry in graphs.items()}
    return lambda name, *inputs: sessions[name]({k: v for group in inputs for k, v in group.items()})


def scene(x: float, y: float, radius: float = 20.0) -> dict[str, torch.Tensor]:
    """A red disc on a soft background as network input."""
    image = json.loads((FOLDER / "bundle.json").read_text())["image"]
    mean, std = (torch.tensor(image[key]).reshape(1, 3, 1, 1) for key in ("mean", "std"))
    coarse = torch.rand(1, 3, 12, 12, generator=torch.Generator().manual_seed(3)) * 0.5 + 0.2
    background = torch.nn.functional.interpolate(coarse, (192, 192), mode="bilinear")
    rows, columns = torch.meshgrid(torch.arange(192.0), torch.arange(192.0), indexing="ij")
    disc = torch.sigmoid(2 * (radius - torch.hypot(columns + 0.5 - x, rows + 0.5 - y)))
    red = torch.tensor([0.9, 0.2, 0.1]).reshape(1, 3, 1, 1)
    return {"image": (background + (red - background) * disc - mean) / std}


def prompt(points, labels):
    nothing = torch.zeros(1, 1, 192, 192)
    tensors = {"points": torch.tensor([points]), "labels": torch.tensor([labels])}
    return tensors | {"mask": nothing, "has_mask": torch.zeros(1)}


def overlap(edges: torch.Tensor, x: float, y: float, radius: float = 20.0) -> float:
    truth = Box.from_edges(x - radius, y - radius, x + radius, y + radius)
    return iou(Box.from_edges(*edges.tolist()), truth)


def test_it_is_small_and_says_what_it_is():
    bundle = default_bundle()
    assert bundle.folder == FOLDER
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 20e6
    assert "research use" in bundle.source["licence"]
    opening = "\n".join((FOLDER / "README.md").read_text().splitlines()[:6])
    assert "research use" in opening
    assert "DAVIS" in opening


LAYOUT = {"Reshape", "Unsqueeze", "Squeeze", "Flatten"}
"""Operators that move and compute nothing."""


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("image_encoder", 95),
        ("prompt_encoder", 65),
        ("memory_attention", 90),
        ("memory_attention_fixed", 91),
        ("mask_decoder", 155),
        ("memory_encoder", 43),
    ],
)
def test_a_graph_runs_few_operators(name, most):
    """Of those that read weights alone, such as the Casts of stored weights, runtimes keep the result."""
    graph = onnx.load(FOLDER / f"{name}.onnx", load_external_data=False).graph
    known, run = {tensor.name for tensor in graph.initializer}, []
    for node in graph.node:
        if known.issuperset(filter(None, node.input)):
            known.update(node.output)
        elif node.op_type not in LAYOUT:
            run.append(node.name)
    assert len(run) <= most, run


def test_it_masks_the_prompted_object(run):
    encoded = run("image_encoder", scene(96, 90))
    prompted = run("prompt_encoder", encoded, prompt([[76.0, 70.0], [116.0, 110.0]], [2, 3]))
    decoded = run("mask_decoder", prompted, encoded)
    assert overlap(decoded["boxes"][0], 96, 90) > 0.75
    assert float(decoded["presence"]) > 0


def test_it_follows_what_it_remembers(run):
    encoded = run("image_encoder", scene(96, 90))
    prompted = run("prompt_encoder", encoded, prompt([[76.0, 70.0], [116.0, 110.0]], [2, 3]))
    decoded = run("mask_decoder", prompted, encoded)
    remembered = run(
        "memory_encoder",
        encoded,
        prompted,
        {"mask_logits": decoded["masks"][:, :1], "pointer": decoded["pointers"][:1]},
        {"present": torch.ones(1), "binarize": torch.ones(1)},
    )
    memory = {"maps": remembered["map"], "pointers": remembered["stored_pointer"], "rows": torch.tensor([6])}
    for x, y in ((100, 92), (104, 94), (84, 100)):
        encoded = run("image_encoder", scene(x, y))
        nothing = run("prompt_encoder", encoded, prompt([[0.0, 0.0]], [-1]))
        conditioned = run("memory_attention", encoded, memory)
        decoded = run("mask_decoder", nothing | conditioned, encoded)
        best = 1 + int(decoded["ious"][1:].argmax())
        assert overlap(decoded["boxes"][best], x, y) > 0.5
