"""Frames lost while the camera pans at 60 deg/s: by the images' own motion, by a gyro's, and without a pan.

A virtual camera looks at a part of each frame of a real clip and turns to and fro about its vertical axis, so
that the target crosses its picture: at 30 Hz by 16 px an image of 640 px width (32 px at 1280). The gyro
tells the virtual camera's rotation alone, not the motion of the drone that filmed the clip.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.attitude_motion import AttitudeMotion
from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box, iou
from efftam_ros.runtime.pipeline import open_pipeline
from efftam_ros.runtime.tracker import open_tracker
from efftam_ros.tools.common.options import add_network_arguments, add_tracker_arguments, tracker_config
from efftam_ros.tools.common.progress import progress_bar
from efftam_ros.tools.common.table import Cell, print_table
from efftam_ros.tools.eval.command import jittered
from training.disappearance import WRONG_IOU, Follower, TrackerFollower
from training.reacquisition.footage import Footage, find_footage

RATE_RAD_S = math.radians(60)
FPS = 30.0
SIZE = (640, 360)  # of the picture, px
FOCAL_PX = 457.0  # 914 px at 1280 px width: 70 degrees wide
MOST_TURN_RAD = math.radians(26)  # to either side: the target stays in the picture
STILL_FRAMES = 12  # before the pan
LEAST_WIDTH = 1000  # of a clip
FRAMES = STILL_FRAMES + round(4 * MOST_TURN_RAD / RATE_RAD_S * FPS)
GYRO_HZ = 200.0
NS = 1_000_000_000
STILL, IMAGES, GYRO = "still", "images", "gyro"
SOURCES = (STILL, IMAGES, GYRO)  # of the camera's motion; with the first the camera does not turn
Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Lost:
    """Frames of a pan that show the whole target, and those of them without a claim on it."""

    shown: int
    lost: int


class PanFilm:
    """One clip seen by the turning camera: iterate for (BGR picture, stamp in ns, the target's box or None
    where not all of it shows)."""

    def __init__(self, clip: Footage, turns: bool = True) -> None:
        """``turns``: False for the same part of the clip without a pan."""
        self._turns = turns
        self._count = min(len(clip), FRAMES)
        self._boxes = [clip.box(i) for i in range(self._count)]
        self._frames = clip.pictures(range(self._count))
        first = self._boxes[0]
        if first is None:
            raise InputError(f"{clip.name} does not show its target on the first frame; leave it out")
        self._aim = (first.cx, first.cy)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[tuple[NDArray[np.uint8], int, Box | None]]:
        for index in range(self._count):
            view = self.view(index / FPS)
            picture = cv2.warpPerspective(
                self._frames[index], view, SIZE, flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE
            )
            yield np.asarray(picture, np.uint8), stamp_ns(index / FPS), self._truth(index, view)

    def view(self, time_s: float) -> Matrix:
        """Homography [3, 3] from the frame's pixels to the picture's."""
        frame_camera = _intrinsics(*self._aim)
        turned = rotation(time_s if self._turns else 0.0)
        view = picture_camera() @ turned @ np.linalg.inv(frame_camera)
        return np.asarray(view / view[2, 2], np.float64)

    def _truth(self, index: int, view: Matrix) -> Box | None:
        box = self._boxes[index]
        if box is None:
            return None
        x0, y0, x1, y1 = box.edges()
        corners = np.array([[[x0, y0], [x1, y0], [x1, y1], [x0, y1]]], np.float64)
        moved = cv2.perspectiveTransform(corners, view)[0]
        left, top = moved.min(axis=0)
        right, bottom = moved.max(axis=0)
        if left < 0 or top < 0 or right > SIZE[0] or bottom > SIZE[1]:
            return None
        return Box.from_edges(float(left), float(top), float(right), float(bottom))


def turn_rad(time_s: float) -> float:
    """The camera's yaw: at rest, then at the full rate to one side, to the other, and back."""
    period = 4 * MOST_TURN_RAD / RATE_RAD_S
    phase = max(0.0, time_s - STILL_FRAMES / FPS) % period / period
    return MOST_TURN_RAD * (4 * phase if phase < 0.25 else 2 - 4 * phase if phase < 0.75 else 4 * phase - 4)


