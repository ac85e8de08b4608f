"""Exports a network to a bundle: traces and checks graphs, compares them with PyTorch, writes the files."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import onnx
import torch

from efftam_ros.core.errors import InputError
from efftam_ros.runtime.bundle import FORMAT, MANIFEST, Bundle, file_sha256
from efftam_ros.version import __version__
from efftam_workshop.agreement.compare import GraphDeviation
from efftam_workshop.export.onnx.graphs import build_graphs
from efftam_workshop.export.onnx.parity import compare_with_network, require_parity
from efftam_workshop.export.onnx.trace import OPSET, Tracer
from efftam_workshop.export.onnx.weights import WeightType, prepare, share_weights, store_as_float16
from efftam_workshop.model.common.network import Network, NetworkSpec

SHARED_WEIGHTS = "memory_attention.weights"
PROTOCOL = (
    *("temporal_rows", "max_maps", "max_pointers", "pointer_tokens", "recent_maps", "memory_dtype"),
    *("default_view", "window_factor", "key_layout"),
)
"""Attributes of the network's specification that the manifest lists under "protocol", in this order."""
SHARING_GRAPHS = ("memory_attention", "memory_attention_fixed")
STEPS = 7
"""Number of calls of ``progress``: one per graph and one for the comparison."""


@dataclass(frozen=True)
class Source:
    """Origin of the weights. ``checkpoint_sha256``: hash of the checkpoint's file, "" if there is none."""

    checkpoint_sha256: str = ""
    licence: str = ""
    note: str = ""


def export_bundle(
    network: Network,
    out: Path,
    *,
    weights: WeightType = "float32",
    source: Source | None = None,
    progress: Callable[[str], None] = lambda step: None,
) -> list[GraphDeviation]:
    """Write ``network`` as a bundle to the folder ``out`` and return the differences from PyTorch.

    ``out`` must be new, empty or a bundle. An old bundle is replaced once the new one is complete.
    ``weights``: number format in which weights are stored. ``source``: noted in the manifest. ``progress``:
    called with the name of each step before the step begins. Raises InputError if ``out`` contains other
    files, a weight is out of range of the number format, or an output differs from PyTorch's by more than
    1e-3.
    """
    _require_replaceable(out)
    prepared = prepare(network, weights)
    with _replacing(out) as folder:
        graphs = _write_graphs(prepared, folder, weights, progress)
        write_manifest(folder, prepared.spec, graphs, source or Source())
        bundle = Bundle.load(folder)
        # Without a manifest the folder can't be loaded, even if the process is killed before the graphs are
        # compared.
        (folder / MANIFEST).unlink()
        progress("comparison")
        found = compare_with_network(bundle, prepared)
        require_parity(found)
        write_manifest(folder, prepared.spec, graphs, source or Source())
    return found


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
        onnx.checker.check_model(str(paths[name]), full_check=True)
    return paths


def _require_replaceable(out: Path) -> None:
    if not out.exists() or (out / MANIFEST).is_file():
        return
    if not out.is_dir():
        raise InputError(f"{out} is a file; name a folder for the bundle")
    if any(out.iterdir()):
        raise InputError(f"{out} holds other files and no bundle; name a new or empty folder")


@contextmanager
def _replacing(out: Path) -> Iterator[Path]:
    """Yield a temporary folder beside ``out``; it replaces ``out`` if the block ends without an exception."""
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


def write_manifest(folder: Path, spec: NetworkSpec, graphs: Mapping[str, Path], source: Source) -> None:
    """Write ``folder/bundle.json`` for ``graphs`` (files by name), with the hash of every file in
    ``folder``."""
    files = sorted(path for path in folder.iterdir() if path.name != MANIFEST)
    manifest = {
        "format": FORMAT,
        "name": spec.name,
        "family": spec.family,
        "image": {"side": spec.side, "mean": list(spec.image_mean), "std": list(spec.image_std)},
        "protocol": {name: getattr(spec, name) for name in PROTOCOL},
        **({} if spec.box_head is None else {"box_head": asdict(spec.box_head)}),
        "graphs": {name: _graph_entry(path) for name, path in graphs.items()},
        "files": {path.name: {"sha256": file_sha256(path), "bytes": path.stat().st_size} for path in files},
        "source": asdict(source),
        "exporter": {
            "efftam_ros": __version__,
            "torch": torch.__version__,
            "onnx": onnx.__version__,
            "opset": OPSET,
        },
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


def _graph_entry(path: Path) -> dict[str, Any]:
    graph = onnx.load(path, load_external_data=False).graph
    return {
        "file": path.name,
        "inputs": {info.name: _tensor_entry(info) for info in graph.input},
        "outputs": {info.name: _tensor_entry(info) for info in graph.output},
    }


def _tensor_entry(info: onnx.ValueInfoProto) -> dict[str, Any]:
    tensor = info.type.tensor_type
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type).name
    return {"dtype": dtype, "shape": [d.dim_param or d.dim_value for d in tensor.shape.dim]}
