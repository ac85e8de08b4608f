"""Building engines: what computes something else than the CPU is named and never kept.

TensorRT is a fake that computes the given graph with onnxruntime; a GPU that goes wrong is a builder that
gets a spoilt graph.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from runtime.cuda.fake_cuda import FakeDevice, FakeGpu
from runtime.cuda.shim import shared_shim
from runtime.tensorrt.fake_tensorrt import make_fake
from support.gpu_rig import divided_arena

from efftam_ros.core.errors import BackendError, InputError
from efftam_ros.runtime import verify
from efftam_ros.runtime.backends import PipelineConfig
from efftam_ros.runtime.bundle import Bundle, default_bundle
from efftam_ros.runtime.cuda.api import Cuda, DeviceLostError
from efftam_ros.runtime.cuda.api import open_device as open_gpu
from efftam_ros.runtime.cuda.kernel_table import KERNELS
from efftam_ros.runtime.cuda.stream import Stream
from efftam_ros.runtime.device import opening, tensors
from efftam_ros.runtime.device.memory import GRAPHS
from efftam_ros.runtime.opening import open_pipeline
from efftam_ros.runtime.tensorrt import engine_set
from efftam_ros.runtime.tensorrt.engine_set import Calibration, EngineSet, calibration_path
from efftam_ros.runtime.tensorrt.library import Library
from efftam_ros.tools import cli
from efftam_workshop.agreement import reference
from efftam_workshop.agreement.compare import ClipAgreement
from efftam_workshop.build import print_reports
from efftam_workshop.export.fp16.convert import to_fp16
from efftam_workshop.export.int8 import CalibrationClip, default_clip, quantize
from efftam_workshop.export.tensorrt import engines as engines_module
from efftam_workshop.export.tensorrt import trials
from efftam_workshop.export.tensorrt.builder import BuildCancelledError
from efftam_workshop.export.tensorrt.engines import EngineBuilder

ROOT = Path(__file__).parents[2]
CLIP_FRAMES = 3
ATTENDING = ("prompt_encoder", "memory_attention_fixed", "mask_decoder")
"""The last one attends to two maps; the longer clip is the user's."""


def coarse(factor: float) -> Callable[[onnx.ModelProto, list], onnx.ModelProto]:
    """A quantiser whose steps of activations are so many times too coarse."""

    def quantized(model: onnx.ModelProto, samples: list) -> onnx.ModelProto:
        made = quantize(model, samples)
        for tensor in made.graph.initializer:
            value = numpy_helper.to_array(tensor)
            if tensor.name.endswith("_scale") and value.size == 1:
                tensor.CopyFrom(numpy_helper.from_array(value * np.float32(factor), tensor.name))
        return made

    return quantized


_converted: dict[tuple[bytes, str, str], bytes] = {}


def fp16_once(model: onnx.ModelProto, name: str, form: str) -> onnx.ModelProto:
    """The real `to_fp16`, whose result depends on its arguments alone, computed once for all builds."""
    key = (hashlib.sha256(model.SerializeToString(deterministic=True)).digest(), name, form)
    if key not in _converted:
        _converted[key] = to_fp16(model, name, form).SerializeToString()
    return onnx.load_from_string(_converted[key])


_references: dict[Path, reference.GraphReference] = {}


def reference_once(bundle: Bundle) -> reference.GraphReference:
    """The real `GraphReference`, which nothing changes once it is made: one for all builds of a bundle."""
    if bundle.folder not in _references:
        _references[bundle.folder] = reference.GraphReference(bundle)
    return _references[bundle.folder]


