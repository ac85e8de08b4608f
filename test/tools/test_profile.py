"""`efftam profile`: that operators are found in their modules and that their times add up; none is asserted
against a clock."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tools_helpers import assert_refused

from efftam_ros.core.errors import InputError
from efftam_ros.runtime.bundle import default_bundle
from efftam_ros.tools.bench.frames import MODULES
from efftam_ros.tools.profile.frames import OperatorTime, Profile
from efftam_ros.tools.profile.trace import (
    BETWEEN,
    Operation,
    onnxruntime_operations,
    short_name,
    torch_operations,
)

STAGES = ("image_encoder", "memory_attention")


def written(folder: Path, events: Any) -> Path:
    path = folder / "trace.json"
    path.write_text(json.dumps(events), encoding="utf-8")
    return path


def event(cat: str, name: str, ts: float, dur: float, tid: object = 1, **args: object) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "pid": 7, "tid": tid, "args": args}


def node(op: str, ts: float, dur: float, provider: str = "CPUExecutionProvider") -> dict[str, Any]:
    return event("Node", f"/layer/{op}_kernel_time", ts, dur, op_name=op, provider=provider)


def test_onnxruntimes_operators_are_those_of_the_last_runs(tmp_path: Path):
    runs = [event("Session", "model_run", ts, 90) for ts in (100, 200, 300)]
    nodes = [node("Conv", ts, 40 + ts / 100) for ts in (110, 210, 310)]
    trace = written(tmp_path, [event("Session", "session_initialization", 0, 50), *nodes, *runs])
    found = list(onnxruntime_operations(trace, "image_encoder", 2))
    assert [operation.seconds for operation in found] == pytest.approx([42.1e-6, 43.1e-6])
    assert {(o.module, o.operator, o.where) for o in found} == {("image_encoder", "Conv", "CPU")}
    assert list(onnxruntime_operations(trace, "image_encoder", 0)) == []


def test_runs_that_onnxruntime_did_not_record_are_missed(tmp_path: Path):
    trace = written(tmp_path, [event("Session", "model_run", 100, 90)])
    with pytest.raises(InputError, match="recorded 1 of 2 runs of mask_decoder; ask for fewer --frames"):
        list(onnxruntime_operations(trace, "mask_decoder", 2))


def test_on_the_cpu_the_outermost_operators_of_each_thread_count_once(tmp_path: Path):
    trace = [
        {"ph": "M", "name": "process_name", "pid": 7},
        event("user_annotation", "image_encoder", 0, 100),
        event("cpu_op", "aten::conv2d", 10, 50),
        event("cpu_op", "aten::convolution", 11, 48),
        event("cpu_op", "aten::add", 60, 5),
        event("cpu_op", "aten::copy_", 100, 7),
        event("user_annotation", "memory_attention", 110, 50),
        event("user_annotation", "somebody else's", 115, 10),
        event("cpu_op", "aten::linear", 120, 20),
        event("cpu_op", "aten::mul", 20, 3, tid=2),
    ]
    found = list(torch_operations(written(tmp_path, {"traceEvents": trace[::-1]}), STAGES))
    by_name = {operation.operator: operation for operation in found}
    assert len(found) == len(by_name) == 5
    assert by_name["aten::conv2d"] == Operation("image_encoder", "aten::conv2d", "cpu", pytest.approx(50e-6))
    assert by_name["aten::add"].module == "image_encoder"
    assert by_name["aten::copy_"].module == BETWEEN
    assert by_name["aten::linear"].module == "memory_attention"
    assert by_name["aten::mul"].module == BETWEEN


def test_on_a_gpu_kernels_and_copies_count_where_they_ran(tmp_path: Path):
    kernel = "void at::native::elementwise_kernel<128, 4, at::native::Add<float>>(int, Add<float>)"
    trace = [
        event("user_annotation", "image_encoder", 0, 10),
        event("cpu_op", "aten::add", 2, 5),
        event("cuda_runtime", "cudaGraphLaunch", 3, 2),
        event("gpu_user_annotation", "image_encoder", 1000, 200, tid="stream 7"),
        event("kernel", kernel, 1000, 30, tid="stream 7"),
        event("kernel", "triton_poi_fused_add_0", 1100, 40, tid="stream 7"),
        event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 1300, 8, tid="stream 7"),
    ]
    found = list(torch_operations(written(tmp_path, {"traceEvents": trace}), STAGES))
    assert found == [
        Operation("image_encoder", "at::native::elementwise_kernel", "cuda", pytest.approx(30e-6)),
        Operation("image_encoder", "triton_poi_fused_add_0", "cuda", pytest.approx(40e-6)),
        Operation(BETWEEN, "Memcpy HtoD", "cuda", pytest.approx(8e-6)),
    ]


def test_a_kernels_name_loses_its_types_and_never_itself():
    assert short_name("void cub::Sum<float>(int)") == "cub::Sum"
    assert short_name("aten::linear") == "aten::linear"
    assert short_name("<lambda>") == "<lambda>"


def test_the_share_is_of_the_frame_that_was_profiled():
    operators = (
        OperatorTime("image_encoder", "Conv", "CPU", 52, 6.0),
        OperatorTime("image_encoder", "Add", "CPU", 10, 1.5),
        OperatorTime("mask_decoder", "Gemm", "CPU", 39, 0.5),
    )
    profile = Profile("x", "net", "onnxruntime-cpu", 5, 10.0, 9.0, {}, operators)
    assert profile.explained == pytest.approx(0.8)
    assert profile.module_ms("image_encoder") == pytest.approx(7.5)
    assert profile.module_ms("memory_encoder") is None
    assert [o["share"] for o in profile.record()["operators"]] == pytest.approx([0.6, 0.15, 0.05])


@pytest.mark.slow
def test_every_module_of_every_back_end_is_profiled(efftam, tmp_path: Path):
    pytest.importorskip("torch", reason="the torch back end needs torch: scripts/setup_env --with-tests")
    onnx = pytest.importorskip("onnx", reason="the torch back end needs onnx")
    options = (
        "--frames",
        3,
        "--threads",
        1,
        "--top",
        4,
        "--quiet",
        "--json",
        "p.json",
        "--trace",
        "kept/here",
    )
    result = efftam("profile", "--backend", "onnxruntime-cpu,torch", *options, timeout=300)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    profiles = json.loads((tmp_path / "p.json").read_text())["profiles"]
    assert [profile["backend"] for profile in profiles] == ["onnxruntime-cpu", "torch"]
    for profile in profiles:
        operators = profile["operators"]
        assert {o["module"] for o in operators} >= set(MODULES)
        times = [o["ms_per_frame"] for o in operators]
        assert times == sorted(times, reverse=True)
        assert profile["operators_ms"] == pytest.approx(sum(times))
        assert 0.3 < profile["explained"] < 1
        assert (
            f"operators account for {profile['operators_ms']:.2f} of {profile['frame_ms']:.2f} ms"
            in result.stdout
        )

    def calls(backend: int, module: str, operator: str) -> float:
        (found,) = (
            o for o in profiles[backend]["operators"] if (o["module"], o["operator"]) == (module, operator)
        )
        return found["calls_per_frame"]

    encoder = onnx.load(default_bundle().graphs["image_encoder"].path).graph
    convolutions = sum(n.op_type == "Conv" for n in encoder.node)
    assert calls(0, "image_encoder", "Conv") == convolutions
    assert calls(1, "image_encoder", "aten::conv2d") == convolutions
    assert f"{len(profiles[0]['operators']) - 4} others" in result.stdout
    kept = sorted(path.parent.name for path in (tmp_path / "kept" / "here").rglob("*.json"))
    assert kept == ["compact_192_onnxruntime-cpu"] * 5 + ["compact_192_torch"]


def test_bad_requests_are_one_line(efftam_here, tmp_path: Path, scene_made_once: None):
    assert_refused(efftam_here("profile", "--frames", "0"), "--frames is 0")
    assert_refused(efftam_here("profile", "--top", "-3"), "--top is -3")
    assert_refused(efftam_here("profile", "--backend", "abacus"), "'abacus' is not known", "onnxruntime-cpu")
    assert_refused(efftam_here("profile", "--backend", ","), "--backend")
    assert_refused(
        efftam_here("profile", "--backend", "tensorrt"),
        "--backend tensorrt can't be profiled",
        "onnxruntime-cpu, torch",
    )
    (tmp_path / "taken").write_text("")
    assert_refused(efftam_here("profile", "--trace", "taken"), "taken is a file", "give a folder")
    assert_refused(efftam_here("profile", "--bundle", "nowhere"), "nowhere")
