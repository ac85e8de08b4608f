"""Changes for `scripts/mutate` that Cosmic Ray lacks: a state that is not set, or not forgotten.

Most slips that tests miss are of this kind: time goes back, a connection breaks, a target is selected anew,
and something of before is kept.
"""

from __future__ import annotations

from collections.abc import Iterator

from cosmic_ray.operators.operator import Example, Operator
from parso.python.tree import Keyword
from parso.tree import NodeOrLeaf, search_ancestor

QUIET = ("debug", "info", "inform", "warning", "error", "fail")  # logs


class LeaveOut(Operator):
    """Leaves out a statement that changes the object's own state, except in ``__init__``."""

    def mutation_positions(self, node: NodeOrLeaf) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
        if _changes_state(node):
            yield node.start_pos, node.end_pos

    def mutate(self, node: NodeOrLeaf, index: int) -> NodeOrLeaf:
        return Keyword("pass", node.start_pos, prefix=node.get_first_leaf().prefix)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        return (
            Example("def f(self):\n    self.last = None\n", "def f(self):\n    pass\n"),
            Example("def f(self):\n    self.kept.clear()\n", "def f(self):\n    pass\n"),
        )


def _changes_state(node: NodeOrLeaf) -> bool:
    if node.parent is None or node.parent.type != "simple_stmt":
        return False
    function = search_ancestor(node, "funcdef")
    if function is None or function.name.value in ("__init__", "__post_init__"):
        return False
    code = node.get_code(include_prefix=False)
    if node.type in ("expr_stmt", "del_stmt"):
        return code.removeprefix("del ").startswith("self.")
    called = code.split("(")[0].split(".")
    is_own = called[0] == "self" and len(called) > 2 and called[-1] not in QUIET
    return node.type in ("atom_expr", "power") and is_own


class Provider:
    """The operators by name, for Cosmic Ray."""

    def __iter__(self) -> Iterator[str]:
        return iter(["LeaveOut"])

    def __getitem__(self, name: str) -> type[Operator]:
        return LeaveOut
