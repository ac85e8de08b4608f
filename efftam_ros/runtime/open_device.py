"""Opening a pipeline on a GPU: the driver is proven first, then memory, kernels and graphs are made."""

from __future__ import annotations

from pathlib import Path

from efftam_ros.core.contract import Pipeline
from efftam_ros.runtime.bundle import Bundle
from efftam_ros.runtime.cuda.api import Cuda, CudaError
from efftam_ros.runtime.cuda.device import DeviceFacts, open_device
from efftam_ros.runtime.cuda.stream import Stream
from efftam_ros.runtime.device_graph import GraphOpener
from efftam_ros.runtime.device_memory import ATTENTION
from efftam_ros.runtime.device_pipeline import DevicePipeline
from efftam_ros.runtime.unavailable import BackendUnavailable

NEEDED_BYTES = 512 << 20
"""Free device memory below which nothing is tried: the libraries alone take about as much."""


def open_device_pipeline(bundle: Bundle, backend: str) -> Pipeline:
    """The pipeline of one of the back ends that run on a GPU.

    Raises BackendUnavailable: no cuda-python, no driver, no GPU, too little memory, a library that is missing
    or can't run every heavy node there. What the process can survive is found out before anything is touched
    that would crash without a driver.
    """
    if ATTENTION not in bundle.graphs:
        raise BackendUnavailable(f"bundle {bundle.folder} lacks the graph {ATTENTION}", "export it again")
    cuda = Cuda.load()
    facts = open_device(cuda, needed_bytes=NEEDED_BYTES)
    stream = Stream(cuda)
    try:
        opener = _opener(bundle, backend, facts, stream)
    except BaseException:
        stream.close()
        raise
    try:
        return DevicePipeline(bundle, cuda, facts, stream, opener)
    except CudaError as error:
        raise BackendUnavailable(f"opening {facts.name} failed", str(error)) from error


def _opener(bundle: Bundle, backend: str, facts: DeviceFacts, stream: Stream) -> GraphOpener:
    from efftam_ros.runtime.ort_device import OrtGraphs

    if backend == "onnxruntime-cuda":
        return OrtGraphs(bundle, "cuda", stream.handle, facts.index)
    return OrtGraphs(bundle, "tensorrt", stream.handle, facts.index, engine_cache=engine_folder())


def engine_folder() -> Path:
    """Where engines are kept: ``engines/`` of the checkout, else of the user's cache."""
    checkout = Path(__file__).resolve().parents[2] / "engines"
    return checkout if checkout.is_dir() else Path.home() / ".cache" / "efftam_ros" / "engines"
