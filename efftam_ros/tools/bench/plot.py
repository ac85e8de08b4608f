"""Draws what each module of each contender costs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from efftam_ros.tools.bench.frames import Timing
from efftam_ros.tools.common.outputs import replacing


def plot(path: Path, timings: Sequence[Timing]) -> None:
    """Write a picture of stacked bars: medians of the stages, then what is left of the whole frame."""
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