class Workshop:
    """A fake GPU with a fake TensorRT, and a folder for engines."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.gpu = FakeGpu(device=FakeDevice(compute_capability=(8, 6)))
        self.gpu.kernels = shared_shim().launch
        self.gpu.signatures = {
            name: [parameter.access for parameter in kernel.parameters] for name, kernel in KERNELS.items()
        }
        self.cuda = Cuda(self.gpu.driver)
        self.facts = open_gpu(self.cuda)
        self.library = Library.of(make_fake("10.3.0", self.gpu))
        self.said: list[str] = []

    def engines(self, precision: str, calibration: Calibration | None = None) -> EngineSet:
        return EngineSet(default_bundle(), precision, self.library, self.facts, self.folder, calibration)

    def build(self, precision: str = "fp16", **options) -> dict[str, dict]:
        stream, force = Stream(self.cuda), options.pop("force", False)
        try:
            clip: CalibrationClip | None = options.get("clip")
            calibration = None if clip is None else Calibration(clip.name, len(clip.frames), clip.sha256)
            engines = self.engines(precision, calibration)
            return EngineBuilder(engines, self.cuda, stream, self.said.append, **options).build(force)
        finally:
            stream.close()

    def kept(self) -> list[str]:
        return sorted(path.name for path in self.folder.glob("*.engine"))


@pytest.fixture
def workshop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workshop:
    monkeypatch.setattr(reference, "CLIP_FRAMES", CLIP_FRAMES)
    monkeypatch.setattr(engines_module, "GraphReference", reference_once)
    monkeypatch.setattr(trials, "ROUNDS", 1)
    monkeypatch.setattr(trials, "RUNS", 1)
    monkeypatch.setattr(engines_module, "to_fp16", fp16_once)
    return Workshop(tmp_path)


@pytest.fixture
def takes(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let engines take these ms by form, whatever they are: the fake GPU's times mean nothing."""

    def start(**ms: float) -> None:
        monkeypatch.setattr(
            trials.EngineTrials,
            "_measured",
            lambda self, graphs, inputs, stack: {form: ms[form] for form in graphs},
        )

    return start


