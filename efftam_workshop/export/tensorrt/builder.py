"""Builds one TensorRT engine from an ONNX graph."""

from __future__ import annotations

import contextlib
import re
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import onnx

from efftam_ros.core.errors import BackendError, one_line
from efftam_ros.runtime.cuda.api import DeviceFacts
from efftam_ros.runtime.tensorrt.engine_set import ShapeRange
from efftam_ros.runtime.tensorrt.library import Library
from efftam_ros.runtime.tensorrt.store import write_atomically
from efftam_ros.tools.common.interruption import SIGNALS
from efftam_workshop.export.fp16.fp32_regions import inexact_products
from efftam_workshop.export.tensorrt.normalization import LAYER_NORMALIZATION, without_layer_normalization

Progress = Callable[[str, int, int], bool]
"""Called with (phase, step, steps) during a build, from any thread; returning False cancels the build."""

KNOWS_NORMALIZATION = (10, 6)
"""First version of TensorRT whose parser keeps LayerNormalization in a strongly typed network.

Older parsers (JetPack 6 has 10.3) may set the precision of LayerNormalization, which such a network refuses.
"""

WORKSPACE_BYTES = 1 << 30
"""GPU memory that one layer may use."""

_REMEDY = "choose the onnxruntime back end, or export the bundle again"


class BuildCancelledError(RuntimeError):
    """The progress callback cancelled the build; nothing was stored."""


def timing_cache_path(folder: Path, library: Library, device: DeviceFacts, power_mode: str = "") -> Path:
    """Return the path of the timing cache for a board, its power mode and a TensorRT version.

    Builds for the same three share the cache.
    """
    board = re.sub(r"[^0-9A-Za-z]+", "-", f"{device.board} {power_mode}").strip("-")
    return folder / f"timing-{board}-{library.dotted}.cache"


def build_engine(
    library: Library,
    model: onnx.ModelProto,
    precision: str = "fp32",
    profiles: Sequence[ShapeRange] = (),
    progress: Progress = lambda phase, step, steps: True,
    timing_cache: Path | None = None,
) -> bytes:
    """Build the engine of a graph under 2 GB on the opened GPU and return the serialized engine.

    ``precision``: only a label, because the types in the graph decide. ``profiles``: shape ranges of the
    dynamic inputs. ``progress``: can cancel the build. ``timing_cache``: file that is read and updated; if it
    can't be used or written, the build takes longer and ``library.log`` gets a warning.

    Raises BackendError, with all errors of TensorRT, if the graph can't be parsed or built;
    BuildCancelledError; KeyboardInterrupt, which ends the build at its next step; and whatever ``progress``
    raises.
    """
    log_start = library.log.position
    builder = library.start("Builder")
    network, parser = parsed(library, builder, model, precision)  # keep the parser alive: it owns the weights
    config = builder.create_builder_config()
    _configure(library.module, config, allows_tf32(model))
    if profiles:
        _add_profile(library, builder, config, profiles)
    if timing_cache is not None:
        _use_timing_cache(library, config, timing_cache)
    watch = _BuildWatch(progress)
    config.progress_monitor = _make_monitor(library.module, watch)
    with _interruptible(watch):
        built = builder.build_serialized_network(network, config)
    del parser
    watch.raise_if_stopped()
    if built is None:
        raise BackendError(f"TensorRT can't build the graph ({library.log.reason(log_start)})", _REMEDY)
    if timing_cache is not None:
        _keep_timing_cache(library, config, timing_cache)
    return bytes(memoryview(built))


def allows_tf32(model: onnx.ModelProto) -> bool:
    """Return whether TF32 (FP32 products with factors of 10 bits) changes no product of the graph."""
    return not inexact_products(model)


