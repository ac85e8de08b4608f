"""Reads images with PyAV from RTSP, MPEG-TS over UDP and V4L2 devices, and plays video files in real time."""

from __future__ import annotations

import re
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from fractions import Fraction
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from efftam_ros.core.config import CheckedSettings, setting
from efftam_ros.core.errors import InputError, one_line, safe_address
from efftam_ros.images.headers import check_size
from efftam_ros.images.levels import AUTO, Levels
from efftam_ros.images.source import NS, Report, VideoFrame, VideoSource, no_report
from efftam_ros.images.stills.exif import exif_note
from efftam_ros.images.streams.arrival import ArrivalClock
from efftam_ros.images.streams.decoding import DecodedImage, ImageDecoder
from efftam_ros.images.streams.frames import bgr_of, orientation, orientation_note, oriented
from efftam_ros.images.streams.opening import (
    DEFAULT_TRACK,
    UNTIMED_OPTIONS,
    choose_track,
    file_url,
    has_times,
    rate_of,
)
from efftam_ros.images.streams.times import DisplayOrder, FileTimes
from efftam_ros.images.video import VideoFile, damage_text, open_video, times_text

if TYPE_CHECKING:
    import av

# First and longest pause before a stream is opened again, s. Each failed attempt doubles the pause.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.25, 4.0
# If no image arrives for this time, s, one line reports what the camera waits for.
QUIET_S = 3.0
# Stamps follow the system clock only after it moved by more than this against the steady clock, ns.
CLOCK_STEP_NS = 100_000_000
# FFmpeg reads at most this many bytes and microseconds to detect the streams. Its default of 5 s would delay
# each start.
PROBE = {"probesize": "500000", "analyzeduration": "500000"}
# Sizes of the two UDP receive buffers: of the socket in bytes, of FFmpeg in packets of 188 bytes. A burst
# that does not fit is lost, but does not end the stream.
UDP = {"buffer_size": "2000000", "fifo_size": "50000", "overrun_nonfatal": "1"}
# FFmpeg opens an .sdp file only with a list of the protocols that the file may name.
SDP = {"protocol_whitelist": "file,udp,rtp,tcp,crypto"}
# FFmpeg's formats of playlists, and the option to begin with the newest segment. A playlist delivers all
# images of a segment at once, so each image is held back until its time in the stream is reached.
SEGMENTED, SEGMENTS = ("hls", "dash"), {"live_start_index": "-1"}
# If an image of a playlist or video file is late by more than this, ns, it is shown at once, and the
# following images keep their distance in time from it.
PLAYED_STEP_NS = NS
RTSP_TRANSPORTS = ("auto", "tcp", "udp")


Arrived = tuple[int, DecodedImage]
"""The time of arrival on the steady clock, ns, and the image."""


def is_live(source: object) -> bool:
    """Return whether ``source`` names a camera or a stream.

    True for a number, a device, an address, and the description of an RTP stream (.sdp). False for a file or
    folder that exists, whatever its name. An address may also lead to a finished video. Only `open_source`,
    which opens the address, can detect this.
    """
    if isinstance(source, int):
        return True
    text = str(source)
    if text.lower().endswith(".sdp"):
        return True
    is_address = re.match(r"\w[\w+.-]*://|/dev/", text) is not None and not text.startswith("file:")
    return is_address and not _is_path(text)


def local_path(source: str | Path) -> Path:
    """Return the path of a file that is given as a path or as a URL file://..."""
    text = str(source)
    is_url = text.startswith("file:") and not _is_path(text)
    return Path(url2pathname(urlsplit(text).path)) if is_url else Path(source)


def _is_path(text: str) -> bool:
    """Return whether a file or folder of this name exists. False for a device."""
    try:
        return Path(text).is_file() or Path(text).is_dir()
    except (OSError, ValueError):
        return False


