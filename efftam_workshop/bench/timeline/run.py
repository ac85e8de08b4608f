"""Processes frames with all calls recorded, and reports what their time was spent on."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.errors import InputError
from efftam_ros.core.targets import Step
from efftam_ros.messages.fields import About, bbox_fields, velocity_fields
from efftam_ros.runtime.opening import open_targets
from efftam_ros.runtime.spans import CAUSES, NETWORK, POLICY, PUBLISHING, watch_methods
from efftam_ros.tools.common.terminal import Cell
from efftam_workshop.bench.frames import WARM_UP, Frames
from efftam_workshop.bench.timeline.costs import DeviceCosts, measured_costs
from efftam_workshop.bench.timeline.device import DeviceClock, Recorded
from efftam_workshop.bench.timeline.spans import Recorder, Span, TimedFrame, nested, timed_frames

if TYPE_CHECKING:
    from efftam_ros.core.contract import Pipeline

ON_THE_HOST = "the host's clock"
SHOWN_NS = 10_000
"""Spans shorter than this are in the trace, but not in the table."""
UNRECORDED = 30
"""Number of frames after the warm-up whose calls are not recorded; their time shows what recording costs."""
TRACED = 10
"""Number of frames in the trace: the frame that the table shows, and those before it."""


@dataclass(frozen=True)
class Timeline:
    """Recorded frames on one clock.

    ``clock``: how the GPU's times were measured. ``unrecorded_ms``: median time of the frames that were
    processed before the recording began. ``costs``: durations of driver calls and of the GPU's work; None on
    a CPU.
    """

    clock: str
    frames: Sequence[TimedFrame]
    unrecorded_ms: float
    has_gpu: bool
    costs: DeviceCosts | None = None

    @property
    def shown(self) -> int:
        """Index of the frame of median length, which the tables show."""
        order = sorted(range(len(self.frames)), key=lambda number: self.frames[number].frame.ns)
        return order[(len(order) - 1) // 2]

    def report(self) -> dict[str, Any]:
        """Return the report for --json.

        Times are in ms. ``gaps_ms`` contains, by cause, the time in which the network does not compute.
        """
        spent = [one.spent() for one in self.frames]
        computed = [one.computed() for one in self.frames]
        whole = [one.frame.ns for one in self.frames]
        return {
            "clock": self.clock,
            "frames": len(self.frames),
            "frame_ms": _median_ms(whole),
            "unrecorded_frame_ms": self.unrecorded_ms,
            "network_ms": _median_ms(one[NETWORK] for one in spent),
            "gaps_ms": {
                cause: _median_ms(one.get(cause, 0) for one in spent)
                for cause in CAUSES
                if any(cause in one for one in spent)
            },
            "computed_ms": {
                name: _median_ms(one.get(name, 0) for one in computed)
                for name in dict.fromkeys(itertools.chain.from_iterable(computed))
            },
            "each": [
                {"frame_ms": one.frame.ns / 1e6, "spent_ms": {c: ns / 1e6 for c, ns in s.items()}}
                for one, s in zip(self.frames, spent, strict=True)
            ],
            **({"costs": self.costs.as_dict()} if self.costs is not None else {}),
        }

    def line(self) -> tuple[list[str], list[list[Cell]]]:
        """Return headers and rows of a table: the spans of the shown frame, ordered by time."""
        one = self.frames[self.shown]
        rows: list[tuple[int, list[Cell]]] = []
        tracks: dict[int, list[Span]] = {}
        for span in one.host:
            tracks.setdefault(span.track, []).append(span)
        threads = [one.frame.track, *(track for track in tracks if track != one.frame.track)]
        for number, track in enumerate(threads, 1):
            rows += [
                _row(one.frame, span, f"thread {number}", depth)
                for depth, span in nested(tracks.get(track, ()))
            ]
        if self.has_gpu:
            rows += [_row(one.frame, span, "GPU", 0) for span in one.network]
        rows.sort(key=lambda row: row[0])
        return ["from, ms", "ms", "on", "what", "for"], [
            row for _, row in rows if float(row[1] or 0) >= SHOWN_NS / 1e6
        ]

    def sums(self) -> tuple[list[str], list[list[Cell]]]:
        """Return headers and rows of a table: time by cause in the shown frame, and medians of all frames."""
        one = self.frames[self.shown]
        spent, every, whole = one.spent(), self.report(), one.frame.ns
        rows: list[list[Cell]] = [
            [
                "the network computes",
                spent[NETWORK] / 1e6,
                every["network_ms"],
                f"{spent[NETWORK] / whole:.0%}",
            ]
        ]
        gaps = sorted(every["gaps_ms"].items(), key=lambda item: -item[1])
        rows += [
            [f"- {cause}", spent.get(cause, 0) / 1e6, ms, f"{spent.get(cause, 0) / whole:.0%}"]
            for cause, ms in gaps
        ]
        rows.append(["whole frame", whole / 1e6, every["frame_ms"], "100%"])
        rows.append(["whole frame, not recorded", None, self.unrecorded_ms, None])
        return ["spent on", "this frame, ms", "median, ms", "share"], rows

    def traced(self) -> tuple[list[Span], list[Span]]:
        """Return the spans of the host and those of the GPU for a trace."""
        some = self.frames[max(0, self.shown + 1 - TRACED) : self.shown + 1]
        host = [span for one in some for span in one.host]
        return host, [span for one in some for span in one.network] if self.has_gpu else []


def record(
    pipeline: Pipeline, config: TrackerConfig, frames: Frames, count: int, clock: DeviceClock | None
) -> Timeline:
    """Process the warm-up, `UNRECORDED` frames and ``count`` recorded frames, without pauses.

    ``clock``: made before the pipeline was opened; None if the network computes on the CPU. The pipeline
    keeps its wrapped methods, so it is of no further use. Raises InputError if ``frames`` ends before the
    first recorded one.
    """
    recorder = Recorder()
    watched: Any = pipeline
    if hasattr(watched, "watch"):
        watched.watch(recorder)
    targets = open_targets(pipeline, config, recorder)
    publish = recorder(PUBLISHING, "fill messages", _fill_messages)
    first = WARM_UP + UNRECORDED
    unrecorded, stages = [], defaultdict[str, list[float]](list)
    for number, (frame, prompt) in enumerate(itertools.islice(frames, first + count)):
        if number == first:
            watch_methods(recorder, POLICY, targets.tracker(0), "predict", "decide", "learn")
            recorder.is_on = True
            if clock is not None:
                clock.begin(watched)
        with recorder.frame() as timed:
            ((_, track, *_),) = targets.step(frame, {} if prompt is None else {0: prompt}, publish=publish)
            targets.remember()
        for name, seconds in track.stage_seconds.items():
            stages[name].append(seconds)
        if WARM_UP <= number < first:
            unrecorded.append(timed.ns)
        elif number >= first and clock is not None:
            clock.after_frame(watched)
    recorder.is_on = False
    if not recorder.spans:
        raise InputError(
            f"the first {first} frames are not recorded, and no frame follows them; give more frames"
        )
    plain_ms = _median_ms(unrecorded)
    if clock is None:
        return Timeline(ON_THE_HOST, timed_frames(recorder.spans, None), plain_ms, has_gpu=False)
    recorded: Recorded = clock.end(watched, recorder.spans)
    thread = recorder.spans[-1].track
    host = [*recorder.spans, *(call._replace(track=thread) for call in recorded.calls)]
    found = timed_frames(host, recorded.device)
    costs = measured_costs(found, recorded, plain_ms, stages)
    return Timeline(recorded.clock, found, plain_ms, True, costs)


def _fill_messages(step: Step) -> None:
    """Fill the messages that the node publishes for each frame, without publishing them."""
    about = About(SimpleNamespace(stamp=SimpleNamespace(sec=0, nanosec=0)))
    velocity_fields(step.track, about, step.tracker.motion_at(step.track.stamp_ns))
    bbox_fields(step.track, about)


def _row(frame: Span, span: Span, where: str, depth: int) -> tuple[int, list[Cell]]:
    cells: list[Cell] = [
        (span.start - frame.start) / 1e6,
        span.ns / 1e6,
        where,
        "  " * depth + span.name,
        span.cause,
    ]
    return span.start, cells


def _median_ms(ns: Iterable[int]) -> float:
    return float(np.median(list(ns))) / 1e6
