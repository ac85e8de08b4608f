"""Write a run's weights, or their mean with other weights, as a bundle; the bundle's model card stays."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

import torch

from efftam_ros.core.errors import InputError
from efftam_ros.runtime.bundle import MANIFEST, Bundle, file_sha256
from efftam_workshop.export.onnx.bundle import Source, export_bundle
from efftam_workshop.model.common.network import Network
from efftam_workshop.model.compact.network import SPEC
from efftam_workshop.model.loading import load_bundle_network, load_checkpoint
from training.checkpoints import WEIGHTS

RUN, SHIPPED = Path("runs/compact_192"), Path("efftam_ros/models/compact_192")
CARD = "README.md"
OPEN_LICENCE = "trained on material under open licences (CC0, CC BY, CC BY-SA, MIT, BSD, GPL); see README.md"
RESEARCH_LICENCE = (
    "research use: trained in part on photographs and footage licensed for research; see README.md"
)


def ship(run: Path, out: Path, mean_with: Path | None = None, share: float = 0.5) -> int:
    """Export the weights of the folder ``run``, as float16, to the bundle ``out``; return its size in bytes.

    If ``out`` is a bundle, its box head and its model card stay.

    ``mean_with``: a bundle (which may be ``out``) or another run's weights.pt, of the same network. The
    exported weights are then the mean, in which these other weights count ``share`` (0..1). The mean of a
    network and one that was trained further from it can be better than both (WiSE-FT, arXiv 2109.01903). So
    can the mean of two runs from the same start (model soups, arXiv 2203.05482).

    Raises InputError if the run has no weights, the other weights belong to another network, the share is
    outside 0..1, or `export_bundle` raises it.
    """
    if not 0 <= share <= 1:
        raise InputError(f"the share is {share}; give a number from 0 to 1")
    weights, recipe_path = run / WEIGHTS, run / "recipe.json"
    if not weights.is_file() or not recipe_path.is_file():
        raise InputError(f"{run} is not a training run with weights; train first, or name it with --run")
    recipe = json.loads(recipe_path.read_text(encoding="utf-8"))
    card = (out / CARD).read_text(encoding="utf-8") if (out / CARD).is_file() else None
    network = load_checkpoint(weights, SPEC.name)
    hours = recipe["hours"]
    length = f"{recipe['steps']} steps" if hours is None else f"{60 * hours:.0f} minutes"
    note = f"Trained with training/ of this package: {length}, seed {recipe['seed']}"
    if mean_with is not None:
        if recipe["open_data_only"]:
            require_open(mean_with)
        average(network, mean_with, share)
        note += f"; the mean with other weights, which count {share:g}"
    if (out / MANIFEST).is_file():
        network.spec = replace(network.spec, box_head=Bundle.load(out).spec.box_head)
    source = Source(
        checkpoint_sha256=file_sha256(weights),
        licence=OPEN_LICENCE if recipe["open_data_only"] else RESEARCH_LICENCE,
        note=f"{note}.",
    )
    export_bundle(network, out, weights="float16", source=source)
    if card is not None:
        (out / CARD).write_text(card, encoding="utf-8")
    return sum(path.stat().st_size for path in out.iterdir())


def require_open(start: Path) -> None:
    """Raise InputError unless weights are known to come only from data under open licences.

    ``start``: a bundle's folder or a run's weights.pt.
    """
    if start.is_dir():
        is_open = Bundle.load(start).source.get("licence") == OPEN_LICENCE
    elif not start.is_file():
        raise InputError(f"there are no weights {start}; name a bundle or a run's {WEIGHTS}")
    else:
        recipe = start.parent / "recipe.json"
        is_open = recipe.is_file() and json.loads(recipe.read_text(encoding="utf-8"))["open_data_only"]
    if not is_open:
        raise InputError(
            f"{start} is not marked as trained on open data alone; start with weights of"
            " --open-data-only, or leave that out"
        )


def average(network: Network, other: Path, share: float = 0.5) -> None:
    """Replace a network's weights by their mean with those of ``other``, which count ``share``.

    ``other``: a bundle or a run's weights.pt. Raises InputError if it contains another network.
    """
    loaded = load_checkpoint(other, network.spec.name) if other.is_file() else load_bundle_network(other)
    state, added = network.state_dict(), loaded.state_dict()
    if {k: v.shape for k, v in state.items()} != {k: v.shape for k, v in added.items()}:
        raise InputError(
            f"{other} holds another network than the run; give a bundle of the same configuration"
        )
    with torch.no_grad():
        for name, value in state.items():
            if value.is_floating_point():
                value.lerp_(added[name], share)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--run", dest="folder", type=Path, default=RUN, help="the run's folder; default %(default)s"
    )
    parser.add_argument("--out", type=Path, default=SHIPPED, help="the bundle's folder; default %(default)s")
    parser.add_argument(
        "--mean-with",
        type=Path,
        metavar="WEIGHTS",
        help="export the mean of the run's weights and others: a bundle, or the weights.pt of another run",
    )
    parser.add_argument(
        "--share",
        type=float,
        default=0.5,
        metavar="S",
        help="share of the other weights in the mean, 0 to 1; default %(default)s",
    )


def run(args: argparse.Namespace) -> int:
    size = ship(args.folder, args.out, args.mean_with, args.share)
    print(f"{args.out}: {size / 1e6:.1f} MB; evaluate it with python -m training evaluate")
    return 0
