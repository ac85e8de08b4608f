"""A mutation operator for `scripts/mutate` that Cosmic Ray lacks: it leaves out a change of a state.

Most mistakes that tests miss are of this kind: after time went back, a connection broke, or a target was
selected anew, an object still has some of its earlier state.
"""

from __future__ import annotations

from collections.abc import Iterator

from cosmic_ray.operators.operator import Example, Operator
from parso.python.tree import Keyword
from parso.tree import NodeOrLeaf, search_ancestor

QUIET = ("debug", "info", "inform", "warning", "error", "fail")  # methods that only log, and change no state


class LeaveOut(Operator):
    """Replaces a statement that changes the object's own state by ``pass``, except in ``__init__``."""

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
    """The mapping from names to operators by which Cosmic Ray finds them."""

    def __iter__(self) -> Iterator[str]:
        return iter(["LeaveOut"])

    def __getitem__(self, name: str) -> type[Operator]:
        return LeaveOut
