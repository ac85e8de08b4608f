"""The time line of a frame: its spans nest, are on one clock, and add up to the frame; its trace file."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.gpu_rig import Rig
from tools_helpers import assert_refused

from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.errors import InputError
from efftam_ros.runtime.backends import PipelineConfig
from efftam_ros.runtime.bundle import Bundle, default_bundle
from efftam_ros.runtime.opening import open_pipeline, open_targets
from efftam_ros.runtime.spans import (
    BACK_END,
    BINDING,
    CAMERA_MOTION,
    CAUSES,
    COPIES,
    EVENTS,
    LAUNCH,
    NETWORK,
    POLICY,
    PREPROCESSING,
    PUBLISHING,
    WAIT,
    cause_of_driver_call,
)
from efftam_workshop.bench.frames import drawn_frames
from efftam_workshop.bench.timeline import device, run
from efftam_workshop.bench.timeline.costs import MODULES, measured_costs, read_costs
from efftam_workshop.bench.timeline.device import CuptiClock, EventClock, Recorded, device_clock, mapped
from efftam_workshop.bench.timeline.spans import (
    FRAME,
    Recorder,
    Span,
    TimedFrame,
    innermost,
    nested,
    timed_frames,
    union,
)
from efftam_workshop.bench.timeline.trace_file import trace_events

HERE = threading.get_ident()


def span(name: str, start: int, end: int, cause: str = POLICY, track: int = 1) -> Span:
    return Span(name, cause, start, end, track)


@st.composite
def spans_in(draw: Any, start: int, end: int, depth: int = 0) -> list[Span]:
    """Spans within each other, as calls are, a call before the one that contains it."""
    found: list[Span] = []
    if depth < 3 and end > start:
        cuts = sorted(draw(st.lists(st.integers(start, end), max_size=4)))
        for low, high in itertools.pairwise(cuts):
            if draw(st.booleans()):
                found += draw(spans_in(low, high, depth + 1))
                found.append(span(f"call {depth}", low, high, draw(st.sampled_from(CAUSES))))
    return found


@st.composite
def frames(draw: Any) -> TimedFrame:
    whole = span(FRAME, 100, 100 + draw(st.integers(1, 1000)))
    host = [*draw(spans_in(whole.start, whole.end)), whole]
    worked = draw(st.lists(st.tuples(st.integers(0, 1200), st.integers(0, 400)), max_size=5))
    network = [span("graph", start, start + ns, NETWORK, 7) for start, ns in worked]
    (found,) = timed_frames(host, network)
    return found


# Spans


@given(frames())
def test_what_a_frame_was_spent_on_adds_up_to_the_frame(one: TimedFrame):
    spent = one.spent()
    assert sum(spent.values()) == one.frame.ns
    assert spent[NETWORK] == sum(end - start for start, end in union(one.network))
    assert set(spent) <= {NETWORK, *CAUSES}


@given(frames())
def test_parts_of_the_innermost_calls_fill_the_frame_in_order(one: TimedFrame):
    parts = list(innermost(one.host))
    assert parts[0].start == one.frame.start
    assert parts[-1].end == one.frame.end
    assert all(before.end == after.start for before, after in itertools.pairwise(parts))


@given(frames())
def test_spans_of_the_host_nest(one: TimedFrame):
    around: list[Span] = []
    for depth, call in nested(one.host):
        around = around[:depth]
        assert len(around) == depth
        assert all(outer.start <= call.start and call.end <= outer.end for outer in around)
        around.append(call)


def test_a_gap_belongs_to_what_the_host_does_in_it():
    host = [
        span("bind", 10, 20, BINDING),
        span("run", 20, 50, LAUNCH),
        span("look", 5, 60, BACK_END),
        span("wait", 60, 90, WAIT),
        span(FRAME, 0, 100),
    ]
    gpu = [span("encoder", 40, 70, NETWORK, 7), span("decoder", 65, 80, NETWORK, 8)]
    (one,) = timed_frames(host, gpu)
    assert one.spent() == {
        NETWORK: 40,  # 40 to 80: two streams at once count once
        POLICY: 5 + 10,
        BACK_END: 5,
        BINDING: 10,
        LAUNCH: 20,
        WAIT: 10,
    }
    assert one.computed() == {"encoder": 30, "decoder": 15}


def test_work_of_a_gpu_counts_in_each_frame_that_it_lasts_in():
    first, second = (span(FRAME, start, start + 100) for start in (0, 100))
    across = span("memory_encoder", 90, 130, NETWORK, 7)
    assert [one.spent()[NETWORK] for one in timed_frames([first, second], [across])] == [10, 30]


def test_a_span_that_leaves_the_one_around_it_by_an_error_of_the_clocks_ends_with_it():
    late = span("cuGraphLaunch", 40, 61, LAUNCH)
    assert nested([late, span("run", 10, 60, LAUNCH)])[1][1].end == 60


def test_a_recorder_that_is_off_changes_nothing_and_one_that_is_on_keeps_results_and_errors():
    recorder = Recorder()
    call = recorder(POLICY, "divide", lambda a, b: a / b)
    assert (call(4, b=2), recorder.spans) == (2.0, [])
    recorder.is_on = True
    with pytest.raises(ZeroDivisionError):
        call(1, 0)
    assert [(one.name, one.cause, one.track) for one in recorder.spans] == [("divide", POLICY, HERE)]


def test_calls_of_the_driver_have_causes():
    of = {
        name: cause_of_driver_call(name) for name in ("cuGraphLaunch", "cuLaunchKernel", "cuMemcpyHtoDAsync")
    }
    assert list(of.values()) == [LAUNCH, LAUNCH, COPIES]
    assert cause_of_driver_call("cuEventSynchronize") == WAIT
    assert cause_of_driver_call("cuEventRecord") == EVENTS


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return default_bundle()


# A CPU


@pytest.fixture(scope="module")
def on_cpu(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any], str]:
    """The report, the trace and the terminal of three frames."""
    import subprocess
    import sys

    folder = tmp_path_factory.mktemp("cpu")
    options = [
        "--threads",
        "1",
        "--image",
        "320x192",
        "--frames",
        "3",
        "--json",
        "r.json",
        "--trace",
        "t.json",
    ]
    command = [sys.executable, "-m", "efftam_ros", "bench", "--timeline", *options]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    report, trace = (json.loads((folder / name).read_text()) for name in ("r.json", "t.json"))
    return report, trace, done.stdout


def test_the_sums_of_a_real_frame_are_the_frame(on_cpu):
    timeline = on_cpu[0]["timeline"]
    assert (timeline["frames"], timeline["clock"]) == (3, run.ON_THE_HOST)
    assert len(timeline["each"]) == 3
    for one in timeline["each"]:
        assert sum(one["spent_ms"].values()) == pytest.approx(one["frame_ms"], abs=1e-6)
    assert set(MODULES) <= set(timeline["computed_ms"])
    named = {CAMERA_MOTION, POLICY, PUBLISHING, PREPROCESSING, BACK_END, COPIES}
    assert all(timeline["gaps_ms"][cause] > 0 for cause in named)
    assert "costs" not in timeline  # of a GPU


def test_recording_changes_no_answer(bundle: Bundle):
    """Of a pipeline that is watched, recording or not, and of one that is not."""
    given = list(itertools.islice(drawn_frames((160, 90)), 6))
    tracks = []
    for is_on in (None, False, True):
        with closing(open_pipeline(PipelineConfig(threads=1), bundle)) as pipeline:
            recorder = None if is_on is None else Recorder()
            if recorder is not None:
                pipeline.watch(recorder)
                recorder.is_on = is_on
            targets = open_targets(pipeline, TrackerConfig(), recorder)
            found = []
            for frame, prompt in given:
                ((_, track, *_),) = targets.step(frame, {} if prompt is None else {0: prompt})
                targets.remember()
                found.append((track.state, track.box, track.presence, track.quality, track.likeness))
        tracks.append(found)
        assert recorder is None or bool(recorder.spans) == is_on
    assert tracks[0] == tracks[1] == tracks[2]


def test_the_terminal_shows_the_line_and_the_sums(on_cpu):
    lines = on_cpu[2].splitlines()
    assert lines[0].startswith("compact_192 on onnxruntime-cpu")
    assert lines[3].split()[:1] == ["0.000"]
    assert [line for line in lines if line.startswith("the network computes")]
    assert lines[-2].startswith("whole frame")
    assert lines[-2].endswith("100%")
    assert lines[-1].startswith("whole frame, not recorded")


def test_the_trace_is_in_the_trace_event_format(on_cpu):
    trace = on_cpu[1]
    assert trace["displayTimeUnit"] == "ms"
    assert trace["otherData"]["bundle"] == "compact_192"
    complete = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    for event in complete:
        assert set(event) == {"name", "cat", "ph", "ts", "dur", "pid", "tid"}
        assert event["ts"] >= 0
        assert event["dur"] >= 0
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
    named = {
        (event["name"], event["pid"], event["tid"]) for event in trace["traceEvents"] if event["ph"] == "M"
    }
    assert {("thread_name", event["pid"], event["tid"]) for event in complete} <= named
    assert {"frame", *MODULES} <= {event["name"] for event in complete}
    whole = [event for event in complete if event["name"] == "frame"]
    inside = [event for event in complete if event["name"] in MODULES]
    for event in inside:  # on one clock
        assert any(
            one["ts"] <= event["ts"] and event["ts"] + event["dur"] <= one["ts"] + one["dur"] + 1e-3
            for one in whole
        )


def test_a_trace_of_a_gpu_has_two_processes():
    events = trace_events([span(FRAME, 1000, 9000)], [span("encoder", 2000, 5000, NETWORK, 7)])
    assert [(e["args"]["name"], e["pid"]) for e in events if e["name"] == "process_name"] == [
        ("host", 1),
        ("GPU", 2),
    ]
    assert [(e["ts"], e["dur"], e["pid"]) for e in events if e["ph"] == "X"] == [(0.0, 8.0, 1), (1.0, 3.0, 2)]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--trace", "t.json"), ("--trace t.json", "--timeline")),
        (("--timeline", "--soak", "1"), ("not allowed with",)),
        (("--timeline", "--trace", "none/t.json"), ("none/t.json", "does not exist")),
        (("--timeline", "--json", "t.json", "--trace", "t.json"), ("t.json", "another name")),
    ],
)
def test_bad_requests_are_one_line(efftam_here, arguments, words):
    assert_refused(efftam_here("bench", *arguments), *words)


# A GPU


@pytest.fixture
def rig(bundle: Bundle) -> Iterator[Rig]:
    rig = Rig(bundle)
    yield rig
    rig.pipeline.close()


def recorded(rig: Rig, clock: Any, monkeypatch: pytest.MonkeyPatch, count: int = 3) -> run.Timeline:
    monkeypatch.setattr(run, "WARM_UP", 1)
    monkeypatch.setattr(run, "UNRECORDED", 1)
    config = TrackerConfig(camera_motion="off", identity=False)
    return run.record(rig.pipeline, config, drawn_frames((160, 90)), count, clock)


def test_without_cupti_the_stages_lie_on_the_hosts_clock_by_events(rig, monkeypatch):
    timeline = recorded(rig, EventClock("not installed"), monkeypatch)
    assert timeline.clock == "CUDA events: not installed"
    for one in timeline.frames:
        assert sum(one.spent().values()) == one.frame.ns
        by_name = {call.name for call in one.host}
        assert {"look", "candidates", "remember", "cuEventSynchronize", *MODULES} <= by_name
    found = {work.name for one in timeline.frames for work in one.network}
    assert found >= {"image_encoder", "memory_attention", "mask_decoder"}
    costs = timeline.report()["costs"]
    assert set(costs["run_us"]) >= set(MODULES) == set(costs["modules_ms"])
    assert costs["calls_us"]["cuEventRecord"] > 0
    assert "cuEventSynchronize" not in costs["calls_us"]  # a wait is no cost of the call
    assert timeline.unrecorded_ms == costs["frame_ms"] > 0
    text = [row[2] for row in timeline.line()[1]]
    assert text
    assert timeline.traced()[1]


def test_a_back_end_that_is_not_watched_has_its_own_calls(rig):
    assert "call" not in vars(rig.cuda)
    assert all("run" not in vars(binding) for binding in rig.pipeline._network.tracked.values())


def test_the_origin_of_the_events_is_the_first_mark(rig):
    first, began = rig.pipeline.mark()
    second, later = rig.pipeline.mark()
    assert later >= began
    assert second.milliseconds_since(first) >= 0
    assert rig.pipeline._clock.origin is first


def test_readings_of_two_clocks_map_one_on_the_other():
    host_time = mapped([(1000.0, 50_000), (3000.0, 54_000)])  # runs at half the rate
    assert [host_time(moment) for moment in (1000, 2000, 3000, 4000)] == [50_000, 52_000, 54_000, 56_000]


@dataclass
class StubCupti:
    """Has the interface of cupti.cupti that is used, and a clock of its own."""

    offset: int = 10**15
    refuses: str = ""
    host_ns: int = 0
    """The host's clock, which goes on by 10 ns when it is read."""

    class ActivityKind:
        MEMCPY, MEMSET, DRIVER, CONCURRENT_KERNEL, GRAPH_TRACE = 1, 2, 4, 10, 51

    def __post_init__(self) -> None:
        self.enabled: list[int] = []
        self.records: list[Any] = []

    def activity_register_callbacks(self, requested: Any, completed: Any) -> None:
        size, most = requested()
        assert size > 1 << 20
        assert most == 0
        self.completed = completed

    def activity_enable(self, kind: int) -> None:
        if self.refuses:
            raise RuntimeError(self.refuses)
        self.enabled.append(kind)

    def activity_disable(self, kind: int) -> None:
        self.enabled.remove(kind)

    def activity_flush_all(self, flag: int) -> None:
        assert flag == 1
        self.completed(self.records)
        self.records = []

    def perf_counter_ns(self) -> int:
        self.host_ns += 10
        return self.host_ns

    def get_timestamp(self) -> int:
        return self.perf_counter_ns() + self.offset

    def get_callback_name(self, domain: int, cbid: int) -> str:
        assert domain == 1
        return {1: "cuGraphLaunch_ptsz", 2: "cuEventSynchronize"}[cbid]

    def call(self, cbid: int, start: int, end: int, correlation: int, thread: int = 77) -> None:
        self._add(self.ActivityKind.DRIVER, start, end, correlation, cbid=cbid, thread_id=thread)

    def graph(self, start: int, end: int, correlation: int) -> None:
        self._add(self.ActivityKind.GRAPH_TRACE, start, end, correlation, stream_id=13)

    def copy(self, start: int, end: int, nbytes: int) -> None:
        self._add(self.ActivityKind.MEMCPY, start, end, 0, stream_id=14, copy_kind=1, bytes=nbytes)

    def kernel(self, start: int, end: int, name: str) -> None:
        self._add(self.ActivityKind.CONCURRENT_KERNEL, start, end, 0, stream_id=14, name=name)

    def _add(self, kind: int, start: int, end: int, correlation: int, **more: Any) -> None:
        start, end = (moment and moment + self.offset for moment in (start, end))
        about = {"kind": kind, "start": start, "end": end, "correlation_id": correlation}
        self.records.append(SimpleNamespace(**about, **more))


