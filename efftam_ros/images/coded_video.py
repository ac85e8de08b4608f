"""Decodes topics of compressed video: FFMPEGPacket of ffmpeg_image_transport, and Foxglove's
CompressedVideo."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.errors import InputError, shown
from efftam_ros.core.types import Image
from efftam_ros.images.headers import MAX_PIXELS, check_size
from efftam_ros.images.streams.decoding import LONGEST_DAMAGE_NS
from efftam_ros.images.streams.frames import pixels_as
from efftam_ros.images.streams.h264 import PictureNumbers

if TYPE_CHECKING:
    import av

FFMPEG_TYPE = "ffmpeg_image_transport_msgs/msg/FFMPEGPacket"
FOXGLOVE_TYPE = "foxglove_msgs/msg/CompressedVideo"
DEFINITIONS = {
    FFMPEG_TYPE: "std_msgs/Header header\nint32 width\nint32 height\nstring encoding\nuint64 pts\n"
    "uint8 flags\nbool is_bigendian\nuint8[] data\n",
    FOXGLOVE_TYPE: "builtin_interfaces/Time timestamp\nstring frame_id\nuint8[] data\nstring format\n",
}
# The key is a part of the name of a codec, format or encoder in a message. The value is FFmpeg's name of the
# codec.
CODECS = {"264": "h264", "265": "hevc", "hevc": "hevc", "vp9": "vp9", "av1": "av1"}
# After a longer pause of both stamps and arrivals, ns, decoding begins anew at a key frame. The encoder may
# have been restarted, and its first key frame lost. Images that depend on this key frame would be wrong,
# without an error.
LONGEST_PAUSE_NS = 1_000_000_000
# `pts` counts the images if it has grown by 1 this many times in a row.
MIN_STEPS = 3


class VideoDecoder:
    """Decodes the messages of one topic, in order. Each message holds one image.

    An image is torn if it depends on an image whose message was lost, and FFmpeg reports no error. This class
    refuses such images until the next key frame, at most for `LONGEST_DAMAGE_NS`.
    """

    def __init__(self) -> None:
        self._numbers = PictureNumbers()
        self._pts, self._steps_of_one = 0, 0
        # Stamp of the first image that depends on a lost one, ns; None while images are whole.
        self._damaged_ns: int | None = None
        # `_last_ns`: stamp and arrival of the last message, ns.
        self._codec, self._count, self._last_ns = "", 0, (0, 0)
        self._context: Any = None
        self._is_started = False
        self.luma: NDArray[np.uint8] = np.zeros(0, np.uint8)
        """The bytes of the last image's first plane (luma), uint8 [N]."""

    def decode(
        self, message: Any, arrived_ns: int, most_pixels: int = MAX_PIXELS
    ) -> tuple[int, int, Callable[[], Image]]:
        """Return width and height of this message's image, px, and a function that converts it to bgr8.

        ``arrived_ns``: arrival on a steady clock, or the recording time in a bag, ns.

        Raises InputError: unknown codec; no key frame yet, at the start or after a pause; data that can't be
        decoded; an image that depends on a lost one; more than ``most_pixels`` pixels; B frames, which the
        decoder returns in another order.
        """
        import av

        name = str(message.encoding if hasattr(message, "encoding") else message.format)
        first = name.partition(";")[0].lower()
        codec = next((codec for part, codec in CODECS.items() if part in first), "")
        if not codec:
            raise InputError(f"video of codec {shown(name)} can't be decoded; send h264 or h265")
        stamp = message.header.stamp if hasattr(message, "header") else message.timestamp
        now_ns = int(stamp.sec) * 1_000_000_000 + int(stamp.nanosec), arrived_ns
        steps_ns, self._last_ns = [abs(a - b) for a, b in zip(now_ns, self._last_ns, strict=True)], now_ns
        is_anew = min(steps_ns) > LONGEST_PAUSE_NS
        if codec != self._codec or is_anew:
            self._codec, self._context, self._is_started = codec, av.CodecContext.create(codec, "r"), False
            # Without this flag the decoder delays images: it uses a thread per frame, and waits for B frames.
            self._context.flags |= av.codec.context.Flags.low_delay
            self._numbers, self._steps_of_one, self._damaged_ns = PictureNumbers(), 0, None
        data = bytes(message.data)
        packet = av.Packet(data)
        # `lacks` must see every packet, because it compares the picture numbers of consecutive packets.
        is_lost = codec == "h264" and self._numbers.lacks(data)
        if self._is_message_missing(message) or is_lost:
            self._damage(now_ns[0])
        self._count += 1
        packet.pts = self._count
        try:
            frames = self._context.decode(packet) if len(message.data) else []
        except av.error.FFmpegError as error:
            self._damage(now_ns[0])
            if self._is_started:
                raise InputError(
                    f"a {codec} image can't be decoded ({error.strerror}); packets are lost"
                ) from None
            frames = []
        if not frames:
            why = ", because packets are lost" if self._is_started else ""
            raise InputError(
                f"the {codec} video waits for a key frame{why}; send one every second or so (the encoder's"
                " gop size)"
            )
        self._is_started = True
        frame = frames[-1]
        if frame.pts != self._count:
            raise InputError(
                f"the {codec} video has B frames, which arrive late; encode it without them (ffmpeg: -bf 0)"
            )
        check_size(frame.width, frame.height, most_pixels)
        if frame.is_corrupt:
            self._damage(now_ns[0])
        elif frame.key_frame or now_ns[0] - (self._damaged_ns or now_ns[0]) > LONGEST_DAMAGE_NS:
            self._damaged_ns = None
        if self._damaged_ns is not None:
            raise InputError(
                f"a {codec} image depends on an image that was lost, because packets are lost; images are"
                " used again from the next key frame on: send one every second or so, or use a better link"
            )
        self.luma = np.frombuffer(frame.planes[0], np.uint8)
        return frame.width, frame.height, partial(_image_of, frame)

    def _damage(self, stamp_ns: int) -> None:
        if self._damaged_ns is None:
            self._damaged_ns = stamp_ns

    def _is_message_missing(self, message: Any) -> bool:
        """Return whether messages before this one are missing, as a gap in its `pts` shows.

        ffmpeg_image_transport counts the images in `pts`. Other senders store a time there, which shows no
        gap.
        """
        pts = int(getattr(message, "pts", 0))
        step, self._pts = pts - self._pts, pts
        is_gap = step > 1 and self._steps_of_one >= MIN_STEPS
        self._steps_of_one = self._steps_of_one + 1 if step == 1 else MIN_STEPS if is_gap else 0
        return is_gap


def _image_of(frame: av.VideoFrame) -> Image:
    return Image.from_array(np.ascontiguousarray(pixels_as("bgr24", frame)))
