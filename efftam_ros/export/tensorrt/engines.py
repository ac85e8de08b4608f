"""Builds the engines of a bundle, compares them with the CPU and stores those that agree."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

import onnx
from numpy.typing import NDArray

from efftam_ros.core.errors import BackendError, InputError, one_line
from efftam_ros.export.fp16.attention import attentions
from efftam_ros.export.fp16.checks import check_fp16
from efftam_ros.export.fp16.convert import Fp16Options, convert, load_graphs
from efftam_ros.export.fp16.divergence import first_divergent_block
from efftam_ros.export.tensorrt.builder import (
    BuildCancelledError,
    Progress,
    build_engine,
    timing_cache_path,
)
from efftam_ros.runtime.cuda.api import Cuda, DeviceLostError
from efftam_ros.runtime.cuda.stream import Stream
from efftam_ros.runtime.device.memory import GRAPHS
from efftam_ros.runtime.signatures import Tensor
from efftam_ros.runtime.tensorrt.engine_set import EngineSet
from efftam_ros.runtime.tensorrt.runner import TrtGraphs
from efftam_ros.runtime.verify.runners import Arrays, CpuRunner, DeviceRunner, Runner
from efftam_ros.runtime.verify.verify import MOST_DEVIATION, Agreement, Reference

FP32 = "fp32"
FORMS = {"fp32": (FP32,), "fp16": ("", "unfused_fp32", FP32)}
"""Forms tried for each module in order: FP32, or a form of `fp16.attention`, "" for the module's default."""
ALLOWED = ("fused_fp32", "unfused_fp32")
"""Forms that may be requested; all_fp16 is left out because it accumulates scores in FP16."""


@dataclass(frozen=True)
class BuiltEngine:
    """A built engine that is not stored yet.

    Attributes:
        module: Name of its graph in the bundle.
        form: "fp32", or the precision form of its attention blocks in FP16.
        plan: The serialized engine.
        seconds: Duration of the build.
        layers: Number of layers, as the engine reports them.
        precisions: Data types of the layers' output tensors.
        fused: Names of the fused attention kernels.
        rejected: Forms that were tried before, with the reason.
    """

    module: str
    form: str
    plan: bytes
    seconds: float
    layers: int
    precisions: tuple[str, ...]
    fused: tuple[str, ...]
    rejected: tuple[str, ...]

    def report(self, agreement: Agreement) -> dict[str, Any]:
        """The report stored beside the engine, as JSON values."""
        record = {key: value for key, value in asdict(self).items() if key != "plan"}
        deviations = {d.output: d.relative for d in agreement.deviations if d.graph == self.module}
        record["deviations"] = deviations
        if agreement.clip is not None:
            record["clip"] = {"mean": agreement.clip.mean, "worst": agreement.clip.worst}
        made: dict[str, Any] = json.loads(json.dumps(record))
        return made


