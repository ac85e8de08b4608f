"""Building one TensorRT engine from an ONNX graph."""

from __future__ import annotations

import contextlib
import re
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx

from efftam_ros.core.errors import BackendError, InputError, one_line
from efftam_ros.runtime.cuda.api import DeviceFacts
from efftam_ros.runtime.tensorrt.engine_set import BuildOptions, ShapeRange
from efftam_ros.runtime.tensorrt.library import RTX, Library, target_of
from efftam_ros.runtime.tensorrt.store import write_atomically
from efftam_ros.tools.common.interruption import SIGNALS
from efftam_workshop.export.fp16.fp32_regions import inexact_products
from efftam_workshop.export.tensorrt.normalization import LAYER_NORMALIZATION, without_layer_normalization

Progress = Callable[[str, int, int], bool]
"""Called with (phase, step, steps) during a build, from any thread; returning False cancels the build."""

KNOWS_NORMALIZATION = (10, 6)
"""The parser of older TensorRT (JetPack 6 has 10.3) may set the precision of every LayerNormalization, which
a strongly typed network refuses."""

_REMEDY = "choose the onnxruntime back end, or export the bundle again"


class BuildCancelledError(RuntimeError):
    """The progress callback cancelled the build; nothing was stored."""


def timing_cache_path(folder: Path, library: Library, device: DeviceFacts, power_mode: str = "") -> Path:
    """The timing cache of a board in one power mode and a TensorRT version, shared by builds."""
    board = re.sub(r"[^0-9A-Za-z]+", "-", f"{device.board} {power_mode}").strip("-")
    return folder / f"timing-{board}-{library.dotted}.cache"


def build_engine(
    library: Library,
    model: bytes | Path,
    options: BuildOptions,
    progress: Progress = lambda phase, step, steps: True,
    device: DeviceFacts | None = None,
    timing_cache: Path | None = None,
) -> bytes:
    """Build the engine of an ONNX graph: a file, which may have external data beside it, or the whole graph
    as bytes.

    ``progress`` may cancel the build; ``device``: the opened GPU, not needed by TensorRT-RTX with
    ``options.target``; ``timing_cache``: file to read and update (TensorRT only); one that can't be used or
    written slows the build down and adds a warning to ``library.log``. Returns the serialized engine. Raises
    InputError (no such file, shapes of ``options.profiles`` that do not fit), BackendError (TensorRT can't
    parse or build it; with all its errors), BuildCancelledError, KeyboardInterrupt, which ends the build at
    its next step, and whatever ``progress`` raises.
    """
    target = _target(library, options, device)
    if isinstance(model, Path) and not model.is_file():
        raise InputError(f"graph {model} is not a file; export or fetch the bundle again")
    log_start = library.log.position
    trt = library.module
    builder = library.start("Builder")
    network, parser = parsed(library, builder, model, options.precision, log_start)  # owns the weights
    config = builder.create_builder_config()
    _configure(library, config, options, target)
    _add_profile(library, builder, network, config, options.profiles, log_start)
    cache = None if library.name == RTX else timing_cache  # TensorRT-RTX keeps none
    if cache is not None:
        _use_timing_cache(library, config, cache)
    watch = _BuildWatch(progress)
    config.progress_monitor = _make_monitor(trt, watch)
    with _interruptible(watch):
        built = builder.build_serialized_network(network, config)
    del parser
    watch.raise_if_stopped()
    if built is None:
        raise BackendError(f"{library.name} can't build the graph ({library.log.reason(log_start)})", _REMEDY)
    if cache is not None:
        _keep_timing_cache(library, config, cache)
    return bytes(memoryview(built))


def allowed_options(model: onnx.ModelProto, options: BuildOptions) -> BuildOptions:
    """``options`` with TF32 where it changes no product of the graph."""
    return replace(options, tf32=not inexact_products(model))


def build_graph(
    library: Library,
    model: onnx.ModelProto,
    options: BuildOptions,
    progress: Progress = lambda phase, step, steps: True,
    device: DeviceFacts | None = None,
    timing_cache: Path | None = None,
) -> bytes:
    """As `build_engine` for a graph in memory under 2 GB, with `allowed_options`: every engine is built here,
    also those whose layers are only looked at, so that their flags can't differ."""
    return build_engine(
        library, model.SerializeToString(), allowed_options(model, options), progress, device, timing_cache
    )


def _target(library: Library, options: BuildOptions, device: DeviceFacts | None) -> str:
    """The target of TensorRT-RTX, "" for TensorRT."""
    if options.target and options.target not in library.targets:
        known = ", ".join(library.targets) or f"none: {library.name} builds for the installed GPU"
        raise InputError(f"{library.name} {library.dotted} has no target {options.target}; it has {known}")
    if device is None:
        if not options.target:
            raise BackendError(
                f"building with {library.name} needs a GPU whose driver works",
                "open one, or give a target to TensorRT-RTX",
            )
        return options.target
    if options.target:
        return options.target
    library.require_device(device)
    return target_of(device) if library.name == RTX else ""


