"""What killed processes leave in the shared memory of Fast DDS, and how to keep clear of it.

Each DDS participant of a domain has a number, which its ports follow from; a new one takes the lowest that is
free. Others may still send to the memory of a killed process: one that takes its number may get nothing.

A named semaphore guards each port. A process that hangs in a port which another one left damaged when it was
killed holds the semaphore, also when it is killed itself; so do all that come after it, without a message.
"""

from __future__ import annotations

import ctypes
import os
import re
import time
from collections.abc import Callable
from pathlib import Path

MEMORY, LOCKS = Path("/dev/shm"), Path("/proc/locks")
# Living processes hold these locks for microseconds; on a busy machine for a time slice longer.
LOOKS, PAUSE_S = 5, 0.1
# DDS: the domain's first port, the participants' first port in it, and the ports of each participant.
BASE, DOMAIN_PORTS, FIRST, EACH = 7400, 250, 10, 2


def domain() -> int:
    """Return the ROS domain of this process."""
    text = os.environ.get("ROS_DOMAIN_ID", "")
    return int(text) if text.isdecimal() else 0


def dead_participants(of_domain: int) -> list[int]:
    """Return the numbers of participants whose ports are left in shared memory although their process has
    ended: a living process holds a lock on its port."""
    locked = set(re.findall(r"FLOCK .*? (?:\w+:\w+):(\d+) ", _text(LOCKS)))
    first, numbers = BASE + DOMAIN_PORTS * of_domain + FIRST, set()
    for path in MEMORY.glob("fastrtps_port*_el"):
        found = re.fullmatch(r"fastrtps_port(\d+)_el", path.name)
        number = -1 if found is None else (int(found[1]) - first) // EACH
        try:
            is_held = str(path.stat().st_ino) in locked
        except OSError:  # it has gone
            continue
        if 0 <= number < (DOMAIN_PORTS - FIRST) // EACH and not is_held:
            numbers.add(number)
    return sorted(numbers)


def remove_dead_ports(of_domain: int) -> list[int]:
    """Remove the ports of this ROS domain that stay locked, so that they are created again; returns them."""
    first = BASE + DOMAIN_PORTS * of_domain
    locked = [port for port in range(first, first + DOMAIN_PORTS) if _is_locked(port)]
    for _ in range(LOOKS):
        if not locked:
            return []
        time.sleep(PAUSE_S)
        locked = [port for port in locked if _is_locked(port)]
    for port in locked:
        for name in (f"fastrtps_port{port}", f"fastrtps_port{port}_el", f"sem.fastrtps_port{port}_mutex"):
            try:
                (MEMORY / name).unlink(missing_ok=True)
            except OSError:
                continue  # another user's
    return locked


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _is_locked(port: int) -> bool:
    if not (MEMORY / f"sem.fastrtps_port{port}_mutex").exists():
        return False
    value = ctypes.c_int(1)
    semaphore = ctypes.c_void_p(_open(f"/fastrtps_port{port}_mutex".encode(), os.O_RDWR))
    if semaphore.value:
        _LIBRARY.sem_getvalue(semaphore, ctypes.byref(value))
        _LIBRARY.sem_close(semaphore)
    return value.value == 0


_LIBRARY = ctypes.CDLL(None)
_open: Callable[..., int] = _LIBRARY.sem_open
_LIBRARY.sem_open.restype = ctypes.c_void_p