class EngineBuilder:
    """Builds the engines of an `EngineSet`; engines that disagree with the CPU are never stored."""

    def __init__(
        self,
        engines: EngineSet,
        cuda: Cuda,
        stream: Stream,
        say: Callable[[str], None],
        progress: Progress = lambda phase, step, steps: True,
        attention: Mapping[str, str] | None = None,
    ) -> None:
        """
        Args:
            engines: What to build, and where to store it.
            cuda: The CUDA driver.
            stream: Stream on which engines are compared.
            say: Called with one line for each step and for each rejected form.
            progress: Progress of TensorRT's builder.
            attention: First form to try for a module, out of `ALLOWED`, in place of its default.

        Raises:
            InputError: Unknown module or form.
        """
        for module, form in (attention or {}).items():
            if module not in GRAPHS or form not in ALLOWED:
                raise InputError(
                    f"attention {module}={form} can't be built; modules are {', '.join(GRAPHS)},"
                    f" forms {', '.join(ALLOWED)}"
                )
        self._wanted = dict(attention or {})
        self._engines, self._cuda, self._stream = engines, cuda, stream
        self._say, self._progress = say, progress
        self._models: dict[str, onnx.ModelProto] = {}

    def build(self, force: bool = False) -> dict[str, dict[str, Any]]:
        """Build, compare and store all modules; with ``force`` also where stored engines fit.

        Returns the reports by module. Raises BackendError when no form of a module agrees with the CPU,
        naming the module and its first wrong block; nothing is stored then. Raises InputError when the folder
        can't be written.
        """
        self._engines.load_or_build(self._build_all, self._say, force)
        reports = {name: self._engines.report(name) for name in GRAPHS}
        return {name: report for name, report in reports.items() if report is not None}

    def _build_all(self) -> dict[str, tuple[bytes, dict[str, Any]]]:
        bundle = self._engines.bundle
        self._say(f"{bundle.spec.name}: computing the reference on the CPU")
        self._models = load_graphs(bundle)
        reference = Reference(bundle)
        built = {name: self._module(name, reference, self._forms_of(name), ()) for name in GRAPHS}
        agreement = self._compare_together(built, reference)
        return {name: (engine.plan, engine.report(agreement)) for name, engine in built.items()}

    def _forms_of(self, name: str) -> tuple[str, ...]:
        forms = FORMS[self._engines.precision]
        return (self._wanted[name], *forms[1:]) if name in self._wanted else forms

    def _module(
        self, name: str, reference: Reference, forms: tuple[str, ...], rejected: tuple[str, ...]
    ) -> BuiltEngine:
        """The engine of the first form whose outputs agree with the CPU's."""
        found = attentions(self._models[name])
        faults = list(rejected)
        tried = set()
        for wanted in forms:
            model, form = self._converted(name, wanted)
            if form in tried or (form == "unfused_fp32" and not found):
                continue
            tried.add(form)
            self._say(f"building {name}, {form}")
            try:
                engine = self._built(name, form, model, tuple(faults))
            except BackendError as refusal:
                faults.append(f"{form}: {refusal.reason}")
                self._say(f"rejected {name}, {faults[-1]}")
                continue
            with self._running({name: engine.plan}) as runners:
                agreement = reference.judge(runners, clip=False)
            if not agreement.fault:
                return engine
            block = self._first_wrong_block(name, model, reference)
            faults.append(f"{form}: {agreement.fault}; the first wrong block is {block}")
            self._say(f"rejected {faults[-1]}")
        raise BackendError(
            f"no engine of {name} could be built that agrees with the CPU ({faults[-1]})",
            "nothing was stored; report this with the versions that efftam doctor prints",
        )

    def _compare_together(self, built: dict[str, BuiltEngine], reference: Reference) -> Agreement:
        """Compare all modules over a chained clip. While they disagree, the module that is worst on its own
        is rebuilt in its next form."""
        while True:
            with self._running({name: engine.plan for name, engine in built.items()}) as runners:
                agreement = reference.judge(runners, clip=True)
                if not agreement.fault:
                    return agreement
                overlaps = {}
                for name, engine in built.items():
                    if engine.form != FP32:
                        alone = reference.judge({name: runners[name]}, clip=True).clip
                        assert alone is not None
                        overlaps[name] = alone.mean
            if not overlaps:
                raise BackendError(
                    f"the engines together disagree with the CPU ({agreement.fault})",
                    "nothing was stored; report this with the versions that efftam doctor prints",
                )
            worst = min(overlaps, key=lambda name: overlaps[name])
            fault = f"{built[worst].form}: {agreement.fault}, with this module alone {overlaps[worst]:.3f}"
            self._say(f"rejected {worst}, {fault}")
            forms = FORMS["fp16"]
            later = forms[forms.index(built[worst].form) + 1 :] if built[worst].form in forms else forms[1:]
            built[worst] = self._module(worst, reference, later, (*built[worst].rejected, fault))

    def _converted(self, name: str, wanted: str) -> tuple[onnx.ModelProto, str]:
        """The graph to build and its form."""
        plain = self._models[name]
        if wanted == FP32:
            return plain, FP32
        fp16, report = convert(plain, name, Fp16Options({name: wanted} if wanted else {}))
        faults = check_fp16(fp16, plain, report.form)
        if faults:
            raise RuntimeError(f"the FP16 graph of {name} is faulty: {'; '.join(faults)}")
        return fp16, report.form

    def _built(self, name: str, form: str, model: onnx.ModelProto, rejected: tuple[str, ...]) -> BuiltEngine:
        begin = time.monotonic()
        plan = self._plan(name, model)
        seconds = time.monotonic() - begin
        opener = self._engines.opener(self._stream, lambda module: plan)
        try:
            opener.open(name)
            layers = opener.layers(name)
        finally:
            opener.close()
        names = [str(layer.get("Name", "")) for layer in layers]
        return BuiltEngine(
            name,
            form,
            plan,
            round(seconds, 2),
            len(layers),
            tuple(sorted(set(_precisions(layers)))),
            tuple(text for text in names if "mha" in text.lower()),
            rejected,
        )

    def _plan(self, name: str, model: onnx.ModelProto) -> bytes:
        engines = self._engines
        return build_engine(
            engines.library,
            model.SerializeToString(),
            engines.options(name),
            self._progress,
            engines.facts,
            timing_cache_path(engines.store.folder, engines.library, engines.facts),
        )

    @contextmanager
    def _running(self, plans: Mapping[str, bytes]) -> Iterator[dict[str, Runner]]:
        opener = self._engines.opener(self._stream, plans.__getitem__)
        try:
            yield {name: self._runner(opener, name) for name in plans}
        finally:
            self._stream.synchronize()
            opener.close()

    def _runner(self, opener: TrtGraphs, name: str) -> DeviceRunner:
        return DeviceRunner(self._cuda, self._stream, opener.open(name))

    def _first_wrong_block(self, name: str, model: onnx.ModelProto, reference: Reference) -> str:
        """Bisects over engines that are truncated at a block."""

        def on_the_gpu(part: onnx.ModelProto) -> Runner:
            return lambda inputs: self._run_part(name, part, inputs)

        def on_the_cpu(part: onnx.ModelProto) -> Runner:
            return CpuRunner(part.SerializeToString())

        plain, inputs = self._models[name], reference.chain.inputs[name]
        try:
            found = first_divergent_block(plain, model, inputs, on_the_gpu, MOST_DEVIATION, on_the_cpu)
        except (DeviceLostError, BuildCancelledError):
            raise
        except Exception as error:  # of a truncated graph: the next form may still be right
            return f"not found: the search for it failed ({one_line(error)})"
        return found or "not found: the truncated engines agree"

    def _run_part(self, name: str, part: onnx.ModelProto, inputs: Mapping[str, NDArray[Any]]) -> Arrays:
        """Build an engine of a truncated module and run it once."""
        engines = self._engines
        read, made = (_tensors(values) for values in (part.graph.input, part.graph.output))
        options = engines.options(name)
        options = replace(options, profiles=tuple(p for p in options.profiles if p.name in read))
        plan = build_engine(engines.library, part.SerializeToString(), options, self._progress, engines.facts)
        opener = TrtGraphs(engines.library, engines.facts, self._stream, {name: (read, made)}, lambda _: plan)
        try:
            return self._runner(opener, name)(inputs)
        finally:
            opener.close()


def _tensors(values: Iterable[onnx.ValueInfoProto]) -> dict[str, Tensor]:
    return {
        value.name: Tensor(
            onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type).name,
            tuple(axis.dim_param or axis.dim_value for axis in value.type.tensor_type.shape.dim),
        )
        for value in values
    }


def _precisions(layers: list[dict[str, Any]]) -> Iterator[str]:
    for layer in layers:
        for tensor in layer.get("Outputs", ()):
            text = str(tensor.get("Format/Datatype", "")) if isinstance(tensor, dict) else ""
            yield text.split()[-1] if text else "unknown"
