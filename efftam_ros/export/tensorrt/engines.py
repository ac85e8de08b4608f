"""Engines of a bundle: converted, built, compared with the CPU, and kept only when they compute the same."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

import onnx
from numpy.typing import NDArray

from efftam_ros.core.errors import BackendError, InputError
from efftam_ros.export.fp16.attention import attentions
from efftam_ros.export.fp16.checks import check_fp16
from efftam_ros.export.fp16.convert import Fp16Options, convert, load_graphs
from efftam_ros.export.fp16.divergence import first_divergent_block
from efftam_ros.export.tensorrt.builder import Progress, build_engine, timing_cache_path
from efftam_ros.runtime.cuda.api import Cuda
from efftam_ros.runtime.cuda.stream import Stream
from efftam_ros.runtime.device.memory import GRAPHS
from efftam_ros.runtime.signatures import Tensor
from efftam_ros.runtime.tensorrt.engine_set import EngineSet
from efftam_ros.runtime.tensorrt.runner import TrtGraphs
from efftam_ros.runtime.verify.runners import Arrays, CpuRunner, DeviceRunner, Runner
from efftam_ros.runtime.verify.verify import MOST_DEVIATION, Agreement, Reference

FP32 = "fp32"
FORMS = {"fp32": (FP32,), "fp16": ("", "unfused_fp32", FP32)}
"""What is tried for each module in turn: FP32, or a form of `fp16.attention`, "" for the module's default."""
ALLOWED = ("fused_fp32", "unfused_fp32")
"""Forms to ask for; all_fp16 sums scores in FP16."""


@dataclass(frozen=True)
class Built:
    """An engine that was not kept yet. ``form``: "fp32", or the form of its attentions in FP16; ``layers``,
    ``precisions`` (of tensors) and ``fused`` (names of attention kernels) as the engine itself has them;
    ``rejected``: forms that were tried before, with the reason."""

    module: str
    form: str
    plan: bytes
    seconds: float
    layers: int
    precisions: tuple[str, ...]
    fused: tuple[str, ...]
    rejected: tuple[str, ...]

    def report(self, verdict: Agreement) -> dict[str, Any]:
        """What is kept beside the engine, as JSON."""
        record = {key: value for key, value in asdict(self).items() if key != "plan"}
        deviations = {d.output: d.relative for d in verdict.deviations if d.graph == self.module}
        record["deviations"] = deviations
        if verdict.clip is not None:
            record["clip"] = {"mean": verdict.clip.mean, "worst": verdict.clip.worst}
        made: dict[str, Any] = json.loads(json.dumps(record))
        return made


