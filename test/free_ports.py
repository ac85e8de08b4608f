"""Ports for processes that are started later."""

from __future__ import annotations

import random
import socket

# Linux gives none of these to a socket that asks for any, and Fast DDS none to the domains 0 to 200: nobody
# but another call takes one before its process does.
PORTS = range(61_000, 65_536)


def free_port(kind: int = socket.SOCK_DGRAM) -> int:
    """A port of 127.0.0.1 that nobody uses; ``kind``: SOCK_DGRAM or SOCK_STREAM."""
    for port in random.SystemRandom().sample(PORTS, 100):
        with socket.socket(socket.AF_INET, kind) as sock:
            try:
                sock.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("a hundred ports are in use")
