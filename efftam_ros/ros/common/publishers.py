"""Finds other publishers on a node's own topics."""

from __future__ import annotations

from collections.abc import Sequence

from rclpy.node import Node

from efftam_ros.core.errors import shown

# rclpy's name for a node whose name has not been discovered yet.
UNKNOWN_NODE = "_NODE_NAME_UNKNOWN_"


def other_publishers(node: Node, topics: Sequence[str], consequence: str) -> str:
    """Name the first of a node's own topics that somebody else publishes too, and what follows from it, in
    one line; empty when there is none."""
    for topic in topics:
        name = node.resolve_topic_name(topic)
        found = node.get_publishers_info_by_topic(name)
        # A publisher may be discovered before the name of its node; wait until a later check knows the name.
        if len(found) > 1 and all(info.node_name != UNKNOWN_NODE for info in found):
            names = sorted({shown(info.node_name)[1:-1] for info in found})
            return f"{len(found)} publishers on {name} ({', '.join(names)}): {consequence}"
    return ""
