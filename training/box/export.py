"""Write a bundle again with the box head that `fit` found; the network and its model card stay unchanged."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

from efftam_ros.core.errors import InputError
from efftam_ros.core.types import BoxHead
from efftam_ros.runtime.bundle import MANIFEST
from efftam_workshop.export.onnx.bundle import Source, export_bundle
from efftam_workshop.model.loading import load_bundle_network
from training.box.fit import OUT
from training.ship import CARD, SHIPPED


def write_head(head: BoxHead, bundle: Path) -> None:
    """Export the network of the folder ``bundle`` there again, with the box head ``head``.

    Raises InputError in the cases of `export_bundle` and `load_bundle_network`.
    """
    network = load_bundle_network(bundle)
    network.spec = replace(network.spec, box_head=head)
    manifest = json.loads((bundle / MANIFEST).read_text(encoding="utf-8"))
    card = (bundle / CARD).read_text(encoding="utf-8") if (bundle / CARD).is_file() else None
    export_bundle(network, bundle, weights="float16", source=Source(**manifest["source"]))
    if card is not None:
        (bundle / CARD).write_text(card, encoding="utf-8")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--shares", type=Path, default=OUT, metavar="FILE", help="default %(default)s")
    parser.add_argument(
        "--bundle", type=Path, default=SHIPPED, metavar="DIR", help="bundle to write; default %(default)s"
    )


def run(args: argparse.Namespace) -> int:
    if not args.shares.is_file():
        raise InputError(f"there is no {args.shares}; run python -m training box fit first")
    level, prompt = json.loads(args.shares.read_text(encoding="utf-8"))["moved"]
    head = BoxHead(round(level, 2), round(prompt, 2))
    write_head(head, args.bundle)
    print(f"{args.bundle}: {head}")
    return 0
