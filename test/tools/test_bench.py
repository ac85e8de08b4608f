"""`efftam bench`: that what it prints was measured; no figure is asserted against a clock."""

from __future__ import annotations

import itertools
import json
import mmap
from functools import cache
from pathlib import Path

import cv2
import numpy as np
import pytest
from tools_helpers import assert_refused

from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.geometry import Box
from efftam_ros.core.tracker import Tracker
from efftam_ros.core.types import Frame, Prompt
from efftam_ros.runtime.null_pipeline import NullPipeline
from efftam_ros.tools.bench.contenders import Contender, InstrumentedPipeline
from efftam_ros.tools.bench.frames import MODULES, TURN, WARM_UP, Timing, endless_frames, measure_frames
from efftam_ros.tools.bench.machine import resident_mb
from efftam_ros.tools.bench.motion import LOST_SHARE, measure_motion
from efftam_ros.tools.bench.peers import PeerContender
from efftam_ros.tools.bench.report import launch_summary, print_frames
from efftam_ros.tools.bench.soak import SETTLED, measure_soak
from efftam_ros.tools.cli import main

ABSENT = ("tensorrt", "onnxruntime-tensorrt")


def contender(pipeline, name: str = "x", backend: str = "null") -> Contender:
    watched = InstrumentedPipeline(pipeline)
    return Contender(name, backend, watched, Tracker(watched, TrackerConfig(policy="efficienttam")))


@cache
def rendered() -> list[tuple[Frame, Prompt | None]]:
    return list(itertools.islice(endless_frames((160, 90)), SETTLED + 100))


def small_frames(count: int | None = None) -> list[tuple[Frame, Prompt | None]]:
    """Frames made once for all tests: rendering takes long, and would disturb what is measured."""
    return rendered()[:count]


@pytest.fixture
def refuse(efftam_here, monkeypatch: pytest.MonkeyPatch):
    """The command in this process and without rendering, for requests that are refused."""
    monkeypatch.setattr("efftam_ros.tools.bench.command.endless_frames", lambda _: iter(small_frames()))
    return efftam_here


def test_every_frame_runs_all_modules_with_full_memory(efftam, tmp_path: Path):
    result = efftam(
        "bench", "--frames", "4", "--threads", "1", "--json", "b.json", "--plot", "b.png", timeout=200
    )
    assert result.returncode == 0, result.stderr
    report = json.loads((tmp_path / "b.json").read_text())
    (timing,) = report["frames"]
    assert (report["image"], report["left_out"]) == ([1280, 720], [])
    assert report["environment"]["onnxruntime"]
    assert timing["backend"] == "onnxruntime-cpu"
    assert (timing["frames"], timing["incomplete_frames"]) == (4, 0)
    assert (timing["maps"], timing["pointers"]) == (7, 16)
    assert set(MODULES) <= set(timing["stages_ms"])
    assert timing["glue_ratio"] > 1
    assert timing["whole_p99_ms"] >= timing["whole_ms"] > sum(timing["stages_ms"][m] for m in MODULES) * 0.5
    assert all(timing["stages_p99_ms"][m] >= timing["stages_ms"][m] for m in MODULES)
    assert timing["start_up_s"] > timing["whole_ms"] / 1e3
    assert 5 < timing["resident_mb"] < 2000
    assert (timing["device_mb"], timing["launch"], timing["times_faster_than"]) == (None, {}, {})
    assert "x torch" not in result.stdout
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


def test_each_baseline_is_compared_with_where_it_ran_on_the_same_bundle(capsys):
    def timing(backend: str, seconds: float, bundle: str = "net") -> Timing:
        made = Timing(f"{bundle} {backend}", bundle, backend)
        made.add(seconds, dict.fromkeys(MODULES, 0.002))
        return made

    ours = timing("onnxruntime-cuda", 0.010)
    everyone = [
        ours,
        timing("torch-cuda", 0.040),
        timing("torch-cuda-bf16", 0.025),
        timing("torch-cuda-compiled", 0.012),
        timing("torch", 0.9, bundle="another"),
    ]
    faster = ours.times_faster(everyone)
    assert faster == pytest.approx({"torch-cuda": 4, "torch-cuda-bf16": 2.5, "torch-cuda-compiled": 1.2})
    assert ours.times_faster([ours]) == {}
    print_frames(everyone, 1)
    row = next(
        line for line in capsys.readouterr().out.splitlines() if line.startswith("net onnxruntime-cuda")
    )
    assert row.split()[-4:] == ["-", "4.00", "2.50", "1.20"]


