"""Runs on disk, as `efftam track --json` writes them: a video whose pictures carry their number, and its
JSON."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np

FPS = 25
BLOCK, BITS = 16, 10


def numbered_picture(index: int, width: int = 320, height: int = 192) -> np.ndarray:
    """uint8 [H, W, 3]: grey, with ``index`` as black and white blocks in the top rows."""
    bgr = np.full((height, width, 3), 100, np.uint8)
    for bit in range(BITS):
        bgr[: 2 * BLOCK, bit * BLOCK : (bit + 1) * BLOCK] = 255 * (index >> bit & 1)
    return bgr


def number_in(bgr: np.ndarray) -> int:
    return sum(int(bgr[BLOCK, BLOCK * bit + BLOCK // 2, 1] > 128) << bit for bit in range(BITS))


def write_video(path: Path, count: int) -> Path:
    """H.264 with B frames and a key frame every 30 pictures."""
    options = {"crf": "18", "g": "30", "bf": "2"}
    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream("libx264", rate=FPS, options=options)
        stream.width, stream.height, stream.pix_fmt = 320, 192, "yuv420p"
        stream.time_base = stream.codec_context.time_base = Fraction(1, 90_000)
        for index in range(count):
            frame = av.VideoFrame.from_ndarray(numbered_picture(index), format="bgr24")
            frame.pts, frame.time_base = index * 90_000 // FPS, Fraction(1, 90_000)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def write_run(path: Path, video: str, states: str, start: int = 0) -> Path:
    """``states``: one digit per picture from ``start`` on; the box moves 2 px per picture."""
    names = ["IDLE", "ACQUIRING", "TRACKING", "COASTING", "LOST"]
    frames = []
    for index, digit in enumerate(states, start):
        state = names[int(digit)]
        has_box = state not in ("IDLE", "LOST")
        frames.append(
            {
                "index": index,
                "stamp": index / FPS,
                "stamp_ns": str(index * 1_000_000_000 // FPS),
                "state": state,
                "box": [60 + 2 * index, 80, 40, 30] if has_box else None,
                "measured": state in ("ACQUIRING", "TRACKING"),
                "presence": 0.9 if has_box else 0.1,
                "iou": 0.8,
                "velocity": [50.0, 0.0] if has_box else None,
            }
        )
    data = {"video": video, "fps": FPS, "width": 320, "height": 192, "frames": frames}
    path.write_text(json.dumps(data))
    return path
