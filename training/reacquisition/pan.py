"""Frames lost while the camera pans at 60 deg/s, and without a pan.

A virtual camera looks at half of each frame's width and turns to and fro about its vertical axis, as far as
the frame goes: at 30 Hz by 16 px an image of 640 px width (32 px at 1280). What is lost without a
pan, too, is not lost by the pan: the last column leaves it out.
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

from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box, iou
from efftam_ros.runtime.opening import open_pipeline, open_tracker
from efftam_ros.tools.common.options import (
    add_network_arguments,
    add_tracker_arguments,
    pipeline_config,
    tracker_config,
)
from efftam_ros.tools.common.terminal import Cell, print_table, progress_bar
from efftam_workshop.eval.command import jittered
from training.disappearance import WRONG_IOU, Follower, TrackerFollower
from training.reacquisition.footage import Footage, find_footage

RATE_RAD_S = math.radians(60)
FPS = 30.0
SIZE = (640, 360)  # of the picture, px
FOCAL_PX = 457.0  # 914 px at 1280 px width: 70 degrees wide
SHARE = 0.5  # width of the picture, in frame widths
HALF_WIDE_RAD = math.atan(SIZE[0] / 2 / FOCAL_PX)
MOST_TURN_RAD, LEAST_TURN_RAD = math.radians(26), math.radians(10)  # to either side
# Between the target's first place and the picture's edge: sideways at the end of a turn, and upwards in
# halves of the picture's height.
EDGE_RAD, EDGE = math.radians(2), 0.1
STILL_FRAMES = 12  # before the pan
FRAMES = STILL_FRAMES + 52
LEAST_FRAMES = 30  # of a clip
TARGET_PX = (8.0, 120.0)  # size of the target in the picture
NS = 1_000_000_000
STILL, IMAGES = "still", "images"
SOURCES = (STILL, IMAGES)  # of the camera's motion; with the first the camera does not turn
Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Lost:
    """Frames of pans that show the whole target, and those of them without a claim on it, each by the name of
    its pan and its index."""

    shown: frozenset[tuple[str, int]]
    lost: frozenset[tuple[str, int]]

    @property
    def share(self) -> float:
        return len(self.lost) / len(self.shown) if self.shown else math.nan

    def beside(self, other: Lost) -> float:
        """Share of the frames that are lost here and not there."""
        return len(self.lost - other.lost) / len(self.shown) if self.shown else math.nan

    def __or__(self, other: Lost) -> Lost:
        return Lost(self.shown | other.shown, self.lost | other.lost)


NOTHING = Lost(frozenset(), frozenset())


@dataclass(frozen=True)
class Swing:
    """Where in a frame the camera looks at rest, px, and how far it turns to either side."""

    x: float
    y: float
    turn_rad: float


def swing(clip: Footage, target: Box) -> Swing | None:
    """The widest pan for which the picture stays inside the clip's frame and the target, at rest, inside the
    picture; None when there is none of `LEAST_TURN_RAD`."""
    focal = _frame_focal(clip)
    half_height = clip.width * SHARE * SIZE[1] / SIZE[0] / 2
    for degrees in range(round(math.degrees(MOST_TURN_RAD)), round(math.degrees(LEAST_TURN_RAD)) - 1, -1):
        turn = math.radians(degrees)
        reach_x = focal * math.tan(turn + HALF_WIDE_RAD)
        reach_y = half_height / (math.cos(turn) - math.tan(HALF_WIDE_RAD) * math.sin(turn))
        if 2 * reach_x > clip.width or 2 * reach_y > clip.height:
            continue
        x = min(max(target.cx, reach_x), clip.width - reach_x)
        y = min(max(target.cy, reach_y), clip.height - reach_y)
        aside = math.atan((abs(target.cx - x) + target.width / 2) / focal)
        above = abs(target.cy - y) + target.height / 2
        if aside + turn <= HALF_WIDE_RAD - EDGE_RAD and above <= half_height * (1 - EDGE):
            return Swing(x, y, turn)
    return None


class PanFilm:
    """One clip seen by the turning camera: iterate for (BGR picture, stamp in ns, the target's box or None
    where not all of it shows)."""

    def __init__(self, clip: Footage, turns: bool = True) -> None:
        """``turns``: False for the same part of the clip without a pan."""
        self._turns = turns
        self._count = min(len(clip), FRAMES)
        self._boxes = [clip.box(i) for i in range(self._count)]
        first = self._boxes[0]
        found = None if first is None else swing(clip, first)
        if found is None:
            raise InputError(f"{clip.name} has no room to turn around its target's first place; leave it out")
        self.swing = found
        self._frames = clip.pictures(range(self._count))
        self._frame_camera = _intrinsics(_frame_focal(clip), found.x, found.y)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[tuple[NDArray[np.uint8], int, Box | None]]:
        for index in range(self._count):
            view = self.view(index / FPS)
            picture = cv2.warpPerspective(self._frames[index], view, SIZE, flags=cv2.INTER_LINEAR)
            yield np.asarray(picture, np.uint8), stamp_ns(index / FPS), self._truth(index, view)

    def view(self, time_s: float) -> Matrix:
        """Homography [3, 3] from the frame's pixels to the picture's."""
        turned = rotation(time_s, self.swing.turn_rad) if self._turns else np.eye(3)
        view = picture_camera() @ turned @ np.linalg.inv(self._frame_camera)
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


def turn_rad(time_s: float, most_rad: float) -> float:
    """The camera's yaw: at rest, then at the full rate to one side, to the other, and so on."""
    period = 4 * most_rad / RATE_RAD_S
    phase = max(0.0, time_s - STILL_FRAMES / FPS) % period / period
    return most_rad * (4 * phase if phase < 0.25 else 2 - 4 * phase if phase < 0.75 else 4 * phase - 4)


