"""When the GPU worked, on the host's clock: by CUPTI's activity records, else by CUDA's events.

Source of the records: NVIDIA CUPTI, "Activity API", by the package cupti-python. A graph is one record
(GRAPH_TRACE): records of its nodes would slow down its launches.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, NamedTuple, Protocol

from efftam_ros.runtime.spans import LAUNCH, NETWORK, cause_of_driver_call
from efftam_workshop.bench.timeline.spans import Span

INSTALL_CUPTI = "pip install cupti-python of the driver's major version"
BUFFER_BYTES = 64 << 20
"""Large enough that CUPTI delivers records when it is asked to, and not in the middle of a frame."""
KINDS = ("CONCURRENT_KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE", "DRIVER")
COPY_KINDS = {1: "copy in", 2: "copy out", 8: "copy"}
"""By CUpti_ActivityMemcpyKind."""
DRIVER_DOMAIN = 1
"""Of CUpti_CallbackDomain."""
MAX_NESTED = 3
"""Launches of a back end within each other: of a section, and of a graph in it."""
READINGS = 20
"""Of both clocks, of which the closest pair counts."""


class Recorded(NamedTuple):
    """What a run of the GPU was.

    Attributes:
        clock: How it was measured.
        device: When the GPU worked.
        calls: Calls of the CUDA driver by all libraries, in the thread of the frames; none without CUPTI.
        bytes_copied: By span of ``device`` that is a copy.
    """

    clock: str
    device: list[Span]
    calls: list[Span]
    bytes_copied: dict[Span, int]


class _Record(NamedTuple):
    """What is kept of an activity record. ``name``: of a call its number; ``track``: its stream, or the
    thread of a call; ``nbytes``: of a copy, else 0; times on CUPTI's clock, ns."""

    kind: str
    name: str
    start: int
    end: int
    track: int
    correlation: int
    nbytes: int


class DeviceClock(Protocol):
    """Measures when the GPU works."""

    def begin(self, pipeline: Any) -> None:
        """Begin recording: the pipeline is open, frames follow."""
        ...

    def after_frame(self, pipeline: Any) -> None: ...

    def end(self, pipeline: Any, host: Sequence[Span]) -> Recorded:
        """End recording. ``host``: the spans of the frames' thread."""
        ...


def device_clock(is_gpu: bool) -> DeviceClock | None:
    """Return a clock for the pipeline that will be opened: CUPTI's, where it can be used, else of events;
    None on a CPU. It is made before the pipeline is opened, so that CUPTI knows the graphs that are made
    there."""
    if not is_gpu:
        return None
    try:
        return CuptiClock(import_module("cupti.cupti"))
    except ImportError as error:
        return EventClock(f"CUPTI can't be imported ({error}); {INSTALL_CUPTI}")
    except Exception as error:  # cuptiError, or the library's absence, which cupti-python raises as others
        return EventClock(f"CUPTI refuses ({' '.join(str(error).split())})")


def mapped(pairs: Sequence[tuple[float, int]]) -> Callable[[float], int]:
    """Compute the time on the host's clock from readings (of another clock, ns of the host's), by a straight
    line from the first to the last."""
    (first, host), (last, host_last) = pairs[0], pairs[-1]
    rate = (host_last - host) / (last - first)
    return lambda moment: host + round((moment - first) * rate)


