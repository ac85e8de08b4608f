"""Ports for processes that are started later."""

from __future__ import annotations

import itertools
import os
import socket

# Linux gives none of these to a socket that asks for any, and Fast DDS none to the domains 0 to 200. Each
# process of the tests takes them in order from a place of its own, so that no two choose the same one.
PORTS = range(61_000, 65_500)
SHARE = 100
_next = itertools.count(os.getpid() * SHARE)


def free_port(kind: int = socket.SOCK_DGRAM) -> int:
    """A port of 127.0.0.1 that nobody uses; ``kind``: SOCK_DGRAM or SOCK_STREAM."""
    for count in itertools.islice(_next, SHARE):
        port = PORTS[count % len(PORTS)]
        with socket.socket(socket.AF_INET, kind) as sock:
            try:
                sock.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("a hundred ports are in use")
