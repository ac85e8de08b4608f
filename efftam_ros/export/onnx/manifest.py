"""Writes bundle.json: what the runtime must know of a bundle without opening its graphs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import torch

import efftam_ros
from efftam_ros.export.onnx.trace import OPSET
from efftam_ros.model.common.network import NetworkSpec
from efftam_ros.runtime.bundle import file_sha256

FORMAT = 1
FILE_NAME = "bundle.json"


@dataclass(frozen=True)
class Source:
    """Where the weights come from. ``checkpoint_sha256`` of the file they were read from, empty for none."""

    checkpoint_sha256: str = ""
    licence: str = ""
    note: str = ""


def write_manifest(folder: Path, spec: NetworkSpec, graphs: Mapping[str, Path], source: Source) -> None:
    """Write ``folder/bundle.json`` for these graph files; every file already in ``folder`` is listed with
    its hash."""
    files = sorted(path for path in folder.iterdir() if path.name != FILE_NAME)
    manifest = {
        "format": FORMAT,
        "name": spec.name,
        "family": spec.family,
        "image": {"side": spec.side, "mean": list(spec.image_mean), "std": list(spec.image_std)},
        "protocol": {
            "temporal_rows": spec.temporal_rows,
            "max_maps": spec.max_maps,
            "max_pointers": spec.max_pointers,
            "pointer_tokens": spec.pointer_tokens,
            "recent_maps": spec.recent_maps,
            "memory_dtype": spec.memory_dtype,
            "default_view": spec.default_view,
            "window_factor": spec.window_factor,
            "key_layout": spec.key_layout,
        },
        "graphs": {name: _graph_entry(path) for name, path in graphs.items()},
        "files": {path.name: {"sha256": file_sha256(path), "bytes": path.stat().st_size} for path in files},
        "source": {
            "checkpoint_sha256": source.checkpoint_sha256,
            "licence": source.licence,
            "note": source.note,
        },
        "exporter": {
            "efftam_ros": efftam_ros.__version__,
            "torch": torch.__version__,
            "onnx": onnx.__version__,
            "opset": OPSET,
        },
    }
    (folder / FILE_NAME).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


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
