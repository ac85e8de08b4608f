"""Reads live streams with PyAV: RTSP, MPEG-TS over UDP, V4L2 devices, and files in real time."""

from __future__ import annotations

import re
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from efftam_ros.core.config import CheckedSettings, setting
from efftam_ros.core.errors import InputError
from efftam_ros.images.levels import AUTO
from efftam_ros.images.limits import check_size
from efftam_ros.images.video import NS, VideoFrame, VideoSource, open_video

if TYPE_CHECKING:
    import av

# Pause before another attempt, s; doubled each time.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.25, 4.0
# Over which time the shortest delay is taken for the stream's own, and the step that starts it anew, ns.
DELAY_WINDOW_NS, DELAY_STEP_NS = 10 * NS, NS
# How far the system's clock may move against the steady one before stamps follow it, ns.
CLOCK_STEP_NS = 100_000_000
# What is read to find out what a stream is: the default of 5 s is a delay at each start.
PROBE = {"probesize": "500000", "analyzeduration": "500000"}
# UDP: the receiver's buffers, bytes and packets of 188 bytes; a burst that does not fit is lost, not fatal.
UDP = {"buffer_size": "2000000", "fifo_size": "50000", "overrun_nonfatal": "1"}
RTSP_TRANSPORTS = ("auto", "tcp", "udp")


def is_live(source: object) -> bool:
    """Whether this names a camera or stream: a number, a device, a URL; not a file or folder."""
    return isinstance(source, int) or re.match(r"\w+://|/dev/", str(source)) is not None


def open_source(source: str | int | Path, fps: float | None = None, levels: str = AUTO) -> VideoSource:
    """Open a camera, a stream, a video or a folder of images; see `open_video` for ``fps`` and
    ``levels``. Raises InputError."""
    if not isinstance(source, int) and not is_live(source):
        return open_video(source, fps, levels)
    if fps is not None:
        raise InputError(f"camera {source} has its own times; leave out the frame rate")
    return Camera(source if isinstance(source, int) else str(source))


@dataclass(frozen=True)
class CameraOptions(CheckedSettings):
    """How a stream is opened and decoded."""

    timeout: float = setting(
        2.0, "silence after which the stream is opened again, s; for the first data 5 s", within=(0.2, 60.0)
    )
    rtsp_transport: str = setting(
        "auto", "how RTSP sends its packets; auto: tcp, else udp", choices=RTSP_TRANSPORTS
    )
    hardware_decoder: str = setting(
        "off", "off, auto (the first that works here), or one of PyAV's devices such as cuda, vaapi, drm"
    )
    device_size: str = setting("", "V4L2: image size such as 1280x720; empty: the device's setting")
    device_fps: float = setting(0.0, "V4L2: images per second; 0: the device's setting", within=(0.0, 1000.0))
    device_format: str = setting("", "V4L2: pixel format such as mjpeg, yuyv422; empty: the device's setting")


