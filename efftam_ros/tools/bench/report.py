"""Output of `efftam bench`: tables with each figure and its goal, and the plot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from efftam_ros.baselines.opening import BASELINES
from efftam_ros.tools.bench.contenders import LeftOut
from efftam_ros.tools.bench.frames import TURN, WARM_UP, Timing
from efftam_ros.tools.bench.peers import PEER
from efftam_ros.tools.bench.soak import SETTLED
from efftam_ros.tools.common.outputs import replacing
from efftam_ros.tools.common.table import Cell, print_table

GLUE_GOAL, TORCH_GOAL = 1.05, 2.0
NODE_GOAL_MS, MEMORY_GOAL_MB, VELOCITY_GOAL = 5.0, 5.0, 0.05


def print_frames(timings: Sequence[Timing], frames: int) -> None:
    """Print the times of each contender, then its start-up time and memory."""
    names = list(dict.fromkeys(name for timing in timings for name in timing.medians_ms))
    baselines = [name for name in BASELINES if any(timing.backend == name for timing in timings)]
    peers = any(timing.backend == PEER for timing in timings)
    relative = ["relative"] if peers else []
    headers = [
        "ms, median",
        "whole",
        "p99",
        *relative,
        *names,
        "glue ratio",
        *(f"x {name}" for name in baselines),
    ]
    rows: list[list[Cell]] = []
    for timing in timings:
        medians, faster = timing.medians_ms, timing.times_faster(timings)
        rows.append(
            [
                timing.name,
                _two(timing.whole_ms),
                _two(timing.whole_p99_ms),
                *(_two(timing.relative(timings)) for _ in relative),
                *(_two(medians.get(name)) for name in names),
                timing.glue_ratio,
                *(_two(faster.get(name)) for name in baselines),
            ]
        )
    how = f"in turns of {TURN}" if len(timings) > 1 else "back to back"
    print_table(headers, rows, title=f"{frames} frames each after {WARM_UP} of warm-up, {how}")
    for timing in timings:
        if timing.incomplete:
            missed = f"{timing.incomplete} frames did not run all four modules"
            print(f"{timing.name}: {missed} and are not in the glue ratio")
    print()
    _print_resources(timings)
    print(f"\nglue ratio: whole frame over its four modules; goal at most {GLUE_GOAL} (ti_512x512 on a CPU)")
    if peers:
        print(f"relative: time of a whole frame as a share of that of {timings[0].name}")
    for name in baselines:
        goal = f"; goal at least {TORCH_GOAL:g}" if name == "torch" else ""
        print(f"x {name}: times faster than the back end {name} in this run{goal}")


def _print_resources(timings: Sequence[Timing]) -> None:
    headers = ["", "start-up, s", "resident MB", "device MB", "maps", "pointers", "how"]
    rows: list[list[Cell]] = [
        [
            timing.name,
            _two(timing.start_up_s),
            f"{timing.resident_mb:+.0f}",
            None if timing.device_mb is None else f"{timing.device_mb:.0f}",
            *((None, None) if timing.backend == PEER else (timing.maps, timing.pointers)),
            launch_summary(timing.launch),
        ]
        for timing in timings
    ]
    print_table(headers, rows)
    for timing in timings:
        for module, how in timing.launch.items():
            if ":" in how:
                print(f"{timing.name}, {module}: {how}")


def launch_summary(launch: Mapping[str, str]) -> str | None:
    """Launch mode of the modules: "cuda graph" or "3 cuda graph, 1 plain launches"."""
    kinds = Counter(how.partition(":")[0] for how in launch.values())
    if len(kinds) < 2:
        return next(iter(kinds), None)
    return ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())


def print_left_out(left_out: Sequence[LeftOut]) -> None:
    """One line for each contender that can't run here."""
    for one in left_out:
        print(f"left out: {one.text}; {one.remedy}")


def _two(value: float | None) -> str | None:
    return None if value is None else f"{value:.2f}"


def print_soak(name: str, soak: Mapping[str, Any]) -> None:
    print(f"\n{name}: {soak['frames']} frames after the first {SETTLED}")
    rows: list[list[Cell]] = [
        [
            "resident memory, MB",
            soak["start_mb"],
            soak["end_mb"],
            f"{soak['growth_mb']:+.1f}",
            f"under {MEMORY_GOAL_MB:g}",
        ],
        *_device_rows(soak),
        ["frame time, ms", soak["first_ms"], soak["last_ms"], f"{100 * soak['drift']:+.1f} %", "none"],
    ]
    print_table(["", "first", "last", "change", "goal"], rows, digits=2)


def _device_rows(soak: Mapping[str, Any]) -> list[list[Cell]]:
    if soak["device_growth_mb"] is None:
        return []
    return [
        [
            "device memory in use, MB",
            soak["device_start_mb"],
            soak["device_end_mb"],
            f"{soak['device_growth_mb']:+.1f}",
            f"under {MEMORY_GOAL_MB:g}",
        ]
    ]


def print_motion(results: Sequence[Mapping[str, float]]) -> None:
    rows = [
        [
            f"{100 * result['dropped']:.0f} %",
            f"{100 * result['error_at_half_second']:.1f} %",
            f"{100 * result['error_after']:.1f} %",
            f"at most {100 * VELOCITY_GOAL:g} %",
        ]
        for result in results
    ]
    first = results[0]
    target = f"{first['speed_px_s']:.0f} px/s at {first['fps']:g} fps, jitter +-2 px"
    title = f"\nvelocity error, {target}, {first['runs']} runs"
    print_table(["frames dropped", "at 0.5 s", "0.5 s to 3 s", "goal"], rows, title=title)


def print_python(result: Mapping[str, Any]) -> None:
    width, height = result["image"]
    title = f"\nTracker.step on a GPU that does nothing, {result['frames']} frames of {width}x{height} bgr8"
    rows: list[list[Cell]] = [
        ["without camera motion", result["off"]],
        ["with camera motion from the images", result["auto"]],
    ]
    print_table(["default policy", "ms, median"], rows, digits=3, title=title)


def print_node(result: Mapping[str, Any]) -> None:
    images = f"{result['answered']} images of {result['width']}x{result['height']} bgr8"
    title = f"\nnode without a network, {images} at {result['fps']:g} Hz"
    rows = [[result["p50_ms"], result["p99_ms"], f"median under {NODE_GOAL_MS:g}", result["lost"]]]
    print_table(
        ["callback to bbox, ms: p50", "p99", "goal", "images lost on the way"], rows, digits=2, title=title
    )


def plot(path: Path, timings: Sequence[Timing]) -> None:
    """Write stacked bars: medians of the stages, then the remainder of the whole frame."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = list(dict.fromkeys(name for timing in timings for name in timing.medians_ms))
    figure, axes = pyplot.subplots(figsize=(8, 1.2 + 0.6 * len(timings)), layout="constrained")
    labels = [timing.name for timing in timings]
    left = [0.0] * len(timings)
    for name in [*names, "the rest"]:
        if name == "the rest":
            widths = [max(0.0, t.whole_ms - done) for t, done in zip(timings, left, strict=True)]
        else:
            widths = [t.medians_ms.get(name, 0.0) for t in timings]
        axes.barh(labels, widths, left=left, label=name, color="lightgrey" if name == "the rest" else None)
        left = [done + width for done, width in zip(left, widths, strict=True)]
    axes.invert_yaxis()
    axes.set_xlabel("ms per frame (medians)")
    axes.legend(fontsize="small", ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.25))
    with replacing(path) as part:
        figure.savefig(part, dpi=120)
    pyplot.close(figure)
