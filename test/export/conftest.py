"""Networks of both families and bundles exported from them, once per session."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from support.tensors import TensorRunner

    from efftam_workshop.model.common.network import Network

if any(importlib.util.find_spec(name) is None for name in ("torch", "onnx")):
    collect_ignore_glob = ["test_*.py"]  # export is an optional extra: scripts/setup_env --with-tests


@pytest.fixture(scope="session")
def network() -> Callable[[str], Network]:
    """The prepared network of a family: ``compact``, ``official``, ``pooled_1`` or ``pooled_2``."""
    from export_helpers import compact_network, official_network

    from efftam_workshop.export.onnx.weights import prepare
    from efftam_workshop.model.efficienttam.configurations import Pooling

    poolings = {"official": Pooling.PLAIN, "pooled_1": Pooling.POOLED_1, "pooled_2": Pooling.POOLED_2}

    @cache
    def build(family: str) -> Network:
        return prepare(compact_network() if family == "compact" else official_network(poolings[family]))

    return build


@pytest.fixture(scope="session")
def bundle(made_once: Callable[[str, Callable[[Path], object]], Path]) -> Callable[..., Path]:
    """The bundle of a family (``compact`` or ``official``) with float32 or float16 weights, for all tests."""
    from export_helpers import compact_network, official_network

    from efftam_workshop.export.onnx.bundle import export_bundle

    def export(family: str, weights: str = "float32") -> Path:
        def make(folder: Path) -> None:
            source = compact_network() if family == "compact" else official_network()
            export_bundle(source, folder, weights=weights)

        return made_once(f"{family}_{weights}", make)

    return export


@pytest.fixture(scope="session")
def attention(
    network: Callable[[str], Network], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], tuple[TensorRunner, TensorRunner]]:
    """The two forms of a family's memory attention in onnxruntime: dynamic, fixed."""
    from support.tensors import TensorRunner

    from efftam_workshop.export.onnx.graphs import build_graphs
    from efftam_workshop.export.onnx.trace import Tracer

    @cache
    def sessions(family: str) -> tuple[TensorRunner, TensorRunner]:
        folder = tmp_path_factory.mktemp(f"attention_{family}")
        graphs = {graph.name: graph for graph in build_graphs(network(family))}
        tracer = Tracer(network(family))

        def session(name: str) -> TensorRunner:
            path = folder / f"{name}.onnx"
            path.write_bytes(tracer.trace(graphs[name]).SerializeToString())
            return TensorRunner(path)

        return session("memory_attention"), session("memory_attention_fixed")

    return sessions
