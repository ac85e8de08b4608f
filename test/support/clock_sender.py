"""Sends live video whose images show the sender's clock: udp|http PORT SAID SENT AT_ONCE [PAUSE].

``udp``: MPEG-TS with the times of SAID images/s; ``http``: multipart JPEG, which has no times. SENT images/s
come, AT_ONCE of them together; after PAUSE images one of a second, from then on twice as many together.
"""

import io
import socket
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import av
import cv2
import numpy as np

WIDTH, HEIGHT, BLOCK, BITS = 320, 64, 10, 32


def picture_of(ms: int) -> np.ndarray:
    """White blocks for the ones of a time, the lowest bit first."""
    ones = np.array([ms >> bit & 1 for bit in range(BITS)], np.uint8)
    return np.repeat(np.kron(ones, np.full((HEIGHT, BLOCK), 255, np.uint8))[..., None], 3, axis=2)


def now_ms() -> int:
    return time.monotonic_ns() // 1_000_000 & 0xFFFFFFFF


def paced(sent: float, at_once: int, pause: int):
    """Yields for each image its number, its time, ms (in a group when it was due), and whether it is the last
    of those at once."""
    began, number = time.monotonic(), 0
    while True:
        for k in range(at_once):
            due_ms = round(1000 * (began + number / sent)) & 0xFFFFFFFF
            yield number, due_ms if at_once > 1 else now_ms(), k == at_once - 1
            number += 1
        if pause and number >= pause:
            time.sleep(1.0)
            began, pause, at_once = began + 1.0, 0, 2 * at_once
        time.sleep(max(0.0, began + number / sent - time.monotonic()))


def send_udp(port: int, said: int, paces) -> None:
    sock, out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), io.BytesIO()
    container = av.open(out, "w", format="mpegts", options={"flush_packets": "1"})
    stream = container.add_stream("libx264", rate=said)
    stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
    stream.options = {"preset": "ultrafast", "tune": "zerolatency", "g": "15", "crf": "10"}
    for number, ms, is_last in paces:
        frame = av.VideoFrame.from_ndarray(picture_of(ms), "bgr24")
        frame.pts = number
        container.mux(stream.encode(frame))
        if is_last:
            data = out.getvalue()
            out.seek(0)
            out.truncate()
            for at in range(0, len(data), 1316):
                sock.sendto(data[at : at + 1316], ("127.0.0.1", port))


def serve_http(port: int, new_paces) -> None:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *words) -> None:
            pass

        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "multipart/x-mixed-replace; boundary=frame")
            self.end_headers()
            try:
                for _, ms, _ in new_paces():
                    data = cv2.imencode(".jpg", picture_of(ms))[1].tobytes()
                    head = b"--frame\r\nContent-Type: image/jpeg\r\nContent-Length: %d\r\n\r\n" % len(data)
                    self.wfile.write(head + data + b"\r\n")
                    self.wfile.flush()
            except OSError:
                pass  # the reader has gone

    HTTPServer(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    kind, port, said, sent, at_once, pause = [*sys.argv[1:], "0"][:6]
    settings = float(sent), int(at_once), int(pause)
    if kind == "udp":
        send_udp(int(port), int(said), paced(*settings))
    else:
        serve_http(int(port), lambda: paced(*settings))
