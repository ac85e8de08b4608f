"""Which trackers answer, by the publishers of their boxes on the ROS graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

# A process that was killed stays on the graph until its lease ends, s: 20 with Fast DDS, 10 with Cyclone DDS.
LEASE_S = 25.0


class TrackerGraph:
    """Tells a tracker that was started again from a second one of the same name.

    Both look alike for `LEASE_S`: two publishers of one node name. One of them is then the killed process,
    unless both stay for longer.
    """

    def __init__(self) -> None:
        self._known: dict[str, set[bytes]] = {}  # by node name: every publisher that it has had
        self._since_s: dict[tuple[str, bytes], float] = {}  # of those that are there: since when

    def look(self, found: Collection[tuple[str, bytes]], now_s: float) -> tuple[tuple[str, ...], bool]:
        """``found``: node name and identity of each publisher; ``now_s``: of a steady clock.

        Returns the names of the trackers that answer, a name as often as there are trackers of it, and
        whether one was started again since the last call.
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
