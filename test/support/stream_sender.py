"""Sends MPEG-TS over UDP as a drone's camera does: PORT CODEC WIDTHxHEIGHT [DAMAGED]. Image i is grey,
10 + i % 200; instead of each DAMAGED-th comes what no decoder can read."""

import sys
import time

import av
import numpy as np

FPS = 30
# Of a picture, after which nothing is as it must be.
START = {"libx264": b"\0\0\0\1\x09\xf0\0\0\0\1\x65", "libx265": b"\0\0\0\1\x46\1\x50\0\0\0\1\x26\1"}

if __name__ == "__main__":
    port, codec, size, damaged = [*sys.argv[1:], "0"][:4]
    width, height = map(int, size.split("x"))
    out = av.open(
        f"udp://127.0.0.1:{port}?pkt_size=1316",
        "w",
        format="mpegts",
        options={"flush_packets": "1", "muxdelay": "0"},
    )
    x265 = "log-level=none:keyint=15:bframes=0:repeat-headers=1:pools=none:frame-threads=1"
    stream = out.add_stream(
        codec,
        rate=FPS,
        options={"preset": "ultrafast", "tune": "zerolatency", "g": "15", "x265-params": x265},
    )
    stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
    noise = np.random.default_rng(0).integers(0, 8, (height, width, 3), dtype=np.uint8)
    i, began = 0, time.monotonic()
    while True:
        frame = av.VideoFrame.from_ndarray(noise + np.uint8(10 + i % 200), format="bgr24")
        frame.pts = i
        for packet in stream.encode(frame):
            if i and int(damaged) and i % int(damaged) == 0:
                times = packet.pts, packet.dts, packet.time_base, packet.stream
                packet = av.Packet(START[codec] + bytes(range(1, 251)))
                packet.pts, packet.dts, packet.time_base, packet.stream = times
            out.mux(packet)
        i += 1
        time.sleep(max(0.0, began + i / FPS - time.monotonic()))
