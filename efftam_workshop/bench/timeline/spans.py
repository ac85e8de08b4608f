"""Records time spans on one clock, nests them, and adds up what a frame's time was spent on."""

from __future__ import annotations

import functools
import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from efftam_ros.runtime.spans import NETWORK, POLICY


class Span(NamedTuple):
    """A named period from ``start`` to ``end``, ns of `time.perf_counter_ns`.

    ``cause``: one of `efftam_ros.runtime.spans`. ``track``: the host's thread (`threading.get_ident`) or the
    GPU's stream.
    """

    name: str
    cause: str
    start: int
    end: int
    track: int

    @property
    def ns(self) -> int:
        return self.end - self.start

    def within(self, frame: Span) -> Span | None:
        """Return the part of this span that lies in ``frame``; None if there is none."""
        start, end = max(self.start, frame.start), min(self.end, frame.end)
        return self._replace(start=start, end=end) if start < end else None


FRAME = "frame"


class Recorder:
    """A `Watch` that records a span for each watched call while `is_on` is true."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        """Spans in the order of their ends, so that a call precedes the call that contains it."""
        self.is_on = False

    def __call__(self, cause: str, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call)
        def recorded(*given: Any, **named: Any) -> Any:
            if not self.is_on:
                return call(*given, **named)
            start = time.perf_counter_ns()
            try:
                return call(*given, **named)
            finally:
                end = time.perf_counter_ns()
                self.spans.append(Span(name, cause, start, end, threading.get_ident()))

        return recorded

    @contextmanager
    def frame(self) -> Iterator[Stopwatch]:
        """Record the block as one frame. Time within it that no other span covers counts as the policy's."""
        watch = Stopwatch()
        start = time.perf_counter_ns()
        yield watch
        end = time.perf_counter_ns()
        watch.ns = end - start
        if self.is_on:
            self.spans.append(Span(FRAME, POLICY, start, end, threading.get_ident()))


@dataclass
class Stopwatch:
    """The duration of a block in ns; 0 until the block has ended."""

    ns: int = 0


def nested(spans: Iterable[Span]) -> list[tuple[int, Span]]:
    """Return the spans of one track ordered by start, each with the number of spans that contain it.

    A span that ends after the span that contains it is shortened to that end. Such spans arise because the
    times of two clocks differ slightly.
    """
    order = list(spans)
    order = [order[i] for i in sorted(range(len(order)), key=lambda i: (order[i].start, -order[i].end, -i))]
    found: list[tuple[int, Span]] = []
    around: list[Span] = []
    for span in order:
        while around and around[-1].end <= span.start:
            around.pop()
        if around and span.end > around[-1].end:
            span = span._replace(end=around[-1].end)
        found.append((len(around), span))
        around.append(span)
    return found


def innermost(spans: Iterable[Span]) -> Iterator[Span]:
    """Yield the parts of one track's spans, in order and without overlap.

    At each moment the yielded part belongs to the innermost span, which contains no other span at that
    moment.
    """
    around: list[Span] = []
    now = 0

    def until(moment: int) -> Iterator[Span]:
        nonlocal now
        while around:
            end = min(around[-1].end, moment)
            if end > now:
                yield around[-1]._replace(start=now, end=end)
                now = end
            if around[-1].end > moment:
                return
            around.pop()

    for _, span in nested(spans):
        yield from until(span.start)
        now = max(now, span.start)
        around.append(span)
    if around:
        yield from until(around[0].end)


def union(spans: Iterable[Span]) -> list[tuple[int, int]]:
    """Return the periods (start, end) in ns in which at least one of the spans lasted, in order."""
    found: list[tuple[int, int]] = []
    for start, end in sorted((span.start, span.end) for span in spans):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return found


class TimedFrame(NamedTuple):
    """One recorded frame.

    ``frame``: the span of the whole frame. ``host``: the spans of the host within it, including ``frame``.
    ``network``: the spans in which the network computed, on the GPU or in ONNX Runtime.
    """

    frame: Span
    host: Sequence[Span]
    network: Sequence[Span]

    def spent(self) -> dict[str, int]:
        """Return the frame's time by cause, ns; the values add up to the frame.

        The cause is `NETWORK` while the network computed, otherwise the innermost span of the frame's thread.
        """
        found = Counter({NETWORK: 0})
        busy = union(self.network)
        for part in innermost(span for span in self.host if span.track == self.frame.track):
            computed = sum(max(0, min(part.end, end) - max(part.start, start)) for start, end in busy)
            found[NETWORK] += computed
            found[part.cause] += part.ns - computed
        return {cause: ns for cause, ns in found.items() if ns or cause == NETWORK}

    def computed(self) -> dict[str, int]:
        """Return the time of each computation of the network by name, ns; simultaneous ones all count."""
        found: Counter[str] = Counter()
        for span in self.network:
            found[span.name] += span.ns
        return dict(found)


def timed_frames(spans: Sequence[Span], device: Sequence[Span] | None) -> list[TimedFrame]:
    """Return all recorded frames. ``device``: spans of the GPU; None if the network computes on the host."""
    network = [span for span in spans if span.cause == NETWORK] if device is None else device
    host_in, network_in = _Cutter(spans), _Cutter(network)
    return [
        TimedFrame(frame, host_in.parts(frame), network_in.parts(frame))
        for frame in sorted((span for span in spans if span.name == FRAME), key=lambda span: span.start)
    ]


class _Cutter:
    """Finds the parts of spans that lie within a frame, by bisection."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self._ordered = sorted(spans, key=lambda span: span.start)
        self._starts = [span.start for span in self._ordered]
        self._longest = max((span.ns for span in spans), default=0)

    def parts(self, frame: Span) -> list[Span]:
        first = bisect_left(self._starts, frame.start - self._longest)
        near = self._ordered[first : bisect_left(self._starts, frame.end)]
        return [part for span in near if (part := span.within(frame)) is not None]
