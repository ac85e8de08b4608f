"""What the device pipeline asks of a network graph that runs on the GPU, whichever library runs it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from efftam_ros.runtime.bundle import Tensor
from efftam_ros.runtime.cuda.memory import ALIGNMENT


class GraphError(RuntimeError):
    """A failed call of the library that runs graphs; the text is one line with its messages."""


class Binding(Protocol):
    """A graph with its tensors at fixed device addresses."""

    @property
    def launch(self) -> str:
        """How `run` starts the work: "cuda graph", or "plain launches" with the reason."""
        ...

    def bind(self, name: str, pointer: int, shape: tuple[int, ...]) -> None:
        """Place input or output ``name`` (float32 or int64, as the graph has it) at this device address,
        256-byte aligned, from now on. Names the graph lacks are ignored."""
        ...

    def run(self) -> None:
        """Enqueue the graph on the pipeline's stream and return without waiting."""
        ...

    @property
    def alone(self) -> str:
        """Why `enqueue` can't be part of a larger capture; "" when it can, after a first `run`."""
        ...

    def enqueue(self) -> None:
        """Enqueue plain launches, also where `run` launches a captured graph."""
        ...

    def close(self) -> None:
        """Give back what the binding holds; no pending work may use it. Closing its graph does the same."""
        ...


class Places:
    """Where the tensors of a binding lie, by name: address and shape. A ``fixed`` binding's are settled once
    it `has_run`. Whichever library runs the graph, it would compute on other memory without an error."""

    def __init__(
        self, graph: str, inputs: Mapping[str, Tensor], outputs: Mapping[str, Tensor], fixed: bool
    ) -> None:
        self._graph, self._fixed = graph, fixed
        self.tensors = {**inputs, **outputs}
        self.of: dict[str, tuple[int, tuple[int, ...]]] = {}
        self.has_run = False

    def put(self, name: str, pointer: int, shape: tuple[int, ...]) -> bool:
        """Set a tensor's address, and return whether it changed. Raises ValueError: a shape that
        is not the graph's, an address that is not aligned, a tensor of a settled binding."""
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
            raise ValueError(f"{where} of a fixed binding was moved after its first run")
        self.of[name] = pointer, shape
        return True

    def require_all(self) -> None:
        """Raises ValueError naming the tensors that lie nowhere."""
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
        """Return a new set of addresses. ``fixed``: they never change after the first run, so that the
        launches may be captured; else every run may be preceded by `Binding.bind` with other addresses and
        shapes."""
        ...

    def close(self) -> None: ...


class GraphOpener(Protocol):
    """A library that runs graphs on one stream of one GPU."""

    @property
    def device_bytes(self) -> int:
        """Device memory that the library holds for its graphs, 0 where it is not known."""
        ...

    @property
    def notice(self) -> str:
        """See `Pipeline.notice`."""
        ...

    @property
    def made_of(self) -> str:
        """What the graphs that were opened are made of: versions of the library, and hashes of its engines. A
        change of it may change their results."""
        ...

    def open(self, name: str) -> DeviceGraph:
        """Raises BackendError when the graph can't run whole on the GPU."""
        ...

    def close(self) -> None: ...
