"""Decodes the packets of a track, and knows which images are whole and when each is shown."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from efftam_ros.images.stills.exif import AS_STORED, orientation_of
from efftam_ros.images.stills.jpeg import is_baseline, jpeg_end, without_metadata
from efftam_ros.images.streams.h264 import PictureNumbers
from efftam_ros.images.streams.hevc import LeadingPictures
from efftam_ros.images.streams.opening import rate_of

if TYPE_CHECKING:
    import av

NS = 1_000_000_000
# So long images that need a lost one are left out where no key frame comes: a stream that is refreshed piece
# by piece has none.
LONGEST_DAMAGE_NS = 2 * NS
# Longest step between two images that counts as time that passed since the damage.
LONGEST_STEP_NS = NS
STRICT = {"err_detect": "explode"}
# A decoder shows at most so many images before one that was sent before them (ITU-T H.264, H.265), and with
# threads holds back as many packets again.
MAX_REORDERED = 32


@dataclass(frozen=True)
class DecodedImage:
    """An image in the order of display.

    ``index``: its place, which counts the images that are missing; ``number``: of its packet, in the order of
    decoding; ``own_ns``: the time of display that the stream gives it; None where it gives none; ``sent_ns``:
    the decoding time of the packet that completed it, or None.
    """

    frame: av.VideoFrame
    is_whole: bool
    index: int
    number: int
    own_ns: int | None = None
    sent_ns: int | None = None


class ImageDecoder:
    """Decodes the packets of one track and marks which images are whole.

    Decoders show images that need a lost one torn, with an error at most for the first. Here those are left
    out, until the next key frame, at most for `LONGEST_DAMAGE_NS`.
    """

    def __init__(self, stream: Any) -> None:
        """Before the stream's first packet is decoded."""
        from av.codec.context import Flags, ThreadType

        context = stream.codec_context
        # The image of a packet then bears what the packet does.
        context.flags |= Flags.copy_opaque
        self._pictures = PictureNumbers(context.extradata) if context.name == "h264" else None
        self._leading = LeadingPictures(context.extradata) if context.name == "hevc" else None
        self._jpegs = _JpegDecoder(context) if context.name == "mjpeg" else None
        self._has_frame_threads = bool(context.thread_type & ThreadType.FRAME)
        # With these codecs each packet gives an image.
        self._counts_missing = context.name in ("hevc", "mjpeg")
        self._period_ns = round(NS / rate_of(stream, is_timed=True))
        self._base: Fraction | None = stream.time_base
        self._damaged_from: int | None = None  # number of the first packet that is lost
        self._damaged_ns = 0  # since then
        self._tolerates = self._was_marked = False
        self._bad: set[int] = set()  # numbers of damaged packets
        self._owed: set[int] = set()  # numbers of packets whose image has not come
        self._undecoded = 0  # of these, those that gave an error
        self._index = 0  # of the next image
        self._first: int | None = None  # number of the first image in the order of decoding
        self._last = -1  # largest number of an image so far
        self._last_ns: int | None = None
        self.damaged = 0
        """Packets that are damaged, can't be decoded, or before which one is missing."""
        self.left_out = 0
        """Images that need them."""
        self.packets = 0
        """Packets of images, whole or not."""

    @property
    def exif_orientation(self) -> int:
        """That of the first JPEG, see `orientation_of`."""
        return AS_STORED if self._jpegs is None else self._jpegs.orientation

    def decode(self, packet: Any) -> list[DecodedImage]:
        """Return the images that this packet completes; those that are left, for the empty packet at the
        end."""
        import av

        number, data = self.packets, bytes(packet) if packet.size else b""
        packet.opaque = number, _ns(packet.dts, packet.time_base or self._base)
        if data:
            self.packets += 1
            self._look_at(packet, data, number)
        try:
            frames: list[av.VideoFrame] = self._frames(packet, data)
        except av.error.InvalidDataError:
            frames = []
            if data:
                self._undecoded += number in self._owed
                self._index += 1
                self.left_out += self._jpegs is not None
                # With threads it is another packet: that of the image which comes next.
                self._begin_damage(min(number, self._last + 1) if self._has_frame_threads else number)
        found = [self._image(frame) for frame in frames]
        if self._counts_missing:
            self._count_missing(is_over=not data)
        return found

    def _look_at(self, packet: Any, data: bytes, number: int) -> None:
        """Note whether a packet is lost or damaged, and whether it owes an image."""
        # FFmpeg's parsers hold back an image, so that of MPEG-TS it may be the one before that is marked.
        is_lost, self._was_marked = packet.is_corrupt or self._was_marked, packet.is_corrupt
        if self._pictures is not None:
            is_lost |= self._pictures.lacks(data)
        is_hidden = packet.is_discard or (self._leading is not None and self._leading.is_left_out(data))
        if self._counts_missing and not is_hidden:
            self._owed.add(number)
        if is_lost:
            self._bad.add(number)
            self._begin_damage(number)

    def _frames(self, packet: Any, data: bytes) -> list[Any]:
        return packet.decode() if self._jpegs is None else self._jpegs.decode(packet, data)

    def _begin_damage(self, number: int) -> None:
        self.damaged += 1
        if self._damaged_from is None:
            self._damaged_from, self._damaged_ns = number, 0

    def _image(self, frame: av.VideoFrame) -> DecodedImage:
        # Some hardware decoders do not pass it on; they show images as they come.
        carried: Any = frame.opaque or (self._last + 1, None)
        number, decoded_ns = carried
        own_ns = _ns(frame.pts, frame.time_base or self._base)
        own_ns = decoded_ns if own_ns is None else own_ns
        is_whole = self._is_whole(frame, number, own_ns)
        self._owed.discard(number)
        index = number if self._jpegs is not None else self._index
        self._index = index + 1
        self._first = number if self._first is None else min(self._first, number)
        self._last = max(self._last, number)
        sent_ns = _ns(frame.dts, frame.time_base or self._base)
        return DecodedImage(frame, is_whole, index, number, own_ns, sent_ns)

    def _is_whole(self, frame: av.VideoFrame, number: int, own_ns: int | None) -> bool:
        self._damaged_ns += self._step_ns(own_ns)
        is_corrupt = frame.is_corrupt or number in self._bad
        self._bad.discard(number)
        if is_corrupt and self._damaged_from is None and not self._tolerates:
            self._damaged_from, self._damaged_ns = number, 0
        if frame.key_frame and not is_corrupt and number >= (self._damaged_from or number):
            self._damaged_from, self._tolerates = None, False
        elif self._damaged_from is not None and self._damaged_ns > LONGEST_DAMAGE_NS:
            self._damaged_from, self._tolerates = None, True
        is_whole = self._damaged_from is None or number < self._damaged_from
        self.left_out += not is_whole
        return is_whole

    def _step_ns(self, own_ns: int | None) -> int:
        """Return the time since the image before, or the stream's period where its times do not give that."""
        last_ns, self._last_ns = self._last_ns, own_ns
        step_ns = 0 if own_ns is None or last_ns is None else own_ns - last_ns
        return step_ns if 0 < step_ns < LONGEST_STEP_NS else self._period_ns

    def _count_missing(self, is_over: bool) -> None:
        """Count the packets whose image would have come by now."""
        due = self._last + 1 if is_over else self._last - MAX_REORDERED
        for number in [n for n in self._owed if is_over or n < due]:
            self._owed.discard(number)
            if self._first is None or number < self._first:
                continue  # sent before the first key frame
            if self._undecoded:
                self._undecoded -= 1
            else:
                self._index += 1
                self.damaged += 1
                self.left_out += 1


