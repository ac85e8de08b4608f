"""`python -m benchmarks`: that what is printed was measured; no figure is asserted against a clock."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path

import pytest
from tools_helpers import assert_refused

from benchmarks.compare import launch_summary, print_frames
from benchmarks.contenders import MODULES, Contender, ours, theirs
from benchmarks.frames import TURN, measure_frames
from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.geometry import Box
from efftam_ros.core.types import Frame, Prompt
from efftam_workshop.bench.frames import WARM_UP, drawn_frames
from simulation.null_pipeline import NullPipeline

ABSENT = ("tensorrt", "onnxruntime-tensorrt")


def contender(pipeline, name: str = "x", backend: str = "null") -> Contender:
    return replace(ours(pipeline, backend, TrackerConfig(policy="efficienttam")), name=name)


def measured(contenders: list[Contender], frames: Iterator, count: int) -> list[Contender]:
    measure_frames(contenders, frames, count, quiet=True)
    return contenders


@cache
def drawn() -> list[tuple[Frame, Prompt | None]]:
    return list(itertools.islice(drawn_frames((160, 90)), 100))


def small_frames(count: int | None = None) -> list[tuple[Frame, Prompt | None]]:
    return drawn()[:count]


def test_every_command_has_its_line_and_its_options(benchmark_here):
    shown = benchmark_here("--help")
    assert shown.returncode == 0
    for name in ("compare", "peers", "latency", "transport", "idle_gpu", "operator_page"):
        assert any(line.split()[:1] == [name] and line.split()[1:] for line in shown.stdout.splitlines())
        assert f"python -m benchmarks {name}" in benchmark_here(name, "--help").stdout
    assert_refused(benchmark_here("bench"), "'bench'", "compare")


def test_every_frame_runs_all_modules_with_full_memory(benchmark_here, tmp_path: Path):
    asked = ("compare", "--frames", "2", "--threads", "1", "--policy", "efficienttam,default")
    asked = (*asked, "--skip-unavailable", "--backend", ",".join(("onnxruntime-cpu", *ABSENT)))
    result = benchmark_here(*asked, "--quiet", "--image", "320x180", "--json", "b.json")
    assert result.returncode == 0, result.stderr
    report = json.loads((tmp_path / "b.json").read_text())
    timing, other = report["frames"]
    assert report["image"] == [320, 180]
    assert [one["backend"] for one in report["left_out"]] == list(ABSENT)
    assert result.stdout.count("left out: ") == 2
    assert report["environment"]["onnxruntime"]
    assert [one["name"].split()[-1] for one in report["frames"]] == ["efficienttam", "default"]
    assert timing["backend"] == "onnxruntime-cpu"
    assert (timing["frames"], timing["incomplete_frames"]) == (2, 0)
    assert (timing["maps"], timing["pointers"]) == (7, 16)
    assert set(MODULES) <= set(timing["stages_ms"])
    assert timing["glue_ratio"] > 1
    assert timing["whole_p99_ms"] >= timing["whole_ms"] > sum(timing["stages_ms"][m] for m in MODULES) * 0.5
    assert (timing["relative"], other["relative"]) == (1, other["whole_ms"] / timing["whole_ms"])
    assert timing["start_up_s"] > timing["whole_ms"] / 1e3
    assert timing["resident_mb"] < 2000  # growth: little where freed memory is used again
    assert (timing["device_mb"], timing["launch"], timing["times_faster_than"]) == (None, {}, {})
    assert "x torch" not in result.stdout


def test_what_a_pipeline_says_of_its_device_is_asked_while_it_is_open(
    benchmark_here, monkeypatch, tmp_path: Path
):
    class OnDevice(NullPipeline):
        device_bytes = 123_000_000
        closed = False

        @property
        def launch(self) -> dict[str, str]:
            assert not self.closed
            return {
                "image_encoder": "cuda graph",
                "memory_attention": "plain launches: shapes change",
                "mask_decoder": "cuda graph",
            }

        def close(self) -> None:
            self.closed = True

    monkeypatch.setattr("benchmarks.contenders.open_measurable", lambda *given: OnDevice())
    asked = ("compare", "--frames", "1", "--policy", "efficienttam", "--image", "320x180", "--json", "b.json")
    result = benchmark_here(*asked, "--quiet")
    assert result.returncode == 0, result.stderr
    (timing,) = json.loads((tmp_path / "b.json").read_text())["frames"]
    assert timing["device_mb"] == 123
    assert timing["launch"]["memory_attention"] == "plain launches: shapes change"
    assert "2 cuda graph, 1 plain launches" in result.stdout
    assert "memory_attention: plain launches: shapes change" in result.stdout
    assert launch_summary({}) is None
    assert launch_summary({"a": "cuda graph", "b": "cuda graph"}) == "cuda graph"


def test_the_ratio_is_taken_within_each_frame():
    timing = Contender("x", "net", "onnxruntime-cpu")
    stages = dict.fromkeys(MODULES, 0.010) | {"preprocess": 0.002}
    timing.add(0.044, stages)
    timing.add(0.060, stages)
    timing.add(0.042, stages)
    timing.add(9.0, {"image_encoder": 0.01})  # did not run them all
    record = timing.record([timing])
    assert record["glue_ratio"] == pytest.approx(1.1)
    assert record["incomplete_frames"] == 1
    assert record["whole_ms"] == pytest.approx(52)


def test_each_baseline_is_compared_with_where_it_ran_on_the_same_bundle(capsys):
    def timing(backend: str, seconds: float, bundle: str = "net") -> Contender:
        made = Contender(f"{bundle} {backend}", bundle, backend)
        made.add(seconds, dict.fromkeys(MODULES, 0.002))
        return made

    cuda = timing("onnxruntime-cuda", 0.010)
    everyone = [
        cuda,
        timing("torch-cuda", 0.040),
        timing("torch-cuda-bf16", 0.025),
        timing("torch-cuda-compiled", 0.012),
        timing("torch", 0.9, bundle="another"),
    ]
    faster = cuda.record(everyone)["times_faster_than"]
    assert faster == pytest.approx({"torch-cuda": 4, "torch-cuda-bf16": 2.5, "torch-cuda-compiled": 1.2})
    assert cuda.record([cuda])["times_faster_than"] == {}
    print_frames([one.record(everyone) for one in everyone])
    row = next(
        line for line in capsys.readouterr().out.splitlines() if line.startswith("net onnxruntime-cuda")
    )
    assert row.split()[-4:] == ["-", "4.00", "2.50", "1.20"]


class Noting(NullPipeline):
    """Notes the pixels that it gets."""

    def __init__(self, name: str, log: list[tuple[str, object]]) -> None:
        super().__init__()
        self.name, self.log = name, log

    def _compute(self, image, frame) -> None:
        seen = self.name, image.rows.tobytes()
        if self.log[-1:] != [seen]:  # a selection is looked at twice
            self.log.append(seen)
        super()._compute(image, frame)


class NotingPeer:
    name = "peer"

    def __init__(self, log: list[tuple[str, object]]) -> None:
        self.log = log

    def start(self, bgr, box) -> None:
        self.log.append((self.name, (bgr.tobytes(), bgr.shape, box)))

    def update(self, bgr) -> Box:
        self.log.append((self.name, bgr.tobytes()))
        return Box(0, 0, 1, 1)


def test_contenders_take_turns_on_the_same_frames_and_the_first_of_each_turn_is_not_counted(
    capsys: pytest.CaptureFixture[str],
):
    log: list[tuple[str, object]] = []
    everyone = [contender(Noting(name, log), name) for name in "ab"] + [theirs(NotingPeer(log))]
    frames = iter(small_frames())
    first = next(frames)
    for one in everyone:
        one.step(*first)
    (_, drawn), _, (_, prompted) = log
    assert prompted == (drawn, (90, 160, 3), first[1].box)
    log.clear()
    count = 2 * TURN + 2
    timings = measured(everyone, frames, count)
    assert [len(timing.whole) for timing in timings] == [count] * 3
    of = {name: [picture for who, picture in log if who == name] for name in ("a", "b", "peer")}
    assert of["a"] == of["b"] == of["peer"]
    assert len(of["a"]) == WARM_UP + count + 3  # three turns
    turns = [(who, len(list(group))) for who, group in itertools.groupby(who for who, _ in log)]
    orders = [("a", "b", "peer"), ("a", "b", "peer"), ("b", "peer", "a"), ("peer", "a", "b")]
    lengths = (WARM_UP, TURN + 1, TURN + 1, 3)
    assert turns == [(who, n) for order, n in zip(orders, lengths, strict=True) for who in order]
    mine, _, other = records = [timing.record(timings) for timing in timings]
    assert (mine["relative"], other["relative"]) == (1, pytest.approx(other["whole_ms"] / mine["whole_ms"]))
    assert (other["backend"], other["incomplete_frames"]) == ("peer", 0)
    print_frames(records)
    assert "peer: " not in capsys.readouterr().out  # nothing about modules that were not run


def test_requests_that_can_not_be_met_are_one_line(benchmark_here, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    asked = ("compare", "--frames", "2", "--threads", "1", "--image", "320x180")
    all_three = (*asked, "--backend", ",".join(("onnxruntime-cpu", *ABSENT)))
    assert_refused(benchmark_here(*all_three), *ABSENT, "--skip-unavailable")
    alone = benchmark_here(*asked, "--backend", ABSENT[0], "--skip-unavailable")
    assert_refused(alone, ABSENT[0], "no back end is left")
    assert_refused(benchmark_here(*asked, "--peers", "fear_xs"), "--peer-models DIR")
    assert_refused(benchmark_here("compare", "--peers", "siamese"), "'siamese' is not one of csrt")
    assert_refused(benchmark_here("compare", "--frames", "0"), "--frames is 0")
    assert_refused(benchmark_here("compare", "--backend", "abacus"), "'abacus' is not one of onnxruntime-cpu")


def test_python_alone_is_measured_on_a_gpu_that_does_nothing(benchmark_here) -> None:
    """The target rests where it is prompted, so every counted frame is a tracked one that is remembered."""
    pytest.importorskip("cuda.bindings.driver", reason="the calls take their names from cuda-bindings")
    result = benchmark_here("idle_gpu", "--image", "320x192", "--frames", "3")
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert (found["frames"], found["image"], found["view"]) == (3, [320, 192], "bundle")
    for camera in ("off", "auto", "auto, GPU idle"):
        parts = found[f"camera_motion {camera}, ms"]
        assert list(parts) == ["in series", "beside the network", "after the answer"]
        assert all(0 < times["p10"] <= times["median"] for times in parts.values())
    for policy, how in product(("efficienttam", "default"), ("each graph by itself", "two graphs")):
        ratio, memory, network = found[f"{policy}, {how}"].values()
        assert 1 < ratio["p10"] <= ratio["median"]
        assert memory["p10"] > 0
        assert 0 <= network["p10"] <= network["median"]
    refused = benchmark_here("idle_gpu", "--modules", "1,2,3")
    assert refused.returncode == 2
    assert "'1,2,3' is not four times in ms" in refused.stderr


def test_a_gpu_is_simulated_with_measured_costs(benchmark_here, tmp_path: Path) -> None:
    """The simulated frame is at least what the network takes, and grows by what the host's calls take."""
    pytest.importorskip("cuda.bindings.driver", reason="the calls take their names from cuda-bindings")
    modules = dict.fromkeys(("image_encoder", "memory_attention", "mask_decoder", "memory_encoder"), 5.0)
    quick = {"calls_us": {}, "run_us": dict.fromkeys(modules, 1.0), "start_us": 1.0, "wake_us": 1.0}
    costs = {"frame_ms": 21.0, "modules_ms": modules, "kernel_us": 1.0, "bytes_per_us": 25e3, **quick}

    def simulated(**change: object) -> dict[str, float]:
        (tmp_path / "r.json").write_text(json.dumps({"timeline": {"costs": costs | change}}))
        result = benchmark_here("idle_gpu", "--costs", "r.json", "--image", "320x192", "--frames", "3")
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout)

    plain = simulated()
    assert plain["simulated frame, ms"] >= 20.0
    assert plain["frame over modules, measured"] == 1.05
    assert plain["within"] == (abs(plain["simulated over measured"] - 1) <= 0.1)
    # The host wakes up once a frame, and makes the GPU wait for the memory encoder by that.
    assert simulated(wake_us=100_000.0)["simulated frame, ms"] >= 120.0
    # Launches take longer than what they launch.
    slow = simulated(run_us=dict.fromkeys(modules, 50_000.0))
    assert slow["simulated frame, ms"] >= 200.0
    in_graphs = simulated(run_us={"plan to answers": 1.0}, calls_us={"cuGraphLaunch": 50_000.0})
    assert in_graphs["simulated frame, ms"] >= 100.0
    (tmp_path / "r.json").write_text("{}")
    assert_refused(benchmark_here("idle_gpu", "--costs", "r.json"), "r.json", "--timeline")


@pytest.mark.ros
def test_the_node_without_a_network_is_fed_over_the_middleware(benchmark_here):
    pytest.importorskip("rclpy", reason="needs ROS 2")
    pytest.importorskip("efftam_ros.msg", reason="needs the built messages: colcon build")
    result = benchmark_here("latency", "--seconds", "2", "--image", "320x180")
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert 50 <= found["sent"] <= 61
    assert 0 < found["answered"] <= found["sent"]
    assert 0 < found["callback_p50_ms"] <= found["callback_p99_ms"]
    assert found["p50_ms"] > found["callback_p50_ms"] / 10
