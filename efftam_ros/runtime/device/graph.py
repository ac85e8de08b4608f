"""Interfaces of the graphs that the GPU pipeline runs, which each library for graphs implements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from efftam_ros.runtime.bundle import Tensor
from efftam_ros.runtime.cuda.memory import ALIGNMENT


class GraphError(RuntimeError):
    """A call of the library that runs graphs failed. The text is one line with the library's messages."""


class Binding(Protocol):
    """A graph together with the device addresses of its inputs and outputs."""

    @property
    def launch(self) -> str:
        """How `run` starts the work: "cuda graph", or "plain launches" with the reason."""
        ...

    def bind(self, name: str, pointer: int, shape: tuple[int, ...]) -> None:
        """Place the input or output ``name`` at a device address for all later runs.

        The address must be a multiple of 256. The tensor there has this shape and the type that the graph
        declares, float32 or int64. A name that the graph does not have is ignored.
        """
        ...

    def run(self) -> None:
        """Enqueue the graph on the pipeline's stream and return without waiting."""
        ...

    @property
    def alone(self) -> str:
        """Why the graph can't be captured as a part of a larger CUDA graph; "" if it can.

        If it can, `enqueue` may be called in a capture after the first `run`.
        """
        ...

    def enqueue(self) -> None:
        """Enqueue the graph by single launches of its kernels, even if `run` launches a CUDA graph."""
        ...

    def close(self) -> None:
        """Free the resources of the binding. No pending work may use it. Closing its graph does the same."""
        ...


class Places:
    """Checks and stores the addresses and shapes of a binding's tensors.

    The checks are needed because the libraries that run graphs would use wrong memory without an error.

    Attributes:
        tensors: By name, type and shape of each input and output that the graph declares.
        of: By name, address and shape of each tensor that `put` has bound.
        has_run: Whether the graph has run with this binding. A fixed binding can't be changed afterwards.
    """

    def __init__(
        self, graph: str, inputs: Mapping[str, Tensor], outputs: Mapping[str, Tensor], fixed: bool
    ) -> None:
        self._graph, self._fixed = graph, fixed
        self.tensors = {**inputs, **outputs}
        self.of: dict[str, tuple[int, tuple[int, ...]]] = {}
        self.has_run = False

    def put(self, name: str, pointer: int, shape: tuple[int, ...]) -> bool:
        """Bind a tensor: set its address and shape, and return whether they changed.

        A name that the graph does not have changes nothing. Raises ValueError for a shape that the graph does
        not have, an address that is not aligned, and a change after the first run of a fixed binding.
        """
        tensor = self.tensors.get(name)
        if tensor is None or self.of.get(name) == (pointer, shape):
            return False
        where = f"{self._graph}: {name}"
        if not tensor.takes(shape):
            raise ValueError(f"{where} was bound with shape {list(shape)}; the graph has {tensor}")
        if pointer <= 0 or pointer % ALIGNMENT:
            raise ValueError(
                f"{where} was bound to address {pointer:#x}; it must be a multiple of {ALIGNMENT}"
            )
        if self._fixed and self.has_run:
            raise ValueError(
                f"{where} can't be bound again, because the binding is fixed and a run has used it; make a"
                " new one"
            )
        self.of[name] = pointer, shape
        return True

    def require_all(self) -> None:
        """Raise ValueError, with the names of the tensors, if not all tensors are bound."""
        missing = [name for name in self.tensors if name not in self.of]
        if missing:
            raise ValueError(f"{self._graph}: {', '.join(missing)} not bound; bind every tensor before a run")


class DeviceGraph(Protocol):
    """One opened graph of a bundle."""

    @property
    def inputs(self) -> Mapping[str, Tensor]: ...

    @property
    def outputs(self) -> Mapping[str, Tensor]: ...

    def binding(self, fixed: bool) -> Binding:
        """Return a new binding of the graph.

        The addresses and shapes of a ``fixed`` binding never change after its first run, so that its launches
        can be captured. Any other binding may be changed by `Binding.bind` before each run.
        """
        ...

    def close(self) -> None: ...


class GraphOpener(Protocol):
    """Opens graphs of a bundle with one library, to run them on one stream of one GPU."""

    @property
    def device_bytes(self) -> int:
        """Device memory that the library uses for its graphs, bytes; 0 where this is not known."""
        ...

    @property
    def notice(self) -> str:
        """A line that the user should read about how the network runs here, or ""."""
        ...

    @property
    def made_of(self) -> str:
        """Versions of the library and hashes of the engines that are used, as one text.

        If this text differs from that of an earlier start, the results may differ too.
        """
        ...

    def open(self, name: str) -> DeviceGraph:
        """Open the graph with this name. Raises BackendError if it can't run completely on the GPU."""
        ...

    def close(self) -> None: ...
