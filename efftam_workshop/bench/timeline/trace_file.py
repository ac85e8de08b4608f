"""Writes spans as a file of the Trace Event Format, which Perfetto and chrome://tracing open.

Format: "Trace Event Format" of the Chromium project: complete events ("X") with times in us, and metadata
events ("M") that name processes and threads.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from efftam_ros.tools.common.outputs import write_text
from efftam_workshop.bench.timeline.spans import Span

HOST, DEVICE = 1, 2
"""Process ids in the trace file, one for the host and one for the GPU."""


def trace_events(host: Sequence[Span], device: Sequence[Span]) -> list[dict[str, Any]]:
    """Return the trace's events for all spans. Times in the events count from the first span."""
    every = (*host, *device)
    first = min((span.start for span in every), default=0)
    events = [_meta("process_name", HOST, 0, "host")]
    if device:
        events.append(_meta("process_name", DEVICE, 0, "GPU"))
    for process, spans, kind in ((HOST, host, "thread"), (DEVICE, device, "stream")):
        numbers = {track: number for number, track in enumerate(dict.fromkeys(s.track for s in spans), 1)}
        events += [_meta("thread_name", process, number, f"{kind} {number}") for number in numbers.values()]
        events += [
            {
                "name": span.name,
                "cat": span.cause,
                "ph": "X",
                "ts": (span.start - first) / 1e3,
                "dur": span.ns / 1e3,
                "pid": process,
                "tid": numbers[span.track],
            }
            for span in spans
        ]
    return events


def write_trace(path: Path, host: Sequence[Span], device: Sequence[Span], about: Mapping[str, Any]) -> None:
    """Write the trace file. ``about``: metadata of the file, which viewers show.

    Raises InputError if the file can't be written.
    """
    content = {"traceEvents": trace_events(host, device), "displayTimeUnit": "ms", "otherData": dict(about)}
    write_text(path, json.dumps(content) + "\n")


def _meta(name: str, process: int, thread: int, text: str) -> dict[str, Any]:
    return {"name": name, "ph": "M", "pid": process, "tid": thread, "args": {"name": text}}
