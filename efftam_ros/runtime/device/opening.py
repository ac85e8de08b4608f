"""Opening a pipeline on a GPU: the driver is proven first, then memory, kernels and graphs are made."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from efftam_ros.core.config import expanded
from efftam_ros.core.errors import BackendError
from efftam_ros.runtime.backends import Backend, function_of
from efftam_ros.runtime.bundle import MANIFEST, Bundle, file_sha256
from efftam_ros.runtime.cuda.api import Cuda, CudaError, DeviceFacts, open_device
from efftam_ros.runtime.cuda.stream import Stream
from efftam_ros.runtime.device.graph import GraphError
from efftam_ros.runtime.device.memory import ATTENTION
from efftam_ros.runtime.device.pipeline import DevicePipeline
from efftam_ros.version import __version__

if TYPE_CHECKING:
    from efftam_ros.core.contract import Pipeline
    from efftam_ros.runtime.device.graph import GraphOpener

NEEDED_BYTES = 512 << 20
"""Free device memory below which nothing is tried: the libraries alone take about as much."""


def open_device_pipeline(
    bundle: Bundle,
    backend: Backend,
    precision: str,
    verify: str,
    zero_copy: bool = False,
    max_targets: int = 1,
) -> Pipeline:
    """Return the pipeline of one of the back ends that run on a GPU.

    ``precision``: as `Backend.resolved` returns it; ``verify``, ``zero_copy`` and ``max_targets``: see
    `PipelineConfig`.

    Raises BackendError: no cuda-bindings, no driver, no GPU, too little memory, a library that is missing or
    can't run every heavy node there, an engine that was not built, a result that is not the CPU's. What the
    process can survive is found out before anything is touched that would crash without a driver.
    """
    if ATTENTION not in bundle.graphs:
        raise BackendError(f"bundle {bundle.folder} lacks the graph {ATTENTION}", "export it again")
    # The driver first: TensorRT ends the process where none works.
    cuda, facts = _opened()
    with _failures_of(facts):
        stream = Stream(cuda)
        try:
            opener: GraphOpener = function_of(backend)(bundle, precision, facts, stream, engine_folder())
        except BaseException:
            stream.close()
            cuda.close()
            raise
        # From here on the pipeline owns driver, stream and graphs, and closes them.
        pipeline = DevicePipeline(bundle, cuda, facts, stream, opener, zero_copy, max_targets)
        try:
            if verify != "never":
                parts = {"backend": backend.name, "precision": precision, "zero_copy": zero_copy}
                _require_agreement(
                    bundle,
                    pipeline,
                    parts | {"gpu": facts.board, "driver": facts.driver_version},
                    verify == "always",
                )
        except BaseException:
            pipeline.close()
            raise
    return pipeline


@contextmanager
def device_session() -> Iterator[tuple[Cuda, DeviceFacts, Stream]]:
    """Open the GPU and a stream on it, for work that is not a pipeline's. Raises BackendError."""
    cuda, facts = _opened()
    with _failures_of(facts):
        stream = Stream(cuda)
    try:
        yield cuda, facts, stream
    finally:
        stream.close()
        cuda.close()


def _opened() -> tuple[Cuda, DeviceFacts]:
    cuda = Cuda.load()
    return cuda, open_device(cuda, needed_bytes=NEEDED_BYTES)


@contextmanager
def _failures_of(facts: DeviceFacts) -> Iterator[None]:
    """Turn failed calls of the block into BackendError."""
    try:
        yield
    except (CudaError, GraphError) as error:
        raise BackendError(f"opening {facts.name} failed", str(error)) from error


def _require_agreement(bundle: Bundle, pipeline: DevicePipeline, parts: dict[str, Any], always: bool) -> None:
    """Raise BackendError when the pipeline's results differ from the CPU's. Unless ``always``, a pipeline
    that agreed before is not checked again."""
    from efftam_ros.runtime.verify import AgreementRecord, Reference

    parts |= {"made_of": pipeline.made_of, "bundle": file_sha256(bundle.folder / MANIFEST)}
    parts |= {"targets": pipeline.max_targets, "efftam": __version__}
    record = AgreementRecord(engine_folder(), parts)
    if record.agreed and not always:
        return
    agreement = Reference(bundle, pipeline.max_targets).judge(pipeline, parts["precision"])
    record.keep(agreement)
    if agreement.fault:
        reason = f"it does not compute what the CPU computes: {agreement.fault}"
        raise BackendError(reason, "run efftam verify")


def engine_folder() -> Path:
    """Return where engines are kept: ``engines/`` of the checkout, else of the user's cache."""
    checkout = Path(__file__).resolve().parents[3] / "engines"
    return checkout if checkout.is_dir() else expanded("~/.cache/efftam_ros/engines")
