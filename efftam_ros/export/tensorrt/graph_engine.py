"""Building one engine from a graph, with the options that the types in the graph allow."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import onnx

from efftam_ros.export.fp16.tf32 import inexact_products
from efftam_ros.export.tensorrt.builder import Progress, build_engine
from efftam_ros.runtime.cuda.device import DeviceFacts
from efftam_ros.runtime.tensorrt.build_options import BuildOptions
from efftam_ros.runtime.tensorrt.library import Library


def allowed_options(model: onnx.ModelProto, options: BuildOptions) -> BuildOptions:
    """``options`` with TF32 where it changes no product of the graph."""
    return replace(options, tf32=not inexact_products(model))


def build_graph(
    library: Library,
    model: onnx.ModelProto,
    options: BuildOptions,
    progress: Progress = lambda phase, step, steps: True,
    device: DeviceFacts | None = None,
    timing_cache: Path | None = None,
) -> bytes:
    """As `build_engine` for a graph in memory under 2 GB, with `allowed_options`: every engine is built here,
    also those whose layers are only looked at, so that their flags can't differ."""
    return build_engine(
        library, model.SerializeToString(), allowed_options(model, options), progress, device, timing_cache
    )