class _JpegDecoder:
    """Decodes JPEGs, and raises InvalidDataError for one that was cut off.

    FFmpeg's decoder fills what is missing with grey. Asked to be strict it reports an error, also for a fault
    of the metadata, which therefore are taken away first. A camera whose first JPEG is whole and has
    another fault is not decoded strictly: of its images those without an end are refused.
    """

    def __init__(self, context: Any) -> None:
        self._context = context
        context.thread_type = "SLICE"  # with others an error is that of an earlier packet
        self._is_strict: bool | None = None  # decided by the first image
        self.orientation = AS_STORED

    def decode(self, packet: Any, data: bytes) -> list[Any]:
        import av

        if not data:
            return list(packet.decode())
        has_end = jpeg_end(data) is not None
        bare = av.Packet(without_metadata(data))
        if self._is_strict is None:
            self._is_strict = not has_end or _is_decoded_strictly(bare)
            self.orientation = orientation_of(data)
            self._context.options = STRICT if self._is_strict else {}
        if not has_end and not (self._is_strict and is_baseline(data)):
            raise av.error.InvalidDataError(0, "the JPEG has no end")
        bare.time_base = packet.time_base
        frames: list[Any] = self._context.decode(bare)
        for frame in frames:
            # Behind a broken image the decoder gives the next one that one's properties.
            frame.pts, frame.dts, frame.opaque = packet.pts, packet.dts, packet.opaque
        return frames


def _is_decoded_strictly(packet: Any) -> bool:
    import av

    context = av.CodecContext.create("mjpeg", "r")
    context.options = STRICT
    try:
        return bool(context.decode(packet) + context.decode(None))
    except av.error.InvalidDataError:
        return False


def _ns(time: int | None, base: Fraction | None) -> int | None:
    return None if time is None or not base else round(time * base * NS)
