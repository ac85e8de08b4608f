"""The default number of CPU threads of a network."""

from __future__ import annotations

import os
from pathlib import Path

_TOPOLOGY = Path("/sys/devices/system/cpu")
_MOST = 4  # more threads do not speed up the small matrices of these networks, and occupy the robot's cores


def default_threads() -> int:
    """One thread per physical core that this process may use, at most four."""
    try:
        usable = os.sched_getaffinity(0)
    except AttributeError:  # not on macOS
        usable = set(range(os.cpu_count() or 1))
    cores = {_siblings(cpu) for cpu in usable}
    return max(1, min(len(cores), _MOST))


def _siblings(cpu: int) -> str:
    """The logical CPUs that share a core with this one; the CPU alone where the system does not say."""
    try:
        return (_TOPOLOGY / f"cpu{cpu}" / "topology" / "thread_siblings_list").read_text().strip()
    except OSError:
        return str(cpu)
