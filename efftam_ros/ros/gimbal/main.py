"""The gimbal controller's node as a process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from efftam_ros.ros.common.process import run_node

if TYPE_CHECKING:
    from efftam_ros.ros.gimbal.node import GimbalNode


def main(args: list[str] | None = None) -> int:
    """Run the node until a signal, after which zero rates go out; returns the exit code."""

    def make() -> GimbalNode:
        from efftam_ros.ros.gimbal.node import GimbalNode

        return GimbalNode()

    return run_node("efftam_gimbal", make, args)
