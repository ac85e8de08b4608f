"""The device pipeline on a fake GPU that runs the real kernels and graphs, and punishes misuse."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from unittest.mock import patch

import onnx
from runtime.cuda.fake_cuda import DEVICE, FakeDevice, FakeGpu
from runtime.cuda.shim import shared_shim
from runtime.fake_ort import FakeOrt, Faults
from runtime.tensorrt.fake_tensorrt import make_fake

from efftam_ros.runtime.bundle import Bundle
from efftam_ros.runtime.cuda.api import Cuda, open_device
from efftam_ros.runtime.cuda.kernel_table import KERNELS
from efftam_ros.runtime.cuda.memory import Arena
from efftam_ros.runtime.cuda.stream import Stream
from efftam_ros.runtime.device.graph import GraphOpener
from efftam_ros.runtime.device.pipeline import DevicePipeline
from efftam_ros.runtime.onnxruntime.gpu import OrtGraphs
from efftam_ros.runtime.tensorrt.engine_set import profiles_of
from efftam_ros.runtime.tensorrt.library import Library
from efftam_ros.runtime.tensorrt.runner import TrtGraphs
from efftam_workshop.export.tensorrt.builder import build_engine

GENERATION = "10.3.0"
"""Of TensorRT: the oldest that is run."""


class Rig:
    """A device pipeline on a fake GPU, and the fakes behind it: onnxruntime, or TensorRT with engines in
    FP32."""

    def __init__(
        self,
        bundle: Bundle,
        *,
        seed: int = 0,
        zero_copy: bool = False,
        max_targets: int = 1,
        tensorrt: bool = False,
        **faults: bool,
    ) -> None:
        self.gpu = fake_gpu(FakeDevice(integrated=zero_copy), seed)
        self.cuda = Cuda(self.gpu.driver)
        facts = open_device(self.cuda)
        self.stream = Stream(self.cuda)
        opener: GraphOpener
        if tensorrt:
            self.trt = make_fake(GENERATION, self.gpu)
            library = Library.of(self.trt)
            tables = {name: (graph.inputs, graph.outputs) for name, graph in bundle.graphs.items()}
            opener = TrtGraphs(library, self.stream, tables, partial(built, library, bundle))
        else:
            self.ort = FakeOrt(self.gpu.enqueue, self.gpu.take, Faults(**faults))
            opener = OrtGraphs(bundle, "cuda", self.stream.handle, ort=self.ort)
        with patch("efftam_ros.runtime.device.tensors.Arena", partial(divided_arena, self.gpu)):
            self.pipeline = DevicePipeline(
                bundle, self.cuda, facts, self.stream, opener, zero_copy, max_targets
            )


def fake_gpu(device: FakeDevice = DEVICE, seed: int = 0) -> FakeGpu:
    """It runs the package's kernels."""
    gpu = FakeGpu("12.9", device, seed=seed)
    gpu.kernels = shared_shim().launch
    gpu.signatures = {
        name: [parameter.access for parameter in kernel.parameters] for name, kernel in KERNELS.items()
    }
    return gpu


def divided_arena(gpu: FakeGpu, cuda: Cuda, shapes: Mapping[str, tuple[int, ...]]) -> Arena:
    """Kernels get addresses within one allocation: each tensor, or each lane's part of it, is one thing that
    may be raced for."""
    arena = Arena(cuda, shapes)
    for name, shape in shapes.items():
        parts = shape[0] if name.endswith(" by lane") else 1
        nbytes = arena.nbytes(name) // parts
        for part in range(parts):
            gpu.divide(arena.pointer(name) + part * nbytes, nbytes)
    return arena


def built(library: Library, bundle: Bundle, name: str) -> bytes:
    """The engine of a graph in FP32."""
    graph = bundle.graphs[name]
    return build_engine(library, _model(graph.path), "fp32", profiles_of(graph.inputs))


@cache
def _model(path: Path) -> onnx.ModelProto:
    return onnx.load(path)
