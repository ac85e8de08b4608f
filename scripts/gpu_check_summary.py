"""Writes a gpu_check folder's summary.md from its JSON files; the rows fit docs/benchmarks.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

MODULES = ("preprocess", "image_encoder", "memory_attention", "mask_decoder", "memory_encoder")


def summary(folder: Path) -> str:
    """Markdown: machine, items, then a table for each measurement that is there."""
    about = _load(folder / "about.json") or {}
    items = _load(folder / "items.json") or []
    benches = {path: _load(path) for path in sorted(folder.glob("bench_*.json"))}
    lines = [f"# GPU check: {about.get('gpu', 'unknown GPU')}, {about.get('date', 'unknown date')}", ""]
    lines += [_machine(about.get("environment") or {}), ""]
    lines += ["| item | result | why |", "|---|---|---|"]
    lines += [f"| {item['name']} | {item['state']} | {_cell(item['why'])} |" for item in items]
    for path, report in benches.items():
        if report and report.get("frames"):
            lines += ["", f"## {path.stem.removeprefix('bench_')}", "", *_bench(report)]
    rows = [*_soak(_load(folder / "soak.json")), *_waits(_load(folder / "waits.json"))]
    if rows:
        lines += [
            "",
            "## Soak, calls",
            "",
            "| what | goal | measured | command |",
            "|---|---|---|---|",
            *rows,
        ]
    return "\n".join(lines) + "\n"


def _load(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def _machine(environment: dict[str, Any]) -> str:
    return ", ".join(
        f"{name.replace('_', ' ')} {', '.join(value) if isinstance(value, list) else value}"
        for name, value in environment.items()
        if value
    )


def _bench(report: dict[str, Any]) -> list[str]:
    timings = report["frames"]
    first, size = timings[0], "x".join(map(str, report["image"]))
    memory = f"{first['maps']} maps and {first['pointers']} pointers"
    baselines = sorted({name for timing in timings for name in timing["times_faster_than"]})
    lines = [
        f"ms, median of {first['frames']} frames of {size} with {memory}, taken in turns:",
        "",
        f"| | whole | p99 | {' | '.join(name.replace('_', ' ') for name in MODULES)} | glue ratio |"
        + "".join(f" x {name} |" for name in baselines),
        "|---|---|---|" + "---|" * (len(MODULES) + 1 + len(baselines)),
    ]
    for timing in timings:
        cells = [timing["whole_ms"], timing["whole_p99_ms"]]
        cells += [timing["stages_ms"].get(name) for name in MODULES]
        cells += [timing["glue_ratio"]]
        cells += [timing["times_faster_than"].get(name) for name in baselines]
        lines.append(f"| {timing['name']} | {' | '.join(_number(cell) for cell in cells)} |")
    lines += ["", "| | start-up, s | resident MB | device MB | launched |", "|---|---|---|---|---|"]
    for timing in timings:
        launched = "; ".join(f"{module}: {how}" for module, how in timing["launch"].items()) or "-"
        figures = " | ".join(_number(timing[name]) for name in ("start_up_s", "resident_mb", "device_mb"))
        lines.append(f"| {timing['name']} | {figures} | {_cell(launched)} |")
    return lines


def _soak(report: dict[str, Any] | None) -> list[str]:
    if not report:
        return []
    soak = report["soak"]
    command = f"`efftam bench --soak SECONDS --backend {report['backend']}`"
    what = f"{soak['frames']:,} frames ({report['bundle']} {report['backend']})"
    what += ": resident memory after the first 100"
    start, end = soak["resident_mb"]
    rows = [f"| {what} | under 5 MB | {end - start:+.1f} MB | {command} |"]
    start, end = soak["device_mb"]
    if start is not None and end is not None:
        rows.append(f"| the same: device memory in use | under 5 MB | {end - start:+.1f} MB | the same |")
    times = "{1:.2f} against {0:.2f} ms".format(*soak["whole_ms"])
    rows.append(f"| the same: frame time, last quarter against the first | no drift | {times} | the same |")
    return rows


def _waits(report: dict[str, Any] | None) -> list[str]:
    if not report:
        return []
    command = f"`scripts/gpu_check` ({report['counted_by']})"
    return [
        f"| host waits per frame | 1 | {report['waits_per_frame']:g} | {command} |",
        f"| allocations per frame | 0 | {report['allocations_per_frame']:g} | the same |",
    ]


def _number(value: float | None) -> str:
    """Three digits that count; a dash for what was not measured."""
    if value is None or value != value:
        return "-"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _cell(text: str) -> str:
    return text.replace("|", "/")
