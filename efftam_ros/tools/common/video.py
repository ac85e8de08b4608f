"""Writes H.264 videos that browsers can play."""

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

# The usual clock of MPEG. The period of every common frame rate is a whole number of its ticks.
TICKS_PER_S = 90_000


class VideoWriter:
    """Writes a video as H.264 (yuv420p), with the file's index first, as browsers need it. A context manager.

    The file gets its name when it is complete; until then an existing file of this name stays unchanged. If
    the width or height is odd, the last column or row is repeated, because yuv420p needs even sizes. Images
    may be unevenly spaced in time.
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
        """Open the file.

        ``width``, ``height``: px; ``fps``: nominal images per second; ``crf``: x264's quality, 0 (best) to
        51; ``pixel_ratio``: width of a pixel divided by its height, for players. Raises InputError if the
        file can't be written.
        """
        import av

        self.path, self.width, self.height = Path(path), width, height
        # Checked now, because FFmpeg opens the file only at the first frame.
        check_outputs([Output("", self.path, "video")])
        self._place = ExitStack()
        self._part = self._place.enter_context(replacing(self.path))
        try:
            self._container = av.open(str(self._part), "w", format="mp4", options={"movflags": "+faststart"})
        except av.error.FFmpegError as error:
            self._place.close()
            raise InputError(f"{self.path} can't be written ({error.strerror}); write it elsewhere") from None
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
        """Append an image.

        ``bgr``: uint8 [H, W, 3]; ``stamp_ns``: when it is shown, ns, from any origin. Raises ValueError for
        another size, and OSError if the file can't be written.
        """
        import av

        if bgr.shape != (self.height, self.width, 3):
            raise ValueError(f"the frame's shape is {bgr.shape}; it must be ({self.height}, {self.width}, 3)")
        if self.width % 2 or self.height % 2:
            bgr = np.pad(bgr, ((0, self.height % 2), (0, self.width % 2), (0, 0)), mode="edge")
        if self._first_ns is None:
            self._first_ns = stamp_ns
        frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(bgr), format="bgr24")
        # The encoder needs increasing times. A stamp that does not increase becomes one tick after the last
        # one.
        ticks = round((stamp_ns - self._first_ns) * TICKS_PER_S / NS)
        self._last_pts = frame.pts = max(ticks, self._last_pts + 1)
        frame.time_base = Fraction(1, TICKS_PER_S)
        self._mux(frame)

    def close(self) -> None:
        """Finish the file and give it its name. Without any image, or after an error, no file is written.

        Raises OSError if the file can't be finished; an existing file of the name then stays unchanged.
        """
        if self._is_closed:
            return
        self._is_closed = True
        is_wanted = self._first_ns is not None and not self._has_failed
        with self._place:
            if is_wanted:
                self._mux(None)
            # After an error FFmpeg raises the same error again here. The error was raised already by `_mux`.
            with suppress(OSError) if self._has_failed else nullcontext():
                self._container.close()
            if not is_wanted and self._part.is_file():
                self._part.unlink()

    def _mux(self, frame: Any) -> None:
        import av

        try:
            self._container.mux(self._stream.encode(frame))
        except (OSError, av.error.FFmpegError) as error:
            # If the header could not be written, FFmpeg would crash at the next frame. So no more is written.
            self._has_failed = True
            raise OSError(error.errno, error.strerror, str(self.path)) from None

    def __enter__(self) -> VideoWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
