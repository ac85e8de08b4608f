"""A copy of a bundle with quantised graphs for the CPU, to measure what INT8 costs in accuracy."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import onnx

from efftam_ros.export.fp16.convert import plain_graph
from efftam_ros.export.int8.calibration import CalibrationClip, dynamic_inputs, recorded_inputs
from efftam_ros.export.int8.quantize import INT8_MODULES, quantizable, quantize
from efftam_ros.runtime.bundle import MANIFEST, Bundle, file_sha256
from efftam_ros.runtime.device.memory import ATTENTION, GRAPHS
from efftam_ros.runtime.verify.runners import CpuRunner

CPU_ATTENTION = "memory_attention"
"""The form of memory attention that the CPU runs, in the place of `ATTENTION`."""


def write_quantized_bundle(bundle: Bundle, clip: CalibrationClip, out: Path) -> list[str]:
    """Write ``bundle`` with Q/DQ pairs around the products that INT8 engines quantise to the new folder
    ``out``.

    What stays in FP16 on a GPU is FP32 here. Returns the names of the quantised graphs.
    """
    shutil.copytree(bundle.folder, out)
    runners = {name: CpuRunner(bundle.graphs[name].path) for name in GRAPHS}
    samples = recorded_inputs(bundle, runners, clip, INT8_MODULES)
    written = []
    for module, inputs in samples.items():
        name, given = (CPU_ATTENTION, dynamic_inputs(inputs)) if module == ATTENTION else (module, inputs)
        model = plain_graph(onnx.load(bundle.graphs[name].path))
        if quantizable(model):
            (out / bundle.graphs[name].path.name).write_bytes(quantize(model, given).SerializeToString())
            written.append(name)
    _list_again(out, [bundle.graphs[name].path.name for name in written])
    return written


def _list_again(folder: Path, files: list[str]) -> None:
    """Write the hashes of changed files into the manifest."""
    path = folder / MANIFEST
    manifest = json.loads(path.read_text())
    for name in files:
        changed = folder / name
        manifest["files"][name] = {"sha256": file_sha256(changed), "bytes": changed.stat().st_size}
    path.write_text(json.dumps(manifest, indent=2) + "\n")