def test_contenders_get_the_same_frames_and_the_first_of_each_turn_is_not_counted():
    class Noting(NullPipeline):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

        def encode(self, image, view) -> None:
            log.append((self.name, int(image.rows.astype(int).sum())))
            super().encode(image, view)

    log: list[tuple[str, int]] = []
    count = 2 * TURN + 2
    timings = measure_frames(
        [contender(Noting("a"), "a"), contender(Noting("b"), "b")],
        iter(small_frames()),
        count,
        quiet=True,
    )
    assert [len(timing.whole) for timing in timings] == [count, count]
    of = {name: [picture for who, picture in log if who == name] for name in "ab"}
    assert of["a"] == of["b"]
    assert len(of["a"]) == WARM_UP + count + 3  # three turns
    turns = [(who, len(list(group))) for who, group in itertools.groupby(who for who, _ in log)]
    first, second, last = TURN + 1, TURN + 1, 3
    assert turns == [
        ("a", WARM_UP),
        ("b", WARM_UP),
        ("a", first),
        ("b", first + second),
        ("a", second + last),
        ("b", last),
    ]


def test_peers_take_turns_with_ours_on_the_same_frames_and_have_no_modules(
    capsys: pytest.CaptureFixture[str],
):
    class Noting:
        name = "other"

        def start(self, bgr, box) -> None:
            log.append(("other", bgr.shape, box))

        def update(self, bgr) -> Box:
            log.append(("other", bgr.shape, int(bgr.astype(int).sum())))
            return Box(0, 0, 1, 1)

    class Ours(NullPipeline):
        def encode(self, image, view) -> None:
            log.append(("ours", (90, 160, 3), int(image.rows.astype(int).sum())))
            super().encode(image, view)

    log: list[tuple[str, tuple[int, ...], object]] = []
    frames = iter(small_frames())
    first = next(frames)
    peer = PeerContender(Noting())
    peer.step(*first)
    assert log == [("other", (90, 160, 3), first[1].box)]
    mine = contender(Ours(), "ours")
    mine.step(*first)
    log.clear()
    timings = measure_frames([mine, peer], frames, 2 * TURN, quiet=True)
    assert [len(timing.whole) for timing in timings] == [2 * TURN, 2 * TURN]
    pictures = {name: [what for who, _, what in log if who == name] for name in ("ours", "other")}
    assert pictures["ours"] == pictures["other"]
    turns = [(who, len(list(group))) for who, group in itertools.groupby(who for who, *_ in log)]
    assert turns[:4] == [("ours", WARM_UP), ("other", WARM_UP), ("ours", TURN + 1), ("other", 2 * (TURN + 1))]
    records = [timing.record(timings) for timing in timings]
    assert records[0]["relative"] == 1
    assert records[1]["relative"] == pytest.approx(records[1]["whole_ms"] / records[0]["whole_ms"])
    assert (records[1]["backend"], records[1]["incomplete_frames"]) == ("peer", 0)
    print_frames(timings, 2 * TURN)
    text = capsys.readouterr().out
    assert "relative: " in text
    assert "other: " not in text  # nothing about modules that were not run


