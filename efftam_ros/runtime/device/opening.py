"""Opens a pipeline on a GPU: checks the driver first, and then makes memory, kernels and graphs."""

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
"""Smallest free memory of the GPU with which a pipeline is opened, bytes.

The libraries alone need about as much memory.
"""


def open_device_pipeline(
    bundle: Bundle,
    backend: Backend,
    precision: str,
    verify: str,
    zero_copy: bool = False,
    max_targets: int = 1,
) -> Pipeline:
    """Open the pipeline of a back end that runs on a GPU.

    Args:
        bundle: The network.
        backend: The back end.
        precision: "fp32", "tf32", "fp16" or "int8", as `Backend.resolved` returns it.
        verify: When the results are compared with the CPU's: "once", "always" or "never" (`PipelineConfig`).
        zero_copy: Whether kernels read images from the host's memory.
        max_targets: Largest number of targets.

    Raises:
        BackendError: There is no cuda-bindings, no driver, no GPU, or too little memory; a library is missing
            or can't run a node on the GPU; an engine was not built; or the results differ from the CPU's. The
            driver is checked first, because some libraries end the process without one.
    """
    if ATTENTION not in bundle.graphs:
        raise BackendError(f"bundle {bundle.folder} lacks the graph {ATTENTION}", "export the bundle again")
    # The driver is checked first, because TensorRT ends the process if no driver works.
    cuda, facts = _opened()
    with _failures_of(facts):
        stream = Stream(cuda)
        try:
            opener: GraphOpener = function_of(backend)(bundle, precision, facts, stream, engine_folder())
        except BaseException:
            stream.close()
            cuda.close()
            raise
        # From here on the pipeline closes driver, stream and graphs, also if its constructor fails.
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
    """Open the GPU and a stream on it, for work without a pipeline, during a ``with`` block.

    Raises BackendError if no GPU can be used.
    """
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
    """Convert CudaError and GraphError in a ``with`` block to BackendError."""
    try:
        yield
    except (CudaError, GraphError) as error:
        raise BackendError(f"opening a pipeline on the GPU {facts.name} failed", str(error)) from error


def _require_agreement(bundle: Bundle, pipeline: DevicePipeline, parts: dict[str, Any], always: bool) -> None:
    """Raise BackendError if the pipeline's results differ from the CPU's.

    Without ``always``, a pipeline that agreed at an earlier start is not compared again. ``parts``: precision
    and other facts on which the results depend, for `AgreementRecord`. This function adds the versions, the
    engines, the bundle and the number of targets to ``parts``.
    """
    from efftam_ros.runtime.verify import AgreementRecord, Reference

    parts |= {"made_of": pipeline.made_of, "bundle": file_sha256(bundle.folder / MANIFEST)}
    parts |= {"targets": pipeline.max_targets, "efftam": __version__}
    record = AgreementRecord(engine_folder(), parts)
    if record.agreed and not always:
        return
    agreement = Reference(bundle, pipeline.max_targets).judge(pipeline, parts["precision"])
    record.keep(agreement)
    if agreement.fault:
        reason = f"the GPU does not compute what the CPU computes: {agreement.fault}"
        raise BackendError(reason, "run efftam verify")


def engine_folder() -> Path:
    """Return the folder in which engines are stored.

    This is ``engines`` in the checkout if that folder exists, else ``~/.cache/efftam_ros/engines``.
    """
    checkout = Path(__file__).resolve().parents[3] / "engines"
    return checkout if checkout.is_dir() else expanded("~/.cache/efftam_ros/engines")
