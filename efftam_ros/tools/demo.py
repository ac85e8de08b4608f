"""Track a clip that ships with the package, through the real node where ROS 2 is installed.

The clip is rendered: the camera follows a car, one that looks the same passes it, and a bridge hides it.
Where ROS 2 and the built messages are in the environment the images go to efftam_tracker over the middleware,
else the tracker runs in this process. Leaves overlay.mp4, track.json and summary.txt.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box, iou
from efftam_ros.core.types import Frame, Image, Prompt, Track, TrackState
from efftam_ros.interop.package_files import package_file
from efftam_ros.interop.video import NS, open_video
from efftam_ros.runtime.image.overlay import draw_overlay
from efftam_ros.runtime.pipeline import open_pipeline, open_tracker
from efftam_ros.tools.cli import Parser
from efftam_ros.tools.common.options import add_quiet_argument, open_bundle
from efftam_ros.tools.common.outputs import Output, check_outputs, write_text
from efftam_ros.tools.common.terminal import progress_bar
from efftam_ros.tools.common.video import VideoWriter
from efftam_ros.tools.eval.sequences import read_own
from efftam_ros.tools.track import frame_record

Pixels = NDArray[np.uint8]
Answers = Generator[tuple[Track, Pixels | None, float], None, None]
"""For each image: the result, the mask (uint8 [H, W]) and the delay in s."""

OUT = Path("demo_output")
CLIP = Path(__file__).resolve().parents[1] / "demo" / "clip"
PLAYER = "efftam_ros.ros.playback.frame_player"
RESULTS = ("overlay.mp4", "track.json", "summary.txt", "node.log")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--frames", type=int, metavar="N", help="at most so many frames (default: all)")
    parser.add_argument(
        "--bundle", type=Path, metavar="DIR", help="another network (default: the shipped one)"
    )
    parser.add_argument("--out", type=Path, default=OUT, metavar="FOLDER", help="default %(default)s")
    add_quiet_argument(parser)
    parser.add_argument(
        "--flight",
        nargs=argparse.REMAINDER,
        help="fly a simulated vehicle instead (needs the checkout); its options follow, --help lists them",
    )


def run(args: argparse.Namespace) -> int:
    if args.flight is not None:
        if args.quiet or args.out != OUT or args.frames or args.bundle:
            raise InputError("give the options of the flight after --flight; --flight --help lists them")
        return _fly(args.flight)
    if args.frames is not None and args.frames < 1:
        raise InputError(f"--frames is {args.frames}; give 1 or more")
    video = CLIP / "video.mp4"
    source = open_video(video)
    truth = [Box(*row) if np.isfinite(row).all() else None for row in read_own(CLIP).boxes]
    box = truth[0]
    assert box is not None  # the clip begins with its target
    bundle = open_bundle(args.bundle)
    check_outputs([Output("--out", args.out, "folder")])
    args.out.mkdir(parents=True, exist_ok=True)
    check_outputs([Output("--out", args.out / name) for name in RESULTS])
    lacking = [name for name in ("rclpy", "efftam_ros.msg") if importlib.util.find_spec(name) is None]
    if lacking:
        print(f"the tracker runs in this process: {lacking[0]} is not in this environment", file=sys.stderr)
    else:
        print("the images go to the node efftam_tracker over the middleware", file=sys.stderr)
    shown: deque[Pixels] = deque()

    def images() -> Iterator[Pixels]:
        for frame in islice(source.frames(), args.frames):
            shown.append(frame.bgr.copy())
            yield frame.bgr

    answers = (_offline if lacking else _through_node)(images(), source.fps, box, args)
    tracks, delays_s = [], []
    total = min(source.count or 0, args.frames or sys.maxsize) or None
    with (
        closing(answers),
        VideoWriter(args.out / "overlay.mp4", source.width, source.height, source.fps) as writer,
        progress_bar(total, "tracking", quiet=args.quiet) as bar,
    ):
        for track, mask, delay_s in answers:
            image = shown.popleft()
            draw_overlay(image, track, mask)
            writer.write(image, track.stamp_ns)
            tracks.append(track)
            delays_s.append(delay_s)
            bar.update()
    report = {
        # From the JSON's own folder, so that both can be moved together.
        "video": os.path.relpath(video, args.out),
        "fps": source.fps,
        "width": source.width,
        "height": source.height,
        "bundle": bundle.spec.name,
        "backend": "onnxruntime-cpu",
        "frames": [frame_record(i, {0: track}) for i, track in enumerate(tracks)],
    }
    write_text(args.out / "track.json", json.dumps(report) + "\n")
    what = "whole frame" if lacking else "image sent to bbox received"
    median_ms = 1e3 * np.median(delays_s)
    summary = f"{len(tracks)} frames; {what} {median_ms:.1f} ms median; {_states(tracks, truth)}"
    write_text(args.out / "summary.txt", summary + "\n")
    print(summary)
    print("wrote " + ", ".join(str(args.out / name) for name in RESULTS[:3]))
    return 0


def _states(tracks: list[Track], truth: list[Box | None]) -> str:
    """States, and the overlap with the truth."""
    counted = sorted(Counter(track.state for track in tracks).items())
    line = "states: " + ", ".join(f"{state.name} {count}" for state, count in counted)
    known = list(zip(tracks, truth, strict=False))
    overlaps = [iou(t.box, box) if t.box else 0.0 for t, box in known[1:] if box]
    claimed = sum(box is None and t.state is TrackState.TRACKING for t, box in known)
    mean = f"{np.mean(overlaps):.2f}" if overlaps else "unknown"
    return f"{line}; mean overlap with the truth {mean}, {claimed} frames claimed while the target was hidden"


def _offline(images: Iterable[Pixels], fps: float, box: Box, args: argparse.Namespace) -> Answers:
    pipeline = open_pipeline(args.bundle)
    try:
        tracker = open_tracker(pipeline)
        for index, bgr in enumerate(images):
            frame = Frame(Image.from_array(bgr), NS + round(index * NS / fps))
            began_s = time.perf_counter()
            track = tracker.step(frame, None if index else Prompt(box=box))
            yield track, tracker.mask(), time.perf_counter() - began_s
    finally:
        pipeline.close()


def _through_node(images: Iterable[Pixels], fps: float, box: Box, args: argparse.Namespace) -> Answers:
    log = args.out / "node.log"
    # The processes of a demo hear one another, and nobody else.
    os.environ.update(ros_environment())
    player = importlib.import_module(PLAYER)
    given = [] if args.bundle is None else ["-p", f"bundle:={json.dumps(str(args.bundle.resolve()))}"]
    with _running(node_command("tracker", "tracker.yaml", given), log):
        try:
            for answer in player.play(images, fps, box):
                yield answer.track, answer.mask, answer.delay_s
        except (TimeoutError, RuntimeError) as problem:
            raise InputError(f"{problem}; the node's output is in {log}") from None


def ros_environment() -> dict[str, str]:
    """Environment variables of processes that hear one another and nobody else on the network."""
    profile = package_file("config/fastdds_images.xml")
    profiles = ("FASTRTPS_DEFAULT_PROFILES_FILE", "FASTDDS_DEFAULT_PROFILES_FILE")
    defaults = {
        "ROS_DOMAIN_ID": str(random.SystemRandom().randrange(1, 100)),
        "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST",
        **({} if profile is None else dict.fromkeys(profiles, str(profile))),
    }
    return defaults | dict(os.environ)


def node_command(name: str, file: str, arguments: Iterable[str] = ()) -> list[str]:
    """Command line of the node efftam_NAME; ``file``: its parameters in
    ``config``; ``arguments`` of ROS follow."""
    code = f"import sys; from efftam_ros.ros.main import main; sys.exit(main('efftam_{name}'))"
    shipped = package_file(f"config/{file}")
    files = ["--params-file", str(shipped)] if shipped is not None else []
    return [sys.executable, "-c", code, "--ros-args", *files, *arguments]


@contextmanager
def _running(command: list[str], log: Path) -> Iterator[None]:
    """A node as a child process, ended by SIGINT; its words go to ``log``."""
    with log.open("w") as output:
        # A session of its own: Ctrl-C reaches us alone.
        node = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        yield
    finally:
        if node.poll() is None:
            node.send_signal(signal.SIGINT)
        code = node.wait(timeout=30)
    if code != 0:
        raise InputError(f"the node ended with code {code}; its output is in {log}")


def _fly(options: list[str]) -> int:
    """Fly with the checkout's package ``simulation``, which is not installed."""
    root = Path(__file__).resolve().parents[2]
    if not (root / "simulation" / "flight.py").is_file():
        raise InputError("--flight needs the checkout (git clone), not the installed package; run it there")
    sys.path.insert(0, str(root))
    flight = importlib.import_module("simulation.flight")
    parser = Parser(prog="efftam demo --flight", description=flight.__doc__)
    flight.add_arguments(parser)
    return int(flight.run(parser.parse_args(options)))