def rotation(time_s: float, most_rad: float) -> Matrix:
    """[3, 3]: directions at rest to those of the turned camera's optical frame."""
    yaw = turn_rad(time_s, most_rad)
    c, s = math.cos(yaw), math.sin(yaw)
    return np.array([[c, 0.0, -s], [0.0, 1.0, 0.0], [s, 0.0, c]])


def picture_camera() -> Matrix:
    """Intrinsics [3, 3] of the picture, px."""
    return _intrinsics(FOCAL_PX, SIZE[0] / 2, SIZE[1] / 2)


def _frame_focal(clip: Footage) -> float:
    """Focal length of the camera in px of the clip's frames."""
    return FOCAL_PX * SHARE * clip.width / SIZE[0]


def _intrinsics(focal: float, cx: float, cy: float) -> Matrix:
    return np.array([[focal, 0.0, cx], [0.0, focal, cy], [0.0, 0.0, 1.0]])


def stamp_ns(time_s: float) -> int:
    return NS + round(time_s * NS)


def suits(clip: Footage) -> bool:
    """Whether a clip has room to turn in, and its target neither disappears by itself nor is too small or too
    large."""
    boxes = [clip.box(i) for i in range(min(len(clip), FRAMES))]
    first = boxes[0]
    if first is None or any(box is None for box in boxes) or len(boxes) < LEAST_FRAMES:
        return False
    size_px = first.size * FOCAL_PX / _frame_focal(clip)
    return TARGET_PX[0] <= size_px <= TARGET_PX[1] and swing(clip, first) is not None


def run_pan(follower: Follower, film: PanFilm, name: str, run: int = 1) -> Lost:
    """Follow a clip's target through the pan, or without one. ``run``: number of the jitter of its first
    box."""
    shown, lost = set(), set()
    for index, (picture, stamp, box) in enumerate(film):
        first = None
        if index == 0:
            assert box is not None  # `swing` keeps it inside
            first = jittered(box, f"{name}:pan", run)
        claim = follower(picture, stamp, first)
        if index < STILL_FRAMES or box is None:
            continue
        frame = f"{name}:{run}", index
        shown.add(frame)
        if not claim.present or claim.box is None or iou(claim.box, box) < WRONG_IOU:
            lost.add(frame)
    return Lost(frozenset(shown), frozenset(lost))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = __doc__
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="folders of clips")
    add_network_arguments(parser)
    add_tracker_arguments(parser)
    parser.add_argument(
        "--repeats",
        type=int,
        default=1,
        metavar="N",
        help="runs of each pan, with other first boxes; default 1",
    )
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


def run(args: argparse.Namespace) -> int:
    clips = [clip for clip in find_footage(args.folders) if suits(clip)]
    if not clips:
        raise InputError(
            "no clip there has room for a pan around its target, shows it throughout and at a size of "
            f"{TARGET_PX[0]:g} to {TARGET_PX[1]:g} px in the picture; give folders of others"
        )
    cv2.setNumThreads(args.threads)
    pipeline = open_pipeline(pipeline_config(args))
    rows: list[list[Cell]] = []
    total = dict.fromkeys(SOURCES, NOTHING)
    try:
        with progress_bar(
            len(clips) * len(SOURCES) * args.repeats, "pans", unit="pan", quiet=args.quiet
        ) as bar:
            for clip in clips:
                found = dict.fromkeys(SOURCES, NOTHING)
                for source in SOURCES:
                    config = tracker_config(args.settings, policy=args.policy, view=args.view)
                    film = PanFilm(clip, source != STILL)
                    for number in range(1, args.repeats + 1):
                        follower = TrackerFollower(open_tracker(pipeline, config))
                        found[source] |= run_pan(follower, film, clip.name, number)
                        bar.update()
                    total[source] |= found[source]
                rows.append(_row(clip.name, found))
    finally:
        pipeline.close()
    rows.append(_row("all", total))
    print_table(
        ("clip", "frames", "without", "images", "by the pan"),
        rows,
        title=f"lost in a pan at {math.degrees(RATE_RAD_S):.0f} deg/s, policy {args.policy or 'default'}",
    )
    return 0


def _row(name: str, found: dict[str, Lost]) -> list[Cell]:
    still = found[STILL]
    shares: list[Cell] = [one.share for one in found.values()]
    return [name, len(found[IMAGES].shown), *shares, found[IMAGES].beside(still)]
