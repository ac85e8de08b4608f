"""What the device pipeline asks of a network graph that runs on the GPU, whichever library runs it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from efftam_ros.runtime.bundle import Tensor


class GraphError(RuntimeError):
    """A failed call of the library that runs graphs; the text is one line with its messages."""


class Binding(Protocol):
    """A graph with its tensors at fixed device addresses."""

    @property
    def launch(self) -> str:
        """How `run` starts the work: "cuda graph", or "plain launches" with the reason."""
        ...

    def bind(self, name: str, pointer: int, shape: tuple[int, ...]) -> None:
        """Let input or output ``name`` (float32 or int64, as the graph has it) lie at this device address,
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


class DeviceGraph(Protocol):
    """One opened graph of a bundle."""

    @property
    def inputs(self) -> Mapping[str, Tensor]: ...

    @property
    def outputs(self) -> Mapping[str, Tensor]: ...

    def binding(self, fixed: bool) -> Binding:
        """A new set of addresses. ``fixed``: they never change after the first run, so that the launches may
        be captured; else every run may be preceded by `Binding.bind` with other addresses and shapes."""
        ...

    def close(self) -> None: ...


class GraphOpener(Protocol):
    """A library that runs graphs on one stream of one GPU."""

    @property
    def device_bytes(self) -> int:
        """Device memory that the library holds for its graphs, 0 where it can't tell."""
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
