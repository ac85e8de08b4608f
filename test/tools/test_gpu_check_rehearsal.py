"""`scripts/gpu_check` from start to end on a board made of fakes, without PyTorch."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import rehearsal
from tools_helpers import ROOT, package_environment

pytest.importorskip("cuda.bindings.driver", reason="the fakes take their names from cuda-bindings")
pytestmark = pytest.mark.slow

ENGINES = ("tensorrt", "tensorrt fp32", "tensorrt int8")


@pytest.fixture(scope="module")
def rehearsed(
    tmp_path_factory: pytest.TempPathFactory, packages: Path
) -> tuple[subprocess.CompletedProcess[str], Path]:
    """The finished process and its folder."""
    folder = tmp_path_factory.mktemp("board")
    (folder / "tegrastats").write_text("#!/bin/sh\necho RAM 1/2MB GR3D_FREQ 99%@1300\nexec sleep 60\n")
    (folder / "tegrastats").chmod(0o755)
    env = {**os.environ, **package_environment(), **rehearsal.environment(folder, ROOT)}
    env["PATH"] = f"{folder}:{env['PATH']}"
    env["PYTHONPATH"] += f":{packages}"
    command = [sys.executable, str(ROOT / "scripts" / "gpu_check.py"), "--frames", "1"]
    steps = "bindings,parse,engines,layers,verify,frames,timeline,node,agreement,copies,bench,soak,waits"
    done = subprocess.run(
        [*command, "--only", steps, "--out", str(folder)],
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=1500,
    )
    found = list(folder.glob("gpu_check_*"))
    assert len(found) == 1, done.stderr
    return done, found[0]


@pytest.fixture(scope="module")
def items(rehearsed: tuple[subprocess.CompletedProcess[str], Path]) -> dict[str, dict[str, Any]]:
    return {item["name"]: item for item in json.loads((rehearsed[1] / "items.json").read_text())}


@pytest.fixture
def kept(rehearsed: tuple[subprocess.CompletedProcess[str], Path]) -> Callable[[str], Any]:
    """What an item left as a file."""
    return lambda name: json.loads((rehearsed[1] / f"{name.replace(' ', '_')}.json").read_text())


DONE = (
    *("bindings", "parse shipped", "engines fp16 shipped", "engines fp32 shipped", "layers shipped"),
    *(f"{what} {of} shipped" for what in ("verify", "captures") for of in ENGINES),
    *("frames sleeping tensorrt shipped", "frames spinning tensorrt shipped", "back ends agree"),
    *("bench copied", "bench zero copy", "bench shipped", "bench shipped cpu"),
)


@pytest.mark.parametrize("name", DONE)
def test_what_a_board_can_do_is_done(items: dict[str, dict[str, Any]], name: str) -> None:
    assert items[name]["state"] == "OK", items[name]["why"]


def test_the_board_is_named(rehearsed: Any, items: dict[str, dict[str, Any]]) -> None:
    assert rehearsed[1].name.startswith("gpu_check_Orin_")
    assert "1 GPU(s); Orin, compute capability 8.7, 8 multiprocessors, 16 GiB" in items["bindings"]["why"]
    assert re.match(r"[4-9] passed, ", items["back ends agree"]["why"])


def test_engines_are_parsed_built_and_verified_and_their_layers_kept(
    items: dict[str, dict[str, Any]], kept: Callable[[str], Any]
) -> None:
    assert len(kept("parse shipped")["refused"]) == 10
    assert list(items).index("parse shipped") < list(items).index("engines fp16 shipped")
    for precision in ("fp16", "fp32"):
        assert len(kept(f"engines {precision} shipped")["engines"]) == 5
    for engines in ENGINES:
        stages = {one["stage"] for one in kept(f"verify {engines} shipped")["worst"]}
        assert {"preprocess", "memory_encoder", "search"} <= stages
    report = kept("layers shipped")
    for found in (report["layers"], report["layer_ms"]):
        assert len(found) == 5
        assert all(found.values())
    assert isinstance(report["warnings"], list)


@pytest.mark.parametrize("waits", ["sleeping", "spinning"])
def test_every_frame_of_the_shipped_policy_is_kept_back_to_back_and_paced(
    kept: Callable[[str], Any], waits: str
) -> None:
    rates = kept(f"frames {waits} tensorrt shipped")["rates"]
    assert [one["rate_hz"] for one in rates] == [0, 30, 60]
    for one in rates:
        assert len(one["frames_ms"]) == 1
        assert {"longest_pause_ms", "context_switches", "stolen_ticks", "gpu"} <= set(one)
        assert one["tegrastats"] == ["RAM 1/2MB GR3D_FREQ 99%@1300"]


def test_a_frame_is_shown_on_one_time_line_and_its_costs_simulated(
    items: dict[str, dict[str, Any]], kept: Callable[[str], Any], rehearsed: Any
) -> None:
    assert items["timeline tensorrt shipped"]["state"] == "OK", items["timeline tensorrt shipped"]["why"]
    timeline = kept("timeline tensorrt shipped")["timeline"]
    assert timeline["clock"].startswith("CUDA events: ")  # the fakes have no CUPTI
    for one in timeline["each"]:
        assert sum(one["spent_ms"].values()) == pytest.approx(one["frame_ms"], abs=1e-6)
    trace = json.loads((rehearsed[1] / "timeline_tensorrt_shipped.trace.json").read_text())
    assert {event["ph"] for event in trace["traceEvents"]} == {"M", "X"}
    assert kept("simulation tensorrt shipped")["measured frame, ms"] > 0
    assert items["simulation tensorrt shipped"]["state"] in ("OK", "FAILED")  # of a GPU that is made of fakes


def test_the_node_goes_through_its_states_and_ends_by_a_signal(
    items: dict[str, dict[str, Any]], kept: Callable[[str], Any]
) -> None:
    pytest.importorskip("efftam_ros.msg", reason="the messages are not built")
    assert items["node tensorrt shipped"]["state"] == "OK", items["node tensorrt shipped"]["why"]
    assert items["node tensorrt shipped"]["why"].endswith("SIGTERM: exit code 0")
    steps = kept("node tensorrt shipped")["steps"]
    assert [one["step"] for one in steps].count("configure") == 2
    assert all(one["resident_mb"] > 0 for one in steps)


@pytest.mark.parametrize("of", ["soak, resident memory", "soak, device memory", "waits"])
def test_memory_and_waits_are_measured_on_each_back_end_that_runs(
    items: dict[str, dict[str, Any]], of: str
) -> None:
    """On a board that is TensorRT: onnxruntime has no code for it."""
    step, comma, memory = of.partition(",")
    item = items[f"{step} tensorrt shipped{comma}{memory}"]
    assert item["state"] != "NOT RUN", item["why"]
    assert items[f"{step} onnxruntime-cuda shipped"]["state"] == "NOT RUN"


def test_what_can_not_run_says_why(items: dict[str, dict[str, Any]]) -> None:
    for name in ("verify onnxruntime-cuda shipped", "bench shipped, torch-cuda"):
        assert items[name]["state"] == "NOT RUN"
        assert items[name]["why"]


def test_the_summary_has_every_item(rehearsed: Any, items: dict[str, dict[str, Any]]) -> None:
    done, folder = rehearsed
    text = (folder / "summary.md").read_text()
    assert all(f"| {name} | {item['state']} |" in text for name, item in items.items())
    assert f"paste {folder / 'summary.md'}" in done.stdout
    failed = [name for name, item in items.items() if item["state"] == "FAILED"]
    # Kernels that Python runs leave memory behind.
    # The times of the fakes are no times of a GPU.
    fakes = {"soak tensorrt shipped, resident memory", "simulation tensorrt shipped"}
    assert set(failed) <= {"environment", *fakes}
    assert done.returncode == bool(failed)
