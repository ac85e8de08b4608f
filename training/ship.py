"""Exports a run's averaged weights to the shipped bundle; keeps the existing model card."""

from __future__ import annotations

import json
from pathlib import Path

from efftam_ros.core.errors import InputError
from efftam_ros.export.onnx.bundle import Source, export_bundle
from efftam_ros.export.onnx.networks import load_checkpoint_network
from efftam_ros.runtime.bundle import file_sha256
from training.checkpoints import WEIGHTS

CARD = "README.md"
OPEN_LICENCE = "trained on material under open licences (CC0, CC BY, CC BY-SA, MIT, BSD, GPL); see README.md"
RESEARCH_LICENCE = (
    "research use: trained in part on photographs and footage licensed for research; see README.md"
)


def ship(run: Path, out: Path) -> int:
    """Export the weights of the folder ``run`` to the bundle ``out``, stored as float16; returns its size in
    bytes.

    Raises InputError when the run has no weights, or as `export_bundle`.
    """
    weights, recipe_path = run / WEIGHTS, run / "recipe.json"
    if not weights.is_file() or not recipe_path.is_file():
        raise InputError(f"{run} is not a training run with weights; train first, or name it with --run")
    recipe = json.loads(recipe_path.read_text(encoding="utf-8"))
    card = (out / CARD).read_text(encoding="utf-8") if (out / CARD).is_file() else None
    source = Source(
        checkpoint_sha256=file_sha256(weights),
        licence=OPEN_LICENCE if recipe["open_data_only"] else RESEARCH_LICENCE,
        note=f"Trained with training/ of this package: {recipe['steps']} steps, seed {recipe['seed']}.",
    )
    export_bundle(load_checkpoint_network(weights, recipe["config"]), out, weights="float16", source=source)
    if card is not None:
        (out / CARD).write_text(card, encoding="utf-8")
    return sum(path.stat().st_size for path in out.iterdir())
