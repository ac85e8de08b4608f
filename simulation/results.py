"""Computes the figures of a simulated flight from its record."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from efftam_ros.core.geometry import Box, iou
from efftam_ros.core.types import TrackState
from simulation.record import Answer, FlightRecord, Sample

# The angles in this time after the start of steering are not counted, since the gimbal is still settling, s.
SETTLE_S = 2.0
# A box whose IoU with the target's true box is below this is not on the target.
WRONG_IOU = 0.05
# The computer is fast enough if it renders at least this share of the pictures, and if the 99th percentile of
# the answers' delays is at most this, s.
MIN_RATE, MAX_DELAY_S = 0.95, 0.25
# A target with fewer visible pixels than this counts as hidden.
VISIBLE_PX = 20


@dataclass(frozen=True)
class FlightFigures:
    """The figures of a flight. Angles are in degrees, times in s, CPU loads in percent of one core.

    ``returns``: number of changes from COASTING or LOST to TRACKING. ``wrong_s``: time in TRACKING in which
    the box was not on the target or the target was hidden. ``outside_s``: time in which the target's middle
    was outside the picture.
    """

    off_axis_rms_deg: float
    off_axis_p99_deg: float
    off_axis_max_deg: float
    followed_s: float
    tracking_s: float
    coasting_s: float
    lost_s: float
    hidden_s: float
    wrong_s: float
    outside_s: float
    returns: int
    selection_to_box_s: float
    image_to_box_median_s: float
    image_to_box_p99_s: float
    images_per_s: float
    answers_per_s: float
    cpu_percent: dict[str, float]


def figures(record: FlightRecord, cpu_percent: dict[str, float], size: tuple[int, int]) -> FlightFigures:
    """Return the figures of a flight. ``size``: width and height of the pictures, px. Raise ValueError if the
    flight ended less than `SETTLE_S` after steering began."""
    begin_s, end_s = record.events["following"], record.events["ended"]
    flown = [s for s in record.samples if begin_s <= s.time_s <= end_s]
    settled = [s for s in flown if s.time_s >= begin_s + SETTLE_S]
    if not settled:
        raise ValueError("the flight ended before the gimbal had settled")
    off = np.degrees([s.off_axis for s in settled])
    answers = [a for a in record.answers if begin_s <= a.time_s <= end_s]
    by_stamp = {s.stamp_ns: s for s in record.samples}
    delays = [a.time_s - by_stamp[a.stamp_ns].time_s for a in answers if a.stamp_ns in by_stamp]
    seconds = end_s - begin_s
    return FlightFigures(
        off_axis_rms_deg=float(np.sqrt(np.mean(off**2))),
        off_axis_p99_deg=float(np.quantile(off, 0.99)),
        off_axis_max_deg=float(off.max()),
        followed_s=seconds,
        tracking_s=_seconds_in(answers, TrackState.TRACKING, end_s),
        coasting_s=_seconds_in(answers, TrackState.COASTING, end_s),
        lost_s=_seconds_in(answers, TrackState.LOST, end_s),
        hidden_s=_seconds(flown, lambda s: s.visible_px < VISIBLE_PX and _inside(s, size)),
        wrong_s=sum(_wrong_spells(answers, by_stamp, end_s)),
        outside_s=_seconds(flown, lambda s: not _inside(s, size)),
        returns=_returns(answers),
        selection_to_box_s=record.events["answered"] - record.events["selected"],
        image_to_box_median_s=float(np.median(delays)) if delays else math.nan,
        image_to_box_p99_s=float(np.quantile(delays, 0.99)) if delays else math.nan,
        images_per_s=len(flown) / seconds,
        answers_per_s=len(answers) / seconds,
        cpu_percent=cpu_percent,
    )


def summary(f: FlightFigures) -> list[tuple[str, str]]:
    """Return the figures as rows of a table: (name, value with its unit)."""
    both = f.cpu_percent.get("gimbal", 0.0) + f.cpu_percent.get("bridge", 0.0)
    outside = "never" if f.outside_s == 0.0 else f"{f.outside_s:.2f} s"
    return [
        (
            "angle from the image's middle, RMS / 99 % / largest",
            f"{f.off_axis_rms_deg:.2f} / {f.off_axis_p99_deg:.2f} / {f.off_axis_max_deg:.2f} degrees",
        ),
        ("target outside the image", outside),
        (
            "TRACKING / COASTING / LOST",
            f"{f.tracking_s:.1f} / {f.coasting_s:.1f} / {f.lost_s:.1f} s of {f.followed_s:.1f}",
        ),
        ("target hidden", f"{f.hidden_s:.1f} s"),
        ("returns to TRACKING", str(f.returns)),
        ("TRACKING while the box was not on the target", f"{f.wrong_s:.2f} s"),
        ("selection sent until its first box arrived", f"{f.selection_to_box_s:.3f} s"),
        (
            "image taken until its box arrived, median / 99 %",
            f"{1e3 * f.image_to_box_median_s:.0f} / {1e3 * f.image_to_box_p99_s:.0f} ms",
        ),
        ("images, answers per second", f"{f.images_per_s:.1f}, {f.answers_per_s:.1f}"),
        (
            "CPU of gimbal controller + bridge",
            f"{f.cpu_percent.get('gimbal', 0.0):.1f} + {f.cpu_percent.get('bridge', 0.0):.1f} ="
            f" {both:.1f} % of a core",
        ),
        ("CPU of the tracker", f"{f.cpu_percent.get('tracker', 0.0):.0f} % of a core"),
    ]


def slowness(f: FlightFigures, fps: float) -> str:
    """Return a warning if the computer was too slow, so that the figures do not describe the nodes. Return an
    empty text if it was fast enough."""
    if f.images_per_s >= MIN_RATE * fps and f.image_to_box_p99_s <= MAX_DELAY_S:
        return ""
    return (
        f"the computer was too slow or too busy: {f.images_per_s:.1f} of {fps:g} pictures per second, answers"
        f" up to {1e3 * f.image_to_box_p99_s:.0f} ms late; the figures show this rather than the nodes"
    )


def _inside(sample: Sample, size: tuple[int, int]) -> bool:
    return 0.0 <= sample.u < size[0] and 0.0 <= sample.v < size[1]


def _seconds(samples: list[Sample], holds: Callable[[Sample], bool]) -> float:
    return sum(b.time_s - a.time_s for a, b in pairwise(samples) if holds(a))


def _spells(answers: list[Answer], end_s: float) -> Iterator[tuple[Answer, float]]:
    """Yield each answer with the time for which it was the newest one, s."""
    ends = [*(a.time_s for a in answers[1:]), end_s]
    for answer, end in zip(answers, ends, strict=False):
        yield answer, end - answer.time_s


def _seconds_in(answers: list[Answer], state: TrackState, end_s: float) -> float:
    return sum(seconds for answer, seconds in _spells(answers, end_s) if answer.state == state)


def _wrong_spells(answers: list[Answer], by_stamp: dict[int, Sample], end_s: float) -> Iterator[float]:
    for answer, seconds in _spells(answers, end_s):
        sample = by_stamp.get(answer.stamp_ns)
        if answer.state != TrackState.TRACKING or sample is None or answer.box is None:
            continue
        if sample.box is None or iou(Box(*answer.box), Box(*sample.box)) < WRONG_IOU:
            yield seconds


def _returns(answers: list[Answer]) -> int:
    # ACQUIRING is left out: a target that returns is ACQUIRING before it is TRACKING.
    states = [a.state for a in answers if a.state != TrackState.ACQUIRING]
    missed = (TrackState.COASTING, TrackState.LOST)
    return sum(a in missed and b == TrackState.TRACKING for a, b in pairwise(states))
