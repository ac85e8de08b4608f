"""Graphs run on PyTorch tensors, and the memory layout of a network in PyTorch."""

from __future__ import annotations

import torch
from torch import Tensor

from efftam_ros.runtime.bundle import RING_SLOTS
from efftam_ros.runtime.device.memory import MemoryLayout
from efftam_workshop.agreement.compare import laid_out
from efftam_workshop.export.onnx.graphs import key_count
from efftam_workshop.model.common.network import NetworkSpec
from training.tensor_runner import TensorRunner

__all__ = ["TensorRunner", "laid_out_tensors", "layout_of"]


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
