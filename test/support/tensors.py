"""Graphs run on PyTorch tensors, and the memory layout of a network in PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from efftam_ros.export.onnx.graphs import key_count
from efftam_ros.model.common.network import NetworkSpec
from efftam_ros.runtime.bundle import RING_SLOTS
from efftam_ros.runtime.device.memory import MemoryLayout, laid_out
from efftam_ros.runtime.verify.runners import CpuRunner


class TensorRunner:
    """One graph in onnxruntime on the CPU, tensors in and out by name."""

    def __init__(self, path: Path) -> None:
        self._runner = CpuRunner(path)

    def __call__(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        results = self._runner({name: value.contiguous().numpy() for name, value in inputs.items()})
        return {name: torch.from_numpy(value) for name, value in results.items()}


def layout_of(spec: NetworkSpec) -> MemoryLayout:
    """The layout that a bundle of this network has."""
    return MemoryLayout(
        slots=RING_SLOTS,
        rows=spec.temporal_rows,
        tokens=spec.grid**2,
        channels=spec.memory_channels,
        pointers=spec.max_pointers,
        pointer_channels=spec.channels,
        pointer_tokens=spec.pointer_tokens,
        keys=key_count(spec),
        pooled=spec.key_layout == "pooled",
        rounds=spec.memory_dtype == "bfloat16",
    )


def laid_out_tensors(spec: NetworkSpec, rows: list[int], maps: Tensor, pointers: Tensor) -> dict[str, Tensor]:
    """`laid_out` on tensors."""
    found = laid_out(layout_of(spec), rows, maps.numpy(), pointers.numpy())
    return {name: torch.from_numpy(value) for name, value in found.items()}