def parsed(library: Library, builder: Any, model: onnx.ModelProto, precision: str) -> tuple[Any, Any]:
    """Return TensorRT's network and parser for ``model``.

    An old TensorRT may refuse LayerNormalization. Then an FP32 graph becomes a network without strong types,
    which computes the same because no other precision is allowed; in other graphs LayerNormalization is
    replaced by simple operators. Raises BackendError if the graph can't be parsed.
    """

    def parse(model: onnx.ModelProto, is_typed: bool = True) -> tuple[Any, Any]:
        log_start = library.log.position
        flag = 1 << int(library.module.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
        network = builder.create_network(flag if is_typed else 0)
        parser = library.module.OnnxParser(network, library.logger)
        if parser.parse(model.SerializeToString()):
            return network, parser
        errors = [one_line(parser.get_error(i).desc()) for i in range(parser.num_errors)]
        reason = "; ".join(errors) or library.log.reason(log_start)
        raise BackendError(f"TensorRT {library.dotted} can't parse {model.graph.name} ({reason})", _REMEDY)

    try:
        return parse(model)
    except BackendError as error:
        if library.version >= KNOWS_NORMALIZATION:
            raise
        library.log.add("WARNING", f"once more without {LAYER_NORMALIZATION} or types: {error.reason}")
        if precision == "fp32":
            return parse(model, is_typed=False)
        return parse(without_layer_normalization(model))


def _configure(trt: Any, config: Any, tf32: bool) -> None:
    if tf32:
        config.set_flag(trt.BuilderFlag.TF32)
    else:
        config.clear_flag(trt.BuilderFlag.TF32)  # TF32 is on by default
    config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, WORKSPACE_BYTES)
    config.max_aux_streams = 0  # all work on one stream
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED


def _add_profile(library: Library, builder: Any, config: Any, ranges: Sequence[ShapeRange]) -> None:
    log_start = library.log.position
    profile = builder.create_optimization_profile()
    for wanted in ranges:
        profile.set_shape(wanted.name, wanted.smallest, wanted.usual, wanted.largest)  # returns no status
    if config.add_optimization_profile(profile) < 0:
        names = ", ".join(wanted.name for wanted in ranges)
        raise BackendError(
            f"TensorRT refused the profile of {names} ({library.log.reason(log_start)})", _REMEDY
        )


def _use_timing_cache(library: Library, config: Any, path: Path) -> None:
    try:
        data = path.read_bytes()
    except OSError:
        data = b""  # there is no timing cache yet
    cache = config.create_timing_cache(data)
    if cache is None or not config.set_timing_cache(cache, False):
        library.log.add("WARNING", f"timing cache {path.name} does not fit this GPU and is replaced")
        config.set_timing_cache(config.create_timing_cache(b""), False)


def _keep_timing_cache(library: Library, config: Any, path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, bytes(memoryview(config.get_timing_cache().serialize())))
    except OSError as error:  # only a warning, because the engine is valid without the file
        library.log.add(
            "WARNING", f"timing cache {path} can't be written ({error.strerror}); free space there"
        )


class _BuildWatch:
    """Decides at each step of a build whether the build continues."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._steps: dict[str, int] = {}
        self._lock = threading.Lock()  # TensorRT calls `step` from several threads
        self._cancelled = False
        self._error: BaseException | None = None
        self.interrupted = False

    def start(self, phase: str, steps: int) -> None:
        self._steps[phase] = steps

    def step(self, phase: str, step: int) -> bool:
        """Return whether the build continues. Never raises: TensorRT would print the error and go on."""
        with self._lock:
            if not self._stopped:
                try:
                    self._cancelled = not self._progress(phase, step, self._steps.get(phase, 0))
                except BaseException as error:
                    self._error = error
            return not self._stopped

    @property
    def _stopped(self) -> bool:
        return self._cancelled or self.interrupted or self._error is not None

    def raise_if_stopped(self) -> None:
        if self._error is not None:
            raise self._error
        if self._cancelled or self.interrupted:
            raise BuildCancelledError("the build was cancelled; nothing was stored")


def _make_monitor(trt: Any, watch: _BuildWatch) -> Any:
    class Monitor(trt.IProgressMonitor):
        def __init__(self) -> None:
            trt.IProgressMonitor.__init__(self)

        def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
            watch.start(phase_name, num_steps)

        def step_complete(self, phase_name: str, step: int) -> bool:
            return watch.step(phase_name, step)

        def phase_finish(self, phase_name: str) -> None:
            pass

    return Monitor()


@contextlib.contextmanager
def _interruptible(watch: _BuildWatch) -> Iterator[None]:
    """End the build at its next step when one of `SIGNALS` arrives; raise the signal again after the block.

    This is needed because TensorRT discards an exception that a signal handler raises during a build. Signals
    without a Python handler are left alone.
    """
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    handlers = {number: handler for number, handler in handlers.items() if callable(handler)}
    if threading.current_thread() is not threading.main_thread():
        handlers = {}
    received: list[int] = []

    def interrupt(number: int, frame: Any) -> None:
        watch.interrupted = True
        received.append(number)

    for number in handlers:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if received:
            signal.raise_signal(received[0])
