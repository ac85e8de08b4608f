"""Opening a pipeline by the name of its back end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.contract import Look
from efftam_ros.core.errors import BackendError, InputError
from efftam_ros.core.geometry import Box, View
from efftam_ros.core.types import Image, Prompt
from efftam_ros.runtime.backends import BACKENDS, GPU_BACKENDS, PipelineConfig, backend_of
from efftam_ros.runtime.bundle import Bundle
from efftam_ros.runtime.onnxruntime.cpu import default_threads, set_threads
from efftam_ros.runtime.opening import open_pipeline, open_targets
from simulation.null_pipeline import NullPipeline


@pytest.mark.parametrize("given", ["nothing", "a folder", "a folder at home", "one that is open"])
def test_the_bundle_may_be_given_in_any_form(
    shipped: Bundle, given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(shipped.folder.parent))
    folders = {"a folder": str(shipped.folder), "a folder at home": f"~/{shipped.folder.name}"}
    folder = folders.get(given, "")
    bundle = shipped if given == "one that is open" else None
    pipeline = open_pipeline(PipelineConfig(folder, threads=1), bundle)
    assert pipeline.spec == shipped.spec
    view, prompt = View.full(64, 48, shipped.spec.image_side), Prompt(box=Box(10, 10, 20, 20))
    image = Image.from_array(np.zeros((48, 64, 3), np.uint8))
    (found,) = pipeline.look(image, [Look(0, (view,), prompt=prompt)]).candidates(0)
    assert len(found) == 1
    pipeline.close()


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"backend": "cuda"}, ("'cuda'", *BACKENDS)),
        ({"threads": -1}, ("threads is -1", "[0, 256]")),
        ({"zero_copy": True}, ("zero_copy is for back ends on a GPU", "onnxruntime-cpu")),
    ],
)
def test_what_can_not_be_opened_is_refused(config: dict[str, Any], words: tuple[str, ...]) -> None:
    with pytest.raises(InputError) as refusal:
        open_pipeline(PipelineConfig(**config))
    assert [word for word in words if word not in str(refusal.value)] == []


@pytest.mark.parametrize(
    ("settings", "sources"),
    [
        ({}, {"camera motion", "identity"}),
        ({"camera_motion": "off"}, {"identity"}),
        ({"identity": False}, {"camera motion"}),
        ({"policy": "samurai"}, set()),
    ],
)
def test_a_tracker_has_the_sources_that_its_settings_and_its_policy_ask_for(
    settings: dict[str, Any], sources: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("efftam_ros.core.targets.TargetSet", lambda *given, **how: given)
    _, _, camera, _, describe, *_ = (*open_targets(NullPipeline(), TrackerConfig(**settings)), *[None] * 5)
    found = {"camera motion": camera, "identity": describe}
    assert {name for name, source in found.items() if source is not None} == sources


def test_a_gpu_s_pipeline_is_opened_with_all_that_was_asked_for(
    shipped: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("efftam_ros.runtime.device.opening.open_device_pipeline", lambda *given: given)
    asked = {"precision": "int8", "verify": "never", "zero_copy": True, "max_targets": 3}
    opened = open_pipeline(PipelineConfig(backend="tensorrt", **asked), shipped)
    assert opened == (shipped, backend_of("tensorrt"), *asked.values())


@pytest.mark.parametrize("backend", GPU_BACKENDS)
def test_a_device_is_never_replaced_by_the_cpu_in_silence(backend: str) -> None:
    with pytest.raises(BackendError) as unavailable:
        open_pipeline(PipelineConfig(backend=backend))
    assert backend in unavailable.value.reason
    assert "onnxruntime-cpu" in unavailable.value.remedy


def said_by(script: str) -> str:
    """By a process of its own."""
    command, root = [sys.executable, "-c", script], Path(__file__).parents[2]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize(
    ("backend", "module", "remedy"),
    [
        ("torch", "torch", "pip install torch onnx"),
        ("onnxruntime-cpu", "onnxruntime", "pip install onnxruntime"),
    ],
)
def test_a_missing_library_is_named_with_the_line_that_mends_it(
    backend: str, module: str, remedy: str
) -> None:
    """Where that module can't be imported."""
    script = f"""
import sys
sys.modules["{module}"] = None
from benchmarks.backends import open_measurable
from efftam_ros.core.errors import BackendError
try:
    open_measurable(None, "{backend}")
except BackendError as error:
    print(error)
"""
    assert f"{backend} can't run: the Python module {module} is not installed; {remedy}" in said_by(script)


