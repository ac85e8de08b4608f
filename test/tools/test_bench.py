"""`efftam bench`: that what it prints was measured; no figure is asserted against a clock."""

from __future__ import annotations

import json
import mmap
from pathlib import Path

import pytest
from tools_helpers import assert_refused

from efftam_ros.core.config import TrackerConfig
from efftam_workshop.bench import command, frames
from efftam_workshop.bench.frames import drawn_frames, measure_soak, measure_stages
from simulation.null_pipeline import NullPipeline

HOST = {"camera motion", "identity of a crop"}
NETWORK = {"preprocess", "image_encoder", "memory_attention", "mask_decoder", "memory_encoder"}
SMALL = ("bench", "--threads", "1", "--image", "320x192", "--frames", "3")


def test_the_stages_are_those_of_the_node_and_end_in_the_whole_frame(efftam, tmp_path: Path):
    result = efftam(*SMALL, "--json", "b.json")
    assert (result.returncode, result.stderr) == (0, "")
    report = json.loads((tmp_path / "b.json").read_text())
    assert (report["bundle"], report["backend"]) == ("compact_192", "onnxruntime-cpu")
    stages = report["stages"]
    assert set(stages) == NETWORK | HOST | {"image to box", "whole frame"}
    assert all(0 < stage["median_ms"] <= stage["p99_ms"] for stage in stages.values())
    assert stages["whole frame"]["median_ms"] >= stages["image to box"]["median_ms"]
    lines = result.stdout.splitlines()
    assert lines[0] == "compact_192 on onnxruntime-cpu"
    assert lines[-1].split()[:2] == ["whole", "frame"]
    assert lines[-1].endswith("100%")
    explained = " ".join((command.__doc__ or "").split())
    assert [stage for stage in stages if stage not in explained] == []


def test_a_users_video_is_measured_from_its_box(efftam_here, square_video: Path, monkeypatch):
    monkeypatch.setattr(frames, "WARM_UP", 4)
    result = efftam_here(*SMALL[:3], "--video", square_video, "--box", "40,30,24,24", "--json", "-")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["stages"]["whole frame"]["median_ms"] > 0
    monkeypatch.setattr(frames, "WARM_UP", 12)
    short = efftam_here(*SMALL[:3], "--video", square_video, "--box", "40,30,24,24")
    assert_refused(short, "after 12 frames of warm-up")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads resident memory from /proc")
def test_a_long_run_tells_memory_before_and_after_it(monkeypatch):
    before, block = frames.resident_mb(), mmap.mmap(-1, 64_000_000)  # pages of its own
    block.write(bytes(64_000_000))
    assert 50 < frames.resident_mb() - before < 140
    for name, told in (("resident_mb", [1.0, 2.0]), ("device_used_mb", [None, 3.0])):
        monkeypatch.setattr(frames, name, iter(told).__next__)
    soak = measure_soak(NullPipeline(), TrackerConfig(camera_motion="off"), drawn_frames((160, 90)), 0.1)
    assert (soak["resident_mb"], soak["device_mb"], soak["frames"] > 0) == ([1.0, 2.0], [None, 3.0], True)


def test_a_soak_reports_start_and_end(efftam_here, monkeypatch):
    monkeypatch.setattr(frames, "SETTLED", 2)
    result = efftam_here(*SMALL[:-2], "--soak", "0.2")
    assert result.returncode == 0, result.stderr
    rows = [line for line in result.stdout.splitlines() if line.startswith(("resident", "GPU", "whole"))]
    assert [len(row.split()) - len(row.split(",")[0].split()) for row in rows] == [3, 3, 3]


def test_every_stage_of_a_gpu_is_timed_in_every_frame():
    class Sampling(NullPipeline):
        stage_interval = 30

    pipeline = Sampling()
    measure_stages(pipeline, TrackerConfig(), drawn_frames((160, 90)), 1)
    assert pipeline.stage_interval == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--frames", "0"), ("--frames is 0",)),
        (("--soak", "0"), ("--soak is 0",)),
        (("--video", "x.mp4"), ("--video", "add --box")),
        (("--box", "1,2,3,4"), ("--box 1,2,3,4", "add --video")),
        (("--video", "x.mp4", "--box", "1,2,3,4", "--soak", "1"), ("--video", "--soak", "leave out")),
        (("--backend", "tensorrt"), ("tensorrt can't run",)),
        (("--backend", "abacus"), ("'abacus'", "onnxruntime-cpu")),
        (("--image", "12x"), ("'12x' is not WxH",)),
        (("--soak", "1", "--node"), ("not allowed with",)),
    ],
)
def test_bad_requests_are_one_line(efftam_here, monkeypatch, arguments, words):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert_refused(efftam_here("bench", *arguments), *words)


def test_the_node_needs_ros_and_says_what_is_missing(efftam_here, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert_refused(efftam_here("bench", "--node"), "rclpy is missing", "source")


@pytest.mark.ros
def test_the_live_node_is_measured_over_the_middleware(efftam_here, monkeypatch):
    pytest.importorskip("rclpy", reason="needs ROS 2")
    pytest.importorskip("efftam_ros.msg", reason="needs the built messages: colcon build")
    monkeypatch.setattr("efftam_workshop.bench.command.NODE_SECONDS", 2.0)
    result = efftam_here("bench", "--node", "--threads", "1", "--image", "320x192", "--json", "-")
    assert result.returncode == 0, result.stderr
    node = json.loads(result.stdout)["node"]
    assert 0 < node["answered"] <= node["sent"] <= 61  # 2 s at 30 Hz
    assert 0 < node["p50_ms"] <= node["p99_ms"]
    assert 0 < node["callback_p50_ms"] <= node["callback_p99_ms"]
