"""Graphs bound to memory of the fake GPU, and what a plain session on the CPU makes of the same inputs."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from efftam_ros.runtime.cuda.api import Cuda
from efftam_ros.runtime.cuda.memory import DeviceBuffer, HostBuffer
from efftam_ros.runtime.cuda.stream import Stream


class Device:
    """A stream with tensors in the fake GPU's memory."""

    def __init__(self, cuda: Cuda, stream: Stream) -> None:
        self.cuda, self.stream = cuda, stream

    def put(self, array: np.ndarray) -> DeviceBuffer:
        buffer, host = DeviceBuffer(self.cuda, array.nbytes), HostBuffer(self.cuda, array.nbytes)
        host.view(array.dtype, array.shape)[...] = array
        self.stream.copy_in(buffer.pointer, host, array.nbytes)
        self.stream.synchronize()
        return buffer

    def get(self, buffer: DeviceBuffer, shape: tuple[int, ...]) -> np.ndarray:
        host = HostBuffer(self.cuda, buffer.nbytes)
        self.stream.copy_out(host, buffer.pointer, buffer.nbytes)
        self.stream.synchronize()
        return host.view(np.float32, shape).copy()


@lru_cache
def plain_session(path: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


class Bound:
    """A binding with its tensors: random inputs, and what the plain CPU session makes of them."""

    def __init__(self, device: Device, binding: Any, path: Path, seed: int = 0, **axes: int) -> None:
        self.device, self.binding = device, binding
        self.session = plain_session(path)
        random = np.random.default_rng(seed)
        self.feeds: dict[str, np.ndarray] = {}
        for tensor in self.session.get_inputs():
            shape = tuple(axes[axis] if isinstance(axis, str) else axis for axis in tensor.shape)
            integers = tensor.type == "tensor(int64)"
            values = random.integers(0, 2, shape) if integers else random.standard_normal(shape, np.float32)
            self.feeds[tensor.name] = values
        self.names = [tensor.name for tensor in self.session.get_outputs()]
        self.expected = dict(zip(self.names, self.session.run(self.names, self.feeds), strict=True))
        self.buffers = {name: device.put(array) for name, array in self.feeds.items()}
        self.buffers |= {
            name: device.put(np.full_like(array, np.nan)) for name, array in self.expected.items()
        }

    def bind(self, *left_out: str) -> None:
        for name, array in {**self.feeds, **self.expected}.items():
            if name not in left_out:
                self.binding.bind(name, self.buffers[name].pointer, array.shape)

    def feed(self, seed: int) -> None:
        """Other inputs at the same addresses."""
        random = np.random.default_rng(seed)
        for name, array in self.feeds.items():
            if array.dtype == np.float32:
                self.feeds[name] = random.standard_normal(array.shape, np.float32)
                fresh = self.device.put(self.feeds[name])
                self.device.stream.copy(self.buffers[name].pointer, fresh.pointer, fresh.nbytes)
        self.expected = dict(zip(self.names, self.session.run(self.names, self.feeds), strict=True))

    def check(self) -> None:
        for name, expected in self.expected.items():
            np.testing.assert_array_equal(self.device.get(self.buffers[name], expected.shape), expected, name)
