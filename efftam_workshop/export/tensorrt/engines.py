"""Builds the engines of a bundle and stores for each module the fastest engine that agrees with the CPU."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import onnx

from efftam_ros.core.errors import BackendError, InputError
from efftam_ros.runtime.cuda.api import Cuda
from efftam_ros.runtime.cuda.stream import Stream
from efftam_ros.runtime.device.memory import GRAPHS
from efftam_ros.runtime.tensorrt.engine_set import EngineSet
from efftam_workshop.agreement.reference import INT8_LIMITS, STRICT, GraphAgreement, GraphReference
from efftam_workshop.agreement.runners import Arrays
from efftam_workshop.export.fp16.attention import attentions
from efftam_workshop.export.fp16.convert import load_graphs, to_fp16
from efftam_workshop.export.int8 import INT8_MODULES, CalibrationClip, quantizable, quantize, recorded_inputs
from efftam_workshop.export.tensorrt.builder import Progress
from efftam_workshop.export.tensorrt.trials import BuiltEngine, EngineTrials, RefusedError

FP32, INT8 = "fp32", "int8"
ALLOWED = ("fused_fp32", "unfused_fp32")
"""Forms of attention in FP16 (`fp16.attention`) that are built, the one expected to be fastest first.

all_fp16 is not among them because it accumulates scores in FP16.
"""
MIN_GAIN = 0.08
"""Share of the fastest FP16 form's time that INT8 must save to be used, because INT8 costs accuracy."""


def fp16_forms(model: onnx.ModelProto) -> tuple[str, ...]:
    """Return the forms of attention to build for ``model``, the form that is expected to be fastest first.

    Without attention all forms would give the same graph, so one form is returned.
    """
    return ALLOWED if attentions(model) else ALLOWED[:1]


@dataclass
class _Choice:
    """Result of building one module.

    ``engines``: engines that agree with the CPU, the preferred one first. ``times_ms``: GPU time by form,
    empty if nothing was timed. ``rejected``: one line per rejected form, with the reason.
    """

    engines: list[BuiltEngine] = field(default_factory=list)
    times_ms: dict[str, float] = field(default_factory=dict)
    rejected: list[str] = field(default_factory=list)

    @property
    def engine(self) -> BuiltEngine:
        return self.engines[0]

    def report(self, agreement: GraphAgreement) -> dict[str, Any]:
        """Return the report that is stored beside the engine, as JSON values."""
        record = {key: value for key, value in asdict(self.engine).items() if key != "plan"}
        record["times_ms"] = self.times_ms
        record["rejected"] = self.rejected
        deviations = {d.output: d.relative for d in agreement.deviations if d.graph == self.engine.module}
        record["deviations"] = deviations
        if agreement.clip is not None:
            record["clip"] = {"mean": agreement.clip.mean, "worst": agreement.clip.worst}
        return json.loads(json.dumps(record))


