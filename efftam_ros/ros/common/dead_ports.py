"""Finds and removes the ports that killed processes leave in the shared memory of Fast DDS.

Each DDS participant of a domain has a number, which determines its ports. A new participant takes the lowest
free number. Other participants may still send to the memory of a killed process. A new participant with the
number of the killed process may then receive nothing.

A named semaphore guards each port. A process that is killed may leave a damaged port. The next process that
opens the damaged port takes the semaphore and hangs, without a message. The semaphore stays locked even if
that process is killed too, and every later process hangs at the same port.
"""

from __future__ import annotations

import ctypes
import os
import re
import time
from collections.abc import Callable
from pathlib import Path

MEMORY, LOCKS = Path("/dev/shm"), Path("/proc/locks")
# A living process locks a port's semaphore for microseconds, or for some time slices on a busy machine. So a
# port counts as dead only if its semaphore stays locked in LOOKS checks with PAUSE_S seconds before each.
LOOKS, PAUSE_S = 5, 0.1
# Port numbers by the DDS standard: the first port of domain 0, the number of ports of a domain, the offset of
# the first participant's ports in a domain, and the number of ports of a participant.
BASE, DOMAIN_PORTS, FIRST, EACH = 7400, 250, 10, 2


def domain() -> int:
    """Return the number of this process's ROS domain."""
    text = os.environ.get("ROS_DOMAIN_ID", "")
    return int(text) if text.isdecimal() else 0


def dead_participants(of_domain: int) -> list[int]:
    """Return the numbers of the participants whose process has ended and left its ports in shared memory.

    A port without a file lock belongs to an ended process: a living process holds a lock on its port.
    """
    locked = set(re.findall(r"FLOCK .*? (?:\w+:\w+):(\d+) ", _text(LOCKS)))
    first, numbers = BASE + DOMAIN_PORTS * of_domain + FIRST, set()
    for path in MEMORY.glob("fastrtps_port*_el"):
        found = re.fullmatch(r"fastrtps_port(\d+)_el", path.name)
        number = -1 if found is None else (int(found[1]) - first) // EACH
        try:
            is_held = str(path.stat().st_ino) in locked
        except OSError:  # the file has been removed since it was listed
            continue
        if 0 <= number < (DOMAIN_PORTS - FIRST) // EACH and not is_held:
            numbers.add(number)
    return sorted(numbers)


def remove_dead_ports(of_domain: int) -> list[int]:
    """Remove the files of this ROS domain's ports whose semaphore stays locked; return the port numbers.

    Fast DDS then creates these ports again.
    """
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
                continue  # the file belongs to another user
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
