"""Follow a target through a video or a folder of images.

Writes an overlay video and a JSON of boxes, and prints what a frame cost and which states were seen.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections import Counter, defaultdict
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TextIO

from efftam_ros.core.contract import Pipeline
from efftam_ros.core.errors import InputError
from efftam_ros.core.tracker import Tracker
from efftam_ros.core.types import Frame, Image, Prompt, Track
from efftam_ros.runtime.pipeline import open_pipeline
from efftam_ros.runtime.tracker import open_tracker
from efftam_ros.tools.common.options import add_network_arguments, add_tracker_arguments, tracker_config
from efftam_ros.tools.common.progress import progress_bar
from efftam_ros.tools.common.prompts import add_prompt_arguments, read_prompt
from efftam_ros.tools.common.video import NS, VideoSource, VideoWriter, open_video


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("video", type=Path, metavar="VIDEO_OR_FOLDER", help="video file, or folder of images")
    add_prompt_arguments(parser)
    files = parser.add_argument_group("input and output")
    files.add_argument(
        "--start", type=int, default=0, metavar="FRAME", help="frame the target is selected in (default 0)"
    )
    files.add_argument("--frames", type=int, metavar="N", help="frames to process (default: to the end)")
    files.add_argument("--fps", type=float, help="frame rate of a folder of images (default 30)")
    files.add_argument("--out", type=Path, metavar="FILE.mp4", help="overlay video (H.264)")
    files.add_argument("--json", type=Path, metavar="FILE", help="boxes of every frame; - for stdout")
    files.add_argument("--quiet", action="store_true", help="no progress bar")
    add_network_arguments(parser)
    add_tracker_arguments(parser)


def run(args: argparse.Namespace) -> int:
    source = open_video(args.video, args.fps)
    if source.note:
        print(f"{source.path}: {source.note}", file=sys.stderr)
    if args.start < 0 or (args.frames is not None and args.frames < 1):
        raise InputError(f"--start is {args.start}, --frames {args.frames}; they must be at least 0 and 1")
    prompt = read_prompt(args.box, args.point, args.mask, source.width, source.height)
    if prompt is None:
        raise InputError("no target given; say what to follow with --box X,Y,W,H, --point X,Y or --mask FILE")
    config = tracker_config(args.settings, view=args.view, policy=args.policy)
    for path in (args.json, args.out):
        if path is not None and str(path) != "-" and not path.parent.is_dir():
            raise InputError(f"{path.parent} does not exist; make the folder first")
    pipeline = open_pipeline(args.bundle, args.backend, args.threads)
    run_ = _Run(source, pipeline, open_tracker(pipeline, config), prompt)
    try:
        run_.follow(args.start, args.frames, args.out, quiet=args.quiet)
    finally:
        pipeline.close()
        # What was done stands, also when the video breaks off or somebody presses Ctrl-C.
        if run_.tracks and args.json is not None:
            _write_json(args.json, run_.report(args.backend))
    print(run_.summary(), file=sys.stderr if str(args.json) == "-" else sys.stdout)
    return 0


class _Run:
    """One pass over a video: the tracks and what they cost."""

    def __init__(self, source: VideoSource, pipeline: Pipeline, tracker: Tracker, prompt: Prompt) -> None:
        self._source, self._pipeline, self._tracker, self._prompt = source, pipeline, tracker, prompt
        self.tracks: list[tuple[int, Track]] = []
        self._spent: dict[str, float] = defaultdict(float)
        self._counted: Counter[str] = Counter()

    def follow(self, start: int, frames: int | None, out: Path | None, *, quiet: bool) -> None:
        source = self._source
        left = None if source.count is None else max(0, source.count - start)
        total = frames if left is None else min(left, frames or left)
        with ExitStack() as stack:
            bar = stack.enter_context(progress_bar(total, source.path.name, quiet=quiet))
            writer = None
            for picture in source.frames(start):
                began = time.perf_counter()
                frame = Frame(Image.from_array(picture.bgr), picture.stamp_ns)
                track = self._tracker.step(frame, self._prompt if not self.tracks else None)
                self._count("frame", time.perf_counter() - began)
                for stage, seconds in track.stage_seconds.items():
                    self._count(stage, seconds)
                self.tracks.append((picture.index, track))
                if out is not None:
                    from efftam_ros.runtime.image.overlay import draw_overlay

                    if writer is None:
                        writer = stack.enter_context(
                            VideoWriter(out, source.width, source.height, source.fps)
                        )
                    shown = picture.bgr if picture.bgr.flags.writeable else picture.bgr.copy()
                    draw_overlay(shown, track, self._tracker.mask())
                    writer.write(shown, picture.stamp_ns)
                bar.update()
                if frames is not None and len(self.tracks) == frames:
                    break
        if not self.tracks:
            raise InputError(
                f"--start is {start}, but {source.path} has only {source.count or 'fewer'} frames"
            )

    def report(self, backend: str) -> dict[str, Any]:
        """What --json writes."""
        source = self._source
        return {
            "video": str(source.path),
            "fps": source.fps,
            "width": source.width,
            "height": source.height,
            "bundle": self._pipeline.spec.name,
            "backend": backend,
            "frames": [track_record(index, track) for index, track in self.tracks],
        }

    def summary(self) -> str:
        """One line: frames, mean time per stage, states seen."""
        stages = ", ".join(
            f"{name} {1e3 * self._spent[name] / self._counted[name]:.1f}"
            for name in self._spent
            if name != "frame"
        )
        whole = 1e3 * self._spent["frame"] / self._counted["frame"]
        states = Counter(track.state.name for _, track in self.tracks)
        seen = ", ".join(f"{name} {count}" for name, count in states.items())
        return f"{len(self.tracks)} frames, mean ms: whole frame {whole:.1f} ({stages}); states: {seen}"

    def _count(self, stage: str, seconds: float) -> None:
        self._spent[stage] += seconds
        self._counted[stage] += 1


def track_record(index: int, track: Track) -> dict[str, Any]:
    """One frame of the JSON; unknown numbers are null."""
    return {
        "index": index,
        "stamp": track.stamp_ns / NS,
        "state": track.state.name,
        "box": None if track.box is None else _finite(track.box.xywh()),
        "measured": track.measured,
        "presence": track.presence,
        "iou": track.quality,
        "velocity": None if track.motion is None else _finite(track.motion.velocity),
        "reason": track.reason,
        "windows": len(track.windows),
        "camera_motion": None if track.camera is None else track.camera.reason or "known",
    }


def _finite(values: tuple[float, ...]) -> list[float] | None:
    return [float(v) for v in values] if all(math.isfinite(v) for v in values) else None


def _write_json(path: Path, report: dict[str, Any]) -> None:
    def write(file: TextIO) -> None:
        json.dump(report, file, allow_nan=False)
        file.write("\n")

    if str(path) == "-":
        write(sys.stdout)
    else:
        with path.open("w", encoding="utf-8") as file:
            write(file)
