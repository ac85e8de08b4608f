"""What killed processes leave in the shared memory of Fast DDS.

A named semaphore guards each port. A process that hangs in a port which another one left damaged when it was
killed holds the semaphore, also when it is killed itself; so do all that come after it, without a word.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable
from pathlib import Path

MEMORY = Path("/dev/shm")
# What the living hold, they hold for microseconds; on a busy machine a turn of the processor longer.
LOOKS, PAUSE_S = 5, 0.1
DOMAIN_PORTS = 250


def remove_dead_ports(domain: int) -> list[int]:
    """Remove the ports of this ROS domain that stay locked, so that they are made anew; returns them."""
    first = 7400 + DOMAIN_PORTS * domain
    locked = [port for port in range(first, first + DOMAIN_PORTS) if _is_locked(port)]
    for _ in range(LOOKS):
        if not locked:
            return []
        time.sleep(PAUSE_S)
        locked = [port for port in locked if _is_locked(port)]
    for port in locked:
        for name in (f"fastrtps_port{port}", f"fastrtps_port{port}_el", f"sem.fastrtps_port{port}_mutex"):
            (MEMORY / name).unlink(missing_ok=True)
    return locked


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
