"""The lines that a terminal shows when the page is served: the page's addresses and a QR code."""

from __future__ import annotations

import fcntl
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress

SIOCGIFADDR = 0x8915  # request number from <linux/sockios.h>: return an interface's IPv4 address
ANY = ("0.0.0.0", "::")


def own_addresses() -> list[str]:
    """Return the IPv4 addresses under which other computers may reach this computer.

    The address of the default route comes first. If this computer has no such address, the list contains only
    its host name.
    """
    found, first = [], ""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            with suppress(OSError):  # raised for an interface without an address
                answer = fcntl.ioctl(asked, SIOCGIFADDR, struct.pack("256s", name[:15].encode()))
                found.append(socket.inet_ntoa(answer[20:24]))
        with suppress(OSError):  # connecting a UDP socket sends nothing, it only selects the route
            asked.connect(("192.0.2.1", 9))
            first = asked.getsockname()[0]
    found = [address for address in found if not address.startswith("127.")]
    return sorted(found, key=lambda address: address != first) or [socket.gethostname()]


def announcement(urls: Sequence[str], purpose: str = "") -> str:
    """Return lines for a terminal: one for each URL, and a QR code of the first URL if it contains a token.

    ``purpose``: what to do on the page, appended to each line, such as " and draw the target".
    """
    lines = [f"open {url}{purpose}" for url in urls]
    if "#" in urls[0]:  # a token: the page is served to other computers too
        lines.append(qr_code(urls[0]))
    return "\n".join(lines)


def qr_code(text: str) -> str:
    """Return the text's QR code as lines of half-block characters.

    The code has its true colours on a terminal with light text on a dark background. On a light background it
    is inverted, which cameras read as well.
    """
    import cv2

    modules = [list(row) for row in cv2.QRCodeEncoder.create().encode(text) > 0]
    if len(modules) % 2:
        modules.append([True] * len(modules))
    rows = zip(modules[::2], modules[1::2], strict=True)
    return "\n".join("".join(" ▄▀█"[2 * top + low] for top, low in zip(*row, strict=True)) for row in rows)
