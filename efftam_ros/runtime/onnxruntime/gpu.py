"""Network graphs on the GPU through onnxruntime's CUDA and TensorRT providers."""

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

# In older versions every replay of a captured graph blocks the host: some tens of microseconds, against
# milliseconds for the hundreds of launches of a graph that is not captured.
_ASYNCHRONOUS_REPLAY = (1, 28)

# y = x + x on eight floats (opset 17), to check that onnxruntime has kernels for this GPU.
_PROBE = (
    b'\x08\x08:9\n\x0e\n\x01x\n\x01x\x12\x01y"\x03Add\x12\x05probe'
    b"Z\x0f\n\x01x\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08\x08"
    b"b\x0f\n\x01y\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08\x08B\x04\n\x00\x10\x11"
)


class OrtGraphs:
    """A `GraphOpener` on one of onnxruntime's GPU providers.

    Every session has only the requested provider, so that there is no silent fallback: a graph runs on it as
    a whole or an error is raised. Nodes that TensorRT can't run are not given to the CUDA provider either.

    All calls must come from one thread, because onnxruntime keeps captured CUDA graphs per thread. While a
    first run captures, no other thread may allocate GPU memory.
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
        """``stream``: cudaStream_t as a number, not the default one, must outlive the graphs; ``device``:
        index of the GPU; ``exact``: products without TF32 (CUDA only); ``engine_cache``: folder of TensorRT
        engines, None to build them at every start; ``board``: `DeviceFacts.board`, as engines of other boards
        are not used; ``ort``: a module in place of onnxruntime, for tests. Raises BackendError when the
        provider can't run here."""
        self._ort = ort if ort is not None else _import_onnxruntime()
        self._bundle, self._provider, self._exact = bundle, provider, exact
        self._stream, self._device = stream, device
        self._engine_cache, self._board = engine_cache, board
        self._opened: list[OrtGraph] = []
        self._caches: list[Path] = []
        load_libraries(self._ort, provider)
        # Since 1.26 every session on a built-in provider is reported as one without a plugin, at the level of
        # warnings; what matters is checked here and raised as an error.
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
        """Open a graph. Raises BackendError naming graph and node when it can't run on the provider as a
        whole, InputError when the file is damaged or its tensors differ from the manifest."""
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
        """Return why the host waits for replays; "" when it does not."""
        version = self._ort.__version__
        if tuple(int(part) for part in re.findall(r"\d+", version)[:2]) < _ASYNCHRONOUS_REPLAY:
            return f"onnxruntime {version} waits for every replay, 1.28 does not"
        return ""

    def _open(self, name: str, no_capture: str) -> OpenedSession:
        """Open a session as strictly as possible. ``no_capture``: why not to capture, "" to try it. One that
        fails with the strict option is opened without it, and its nodes are checked instead: those that only
        compute shapes may run on the CPU."""
        graph, asked, strict = self._bundle.graphs[name], PROVIDERS[self._provider], True
        while True:
            providers = [(asked, self._options(graph, capture=not no_capture))]
            try:
                session = self._ort.InferenceSession(
                    str(graph.path), session_options(self._ort, strict), providers, enable_fallback=0
                )
                break
            except Exception as error:
                # One demand is given up at a time, so that the report names the one that failed.
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
        """Run a minimal graph: a build without kernels for this GPU fails only when a graph runs."""
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
    """Return the CUDA provider; ``precision``: "tf32" or "fp32". ``folder`` is not used: nothing is built."""
    return OrtGraphs(bundle, "cuda", stream.handle, facts.index, exact=precision == "fp32")


def open_tensorrt(
    bundle: Bundle, precision: str, facts: DeviceFacts, stream: Stream, folder: Path
) -> OrtGraphs:
    """Return the TensorRT provider in its only precision, with its engines cached in ``folder``."""
    return OrtGraphs(bundle, "tensorrt", stream.handle, facts.index, engine_cache=folder, board=facts.board)


def _import_onnxruntime() -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        remedy = backend_of("onnxruntime-cuda").install.here()
        raise BackendError(f"onnxruntime can't be imported ({error})", remedy) from error
    return onnxruntime
