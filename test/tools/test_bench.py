"""`efftam bench`: that what it prints was measured; no figure is asserted against a clock."""

from __future__ import annotations

import itertools
import json
import mmap
from pathlib import Path

import cv2
import numpy as np
import pytest
from tools_helpers import assert_refused

from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.tracker import Tracker
from efftam_ros.runtime.null import NullPipeline
from efftam_ros.tools.bench_frames import MODULES, Contender, Timing, Watched, endless_frames
from efftam_ros.tools.bench_motion import LOST_SHARE, measure_motion
from efftam_ros.tools.bench_soak import measure_soak, resident_mb


def test_every_frame_runs_all_modules_with_full_memory(efftam, tmp_path: Path):
    result = efftam(
        "bench", "--frames", "4", "--threads", "1", "--json", "b.json", "--plot", "b.png", timeout=200
    )
    assert result.returncode == 0, result.stderr
    (timing,) = json.loads((tmp_path / "b.json").read_text())["frames"]
    assert timing["backend"] == "onnxruntime-cpu"
    assert (timing["frames"], timing["incomplete_frames"]) == (4, 0)
    assert (timing["maps"], timing["pointers"]) == (7, 16)
    assert set(MODULES) <= set(timing["stages_ms"])
    assert timing["glue_ratio"] > 1
    assert timing["whole_p99_ms"] >= timing["whole_ms"] > sum(timing["stages_ms"][m] for m in MODULES) * 0.5
    assert "glue ratio" in result.stdout
    assert "goal at most 1.05" in result.stdout
    assert cv2.imread(str(tmp_path / "b.png")) is not None


def test_the_ratio_is_taken_within_each_frame():
    timing = Timing("x", "net", "onnxruntime-cpu")
    stages = dict.fromkeys(MODULES, 0.010) | {"preprocess": 0.002}
    timing.add(0.044, stages)
    timing.add(0.060, stages)
    timing.add(0.042, stages)
    timing.add(9.0, {"image_encoder": 0.01})  # did not run them all
    assert timing.glue_ratio == pytest.approx(1.1)
    assert timing.incomplete == 1
    assert timing.whole_ms == pytest.approx(52)
    slow = Timing("y", "net", "torch")
    slow.add(0.156, stages)
    assert timing.times_faster_than_torch([timing, slow]) == pytest.approx(3)
    assert timing.times_faster_than_torch([timing]) is None


def test_pictures_go_to_and_fro_without_a_jump_while_time_goes_on():
    frames = endless_frames((160, 90))
    taken = [next(frames) for _ in range(60)]
    stamps = [frame.stamp_ns for frame, _ in taken]
    assert stamps == sorted(set(stamps))
    assert [prompt is not None for _, prompt in taken] == [True] + [False] * 59
    rows = [frame.image.rows.astype(int) for frame, _ in taken]
    steps = [np.abs(a - b).mean() for a, b in itertools.pairwise(rows)]
    assert max(steps) < 3 * np.median(steps)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads resident memory from /proc")
def test_soak_sees_memory_that_grows(monkeypatch: pytest.MonkeyPatch):
    class Leaking(NullPipeline):
        def attend(self, plan) -> None:
            fresh = mmap.mmap(-1, 800_000)  # pages of its own: malloc would use up what is free first
            fresh.write(bytes(800_000))
            kept.append(fresh)

    kept: list[mmap.mmap] = []

    small = list(zip(range(200), endless_frames((160, 90)), strict=False))
    monkeypatch.setattr("efftam_ros.tools.bench_soak.endless_frames", lambda: (pair for _, pair in small))

    def soak(pipeline) -> float:
        watched = Watched(pipeline)
        tracker = Tracker(watched, TrackerConfig(policy="efficienttam"))
        return measure_soak(Contender("x", "null", watched, tracker), 100, quiet=True)["growth_mb"]

    assert soak(NullPipeline()) < 5
    assert soak(Leaking()) > 70  # of 80 MB
    assert resident_mb() > 20


def test_velocity_error_on_a_target_of_known_motion():
    for dropped in (0.0, LOST_SHARE):
        result = measure_motion(dropped)
        assert result["error_at_half_second"] <= 0.05
        assert result["error_after"] <= 0.05


def test_what_is_asked_for_is_what_is_measured(efftam):
    result = efftam("bench", "--motion", "--json", "-")
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert list(report) == ["motion"]
    assert [run["dropped"] for run in report["motion"]] == [0.0, LOST_SHARE]


def test_bad_requests_are_one_line(efftam):
    assert_refused(efftam("bench", "--frames", "0"), "--frames is 0")
    assert_refused(efftam("bench", "--soak", "2"), "--soak is 2")
    assert_refused(efftam("bench", "--backend", "abacus"), "'abacus' is not known", "onnxruntime-cpu")
    assert_refused(efftam("bench", "--motion", "--plot", "x.png"), "--frames")


@pytest.mark.ros
def test_the_node_is_measured_over_the_middleware(efftam):
    pytest.importorskip("rclpy", reason="needs ROS 2")
    pytest.importorskip("efftam_ros.msg", reason="needs the built messages: colcon build")
    result = efftam("bench", "--node", "--json", "-")
    assert result.returncode == 0, result.stderr
    node = json.loads(result.stdout)["node"]
    assert (node["width"], node["height"]) == (1280, 720)
    assert node["answered"] > 100
    assert 0 < node["p50_ms"] <= node["p99_ms"]
