"""Real senders of live video on loopback, each a process that ends with the test."""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from fractions import Fraction
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import av
import numpy as np
import pytest

HERE = Path(__file__).parent
SYSTEM_PYTHON = "/usr/bin/python3"


@contextmanager
def running(*command: object):
    process = subprocess.Popen([str(word) for word in command], stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def sender(port: int, codec: str = "libx264", size: str = "320x240", damaged: int = 0):
    """MPEG-TS over UDP to this port; image i has the grey 10 + i % 200. ``damaged``: each so many-th can't be
    decoded."""
    return running(sys.executable, HERE / "stream_sender.py", port, codec, size, damaged)


def rtsp_server(port: int, size: str = "320x240", *login: str):
    """GStreamer's server; the address is rtsp://127.0.0.1:PORT/live. Skips where it is not installed."""
    has_it = shutil.which("gst-inspect-1.0") and Path(SYSTEM_PYTHON).exists()
    code = "import gi; gi.require_version('GstRtspServer', '1.0'); from gi.repository import GstRtspServer"
    if not has_it or subprocess.run([SYSTEM_PYTHON, "-c", code], capture_output=True, check=False).returncode:
        pytest.skip(
            "no RTSP server: apt-get install gir1.2-gst-rtsp-server-1.0 python3-gi gstreamer1.0-plugins-ugly"
            " gstreamer1.0-plugins-good gstreamer1.0-tools"
        )
    return running(SYSTEM_PYTHON, HERE / "rtsp_server.py", port, size, *login)


def clock_sender(kind: str, port: int, said: int = 30, sent: float = 30, at_once: int = 1, pause: int = 0):
    """Images that show the sender's clock, see clock_sender.py."""
    return running(sys.executable, HERE / "clock_sender.py", kind, port, said, sent, at_once, pause)


def write_video(file: Path, form: str | None = None, seconds: float = 2.5, **options: str) -> None:
    """30 images/s of a grey that grows by 3."""
    with av.open(str(file), "w", format=form, options=options) as out:
        stream = out.add_stream("libx264", rate=30, options={"g": "15", "preset": "ultrafast", "bf": "0"})
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        stream.time_base = stream.codec_context.time_base = Fraction(1, 30)
        for i in range(round(30 * seconds)):
            frame = av.VideoFrame.from_ndarray(np.full((48, 64, 3), 20 + 3 * i % 200, np.uint8), "bgr24")
            frame.pts = i
            out.mux(stream.encode(frame))
        out.mux(stream.encode(None))


@contextmanager
def web_server(folder: Path):
    """As ``python -m http.server``, which knows no parts of files; gives its address."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *words) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def mjpeg_server(parts: list[bytes], rate: float):
    """A camera that sends these JPEGs as multipart over http, once to each reader; gives its address."""

    class Camera(BaseHTTPRequestHandler):
        def log_message(self, *words) -> None:
            pass

        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "multipart/x-mixed-replace; boundary=frame")
            self.end_headers()
            with suppress(OSError):  # the reader has gone
                for part in parts:
                    head = b"--frame\r\nContent-Type: image/jpeg\r\nContent-Length: %d\r\n\r\n" % len(part)
                    self.wfile.write(head + part + b"\r\n")
                    self.wfile.flush()
                    time.sleep(1 / rate)

    with ThreadingHTTPServer(("127.0.0.1", 0), Camera) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/"
        finally:
            server.shutdown()
            thread.join()
