"""Measures when the GPU worked, on the host's clock: by CUPTI's activity records, or by CUDA events.

Source of the records: NVIDIA CUPTI, "Activity API", by the package cupti-python. A graph is one record
(GRAPH_TRACE), because records of its nodes would slow down its launches.
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
"""Size of CUPTI's buffer: so large that it is delivered at the flush, not within a frame."""
KINDS = ("CONCURRENT_KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE", "DRIVER")
COPY_KINDS = {1: "copy in", 2: "copy out", 8: "copy"}
"""Names of copies by the numbers of CUpti_ActivityMemcpyKind."""
DRIVER_DOMAIN = 1
"""CUPTI_CB_DOMAIN_DRIVER_API of the enumeration CUpti_CallbackDomain."""
MAX_NESTED = 3
"""Largest number of launches within one another.

The launch of several stages as one `Section`, for example, contains the launches of their graphs.
"""
READINGS = 20
"""CUPTI's and the host's clock are read this many times; the pair read within the shortest time counts."""


class Recorded(NamedTuple):
    """What the GPU and the CUDA driver did in a run.

    Attributes:
        clock: How the times were measured.
        device: Spans in which the GPU worked.
        calls: Calls of the CUDA driver by all libraries, in the thread that processes frames; empty without
            CUPTI.
        bytes_copied: Bytes by span, for the spans of ``device`` that are copies.
    """

    clock: str
    device: list[Span]
    calls: list[Span]
    bytes_copied: dict[Span, int]


class _Record(NamedTuple):
    """The needed fields of one activity record.

    ``name``: for a driver call its callback id as text. ``start``, ``end``: ns of CUPTI's clock. ``track``:
    number of the stream, or of the thread for a driver call. ``correlation``: id that a driver call and the
    work that it launched share. ``nbytes``: copied bytes, 0 for records that are no copies.
    """

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
        """Begin recording. Call this when the pipeline is open, before the first frame to record."""
        ...

    def after_frame(self, pipeline: Any) -> None: ...

    def end(self, pipeline: Any, host: Sequence[Span]) -> Recorded:
        """End recording and return the records. ``host``: the spans of the thread that processes frames."""
        ...


def device_clock(is_gpu: bool) -> DeviceClock | None:
    """Return a clock by CUPTI if it can be used, otherwise by CUDA events; None on a CPU.

    Call this before the pipeline is opened, because CUPTI must record the creation of the pipeline's graphs.
    """
    if not is_gpu:
        return None
    try:
        return CuptiClock(import_module("cupti.cupti"))
    except ImportError as error:
        return EventClock(f"CUPTI can't be imported ({error}); {INSTALL_CUPTI}")
    except Exception as error:  # cuptiError, or another exception of cupti-python for a missing library
        return EventClock(f"CUPTI can't be used ({' '.join(str(error).split())})")


def mapped(pairs: Sequence[tuple[float, int]]) -> Callable[[float], int]:
    """Return the function from another clock's time to the host's time, ns: a line through two readings.

    ``pairs``: readings (other clock's time, host's time in ns); only the first and the last are used.
    """
    (first, host), (last, host_last) = pairs[0], pairs[-1]
    rate = (host_last - host) / (last - first)
    return lambda moment: host + round((moment - first) * rate)


class CuptiClock:
    """Records graphs, kernels, copies, and the driver calls of all libraries as CUPTI activity records."""

    def __init__(self, cupti: Any) -> None:
        """Enable CUPTI's records. ``cupti``: module cupti.cupti. Raises cuptiError if CUPTI can't record."""
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
        """Keep the needed fields of a buffer's records. CUPTI calls this and frees the records afterwards."""
        kinds = {number: name for name, number in self._kinds.items()}
        for one in activities:
            kind = kinds.get(int(one.kind), "")
            if not kind or not one.start:  # a start of 0 means that CUPTI measured no time
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
        """Return the driver calls of the frames' thread: spans on the host's clock, and correlation ids.

        CUPTI numbers threads differently from Python, so the frames' thread is the one with the most calls.
        """
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
        """Return CUPTI's time and the host's time of the same moment, both in ns."""
        readings = []
        for _ in range(READINGS):
            before = time.perf_counter_ns()
            moment = self._cupti.get_timestamp()
            after = time.perf_counter_ns()
            readings.append((after - before, moment, (before + after) // 2))
        _, moment, middle = min(readings)
        return float(moment), middle


def _names_of_launches(calls: Sequence[tuple[Span, int]], host: Sequence[Span]) -> dict[int, str]:
    """Return for each correlation id of a driver call the name of the launch during which the call was made.

    If launches contain one another, the name is that of the innermost one.
    """
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
    """Measures the GPU by the CUDA events that surround the stages of a frame."""

    def __init__(self, reason: str) -> None:
        """``reason``: why CUPTI is not used."""
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
