"""The operator page's node as a process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from efftam_ros.ros.common.process import run_node

if TYPE_CHECKING:
    from efftam_ros.ros.operator.node import OperatorNode


def main(args: list[str] | None = None) -> int:
    """Serve the page until a signal; returns the exit code."""

    def make() -> OperatorNode:
        from efftam_ros.ros.operator.node import OperatorNode

        return OperatorNode()

    return run_node("efftam_operator", make, args)