def test_cupti_s_records_lie_on_the_hosts_clock_under_the_names_of_their_launches(monkeypatch):
    cupti = StubCupti()
    monkeypatch.setattr(device, "time", cupti)
    clock = CuptiClock(cupti)
    cupti.graph(1, 2, 3)  # of the warm-up
    clock.begin(None)
    now = cupti.perf_counter_ns()
    host = [
        span("image_encoder", now + 1000, now + 9000, LAUNCH, HERE),
        span("plan to answers", now, now + 10_000, LAUNCH, HERE),
        span("cuEventSynchronize", now + 11_000, now + 60_000, WAIT, HERE),
        span(FRAME, now, now + 80_000, POLICY, HERE),
    ]
    cupti.call(1, now + 3000, now + 6000, 5)
    cupti.call(2, now + 12_000, now + 59_000, 6)
    cupti.call(1, now + 3000, now + 6000, 9, thread=78)  # of another library's thread
    cupti.graph(now + 20_000, now + 50_000, 5)
    cupti.copy(now + 7000, now + 9000, 200_000)
    cupti.kernel(now + 51_000, now + 52_000, "preprocess")
    cupti.kernel(0, 0, "without a time")
    found = clock.end(None, host)
    assert cupti.enabled == []
    assert {work.name for work in found.device} == {"image_encoder", "copy in", "preprocess"}
    (encoder,) = (work for work in found.device if work.name == "image_encoder")
    assert (encoder.start, encoder.ns) == (now + 20_000, 30_000)
    assert list(found.bytes_copied.values()) == [200_000]
    assert [(call.name, call.cause) for call in found.calls] == [
        ("cuGraphLaunch", LAUNCH),
        ("cuEventSynchronize", WAIT),
    ]
    (one,) = timed_frames([*host, *(c._replace(track=HERE) for c in found.calls)], found.device)
    assert sum(one.spent().values()) == 80_000


