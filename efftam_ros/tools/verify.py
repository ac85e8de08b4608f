"""Compare a back end with the CPU, frame by frame as in flight, and stage by stage.

The exit code is 1 if a deviation exceeds its limit. The node runs a shorter comparison when it is configured
(see its parameter verify).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from contextlib import closing
from dataclasses import asdict

from efftam_ros.runtime.backends import ENGINES, GPU_BACKENDS, backend_of
from efftam_ros.runtime.opening import open_pipeline
from efftam_ros.runtime.verify import Agreement, Deviation
from efftam_ros.tools.common.options import (
    add_backend_argument,
    add_bundle_argument,
    add_precision_argument,
    open_bundle,
    pipeline_config,
)
from efftam_ros.tools.common.terminal import print_table

LANES = (1, 2)
"""The comparison is made with one target and with two, because the pipeline computes them differently: with
one target the next image is encoded ahead; several targets share the features of an image."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_bundle_argument(parser)
    add_backend_argument(parser, GPU_BACKENDS, ENGINES.name)
    add_precision_argument(parser)
    parser.add_argument("--json", action="store_true", help="print the report as JSON")


def run(args: argparse.Namespace) -> int:
    from efftam_ros.runtime.device.pipeline import DevicePipeline
    from efftam_ros.runtime.verify import Reference

    bundle = open_bundle(args.bundle)
    precision = backend_of(args.backend).resolved(args.precision)
    agreements: dict[int, Agreement] = {}
    launch: dict[str, str] = {}
    for lanes in LANES:
        with closing(open_pipeline(pipeline_config(args, lanes, verify="never"), bundle)) as pipeline:
            assert isinstance(pipeline, DevicePipeline)
            agreements[lanes] = Reference(bundle, lanes).judge(pipeline, precision)
            launch = launch or dict(pipeline.launch)
    fault = next((f"{text} (lanes: {lanes})" for lanes, one in agreements.items() if (text := one.fault)), "")
    if args.json:
        report = {
            "bundle": bundle.spec.name,
            "backend": args.backend,
            "precision": precision,
            "launch": launch,
            "lanes": {str(lanes): asdict(one) for lanes, one in agreements.items()},
            "worst": [asdict(one) for one in worst_by_stage(agreements.values())],
            "fault": fault,
        }
        print(json.dumps(report, indent=1))
    else:
        rows = [
            [
                one.stage,
                one.output,
                f"{one.value:.1e}",
                f"{one.limit}",
                "WRONG" if one.is_wrong else "ok",
                one.frame,
            ]
            for one in worst_by_stage(agreements.values())
        ]
        title = f"{args.backend}, {precision}, against the CPU in FP32"
        print_table(["stage", "output", "deviation", "limit", "", "worst frame"], rows, title=title)
        print(fault or "agrees with the CPU")
    return 1 if fault else 0


def worst_by_stage(agreements: Iterable[Agreement]) -> list[Deviation]:
    """Return the largest deviation of each output of each stage, in the order of the stages."""
    worst: dict[tuple[str, str], Deviation] = {}
    for agreement in agreements:
        for found in (*agreement.stages, *agreement.flown):
            key = found.stage, found.output
            # `not <=` instead of `>`, so that a NaN replaces any number.
            if key not in worst or not found.value <= worst[key].value:
                worst[key] = found
    return list(worst.values())
