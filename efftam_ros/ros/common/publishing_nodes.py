"""Which nodes publish a topic, by the ROS graph: a node that was started again is no second one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any

# A process that was killed stays on the graph until its lease ends, s: 20 with Fast DDS, 10 with Cyclone DDS.
LEASE_S = 25.0
UNKNOWN_NODE = "_NODE_NAME_UNKNOWN_"
"""rclpy's name for a node whose name has not been discovered yet."""


class PublishingNodes:
    """The nodes that publish one topic.

    A node that was killed and started again, and two nodes of one name, look alike for `LEASE_S`: two
    publishers of one node name. One of them is then the killed process, unless both stay for longer.
    """

    def __init__(self) -> None:
        self._known: dict[str, set[bytes]] = {}  # by node name: every publisher that it has had
        self._since_s: dict[tuple[str, bytes], float] = {}  # of those that are there: since when

    def look(self, found: Collection[tuple[str, bytes]], now_s: float) -> tuple[tuple[str, ...], bool]:
        """Compare the publishers with those before. ``found``: node name and identity of each publisher;
        ``now_s``: of a steady clock.

        Returns the names of the nodes, a name as often as there are nodes of it, and whether one was started
        again since the last call.
        """
        has_restarted = any(name in self._known and own not in self._known[name] for name, own in found)
        for name, own in found:
            self._known.setdefault(name, set()).add(own)
        self._since_s = {one: self._since_s.get(one, now_s) for one in found}
        names = []
        for name, count in Counter(name for name, _ in found).items():
            newest_s = max(since_s for (its, _), since_s in self._since_s.items() if its == name)
            names += [name] * (count if now_s - newest_s > LEASE_S else 1)
        return tuple(sorted(names)), has_restarted


def identities(publishers: Collection[Any]) -> list[tuple[str, bytes]]:
    """Return what `PublishingNodes.look` takes, of rclpy's description of publishers. The name of a node may
    become known after its publisher: until then it is left out."""
    return [
        (f"{one.node_namespace.rstrip('/')}/{one.node_name}", bytes(one.endpoint_gid))
        for one in publishers
        if one.node_name != UNKNOWN_NODE
    ]
