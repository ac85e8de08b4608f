"""Starts the tracker node, plays a video to it over the middleware, and writes its results.

Run by scripts/demo in the prepared environment.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import chain, islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box, iou
from efftam_ros.core.types import TrackState
from efftam_ros.interop.video import open_video
from efftam_ros.runtime.image.overlay import draw_overlay
from efftam_ros.tools.common.options import open_bundle
from efftam_ros.tools.common.outputs import Output, check_outputs, write_text
from efftam_ros.tools.common.progress import progress_bar
from efftam_ros.tools.common.prompts import read_box
from efftam_ros.tools.common.video import VideoWriter
from efftam_ros.tools.scene.render import render_scene, write_scene
from efftam_ros.tools.track import track_record

ROOT = Path(__file__).resolve().parent.parent
SCENE_FPS = 30.0
RESULTS = ("overlay.mp4", "track.json", "summary.txt", "node.log")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./scripts/demo",
        description="Play a video to the tracker node; writes overlay.mp4, track.json, summary.txt.",
    )
    parser.add_argument(
        "video", nargs="?", help="video or folder of images (default: a drone scene, rendered)"
    )
    parser.add_argument("--box", help="the target in the first frame: X,Y,W,H in px (needed with a video)")
    parser.add_argument("--frames", type=int, default=300, help="maximum number of frames (default: 300)")
    parser.add_argument("--seed", type=int, default=7, help="of the rendered scene (default: 7)")
    parser.add_argument(
        "--turns-away", action="store_true", help="rendered scene: the camera pans away from the car and back"
    )
    parser.add_argument(
        "--bundle", type=Path, help="folder of another network bundle (default: the one that ships)"
    )
    parser.add_argument("--out", type=Path, default=ROOT / "demo_output", help="default: demo_output")
    args = parser.parse_args()
    if (args.video is None) != (args.box is None):
        parser.error(
            "a video needs --box X,Y,W,H, the target in its first frame; without a video leave --box out"
        )
    if args.frames < 1:
        parser.error(f"--frames is {args.frames}; give 1 or more")
    return args


def prepare_folder(args: argparse.Namespace) -> None:
    """Make the folder of the results.

    Raises InputError when it or a result can't be written, or would replace the video.
    """
    check_outputs([Output("--out", args.out, "folder")], [args.video])
    args.out.mkdir(parents=True, exist_ok=True)
    check_outputs([Output("--out", args.out / name) for name in RESULTS], [args.video])


def prepare_video(args: argparse.Namespace) -> tuple[Path, list[Box | None]]:
    """The video to play, and the true boxes where they are known (empty for a user's video)."""
    if args.video is not None:
        return Path(args.video), []
    print(f"rendering a drone scene (seed {args.seed}, {args.frames} frames)", file=sys.stderr)
    truth: list[Box | None] = []

    def rendered():
        with progress_bar(args.frames, "rendering") as bar:
            for image in render_scene(args.seed, args.frames, turns_away=args.turns_away):
                truth.append(image.box)
                bar.update()
                yield image

    write_scene(args.out / "scene", rendered(), SCENE_FPS)
    return args.out / "scene" / "video.mp4", truth


@contextmanager
def running_node(bundle: Path | None, log: Path) -> Iterator[None]:
    """The tracker node as a child process, with shipped parameters and Fast DDS profile; ended by SIGINT."""
    profile = str(ROOT / "config" / "fastdds_images.xml")
    # Isolates demos on one machine from each other.
    os.environ.setdefault("ROS_DOMAIN_ID", str(random.SystemRandom().randrange(1, 100)))
    os.environ.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    os.environ["FASTRTPS_DEFAULT_PROFILES_FILE"] = os.environ["FASTDDS_DEFAULT_PROFILES_FILE"] = profile
    if shutil.which("ros2"):
        command = ["ros2", "launch", "efftam_ros", "tracker.launch.py", "image:=image"]
        command += [f"bundle:={bundle}"] if bundle else []
    else:
        parameters = ROOT / "config" / "tracker.yaml"
        command = [str(ROOT / "scripts" / "efftam_tracker"), "--ros-args", "--params-file", str(parameters)]
        command += ["-p", f"bundle:={bundle}"] if bundle else []
    with log.open("w") as output:
        node = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            yield
        finally:
            if node.poll() is None:
                os.killpg(node.pid, signal.SIGINT)
            code = node.wait(timeout=30)
    if code != 0:
        raise RuntimeError(f"the node ended with code {code}; its output is in {log}")


def play(args: argparse.Namespace, video: Path, truth: list[Box | None], bundle: str) -> str:
    """Play the video into the running node and write the results; returns the summary.

    ``bundle``: the name of the network's bundle.
    """
    import rclpy
    from rclpy.executors import SingleThreadedExecutor

    from efftam_ros.ros.playback.frame_player import Player

    source = open_video(video)
    images = (image.bgr for image in source.frames())
    first = next(images)
    box = read_box(args.box, source.width, source.height) if args.box else truth[0]
    shown: deque[NDArray[np.uint8]] = deque()

    def frames() -> Iterator[NDArray[np.uint8]]:
        for image in islice(chain([first], images), args.frames):
            shown.append(image.copy())
            yield image

    rclpy.init()
    node = rclpy.create_node("efftam_demo")
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    player = Player(node, executor)
    answers = []
    try:
        with ExitStack() as stack:
            writer = stack.enter_context(
                VideoWriter(args.out / "overlay.mp4", source.width, source.height, source.fps)
            )
            total = min(args.frames, source.count or args.frames)
            bar = stack.enter_context(progress_bar(total, "tracking"))
            for answer in player.play(frames(), source.fps, box):
                image = shown.popleft()
                draw_overlay(image, answer.track, answer.mask)
                writer.write(image, answer.track.stamp_ns)
                answers.append(answer)
                bar.update()
    finally:
        executor.shutdown()
        node.destroy_node()
        rclpy.try_shutdown()
    tracks = [answer.track for answer in answers]
    report = {
        # From the JSON's own folder, so that both can be moved together.
        "video": os.path.relpath(video, args.out),
        "fps": source.fps,
        "width": source.width,
        "height": source.height,
        "bundle": bundle,
        "backend": "onnxruntime-cpu",
        "frames": [track_record(i, track) for i, track in enumerate(tracks)],
    }
    write_text(args.out / "track.json", json.dumps(report) + "\n")
    return summarise(tracks, [a.delay_s for a in answers], player.stage_ms, truth)


def summarise(tracks, delays, stage_ms, truth) -> str:
    """Frames, times, states, and the overlap with the truth where it is known."""
    stages = ", ".join(f"{name} {ms:.1f}" for name, ms in stage_ms.items())
    states = ", ".join(f"{s.name} {n}" for s, n in sorted(Counter(t.state for t in tracks).items()))
    line = (
        f"{len(tracks)} frames; image sent to bbox received {1e3 * np.median(delays):.1f} ms median; "
        f"mean ms per stage: {stages}; states: {states}"
    )
    if truth:
        known = list(zip(tracks, truth, strict=False))
        overlaps = [iou(t.box, box) if t.box else 0.0 for t, box in known[1:] if box]
        claimed = [t for t, box in known if box is None and t.state is TrackState.TRACKING]
        line += (
            f"; mean overlap with the truth {np.mean(overlaps):.2f}, "
            f"{len(claimed)} frames claimed while the target was hidden"
        )
    return line


def main() -> int:
    args = parse_arguments()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ended as by Ctrl-C: the node too
    try:
        prepare_folder(args)
        # Before the node is started, which would say what is wrong with the bundle in its log only.
        bundle = open_bundle(args.bundle).spec.name
        video, truth = prepare_video(args)
        with running_node(args.bundle, args.out / "node.log"):
            summary = play(args, video, truth, bundle)
    except TimeoutError as problem:
        print(f"demo: {problem}; the node's output is in {args.out / 'node.log'}", file=sys.stderr)
        return 2
    except (InputError, RuntimeError) as problem:
        print(f"demo: {problem}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    write_text(args.out / "summary.txt", summary + "\n")
    print(summary)
    shown = Path(os.path.relpath(args.out))
    print(f"wrote {shown / 'overlay.mp4'}, {shown / 'track.json'}, {shown / 'summary.txt'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