def test_opening_the_cpu_back_end_imports_neither_torch_nor_ros() -> None:
    script = """
import sys
from efftam_ros.runtime.backends import PipelineConfig
from efftam_ros.runtime.opening import open_pipeline
open_pipeline()
print(sorted({"torch", "rclpy", "matplotlib", "av"} & set(sys.modules)))
"""
    assert said_by(script) == "[]"


@pytest.mark.parametrize(
    ("siblings", "usable", "threads"),
    [
        (["0-1", "0-1", "2-3", "2-3"], {0, 1, 2, 3}, 2),  # two cores, two threads each
        (["0,2", "1,3", "0,2", "1,3"], {0, 1, 2, 3}, 2),
        (["0,2", "1,3", "0,2", "1,3"], {0, 2}, 1),
        (["0", "1", "2"], {0, 1, 2}, 3),
        (["0", "1", "2"], {0, 2}, 2),
        ([str(cpu) for cpu in range(6)], set(range(6)), 4),
        ([], {0, 1, 2}, 3),  # where the system does not say
    ],
)
def test_the_default_is_a_thread_per_usable_core_and_at_most_four(
    siblings: list[str], usable: set[int], threads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for cpu, cores in enumerate(siblings):
        folder = tmp_path / f"cpu{cpu}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{cores}\n")
    monkeypatch.setattr("efftam_ros.runtime.onnxruntime.cpu._TOPOLOGY", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: usable)
    assert default_threads() == threads


SPINNING, SPIN_US = "session.intra_op.allow_spinning", "session.intra_op.spin_duration_us"


@pytest.mark.parametrize(
    ("version", "spins"), [("1.18.0", "0"), ("1.25.1", "0"), ("1.26.0", "1"), ("1.31.1", "1"), ("2.0.0", "1")]
)
def test_threads_spin_only_where_the_time_has_a_limit(version: str, spins: str) -> None:
    options = onnxruntime.SessionOptions()
    set_threads(options, 3, version)
    assert options.intra_op_num_threads == 3
    assert options.get_session_config_entry(SPINNING) == spins
    if spins == "1":
        assert 0 < int(options.get_session_config_entry(SPIN_US)) <= 100
    else:
        with pytest.raises(RuntimeError):
            options.get_session_config_entry(SPIN_US)


@pytest.mark.parametrize(("threads", "count", "at_once"), [(3, 1, None), (3, 2, 2), (1, 2, None)])
def test_every_graph_of_a_pipeline_gets_the_threads_and_as_many_targets_are_computed_at_once(
    threads: int, count: int, at_once: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[onnxruntime.SessionOptions] = []
    session = onnxruntime.InferenceSession

    def recording(path: str, options: onnxruntime.SessionOptions, **rest: Any) -> Any:
        opened.append(options)
        return session(path, options, **rest)

    monkeypatch.setattr(onnxruntime, "InferenceSession", recording)
    pipeline = open_pipeline(PipelineConfig(threads=threads, max_targets=count))
    pool = pipeline._pool
    assert (pipeline.max_targets, pool and pool._max_workers) == (count, at_once)
    pipeline.close()
    set_threads(expected := onnxruntime.SessionOptions(), threads, onnxruntime.__version__)
    assert [options.intra_op_num_threads for options in opened] == [threads] * 5
    spins = {options.get_session_config_entry(SPINNING) for options in opened}
    assert spins == {expected.get_session_config_entry(SPINNING)}
