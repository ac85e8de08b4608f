"""Opening a pipeline on a GPU: the driver is proven first, then memory, kernels and graphs are made."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from efftam_ros.core.errors import BackendError
from efftam_ros.runtime.bundle import Bundle
from efftam_ros.runtime.cuda.api import Cuda, CudaError
from efftam_ros.runtime.cuda.device import DeviceFacts, open_device
from efftam_ros.runtime.cuda.stream import Stream
from efftam_ros.runtime.device.memory import ATTENTION
from efftam_ros.runtime.device.pipeline import DevicePipeline
from efftam_ros.runtime.tensorrt.engine_set import EngineSet
from efftam_ros.runtime.tensorrt.library import TensorRTError, load_library

if TYPE_CHECKING:
    from efftam_ros.core.contract import Pipeline
    from efftam_ros.runtime.device.graph import GraphOpener
    from efftam_ros.runtime.verify.verify import Limits

ENGINES = {"tensorrt": "fp16", "tensorrt-fp32": "fp32", "tensorrt-int8": "int8"}
"""Back ends that run engines built beforehand, with their precision."""

NEEDED_BYTES = 512 << 20
"""Free device memory below which nothing is tried: the libraries alone take about as much."""


def open_device_pipeline(bundle: Bundle, backend: str, verify: str, zero_copy: bool = False) -> Pipeline:
    """The pipeline of one of the back ends that run on a GPU.

    ``verify``: of `pipeline.VERIFY`; ``zero_copy``: as in `pipeline.open_pipeline`.

    Raises BackendError: no cuda-bindings, no driver, no GPU, too little memory, a library that is missing or
    can't run every heavy node there, an engine that was not built, a result that is not the CPU's. What the
    process can survive is found out before anything is touched that would crash without a driver.
    """
    if ATTENTION not in bundle.graphs:
        raise BackendError(f"bundle {bundle.folder} lacks the graph {ATTENTION}", "export it again")
    cuda, facts = _opened()
    with _failures_of(facts):
        stream = Stream(cuda)
        try:
            opener = _opener(bundle, backend, facts, stream)
        except BaseException:
            stream.close()
            raise
        pipeline = DevicePipeline(bundle, cuda, facts, stream, opener, zero_copy)
        try:
            if verify != "off":
                _require_agreement(bundle, pipeline, verify, limits_of(backend))
        except BaseException:
            pipeline.close()
            raise
    return pipeline


def limits_of(backend: str) -> Limits:
    """How far a back end may be from the CPU."""
    from efftam_ros.runtime.verify.verify import INT8_LIMITS, STRICT

    return INT8_LIMITS if ENGINES.get(backend) == "int8" else STRICT


@contextmanager
def device_session() -> Iterator[tuple[Cuda, DeviceFacts, Stream]]:
    """The GPU and a stream on it, for work that is not a pipeline's. Raises BackendError."""
    cuda, facts = _opened()
    with _failures_of(facts):
        stream = Stream(cuda)
    try:
        yield cuda, facts, stream
    finally:
        stream.close()


def _opened() -> tuple[Cuda, DeviceFacts]:
    cuda = Cuda.load()
    return cuda, open_device(cuda, needed_bytes=NEEDED_BYTES)


@contextmanager
def _failures_of(facts: DeviceFacts) -> Iterator[None]:
    """Turn failed calls of the block into BackendError."""
    try:
        yield
    except (CudaError, TensorRTError) as error:
        raise BackendError(f"opening {facts.name} failed", str(error)) from error


def _opener(bundle: Bundle, backend: str, facts: DeviceFacts, stream: Stream) -> GraphOpener:
    if backend in ENGINES:
        engines = EngineSet(bundle, ENGINES[backend], load_library(), facts, engine_folder())
        return engines.opener(stream)
    from efftam_ros.runtime.onnxruntime.gpu import OrtGraphs

    if backend.startswith("onnxruntime-cuda"):
        exact = backend == "onnxruntime-cuda-fp32"
        return OrtGraphs(bundle, "cuda", stream.handle, facts.index, exact)
    return OrtGraphs(
        bundle, "tensorrt", stream.handle, facts.index, engine_cache=engine_folder(), board=facts.board
    )


def _require_agreement(bundle: Bundle, pipeline: DevicePipeline, verify: str, limits: Limits) -> None:
    """Raises BackendError when the pipeline computes something else than the CPU."""
    # With it comes onnxruntime's CPU provider, which a GPU needs for nothing else.
    from efftam_ros.runtime.verify.verify import Reference

    reference = Reference(bundle)
    with pipeline.runners() as runners:
        fault = reference.judge(runners, verify == "full", limits).fault
    if fault:
        raise BackendError(f"it does not compute what the CPU computes: {fault}", "run efftam verify")


def engine_folder() -> Path:
    """Where engines are kept: ``engines/`` of the checkout, else of the user's cache."""
    checkout = Path(__file__).resolve().parents[3] / "engines"
    return checkout if checkout.is_dir() else Path.home() / ".cache" / "efftam_ros" / "engines"