class EngineBuilder:
    """Builds the engines of an `EngineSet`; engines that disagree with the CPU are never stored."""

    def __init__(
        self,
        engines: EngineSet,
        cuda: Cuda,
        stream: Stream,
        report: Callable[[str], None],
        progress: Progress = lambda phase, step, steps: True,
        clip: CalibrationClip | None = None,
    ) -> None:
        """``report`` is called with a line for each step and each rejected form. ``clip``: calibrates INT8.

        Raises InputError for INT8 without a clip.
        """
        if engines.precision == INT8 and clip is None:
            raise InputError("INT8 engines need a calibration clip; give one")
        self._engines, self._cuda, self._stream = engines, cuda, stream
        self._report, self._progress, self._clip = report, progress, clip
        self._models: dict[str, onnx.ModelProto] = {}
        self._samples: dict[str, list[Arrays]] = {}

    def build(self, force: bool = False) -> dict[str, dict[str, Any]]:
        """Build, compare and store all modules, with ``force`` even if stored engines fit.

        Returns the reports by module. Raises BackendError if no form of a module agrees with the CPU; the
        message names the module and its worst output, and nothing is stored. Raises InputError if the folder
        can't be written.
        """
        self._engines.load_or_build(self._build_all, self._report, force)
        reports = {name: self._engines.report(name) for name in GRAPHS}
        return {name: report for name, report in reports.items() if report is not None}

    def _build_all(self) -> dict[str, tuple[bytes, dict[str, Any]]]:
        bundle = self._engines.bundle
        self._report(f"{bundle.spec.name}: computing the reference on the CPU")
        self._models = load_graphs(bundle)
        reference = GraphReference(bundle)
        if self._engines.precision == INT8 and self._clip is not None:
            modules = [name for name in INT8_MODULES if quantizable(self._models[name])]
            self._report(f"calibrating {', '.join(modules)} on {self._clip.name}")
            self._samples = recorded_inputs(bundle, reference.runners, self._clip, modules)
        trials = EngineTrials(self._engines, self._cuda, self._stream, self._progress, reference)
        choices = {name: self._choose(name, trials) for name in GRAPHS}
        agreement = self._compare_together(choices, trials)
        mode = {"power_mode": self._engines.power_mode}
        return {
            name: (choice.engine.plan, choice.report(agreement) | mode) for name, choice in choices.items()
        }

    def _choose(self, name: str, trials: EngineTrials) -> _Choice:
        """Build and compare the forms of a module; FP32 only if no other form agrees with the CPU."""
        choice = _Choice()
        if self._engines.precision != FP32:
            for form in fp16_forms(self._models[name]):
                self._try(name, form, form, choice, trials)
            self._rank(choice, trials)
            if name in self._samples:
                self._try_int8(name, choice, trials)
        if not choice.engines:
            self._fall_back(name, choice, trials)
        return choice

    def _try_int8(self, name: str, choice: _Choice, trials: EngineTrials) -> None:
        """Prefer INT8 if it agrees with the CPU and saves `MIN_GAIN` of the fastest FP16 form's time."""
        fp16 = list(choice.engines)
        attention = fp16[0].form if fp16 else fp16_forms(self._models[name])[0]
        if not self._try(name, INT8, attention, choice, trials) or not fp16:
            return
        self._rank(choice, trials)
        fastest, times = fp16[0].form, choice.times_ms
        if times and times[INT8] <= (1 - MIN_GAIN) * times[fastest]:
            return
        choice.engines = fp16
        reason = "not timed"
        if times:
            reason = f"it takes {times[INT8]:.3f} ms, {fastest} takes {times[fastest]:.3f} ms"
        self._reject(name, choice, f"{INT8}: {reason}; INT8 must save {MIN_GAIN:.0%} of the time")

    def _try(self, name: str, form: str, attention: str, choice: _Choice, trials: EngineTrials) -> bool:
        """Build a form and compare it with the CPU; return whether it agrees.

        Adds the engine, or the reason for its rejection, to ``choice``.
        """
        model = self._models[name]
        try:
            if form == INT8:
                model = quantize(model, self._samples[name])
            if form != FP32:
                model = to_fp16(model, name, attention)
            self._report(f"building {name}, {form}")
            engine = trials.build(name, form, attention, model)
            trials.check(engine, INT8_LIMITS if form == INT8 else STRICT)
        except (RefusedError, InputError) as refusal:
            self._reject(name, choice, f"{form}: {refusal}")
            return False
        choice.engines.append(engine)
        return True

    def _rank(self, choice: _Choice, trials: EngineTrials) -> None:
        """Time the engines if there are several and order them by time.

        If they can't be timed, they stay in the expected order.
        """
        if len(choice.engines) < 2:
            return
        name = choice.engine.module
        try:
            times = trials.times_ms(choice.engines)
        except RefusedError as refusal:
            choice.times_ms = {}
            self._report(
                f"{name}: the forms of this engine can't be timed ({refusal}); {choice.engine.form} is kept"
            )
            return
        choice.times_ms = {form: round(ms, 4) for form, ms in times.items()}
        choice.engines.sort(key=lambda engine: choice.times_ms[engine.form])
        fastest = choice.engine.form
        others = [
            f"{one.form} {times[one.form]:.3f} ms ({times[one.form] / times[fastest]:.2f} times)"
            for one in choice.engines[1:]
        ]
        self._report(f"{name}: {fastest} takes {times[fastest]:.3f} ms, {', '.join(others)}")

    def _fall_back(self, name: str, choice: _Choice, trials: EngineTrials) -> None:
        """Add the FP32 engine. Raises BackendError if even this engine disagrees with the CPU."""
        if not self._try(name, FP32, "", choice, trials):
            raise BackendError(
                f"every engine of {name} was rejected, because its outputs differ from the CPU's"
                f" ({choice.rejected[-1]})",
                "nothing was stored; report this with the versions that efftam doctor prints",
            )

    def _reject(self, name: str, choice: _Choice, reason: str) -> None:
        choice.rejected.append(reason)
        self._report(f"rejected {name}, {reason}")

    def _compare_together(self, choices: dict[str, _Choice], trials: EngineTrials) -> GraphAgreement:
        """Compare all modules together over a clip; return their agreement once it is within the limits.

        While they disagree, the engine of the worst module is replaced by the module's next form.
        """
        reference = trials.reference
        while True:
            is_int8 = any(choice.engine.form == INT8 for choice in choices.values())
            limits = INT8_LIMITS if is_int8 else STRICT
            with trials.running({name: choice.engine.plan for name, choice in choices.items()}) as runners:
                agreement = reference.judge(runners, clip=True, limits=limits)
                if not agreement.fault:
                    return agreement
                overlaps = {}
                for name, choice in choices.items():
                    if choice.engine.form != FP32:
                        alone = reference.judge({name: runners[name]}, clip=True).clip
                        assert alone is not None
                        overlaps[name] = alone.mean
            if not overlaps:
                raise BackendError(
                    f"the engines together disagree with the CPU ({agreement.fault})",
                    "nothing was stored; report this with the versions that efftam doctor prints",
                )
            worst = min(overlaps, key=lambda name: overlaps[name])
            choice = choices[worst]
            form = choice.engine.form
            self._reject(
                worst, choice, f"{form}: {agreement.fault}, with this module alone {overlaps[worst]:.3f}"
            )
            del choice.engines[0]
            if not choice.engines:
                self._fall_back(worst, choice, trials)
