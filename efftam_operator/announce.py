"""Where the page can be opened: the addresses of this computer, and a QR code for a terminal."""

from __future__ import annotations

import fcntl
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress

SIOCGIFADDR = 0x8915  # <linux/sockios.h>: an interface's IPv4 address
ANY = ("0.0.0.0", "::")


def own_addresses() -> list[str]:
    """Return the IPv4 addresses under which others may reach this computer, that of the default route first;
    its name where it has none."""
    found, first = [], ""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            with suppress(OSError):  # one without an address
                answer = fcntl.ioctl(asked, SIOCGIFADDR, struct.pack("256s", name[:15].encode()))
                found.append(socket.inet_ntoa(answer[20:24]))
        with suppress(OSError):  # nothing is sent by this
            asked.connect(("192.0.2.1", 9))
            first = asked.getsockname()[0]
    found = [address for address in found if not address.startswith("127.")]
    return sorted(found, key=lambda address: address != first) or [socket.gethostname()]


def announcement(urls: Sequence[str], purpose: str = "") -> str:
    """Lines for a terminal: each address, and the first as a QR code where others than this computer may open
    it. ``purpose``: what for, such as " and draw the target"."""
    lines = [f"open {url}{purpose}" for url in urls]
    if "#" in urls[0]:
        lines.append(qr_code(urls[0]))
    return "\n".join(lines)


def qr_code(text: str) -> str:
    """Lines of half blocks, light on a dark ground; cameras read the inverse as well."""
    import cv2

    modules = [list(row) for row in cv2.QRCodeEncoder.create().encode(text) > 0]
    if len(modules) % 2:
        modules.append([True] * len(modules))
    rows = zip(modules[::2], modules[1::2], strict=True)
    return "\n".join("".join(" ▄▀█"[2 * top + low] for top, low in zip(*row, strict=True)) for row in rows)