@pytest.fixture
def spoil(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let the builder get spoilt graphs: ``spoil(module, node, precisions)`` doubles what a node makes."""
    whole = trials.build_engine

    def start(node: str, fp16_only: bool) -> None:
        def build(library, model, *rest, **named):
            graph = onnx.ModelProto()
            graph.CopyFrom(model)
            is_fp16 = any(t.data_type == onnx.TensorProto.FLOAT16 for t in graph.graph.initializer)
            if is_fp16 or not fp16_only:
                doubled(graph, node)
            return whole(library, graph, *rest, **named)

        monkeypatch.setattr(trials, "build_engine", build)

    return start


def doubled(model: onnx.ModelProto, name: str) -> None:
    """Double the output of a node, where the graph has it."""
    for at, node in enumerate(model.graph.node):
        if node.name == name:
            made = node.output[0]
            node.output[0] = f"{made}/right"
            model.graph.node.insert(
                at + 1, helper.make_node("Add", [f"{made}/right"] * 2, [made], f"{name}/doubled")
            )
            return


def a_product(module: str) -> str:
    """Name of a matrix product in the middle of a graph."""
    graph = onnx.load(default_bundle().graphs[module].path).graph
    products = [node.name for node in graph.node if node.op_type in ("MatMul", "Gemm")]
    return products[len(products) // 2]


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_engines_that_agree_with_the_cpu_are_kept_with_their_report(
    workshop: Workshop, precision: str, takes: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    takes(fused_fp32=0.4, unfused_fp32=0.4)
    monkeypatch.setattr(engine_set, "power_mode", lambda: "25W (1)")
    reports = workshop.build(precision)
    assert len(workshop.kept()) == len(GRAPHS)
    engines = workshop.engines(precision)
    for name in GRAPHS:
        assert engines.plan(name)
        report = engines.report(name)
        assert report == reports[name]
        assert report["rejected"] == []
        assert report["power_mode"] == "25W (1)"
        assert set(report["deviations"]) == set(default_bundle().graphs[name].outputs)
        assert report["clip"]["mean"] > 0.99
        assert max(report["deviations"].values()) < (0.01 if precision == "fp16" else 1e-4)
    forms = {report["form"] for report in reports.values()}
    assert forms == ({"fp32"} if precision == "fp32" else {"fused_fp32"})
    with_tf32 = {name for name, report in reports.items() if report["tf32"]}
    assert with_tf32 == (set() if precision == "fp32" else set(GRAPHS) - {"prompt_encoder"})
    built = {header["tf32"] for header in workshop.library.module.fake.built}
    assert built == ({False} if precision == "fp32" else {False, True})


def test_what_is_there_and_fits_is_built_again_only_by_force(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = workshop.build("fp32")
    monkeypatch.setattr(trials, "build_engine", lambda *given, **named: pytest.fail("built again"))
    assert workshop.build("fp32") == first
    with pytest.raises(pytest.fail.Exception, match="built again"):
        workshop.build("fp32", force=True)


def test_of_the_forms_that_agree_the_fastest_is_kept_and_the_report_says_by_how_much(
    workshop: Workshop, takes: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    takes(fused_fp32=0.5, unfused_fp32=0.4)
    reports = workshop.build()
    for name, report in reports.items():
        has_attention = name in ATTENDING
        assert report["form"] == ("unfused_fp32" if has_attention else "fused_fp32")
        assert report["times_ms"] == ({"fused_fp32": 0.5, "unfused_fp32": 0.4} if has_attention else {})
        assert report["rejected"] == []
    assert "mask_decoder: unfused_fp32 takes 0.400 ms, fused_fp32 0.500 ms (1.25 times)" in workshop.said
    print_reports(reports)
    assert "0.400; fused_fp32 1.25x" in capsys.readouterr().out


def test_engines_are_timed_in_turns_and_leave_nothing_on_the_gpu(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trials, "ROUNDS", 3)
    taken = workshop.build()["mask_decoder"]["times_ms"]
    assert set(taken) == {"fused_fp32", "unfused_fp32"}
    assert min(taken.values()) > 0
    assert workshop.gpu.memory.alive == []


def test_a_form_that_tensorrt_refuses_gives_way_to_the_next(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, refused = trials.build_engine, []

    def build(library, model, *rest, **named):
        if "sparse" in {info.name for info in model.graph.input} and not refused:
            refused.append(model)
            raise BackendError("tensorrt can't build the graph (no implementation)", "nothing helps")
        return whole(library, model, *rest, **named)

    monkeypatch.setattr(trials, "build_engine", build)
    reports = workshop.build()
    assert reports["mask_decoder"]["form"] == "unfused_fp32"
    assert reports["mask_decoder"]["rejected"] == [
        "fused_fp32: tensorrt can't build the graph (no implementation)"
    ]
    assert [name for name in GRAPHS if reports[name]["rejected"]] == ["mask_decoder"]


@pytest.mark.parametrize(
    "error",
    [
        BuildCancelledError("cancelled"),
        DeviceLostError("cudaLaunchKernel", 719, "cudaErrorLaunchFailure"),
        KeyboardInterrupt(),
    ],
    ids=["cancelled", "lost", "interrupted"],
)
def test_a_lost_gpu_and_a_build_that_is_ended_try_no_other_form_and_leave_nothing(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    whole, models = trials.build_engine, []

    def build(library, model, *rest, **named):
        models.append(model)
        if len(models) == 3:
            raise error
        return whole(library, model, *rest, **named)

    monkeypatch.setattr(trials, "build_engine", build)
    with pytest.raises(type(error)):
        workshop.build()
    assert len(models) == 3
    assert workshop.kept() == []


class TestInt8:
    """INT8 is kept where it agrees with the CPU and saves enough time, and nowhere else."""

    @pytest.fixture
    def clip(self) -> CalibrationClip:
        whole = default_clip()
        return replace(whole, frames=whole.frames[:4])

    @pytest.mark.parametrize(("ms", "form"), [(0.459, "int8"), (0.461, "fused_fp32")])
    def test_it_must_save_eight_percent(
        self, workshop: Workshop, takes: Callable[..., None], clip: CalibrationClip, ms: float, form: str
    ) -> None:
        takes(fused_fp32=0.5, unfused_fp32=0.6, int8=ms)
        reports = workshop.build("int8", clip=clip)
        report = reports["memory_attention_fixed"]
        assert report["form"] == form
        assert report["attention"] == "fused_fp32"
        assert report["times_ms"] == {"fused_fp32": 0.5, "unfused_fp32": 0.6, "int8": ms}
        assert len(report["rejected"]) == (form != "int8")
        assert 1e-4 < report["deviations"]["conditioned"] < 0.1
        others = {one["form"] for name, one in reports.items() if name != "memory_attention_fixed"}
        assert others == {"fused_fp32"}

    def test_what_it_was_calibrated_with_is_part_of_the_key(
        self, workshop: Workshop, takes: Callable[..., None], clip: CalibrationClip
    ) -> None:
        takes(fused_fp32=0.5, unfused_fp32=0.6, int8=0.3)
        with pytest.raises(BackendError, match="no calibration of compact_192") as refusal:
            workshop.engines("int8").plan("image_encoder")
        assert "--precision int8" in refusal.value.remedy
        workshop.build("int8", clip=clip)
        assert workshop.engines("int8").plan("memory_attention_fixed")
        other = Calibration("another clip", 4, "0" * 64)
        with pytest.raises(BackendError, match="calibration"):
            workshop.engines("int8", other).plan("memory_attention_fixed")
        cancelled = Mock(side_effect=BuildCancelledError)
        with pytest.raises(BuildCancelledError):
            workshop.engines("int8", other).load_or_build(cancelled, workshop.said.append, force=True)
        assert workshop.engines("int8").plan("memory_attention_fixed")  # those of before
        path = calibration_path(workshop.folder, default_bundle().spec.name)
        path.write_text('{"clip": "x", "frames": 3}')
        with pytest.raises(BackendError, match="can't be read") as refusal:
            workshop.engines("int8").plan("image_encoder")
        assert path.name in refusal.value.reason
        path.unlink()
        with pytest.raises(BackendError, match="no calibration"):
            workshop.engines("int8").plan("image_encoder")

    def test_a_module_that_drifts_in_int8_is_kept_in_fp16(
        self,
        workshop: Workshop,
        takes: Callable[..., None],
        clip: CalibrationClip,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(engines_module, "quantize", coarse(40))
        takes(fused_fp32=0.5, unfused_fp32=0.6, int8=0.1)
        report = workshop.build("int8", clip=clip)["memory_attention_fixed"]
        assert report["form"] == "fused_fp32"
        (reason,) = report["rejected"]
        assert reason.startswith("int8: memory_attention_fixed computes conditioned with a relative error of")
        assert "the limit is 0.1" in reason

    def test_it_needs_a_clip(self, workshop: Workshop) -> None:
        with pytest.raises(InputError, match="calibration clip"):
            workshop.build("int8")


def test_a_module_that_drifts_in_fp16_is_named_and_built_in_fp32(
    workshop: Workshop, spoil: Callable[..., None]
) -> None:
    node = a_product("mask_decoder")
    spoil(node, fp16_only=True)
    report = workshop.build()["mask_decoder"]
    assert report["form"] == "fp32"
    assert [reason.partition(":")[0] for reason in report["rejected"]] == ["fused_fp32", "unfused_fp32"]
    assert any(
        line.startswith("rejected mask_decoder, fused_fp32: mask_decoder computes ") for line in workshop.said
    )


def test_a_module_that_is_wrong_in_every_form_leaves_nothing_behind(
    workshop: Workshop, spoil: Callable[..., None]
) -> None:
    spoil(a_product("memory_attention_fixed"), fp16_only=False)
    with pytest.raises(BackendError, match="memory_attention_fixed") as refusal:
        workshop.build()
    assert "efftam doctor" in refusal.value.remedy
    assert workshop.kept() == []


def test_of_modules_that_are_right_alone_and_wrong_in_turn_the_worst_falls_back_first(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No clip is good enough, so that all of them fall back to FP32, and are refused then."""
    overlap = dict(zip(GRAPHS, (0.94, 0.91, 0.95, 0.92, 0.93), strict=True))

    def clip_of(bundle, reference, candidate, frames, box):
        replaced = [name for name in GRAPHS if candidate[name] is not reference[name]]
        value = overlap[replaced[0]] if len(replaced) == 1 else 0.5
        return ClipAgreement((value,), (0.0,))

    monkeypatch.setattr(reference, "compare_clip", clip_of)
    with pytest.raises(BackendError, match=r"engines together.*efftam doctor"):
        workshop.build()
    fallen = [line.split()[1].rstrip(",") for line in workshop.said if ", with this module alone" in line]
    forms = {name: 2 if name in ATTENDING else 1 for name in GRAPHS}
    assert fallen == [name for name in sorted(GRAPHS, key=overlap.__getitem__) for _ in range(forms[name])]
    assert workshop.kept() == []


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with engines in FP32."""
    folder = tmp_path_factory.mktemp("engines")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reference, "CLIP_FRAMES", CLIP_FRAMES)
        patch.setattr(engines_module, "GraphReference", reference_once)
        Workshop(folder).build("fp32")
    return folder


class TestTheBackEnd:
    """`tensorrt` runs what was built, and nothing else."""

    @pytest.fixture
    def machine(self, engines: Path, workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> Workshop:
        """What opens a pipeline finds the fakes, and engines in FP32."""
        shutil.copytree(engines, workshop.folder, dirs_exist_ok=True)
        monkeypatch.setattr(Cuda, "load", lambda: workshop.cuda)
        monkeypatch.setattr(engine_set, "load_library", lambda: workshop.library)
        monkeypatch.setattr(opening, "engine_folder", lambda: workshop.folder)
        monkeypatch.setattr(tensors, "Arena", partial(divided_arena, workshop.gpu))
        return workshop

    def test_opens_what_was_built_and_agrees_with_the_cpu(self, machine: Workshop) -> None:
        pipeline = open_pipeline(PipelineConfig(backend="tensorrt", precision="fp32", verify="always"))
        assert set(pipeline.launch.values()) == {"cuda graph"}
        pipeline.close()
        assert machine.gpu.memory.alive == []
        with pytest.raises(BackendError, match="there is no engine for image_encoder") as refusal:
            open_pipeline(PipelineConfig(backend="tensorrt"))
        assert f"efftam build {default_bundle().folder} --precision fp16" in refusal.value.remedy

    def test_refuses_engines_that_compute_something_else(self, machine: Workshop) -> None:
        """Also where others agreed before: the record is of those."""
        config = PipelineConfig(backend="tensorrt", precision="fp32")
        open_pipeline(config).close()
        engines = machine.engines("fp32")
        model = onnx.load(default_bundle().graphs["memory_encoder"].path)
        weight = max(model.graph.initializer, key=lambda t: np.prod(t.dims))
        weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight) * 0, weight.name))
        spoilt = trials.build_engine(machine.library, model)
        name, key = default_bundle().spec.name, engines.key("memory_encoder")
        engines.store.put(name, key, spoilt, engines.report("memory_encoder"))
        with pytest.raises(BackendError, match="ring_maps of memory_encoder deviates"):
            open_pipeline(config)
        assert machine.gpu.memory.alive == []
        open_pipeline(replace(config, verify="never")).close()

    @pytest.mark.parametrize(("verify_by", "checks"), [("once", 1), ("always", 2), ("never", 0)])
    def test_is_checked_as_often_as_asked_for(
        self, machine: Workshop, monkeypatch: pytest.MonkeyPatch, verify_by: str, checks: int
    ) -> None:
        judged, judge = [], verify.Reference.judge
        monkeypatch.setattr(
            verify.Reference, "judge", lambda *given: (judged.append(given), judge(*given))[1]
        )
        for _ in range(2):
            open_pipeline(PipelineConfig(backend="tensorrt", precision="fp32", verify=verify_by)).close()
        assert len(judged) == checks
        assert len(list(machine.folder.glob("verified-*.json"))) == min(checks, 1)

    def test_leaves_seven_contexts_and_one_working_memory(self, machine: Workshop) -> None:
        fake = machine.library.module.fake
        assert fake.contexts_alive == 0
        left = {}
        for verify_by in ("always", "never"):
            pipeline = open_pipeline(PipelineConfig(backend="tensorrt", precision="fp32", verify=verify_by))
            left[verify_by] = fake.contexts_alive, machine.gpu.memory.free_bytes
            pipeline.close()
        assert left["always"][0] == left["never"][0] == 7
        # The check's images have made room for themselves, as the first of a camera would.
        assert 0 <= left["never"][1] - left["always"][1] < 1 << 20
        assert machine.gpu.memory.alive == []

    def test_the_commands_print_what_was_built_and_whether_it_agrees(
        self, machine: Workshop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr("efftam_ros.runtime.tensorrt.library.load_library", lambda: machine.library)
        assert cli.main(["build", "--precision", "fp32", "--quiet"]) == 0  # the stored ones
        page = capsys.readouterr().out
        assert all(name in page for name in ("fp32", *GRAPHS))
        assert len(machine.kept()) == len(GRAPHS)
        assert cli.main(["verify", "--precision", "fp32"]) == 0
        page = capsys.readouterr().out
        assert "agrees with the CPU" in page
        assert all(stage in page for stage in ("preprocess", "memory_attention", "search", "ring_maps"))


def test_building_needs_no_pytorch() -> None:
    modules = "efftam_workshop.export.tensorrt.engines, efftam_workshop.build"
    code = f"import sys; sys.modules['torch'] = None; import {modules}"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
