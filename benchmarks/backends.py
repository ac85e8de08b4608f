"""Opens a back end in one of its precisions, or a PyTorch baseline, by a name such as "tensorrt:fp16"."""

from __future__ import annotations

from pathlib import Path

from efftam_ros.core.contract import Pipeline
from efftam_ros.core.errors import BackendError
from efftam_ros.runtime.backends import TABLE, PipelineConfig
from efftam_ros.runtime.bundle import Bundle, default_bundle
from efftam_ros.runtime.opening import open_pipeline

BASELINES = {
    "torch": ("cpu", "fp32"),
    "torch-cuda": ("cuda", "fp32"),
    "torch-cuda-bf16": ("cuda", "bf16"),
    "torch-cuda-compiled": ("cuda", "compiled"),
}
"""Device and mode (one of `benchmarks.pytorch.modes.MODES`) of each PyTorch baseline."""
MEASURABLE = (
    *(
        row.name if precision == "auto" else f"{row.name}:{precision}"
        for row in TABLE
        for precision in row.variants
    ),
    *BASELINES,
)


def open_baseline(bundle: Path | None, name: str, threads: int = 0) -> Pipeline:
    """Open the PyTorch pipeline of a bundle's network.

    ``bundle``: None: the shipped one. ``name``: one of `BASELINES`. ``threads``: CPU threads, 0: the default.

    Raises:
        InputError: Invalid bundle.
        BackendError: PyTorch is not installed, or can't use the device.
    """
    device, mode = BASELINES[name]
    opened = Bundle.load(bundle) if bundle is not None else default_bundle()
    try:
        from benchmarks.pytorch.torch_pipeline import TorchPipeline

        return TorchPipeline.from_bundle(opened, threads=threads, device=device, mode=mode)
    except ModuleNotFoundError as error:
        reason = f"baseline {name} can't run: the Python module {error.name} is not installed"
        raise BackendError(reason, "pip install torch onnx") from error
    except BackendError as error:
        raise BackendError(f"baseline {name} can't run: {error.reason}", error.remedy) from error


def open_measurable(bundle: Path | None, name: str, threads: int = 0, zero_copy: bool = False) -> Pipeline:
    """Open one of `MEASURABLE`: a back end, as "name" or "name:precision", or a PyTorch baseline.

    ``bundle``: None: the shipped one. ``threads``: CPU threads, 0: the default. ``zero_copy``: a GPU reads
    images from host memory. Raises the errors of `open_pipeline` and `open_baseline`.
    """
    if name in BASELINES:
        return open_baseline(bundle, name, threads)
    backend, _, precision = name.partition(":")
    return open_pipeline(
        PipelineConfig(
            bundle="" if bundle is None else str(bundle),
            backend=backend,
            precision=precision or "auto",
            threads=threads,
            zero_copy=zero_copy,
        )
    )
