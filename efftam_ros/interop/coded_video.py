"""Images from topics of compressed video: ffmpeg_image_transport's packets and Foxglove's CompressedVideo."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from efftam_ros.core.errors import InputError, shown
from efftam_ros.core.types import Image
from efftam_ros.runtime.image.limits import MOST_PIXELS, check_size

if TYPE_CHECKING:
    import av

FFMPEG_TYPE = "ffmpeg_image_transport_msgs/msg/FFMPEGPacket"
FOXGLOVE_TYPE = "foxglove_msgs/msg/CompressedVideo"
DEFINITIONS = {
    FFMPEG_TYPE: "std_msgs/Header header\nint32 width\nint32 height\nstring encoding\nuint64 pts\n"
    "uint8 flags\nbool is_bigendian\nuint8[] data\n",
    FOXGLOVE_TYPE: "builtin_interfaces/Time timestamp\nstring frame_id\nuint8[] data\nstring format\n",
}
# Codec by part of the name that the message gives: of a codec, a format or an encoder.
CODECS = {"264": "h264", "265": "hevc", "hevc": "hevc", "vp9": "vp9", "av1": "av1"}


def header_of(message: Any, make: Callable[..., Any]) -> Any:
    """The header of a message of either type; ``make`` is the class of std_msgs/Header."""
    if hasattr(message, "header"):
        return message.header
    return make(stamp=message.timestamp, frame_id=message.frame_id)


class VideoDecoder:
    """Decodes the messages of one topic, in order, one image each."""

    def __init__(self) -> None:
        self._codec, self._count = "", 0
        self._context: Any = None
        self._is_started = False

    def decode(self, message: Any, most_pixels: int = MOST_PIXELS) -> av.VideoFrame:
        """Return the image of this message.

        Raises InputError for a codec that is not known, before the first key frame, for data that can't be
        decoded, for more than ``most_pixels``, and where images come out in another order (B frames).
        """
        import av

        name = str(message.encoding if hasattr(message, "encoding") else message.format)
        first = name.partition(";")[0].lower()
        codec = next((codec for part, codec in CODECS.items() if part in first), "")
        if not codec:
            raise InputError(f"video of codec {shown(name)} can't be decoded; send h264 or h265")
        if codec != self._codec:
            self._codec, self._context, self._is_started = codec, av.CodecContext.create(codec, "r"), False
            # Threads by frame, or a wait for frames in another order, would delay images.
            self._context.flags |= av.codec.context.Flags.low_delay
        packet = av.Packet(bytes(message.data))
        self._count += 1
        packet.pts = self._count
        try:
            frames = self._context.decode(packet) if len(message.data) else []
        except av.error.FFmpegError as error:
            if self._is_started:
                raise InputError(
                    f"a {codec} image can't be decoded ({error.strerror}); packets are lost"
                ) from None
            frames = []
        if not frames:
            what = "gave no image" if self._is_started else "waits for a key frame"
            raise InputError(
                f"the {codec} video {what}; send one every second or so (the encoder's gop size)"
            )
        self._is_started = True
        frame = frames[-1]
        if frame.pts != self._count:
            raise InputError(f"the {codec} video has B frames, which come late; encode it without (bf 0)")
        check_size(frame.width, frame.height, most_pixels)
        return frame

    def read(self, message: Any) -> Image:
        """The image of this message as bgr8; raises InputError as `decode` does."""
        return image_of(self.decode(message))


def image_of(frame: av.VideoFrame) -> Image:
    return Image.from_array(np.ascontiguousarray(frame.to_ndarray(format="bgr24")))
