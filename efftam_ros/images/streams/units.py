"""Finds the NAL units in a packet of H.264 or H.265."""

from __future__ import annotations

from collections.abc import Iterator


def unit_places(data: bytes, length_bytes: int) -> Iterator[int]:
    """Yield the offset of each NAL unit's first byte in a packet.

    ``data``: the packet's bytes; ``length_bytes``: size of the length that precedes each unit, bytes; 0 if
    each unit follows a start code.
    """
    at = length_bytes or data.find(b"\0\0\1") + 3
    while length_bytes <= at < len(data) and at > 2 - length_bytes:
        yield at
        if length_bytes:
            at += length_bytes + int.from_bytes(data[at - length_bytes : at], "big")
        else:
            at = data.find(b"\0\0\1", at) + 3
