"""Which provider runs each node of an onnxruntime session, checked against the one that was asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from efftam_ros.core.errors import BackendError

# Arithmetic on shapes: a few integers that onnxruntime keeps on the CPU on purpose. Every one of these has a
# GPU kernel for tensors of numbers, so that on the CPU it is never more than that.
BOOKKEEPING = frozenset(
    ("Constant", "ConstantOfShape", "Gather", "Range", "Shape", "Size", "Slice", "Squeeze", "Unsqueeze")
)
CPU_PROVIDER = "CPUExecutionProvider"


@dataclass(frozen=True)
class Node:
    """One node of an opened graph; ``name`` may be empty, ``provider`` is onnxruntime's name for it."""

    provider: str
    op_type: str
    name: str


@dataclass(frozen=True)
class Placement:
    """Nodes per provider and op type, and those bookkeeping nodes that are not on the asked provider."""

    counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    on_other_providers: tuple[Node, ...] = ()

    def __str__(self) -> str:
        return ", ".join(f"{sum(ops.values())} nodes on {name}" for name, ops in self.counts.items())


def read_assignment(session: Any) -> list[Node] | None:
    """Every node of a session that was opened with ``session.record_ep_graph_assignment_info``; None where
    this onnxruntime can't tell (before 1.24)."""
    if not hasattr(session, "get_provider_graph_assignment_info"):
        return None
    nodes = [
        Node(part.ep_name or CPU_PROVIDER, node.op_type, node.name)
        for part in session.get_provider_graph_assignment_info()
        for node in part.get_nodes()
    ]
    return nodes or None


def check_provider(registered: Sequence[str], provider: str, graph_name: str) -> None:
    """``registered``: the session's ``get_providers()``. Raises BackendError when another provider than
    the asked one comes first: onnxruntime replaced it."""
    first = registered[0] if registered else "none"
    if first != provider:
        raise BackendError(
            f"onnxruntime could not start its {provider} and opened {graph_name} on {first} instead",
            "its own messages above say why; check the NVIDIA driver and the CUDA libraries",
        )


def check_placement(assignment: Iterable[Node], provider: str, graph_name: str) -> Placement:
    """Count the nodes by provider and op type. Raises BackendError naming the first node that does real
    work on another provider than the asked one; arithmetic on shapes (`BOOKKEEPING`) may be elsewhere."""
    counts: dict[str, Counter[str]] = {}
    on_other_providers: list[Node] = []
    for node in assignment:
        counts.setdefault(node.provider, Counter())[node.op_type] += 1
        if node.provider != provider:
            on_other_providers.append(node)
    heavy = [node for node in on_other_providers if node.op_type not in BOOKKEEPING]
    if heavy:
        more = f" and {len(heavy) - 1} more" if len(heavy) > 1 else ""
        raise BackendError(
            f"{graph_name}: node {heavy[0].name or 'without a name'} ({heavy[0].op_type}){more}"
            f" would run on {heavy[0].provider}, not on {provider}",
            "update onnxruntime-gpu, or ask for the CUDA provider if this was another",
        )
    return Placement(counts, tuple(on_other_providers))
