"""What host and GPU do when in a tracked frame: recorded, printed and drawn."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import cycle, pairwise
from pathlib import Path
from statistics import fmean
from typing import Any, Protocol, cast

from efftam_ros.core.contract import Pipeline
from efftam_ros.runtime.pipeline import open_tracker
from efftam_ros.tools.bench.contenders import Contender
from efftam_ros.tools.bench.frames import MODULES, WARM_UP, Frames
from efftam_ros.tools.common.outputs import replacing
from efftam_ros.tools.common.progress import progress_bar

HOST, NETWORK, IMAGES = "host", "GPU, network", "GPU, images"
LANES = {"preprocess": IMAGES}
CALLS = ("encode", "attend", "decode", "remember")
SHOWN = 3
"""Frames that are printed and drawn."""
COLUMNS = 60


@dataclass(frozen=True)
class Span:
    """Something from when to when, ms after the recording began. ``lane``: who did it."""

    lane: str
    name: str
    start_ms: float
    end_ms: float


@dataclass(frozen=True)
class Timeline:
    """``spans`` of a few frames; over all that were recorded ``frame_ms``, from the start of one to that of
    the next, and ``modules_ms``, the sum of the four modules, both means."""

    name: str
    spans: tuple[Span, ...]
    frame_ms: float
    modules_ms: float

    @property
    def ratio(self) -> float:
        return self.frame_ms / self.modules_ms

    def record(self) -> dict[str, Any]:
        """What --json writes."""
        return asdict(self) | {"ratio": self.ratio}


class _Timed(Protocol):
    """What a pipeline on a device tells besides the contract."""

    def start_spans(self) -> None: ...

    def spans(self) -> Mapping[str, tuple[float, float]]: ...


class _Watched:
    """A pipeline that notes when it is called, and after each `decode` what the GPU has done."""

    def __init__(self, pipeline: Any, spans: list[Span]) -> None:
        self._pipeline, self._spans, self.origin_ms = pipeline, spans, 0.0

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._pipeline, name)
        if name not in CALLS:
            return attribute

        def watched(*arguments: Any) -> Any:
            start_ms = host_ms() - self.origin_ms
            answer = attribute(*arguments)
            self._spans.append(Span(HOST, name, start_ms, host_ms() - self.origin_ms))
            if name == "decode":
                for stage, (start, end) in cast(_Timed, self._pipeline).spans().items():
                    self._spans.append(Span(LANES.get(stage, NETWORK), stage, start, end))
            return answer

        return watched


def host_ms() -> float:
    return 1e3 * time.perf_counter()


def record_timeline(
    contender: Contender, scene_frames: Frames, frames: int, *, quiet: bool = False
) -> Timeline:
    """Run ``frames`` tracked frames back to back after a warm-up, whose first is prompted. Images are fetched
    ahead, as the node does it. The contender must run on a GPU."""
    spans: list[Span] = []
    watched = _Watched(contender.pipeline, spans)
    tracker = open_tracker(cast(Pipeline, watched), contender.tracker.config)
    starts_ms: list[float] = []
    cast(_Timed, contender.pipeline).start_spans()
    with progress_bar(frames + WARM_UP, f"timeline {contender.backend}", quiet=quiet) as bar:
        for _ in range(WARM_UP):
            tracker.step(*next(scene_frames))
            bar.update()
        upcoming, prompt = next(scene_frames)
        cast(_Timed, contender.pipeline).start_spans()
        watched.origin_ms = host_ms()
        spans.clear()
        for _ in range(frames + 1):
            starts_ms.append(host_ms() - watched.origin_ms)
            track = tracker.step(upcoming, prompt)
            assert track.processed, track.reason
            upcoming, prompt = next(scene_frames)
            tracker.prefetch(upcoming.image)
            bar.update()
    modules = [span.end_ms - span.start_ms for span in spans if span.name in MODULES]
    counted = sum(span.name == MODULES[0] for span in spans)
    shown_from, shown_to = starts_ms[-min(SHOWN, frames) - 1], starts_ms[-1]
    return Timeline(
        contender.name,
        tuple(span for span in spans if span.end_ms > shown_from and span.start_ms < shown_to),
        fmean(b - a for a, b in pairwise(starts_ms)),
        sum(modules) / counted,
    )


def print_timeline(timeline: Timeline) -> None:
    """One line for each span, with a bar where it lies."""
    spans = sorted(timeline.spans, key=lambda span: span.start_ms)
    first, last = spans[0].start_ms, max(span.end_ms for span in spans)
    scale = COLUMNS / (last - first)
    print(f"{timeline.name}: ms, from the start of the first frame shown")
    for span in spans:
        start, end = span.start_ms - first, span.end_ms - first
        bar = (" " * int(start * scale)).ljust(int(end * scale) + 1, "#" if span.lane == HOST else "=")
        print(f"{span.lane:<13}{span.name:<18}{start:8.3f} {end:8.3f}  |{bar[:COLUMNS]:<{COLUMNS}}|")
    print(
        f"frame {timeline.frame_ms:.3f} ms, its four modules {timeline.modules_ms:.3f} ms:"
        f" {timeline.ratio:.3f} times"
    )


def draw_timeline(path: Path, timeline: Timeline) -> None:
    """Write a picture with a row for the host and for each stream."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = (HOST, NETWORK, IMAGES)
    names = _names(timeline.spans)
    colours = dict(zip(names, cycle(pyplot.rcParams["axes.prop_cycle"].by_key()["color"]), strict=False))
    first = min(span.start_ms for span in timeline.spans)
    figure, axes = pyplot.subplots(figsize=(12, 3), layout="constrained")
    for name in names:
        for row, lane in enumerate(rows):
            bars = [
                (span.start_ms - first, span.end_ms - span.start_ms)
                for span in timeline.spans
                if (span.name, span.lane) == (name, lane)
            ]
            if bars:
                axes.broken_barh(bars, (row - 0.35, 0.7), color=colours[name], edgecolor="white", label=name)
    axes.set_yticks(range(len(rows)), rows)
    axes.invert_yaxis()
    axes.set_xlabel("ms")
    axes.set_title(f"{timeline.name}: frame {timeline.frame_ms:.2f} ms, {timeline.ratio:.2f} x its modules")
    axes.legend(fontsize="small", ncols=len(names), loc="upper center", bbox_to_anchor=(0.5, -0.2))
    with replacing(path) as part:
        figure.savefig(part, dpi=120)
    pyplot.close(figure)


def _names(spans: Iterable[Span]) -> Sequence[str]:
    return list(dict.fromkeys(span.name for span in sorted(spans, key=lambda span: span.start_ms)))
