"""Finds which nodes publish a topic. A node that was killed and started again is counted once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any

# Longest time that a killed process stays in the ROS graph, s. The middleware removes it when its lease ends:
# after 20 s with Fast DDS, after 10 s with Cyclone DDS.
LEASE_S = 25.0
UNKNOWN_NODE = "_NODE_NAME_UNKNOWN_"
"""rclpy's name for a node whose name has not been discovered yet."""


class PublishingNodes:
    """The nodes that publish one topic.

    A node that was killed and started again appears in the ROS graph as two publishers of one node name until
    the lease of the killed process ends. So two publishers of one name count as one node until both have
    existed for longer than `LEASE_S`.
    """

    def __init__(self) -> None:
        self._known: dict[str, set[bytes]] = {}  # ids of all publishers that each node ever had
        self._since_s: dict[tuple[str, bytes], float] = {}  # when each present publisher was first found, s

    def look(self, found: Collection[tuple[str, bytes]], now_s: float) -> tuple[tuple[str, ...], bool]:
        """Compare the publishers with those of the last call.

        ``found``: node name and id of each publisher, see `identities`. ``now_s``: time on a steady clock.
        Returns the sorted names of the nodes, and whether a node was started again since the last call. If
        several nodes have the same name, the name is repeated.
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
    """Return node name and id of each publisher, as `PublishingNodes.look` takes them.

    ``publishers``: from rclpy's ``get_publishers_info_by_topic``. A publisher is left out as long as the name
    of its node is not known.
    """
    return [
        (f"{one.node_namespace.rstrip('/')}/{one.node_name}", bytes(one.endpoint_gid))
        for one in publishers
        if one.node_name != UNKNOWN_NODE
    ]
