"""Evaluate a bundle on held-out clips, rendered scenes with disappearance, and whole sequences."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from efftam_ros.runtime.bundle import default_bundle
from efftam_ros.runtime.opening import open_pipeline, open_tracker
from efftam_ros.tools import cli
from efftam_ros.tools.common.options import (
    add_backend_arguments,
    add_settings_argument,
    pipeline_config,
    tracker_config,
)
from efftam_ros.tools.common.terminal import print_table
from efftam_workshop.model.compact.network import CompactTAM
from efftam_workshop.model.loading import load_bundle_network
from training.clips import ClipSource
from training.disappearance import SEEDS, TrackerFollower, judge
from training.hardness import EASY, Hardness
from training.material import MATERIAL, Material, load_material
from training.mixture import Mixture
from training.validation import validate, validation_clips

KINDS: dict[str, tuple[Mixture, Hardness]] = {
    "all": (Mixture(), EASY),
    "composites": (Mixture(1, 0, 0), EASY),
    "footage": (Mixture(0, 1, 0), EASY),
    "photographs": (Mixture(0, 0, 1), EASY),
    "small": (Mixture(0, 1, 1), Hardness(small=1.0)),
    "shadows": (Mixture(1, 0, 0), Hardness(shadows=1.0)),
    "companions": (Mixture(1, 0, 0), Hardness(companions=1.0)),
}
"""Held-out clips by what they show; the first four as in all earlier figures."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--material", type=Path, default=MATERIAL, help="default %(default)s")
    parser.add_argument("--bundle", type=Path, help="default: the shipped bundle")
    parser.add_argument(
        "--clips", type=int, default=64, metavar="N", help="held-out clips of each kind, 0: none"
    )
    parser.add_argument(
        "--scenes", type=int, default=len(SEEDS), metavar="N", help="default %(default)s; 0: none"
    )
    parser.add_argument(
        "--sequences", type=Path, nargs="+", default=[], metavar="FOLDER", help="as efftam eval takes them"
    )
    parser.add_argument("--repeats", type=int, default=5, help="runs per sequence; default %(default)s")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for the figures as JSON")
    parser.add_argument("--quiet", action="store_true", help="no progress bars")
    add_backend_arguments(parser)
    add_settings_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Print all figures; with ``--out`` also write clips.json, scenes.json and sequences.json."""
    folder = args.bundle or default_bundle().folder
    if args.out is not None:
        args.out.mkdir(parents=True, exist_ok=True)
    if args.clips or args.scenes:
        material = load_material(args.material, "validation")
        if args.clips:
            _keep(args, "clips", _clips(folder, material, args.clips))
        if args.scenes:
            _keep(args, "scenes", _scenes(args, material))
    if args.sequences:
        command = ["eval", *map(str, args.sequences), "--bundle", str(folder), "--repeats", str(args.repeats)]
        command += ["--quiet"] if args.quiet else []
        command += ["--json", str(args.out / "sequences.json")] if args.out is not None else []
        return cli.main(command)
    return 0


def _clips(folder: Path, material: Material, count: int) -> dict[str, Any]:
    network = load_bundle_network(folder)
    assert isinstance(network, CompactTAM)
    scores = {}
    for kind, (mixture, hardness) in KINDS.items():
        batches = validation_clips(ClipSource(material, mixture, network.spec.side, hardness), count)
        scores[kind] = asdict(validate(network, batches))
    rows = [
        [kind, *(f"{s[name]:.3f}" for name in ("overlap", "balanced_accuracy", "ranked_first"))]
        for kind, s in scores.items()
    ]
    print_table(["held-out clips", "mask overlap", "present/absent", "most like it"], rows)
    return scores


def _scenes(args: argparse.Namespace, material: Material) -> dict[str, Any]:
    pipeline = open_pipeline(pipeline_config(args))
    try:
        follower = TrackerFollower(open_tracker(pipeline, tracker_config(args.settings)))
        result = judge(follower, material.sprites, material.backdrops, SEEDS[: args.scenes], args.quiet)
    finally:
        pipeline.close()
    result.print("held-out scenes")
    return result.record()


def _keep(args: argparse.Namespace, name: str, record: dict[str, Any]) -> None:
    if args.out is not None:
        (args.out / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
