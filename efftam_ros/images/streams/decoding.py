"""Decodes the packets of a video track, and finds the images that are damaged by lost packets."""

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
# Images that depend on a lost one are left out until the next key frame, but for this time at most, ns. Some
# streams have no key frames: they refresh the image piece by piece.
LONGEST_DAMAGE_NS = 2 * NS
# A step of this length or more between two images, ns, is a jump of the times. It counts as one period when
# LONGEST_DAMAGE_NS is measured.
LONGEST_STEP_NS = NS
# With this option FFmpeg's decoder reports an error at any fault of the data.
STRICT = {"err_detect": "explode"}
# The image of a packet counts as missing when the image of a packet this many places later has been decoded.
# H.264 and H.265 reorder at most 16 images, and the decoder's threads delay as many packets again.
MAX_REORDERED = 32


@dataclass(frozen=True)
class DecodedImage:
    """A decoded image.

    Attributes:
        frame: PyAV's frame.
        is_whole: False if the image is damaged or depends on a damaged one.
        index: Counts the images in the order of display, including missing images.
        number: Number of the image's packet. Packets are counted in the order of decoding.
        own_ns: The stream's time of display for this image, ns; None if there is none.
        sent_ns: Decoding time of the packet that made the decoder return the image, ns, or None.
    """

    frame: av.VideoFrame
    is_whole: bool
    index: int
    number: int
    own_ns: int | None = None
    sent_ns: int | None = None


class ImageDecoder:
    """Decodes the packets of one track, and marks each image as whole or damaged.

    If a packet is lost, FFmpeg returns torn images for all that depend on it, and reports an error only for
    the first or not at all. This class marks them as damaged until the next key frame, but at most for
    `LONGEST_DAMAGE_NS`.
    """

    def __init__(self, stream: Any) -> None:
        """Prepare the decoder of PyAV's ``stream``. No packet of the stream may have been decoded before."""
        from av.codec.context import Flags, ThreadType

        context = stream.codec_context
        # With this flag the attribute `opaque` of a packet is copied to the packet's image.
        context.flags |= Flags.copy_opaque
        self._pictures = PictureNumbers(context.extradata) if context.name == "h264" else None
        self._leading = LeadingPictures(context.extradata) if context.name == "hevc" else None
        self._jpegs = _JpegDecoder(context) if context.name == "mjpeg" else None
        self._has_frame_threads = bool(context.thread_type & ThreadType.FRAME)
        # With these codecs each packet gives one image, so that packets without an image can be counted.
        self._counts_missing = context.name in ("hevc", "mjpeg")
        self._period_ns = round(NS / rate_of(stream, is_timed=True))
        self._base: Fraction | None = stream.time_base
        self._damaged_from: int | None = None  # number of the first damaged packet; None: images are whole
        self._damaged_ns = 0  # time since the packet `_damaged_from`, ns
        # `_tolerates`: whether damaged images are accepted, because the damage lasted too long without a key
        # frame. `_was_marked`: whether the previous packet was marked as corrupt.
        self._tolerates = self._was_marked = False
        self._bad: set[int] = set()  # numbers of damaged packets whose image has not been decoded yet
        self._owed: set[int] = set()  # numbers of all packets whose image has not been decoded yet
        self._undecoded = 0  # how many packets in `_owed` caused an error of the decoder
        self._index = 0  # index of the next image
        self._first: int | None = None  # smallest number of a packet whose image was decoded
        self._last = -1  # largest number of a packet whose image was decoded
        self._last_ns: int | None = None  # time of the last image in the stream, ns
        self.damaged = 0
        """How many packets were damaged, could not be decoded, or followed a lost packet."""
        self.left_out = 0
        """How many images are missing or marked as damaged."""
        self.packets = 0
        """How many packets with data were passed to `decode`."""

    @property
    def exif_orientation(self) -> int:
        """EXIF orientation of the first JPEG, 1 to 8; 1 (as stored) for other codecs."""
        return AS_STORED if self._jpegs is None else self._jpegs.orientation

    def decode(self, packet: Any) -> list[DecodedImage]:
        """Decode one packet and return the images that the decoder gives, in the order of display.

        The decoder may give an image several packets later. The empty packet at the end of the stream gives
        the remaining images.
        """
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
                # A decoder with frame threads reports errors late: the error belongs to the image that would
                # come next.
                self._begin_damage(min(number, self._last + 1) if self._has_frame_threads else number)
        found = [self._image(frame) for frame in frames]
        if self._counts_missing:
            self._count_missing(is_over=not data)
        return found

    def _look_at(self, packet: Any, data: bytes, number: int) -> None:
        """Record whether this packet is damaged or follows a lost one, and whether it must give an image."""
        # FFmpeg's parser delays the packets of MPEG-TS by one, so the mark may be on the packet before the
        # damaged one. Therefore the packet behind a marked one counts as damaged too.
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
        # Some hardware decoders do not copy `opaque`. They return the images in the order of decoding.
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
        """Return whether the image of packet ``number`` is neither damaged nor depends on a damaged one."""
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
        """Return the time since the previous image, ns.

        This is the stream's period if the times are missing, go back, or jump by `LONGEST_STEP_NS` or more.
        """
        last_ns, self._last_ns = self._last_ns, own_ns
        step_ns = 0 if own_ns is None or last_ns is None else own_ns - last_ns
        return step_ns if 0 < step_ns < LONGEST_STEP_NS else self._period_ns

    def _count_missing(self, is_over: bool) -> None:
        """Count packets as damaged if their image is missing, although the images of later packets were
        decoded.

        ``is_over``: whether the stream has ended, so that no more images can follow.
        """
        due = self._last + 1 if is_over else self._last - MAX_REORDERED
        for number in [n for n in self._owed if is_over or n < due]:
            self._owed.discard(number)
            if self._first is None or number < self._first:
                continue  # packets before the first key frame can't give an image
            if self._undecoded:
                self._undecoded -= 1
            else:
                self._index += 1
                self.damaged += 1
                self.left_out += 1


class _JpegDecoder:
    """Decodes JPEGs, and raises InvalidDataError for a truncated one.

    By default FFmpeg fills the missing part of a truncated JPEG with grey. In strict mode it reports an
    error, also for faults in the metadata; therefore the metadata are removed first. If the first JPEG of a
    stream is complete, but can't be decoded in strict mode, the stream is not decoded strictly. Then only
    JPEGs without an end marker are refused.
    """

    def __init__(self, context: Any) -> None:
        self._context = context
        context.thread_type = "SLICE"  # with frame threads an error would be raised only at a later packet
        self._is_strict: bool | None = None  # whether FFmpeg decodes strictly; None before the first JPEG
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
            # After an error the decoder gives the next frame the properties of the damaged packet.
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
