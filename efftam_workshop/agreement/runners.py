"""Runs single graphs on host arrays, by onnxruntime on the CPU or on the GPU, to compare them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from efftam_ros.runtime.cuda.api import Cuda
from efftam_ros.runtime.cuda.memory import DeviceBuffer, HostBuffer
from efftam_ros.runtime.cuda.stream import Stream

if TYPE_CHECKING:
    from efftam_ros.runtime.device.graph import DeviceGraph

Arrays = dict[str, NDArray[Any]]


class Runner(Protocol):
    """Computes one graph. Takes inputs and returns outputs by name, float32 or int64 as in the graph."""

    def __call__(self, inputs: Mapping[str, NDArray[Any]], /) -> Arrays: ...


class CpuRunner:
    """A graph in FP32 on the CPU: the reference of every comparison."""

    def __init__(self, model: Path | bytes) -> None:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        given = model if isinstance(model, bytes) else str(model)
        self._session = onnxruntime.InferenceSession(given, options, providers=["CPUExecutionProvider"])
        self._inputs = [tensor.name for tensor in self._session.get_inputs()]
        self._outputs = [tensor.name for tensor in self._session.get_outputs()]

    def __call__(self, inputs: Mapping[str, NDArray[Any]], /) -> Arrays:
        results = self._session.run(self._outputs, {name: inputs[name] for name in self._inputs})
        return dict(zip(self._outputs, results, strict=True))


class DeviceRunner:
    """Computes a graph on the GPU, for checks: every call allocates memory, which is too slow for tracking.

    ``fixed``: the tensors' shapes and addresses never change. Then call `load` once and `run` repeatedly; the
    graph is captured as a CUDA graph where possible.
    """

    def __init__(self, cuda: Cuda, stream: Stream, graph: DeviceGraph, fixed: bool = False) -> None:
        self._cuda, self._stream, self._graph = cuda, stream, graph
        self._binding = graph.binding(fixed)

    def __call__(self, inputs: Mapping[str, NDArray[Any]], /) -> Arrays:
        with ExitStack() as stack:
            outputs = self.load(inputs, stack)
            self.run()
            for device, host in outputs.values():
                self._stream.copy_out(host, device.pointer, host.nbytes)
            self._stream.synchronize()
            found = {}
            for name, (_, host) in outputs.items():
                tensor = self._graph.outputs[name]
                found[name] = host.view(tensor.dtype, _output_shape(tensor.shape, inputs)).copy()
            return found

    def load(
        self, inputs: Mapping[str, NDArray[Any]], stack: ExitStack
    ) -> dict[str, tuple[DeviceBuffer, HostBuffer]]:
        """Allocate device memory, copy the inputs into it and bind it; ``stack`` frees it.

        Returns the device buffer and the host buffer of each output, by name.
        """
        outputs = {}
        try:
            for name in self._graph.inputs:
                values = np.ascontiguousarray(inputs[name])
                device, host = self._place(name, values.shape, values.nbytes, stack)
                host.view(values.dtype, values.shape)[...] = values
                self._stream.copy_in(device.pointer, host, values.nbytes)
            for name, tensor in self._graph.outputs.items():
                shape = _output_shape(tensor.shape, inputs)
                nbytes = int(np.prod(shape)) * np.dtype(tensor.dtype).itemsize
                outputs[name] = self._place(name, shape, nbytes, stack)
        finally:  # ``stack`` waits for the stream before it frees memory, also after an error
            stack.callback(self._stream.synchronize)
        return outputs

    def run(self) -> None:
        self._binding.run()

    def close(self) -> None:
        """Release the graph's binding."""
        self._binding.close()

    def _place(
        self, name: str, shape: tuple[int, ...], nbytes: int, stack: ExitStack
    ) -> tuple[DeviceBuffer, HostBuffer]:
        device = DeviceBuffer(self._cuda, nbytes)
        stack.callback(device.free)
        host = HostBuffer(self._cuda, nbytes)
        stack.callback(host.free)
        self._binding.bind(name, device.pointer, shape)
        return device, host


def _output_shape(shape: tuple[int | str, ...], inputs: Mapping[str, NDArray[Any]]) -> tuple[int, ...]:
    """Return the output's shape as integers.

    The symbolic axis ``t``, the tokens of a prompt, is the number of points plus 1 (docs/bundle.md).
    """
    tokens = inputs["points"].shape[1] + 1 if "points" in inputs else 0
    return tuple(axis if isinstance(axis, int) else tokens for axis in shape)
