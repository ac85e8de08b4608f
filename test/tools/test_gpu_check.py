"""`scripts/gpu_check`: refuses politely without a GPU, and sums up what others measured."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from tools_helpers import CAPTURED, ROOT, package_environment

sys.path.insert(0, str(ROOT / "scripts"))
import gpu_check as script

NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}


def gpu_check(*arguments: object, env: Mapping[str, str] = NO_GPU) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, ROOT / "scripts" / "gpu_check.py", *map(str, arguments)],
        env={**package_environment(), **env},
        timeout=200,
        **CAPTURED,
    )


def timing(backend: str, whole: float, **more: Any) -> dict[str, Any]:
    return {
        "name": f"ti_512x512 {backend}",
        "frames": 300,
        "whole_ms": whole,
        "whole_p99_ms": whole * 1.5,
        "stages_ms": {"preprocess": 0.02, "image_encoder": 1.234, "memory_attention": 2, "mask_decoder": 0.5},
        "glue_ratio": 1.02,
        "times_faster_than": {},
        "maps": 7,
        "pointers": 16,
        "start_up_s": 2.5,
        "resident_mb": 812.3,
        "device_mb": 345.6,
        "launch": {},
    } | more


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    """A folder as a run leaves it, all items done well."""
    content = {
        "about.json": {
            "gpu": "NVIDIA Test 3000",
            "date": "2026-01-02",
            "environment": {"cpu": "Test CPU", "gpus": ["NVIDIA Test 3000, 580.1"], "power_mode": None},
        },
        "items.json": [
            {"name": "kernels", "state": "OK", "why": "12 passed"},
            {"name": "waits per frame", "state": "NOT RUN", "why": "no CUPTI | here"},
        ],
        "bench_ti_512x512.json": {
            "image": [1280, 720],
            "frames": [
                timing(
                    "onnxruntime-cuda",
                    4.0,
                    times_faster_than={"torch-cuda": 3.0},
                    launch={"image_encoder": "cuda graph"},
                ),
                timing("torch-cuda", 12.0, times_faster_than={"torch-cuda": 1.0}, device_mb=None),
            ],
        },
        "soak_onnxruntime-cuda_shipped.json": {
            "bundle": "compact_192",
            "backend": "onnxruntime-cuda",
            "soak": {
                "frames": 5000,
                "resident_mb": [200.0, 201.25],
                "device_mb": [900.0, 900.0],
                "whole_ms": [2.0, 2.1],
            },
        },
        "waits_onnxruntime-cuda_shipped.json": {
            "of": "onnxruntime-cuda, shipped",
            "counted_by": "CUPTI",
            "waits_per_frame": 1.0,
            "allocations_per_frame": 0.0,
            "calls_per_frame": {},
        },
    }
    for name, report in content.items():
        (tmp_path / name).write_text(json.dumps(report))
    return tmp_path


@pytest.mark.skipif(Path("/proc/driver/nvidia/version").exists(), reason="a machine with an NVIDIA driver")
def test_without_a_gpu_it_says_so_in_one_line_and_leaves_nothing(tmp_path: Path):
    for command in ([ROOT / "scripts" / "gpu_check"], [ROOT / "scripts" / "gpu_check", "--quick"]):
        result = subprocess.run(
            [*map(str, command), "--out", str(tmp_path / "out")],
            env=package_environment(),
            timeout=100,
            **CAPTURED,
        )
        assert result.returncode == 3, result.stderr
        assert "no NVIDIA GPU" in result.stderr
        assert len(result.stderr.splitlines()) == 1
        assert not (tmp_path / "out").exists()


def test_rows_of_the_summary_fit_the_benchmarks(measured: Path):
    result = gpu_check("--summary", measured)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("1 OK, 0 FAILED, 1 NOT RUN")
    lines = (measured / "summary.md").read_text().splitlines()
    assert lines[0] == "# GPU check: NVIDIA Test 3000, 2026-01-02"
    assert lines[2] == "cpu Test CPU, gpus NVIDIA Test 3000, 580.1"
    assert "| waits per frame | NOT RUN | no CUPTI / here |" in lines
    assert "| ti_512x512 onnxruntime-cuda | 4 | 6 | 0.02 | 1.23 | 2 | 0.5 | - | 1.02 | 3 |" in lines
    assert "| ti_512x512 onnxruntime-cuda | 2.5 | 812 | 346 | image_encoder: cuda graph |" in lines
    assert "| ti_512x512 torch-cuda | 2.5 | 812 | - | - |" in lines
    soak = next(line for line in lines if "resident memory" in line)
    assert soak == (
        "| 5,000 frames (compact_192 onnxruntime-cuda): resident memory after the first 100 | under 5 MB "
        "| +1.2 MB | `efftam bench --soak SECONDS --backend onnxruntime-cuda` |"
    )
    assert "| the same: device memory in use | under 5 MB | +0.0 MB | the same |" in lines
    assert (
        "| host waits per frame (onnxruntime-cuda, shipped) | 1 | 1 | `scripts/gpu_check` (CUPTI) |" in lines
    )
    columns = "| whole | preprocess | image encoder | memory attention | mask decoder | memory encoder |"
    assert columns in (ROOT / "docs" / "benchmarks.md").read_text()
    rows = [line for line in lines if line.startswith("|")]
    (measured / "items.json").write_text('[{"name": "soak", "state": "FAILED", "why": "+300 MB"}]')
    assert gpu_check("--summary", measured).returncode == 1  # by one failure
    assert "| soak | FAILED | +300 MB |" in (measured / "summary.md").read_text()
    for before, after in itertools.pairwise(rows):
        follow = lines.index(after) == lines.index(before) + 1
        assert not follow or before.count("|") == after.count("|"), (before, after)


def test_bad_requests_are_one_line(tmp_path: Path):
    for arguments, words in (
        (["--summary", tmp_path], "items.json does not exist"),
        ([tmp_path], "bundle.json does not exist"),
        (["--only", "dance"], "--only dance is not known"),
    ):
        result = gpu_check(*arguments)
        assert result.returncode == 2
        assert words in result.stderr
        assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("python", ["3.10", "3.12"], ids=["JetPack 6", "JetPack 7"])
def test_what_it_needs_is_there_for_a_jetson(python: str):
    """Packages without a wheel for aarch64 are left out by their marker, and PyTorch is not asked for."""
    machine = {"platform_machine": "aarch64", "platform_system": "Linux"}
    machine |= {"python_version": python, "python_full_version": f"{python}.0"}

    def needed(name: str) -> set[str]:
        lines = (ROOT / "scripts" / name).read_text().splitlines()
        asked = [Requirement(line.partition("#")[0]) for line in lines if line.partition("#")[0].strip()]
        return {one.name for one in asked if one.marker is None or one.marker.evaluate(machine)}

    x86_alone = {"nvidia-cuda-nvrtc-cu12", "tensorrt-rtx-cu13-bindings", "tensorrt-rtx-cu13-libs"}
    checks, tests = needed("requirements-gpu-check.txt"), needed("requirements-test.txt")
    assert {"cuda-bindings", "hypothesis", "onnx", "pytest"} <= checks <= tests
    assert not tests & x86_alone
    assert "torch" not in checks


WRONG = {
    "worst": [{"stage": "image_encoder", "output": "features", "value": 0.4, "limit": 0.05}],
    "launch": {"plan to answers": "cuda graph"},
    "fault": "features of image_encoder is off by 0.4",
}


def test_a_numerical_fault_is_told_and_the_captures_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """`efftam verify --json` prints its report and ends with exit code 1."""
    verify = [sys.executable, "-c", f"print({json.dumps(WRONG)!r}); raise SystemExit(1)"]
    monkeypatch.setattr(script, "efftam", lambda *arguments: verify)
    check = script.Check(tmp_path, 1, {row.name: {"state": "ok", "found": ""} for row in script.ON_GPU})
    script.check_verify(check, (None,))
    items = {item.name: item for item in check.items}
    assert items["verify tensorrt shipped"].state == "FAILED"
    assert WRONG["fault"] in items["verify tensorrt shipped"].why
    assert items["captures tensorrt shipped"].state == "OK"
    assert json.loads((tmp_path / "verify_tensorrt_shipped.json").read_text())["fault"] == WRONG["fault"]
    assert (
        "| verify tensorrt shipped | FAILED | features of image_encoder"
        in (tmp_path / "summary.md").read_text()
    )


TIMELINE = {
    "timeline": {
        "clock": "CUPTI activity records",
        "frame_ms": 2.8,
        "unrecorded_frame_ms": 2.7,
        "network_ms": 1.7,
        "gaps_ms": {"binding": 0.1, "wait": 0.6, "policy": 0.4},
    }
}


@pytest.mark.parametrize(("ratio", "state"), [(1.04, "OK"), (0.62, "FAILED")])
def test_the_largest_gaps_of_a_frame_are_named_and_the_simulation_is_held_to_the_frame(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ratio: float, state: str
):
    """`efftam bench --timeline` writes its report to a file, the simulation prints its own."""
    write = "import sys; open(sys.argv[sys.argv.index('--json') + 1], 'w').write(sys.argv[1])"
    given: list[tuple[str, ...]] = []

    def timeline(*arguments: str) -> list[str]:
        given.append(arguments)
        return [sys.executable, "-c", write, json.dumps(TIMELINE), *arguments]

    simulated = {"simulated over measured": ratio, "within": state == "OK"}
    monkeypatch.setattr(script, "efftam", timeline)
    monkeypatch.setattr(
        script, "benchmark", lambda *arguments: [sys.executable, "-c", f"print({json.dumps(simulated)!r})"]
    )
    only = {row.name: {"state": "wrong", "found": "not here"} for row in script.ON_GPU}
    check = script.Check(tmp_path, 7, only | {"onnxruntime-cuda": {"state": "ok", "found": ""}})
    script.check_timeline(check, (None,))
    items = {item.name: item for item in check.items}
    found = items["timeline onnxruntime-cuda shipped"]
    assert found.state == "OK"
    order = [
        found.why.index(word) for word in ("2.80", "2.70", "1.70", "wait 0.60", "policy 0.40", "binding 0.10")
    ]
    assert order == sorted(order)
    assert items["simulation onnxruntime-cuda shipped"].state == state
    assert f"{ratio:.3f}" in items["simulation onnxruntime-cuda shipped"].why
    for what in ("timeline", "simulation"):
        assert items[f"{what} tensorrt shipped"] == script.Item(
            f"{what} tensorrt shipped", "NOT RUN", "not here"
        )
    (asked,) = given
    assert (asked[1], asked[3], asked[5]) == ("--timeline", "onnxruntime-cuda", "7")


def test_a_step_that_breaks_leaves_the_others_and_the_summary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def breaks(check: Any, bundles: Any) -> None:
        check.note("half", "OK")
        raise ValueError("broken\nhere")

    seen = []
    monkeypatch.setattr(
        script, "environment", lambda: {"driver_problem": None, "gpus": ["Test"], "platform": "x"}
    )
    monkeypatch.setattr(script, "check_environment", lambda check: None)
    monkeypatch.setitem(script.STEPS, "soak", breaks)

    def waits(check: Any, bundles: Any) -> None:
        (folder,) = tmp_path.glob("gpu_check_*")
        seen.append((folder / "summary.md").read_text())

    monkeypatch.setitem(script.STEPS, "waits", waits)
    assert script.main(["--only", "soak,waits", "--out", str(tmp_path)]) == 1
    assert "| half | OK |" in seen[0]
    assert "| soak | FAILED | ValueError: broken here |" in seen[0]


# --- CUDA calls counted through CUPTI, without Nsight Systems -----------------------------------------------


def test_the_newest_library_of_the_packages_is_found_or_none(
    packages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "TOOLKITS", str(tmp_path))
    for folder, found in ((packages, ["libcupti.so.13"]), (tmp_path, [])):
        monkeypatch.setattr(sys, "path", [str(folder)])
        assert [path.name for path in [script.find_cupti()] if path is not None] == found


def test_a_call_counts_when_it_begins_and_a_second_profiler_is_refused_until_the_first_ends(
    packages: Path,
) -> None:
    library = packages / "nvidia" / "cu13" / "lib" / "libcupti.so.13"
    for _ in range(2):
        with closing(script.CallCounter(library)) as counter:
            assert counter.counts == {"cuEventSynchronize": 1, "cuLaunchKernel": 2}
            with pytest.raises(RuntimeError, match="39"):
                script.CallCounter(library)


def test_waits_are_those_that_more_frames_add(tmp_path: Path) -> None:
    """As the driver reports them: a wait and an asynchronous copy in each frame, allocations at the start."""

    def run(title: str, command: list[str]) -> str:
        frames = int(command[command.index("--frames") + 1])
        calls = {"cuEventSynchronize": frames + 9, "cuMemcpyDtoHAsync_v2": 2 * frames, "cuMemAlloc_v2": 12}
        Path(command[3]).write_text(json.dumps(calls))
        return ""

    found = script.calls_per_frame(["--backend", "tensorrt"], tmp_path, run)
    assert found["counted_by"] == "CUPTI"
    assert found["waits_per_frame"] == 1
    assert found["allocations_per_frame"] == 0
    assert found["calls_per_frame"] == {"cuEventSynchronize": 1, "cuMemcpyDtoHAsync_v2": 2}
