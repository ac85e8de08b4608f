"""Locks in shared memory that killed processes left.

Fast DDS guards each port of its shared memory by a named semaphore. A process that is killed while it holds
one leaves it locked, and from then on every process that needs the port waits for ever, without a word.
"""

from __future__ import annotations

import ctypes
import os
import time
from pathlib import Path

MEMORY = Path("/dev/shm")
# What the living hold, they hold for microseconds; on a busy machine a turn of the processor longer.
LOOKS, PAUSE_S = 5, 0.1
DOMAIN_PORTS = 250


def release_dead_locks(domain: int) -> list[int]:
    """Release the locks of this ROS domain's ports that stay locked; returns the ports."""
    first = 7400 + DOMAIN_PORTS * domain
    locked = [port for port in range(first, first + DOMAIN_PORTS) if _is_locked(port)]
    for _ in range(LOOKS):
        if not locked:
            return []
        time.sleep(PAUSE_S)
        locked = [port for port in locked if _is_locked(port)]
    for port in locked:
        _with_semaphore(port, _LIBRARY.sem_post)
    return locked


def _is_locked(port: int) -> bool:
    if not (MEMORY / f"sem.fastrtps_port{port}_mutex").exists():
        return False
    value = ctypes.c_int(1)
    _with_semaphore(port, lambda semaphore: _LIBRARY.sem_getvalue(semaphore, ctypes.byref(value)))
    return value.value == 0


def _with_semaphore(port: int, use) -> None:
    semaphore = ctypes.c_void_p(_LIBRARY.sem_open(f"/fastrtps_port{port}_mutex".encode(), os.O_RDWR))
    if semaphore.value:
        use(semaphore)
        _LIBRARY.sem_close(semaphore)


_LIBRARY = ctypes.CDLL(None)
_LIBRARY.sem_open.restype = ctypes.c_void_p
