"""Exports a network to a bundle: traced, checked, compared with PyTorch, and only then put in place."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import onnx

from efftam_ros.core.errors import InputError
from efftam_ros.export.onnx.checks import graph_faults
from efftam_ros.export.onnx.graphs import build_graphs
from efftam_ros.export.onnx.manifest import FILE_NAME, Source, write_manifest
from efftam_ros.export.onnx.parity import Difference, compare_graphs, require_parity
from efftam_ros.export.onnx.prepare import WeightType, prepare
from efftam_ros.export.onnx.storage import share_weights, store_as_float16
from efftam_ros.export.onnx.trace import Tracer
from efftam_ros.model.common.network import Network

SHARED_WEIGHTS = "memory_attention.weights"
SHARING_GRAPHS = ("memory_attention", "memory_attention_fixed")
STEPS = 7
"""Calls of ``progress``: one per graph and one for the comparison."""


def export_bundle(
    network: Network,
    out: Path,
    *,
    weights: WeightType = "float32",
    source: Source | None = None,
    progress: Callable[[str], None] = lambda step: None,
) -> list[Difference]:
    """Write ``network`` as a bundle to the folder ``out`` and return how far its graphs are from PyTorch.

    An existing bundle there is replaced, and only by a complete one. ``progress`` is told each step's name
    before the step. Raises InputError when ``out`` is something else than a bundle, when weights do not fit
    the storage type and when a graph's output is further from PyTorch's than 1e-3.
    """
    _require_replaceable(out)
    prepared = prepare(network, weights)
    with _replacing(out) as folder:
        graphs = _write_graphs(prepared, folder, weights, progress)
        progress("comparison")
        differences = compare_graphs(prepared, graphs)
        require_parity(differences)
        write_manifest(folder, prepared.spec, graphs, source or Source())
    return differences


def _write_graphs(
    network: Network, folder: Path, weights: WeightType, progress: Callable[[str], None]
) -> Mapping[str, Path]:
    parameters = {name for name, _ in network.named_parameters()}
    tracer = Tracer(network)
    models: dict[str, onnx.ModelProto] = {}
    for graph in build_graphs(network):
        progress(graph.name)
        models[graph.name] = tracer.trace(graph)
        if weights == "float16":
            store_as_float16(models[graph.name], parameters)
    share_weights([models[name] for name in SHARING_GRAPHS], folder / SHARED_WEIGHTS)
    paths = {name: folder / f"{name}.onnx" for name in models}
    for name, model in models.items():
        onnx.save_model(model, paths[name])
    faults = [f"{name}: {fault}" for name, path in paths.items() for fault in graph_faults(path)]
    if faults:
        raise RuntimeError("exported graphs that no runtime should be given: " + "; ".join(faults))
    return paths


def _require_replaceable(out: Path) -> None:
    if not out.exists() or (out / FILE_NAME).is_file():
        return
    if not out.is_dir():
        raise InputError(f"{out} is a file; name a folder for the bundle")
    if any(out.iterdir()):
        raise InputError(f"{out} holds other files and no bundle; name a new or empty folder")


@contextmanager
def _replacing(out: Path) -> Iterator[Path]:
    """A temporary folder beside ``out`` that takes its place when the block ends well, and vanishes when
    not."""
    out = out.absolute()
    out.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{out.name}-", suffix=".partial", dir=out.parent))
    try:
        yield folder
        for path in folder.iterdir():
            _sync(path)
        folder.chmod(0o755)
        if out.exists():
            retired = Path(tempfile.mkdtemp(prefix=f".{out.name}-", suffix=".old", dir=out.parent))
            out.rename(retired / out.name)
            folder.rename(out)
            shutil.rmtree(retired)
        else:
            folder.rename(out)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
