"""How far the FP16 graphs of a bundle are from its FP32 graphs, in the interpreter."""

from __future__ import annotations

from collections.abc import Mapping

import onnx

from efftam_ros.runtime.bundle import Bundle
from efftam_workshop.agreement.compare import GraphDeviation, compare_graphs, seeded_chain
from efftam_workshop.agreement.runners import Runner
from efftam_workshop.export.fp16.convert import load_graphs, to_fp16
from support.fp16_interpreter import LiteralGraph


def fp16_graphs(graphs: Mapping[str, onnx.ModelProto]) -> dict[str, onnx.ModelProto]:
    return {name: to_fp16(model, name) for name, model in graphs.items()}


def literal(graphs: Mapping[str, onnx.ModelProto]) -> dict[str, Runner]:
    """Runners of these graphs in the interpreter (`fp16_interpreter.LiteralGraph`)."""
    return {name: LiteralGraph(model) for name, model in graphs.items()}


def compare_fp16(bundle: Bundle) -> list[GraphDeviation]:
    """Every output of every FP16 graph against FP32, in the interpreter, on seeded inputs."""
    graphs = load_graphs(bundle)
    return compare_graphs(seeded_chain(bundle, literal(graphs)), literal(fp16_graphs(graphs)))
