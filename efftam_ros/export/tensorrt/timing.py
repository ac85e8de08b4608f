"""Times engines of one module against each other on the GPU."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from efftam_ros.runtime.cuda.api import Cuda
from efftam_ros.runtime.cuda.memory import DeviceBuffer, HostBuffer
from efftam_ros.runtime.cuda.stream import Event, Stream
from efftam_ros.runtime.device.graph import DeviceGraph
from efftam_ros.runtime.verify.runners import output_shape

ROUNDS, RUNS = 7, 10
"""Engines take turns of `RUNS` runs, so that a change of the GPU's clock meets all of them."""


def times_ms(
    cuda: Cuda, stream: Stream, graphs: Mapping[str, DeviceGraph], inputs: Mapping[str, NDArray[Any]]
) -> dict[str, float]:
    """GPU time of a run of each graph on these inputs: median of `ROUNDS` turns, without the first."""
    with ExitStack() as stack:
        turns = {name: _Turns(cuda, stream, graph, inputs, stack) for name, graph in graphs.items()}
        taken: dict[str, list[float]] = {name: [] for name in turns}
        for number in range(ROUNDS + 1):
            for name, one in turns.items():
                elapsed = one.run()
                if number > 0:
                    taken[name].append(elapsed)
    return {name: median(values) for name, values in taken.items()}


class _Turns:
    """A graph with memory of its own, run as in use: captured where that is possible."""

    def __init__(
        self,
        cuda: Cuda,
        stream: Stream,
        graph: DeviceGraph,
        inputs: Mapping[str, NDArray[Any]],
        stack: ExitStack,
    ) -> None:
        self._stream = stream
        self._binding = graph.binding(fixed=True)
        for name in graph.inputs:
            values = np.ascontiguousarray(inputs[name])
            host, device = HostBuffer(cuda, values.nbytes), DeviceBuffer(cuda, values.nbytes)
            stack.callback(host.free)
            stack.callback(device.free)
            host.view(values.dtype, values.shape)[...] = values
            stream.copy_in(device.pointer, host, values.nbytes)
            self._binding.bind(name, device.pointer, values.shape)
        for name, tensor in graph.outputs.items():
            shape = output_shape(tensor.shape, inputs)
            device = DeviceBuffer(cuda, int(np.prod(shape)) * np.dtype(tensor.dtype).itemsize)
            stack.callback(device.free)
            self._binding.bind(name, device.pointer, shape)
        self._start, self._end = Event(cuda, timing=True), Event(cuda, timing=True)
        stack.callback(self._start.close)
        stack.callback(self._end.close)
        stack.callback(stream.synchronize)  # before anything above is freed, also after an error
        self._binding.run()  # uncaptured

    def run(self) -> float:
        """Milliseconds of one of `RUNS` runs."""
        self._stream.record(self._start)
        for _ in range(RUNS):
            self._binding.run()
        self._stream.record(self._end)
        self._end.wait()
        return self._end.milliseconds_since(self._start) / RUNS