def test_cupti_that_can_t_record_leaves_events_with_the_reason(monkeypatch):
    monkeypatch.setattr(device, "import_module", lambda name: StubCupti(refuses="INSUFFICIENT PRIVILEGES"))
    refused = device_clock(True)
    assert isinstance(refused, EventClock)
    assert "INSUFFICIENT PRIVILEGES" in refused._reason
    assert device_clock(False) is None


def test_the_installed_cupti_has_the_interface_that_is_used():
    cupti = pytest.importorskip("cupti.cupti", reason="cupti-python is not installed")
    for name in [name for name in vars(StubCupti) if name.startswith(("activity_", "get_"))]:
        assert callable(getattr(cupti, name))
    for name in device.KINDS:
        assert int(getattr(cupti.ActivityKind, name)) == getattr(StubCupti.ActivityKind, name)


# Costs


def a_frame_of_a_gpu() -> tuple[list[TimedFrame], Recorded]:
    host = [span(FRAME, 0, 3_000_000)]
    gpu, start = [], 100_000
    for number, name in enumerate(MODULES):
        host.append(span(name, start, start + 40_000, LAUNCH))
        gpu.append(span(name, start + 25_000, start + 225_000 + 1000 * number, NETWORK, 7))
        start += 400_000
    host.append(span("cuEventSynchronize", start, gpu[-1].end + 60_000 + 400_000, WAIT))
    gpu.append(span("preprocess", start + 100_000, start + 103_000, NETWORK, 7))
    copy = span("copy in", start + 300_000, start + 310_000, NETWORK, 8)
    gpu.append(copy)
    host.append(span("cuEventRecord", 10_000, 12_000, EVENTS))
    recorded = Recorded("CUPTI", gpu, [], {copy: 250_000})
    return timed_frames(host, gpu), recorded