def open_source(
    source: str | int | Path,
    fps: float | None = None,
    levels: str = AUTO,
    track: int = DEFAULT_TRACK,
    report: Report = no_report,
) -> VideoSource:
    """Open a camera, a stream, a video or a folder of images; see `open_video` for the arguments.

    If an address leads to a finished video, every image is read, with the video's own times. From a live
    source only the newest image is taken each time. Raises InputError if the source can't be opened, and if
    ``fps`` is given for a live source.
    """
    if not isinstance(source, int) and not is_live(source):
        return open_video(local_path(source), fps, levels, track, report)
    shown_name = source if isinstance(source, int) else safe_address(str(source))
    refusal = InputError(
        f"camera {shown_name} is live: its images have their own times; leave out the frame rate"
    )
    if fps is not None and not str(source).startswith("http"):
        raise refusal
    options = CameraOptions(track=track)
    camera = Camera(source if isinstance(source, int) else str(source), options=options, report=report)
    if camera.has_end:
        camera.close()
        return VideoFile(str(source), levels, fps, track, report)
    if fps is not None:
        camera.close()
        raise refusal
    return camera


@dataclass(frozen=True)
class CameraOptions(CheckedSettings):
    """How a stream is opened and decoded."""

    timeout: float = setting(
        2.0,
        "the stream is opened again if nothing arrives for this time, s (at least 5 s for the first data)",
        within=(0.2, 60.0),
    )
    rtsp_transport: str = setting(
        "auto", "transport of an RTSP stream; auto: tcp if possible, else udp", choices=RTSP_TRANSPORTS
    )
    hardware_decoder: str = setting(
        "off", "off, auto (the first that works here), or one of PyAV's devices such as cuda, vaapi, drm"
    )
    track: int = setting(
        DEFAULT_TRACK, "number of the video track, from 0; -1: the stream's default track", within=(-1, 99)
    )
    device_size: str = setting("", "V4L2: image size such as 1280x720; empty: the device's setting")
    device_fps: float = setting(0.0, "V4L2: images per second; 0: the device's setting", within=(0.0, 1000.0))
    device_format: str = setting("", "V4L2: pixel format such as mjpeg, yuyv422; empty: the device's setting")