class CuptiClock:
    """By activity records: graphs, kernels, copies, and the driver's calls of every library."""

    def __init__(self, cupti: Any) -> None:
        """``cupti``: the module cupti.cupti. Raises cuptiError when it can't record."""
        self._cupti = cupti
        self._kinds = {name: int(getattr(cupti.ActivityKind, name)) for name in KINDS}
        self._records: list[_Record] = []
        cupti.activity_register_callbacks(lambda: (BUFFER_BYTES, 0), self._take)
        for kind in self._kinds.values():
            cupti.activity_enable(kind)
        self._readings: list[tuple[float, int]] = []

    def begin(self, pipeline: Any) -> None:
        self._readings.append(self._read_clocks())

    def after_frame(self, pipeline: Any) -> None:
        return

    def end(self, pipeline: Any, host: Sequence[Span]) -> Recorded:
        self._readings.append(self._read_clocks())
        self._cupti.activity_flush_all(1)
        for kind in self._kinds.values():
            self._cupti.activity_disable(kind)
        host_time = mapped(self._readings)
        begin = self._readings[0][0]
        records = [one for one in self._records if one.start >= begin]
        calls = self._calls([one for one in records if one.kind == "DRIVER"], host_time)
        names = _names_of_launches(calls, host)
        device: list[Span] = []
        copied: dict[Span, int] = {}
        for one in records:
            if one.kind != "DRIVER":
                name = names.get(one.correlation, one.name) if one.kind == "GRAPH_TRACE" else one.name
                device.append(Span(name, NETWORK, host_time(one.start), host_time(one.end), one.track))
            if one.nbytes:
                copied[device[-1]] = one.nbytes
        return Recorded("CUPTI activity records", device, [span for span, _ in calls], copied)

    def _take(self, activities: Sequence[Any]) -> None:
        """Records of a full buffer, which are gone afterwards."""
        kinds = {number: name for name, number in self._kinds.items()}
        for one in activities:
            kind = kinds.get(int(one.kind), "")
            if not kind or not one.start:  # CUPTI gives 0 where it has no time
                continue
            if kind == "DRIVER":
                track, nbytes, name = int(one.thread_id), 0, str(int(one.cbid))
            else:
                track, nbytes, name = int(one.stream_id), 0, "graph"
                if kind == "MEMCPY":
                    name, nbytes = COPY_KINDS.get(int(one.copy_kind), "copy"), int(one.bytes)
                elif kind == "MEMSET":
                    name = "fill"
                elif kind == "CONCURRENT_KERNEL":
                    name = str(one.name)
            times = int(one.start), int(one.end)
            self._records.append(_Record(kind, name, *times, track, int(one.correlation_id), nbytes))

    def _calls(self, records: Sequence[_Record], host_time: Callable[[float], int]) -> list[tuple[Span, int]]:
        """Calls of the driver, with their correlation ids, in the thread that makes most of them: CUPTI's
        numbers of threads are others than Python's."""
        names = {
            number: str(self._cupti.get_callback_name(DRIVER_DOMAIN, int(number))).partition("_")[0]
            for number in {one.name for one in records}
        }
        threads = Counter(one.track for one in records)
        most = threads.most_common(1)[0][0] if threads else 0
        return [
            (
                Span(
                    names[one.name],
                    cause_of_driver_call(names[one.name]),
                    host_time(one.start),
                    host_time(one.end),
                    one.track,
                ),
                one.correlation,
            )
            for one in records
            if one.track == most
        ]

    def _read_clocks(self) -> tuple[float, int]:
        """A reading of CUPTI's clock, and one of the host's at the same moment."""
        readings = []
        for _ in range(READINGS):
            before = time.perf_counter_ns()
            moment = self._cupti.get_timestamp()
            after = time.perf_counter_ns()
            readings.append((after - before, moment, (before + after) // 2))
        _, moment, middle = min(readings)
        return float(moment), middle


def _names_of_launches(calls: Sequence[tuple[Span, int]], host: Sequence[Span]) -> dict[int, str]:
    """Return by correlation id the name of the innermost launch of the back end in which the driver was
    called."""
    launches = [span for span in host if span.cause == LAUNCH and not span.name.startswith("cu")]
    launches.sort(key=lambda span: span.start)
    starts, found = [span.start for span in launches], {}
    for call, correlation in calls:
        middle = (call.start + call.end) // 2
        begun = bisect_right(starts, middle)
        for span in reversed(launches[max(0, begun - MAX_NESTED) : begun]):
            if span.end >= middle:
                found[correlation] = span.name
                break
    return found


class EventClock:
    """By the events that time the stages of a frame."""

    def __init__(self, reason: str) -> None:
        """``reason``: why not by CUPTI."""
        self._reason = reason
        self._marks: list[tuple[Any, int]] = []
        self._spans_ms: dict[tuple[str, float, float], None] = {}

    def begin(self, pipeline: Any) -> None:
        pipeline.stage_interval = 1
        self._marks.append(pipeline.mark())

    def after_frame(self, pipeline: Any) -> None:
        for name, (start, end) in pipeline.stage_spans_ms.items():
            self._spans_ms[name, start, end] = None

    def end(self, pipeline: Any, host: Sequence[Span]) -> Recorded:
        self._marks.append(pipeline.mark())
        (first, begin_ns), (last, end_ns) = self._marks
        host_time = mapped([(0.0, begin_ns), (last.milliseconds_since(first), end_ns)])
        device = [
            Span(name, NETWORK, host_time(start), host_time(end), 0) for name, start, end in self._spans_ms
        ]
        return Recorded(f"CUDA events: {self._reason}", device, [], {})
