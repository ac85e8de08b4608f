"""The bundle that ships: small, and honest about what it is (test_demo_clip.py: what it tracks)."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

import efftam_ros
from efftam_ros.runtime.bundle import default_bundle

FOLDER = Path(efftam_ros.__file__).parent / "models" / "compact_192"


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
        ("mask_decoder", 188),
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