class Camera:
    """A camera or stream; a `VideoSource`.

    ``frames`` yields the newest image each time and drops those in between; ``index`` counts them all. The
    stream is opened again, after growing pauses, when it ends or is silent.

    Stamps are ns since 1970: the stream's own times, which have no jitter, plus the shortest delay with which
    images arrived lately. They follow the system's clock only when it is set by more than 0.1 s.
    """

    note = ""
    count: int | None = None
    fps = 30.0  # of a video made of it; the images have their stamps

    def __init__(
        self, source: str | int, patience_s: float | None = 10.0, options: CameraOptions | None = None
    ) -> None:
        """Start to read.

        ``source``: number or path of a V4L2 device, URL, or a video file, which is played in real time, once.
        ``patience_s``: longest time without an image until the stream counts as ended; None: for ever.

        Raises InputError where it can't be opened, unless ``patience_s`` is None, and for a hardware decoder
        that is not there.
        """
        self._source = f"/dev/video{source}" if isinstance(source, int) else source
        self.name = re.sub(r"(?<=://)[^/@]+@", "***@", str(source))  # without a password
        self.path = Path(self.name)
        self._options, self._patience_s = options or CameraOptions(), patience_s
        self._hardware = _hardware(self._options.hardware_decoder)
        self._changed = threading.Condition()
        self._newest: tuple[int, int, av.VideoFrame] | None = None  # index, stamp, image
        self._stop = threading.Event()
        self.decoder = ""
        """Codec and decoder, once known."""
        self.damaged = 0
        """Packets that were damaged on the way or could not be decoded."""
        self.waiting_for = f"to open {self.name}"
        """What is waited for; empty while images come."""
        self._opened = threading.Event()
        self._reader = threading.Thread(target=self._read, name="camera", daemon=True)
        self._reader.start()
        if patience_s is not None:
            self._opened.wait()
            if self._stop.is_set():
                raise InputError(
                    f"camera {self.name} can't be opened: {self.waiting_for.rpartition(f'{self.name}: ')[2]};"
                    " check its name, that it is connected and sends, and that no other program uses it"
                )

    @property
    def width(self) -> int:
        """Of the newest image, px; waits for the first."""
        return self._after(-1, required=True)[2].width

    @property
    def height(self) -> int:
        return self._after(-1, required=True)[2].height

    def frames(self, start: int = 0) -> Iterator[VideoFrame]:
        """Yield images until the stream ends. Raises InputError if it never gave one, or too large ones."""
        index = start - 1
        try:
            newest = self._after(index, required=True)
            while newest is not None:
                index, stamp_ns, frame = newest
                check_size(frame.width, frame.height)
                yield VideoFrame(index, stamp_ns, np.ascontiguousarray(frame.to_ndarray(format="bgr24")))
                newest = self._after(index)
        finally:
            self.close()

    def close(self) -> None:
        """End the stream; idempotent. The connection itself may take until ``timeout`` to end."""
        self._stop.set()
        with self._changed:
            self._changed.notify_all()
        self._reader.join(self._options.timeout + 1.0)

    def _after(self, index: int, required: bool = False) -> Any:
        """Wait for an image later than that of ``index``; None at the end, or InputError if ``required``."""
        with self._changed:
            while self._newest is None or self._newest[0] <= index:
                if self._stop.is_set() or not self._changed.wait(self._patience_s):
                    if required:
                        raise InputError(
                            f"camera {self.name} gives no images: waiting {self.waiting_for}; try it with"
                            " another program"
                        )
                    return None
            return self._newest

    def _read(self) -> None:
        try:
            self._read_again_and_again()
        finally:
            self._stop.set()
            self._opened.set()
            with self._changed:
                self._changed.notify_all()

    def _read_again_and_again(self) -> None:
        import av

        indices, pause_s = count(), FIRST_PAUSE_S
        self._offset_ns = time.time_ns() - time.monotonic_ns()
        while not self._stop.is_set():
            before, is_open, is_over = self._newest, False, False
            try:
                with closing(self._open()) as container:
                    is_open = True
                    self._opened.set()
                    self.waiting_for = f"for a key frame of {self.name}"
                    self._receive(container, indices)
                    # A live stream states no length; one that does has ended.
                    is_over = bool(container.duration) and not self._stop.is_set()
                reason = "the stream ended"
            except av.error.ExitError:  # PyAV's time-out
                # Other packets, such as RTP, may well arrive there.
                is_foreign = self._source.startswith("udp:") and not is_open
                reason = "no MPEG-TS arrives" if is_foreign else "nothing arrives"
            except (av.error.FFmpegError, OSError, ValueError) as error:
                reason = getattr(error, "strerror", None) or str(error)
            pause_s = FIRST_PAUSE_S if self._newest is not before else min(2 * pause_s, LONGEST_PAUSE_S)
            self.waiting_for = f"for {self.name}: {reason}; the next attempt in {pause_s:g} s"
            # Without patience a name that is wrong would be tried for ever.
            if is_over or self._is_file or not (self._opened.is_set() or self._patience_s is None):
                self.waiting_for = f"no more: {self.name}: {reason}"
                self._stop.set()
            self._stop.wait(pause_s)

    @property
    def _is_file(self) -> bool:
        return not is_live(self._source)

    def _open(self) -> av.container.InputContainer:
        import av

        options: dict[str, str] = dict(PROBE)
        form = None
        given = self._options
        if self._source.startswith("udp:"):
            options |= UDP
        elif self._source.startswith("rtsp"):
            way = given.rtsp_transport
            options |= {"rtsp_flags": "prefer_tcp"} if way == "auto" else {"rtsp_transport": way}
        elif self._source.startswith("/dev/"):
            form = "v4l2"
            rate = f"{given.device_fps:g}" if given.device_fps else ""
            wanted = {
                "video_size": given.device_size,
                "framerate": rate,
                "input_format": given.device_format,
            }
            options |= {name: value for name, value in wanted.items() if value}
        elif self._is_file:
            options = {}
        more: dict[str, Any] = {} if self._hardware is None else {"hwaccel": self._hardware}
        timeout = (max(5.0, given.timeout), given.timeout)
        container = av.open(self._source, format=form, options=options, timeout=timeout, **more)
        if not container.streams.video:
            container.close()
            raise ValueError("it holds no video")
        return container

    def _receive(self, container: Any, indices: Iterator[int]) -> None:
        """Decode until the stream ends or `close`."""
        import av

        stream = container.streams.video[0]
        context = stream.codec_context
        # Threads by frame would hold back as many images as there are threads.
        stream.thread_type = "SLICE"
        context.flags |= av.codec.context.Flags.low_delay
        self.decoder = f"{context.name}, {'hardware' if context.is_hwaccel else 'software'}"
        clock = _ArrivalClock()
        began_ns: int | None = None
        backlog = None if container.duration else _Backlog()
        has_begun = False
        for packet in container.demux(stream):
            arrived_ns = time.monotonic_ns()
            self.damaged += packet.is_corrupt
            try:
                decoded = packet.decode()
            except av.error.InvalidDataError:
                self.damaged += 1
                continue
            # Of H.265 each packet gives an image; what can't be decoded, or needs what was lost, gives none.
            self.damaged += has_begun and not decoded and context.name == "hevc" and packet.size > 0
            has_begun = has_begun or bool(decoded)
            for frame in decoded:
                base = frame.time_base or stream.time_base
                own_ns = None if frame.pts is None or base is None else round(frame.pts * base * NS)
                if self._is_file and own_ns is not None:
                    began_ns = arrived_ns - own_ns if began_ns is None else began_ns
                    self._stop.wait((began_ns + own_ns - time.monotonic_ns()) / NS)
                    arrived_ns = time.monotonic_ns()
                if backlog is not None and not backlog.is_over(own_ns, arrived_ns):
                    continue
                self._put((next(indices), self._system_ns(clock.stamp_ns(own_ns, arrived_ns)), frame))
            if self._stop.is_set():
                return

    def _put(self, newest: tuple[int, int, av.VideoFrame]) -> None:
        self.waiting_for = ""
        with self._changed:
            self._newest = newest
            self._changed.notify_all()

    def _system_ns(self, steady_ns: int) -> int:
        offset_ns = time.time_ns() - time.monotonic_ns()
        if abs(offset_ns - self._offset_ns) > CLOCK_STEP_NS:
            self._offset_ns = offset_ns
        return steady_ns + self._offset_ns


