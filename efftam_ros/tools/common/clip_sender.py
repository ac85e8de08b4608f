"""Sends a video clip as a live stream, like a camera: H.264 in MPEG-TS over UDP.

The clip is played forward and backward, again and again.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from efftam_ros.images.camera import open_source

FPS = 15
# Until the whole clip may be played, only the frames 0 to FIRST_FRAMES are sent, forward and backward. A
# single frame would look like a frozen camera.
FIRST_FRAMES = 2
# Options of x264, as for a camera on a radio link. The encoder delays no frame, and sends a key frame each
# second, so that a new viewer soon sees a picture.
ENCODER = {"preset": "ultrafast", "tune": "zerolatency", "crf": "20", "g": str(FPS)}


class ClipSender(threading.Thread):
    """A thread that sends a clip to a UDP port of this computer until `close` is called."""

    def __init__(self, video: Path, port: int, may_go_on: Callable[[], bool]) -> None:
        """Read the clip.

        ``may_go_on``: function that returns whether the whole clip may be played. It is called about twice a
        second until it returns True. Until then only the beginning of the clip is sent. Raises InputError if
        the clip can't be read.
        """
        super().__init__(name="clip", daemon=True)
        self._port, self._may_go_on = port, may_go_on
        self._ended = threading.Event()
        self._goes_on = False
        source = open_source(video)
        step = max(1, round(source.fps / FPS))
        # Stored as JPEG, because the uncompressed pictures of the clip would need 250 MB.
        self._pictures = [
            cv2.imencode(".jpg", frame.bgr, [cv2.IMWRITE_JPEG_QUALITY, 95])[1]
            for frame in itertools.islice(source.frames(0), 0, None, step)
        ]
        self._size = source.width, source.height

    def close(self) -> None:
        self._ended.set()
        self.join()

    def run(self) -> None:
        import av

        address = f"udp://127.0.0.1:{self._port}?pkt_size=1316"
        with av.open(address, "w", format="mpegts", options={"flush_packets": "1"}) as container:
            stream: Any = container.add_stream("libx264", rate=FPS, options=ENCODER)
            stream.width, stream.height = self._size
            stream.pix_fmt = "yuv420p"
            due_s = time.monotonic()
            for count, bgr in enumerate(self._shown()):
                frame = av.VideoFrame.from_ndarray(bgr, format="bgr24")
                frame.pts, frame.time_base = count, Fraction(1, FPS)
                container.mux(stream.encode(frame))
                due_s = max(due_s + 1 / FPS, time.monotonic() - 1.0)
                if self._ended.wait(max(0.0, due_s - time.monotonic())):
                    return

    def _shown(self) -> Iterator[NDArray[np.uint8]]:
        position, direction = 0, 1
        for count in itertools.count():
            yield np.asarray(cv2.imdecode(self._pictures[position], cv2.IMREAD_COLOR), np.uint8)
            if not self._goes_on and count % (FPS // 2) == 0:
                self._goes_on = self._may_go_on()
            last = len(self._pictures) - 1 if self._goes_on else FIRST_FRAMES
            direction = -1 if position >= last else 1 if position == 0 else direction
            position += direction
