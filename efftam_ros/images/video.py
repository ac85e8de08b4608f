"""Reads the images of video files, each with its stamp, and opens videos and still pictures."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.errors import InputError, safe_address
from efftam_ros.images.file_kinds import command_for, is_bag
from efftam_ros.images.levels import AUTO, Levels, fixed_range
from efftam_ros.images.source import NS, Report, VideoFrame, VideoSource, checked_rate, no_report
from efftam_ros.images.stills.exif import exif_note
from efftam_ros.images.stills.folder import StillPictures
from efftam_ros.images.stills.pages import begins_with_jpeg, is_still
from efftam_ros.images.streams.decoding import DecodedImage, ImageDecoder
from efftam_ros.images.streams.frames import bgr_of, orientation, orientation_note, oriented
from efftam_ros.images.streams.opening import (
    DEFAULT_TRACK,
    TIMES_RESTART,
    UNTIMED_OPTIONS,
    choose_track,
    file_url,
    has_times,
    rate_of,
)
from efftam_ros.images.streams.times import AHEAD, FileTimes

if TYPE_CHECKING:
    import av

ADDRESS_TIMEOUT_S = 10.0
INDEX_FIRST = "write the file's index at its beginning (ffmpeg -i IN -c copy -movflags +faststart OUT)"
# If this many packets at the beginning all have the same time, the stream is treated as if it had no times.
LOOKED_AT = 16
# If images have more pixels than this, only half the usual number of images is decoded ahead, to limit the
# memory.
MANY_PIXELS = 2**24
# A file is truncated if it ends more than this many frame periods before the end that its header declares.
CUT_PERIODS = 2.5
# If only the duration of the whole file is known, a difference below this, ns, is no truncation, because
# tracks may end a little before the file.
MIN_CUT_NS = 250_000_000


def open_video(
    path: str | Path,
    fps: float | None = None,
    levels: str = AUTO,
    track: int = DEFAULT_TRACK,
    report: Report = no_report,
) -> VideoSource:
    """Open a video file, a folder of images or a file of still pictures.

    ``fps``: images per second, which then gives the stamps. With None a video has its own stamps; a folder
    has 30 images per second; a video without times has the rate that its codec states, or 25. ``levels``: the
    range of 16-bit images, see `fixed_range`. ``track``: number of the video track in the file. ``report`` is
    called with a line on damage and on wrong times, when the reading ends.

    Raises InputError: missing path, no images, unreadable file, no such track.
    """
    path = Path(path)
    fixed_range(levels)
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise InputError(f"{path} is a pipe or device; give a video file, a folder of images or an address")
    if is_bag(path):
        raise InputError(
            f"{path} is a bag, not a video; to track in it, run: efftam replay {path} --out RESULTS"
        )
    if other := command_for(path):
        raise InputError(other)
    if not path.exists():
        raise InputError(f"{path} does not exist; give a video file or a folder of images")
    if path.is_dir() or is_still(path):
        return StillPictures(path, fps, levels, report)
    return VideoFile(path, levels, fps, track, report)


class VideoFile:
    """A `VideoSource` that reads a video by PyAV, from a file or an address.

    Stamps are the container's presentation times, also at a variable frame rate; the first is 0 or later.
    Wrong times are replaced, see `FileTimes`. If the container has no times, or ``fps`` is given, image i has
    the stamp i / ``fps``.
    """

    def __init__(
        self,
        source: str | Path,
        levels: str = AUTO,
        fps: float | None = None,
        track: int = DEFAULT_TRACK,
        report: Report = no_report,
    ) -> None:
        self._source, self.name = str(source), safe_address(str(source))
        self.path, self._levels, self._track, self._report = Path(self.name), levels, track, report
        self._given = None if fps is None else checked_rate(fps)
        self.is_whole = False
        """Whether the last call of `frames` read the track to its end, and no image was damaged."""
        with self._open() as container:
            stream, self._choice = choose_track(container, track, self.name)
            self._is_timed = has_times(container, stream)
            self.count = stream.frames or None
            self.pixel_ratio = stream.sample_aspect_ratio or Fraction(1)
            decoder = ImageDecoder(stream)
            first = self._look(container, stream, decoder)
            self.fps = self._given or float(rate_of(stream, self._is_timed))
            self._begins_ns, self._exif = first.own_ns, decoder.exif_orientation
            self._turn = orientation(first.frame, self.name)
            self.width, self.height = first.frame.width, first.frame.height
            if self._turn[0]:
                self.width, self.height = self.height, self.width
                self.pixel_ratio = 1 / self.pixel_ratio

    def _look(self, container: Any, stream: Any, decoder: ImageDecoder) -> DecodedImage:
        """Return the first image, and detect whether the packets have different times.

        Raises InputError if there is no image.
        """
        first, times = None, []
        for packet in self._packets(container, stream):
            if packet.size:
                times.append(packet.dts if packet.pts is None else packet.pts)
            if first is None:
                first = next(iter(decoder.decode(packet)), None)
            elif len(times) >= LOOKED_AT:
                break
        if first is None:
            raise InputError(f"{self.name} holds no frame; check that the recording is complete")
        self._is_timed &= len(times) < 2 or len({time for time in times if time is not None}) > 1
        return first

    @property
    def note(self) -> str:
        notes = [self._choice, orientation_note(*self._turn), exif_note(self._exif)]
        if self._given is None and not self._is_timed:
            notes.append(
                f"has no time stamps: {self.fps:g} images per second are assumed; if that is wrong, give"
                " --fps"
            )
        elif self._given is None and self._begins_ns is not None and self._begins_ns < 0:
            notes.append(f"its times begin at {self._begins_ns / NS:.3f} s: they are shifted to begin at 0")
        return "; ".join(filter(None, notes))

    def frames(self, start: int = 0) -> Iterator[VideoFrame]:
        self.is_whole = False
        with self._open() as container:
            stream, _ = choose_track(container, self._track, self.name)
            stream.thread_type = "AUTO"
            levels, decoder = Levels(self._levels), ImageDecoder(stream)
            images = (i for packet in self._packets(container, stream) for i in decoder.decode(packet))
            times = self._times(stream)
            stamped = (
                ((round(image.index * NS / self.fps), image) for image in images)
                if self._given is not None or not self._is_timed
                else times.stamped(images)
            )
            try:
                for stamp_ns, image in stamped:
                    if image.index >= start and image.is_whole:
                        yield VideoFrame(image.index, stamp_ns, self._bgr(image, levels, stamp_ns))
                self._check_complete(decoder, times, container, stream)
                self.is_whole = not decoder.damaged
            except InputError:
                decoder.damaged = 0  # only the error is reported, without a second line on damage
                raise
            finally:
                if decoder.damaged:
                    self._report(f"{self.name}: {damage_text(decoder, 'copy or record it again')}")
                if note := times_text(times):
                    self._report(f"{self.name}: {note}")

    def _times(self, stream: Any) -> FileTimes:
        base, start = stream.time_base, stream.start_time
        start_ns = None if start is None or not base else round(start * base * NS)
        # Images that are decoded ahead are kept in memory, which very large images could fill.
        ahead = AHEAD if self.width * self.height <= MANY_PIXELS else AHEAD // 2
        return FileTimes(round(NS / self.fps), start_ns, ahead)

    def _bgr(self, image: DecodedImage, levels: Levels, stamp_ns: int) -> NDArray[np.uint8]:
        bgr = oriented(image.frame, bgr_of(image.frame, levels, stamp_ns), self.name)
        if bgr.shape != (self.height, self.width, 3):
            raise InputError(
                f"{self.name}: frame {image.index} is {bgr.shape[1]}x{bgr.shape[0]} px, the first one"
                f" {self.width}x{self.height} px; cut the video where its size changes"
            )
        return bgr

    def _check_complete(self, decoder: ImageDecoder, times: FileTimes, container: Any, stream: Any) -> None:
        """Raise InputError if the file is truncated. FFmpeg reads a truncated file without an error.

        A file with an index is truncated if the index lists more frames than there are packets, and the track
        also ends before its declared duration. The number alone proves nothing, because edit lists may hide
        frames that are in the index. A file without an index is truncated if all tracks end before the
        duration that its header declares.
        """
        last_ns, base = times.reached_ns, stream.time_base
        if last_ns is None or not self._is_timed or container.format.flags & TIMES_RESTART:
            return
        least_ns = CUT_PERIODS * NS / self.fps
        if self.count is not None and stream.duration is not None:
            if decoder.packets >= self.count:
                return
            begin_ns = round((stream.start_time or 0) * base * NS)
            promised_ns = round(stream.duration * base * NS)
        elif container.duration:
            last_ns = max(last_ns, *self._ends_ns.values())
            least_ns = max(least_ns, MIN_CUT_NS)
            begin_ns = 1000 * (container.start_time or 0)
            # Some containers count the duration from the first image, others from 0. Take the earlier end.
            promised_ns = 1000 * container.duration - max(0, begin_ns)
        else:
            return
        there_ns = last_ns - begin_ns
        if there_ns + least_ns < promised_ns:
            images = decoder.packets if self.count is None else f"{decoder.packets} of {self.count}"
            raise InputError(
                f"{self.name} ends after {images} frames ({there_ns / NS:.1f} of {promised_ns / NS:.1f} s); "
                "the file is truncated, copy it again"
            )

    def _open(self) -> av.container.InputContainer:
        import av

        is_address = "://" in self._source and not Path(self._source).exists()
        name = self._source if is_address else file_url(self._source)
        # Without this format, FFmpeg could take a file of many JPEGs for a single picture, because of its
        # name.
        form = None if is_address or not begins_with_jpeg(self._source) else "jpeg_pipe"
        timeout = ADDRESS_TIMEOUT_S if is_address else None
        try:
            return av.open(name, format=form, options=UNTIMED_OPTIONS, timeout=timeout)
        except (av.error.FFmpegError, OSError) as error:
            raise InputError(
                f"{self.name} is not a readable video ({_reason(error)}); convert it with ffmpeg"
            ) from None

    def _packets(self, container: Any, stream: Any) -> Iterator[Any]:
        """Yield the packets of the track, and store the end of each track's last packet in `_ends_ns`.

        Raises InputError if the file can't be read further.
        """
        import av

        self._ends_ns: dict[int, int] = {}
        done = 0
        try:
            for packet in container.demux():
                if packet.pts is not None and packet.time_base:
                    end_ns = round((packet.pts + (packet.duration or 0)) * packet.time_base * NS)
                    self._ends_ns[packet.stream.index] = end_ns
                if packet.stream.index == stream.index:
                    yield packet
                    done += packet.size > 0
        except (av.error.FFmpegError, OSError) as error:
            remedy = "repair the file, or cut it before this frame"
            if not done and self._source.startswith("http"):
                remedy = f"the server may send no parts of files: copy the file here, or {INDEX_FIRST}"
            raise InputError(
                f"{self.name} can't be read after frame {done} ({_reason(error)}); {remedy}"
            ) from None


def damage_text(of: Any, remedy: str) -> str:
    """Return a line on damaged packets, with the remedy. ``of``: the `ImageDecoder` or `Camera` that counted
    them."""
    return (
        f"damaged or lost packets: {of.damaged}; {of.left_out} images that need them are left out: {remedy}"
    )


def times_text(times: FileTimes) -> str:
    """Return a line on the times of a file that were replaced or shifted; empty if none were."""
    found = []
    if times.mended:
        found.append(
            f"{times.mended} images have no time or a wrong time; they get times between those of their"
            " neighbours"
        )
    if times.restarts:
        found.append(
            f"its times begin anew or step back at {times.restarts} places; the later times are shifted"
        )
    return "; ".join(found) + "; if you need evenly spaced times, give --fps" if found else ""


def _reason(error: Exception) -> str:
    """Return an error's text without the source's name, which may contain a password."""
    return str(getattr(error, "strerror", None) or type(error).__name__)
