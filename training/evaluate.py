"""Evaluate a bundle on held-out clips."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from efftam_ros.runtime.bundle import default_bundle
from efftam_ros.tools.common.terminal import print_table
from efftam_workshop.model.compact.network import CompactTAM
from efftam_workshop.model.loading import load_bundle_network
from training.clips import ClipSource
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
"""Kinds of held-out clips. The first four stay unchanged, so that figures remain comparable."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--material", type=Path, default=MATERIAL, help="default %(default)s")
    parser.add_argument("--bundle", type=Path, help="default: the shipped bundle")
    parser.add_argument(
        "--clips", type=int, default=64, metavar="N", help="clips of each kind; default %(default)s"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to this file, too")


def run(args: argparse.Namespace) -> int:
    """Print the scores of every kind of clip and write them as --json. Returns the exit code 0."""
    folder = args.bundle or default_bundle().folder
    scores = _clips(folder, load_material(args.material, "validation"), args.clips)
    if args.json is not None:
        args.json.write_text(json.dumps(scores, indent=1) + "\n", encoding="utf-8")
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
    print_table(["held-out clips", "mask overlap", "present/absent", "likest cell on it"], rows)
    return scores
