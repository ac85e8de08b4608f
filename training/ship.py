"""Exports a run's weights, or their mean with a bundle's, to the shipped bundle; keeps its model card."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from torch import nn

from efftam_ros.core.errors import InputError
from efftam_ros.export.onnx.bundle import Source, export_bundle
from efftam_ros.export.onnx.networks import load_checkpoint_network
from efftam_ros.model.common.from_bundle import load_bundle_network
from efftam_ros.runtime.bundle import file_sha256
from training.checkpoints import WEIGHTS

CARD = "README.md"
OPEN_LICENCE = "trained on material under open licences (CC0, CC BY, CC BY-SA, MIT, BSD, GPL); see README.md"
RESEARCH_LICENCE = (
    "research use: trained in part on photographs and footage licensed for research; see README.md"
)


def ship(run: Path, out: Path, mean_with: Path | None = None) -> int:
    """Export the weights of the folder ``run`` to the bundle ``out``, stored as float16; returns its size in
    bytes.

    ``mean_with``: a bundle of the same network; the mean of both is exported. Of a network and one that was
    trained on from it the mean may be better than either (WiSE-FT, arXiv 2109.01903). It may be ``out``.
    Raises InputError when the run has no weights, the bundle holds another network, or as `export_bundle`.
    """
    weights, recipe_path = run / WEIGHTS, run / "recipe.json"
    if not weights.is_file() or not recipe_path.is_file():
        raise InputError(f"{run} is not a training run with weights; train first, or name it with --run")
    recipe = json.loads(recipe_path.read_text(encoding="utf-8"))
    card = (out / CARD).read_text(encoding="utf-8") if (out / CARD).is_file() else None
    network = load_checkpoint_network(weights, recipe["config"])
    note = f"Trained with training/ of this package: {recipe['steps']} steps, seed {recipe['seed']}"
    if mean_with is not None:
        average(network, mean_with)
        note += "; the mean with the weights it started from"
    source = Source(
        checkpoint_sha256=file_sha256(weights),
        licence=OPEN_LICENCE if recipe["open_data_only"] else RESEARCH_LICENCE,
        note=f"{note}.",
    )
    export_bundle(network, out, weights="float16", source=source)
    if card is not None:
        (out / CARD).write_text(card, encoding="utf-8")
    return sum(path.stat().st_size for path in out.iterdir())


def average(network: nn.Module, bundle: Path) -> None:
    """Replace a network's weights by the mean of them and those of the network in a bundle.

    Raises InputError when that is another network.
    """
    state, other = network.state_dict(), load_bundle_network(bundle).state_dict()
    if {k: v.shape for k, v in state.items()} != {k: v.shape for k, v in other.items()}:
        raise InputError(
            f"{bundle} holds another network than the run; give a bundle of the same configuration"
        )
    with torch.no_grad():
        for name, value in state.items():
            if value.is_floating_point():
                value.copy_((value + other[name]) / 2)