class Camera:
    """A `VideoSource` that reads a camera or a stream in a thread of its own.

    ``frames`` yields the newest image each time. It drops the images in between, and images that are damaged
    because packets were lost. The ``index`` of an image counts the dropped ones too. When the stream ends or
    sends nothing, it is opened again, after growing pauses. A finished video and a playlist arrive faster
    than real time. Each of their images is held back until its time in the stream is reached.

    Stamps are ns since 1970, see `ArrivalClock`. They follow the system's clock only after it has moved by
    more than 0.1 s against the steady clock.
    """

    note = ""
    count: int | None = None
    # Frame rate of a video file that is written from these images, images/s. The images' stamps are exact.
    fps = 30.0
    _ratio = Fraction(1)
    is_whole = False  # never True, because images between the newest ones are dropped

    def __init__(
        self,
        source: str | int,
        patience_s: float | None = 10.0,
        options: CameraOptions | None = None,
        report: Report = no_report,
    ) -> None:
        """Start the thread that reads the stream, and wait until the stream is open.

        ``source``: number or path of a V4L2 device, URL, or a video file, which is played in real time, once.
        ``patience_s``: longest time without an image, s, before the stream counts as ended. With None it
        never counts as ended, and this constructor does not wait. ``report``: function that is called with
        each notice on the stream (one line), usually by the reading thread. The same notice is reported only
        once.

        Raises InputError if the stream can't be opened, unless ``patience_s`` is None, and if the hardware
        decoder does not exist.
        """
        self._source = f"/dev/video{source}" if isinstance(source, int) else source
        if self._source.startswith("file:"):
            self._source = str(local_path(self._source))
        self.name = str(source) if isinstance(source, int) else safe_address(source)
        self.path = Path(self.name)
        self.options = options or CameraOptions()
        self._patience_s, self._report = patience_s, report
        self._reported: set[str] = set()
        self._hardware = _hardware(self.options.hardware_decoder)
        # A hardware decoder that the user named must decode: nothing falls back to software silently.
        self._requires_hardware = self.options.hardware_decoder not in ("off", "auto")
        self._changed = threading.Condition()
        self._newest: tuple[int, int, av.VideoFrame] | None = None  # index, stamp in ns, image
        self._ready_ns = 0  # time from which `_newest` may be used, ns on the steady clock
        self._levels = Levels()
        self._stop = threading.Event()
        self.decoder = ""
        """Names of the codec and of the kind of decoder, for people; empty until the stream is open."""
        self.damaged = self.left_out = 0
        """``damaged``: how many packets were lost, damaged or not decodable; ``left_out``: how many images
        were not shown because they need such a packet."""
        self.times = "the stream's own"
        """Source of the stamps, for people: the stream's own times or the times of arrival."""
        self.has_end = False
        """Whether the stream is a finished video; False while the stream is not open yet."""
        self.waiting_for = f"waiting to open {self.name}"
        """What the camera waits for, a text for people; empty while images arrive."""
        self._opened, self._refusal = threading.Event(), ""
        self._reader = threading.Thread(target=self._read, name="camera", daemon=True)
        self._reader.start()
        if patience_s is not None:
            if not self._opened.wait(QUIET_S):
                self._report_waiting()
                self._opened.wait()
            if self._refusal:
                raise InputError(self._refusal)
            if self._stop.is_set() and not self.has_end:
                raise InputError(
                    f"camera {self.name} can't be opened: {self.waiting_for.rpartition(f'{self.name}: ')[2]};"
                    " check the name, that the camera is connected and sends, and that no other program uses"
                    " the camera"
                )

    @property
    def remedy(self) -> str:
        """What a user can do against damaged images, one line."""
        live = "lower the camera's bit rate, or use TCP for RTSP (rtsp_transport)"
        return "copy or record it again" if self.has_end else live

    @property
    def width(self) -> int:
        """Width of the newest image after the rotation that its metadata require, px. Waits for the first
        image."""
        return self._size()[0]

    @property
    def height(self) -> int:
        return self._size()[1]

    @property
    def pixel_ratio(self) -> Fraction:
        """Width of a pixel divided by its height."""
        return self._ratio

    def _size(self) -> tuple[int, int]:
        frame = self._after(-1, required=True)[2]
        is_turned = orientation(frame, self.name)[0]
        return (frame.height, frame.width) if is_turned else (frame.width, frame.height)

    def frames(self, start: int = 0) -> Iterator[VideoFrame]:
        """Yield the newest image, again and again, until the stream ends.

        Raises InputError if no image arrives at all, or an image is too large.
        """
        index = start - 1
        try:
            newest = self._after(index, required=True)
            while newest is not None:
                index, stamp_ns, frame = newest
                check_size(frame.width, frame.height)
                pixels = bgr_of(frame, self._levels, stamp_ns)
                yield VideoFrame(index, stamp_ns, oriented(frame, pixels, self.name))
                newest = self._after(index)
        finally:
            self.close()
            if self.damaged:
                self._report_once(damage_text(self, self.remedy))

    def close(self) -> None:
        """Stop reading. May be called more than once. Returns after at most `CameraOptions.timeout` + 1 s.
        The reading thread may then still be in a call of FFmpeg (see `is_reading`)."""
        self._stop.set()
        with self._changed:
            self._changed.notify_all()
        self._reader.join(self.options.timeout + 1.0)

    @property
    def is_reading(self) -> bool:
        """Whether the reading thread still runs. After `close` this can be True, while a call of FFmpeg
        lasts."""
        return self._reader.is_alive()

    def _after(self, index: int, required: bool = False) -> Any:
        """Wait for an image with a larger index than ``index`` and return index, stamp (ns) and frame.

        At the end of the stream, or after `patience_s`: return None, or raise InputError if ``required``.
        """
        began_ns = time.monotonic_ns()
        give_up_ns = None if self._patience_s is None else began_ns + round(self._patience_s * NS)
        report_ns = began_ns + round(QUIET_S * NS) if required and give_up_ns is not None else None
        with self._changed:
            while True:
                now_ns = time.monotonic_ns()
                is_there = self._newest is not None and self._newest[0] > index
                if is_there and (now_ns >= self._ready_ns or self._stop.is_set()):
                    return self._newest
                if self._stop.is_set() or (give_up_ns is not None and now_ns >= give_up_ns):
                    if required:
                        raise InputError(
                            f"camera {self.name} gives no images: {self.waiting_for}; try the camera with"
                            " another program"
                        )
                    return None
                if report_ns is not None and now_ns >= report_ns:
                    self._report_waiting()
                    report_ns = None
                until_ns = self._ready_ns if is_there else report_ns or give_up_ns
                self._changed.wait(None if until_ns is None else max(0.0, (until_ns - now_ns) / NS))

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
            before, is_open = self._newest, False
            try:
                with closing(self._open()) as container:
                    stream, note = choose_track(container, self.options.track, self.name)
                    is_open = True
                    self.has_end = self._is_file or _has_end(container, self._source)
                    self._opened.set()
                    self._report_once(note)
                    self.waiting_for = f"waiting for a key frame of {self.name}"
                    self._receive(container, stream, indices)
                reason = "the stream ended"
            except av.error.ExitError:  # PyAV raises this after its time-out
                # FFmpeg ignores packets that are not MPEG-TS, such as RTP. So packets may arrive although
                # FFmpeg returns none.
                is_foreign = self._source.startswith("udp:") and not is_open
                reason = "no MPEG-TS arrives" if is_foreign else "nothing arrives"
            except InputError as refusal:
                self._refusal = reason = str(refusal)
                self._stop.set()
            except (av.error.FFmpegError, OSError, ValueError) as error:
                # Not `str(error)`: PyAV's text contains the address with its password.
                reason = getattr(error, "strerror", None) or one_line(error)
                if is_open and self._requires_hardware and isinstance(error, av.error.PermissionError):
                    # FFmpeg raises PermissionError if the device decodes the codec, but not this profile or
                    # size.
                    self._refusal = reason = self._no_hardware("the stream", reason)
                    self._stop.set()
            except Exception as error:
                reason = f"internal error ({type(error).__name__}: {error})"
                self._report_once(traceback.format_exc().rstrip())
            pause_s = FIRST_PAUSE_S if self._newest is not before else min(2 * pause_s, LONGEST_PAUSE_S)
            self.waiting_for = f"waiting for {self.name}: {reason}; the next attempt in {pause_s:g} s"
            # A source that could never be opened may have a wrong name. It is opened again only if
            # `patience_s` is None.
            if (
                self._refusal
                or self.has_end
                or self._is_file
                or not (self._opened.is_set() or self._patience_s is None)
            ):
                self.waiting_for = f"no more images of {self.name}: {reason}"
                self._stop.set()
            self._stop.wait(pause_s)

    def _report_once(self, line: str) -> None:
        """Report a line, unless it is empty or the same line was reported before."""
        if line and line not in self._reported:
            self._reported.add(line)
            self._report(f"{self.name}: {line}")

    def _report_waiting(self) -> None:
        """Report what the camera waits for, at most once. This is no error: images may still arrive."""
        if "waiting" not in self._reported:
            self._reported.add("waiting")
            self._report(f"{self.name}: {self.waiting_for}")

    @property
    def _is_file(self) -> bool:
        return not is_live(self._source)

    def _open(self) -> av.container.InputContainer:
        import av

        options: dict[str, str] = PROBE | UNTIMED_OPTIONS
        form, name = None, self._source
        given = self.options
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
            options = PROBE | {option: value for option, value in wanted.items() if value}
        elif self._source.lower().endswith(".sdp"):
            options |= SDP
            name = file_url(name)
        elif self._is_file:
            options = dict(UNTIMED_OPTIONS)
            name = file_url(name)
        else:
            options |= SEGMENTS
        more: dict[str, Any] = {} if self._hardware is None else {"hwaccel": self._hardware}
        timeout = (max(5.0, given.timeout), given.timeout)
        try:
            return av.open(name, format=form, options=options, timeout=timeout, **more)
        except RuntimeError as error:
            # PyAV raises this RuntimeError if the device decodes none of the streams.
            if self._requires_hardware and "no stream is compatible" in str(error):
                raise InputError(self._no_hardware("the stream", "no decoder for this codec")) from None
            raise

    def _no_hardware(self, what: str, why: str) -> str:
        """Return the error text that the named hardware decoder can't decode ``what``, with ``why`` and the
        remedy."""
        name = self.options.hardware_decoder
        return (
            f"{self.name}: hardware_decoder {name} can't decode {what} ({why}); have the camera send another"
            " codec or profile, or use auto or off"
        )

    def _receive(self, container: Any, stream: Any, indices: Iterator[int]) -> None:
        """Decode the images of an open stream until it ends or `close` is called."""
        import av

        context, form = stream.codec_context, container.format.name
        # With one thread for each frame the decoder would hold back as many images as there are threads.
        stream.thread_type = "SLICE"
        if not self.has_end:
            context.flags |= av.codec.context.Flags.low_delay
        if self._requires_hardware and not context.is_hwaccel:
            raise InputError(self._no_hardware(context.name, "no decoder for this codec"))
        self.decoder = f"{context.name}, {'hardware' if context.is_hwaccel else 'software'}"
        decoder, is_timed = ImageDecoder(stream), has_times(container, stream)
        images = self._decoded(container, stream, decoder)
        # An RTSP server sends even a finished video in real time, so its images are taken as they arrive.
        if form in SEGMENTED or (self.has_end and not form.startswith("rtsp")):
            self._play(images, stream, is_timed, indices)
        else:
            self._follow(images, stream, is_timed, indices)

    def _play(self, images: Iterator[Arrived], stream: Any, is_timed: bool, indices: Iterator[int]) -> None:
        """Show images that are read faster than real time, each when its time in the stream is reached."""
        player, period_ns = _Player(), round(NS / float(rate_of(stream, is_timed)))
        times = FileTimes(period_ns)
        read = (image for _, image in images)
        stamped: Iterator[tuple[int, DecodedImage]]
        if self.has_end and is_timed:
            stamped = times.stamped(read)
        else:
            # A stream without times does not need `FileTimes`. In a live playlist `FileTimes` would wait for
            # the images of the next segment.
            stamped = (
                (image.index * period_ns if image.own_ns is None else image.own_ns, image) for image in read
            )
        for own_ns, image in stamped:
            due_ns = player.due_ns(own_ns, time.monotonic_ns())
            self._stop.wait((due_ns - time.monotonic_ns()) / NS)
            self._put(next(indices), due_ns, image, 0)
        self._report_once(times_text(times))

    def _follow(self, images: Iterator[Arrived], stream: Any, is_timed: bool, indices: Iterator[int]) -> None:
        """Take the images of a live stream as they arrive, and give them stamps."""
        period_ns = round(NS / float(rate_of(stream, is_timed)))
        clock, order = ArrivalClock(is_timed), DisplayOrder()
        for number, (arrived_ns, image) in enumerate(images, start=1):
            own_ns = order.time_ns(image)
            if own_ns is None:
                is_timed, own_ns = False, number * period_ns
            stamp_ns = clock.stamp_ns(own_ns, arrived_ns)
            self._report_times(clock, is_timed)
            self._put(next(indices), stamp_ns, image, clock.ready_ns)

    def _decoded(
        self, container: Any, stream: Any, decoder: ImageDecoder
    ) -> Iterator[tuple[int, DecodedImage]]:
        """Yield the decoded images, each with its time of arrival (steady clock, ns), until `close` is
        called."""
        known, ratio = (self.damaged, self.left_out), stream.sample_aspect_ratio or Fraction(1)
        is_new = True
        for packet in container.demux(stream):
            arrived_ns = time.monotonic_ns()
            for image in decoder.decode(packet):
                if is_new:
                    turn = orientation(image.frame, self.name)
                    self._ratio = 1 / ratio if turn[0] else ratio
                    self._report_once(orientation_note(*turn))
                    self._report_once(exif_note(decoder.exif_orientation))
                    is_new = False
                yield arrived_ns, image
            self.damaged, self.left_out = known[0] + decoder.damaged, known[1] + decoder.left_out
            if self._stop.is_set():
                return

    def _report_times(self, clock: ArrivalClock, is_timed: bool) -> None:
        """Update the attribute `times`, and report when the stream's own times are corrected or not used."""
        if clock.own_rate is None and is_timed:
            self.times = "the stream's own"
            if clock.clock_steps:
                self.times += f", corrected by arrival where its clock stepped ({clock.clock_steps} times)"
                self._report_once(
                    "the stream's clock steps, or some times are wrong; such times are corrected by the"
                    " arrival"
                )
            return
        self.times = "arrival: the stream has no times"
        if is_timed and clock.own_rate is not None:
            self.times = f"arrival: the stream's times run at {clock.own_rate:.2f} of real time"
            self._report_once(
                "the stream's times do not run at the rate of the arrivals; stamps are computed from the"
                " arrivals: set the camera's frame rate"
            )

    def _put(self, index: int, stamp_ns: int, image: DecodedImage, ready_ns: int) -> None:
        """Make an image the newest, unless it is damaged.

        ``stamp_ns``: the image's stamp; ``ready_ns``: time from which the image may be used. Both are ns on
        the steady clock.
        """
        if not image.is_whole:
            return
        self.waiting_for = ""
        with self._changed:
            self._newest = index, self._system_ns(stamp_ns), image.frame
            self._ready_ns = ready_ns
            self._changed.notify_all()

    def _system_ns(self, steady_ns: int) -> int:
        offset_ns = time.time_ns() - time.monotonic_ns()
        if abs(offset_ns - self._offset_ns) > CLOCK_STEP_NS:
            self._offset_ns = offset_ns
        return steady_ns + self._offset_ns


