"""Small files that ask for much memory."""

from __future__ import annotations

import struct
import zlib


def png_bomb(width: int = 32_000, height: int = 32_000) -> bytes:
    """A valid PNG, black and white, all black: some 125 kB that OpenCV would decode into 3 GB."""
    compressor = zlib.compressobj(9)
    row = bytes(1 + (width + 7) // 8)
    block = row * 100
    data = b"".join(compressor.compress(block) for _ in range(height // 100))
    data += compressor.compress(row * (height % 100)) + compressor.flush()
    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", data), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, content) for kind, content in chunks)


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