def rotation(time_s: float) -> Matrix:
    """[3, 3]: directions at rest to those of the turned camera's optical frame."""
    c, s = math.cos(turn_rad(time_s)), math.sin(turn_rad(time_s))
    return np.array([[c, 0.0, -s], [0.0, 1.0, 0.0], [s, 0.0, c]])


def picture_camera() -> Matrix:
    """Intrinsics [3, 3] of the picture, px."""
    return _intrinsics(SIZE[0] / 2, SIZE[1] / 2)


def _intrinsics(cx: float, cy: float) -> Matrix:
    return np.array([[FOCAL_PX, 0.0, cx], [0.0, FOCAL_PX, cy], [0.0, 0.0, 1.0]])


def stamp_ns(time_s: float) -> int:
    return NS + round(time_s * NS)


def gyro() -> AttitudeMotion:
    """What a gyro would tell of the pan."""
    motion = AttitudeMotion(picture_camera())
    duration = STILL_FRAMES / FPS + 4 * MOST_TURN_RAD / RATE_RAD_S + 0.5
    for i in range(round(duration * GYRO_HZ)):
        motion.add(stamp_ns(i / GYRO_HZ), rotation(i / GYRO_HZ))
    return motion


def suits(clip: Footage) -> bool:
    """Whether a clip is large enough to turn in, and its target does not disappear by itself."""
    shown = all(clip.box(i) is not None for i in range(min(len(clip), FRAMES)))
    return shown and clip.width >= LEAST_WIDTH


def run_pan(follower: Follower, clip: Footage, turns: bool = True) -> Lost:
    """Follow a clip's target through the pan, or without one."""
    shown = lost = 0
    for index, (picture, stamp, box) in enumerate(PanFilm(clip, turns)):
        first = None
        if index == 0:
            if box is None:
                return Lost(0, 0)
            first = jittered(box, f"{clip.name}:pan", 1)
        claim = follower(picture, stamp, first)
        if index < STILL_FRAMES or box is None:
            continue
        shown += 1
        lost += not claim.present or claim.box is None or iou(claim.box, box) < WRONG_IOU
    return Lost(shown, lost)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = __doc__
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="folders of clips")
    add_network_arguments(parser)
    add_tracker_arguments(parser)
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


def run(args: argparse.Namespace) -> int:
    clips = [clip for clip in find_footage(args.folders) if suits(clip)]
    if not clips:
        raise InputError(
            f"no clip there is {LEAST_WIDTH} px wide and shows its target throughout; give folders of others"
        )
    cv2.setNumThreads(args.threads)
    pipeline = open_pipeline(args.bundle, args.backend, args.threads)
    rows: list[list[Cell]] = []
    total = {source: Lost(0, 0) for source in SOURCES}
    try:
        with progress_bar(len(clips) * len(SOURCES), "pans", unit="pan", quiet=args.quiet) as bar:
            for clip in clips:
                found = {}
                for source in SOURCES:
                    settings = {"camera_motion": "topic" if source == GYRO else "auto"}
                    config = tracker_config(args.settings, policy=args.policy, view=args.view, **settings)
                    attitude = gyro() if source == GYRO else None
                    tracker = open_tracker(pipeline, config, attitude)
                    one = run_pan(TrackerFollower(tracker), clip, source != STILL)
                    found[source] = one
                    before = total[source]
                    total[source] = Lost(before.shown + one.shown, before.lost + one.lost)
                    bar.update()
                rows.append(_row(clip.name, found))
    finally:
        pipeline.close()
    rows.append(_row("all", total))
    print_table(
        ("clip", "frames", "lost without a pan", "lost, images alone", "lost, gyro"),
        rows,
        title=f"pan at {math.degrees(RATE_RAD_S):.0f} deg/s, policy {args.policy or 'default'}",
    )
    return 0


def _row(name: str, found: dict[str, Lost]) -> list[Cell]:
    shares: list[Cell] = [one.lost / one.shown if one.shown else math.nan for one in found.values()]
    return [name, found[IMAGES].shown, *shares]
