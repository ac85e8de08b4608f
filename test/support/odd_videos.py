"""Videos as they come from the field: lost packets, several tracks, display matrices."""

from __future__ import annotations

import functools
import struct
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from av.stream import Disposition

GROUP, COUNT, RATE = 15, 60, 30
CODECS = {"libx264": {"g": str(GROUP)}, "libx265": {}}
X265 = {"x265-params": f"log-level=none:keyint={GROUP}:min-keyint={GROUP}:bframes=0:repeat-headers=1"}


@functools.cache
def picture(number: int, width: int = 320, height: int = 240) -> np.ndarray:
    """Squares that move by 4 px an image, under noise, so that each image has several packets."""
    squares = np.random.default_rng(0).integers(0, 220, (height // 8, width // 8), dtype=np.uint8)
    noise = np.random.default_rng(number).integers(0, 30, (height, width), dtype=np.uint8)
    grey = np.roll(np.kron(squares, np.ones((8, 8), np.uint8)), 4 * number, 1) + noise
    return np.repeat(grey[..., None], 3, axis=2)


def write(
    file: Path, codec: str = "libx264", form: str | None = None, rate: int = RATE, **options: str
) -> None:
    """An .mp4 has its index first, so that any server will do."""
    more = {"preset": "ultrafast", "tune": "zerolatency", **X265, **CODECS[codec], **options}
    first = {"movflags": "+faststart"} if file.suffix == ".mp4" else {}
    with av.open(str(file), "w", format=form, options=first) as out:
        stream = out.add_stream(codec, rate=rate, options=more)
        stream.width, stream.height, stream.pix_fmt = 320, 240, "yuv420p"
        for i in range(COUNT):
            frame = av.VideoFrame.from_ndarray(picture(i), "bgr24")
            frame.pts, frame.time_base = i, Fraction(1, rate)
            out.mux(stream.encode(frame))
        out.mux(stream.encode(None))


def number_of(bgr: np.ndarray) -> int | None:
    """Which image this is; None for a torn one."""
    errors = [np.abs(bgr[::4, ::4, 0].astype(int) - picture(i)[::4, ::4, 0]).mean() for i in range(COUNT)]
    best = int(np.argmin(errors))
    return best if errors[best] < 12 else None


def lose_packets(file: Path, images: list[int]) -> None:
    """Take a packet of 188 bytes out of the middle of each of these images of an MPEG-TS."""
    data = file.read_bytes()
    packets = [data[at : at + 188] for at in range(0, len(data), 188)]
    video = [i for i, p in enumerate(packets) if p[1] & 0x1F == 1 and p[2] == 0]  # PID 256
    starts = [n for n, i in enumerate(video) if packets[i][1] & 0x40]
    gone = {video[(starts[image] + starts[image + 1]) // 2] for image in images}
    file.write_bytes(b"".join(p for i, p in enumerate(packets) if i not in gone))


def write_tracks(file: Path) -> None:
    """A cover picture first, as some drones' recordings have it, and two films of 20 images."""
    with av.open(str(file), "w", options={"movflags": "+faststart"}) as out:
        streams = []
        for codec, pixels, width in (
            ("libx264", "yuv420p", 320),
            ("libx264", "yuv420p", 640),
            ("mjpeg", "yuvj420p", 160),
        ):
            stream = out.add_stream(codec, rate=RATE)
            stream.width, stream.height, stream.pix_fmt = width, width * 3 // 4, pixels
            streams.append(stream)
        streams[0].disposition = Disposition(0)
        streams[1].disposition = Disposition.default
        streams[2].disposition = Disposition.attached_pic
        for stream, count in zip(streams, (20, 20, 1), strict=True):
            for i in range(count):
                frame = av.VideoFrame.from_ndarray(picture(i, stream.width, stream.height), "bgr24")
                frame.pts = i
                out.mux(stream.encode(frame.reformat(format=stream.pix_fmt)))
            out.mux(stream.encode(None))
    data, out_data = file.read_bytes(), b""
    for kind, box in boxes(data):
        if kind == b"moov":  # the user's data, with the cover, before the tracks
            order = {b"mvhd": 0, b"udta": 1}
            parts = sorted(boxes(box[8:]), key=lambda part: order.get(part[0], 2))
            box = box[:8] + b"".join(part for _, part in parts)
        out_data += box
    file.write_bytes(out_data)


def boxes(data: bytes) -> list[tuple[bytes, bytes]]:
    found, at = [], 0
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at : at + 8])
        found.append((kind, data[at : at + size]))
        at += size
    return found


def turn(file: Path, a: int, b: int, c: int, d: int) -> None:
    """Give an mp4 this display matrix; 1 << 16 is 1."""
    data = bytearray(file.read_bytes())
    at = data.index(b"tkhd") + 4 + 40  # version, flags, times, id, duration, layer, volume
    data[at : at + 36] = struct.pack(">9i", a, b, 0, c, d, 0, 0, 0, 1 << 30)
    file.write_bytes(data)
