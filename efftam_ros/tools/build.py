"""Build a bundle's TensorRT engines for this GPU and store those that agree with the CPU.

Every engine is compared with the FP32 graph on the CPU, output by output, and all together over a chained
clip. An engine that deviates is not stored: the report names the module and the first wrong block, and the
next safer precision form is built. Engines fit one GPU, one TensorRT version and one bundle; build again
after a change of any of them.
"""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from efftam_ros.core.errors import InputError
from efftam_ros.tools.common.options import add_bundle_argument, open_bundle
from efftam_ros.tools.common.table import print_table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_bundle_argument(parser)
    parser.add_argument(
        "--precision",
        choices=("fp16", "fp32"),
        default="fp16",
        help="fp16 keeps sensitive operators in FP32 (default: fp16)",
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder of the engines (default: the node's)")
    parser.add_argument("--force", action="store_true", help="build even where stored engines fit")
    form = "first attention form to try for a module: fused_fp32 or unfused_fp32 (implies --force)"
    parser.add_argument("--attention", action="append", default=[], metavar="MODULE=FORM", help=form)
    parser.add_argument("--json", action="store_true", help="print the reports as JSON")
    parser.add_argument("--quiet", action="store_true", help="no progress")


def run(args: argparse.Namespace) -> int:
    try:
        from efftam_ros.export.tensorrt.engines import EngineBuilder
    except ModuleNotFoundError as error:
        raise InputError(
            f"build needs {error.name}, which is not installed; pip install {error.name}"
        ) from None
    from efftam_ros.runtime.device.opening import device_session, engine_folder
    from efftam_ros.runtime.tensorrt.engine_set import EngineSet
    from efftam_ros.runtime.tensorrt.library import load_library
    from efftam_ros.tools.common.progress import BuildProgress

    attention = dict(_module_and_form(text) for text in args.attention)
    bundle = open_bundle(args.bundle)
    folder = engine_folder() if args.out is None else args.out
    library = load_library()
    progress = BuildProgress(args.quiet or args.json)
    with device_session() as (cuda, facts, stream), closing(progress):
        engines = EngineSet(bundle, args.precision, library, facts, folder)
        builder = EngineBuilder(engines, cuda, stream, progress.say, progress.step, attention)
        reports = builder.build(force=args.force or bool(attention))
    if args.json:
        print(json.dumps({"bundle": bundle.spec.name, "folder": str(folder), "engines": reports}, indent=1))
    else:
        print_reports(reports)
    return 0


def _module_and_form(text: str) -> tuple[str, str]:
    module, equals, form = text.partition("=")
    if not equals:
        raise InputError(f"--attention {text!r} is not MODULE=FORM")
    return module, form


def print_reports(reports: dict[str, dict[str, Any]]) -> None:
    rows = [
        [
            name,
            report["form"],
            report["layers"],
            len(report["fused"]),
            " ".join(report["precisions"]),
            f"{max(report['deviations'].values()):.1e}",
            f"{report['seconds']:.1f}",
        ]
        for name, report in reports.items()
    ]
    print_table(["module", "form", "layers", "fused attention", "tensors", "worst error", "build, s"], rows)
    clip = next(iter(reports.values())).get("clip")
    if clip:
        overlap = f"{clip['mean']:.4f}, worst {clip['worst']:.4f}"
        print(f"mask overlap with the CPU over the chained clip: {overlap}")
    for name, report in reports.items():
        for reason in report["rejected"]:
            print(f"{name}: rejected {reason}", file=sys.stderr)
