"""Renders the clip that `efftam demo` tracks: video.mp4, and boxes.csv with the target's true boxes.

The camera follows a car from the air. Another car that looks the same passes, and a bridge hides the target.
"""

from __future__ import annotations

import argparse
import csv
import math
from pathlib import Path

import cv2
import numpy as np

from efftam_ros.images.source import NS
from efftam_ros.tools.common.terminal import progress_bar
from efftam_ros.tools.common.video import VideoWriter
from simulation.paths import direction
from simulation.world import World, WorldConfig

WIDTH, HEIGHT, FPS = 640, 360, 30.0
FOCAL_PX = 800.0
# Images are rendered larger by this factor and then reduced, which gives smooth edges.
FINER = 2
# The part of the scene that is rendered: from before the other car passes until after the bridge, s.
BEGIN_S, END_S = 7.0, 18.5
# A target with fewer visible pixels than this, at the clip's size, counts as hidden.
VISIBLE_PX = 20
CLIP = Path(__file__).resolve().parents[1] / "efftam_ros" / "demo" / "clip"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, default=CLIP, help="the clip's folder (default %(default)s)")
    parser.add_argument(
        "--renderer", default="p3tinydisplay", help="panda3d's display module (default %(default)s)"
    )


def run(args: argparse.Namespace) -> int:
    args.out.mkdir(parents=True, exist_ok=True)
    world = World(WorldConfig(FINER * WIDTH, FINER * HEIGHT, FINER * FOCAL_PX, args.renderer))
    rows: list[list[object]] = [["frame", "x", "y", "w", "h"]]
    count = round((END_S - BEGIN_S) * FPS)
    with (
        VideoWriter(args.out / "video.mp4", WIDTH, HEIGHT, FPS, crf=24) as writer,
        progress_bar(count, "rendering") as bar,
    ):
        for index in range(count):
            time_s = BEGIN_S + index / FPS
            shot = world.shoot(time_s, *_pointing(world.config, time_s))
            image = cv2.resize(shot.image, (WIDTH, HEIGHT), interpolation=cv2.INTER_AREA)
            writer.write(np.asarray(image, np.uint8), round(index * NS / FPS))
            seen = shot.box is not None and shot.visible_px >= FINER**2 * VISIBLE_PX
            box = [v / FINER for v in shot.box.xywh()] if shot.box is not None and seen else [math.nan] * 4
            rows.append([index, *(f"{value:.1f}" for value in box)])
            bar.update()
    world.close()
    with (args.out / "boxes.csv").open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)
    print(f"{args.out}: {count} images, {(args.out / 'video.mp4').stat().st_size / 1e6:.2f} MB")
    return 0


def _pointing(config: WorldConfig, time_s: float) -> tuple[float, float]:
    """Return yaw and pitch, rad, of a camera that a pilot steers by hand: the target stays near the
    middle."""
    yaw, pitch = direction(config.drone.at(time_s), config.target.at(time_s))
    reach = 0.12 * WIDTH / FOCAL_PX
    wander = [reach * math.sin(2 * math.pi * rate * time_s) for rate in (0.13, 0.21, 0.71)]
    return yaw + wander[0] + 0.1 * wander[2], pitch + 0.5 * wander[1]
