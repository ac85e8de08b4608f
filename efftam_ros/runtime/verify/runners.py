"""Single graphs run on host arrays, by onnxruntime's CPU provider or on the GPU: for comparing them."""

from __future__ import annotations

from collections.abc import Mapping
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
    """One graph: inputs by name to outputs by name, float32 (int64 where the graph has it)."""

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
    """A graph on the GPU. Memory is allocated for every call: this is for checks, not for frames."""

    def __init__(self, cuda: Cuda, stream: Stream, graph: DeviceGraph) -> None:
        self._cuda, self._stream, self._graph = cuda, stream, graph
        self._binding = graph.binding(fixed=False)

    def __call__(self, inputs: Mapping[str, NDArray[Any]], /) -> Arrays:
        places: list[DeviceBuffer | HostBuffer] = []
        outputs = {}
        try:
            for name in self._graph.inputs:
                values = np.ascontiguousarray(inputs[name])
                device, host = self._place(name, values.shape, values.nbytes, places)
                host.view(values.dtype, values.shape)[...] = values
                self._stream.copy_in(device.pointer, host, values.nbytes)
            for name, tensor in self._graph.outputs.items():
                shape = output_shape(tensor.shape, inputs)
                nbytes = int(np.prod(shape)) * np.dtype(tensor.dtype).itemsize
                outputs[name] = (*self._place(name, shape, nbytes, places), shape, tensor.dtype)
            self._binding.run()
            for device, host, _, _ in outputs.values():
                self._stream.copy_out(host, device.pointer, host.nbytes)
            self._stream.synchronize()
            return {name: host.view(dtype, shape).copy() for name, (_, host, shape, dtype) in outputs.items()}
        finally:
            self._stream.synchronize()
            for buffer in places:
                buffer.free()

    def close(self) -> None:
        """Give the binding back."""
        self._binding.close()

    def _place(
        self, name: str, shape: tuple[int, ...], nbytes: int, places: list[DeviceBuffer | HostBuffer]
    ) -> tuple[DeviceBuffer, HostBuffer]:
        device = DeviceBuffer(self._cuda, nbytes)
        places.append(device)
        host = HostBuffer(self._cuda, nbytes)
        places.append(host)
        self._binding.bind(name, device.pointer, shape)
        return device, host


def output_shape(shape: tuple[int | str, ...], inputs: Mapping[str, NDArray[Any]]) -> tuple[int, ...]:
    """``t``, the tokens of a prompt, is one more than its points (docs/bundle.md)."""
    tokens = inputs["points"].shape[1] + 1 if "points" in inputs else 0
    return tuple(axis if isinstance(axis, int) else tokens for axis in shape)
