"""The device pipeline on a fake GPU that runs the real kernels and graphs, and punishes misuse."""

from __future__ import annotations

from runtime.cuda.fake_cuda import FakeDevice, FakeGpu
from runtime.cuda.shim import shared_shim
from runtime.fake_ort import FakeOrt, Faults

from efftam_ros.runtime.bundle import Bundle
from efftam_ros.runtime.cuda.api import Cuda
from efftam_ros.runtime.cuda.device import open_device
from efftam_ros.runtime.cuda.kernel_table import KERNELS
from efftam_ros.runtime.cuda.stream import Stream
from efftam_ros.runtime.device.pipeline import DevicePipeline
from efftam_ros.runtime.onnxruntime.gpu import OrtGraphs


class Rig:
    """A device pipeline on a fake GPU, and the fakes behind it."""

    def __init__(self, bundle: Bundle, *, seed: int = 0, integrated: bool = False, **faults: bool) -> None:
        shim = shared_shim()
        self.gpu = FakeGpu("12.9", FakeDevice(integrated=integrated), seed=seed)
        self.gpu.kernels = shim.launch
        self.gpu.signatures = {
            name: [parameter.access for parameter in kernel.parameters] for name, kernel in KERNELS.items()
        }
        self.ort = FakeOrt(self.gpu.enqueue, Faults(**faults))
        self.cuda = Cuda(self.gpu.driver)
        facts = open_device(self.cuda)
        self.stream = Stream(self.cuda)
        opener = OrtGraphs(bundle, "cuda", self.stream.handle, ort=self.ort)
        self.pipeline = DevicePipeline(bundle, self.cuda, facts, self.stream, opener)
        # Kernels get addresses within one allocation: each tensor is one thing that may be raced for.
        for name in self.pipeline._shapes:
            self.gpu.divide(self.pipeline._arena.pointer(name), self.pipeline._arena.nbytes(name))
