"""Export an official EfficientTAM checkpoint to a bundle of ONNX graphs.

Every graph is compared with PyTorch on generated inputs before the bundle is written; a difference above 1e-3
is an error. Checkpoints do not contain the name of their configuration, so --config must give it.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from efftam_ros.tools.common.outputs import Output, check_outputs
from efftam_ros.tools.common.terminal import print_table, progress_bar
from efftam_workshop.model.efficienttam.configurations import CONFIGURATIONS

if TYPE_CHECKING:
    from efftam_workshop.agreement.compare import GraphDeviation


NEEDS = ("torch", "onnx", "onnxscript", "tqdm")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "checkpoint", type=Path, metavar="CHECKPOINT", help="PyTorch file {'model': state_dict}"
    )
    parser.add_argument(
        "--config",
        required=True,
        choices=tuple(CONFIGURATIONS),
        metavar="NAME",
        help="configuration, such as efficienttam_ti_512x512; an unknown name lists all",
    )
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="folder of the bundle")
    add_weights_argument(parser)
    parser.add_argument(
        "--licence",
        default="Apache-2.0",
        metavar="TEXT",
        help="licence of the weights, noted in the bundle (default Apache-2.0, the official ones')",
    )
    parser.add_argument(
        "--note", default="", metavar="TEXT", help="remark on the weights, noted in the bundle"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def add_weights_argument(parser: argparse.ArgumentParser) -> None:
    """Add the option --weights, the number format in which weights are stored."""
    text = "storage type of the weights; execution stays float32 (default: float32)"
    parser.add_argument("--weights", choices=("float32", "float16"), default="float32", help=text)


def run(args: argparse.Namespace) -> int:
    check_outputs([Output("--out", args.out, "folder")], [args.checkpoint])
    from efftam_ros.runtime.bundle import file_sha256
    from efftam_workshop.export.onnx.bundle import STEPS, Source, export_bundle
    from efftam_workshop.model.loading import load_checkpoint

    network = load_checkpoint(args.checkpoint, args.config)
    source = Source(file_sha256(args.checkpoint), args.licence, args.note)
    with progress_bar(STEPS, "export", unit="graph", quiet=args.json) as bar:

        def announce(step: str) -> None:
            bar.set_postfix_str(step, refresh=False)
            bar.update()

        differences = export_bundle(network, args.out, weights=args.weights, source=source, progress=announce)
    _report(args, differences)
    return 0


def _report(args: argparse.Namespace, differences: list[GraphDeviation]) -> None:
    size = sum(path.stat().st_size for path in args.out.iterdir())
    if args.json:
        rows = [vars(difference) for difference in differences]
        print(json.dumps({"bundle": str(args.out), "bytes": size, "parity": rows}, indent=2))
        return
    table = [[d.graph, d.output, f"{d.max_abs:.1e}", f"{d.largest:.3g}", d.case] for d in differences]
    print_table(["graph", "output", "max_abs", "largest value", "worst case"], table)
    print(f"{args.out}: {size / 1e6:.1f} MB, {args.weights} weights")