class _Player:
    """Computes when to show images that are read faster than real time, from their times in the stream."""

    def __init__(self) -> None:
        self._began_ns: int | None = None
        self._last_ns = 0

    def due_ns(self, own_ns: int, now_ns: int) -> int:
        """Return the time on the steady clock, ns, at which to show the image with the stream's time
        ``own_ns``.

        ``now_ns``: present time on the steady clock. Results of successive calls grow.
        """
        began_ns = self._began_ns
        # The first image, and every image that is much too late (the network was too slow) or far too early
        # (its time jumped), is shown at once. Later images keep their distance from it.
        if began_ns is None or not -PLAYED_STEP_NS < began_ns + own_ns - max(now_ns, self._last_ns) < 10 * NS:
            began_ns = self._began_ns = now_ns - own_ns
        self._last_ns = max(began_ns + own_ns, self._last_ns + 1)
        return self._last_ns


def _has_end(container: Any, source: str) -> bool:
    """Return whether an open container is a finished video.

    A finished video states its duration, or its HTTP server states the size of the file.
    """
    is_playlist = container.format.name in SEGMENTED
    return bool(container.duration) or (source.startswith("http") and not is_playlist and container.size > 0)


def _hardware(name: str) -> Any:
    """Return PyAV's hardware decoder of this name. None for ``off``, and for ``auto`` if no decoder works
    here.

    Raises InputError if a decoder that is named does not exist or does not work.
    """
    if name == "off":
        return None
    from av import Codec
    from av.codec.hwaccel import HWAccel, hwdevices_available

    built = hwdevices_available()
    if name != "auto" and name not in built:
        raise InputError(
            f"hardware_decoder is {name!r}, but this PyAV has {', '.join(built) or 'none'}; use one of these,"
            " auto or off"
        )
    reason = ""
    for device in built if name == "auto" else [name]:
        try:
            HWAccel(device, allow_software_fallback=False).create(Codec("h264", "r"))
        except (OSError, ValueError, NotImplementedError, RuntimeError) as error:
            reason = str(error)
            continue
        return HWAccel(device, allow_software_fallback=name == "auto")
    if name != "auto":
        raise InputError(f"hardware_decoder {name} does not work here ({reason}); use auto or off")
    return None