def test_costs_are_read_off_the_time_line():
    costs = measured_costs(*a_frame_of_a_gpu(), 2.9, {})
    assert costs.frame_ms == 2.9
    assert costs.modules_ms == pytest.approx({name: 0.2 + 0.001 * n for n, name in enumerate(MODULES)})
    assert costs.run_us == dict.fromkeys(MODULES, 40.0)
    assert costs.start_us == 25.0
    assert costs.kernel_us == 3.0
    assert costs.bytes_per_us == 25_000
    assert costs.calls_us == {"cuEventRecord": 1.0}  # 2 us, less those of Python
    assert costs.wake_us is not None
    assert costs.wake_us > 0


def test_costs_are_stored_in_the_report_and_read_again(tmp_path: Path):
    costs = measured_costs(*a_frame_of_a_gpu(), 2.9, {})
    path = tmp_path / "r.json"
    path.write_text(json.dumps({"timeline": {"costs": costs.as_dict()}}))
    assert read_costs(path) == costs


@pytest.mark.parametrize(
    ("content", "word"),
    [
        ("{", "no costs"),
        ("[]", "no costs"),
        ('{"timeline": {}}', "no costs"),
        ('{"timeline": {"costs": {"frame_ms": 1}}}', "no costs"),
    ],
)
def test_a_file_without_costs_is_refused(tmp_path: Path, content: str, word: str):
    path = tmp_path / "r.json"
    path.write_text(content)
    with pytest.raises(InputError, match=word):
        read_costs(path)


def test_a_file_whose_costs_are_no_times_is_refused(tmp_path: Path):
    costs = measured_costs(*a_frame_of_a_gpu(), 2.9, {}).as_dict()
    path = tmp_path / "r.json"
    for change in ({"frame_ms": -1.0}, {"modules_ms": {}}, {"run_us": {"image_encoder": float("nan")}}):
        path.write_text(json.dumps({"timeline": {"costs": costs | change}}))
        with pytest.raises(InputError):
            read_costs(path)
    with pytest.raises(InputError, match="can't be read"):
        read_costs(tmp_path / "none.json")