class EngineBuilder:
    """Builds the engines of an `EngineSet`. What computes something else than the CPU is never kept."""

    def __init__(
        self,
        engines: EngineSet,
        cuda: Cuda,
        stream: Stream,
        say: Callable[[str], None],
        progress: Progress = lambda phase, step, steps: True,
        attention: Mapping[str, str] | None = None,
    ) -> None:
        """``say`` is told in one line what is done and what was rejected. ``attention``: the form that a
        module is tried in first (`fp16.attention.FORMS`) in place of its default. Raises InputError for a
        module or form that there is not."""
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
        """Build, judge and keep all modules, unless all of them are there and not ``force``; their reports by
        name.

        Raises BackendError naming the module and the first block that is wrong when no form of it
        agrees with the CPU, and then keeps nothing; InputError when the folder can't be written.
        """
        self._engines.load_or_build(self._build_all, self._say, force)
        reports = {name: self._engines.report(name) for name in GRAPHS}
        return {name: report for name, report in reports.items() if report is not None}

    def _build_all(self) -> dict[str, tuple[bytes, dict[str, Any]]]:
        bundle = self._engines.bundle
        self._say(f"{bundle.spec.name}: the CPU computes what the engines are compared with")
        self._models = load_graphs(bundle)
        reference = Reference(bundle)
        built = {name: self._module(name, reference, self._forms_of(name), ()) for name in GRAPHS}
        verdict = self._judge_together(built, reference)
        return {name: (engine.plan, engine.report(verdict)) for name, engine in built.items()}

    def _forms_of(self, name: str) -> tuple[str, ...]:
        forms = FORMS[self._engines.precision]
        return (self._wanted[name], *forms[1:]) if name in self._wanted else forms

    def _module(
        self, name: str, reference: Reference, forms: tuple[str, ...], rejected: tuple[str, ...]
    ) -> Built:
        """The first form of a module whose outputs agree with the CPU's."""
        found = attentions(self._models[name])
        faults = list(rejected)
        tried = set()
        for wanted in forms:
            half, form = self._converted(name, wanted)
            if form in tried or (form == "unfused_fp32" and not found):
                continue
            tried.add(form)
            self._say(f"building {name}, {form}")
            engine = self._built(name, form, half, tuple(faults))
            with self._running({name: engine.plan}) as runners:
                verdict = reference.judge(runners, clip=False)
            if not verdict.fault:
                return engine
            block = self._first_wrong_block(name, half, reference)
            faults.append(f"{form}: {verdict.fault}; the first block that is wrong is {block}")
            self._say(f"rejected {faults[-1]}")
        raise BackendError(
            f"no engine of {name} computes what the CPU computes ({faults[-1]})",
            "nothing was kept; report this with the versions that efftam doctor prints",
        )

    def _judge_together(self, built: dict[str, Built], reference: Reference) -> Agreement:
        """The verdict over a chained clip. Of modules that are right one by one and wrong in turn, the one
        that is worst alone is replaced by its next form, until all is well."""
        while True:
            with self._running({name: engine.plan for name, engine in built.items()}) as runners:
                verdict = reference.judge(runners, clip=True)
                if not verdict.fault:
                    return verdict
                overlaps = {}
                for name, engine in built.items():
                    if engine.form != FP32:
                        alone = reference.judge({name: runners[name]}, clip=True).clip
                        assert alone is not None
                        overlaps[name] = alone.mean
            if not overlaps:
                raise BackendError(
                    f"the engines together do not compute what the CPU computes ({verdict.fault})",
                    "nothing was kept; report this with the versions that efftam doctor prints",
                )
            worst = min(overlaps, key=lambda name: overlaps[name])
            fault = f"{built[worst].form}: {verdict.fault}, with this module alone {overlaps[worst]:.3f}"
            self._say(f"rejected {worst}, {fault}")
            forms = FORMS["fp16"]
            later = forms[forms.index(built[worst].form) + 1 :] if built[worst].form in forms else forms[1:]
            built[worst] = self._module(worst, reference, later, (*built[worst].rejected, fault))

    def _converted(self, name: str, wanted: str) -> tuple[onnx.ModelProto, str]:
        """The graph to build and its form."""
        plain = self._models[name]
        if wanted == FP32:
            return plain, FP32
        half, report = convert(plain, name, Fp16Options({name: wanted} if wanted else {}))
        faults = check_fp16(half, plain, report.form)
        if faults:
            raise RuntimeError(f"the FP16 graph of {name} is faulty: {'; '.join(faults)}")
        return half, report.form

    def _built(self, name: str, form: str, model: onnx.ModelProto, rejected: tuple[str, ...]) -> Built:
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
        return Built(
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
            timing_cache_path(engines.store.folder, engines.library, engines.facts.name),
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
        """By bisection over engines that end at a block each."""

        def on_the_gpu(part: onnx.ModelProto) -> Runner:
            return lambda inputs: self._run_part(name, part, inputs)

        def on_the_cpu(part: onnx.ModelProto) -> Runner:
            return CpuRunner(part.SerializeToString())

        plain, inputs = self._models[name], reference.chain.inputs[name]
        found = first_divergent_block(plain, model, inputs, on_the_gpu, MOST_DEVIATION, on_the_cpu)
        return found or "not found: built in parts the module is right"

    def _run_part(self, name: str, part: onnx.ModelProto, inputs: Mapping[str, NDArray[Any]]) -> Arrays:
        """Build an engine of a part of a module, run it once, and forget it."""
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
            yield text.split()[-1] if text else "not told"
