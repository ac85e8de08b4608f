"""Runs a graph by onnxruntime on the GPU, with tensors at given device addresses, and checks its nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from efftam_ros.core.errors import BackendError
from efftam_ros.runtime.bundle import BundleGraph
from efftam_ros.runtime.cuda.stream import CUDA_GRAPH
from efftam_ros.runtime.device.graph import Places
from efftam_ros.runtime.onnxruntime.libraries import first_line, known_error
from efftam_ros.runtime.onnxruntime.options import run_options

# Operators whose nodes may run on the CPU. onnxruntime places such a node on the CPU only if it computes
# shapes, which are a few integers. For all other tensors these operators have kernels on the GPU.
SHAPE_OPERATORS = frozenset(
    ("Constant", "ConstantOfShape", "Gather", "Range", "Shape", "Size", "Slice", "Squeeze", "Unsqueeze")
)
CPU_PROVIDER = "CPUExecutionProvider"


@dataclass(frozen=True)
class Node:
    """A node of an opened graph.

    Attributes:
        provider: onnxruntime's execution provider that runs the node.
        op_type: Its ONNX operator.
        name: Its name, which may be empty.
    """

    provider: str
    op_type: str
    name: str


def read_assignment(session: Any) -> list[Node] | None:
    """Return all nodes of a session with their providers; None where onnxruntime does not report them.

    The session must have been opened with the option ``session.record_ep_graph_assignment_info``. onnxruntime
    reports nodes from version 1.24 on.
    """
    if not hasattr(session, "get_provider_graph_assignment_info"):
        return None
    nodes = [
        Node(part.ep_name or CPU_PROVIDER, node.op_type, node.name)
        for part in session.get_provider_graph_assignment_info()
        for node in part.get_nodes()
    ]
    return nodes or None


def check_provider(registered: Sequence[str], provider: str, graph_name: str) -> None:
    """Check that a session uses the requested provider.

    ``registered``: the result of the session's ``get_providers()``. Raises BackendError if the requested
    provider is not the first one, which means that onnxruntime replaced it.
    """
    first = registered[0] if registered else "none"
    if first != provider:
        raise BackendError(
            f"onnxruntime could not start its {provider} and opened {graph_name} on {first} instead",
            "onnxruntime's messages above give the reason; check the NVIDIA driver and the CUDA libraries",
        )


def check_placement(assignment: Sequence[Node], provider: str, graph_name: str) -> tuple[Node, ...]:
    """Return the nodes that run on another provider than the requested one.

    Only nodes that compute shapes may do so (`SHAPE_OPERATORS`). Raises BackendError if another node does,
    with the name of the first such node.
    """
    others = tuple(node for node in assignment if node.provider != provider)
    misplaced = [node for node in others if node.op_type not in SHAPE_OPERATORS]
    if misplaced:
        more = f" and {len(misplaced) - 1} more" if len(misplaced) > 1 else ""
        raise BackendError(
            f"{graph_name}: node {misplaced[0].name or 'without a name'} ({misplaced[0].op_type}){more}"
            f" would run on {misplaced[0].provider}, not on {provider}",
            "update onnxruntime-gpu, or use the back end onnxruntime-cuda",
        )
    return others


@dataclass(frozen=True)
class OpenedSession:
    """A session of onnxruntime.

    ``no_capture``: why it captures no CUDA graphs; "" if it captures them.
    """

    session: Any
    no_capture: str


@dataclass(frozen=True)
class GraphContext:
    """What `OrtGraph` needs to bind tensors and to open its session again.

    Attributes:
        ort: The module onnxruntime.
        device: Index of the GPU.
        open_without_capture: Opens a session that captures no CUDA graphs, from the graph's name and the
            reason.
        replay_waits: Why the host waits after each launch of a CUDA graph; "" if it does not wait.
    """

    ort: Any
    device: int
    open_without_capture: Callable[[str, str], OpenedSession]
    replay_waits: str = ""


class OrtGraph:
    """A `DeviceGraph` of onnxruntime: one session and its bindings."""

    def __init__(self, graph: BundleGraph, opened: OpenedSession, context: GraphContext) -> None:
        self.name, self.inputs, self.outputs = graph.name, graph.inputs, graph.outputs
        self._context = context
        self._opened: OpenedSession | None = opened
        self._fixed_bindings = 0
        self._bindings: list[OrtBinding] = []

    @property
    def opened(self) -> OpenedSession:
        """The current session. Raises RuntimeError after `close`."""
        if self._opened is None:
            raise RuntimeError(f"graph {self.name} is closed")
        return self._opened

    def binding(self, fixed: bool) -> OrtBinding:
        """Return a new binding of the graph to device addresses.

        The addresses of a ``fixed`` binding never change. Its first run captures it as a CUDA graph if
        possible.
        """
        self._fixed_bindings += fixed
        self._bindings.append(OrtBinding(self, self._context, self._fixed_bindings if fixed else None))
        return self._bindings[-1]

    def give_up_capture(self, reason: str) -> None:
        """Replace the session by one that captures no CUDA graphs, for this reason."""
        self._opened = self._context.open_without_capture(self.name, reason)

    def close(self) -> None:
        for binding in self._bindings:
            binding.close()
        self._opened = None


class OrtBinding:
    """A `Binding` that uses onnxruntime's IOBinding."""

    def __init__(self, graph: OrtGraph, context: GraphContext, graph_id: int | None) -> None:
        """Make a binding, to which `bind` must still bind all tensors.

        ``graph_id``: number of the binding's CUDA graph in the session; None if addresses may change.
        """
        self._graph, self._context, self._graph_id = graph, context, graph_id
        self._places = Places(graph.name, graph.inputs, graph.outputs, fixed=graph_id is not None)
        self._opened: OpenedSession | None = None
        self._binding: Any = None
        self._attach()

    @property
    def launch(self) -> str:
        if self._graph_id is None:
            return "plain launches: addresses may change"
        reason = self._graph.opened.no_capture
        if reason:
            return f"plain launches: {reason}"
        waits = self._context.replay_waits
        return f"{CUDA_GRAPH}: {waits}" if waits else CUDA_GRAPH

    def bind(self, name: str, pointer: int, shape: tuple[int, ...]) -> None:
        """Place the input or output ``name`` at a device address; see `Binding.bind`.

        Raises ValueError for a shape that the graph does not have, an address that is not aligned, and a
        change after the first run of a fixed binding.
        """
        if self._places.put(name, pointer, shape):
            self._put(name)

    def run(self) -> None:
        """Enqueue the graph on the pipeline's stream and return without waiting.

        The first run of a binding that is captured computes the graph several times. Raises ValueError if a
        tensor is not bound, BackendError if the GPU can't compute the graph (no kernel, too little memory),
        and RuntimeError for any other failure.
        """
        opened = self._graph.opened
        if opened is not self._opened:
            self._attach()
        if not self._places.has_run:
            self._places.require_all()
        try:
            opened.session.run_with_iobinding(self._binding, self._options)
        except Exception as error:
            known = known_error(error, self._context.ort)
            if known is None and not self._places.has_run and self.launch.startswith(CUDA_GRAPH):
                self._graph.give_up_capture(f"capture failed ({first_line(error)})")
                return self.run()
            raise known or RuntimeError(
                f"graph {self._graph.name} failed on the GPU ({first_line(error)}); open the pipeline again"
            ) from error
        self._places.has_run = True

    @property
    def alone(self) -> str:
        """Why `enqueue` can't be used, so that the graph can't be a part of a larger CUDA graph."""
        return "onnxruntime captures each of its graphs by itself"

    def enqueue(self) -> None:
        """Raise RuntimeError, because onnxruntime has no launches that could be a part of a capture."""
        raise RuntimeError(f"{self._graph.name}: {self.alone}")

    def close(self) -> None:
        """Drop the reference to the session, so that its memory can be freed. Can be called twice."""
        self._opened = self._binding = None

    def _attach(self) -> None:
        """Bind all tensors to the session that the graph has now, which may have been replaced."""
        opened = self._opened = self._graph.opened
        self._binding = opened.session.io_binding()
        graph_id = None if opened.no_capture else (self._graph_id or -1)
        self._options = run_options(self._context.ort, graph_id)
        for name in self._places.of:
            self._put(name)

    def _put(self, name: str) -> None:
        pointer, shape = self._places.of[name]
        is_input = name in self._graph.inputs
        dtype = np.dtype(self._places.tensors[name].dtype).type
        bind = self._binding.bind_input if is_input else self._binding.bind_output
        bind(name, "cuda", self._context.device, dtype, list(shape), pointer)