def test_peers_are_measured_by_the_command(efftam, refuse, tmp_path: Path):
    pytest.importorskip("onnx", reason="the stand-ins need onnx: scripts/setup_env --with-tests")
    import peer_models as stand_in

    same = stand_in.distances(16, 25.6, 25.6, 25.6, 25.6)
    stand_in.write_fear(tmp_path, stand_in.peak(16, (8, 8), 9.0), same)
    asked = ("--threads", "1", "--image", "320x180", "--peers", "fear_xs")
    result = efftam("bench", *asked, "--frames", "2", "--peer-models", ".", "--json", "-", timeout=200)
    assert result.returncode == 0, result.stderr
    ours, peer = json.loads(result.stdout)["frames"]
    assert (ours["backend"], peer["backend"], peer["name"]) == ("onnxruntime-cpu", "peer", "fear_xs")
    assert ours["relative"] == 1
    assert peer["frames"] == 2
    assert_refused(refuse("bench", *asked, "--frames", "2"), "--peer-models DIR")
    assert_refused(refuse("bench", "--motion", "--peers", "csrt"), "--peers csrt", "--frames")
    assert_refused(refuse("bench", "--peers", "siamese"), "'siamese' is not one of csrt")


def test_policies_take_turns_and_are_told_apart_by_their_names(efftam_here, tmp_path: Path):
    asked = ("bench", "--policy", "samurai,default", "--frames", "2", "--threads", "1", "--image", "320x180")
    assert efftam_here(*asked, "--quiet", "--json", "bench.json").returncode == 0
    first, second = json.loads((tmp_path / "bench.json").read_text())["frames"]
    assert [run["name"].split()[-1] for run in (first, second)] == ["samurai", "default"]
    assert [run["frames"] for run in (first, second)] == [2, 2]
    assert first["relative"] == 1


def test_one_contender_runs_back_to_back_without_a_pause():
    frames = iter(small_frames(WARM_UP + 12))
    (timing,) = measure_frames([contender(NullPipeline())], frames, 12, quiet=True)
    assert len(timing.whole) == 12
    assert next(frames, None) is None


def test_stages_of_every_frame_are_timed():
    """A pipeline on a GPU times some frames alone unless it is asked."""

    class Sampling(NullPipeline):
        stage_interval = 30

    pipeline = Sampling()
    contender(pipeline)
    assert pipeline.stage_interval == 1
    assert not hasattr(contender(NullPipeline()).pipeline, "stage_interval")


def test_what_a_pipeline_says_of_its_device_is_passed_on(capsys):
    class OnDevice(NullPipeline):
        device_bytes = 123_000_000

        @property
        def launch(self) -> dict[str, str]:
            return {
                "image_encoder": "cuda graph",
                "memory_attention": "plain launches: shapes change",
                "mask_decoder": "cuda graph",
            }

    (timing,) = measure_frames([contender(OnDevice())], iter(small_frames(WARM_UP + 2)), 2, quiet=True)
    record = timing.record([timing])
    assert record["device_mb"] == 123
    assert record["launch"]["memory_attention"] == "plain launches: shapes change"
    print_frames([timing], 2)
    text = capsys.readouterr().out
    assert "2 cuda graph, 1 plain launches" in text
    assert "x, memory_attention: plain launches: shapes change" in text
    assert launch_summary({}) is None
    assert launch_summary({"a": "cuda graph", "b": "cuda graph"}) == "cuda graph"


