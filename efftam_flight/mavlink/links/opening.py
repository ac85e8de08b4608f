"""Opens a link by its address. The form of addresses is that of pymavlink: ``udpin:HOST:PORT``,
``udpout:HOST:PORT``, ``tcp:HOST:PORT``, ``tcpin:HOST:PORT``, ``serial:DEVICE:BAUD``."""

from __future__ import annotations

import time
from collections.abc import Callable

from efftam_flight.mavlink.links.connection import Connection
from efftam_flight.mavlink.links.serial_line import SerialLine
from efftam_flight.mavlink.links.tcp import Tcp, TcpIn
from efftam_flight.mavlink.links.udp import Udp

KINDS = ("udpin", "udpout", "tcp", "tcpin", "serial")


def connect(address: str, clock: Callable[[], float] = time.monotonic) -> Connection:
    """Open the link with this address. ``clock``: returns steady time, s.

    Raise ValueError if the address is malformed, OSError if the port is in use or the host's name is unknown,
    and ModuleNotFoundError if a serial line needs pyserial. A network or device that is missing raises
    nothing: the link then has a `Connection.fault`, and is opened as soon as possible.
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
        raise ValueError(f"{address!r} has port {number}; give a port from 1 to 65535")
    place = (host, int(number))
    if kind in ("udpin", "udpout"):
        return Udp(address, place, kind == "udpin", clock)
    return TcpIn(address, place, clock) if kind == "tcpin" else Tcp(address, place, clock)
