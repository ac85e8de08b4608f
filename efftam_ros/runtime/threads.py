"""CPU threads of a network: how many there are by default, and how they wait for each other."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

_TOPOLOGY = Path("/sys/devices/system/cpu")
_MOST = 4  # more threads do not speed up the small matrices of these networks, and occupy the robot's cores

_SPIN_US = 10
"""How long a thread spins before it sleeps. Most operators of these networks take less time than a sleeping
thread needs to wake up. On two idle cores a frame's graphs take 0.85 of the time without spinning, with less
CPU time; beside a process that occupies one of the two cores, 1.04 to 1.07. Longer spinning gains 0.01 at
most and costs up to 1.4 there."""
_LIMITS_SPINNING = (1, 26)  # first version of onnxruntime that limits the time, which is milliseconds without


def default_threads() -> int:
    """One thread per physical core that this process may use, at most four."""
    try:
        usable = os.sched_getaffinity(0)
    except AttributeError:  # not on macOS
        usable = set(range(os.cpu_count() or 1))
    cores = {_siblings(cpu) for cpu in usable}
    return max(1, min(len(cores), _MOST))


def set_threads(options: Any, threads: int, version: str) -> None:
    """Set the threads of a session on the CPU.

    Args:
        options: onnxruntime's SessionOptions.
        threads: Number of threads.
        version: Of onnxruntime; one that can't limit the time of spinning does not spin at all.
    """
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    spins = tuple(int(part) for part in version.split(".")[:2]) >= _LIMITS_SPINNING
    options.add_session_config_entry("session.intra_op.allow_spinning", str(int(spins)))
    if spins:
        options.add_session_config_entry("session.intra_op.spin_duration_us", str(_SPIN_US))


def _siblings(cpu: int) -> str:
    """The logical CPUs that share a core with this one; the CPU alone where the system does not say."""
    try:
        return (_TOPOLOGY / f"cpu{cpu}" / "topology" / "thread_siblings_list").read_text().strip()
    except OSError:
        return str(cpu)
