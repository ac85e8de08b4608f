"""Opens a link by its address, written as pymavlink and the autopilots' documents write it:
``udpin:HOST:PORT``, ``udpout:HOST:PORT``, ``tcp:HOST:PORT``, ``tcpin:HOST:PORT``, ``serial:DEVICE:BAUD``."""

from __future__ import annotations

import time
from collections.abc import Callable

from efftam_flight.mavlink.links.connection import Connection
from efftam_flight.mavlink.links.serial_line import SerialLine
from efftam_flight.mavlink.links.tcp import Tcp, TcpIn
from efftam_flight.mavlink.links.udp import Udp

KINDS = ("udpin", "udpout", "tcp", "tcpin", "serial")


def connect(address: str, clock: Callable[[], float] = time.monotonic) -> Connection:
    """Open a link.

    Raises ValueError for an address that is none, OSError for a port that is taken or a host that nobody
    knows. A network or a device that is not there yet raises nothing: see `Connection`.
    """
    kind, _, rest = address.partition(":")
    host, _, number = rest.rpartition(":")
    if kind not in KINDS or not host or not number.isdecimal():
        raise ValueError(
            f"{address!r} is no MAVLink address; write udpin:HOST:PORT, udpout:HOST:PORT, tcp:HOST:PORT,"
            " tcpin:HOST:PORT or serial:DEVICE:BAUD"
        )
    if kind == "serial":
        return SerialLine(address, host, int(number), clock)
    if not 0 < int(number) < 65536:
        raise ValueError(f"{address!r} names port {number}; ports go from 1 to 65535")
    place = (host, int(number))
    if kind in ("udpin", "udpout"):
        return Udp(address, place, kind == "udpin", clock)
    return TcpIn(address, place, clock) if kind == "tcpin" else Tcp(address, place, clock)
