"""Opens graphs of the network on the GPU by onnxruntime's CUDA and TensorRT providers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal

import numpy as np

from efftam_ros.core.errors import BackendError
from efftam_ros.runtime.backends import backend_of
from efftam_ros.runtime.bundle import Bundle, BundleGraph, file_sha256
from efftam_ros.runtime.cuda.api import DeviceFacts
from efftam_ros.runtime.cuda.stream import Stream
from efftam_ros.runtime.onnxruntime.graph import (
    GraphContext,
    OpenedSession,
    OrtGraph,
    check_placement,
    check_provider,
    read_assignment,
)
from efftam_ros.runtime.onnxruntime.libraries import (
    PROVIDERS,
    first_line,
    is_capture_error,
    is_cpu_fallback_error,
    load_libraries,
    opening_error,
    tensorrt_version,
)
from efftam_ros.runtime.onnxruntime.options import (
    ERRORS_ONLY,
    cuda_options,
    provider_cache_folder,
    session_options,
    tensorrt_options,
)

# In older versions the host waits after every launch of a captured CUDA graph, for some tens of microseconds.
# Capturing is still faster: without it, the hundreds of launches of a graph take milliseconds.
_ASYNCHRONOUS_REPLAY = (1, 28)

# An ONNX model that computes y = x + x for eight floats. It is run to check that onnxruntime has kernels for
# this GPU.
_PROBE = (
    b'\x08\x08:9\n\x0e\n\x01x\n\x01x\x12\x01y"\x03Add\x12\x05probe'
    b"Z\x0f\n\x01x\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08\x08"
    b"b\x0f\n\x01y\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08\x08B\x04\n\x00\x10\x11"
)


class OrtGraphs:
    """A `GraphOpener` that uses one of onnxruntime's GPU providers.

    Every session has only the requested provider. So a graph runs completely on this provider, or an error is
    raised; nothing falls back silently. Nodes that TensorRT can't run are not given to the CUDA provider
    either.

    All calls must come from one thread, because onnxruntime stores captured CUDA graphs for each thread
    separately. During the first run of a binding, which captures, no other thread may allocate GPU memory.
    """

    notice = ""

    def __init__(
        self,
        bundle: Bundle,
        provider: Literal["cuda", "tensorrt"],
        stream: int,
        device: int = 0,
        exact: bool = False,
        engine_cache: Path | None = None,
        board: str = "",
        *,
        ort: Any = None,
    ) -> None:
        """Check that the provider can run here.

        Args:
            bundle: The network.
            provider: The provider of onnxruntime.
            stream: Address of a cudaStream_t that is not the default stream. It must exist until `close`.
            device: Index of the GPU.
            exact: Whether the CUDA provider computes products in FP32; if not, in TF32.
            engine_cache: Folder in which engines of the TensorRT provider are stored; None: they are built at
                every start.
            board: `DeviceFacts.board`; engines that were built on another board are not used.
            ort: A module to use in place of onnxruntime, for tests.

        Raises:
            BackendError: The provider can't run here.
        """
        self._ort = ort if ort is not None else _import_onnxruntime()
        self._bundle, self._provider, self._exact = bundle, provider, exact
        self._stream, self._device = stream, device
        self._engine_cache, self._board = engine_cache, board
        self._opened: list[OrtGraph] = []
        self._caches: list[Path] = []
        load_libraries(self._ort, provider)
        # From version 1.26 on, onnxruntime logs a warning for every session that does not use a plugin. So
        # warnings are switched off. This class itself checks what matters, and raises errors.
        self._ort.set_default_logger_severity(ERRORS_ONLY)
        if provider == "cuda":
            self._probe()

    @property
    def device_bytes(self) -> int:
        """0, because onnxruntime's Python API does not report the size of its arena."""
        return 0

    @property
    def made_of(self) -> str:
        version = f"onnxruntime {self._ort.__version__}"
        if self._provider == "cuda":
            return version
        engines = sorted(path for folder in self._caches for path in folder.glob("*.engine"))
        return " ".join((version, tensorrt_version(), *map(file_sha256, engines)))

    def open(self, name: str) -> OrtGraph:
        """Open the graph with this name in the bundle.

        Raises BackendError, with the names of graph and node, if a node can't run on the provider. Raises
        InputError if the file is damaged or its tensors differ from the manifest.
        """
        waits = "onnxruntime's TensorRT provider waits for the GPU after every replay"
        opened = self._open(name, no_capture=waits if self._provider == "tensorrt" else "")
        self._bundle.check_session(name, opened.session.get_inputs(), opened.session.get_outputs())
        context = GraphContext(self._ort, self._device, self._open, self._replay_waits())
        graph = OrtGraph(self._bundle.graphs[name], opened, context)
        self._opened.append(graph)
        return graph

    def close(self) -> None:
        for graph in self._opened:
            graph.close()
        self._opened = []

    def _replay_waits(self) -> str:
        """Return why the host waits after each launch of a CUDA graph; "" if it does not wait."""
        version = self._ort.__version__
        if tuple(int(part) for part in re.findall(r"\d+", version)[:2]) < _ASYNCHRONOUS_REPLAY:
            return f"onnxruntime {version} waits after each launch of the graph, 1.28 does not"
        return ""

    def _open(self, name: str, no_capture: str) -> OpenedSession:
        """Open a session for a graph, if possible one that captures CUDA graphs and has no node on the CPU.

        The strict option makes opening fail if a node would run on the CPU. The session is then opened
        without this option, and its nodes are checked: only nodes that compute shapes may run on the CPU.

        ``no_capture``: why the session must not capture CUDA graphs; "" if it may.
        """
        graph, asked, strict = self._bundle.graphs[name], PROVIDERS[self._provider], True
        while True:
            providers = [(asked, self._options(graph, capture=not no_capture))]
            try:
                session = self._ort.InferenceSession(
                    str(graph.path), session_options(self._ort, strict), providers, enable_fallback=0
                )
                break
            except Exception as error:
                # Only the option that caused this error, capture or the strict option, is switched off before
                # the next try. So `no_capture` gets the right reason.
                if not no_capture and is_capture_error(error):
                    no_capture = first_line(error)
                elif strict and is_cpu_fallback_error(error):
                    strict, no_capture = False, no_capture or "nodes run on the CPU"
                else:
                    raise opening_error(error, name, graph.path, self._ort) from error
        check_provider(session.get_providers(), asked, name)
        assignment = read_assignment(session)
        if assignment is None and not strict:
            raise BackendError(
                f"onnxruntime {self._ort.__version__} runs nodes of {name} on the CPU"
                " and does not report which",
                "use onnxruntime 1.24 or newer",
            )
        if assignment is not None and (others := check_placement(assignment, asked, name)):
            types = ", ".join(sorted({node.op_type for node in others}))
            no_capture = f"{types} on {others[0].provider}"
        return OpenedSession(session, no_capture)

    def _options(self, graph: BundleGraph, capture: bool) -> dict[str, str]:
        if self._provider == "cuda":
            return cuda_options(self._stream, self._device, self._exact, capture)
        options = tensorrt_options(self._stream, self._device, graph, None)
        if self._engine_cache is None:
            return options
        made_for = (self._ort.__version__, tensorrt_version(), self._board)
        folder = provider_cache_folder(self._engine_cache, self._bundle, graph.name, options, made_for)
        self._caches.append(folder)
        return tensorrt_options(self._stream, self._device, graph, folder)

    def _probe(self) -> None:
        """Run a minimal graph. Raises BackendError if onnxruntime can't compute on this GPU.

        This is needed because onnxruntime without kernels for this GPU fails only when a graph runs.
        """
        asked = PROVIDERS["cuda"]
        options = cuda_options(self._stream, self._device, self._exact, capture=False)
        try:
            session = self._ort.InferenceSession(
                _PROBE, session_options(self._ort, False), [(asked, options)], enable_fallback=0
            )
            check_provider(session.get_providers(), asked, "a test graph")
            session.run(None, {"x": np.ones(8, np.float32)})
        except BackendError:
            raise
        except Exception as error:
            raise opening_error(error, "a test graph", "", self._ort) from error


def open_cuda(bundle: Bundle, precision: str, facts: DeviceFacts, stream: Stream, folder: Path) -> OrtGraphs:
    """Return the `GraphOpener` for onnxruntime's CUDA provider, on this GPU and stream.

    ``precision``: "tf32" or "fp32". ``folder`` is not used, because this provider stores no engines.
    """
    return OrtGraphs(bundle, "cuda", stream.handle, facts.index, exact=precision == "fp32")


def open_tensorrt(
    bundle: Bundle, precision: str, facts: DeviceFacts, stream: Stream, folder: Path
) -> OrtGraphs:
    """Return the `GraphOpener` for onnxruntime's TensorRT provider, on this GPU and stream.

    Engines are stored in ``folder``. ``precision`` is not used, because the provider has only one precision.
    """
    return OrtGraphs(bundle, "tensorrt", stream.handle, facts.index, engine_cache=folder, board=facts.board)


def _import_onnxruntime() -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        remedy = backend_of("onnxruntime-cuda").install.here()
        raise BackendError(f"onnxruntime can't be imported ({error})", remedy) from error
    return onnxruntime
