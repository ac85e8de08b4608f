"""Writes H.264 that browsers can play."""

from __future__ import annotations

from contextlib import ExitStack, nullcontext, suppress
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.errors import InputError
from efftam_ros.images.source import NS
from efftam_ros.tools.common.outputs import Output, check_outputs, replacing

# MPEG's usual clock: the period of every common frame rate is a whole number of ticks.
TICKS_PER_S = 90_000


class VideoWriter:
    """Writes H.264, yuv420p, with the index first, for browsers. A context manager.

    The file appears under its name when it is complete; until then an existing one stays. Frames are BGR
    uint8 [H, W, 3] of one size; for odd sizes the last column or row is repeated, because 4:2:0 needs even
    sizes. Stamps may be unevenly spaced. ``pixel_ratio``: width of a pixel by its height, for players.
    """

    def __init__(
        self,
        path: str | Path,
        width: int,
        height: int,
        fps: float,
        *,
        crf: int = 21,
        pixel_ratio: Fraction = Fraction(1),
    ) -> None:
        import av

        self.path, self.width, self.height = Path(path), width, height
        check_outputs([Output("", self.path, "video")])  # FFmpeg opens the file with the first frame
        self._place = ExitStack()
        self._part = self._place.enter_context(replacing(self.path))
        try:
            self._container = av.open(str(self._part), "w", format="mp4", options={"movflags": "+faststart"})
        except av.error.FFmpegError as error:
            self._place.close()
            raise InputError(f"{self.path} can't be written ({error.strerror})") from None
        rate = Fraction(fps).limit_denominator(1001)
        stream: Any = self._container.add_stream(
            "libx264", rate=rate, options={"crf": str(crf), "preset": "veryfast"}
        )
        stream.width, stream.height = width + width % 2, height + height % 2
        stream.pix_fmt = "yuv420p"
        stream.codec_context.sample_aspect_ratio = pixel_ratio
        stream.time_base = stream.codec_context.time_base = Fraction(1, TICKS_PER_S)
        self._stream = stream
        self._first_ns: int | None = None
        self._has_failed = self._is_closed = False
        self._last_pts = -1

    def write(self, bgr: NDArray[np.uint8], stamp_ns: int) -> None:
        """Append a frame, shown from ``stamp_ns`` on (any origin, increasing)."""
        import av

        if bgr.shape != (self.height, self.width, 3):
            raise ValueError(f"frame is {bgr.shape}, the video {self.height}x{self.width}")
        if self.width % 2 or self.height % 2:
            bgr = np.pad(bgr, ((0, self.height % 2), (0, self.width % 2), (0, 0)), mode="edge")
        if self._first_ns is None:
            self._first_ns = stamp_ns
        frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(bgr), format="bgr24")
        # The encoder needs strictly increasing times; a repeated stamp is shown for one tick.
        ticks = round((stamp_ns - self._first_ns) * TICKS_PER_S / NS)
        self._last_pts = frame.pts = max(ticks, self._last_pts + 1)
        frame.time_base = Fraction(1, TICKS_PER_S)
        self._mux(frame)

    def close(self) -> None:
        """Finish the file and move it to its place; without a frame, or after an error, no file is written.

        Raises OSError, leaving an existing file unchanged.
        """
        if self._is_closed:
            return
        self._is_closed = True
        is_wanted = self._first_ns is not None and not self._has_failed
        with self._place:
            if is_wanted:
                self._mux(None)
            # FFmpeg raises the first error again.
            with suppress(OSError) if self._has_failed else nullcontext():
                self._container.close()
            if not is_wanted and self._part.is_file():
                self._part.unlink()

    def _mux(self, frame: Any) -> None:
        import av

        try:
            self._container.mux(self._stream.encode(frame))
        except (OSError, av.error.FFmpegError) as error:
            # FFmpeg crashes where more is muxed into a file whose header could not be written.
            self._has_failed = True
            raise OSError(error.errno, error.strerror, str(self.path)) from None

    def __enter__(self) -> VideoWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
