"""Compare a back end with the CPU: every output of every graph, and a chained clip.

Exit code 1 when a deviation exceeds its limit. The node runs a short form when it is configured (parameter
verify).
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import Any

from efftam_ros.runtime.backends import ENGINES, GPU_BACKENDS, backend_of
from efftam_ros.runtime.bundle import Bundle
from efftam_ros.runtime.opening import open_pipeline
from efftam_ros.runtime.verify.verify import Agreement
from efftam_ros.tools.common.options import (
    add_backend_argument,
    add_bundle_argument,
    add_precision_argument,
    open_bundle,
    pipeline_config,
)
from efftam_ros.tools.common.terminal import print_table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_bundle_argument(parser)
    add_backend_argument(parser, GPU_BACKENDS, ENGINES.name)
    add_precision_argument(parser)
    parser.add_argument("--quick", action="store_true", help="graphs only, without the clip")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")


def run(args: argparse.Namespace) -> int:
    from efftam_ros.runtime.device.pipeline import DevicePipeline
    from efftam_ros.runtime.verify.verify import Reference, limits_of

    bundle = open_bundle(args.bundle)
    precision = backend_of(args.backend).resolved(args.precision)
    pipeline = open_pipeline(pipeline_config(args, verify="off"), bundle)
    assert isinstance(pipeline, DevicePipeline)
    try:
        with pipeline.runners() as runners:
            agreement = Reference(bundle).judge(runners, not args.quick, limits_of(precision))
        launch = dict(pipeline.launch)
    finally:
        pipeline.close()
    if args.json:
        print(json.dumps(record(bundle, args.backend, precision, agreement, launch), indent=1))
    else:
        _print(f"{args.backend}, {precision}", agreement)
    return 1 if agreement.fault else 0


def record(
    bundle: Bundle, backend: str, precision: str, agreement: Agreement, launch: dict[str, str]
) -> dict[str, Any]:
    clip = None
    if agreement.clip is not None:
        clip = {
            "mean": agreement.clip.mean,
            "worst": agreement.clip.worst,
            "frames": len(agreement.clip.overlaps),
        }
    return {
        "bundle": bundle.spec.name,
        "backend": backend,
        "precision": precision,
        "deviations": [asdict(found) for found in agreement.deviations],
        "clip": clip,
        "launch": launch,
        "limits": {
            "deviation": agreement.limits.deviation,
            "mean": agreement.limits.overlap,
            "worst": agreement.limits.worst,
        },
        "fault": agreement.fault,
    }


def _print(title: str, agreement: Agreement) -> None:
    rows = []
    for found in agreement.deviations:
        good = found.relative <= agreement.limits.deviation
        rows.append([found.graph, found.output, f"{found.relative:.1e}", "ok" if good else "WRONG"])
    print_table(["graph", "output", "relative error", ""], rows, title=f"{title}, against the CPU in FP32")
    if agreement.clip is not None:
        clip = agreement.clip
        print(f"mask overlap over {len(clip.overlaps)} frames: mean {clip.mean:.4f}, worst {clip.worst:.4f}")
    print(agreement.fault or "agrees with the CPU")
