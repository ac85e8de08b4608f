"""Track one or several targets in a video, a folder of images, a camera or a stream.

The command writes an overlay video and a JSON file with the boxes, and prints the time per frame and the
states. With --page, or on a terminal if no target is given, it serves a page: draw the target there on the
first frame, then watch.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter, defaultdict
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

from efftam_ros.core.contract import Pipeline
from efftam_ros.core.errors import InputError
from efftam_ros.core.targets import TargetSet
from efftam_ros.core.types import Frame, Image, Prompt, Track
from efftam_ros.images.camera import open_source
from efftam_ros.images.levels import few_levels
from efftam_ros.images.overlay import draw_overlay
from efftam_ros.images.source import NS, VideoFrame, VideoSource
from efftam_ros.messages.reports import VideoProgress
from efftam_ros.runtime.opening import open_pipeline, open_targets
from efftam_ros.tools.common import options
from efftam_ros.tools.common.following import Answers, follow
from efftam_ros.tools.common.hints import LossCause, cause_of, lost_after_s
from efftam_ros.tools.common.outputs import Output, check_outputs
from efftam_ros.tools.common.page import DrawingPage, open_page, show_in_browser
from efftam_ros.tools.common.positions import (
    Positions,
    TrackAction,
    add_position_arguments,
    open_positions,
)
from efftam_ros.tools.common.prompts import add_prompt_arguments, read_prompts
from efftam_ros.tools.common.recordings import add_rerun_argument, open_recording, rerun_output
from efftam_ros.tools.common.terminal import progress_bar
from efftam_ros.tools.common.track_json import TrackFacts, frame_record, write_track_json
from efftam_ros.tools.common.video import VideoWriter

# Exit code if a target was lost before it was ever in the state TRACKING.
EXIT_LOST = 1
NOT_KEPT = "no file was written: --json FILE keeps the boxes, --out FILE.mp4 the pictures"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_source_argument(parser)
    add_prompt_arguments(parser)
    parser.add_argument(
        "--page", action="store_true", help="draw the target on a page in the browser, and watch there"
    )
    files = parser.add_argument_group("input and output")
    files.add_argument(
        "--start", type=int, default=0, metavar="FRAME", help="frame the target is selected in (default 0)"
    )
    files.add_argument("--frames", type=int, metavar="N", help="frames to process (default: to the end)")
    options.add_image_arguments(files, TrackAction)
    files.add_argument("--out", type=Path, metavar="FILE.mp4", help="overlay video (H.264)")
    files.add_argument("--json", type=Path, metavar="FILE", help="boxes of every frame; - for stdout")
    add_rerun_argument(files)
    options.add_quiet_argument(files)
    add_position_arguments(parser)
    options.add_network_arguments(parser)
    options.add_tracker_arguments(parser)
    server = parser.add_argument_group("the page's server")
    server.add_argument(
        "--address", default="127.0.0.1", help="address to listen on (default 127.0.0.1: this computer only)"
    )
    server.add_argument("--port", type=int, default=8080, help="port (default 8080); 0: a free one")
    server.add_argument(
        "--token", help="token that a page must send (default: a new one if the address is not local)"
    )


def run(args: argparse.Namespace) -> int:
    source = open_source(args.video, args.fps, args.range, args.track, options.report)
    if source.note:
        options.report(f"{source.name}: {source.note}")
    if args.start < 0 or (args.frames is not None and args.frames < 1):
        raise InputError(
            f"--start is {args.start}, --frames {args.frames}; --start must be at least 0, --frames at least"
            " 1"
        )
    prompts = read_prompts(args.box, args.point, args.mask, source.width, source.height)
    if not prompts and not (args.page or (sys.stdin.isatty() and sys.stderr.isatty())):
        raise InputError("no target given; select it with --box X,Y,W,H, --point X,Y, --mask FILE or --page")
    if prompts and args.page:
        raise InputError(
            "with --page the target is drawn there; leave out --box, --point and --mask, or --page"
        )
    config = options.tracker_config(args.settings, view=args.view, policy=args.policy)
    outputs = [Output("--json", args.json), Output("--out", args.out, "video"), rerun_output(args.rerun)]
    outputs.append(Output("--track", args.ground_track))
    check_outputs(outputs, [args.video, args.mask, args.poses, args.terrain])
    positions = open_positions(args, (source.width, source.height))
    pipeline = open_pipeline(options.pipeline_config(args, max(1, len(prompts))))
    run_ = _Run(source, pipeline, open_targets(pipeline, config), prompts, positions)
    try:
        if not prompts:
            files = [
                str(one) for one in (args.json, args.out, args.rerun, args.ground_track) if one is not None
            ]
            kept = f"written: {', '.join(files)}" if files else NOT_KEPT
            over = f"the video is over; {kept}"
            with open_page(args.address, args.port, args.token or "", over) as served:
                print(served.announcement, file=sys.stderr, flush=True)
                if show_in_browser(served.urls[0]):
                    options.report("no target was given: draw it on the page that opens in the browser")
                run_.follow(args, served.page)
            if not files:
                print(kept, file=sys.stderr)
        else:
            run_.follow(args)
    finally:
        pipeline.close()
        # Write the results even after an error or Ctrl-C, because a live stream usually ends in one of these
        # ways.
        if run_.tracks:
            if args.json is not None:
                run_.write_json(args.json, args.backend)
            if args.ground_track is not None and positions is not None:
                positions.write(args.ground_track)
            print(run_.summary(), file=sys.stderr if str(args.json) == "-" else sys.stdout)
    for hint in run_.hints():
        options.report(hint)
    return EXIT_LOST if run_.hints() else 0


class _Run:
    """Tracks the targets through one video, and collects the tracks and times.

    ``prompts``: the selections on the first frame by target id; if empty, the target is drawn on the page.
    ``positions``: computes positions on the ground, or None.
    """

    def __init__(
        self,
        source: VideoSource,
        pipeline: Pipeline,
        targets: TargetSet,
        prompts: dict[int, Prompt],
        positions: Positions | None = None,
    ) -> None:
        self._source, self._pipeline, self._targets, self._prompts = source, pipeline, targets, prompts
        self._positions = positions
        # For each image the positions on the ground by target id; empty without `positions`.
        self._places: list[dict[int, dict[str, Any]]] = []
        # Index of each frame, and its tracks by target id.
        self.tracks: list[tuple[int, dict[int, Track]]] = []
        self.is_complete = False  # whether all frames that the options name were processed
        self._spent: dict[str, float] = defaultdict(float)  # total time of each stage, s
        self._causes: dict[int, LossCause] = {}  # probable cause by target id, if the target is lost at once

    def follow(self, args: argparse.Namespace, page: DrawingPage | None = None) -> None:
        """Track through the video, and write the overlay video and the recording that ``args`` name.

        ``page``: shows the images, and lets a person draw the target if there are no prompts. Raises
        InputError: no usable frame, an image that can't be read, or another image size.
        """
        source, start, most = self._source, args.start, args.frames
        size = source.width, source.height
        left = None if source.count is None else max(0, source.count - start)
        total = most if left is None else min(left, most or left)
        with ExitStack() as stack:
            bar = stack.enter_context(progress_bar(total, source.path.name, quiet=args.quiet))
            recording = stack.enter_context(open_recording(args.rerun, _name(source.path)))
            overlay: VideoWriter | None = None
            for frame in islice(source.frames(start), most):
                if frame.size != size:
                    raise InputError(
                        f"{source.name}: image {frame.index} is {frame.size[0]}x{frame.size[1]} px, the first"
                        f" one {size[0]}x{size[1]} px; start again with the new size"
                    )
                if not self._prompts:
                    assert page is not None
                    self._prompts[0] = page.ask(frame.bgr, frame.stamp_ns, self._progress(frame))
                answers = self._step(frame, args.out is not None or recording is not None)
                first, (steered, _) = next(iter(answers.items()))
                if page is not None:
                    page.show(frame.bgr, steered, self._progress(frame))
                if recording is not None:
                    recording.write(frame.bgr, answers)
                if args.out is not None:
                    overlay = overlay or stack.enter_context(
                        VideoWriter(
                            args.out, source.width, source.height, source.fps, pixel_ratio=source.pixel_ratio
                        )
                    )
                    # With a page the overlay is drawn into a copy, because the page may still encode this
                    # image.
                    shown = frame.bgr if frame.bgr.flags.writeable and page is None else frame.bgr.copy()
                    for target_id, (track, mask) in reversed(answers.items()):
                        shown_id = target_id if len(answers) > 1 else None
                        draw_overlay(shown, track, mask, shown_id, target_id == first)
                    overlay.write(shown, frame.stamp_ns)
                bar.update()
        read = [index for index, _ in self.tracks]
        self.is_complete = source.is_whole or read == list(range(start, start + (most or -1)))
        if not self.tracks:
            raise InputError(
                f"--start is {start}, but {source.name} has only {source.count or 'fewer'} frames that can be"
                " used"
            )

    def _progress(self, frame: VideoFrame) -> VideoProgress | None:
        """Return the position of a frame in the video; None for a source without an end, such as a camera."""
        count = self._source.count
        return None if count is None else VideoProgress(frame.index, count, frame.stamp_ns / NS)

    def _step(self, frame: VideoFrame, masked: bool) -> Answers:
        """Process a frame, store its results, and return tracks and masks. ``masked``: whether masks are
        computed."""
        began, prompts = time.perf_counter(), {} if self.tracks else self._prompts
        image = Image.from_array(frame.bgr)
        answers, masks_s = follow(self._targets, Frame(image, frame.stamp_ns), prompts, masked)
        self._targets.remember()
        # The time for masks is subtracted, because masks are only needed for the output files.
        self._spent["frame"] += time.perf_counter() - began - masks_s
        for track, _ in answers.values():
            for stage, seconds in track.stage_seconds.items():
                self._spent[stage] += seconds
        if prompts and (few := few_levels(image)):
            options.report(f"{self._source.name}: {few}")
        for target_id in prompts:
            track, _ = answers[target_id]
            if track.reason:  # on the first frame a reason means that the selection is doubtful
                options.report(f"{self._source.name}: target {target_id}: {track.reason}")
        self._causes |= {target_id: cause_of(frame.bgr, prompt) for target_id, prompt in prompts.items()}
        tracks = {target_id: track for target_id, (track, _) in answers.items()}
        self.tracks.append((frame.index, tracks))
        self._places.append({} if self._positions is None else self._positions.locate(tracks))
        return answers

    def hints(self) -> list[str]:
        """Return a line for each target that was lost before it was ever tracked: after how many seconds, and
        what to draw instead."""
        lines = []
        for target_id, cause in self._causes.items():
            seconds = lost_after_s([tracks[target_id] for _, tracks in self.tracks if target_id in tracks])
            if seconds is not None:
                lines.append(
                    f"target {target_id} was lost {seconds:.2f} s after its selection, before it was tracked;"
                    f" {cause.value}"
                )
        return lines

    def write_json(self, file: Path, backend: str) -> None:
        """Write the JSON file. ``backend``: the back end's name."""
        source = self._source
        frames = [
            frame_record(index, tracks, places)
            for (index, tracks), places in zip(self.tracks, self._places, strict=True)
        ]
        write_track_json(
            file,
            source.path if source.path.exists() else source.name,
            TrackFacts(
                source.fps, source.width, source.height, self._pipeline.spec.name, backend, self.is_complete
            ),
            frames,
        )

    def summary(self) -> str:
        """Return one line: number of frames, mean times, and how often each state occurred.

        The mean time of each stage is over all frames, even for a stage that runs only on some, such as the
        search.
        """
        mean_ms = {name: 1e3 * seconds / len(self.tracks) for name, seconds in self._spent.items()}
        whole = mean_ms.pop("frame")
        stages = ", ".join(f"{name} {ms:.1f}" for name, ms in mean_ms.items())
        states = Counter(track.state.name for _, tracks in self.tracks for track in tracks.values())
        seen = ", ".join(f"{name} {count}" for name, count in states.items())
        return f"{len(self.tracks)} frames, mean ms: whole frame {whole:.1f} ({stages}); states: {seen}"


def _name(video: Path) -> str:
    """Return a video's name for the viewer, with its folder, which in many data sets names the sequence."""
    return "/".join(video.resolve().parts[-2:])