class _Backlog:
    """What was read to find out what a stream is comes at once, so no delay is learnt from it.

    It is over once this many images in a row took at least half of their own time to arrive after the one
    before; a single one may have waited for a busy processor.
    """

    IN_A_ROW = 3

    def __init__(self) -> None:
        self._before: tuple[int | None, int] | None = None
        self._count = 0

    def is_over(self, own_ns: int | None, arrived_ns: int) -> bool:
        if self._before is not None and self._count < self.IN_A_ROW:
            own_before_ns, arrived_before_ns = self._before
            own_step_ns = 0 if own_ns is None or own_before_ns is None else own_ns - own_before_ns
            self._count = self._count + 1 if arrived_ns - arrived_before_ns >= own_step_ns / 2 else 0
        self._before = own_ns, arrived_ns
        return self._count >= self.IN_A_ROW


class _ArrivalClock:
    """Puts a stream's own times on the clock of arrival: the shortest delay of the last 10 s is taken for
    all, so that what the network delays by chance does not move stamps."""

    def __init__(self) -> None:
        self._delays: deque[tuple[int, int]] = deque()  # arrival and delay; both grow
        self._last_ns = 0

    def stamp_ns(self, own_ns: int | None, arrived_ns: int) -> int:
        """The stamp of an image of the stream's time ``own_ns``; stamps grow and are never after the
        arrival."""
        if own_ns is None:
            return arrived_ns
        delays, delay_ns = self._delays, arrived_ns - own_ns
        if delays and delay_ns - delays[0][1] > DELAY_STEP_NS:
            delays.clear()  # the stream's clock was set
        while delays and delays[-1][1] >= delay_ns:
            delays.pop()
        delays.append((arrived_ns, delay_ns))
        while delays[0][0] < arrived_ns - DELAY_WINDOW_NS:
            delays.popleft()
        self._last_ns = max(own_ns + delays[0][1], self._last_ns + 1)
        return min(self._last_ns, arrived_ns)


def _hardware(name: str) -> Any:
    """PyAV's hardware decoder of this name; None for ``off``, and for ``auto`` where none works."""
    if name == "off":
        return None
    from av import Codec
    from av.codec.hwaccel import HWAccel, hwdevices_available

    built = hwdevices_available()
    if name != "auto" and name not in built:
        raise InputError(
            f"hardware_decoder is {name!r}, this PyAV has {', '.join(built) or 'none'}; take one, auto or off"
        )
    reason = ""
    for device in built if name == "auto" else [name]:
        try:
            HWAccel(device, allow_software_fallback=False).create(Codec("h264", "r"))
        except (OSError, ValueError, NotImplementedError, RuntimeError) as error:
            reason = str(error)
            continue
        return HWAccel(device)
    if name != "auto":
        raise InputError(f"hardware_decoder {name} does not work here ({reason}); take auto or off")
    return None