def parsed(
    library: Library, builder: Any, model: bytes | Path, precision: str, log_start: int
) -> tuple[Any, Any]:
    """Network and parser. Where an old TensorRT refuses LayerNormalization: a network without strong types
    in FP32, which is the same as long as no other precision is allowed, else one of the graph without it."""
    what = model.name if isinstance(model, Path) else "the graph"
    flag = 1 << int(library.module.NetworkDefinitionCreationFlag.STRONGLY_TYPED)

    def parse(model: bytes | Path, flags: int = flag) -> tuple[Any, Any]:
        network = builder.create_network(flags)
        parser = library.module.OnnxParser(network, library.logger)
        # Parsed by path, because TensorRT looks for external data beside the file.
        if parser.parse_from_file(str(model)) if isinstance(model, Path) else parser.parse(model):
            return network, parser
        errors = [one_line(parser.get_error(i).desc()) for i in range(parser.num_errors)]
        reason = "; ".join(errors) or library.log.reason(log_start)
        raise BackendError(f"{library.name} {library.dotted} can't parse {what} ({reason})", _REMEDY)

    try:
        return parse(model)
    except BackendError as error:
        if library.name == RTX or library.version >= KNOWS_NORMALIZATION:
            raise
        library.log.add("WARNING", f"once more without {LAYER_NORMALIZATION} or types: {error.reason}")
        if precision == "fp32":
            return parse(model, 0)
        graph = onnx.load(model) if isinstance(model, Path) else onnx.load_from_string(model)
        return parse(without_layer_normalization(graph).SerializeToString())


def _configure(library: Library, config: Any, options: BuildOptions, target: str) -> None:
    trt = library.module
    if options.tf32:
        config.set_flag(trt.BuilderFlag.TF32)
    else:
        config.clear_flag(trt.BuilderFlag.TF32)  # on by default
    if library.name == RTX:
        config.set_flag(trt.BuilderFlag.REQUIRE_USER_ALLOCATION)  # else no stream can be captured
    config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, options.workspace_bytes)
    config.builder_optimization_level = options.optimization_level
    config.max_aux_streams = options.max_aux_streams
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    if target:
        config.num_compute_capabilities = 1
        if not config.set_compute_capability(getattr(trt.ComputeCapability, target), 0):
            raise BackendError(f"{library.name} {library.dotted} refused the target {target}", _REMEDY)


def _add_profile(
    library: Library, builder: Any, network: Any, config: Any, ranges: tuple[ShapeRange, ...], log_start: int
) -> None:
    inputs = [network.get_input(i) for i in range(network.num_inputs)]
    shapes = {tensor.name: tuple(tensor.shape) for tensor in inputs}
    named = {wanted.name: wanted for wanted in ranges}
    for name, shape in shapes.items():
        wanted = named.get(name)
        if wanted is None:
            if -1 in shape:
                raise InputError(f"input {name} {shape} is dynamic and has no profile; give its shapes")
        elif len(wanted.usual) != len(shape) or any(
            axis not in (-1, *sizes) or (axis != -1 and len(set(sizes)) > 1)
            for axis, *sizes in zip(shape, wanted.smallest, wanted.usual, wanted.largest, strict=True)
        ):
            raise InputError(f"the profile {wanted.usual} of input {name} does not fit its shape {shape}")
    unknown = set(named) - set(shapes)
    if unknown:
        raise InputError(f"a profile for {min(unknown)}, which is no input; inputs are {', '.join(shapes)}")
    if not ranges:
        return
    profile = builder.create_optimization_profile()
    for wanted in ranges:
        profile.set_shape(wanted.name, wanted.smallest, wanted.usual, wanted.largest)  # has no return value
    if config.add_optimization_profile(profile) < 0:
        raise BackendError(
            f"{library.name} refused the profile of {', '.join(named)} ({library.log.reason(log_start)})",
            _REMEDY,
        )


def _use_timing_cache(library: Library, config: Any, path: Path) -> None:
    try:
        data = path.read_bytes()
    except OSError:
        data = b""  # none yet
    cache = config.create_timing_cache(data)
    if cache is None or not config.set_timing_cache(cache, False):
        library.log.add("WARNING", f"timing cache {path.name} does not fit this GPU and is replaced")
        config.set_timing_cache(config.create_timing_cache(b""), False)


def _keep_timing_cache(library: Library, config: Any, path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, bytes(memoryview(config.get_timing_cache().serialize())))
    except OSError as error:  # the engine is valid without it
        library.log.add("WARNING", f"timing cache {path} can't be written ({error.strerror})")


class _BuildWatch:
    """Decides at each step whether a build continues."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._steps: dict[str, int] = {}
        self._lock = threading.Lock()  # TensorRT reports from several threads
        self._cancelled = False
        self._error: BaseException | None = None
        self.interrupted = False

    def start(self, phase: str, steps: int) -> None:
        self._steps[phase] = steps

    def step(self, phase: str, step: int) -> bool:
        """Must not raise: TensorRT would print the error and continue without further calls."""
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
    """Let `SIGNALS` end the build at its next step, and raise the signal again afterwards.

    Needed because TensorRT discards an exception that a handler raises inside a build. A signal without a
    handler of the program's own is left alone.
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
