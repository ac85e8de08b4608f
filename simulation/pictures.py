"""Writes the video and the plot of a simulated flight."""

from __future__ import annotations

import math
from bisect import bisect_right
from itertools import pairwise
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.geometry import Box
from efftam_ros.core.reasons import Reason, ReasonCode
from efftam_ros.core.types import Track, TrackState
from efftam_ros.images.overlay import FONT, draw_overlay
from efftam_ros.images.stills.folder import read_bgr
from efftam_ros.tools.common.terminal import progress_bar
from efftam_ros.tools.common.video import VideoWriter
from simulation.record import Answer, FlightRecord, Sample, Steering

PHASES = ("off", "waiting", "following", "predicting", "fading", "holding", "control lost")
WHITE, DARK = (235, 235, 235), (20, 20, 20)


def write_video(path: Path, record: FlightRecord, folder: Path, fps: float, quiet: bool) -> None:
    """Write a video of the pictures from 1 s before the selection on. Each picture shows the tracker's answer
    to it, or the newest earlier answer if there is none. ``folder``: contains the pictures."""
    begin_s = record.events["selected"] - 1.0
    samples = [s for s in record.samples if s.time_s >= begin_s]
    stamps = [a.stamp_ns for a in record.answers]
    steered = [s.time_s for s in record.steering]
    first = read_bgr(folder / f"{samples[0].index:06d}.jpg")
    height, width = first.shape[:2]
    with (
        VideoWriter(path, width, height, fps) as writer,
        progress_bar(len(samples), "video", quiet=quiet) as bar,
    ):
        for sample in samples:
            bgr = np.ascontiguousarray(read_bgr(folder / f"{sample.index:06d}.jpg"))
            found = bisect_right(stamps, sample.stamp_ns) - 1
            if found >= 0:
                draw_overlay(bgr, track_of(record.answers[found], (width, height)))
            status = bisect_right(steered, sample.time_s) - 1
            _draw_flight(bgr, sample, record.steering[status] if status >= 0 else None)
            writer.write(bgr, sample.stamp_ns)
            bar.update()


def track_of(answer: Answer, size: tuple[int, int]) -> Track:
    """Return the answer as a `Track`, which `draw_overlay` needs. ``size``: width and height of the picture,
    px."""
    return Track(
        stamp_ns=answer.stamp_ns,
        state=TrackState(answer.state),
        box=None if answer.box is None else Box(*answer.box),
        measured=answer.measured,
        presence=answer.presence,
        quality=answer.quality,
        age_s=math.nan if answer.age_s is None else answer.age_s,
        image_size=size,
        reason=Reason.read(ReasonCode.OTHER, answer.reason),
    )


def _draw_flight(bgr: NDArray[np.uint8], sample: Sample, steering: Steering | None) -> None:
    """Draw a cross at the optical axis, and a line of text with the gimbal's angles and the controller's
    phase."""
    height, width = bgr.shape[:2]
    x, y = width // 2, height // 2
    arm, gap = round(0.03 * width), round(0.012 * width)
    for colour, thickness in ((DARK, 3), (WHITE, 1)):
        for dx, dy in ((1, 0), (-1, 0), (0, 1), (0, -1)):
            start, end = (x + gap * dx, y + gap * dy), (x + arm * dx, y + arm * dy)
            cv2.line(bgr, start, end, colour, thickness)
    text = (
        f"gimbal: yaw {math.degrees(sample.yaw):6.1f}  pitch {math.degrees(sample.pitch):5.1f}"
        f"  off axis {math.degrees(sample.off_axis):4.1f} deg"
    )
    if steering is not None:
        text += f"   {PHASES[steering.phase]}"
    scale = max(width / 1500, 0.42)
    (text_width, text_height), below = cv2.getTextSize(text, FONT, scale, 1)
    bgr[height - text_height - below - 12 :, : text_width + 20] //= 3
    cv2.putText(bgr, text, (10, height - below - 4), FONT, scale, WHITE, 1, cv2.LINE_AA)


def write_plot(path: Path, record: FlightRecord) -> None:
    """Write a plot of yaw and pitch of gimbal and target, and of the angle between both. The background shows
    the tracker's states."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    begin_s = record.events["following"]
    end_s = record.events["ended"]
    samples = [s for s in record.samples if begin_s - 3.0 <= s.time_s <= end_s]
    t = np.array([s.time_s - begin_s for s in samples])
    figure = Figure(figsize=(10, 8), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(3, 1, sharex=True)
    rows = (
        ("yaw", [s.yaw for s in samples], [s.target_yaw for s in samples]),
        ("pitch", [s.pitch for s in samples], [s.target_pitch for s in samples]),
    )
    for axis, (name, gimbal, target) in zip(axes, rows, strict=False):
        axis.plot(t, np.degrees(np.unwrap(target)), color="tab:orange", label="target")
        axis.plot(t, np.degrees(np.unwrap(gimbal)), color="tab:blue", linewidth=1, label="gimbal")
        axis.set_ylabel(f"{name}, degrees")
        axis.legend(loc="upper right")
    axes[2].plot(t, np.degrees([s.off_axis for s in samples]), color="tab:red")
    axes[2].set_ylabel("target off axis, degrees")
    axes[2].set_xlabel("time since steering was enabled, s")
    hidden = np.array([s.visible_px == 0 for s in samples])
    for axis in axes:
        axis.grid(alpha=0.3)
        bottom, top = axis.get_ylim()
        axis.fill_between(t, bottom, top, where=hidden, color="0.75", step="post", label="target hidden")
        axis.set_ylim(bottom, top)
        for state, colour in ((TrackState.COASTING, "khaki"), (TrackState.LOST, "lightcoral")):
            _shade(axis, record, state, colour, begin_s, end_s)
    axes[0].set_title("grey: target hidden; yellow: COASTING; red: LOST", fontsize="medium")
    figure.savefig(path, dpi=110)


def _shade(axis, record: FlightRecord, state: TrackState, colour: str, begin_s: float, end_s: float) -> None:
    answers = [a for a in record.answers if begin_s <= a.time_s <= end_s]
    for answer, after in pairwise(answers):
        if answer.state == state:
            axis.axvspan(
                answer.time_s - begin_s, after.time_s - begin_s, color=colour, alpha=0.6, linewidth=0
            )
