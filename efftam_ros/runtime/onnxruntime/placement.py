"""Checks that the nodes of an onnxruntime session run on the requested provider."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from efftam_ros.core.errors import BackendError

# Shape computations on a few integers, which onnxruntime places on the CPU on purpose. All of these operators
# have GPU kernels for data tensors, so on the CPU they only compute shapes.
SHAPE_OPERATORS = frozenset(
    ("Constant", "ConstantOfShape", "Gather", "Range", "Shape", "Size", "Slice", "Squeeze", "Unsqueeze")
)
CPU_PROVIDER = "CPUExecutionProvider"


@dataclass(frozen=True)
class Node:
    """A node of an opened graph.

    Attributes:
        provider: onnxruntime's name of the execution provider.
        op_type: ONNX operator.
        name: May be empty.
    """

    provider: str
    op_type: str
    name: str


@dataclass(frozen=True)
class Placement:
    """Number of nodes per provider and operator, and the shape computations on other providers."""

    counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    on_other_providers: tuple[Node, ...] = ()

    def __str__(self) -> str:
        return ", ".join(f"{sum(ops.values())} nodes on {name}" for name, ops in self.counts.items())


def read_assignment(session: Any) -> list[Node] | None:
    """Every node of a session that was opened with ``session.record_ep_graph_assignment_info``; None where
    onnxruntime does not report it (before 1.24)."""
    if not hasattr(session, "get_provider_graph_assignment_info"):
        return None
    nodes = [
        Node(part.ep_name or CPU_PROVIDER, node.op_type, node.name)
        for part in session.get_provider_graph_assignment_info()
        for node in part.get_nodes()
    ]
    return nodes or None


def check_provider(registered: Sequence[str], provider: str, graph_name: str) -> None:
    """``registered``: the session's ``get_providers()``. Raises BackendError when the requested provider is
    not the first one, because onnxruntime replaced it."""
    first = registered[0] if registered else "none"
    if first != provider:
        raise BackendError(
            f"onnxruntime could not start its {provider} and opened {graph_name} on {first} instead",
            "its own messages above say why; check the NVIDIA driver and the CUDA libraries",
        )


def check_placement(assignment: Iterable[Node], provider: str, graph_name: str) -> Placement:
    """Count the nodes by provider and operator. Raises BackendError naming the first node on another provider
    than the requested one, except shape computations (`SHAPE_OPERATORS`)."""
    counts: dict[str, Counter[str]] = {}
    on_other_providers: list[Node] = []
    for node in assignment:
        counts.setdefault(node.provider, Counter())[node.op_type] += 1
        if node.provider != provider:
            on_other_providers.append(node)
    misplaced = [node for node in on_other_providers if node.op_type not in SHAPE_OPERATORS]
    if misplaced:
        more = f" and {len(misplaced) - 1} more" if len(misplaced) > 1 else ""
        raise BackendError(
            f"{graph_name}: node {misplaced[0].name or 'without a name'} ({misplaced[0].op_type}){more}"
            f" would run on {misplaced[0].provider}, not on {provider}",
            "update onnxruntime-gpu, or use the CUDA provider if this was another",
        )
    return Placement(counts, tuple(on_other_providers))
