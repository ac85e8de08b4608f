"""Runs one ONNX graph on PyTorch tensors, on the CPU."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from efftam_workshop.agreement.runners import CpuRunner


class TensorRunner:
    """Computes a graph; takes its input tensors and returns its output tensors by name."""

    def __init__(self, path: Path) -> None:
        self._runner = CpuRunner(path)

    def __call__(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        results = self._runner({name: value.contiguous().numpy() for name, value in inputs.items()})
        return {name: torch.from_numpy(value) for name, value in results.items()}
