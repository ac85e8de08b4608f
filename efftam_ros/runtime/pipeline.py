"""Opening a pipeline: which back ends there are, and the one that is asked for or a clear refusal."""

from __future__ import annotations

from pathlib import Path

from efftam_ros.core.contract import InputRefused, Pipeline
from efftam_ros.runtime.bundle import Bundle, default_bundle
from efftam_ros.runtime.unavailable import BackendUnavailable

DEFAULT_BACKEND = "onnxruntime-cpu"
BACKENDS = (DEFAULT_BACKEND, "onnxruntime-cuda", "onnxruntime-tensorrt", "tensorrt", "torch")


def open_pipeline(
    bundle: str | Path | Bundle | None = None, backend: str = DEFAULT_BACKEND, threads: int = 0
) -> Pipeline:
    """Load a bundle (default: the one that ships) into a back end, ready for the first frame.

    ``threads``: CPU threads of the network, 0 for one per physical core up to four. Raises InputRefused
    (unknown back end, faulty bundle) and BackendUnavailable (never a slower back end in place of the one
    asked for).
    """
    if backend not in BACKENDS:
        raise InputRefused(f"back end {backend!r} is not known; choose one of {', '.join(BACKENDS)}")
    if threads < 0:
        raise InputRefused(f"threads is {threads}; give 0 (automatic) or a positive number")
    if backend not in (DEFAULT_BACKEND, "torch"):
        raise BackendUnavailable(
            f"back end {backend} can't run: this version computes on the CPU only",
            f"choose {DEFAULT_BACKEND}",
        )
    if not isinstance(bundle, Bundle):
        bundle = Bundle.load(bundle) if bundle is not None else default_bundle()
    if backend == "torch":
        try:
            from efftam_ros.runtime.torch_eager import TorchPipeline
        except ModuleNotFoundError as error:
            raise _missing(error, backend, "efftam_ros[export]") from error
        return TorchPipeline.from_bundle(bundle, threads=threads)
    try:
        from efftam_ros.runtime.ort import OrtPipeline
    except ModuleNotFoundError as error:
        raise _missing(error, backend, "onnxruntime") from error
    return OrtPipeline(bundle, threads=threads)


def _missing(error: ModuleNotFoundError, backend: str, package: str) -> BackendUnavailable:
    return BackendUnavailable(
        f"back end {backend} needs the Python module {error.name}, which is not installed",
        f"pip install '{package}'",
    )