def test_back_ends_that_can_not_run_are_named_or_left_out_on_request(
    efftam, refuse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    asked = ("bench", "--frames", "2", "--threads", "1", "--image", "320x180")
    all_three = (*asked, "--backend", ",".join(("onnxruntime-cpu", *ABSENT)))
    assert_refused(refuse(*all_three), *ABSENT, "--skip-unavailable")
    alone = refuse(*asked, "--backend", ABSENT[0], "--skip-unavailable")
    assert_refused(alone, ABSENT[0], "no back end is left")
    shown = efftam(*all_three, "--skip-unavailable", "--json", "bench.json", timeout=200)
    assert shown.returncode == 0, shown.stderr
    left_out = [line for line in shown.stdout.splitlines() if line.startswith("left out: ")]
    assert len(left_out) == 2
    for backend, line in zip(ABSENT, left_out, strict=True):
        assert backend in line
        assert "; " in line
    report = json.loads((tmp_path / "bench.json").read_text())
    assert [one["backend"] for one in report["left_out"]] == list(ABSENT)
    assert all(one["reason"] and one["remedy"] for one in report["left_out"])
    assert [timing["backend"] for timing in report["frames"]] == ["onnxruntime-cpu"]
    assert report["image"] == [320, 180]


def test_pictures_go_to_and_fro_without_a_jump_while_time_goes_on():
    taken = small_frames(60)
    stamps = [frame.stamp_ns for frame, _ in taken]
    assert stamps == sorted(set(stamps))
    assert [prompt is not None for _, prompt in taken] == [True] + [False] * 59
    rows = [frame.image.rows.astype(int) for frame, _ in taken]
    steps = [np.abs(a - b).mean() for a, b in itertools.pairwise(rows)]
    assert max(steps) < 3 * np.median(steps)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads resident memory from /proc")
def test_soak_sees_memory_that_grows():
    class Leaking(NullPipeline):
        def attend(self, plan) -> None:
            fresh = mmap.mmap(-1, 800_000)  # pages of its own: malloc would use up what is free first
            fresh.write(bytes(800_000))
            kept.append(fresh)
            super().attend(plan)

    kept: list[mmap.mmap] = []
    frames = small_frames(SETTLED + 100)

    def soak(pipeline) -> dict[str, float | None]:
        return measure_soak(contender(pipeline), iter(frames), 100, quiet=True)

    still = soak(NullPipeline())
    assert still["growth_mb"] < 5
    assert still["device_growth_mb"] is None
    assert soak(Leaking())["growth_mb"] > 70  # of 80 MB
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


def test_bad_requests_are_one_line(refuse):
    assert_refused(refuse("bench", "--frames", "0"), "--frames is 0")
    assert_refused(refuse("bench", "--soak", "2"), "--soak is 2")
    assert_refused(refuse("bench", "--backend", "abacus"), "'abacus' is not known", "onnxruntime-cpu")
    assert_refused(refuse("bench", "--backend", ","), "--backend is ','", "name at least one")
    assert_refused(refuse("bench", "--image", "12x"), "'12x' is not WxH")
    assert_refused(refuse("bench", "--policy", "fastest"), "'fastest' is not one of default")
    assert_refused(refuse("bench", "--policy", ","), "',' names none of default")
    assert_refused(refuse("bench", "--motion", "--plot", "x.png"), "--frames")


@pytest.mark.ros
def test_the_node_is_measured_over_the_middleware(monkeypatch, capsys):
    pytest.importorskip("rclpy", reason="needs ROS 2")
    pytest.importorskip("efftam_ros.msg", reason="needs the built messages: colcon build")
    monkeypatch.setattr("efftam_ros.tools.bench.command.NODE_SECONDS", 4.0)
    for name in ("FASTRTPS_DEFAULT_PROFILES_FILE", "FASTDDS_DEFAULT_PROFILES_FILE"):
        monkeypatch.delenv(name, raising=False)
    assert main(["bench", "--node", "--json", "-"]) == 0
    node = json.loads(capsys.readouterr().out)["node"]
    assert (node["width"], node["height"]) == (1280, 720)
    assert 0 < node["answered"] <= 120  # 4 s at 30 Hz
    assert 0 < node["p50_ms"] <= node["p99_ms"]
    assert Path(node["profile"]).name == "fastdds_images.xml"


def test_python_alone_is_measured_on_a_gpu_that_does_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The target rests where it is prompted, so every counted frame is a tracked one that is remembered."""
    pytest.importorskip("cuda.bindings.driver", reason="the calls take their names from cuda-bindings")
    monkeypatch.setattr("efftam_ros.tools.bench.command.PYTHON_FRAMES", 3)
    assert main(["bench", "--python", "--image", "320x192", "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)["python"]
    assert (found["frames"], found["image"]) == (3, [320, 192])
    assert found["off"] > 0
    assert found["auto"] > 0
