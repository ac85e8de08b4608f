"""Reads images and stamps from ROS messages (raw, compressed, coded as a video), and fills image messages.

This module does not import ROS. It reads messages by their attributes, so that the same functions accept the
classes of rclpy and those of the rosbags library.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.errors import InputError, shown
from efftam_ros.core.types import Image
from efftam_ros.images.headers import MAX_PIXELS, check_size, coded_size
from efftam_ros.images.levels import Levels
from efftam_ros.images.pixels import ENCODINGS, NARROWED, check_image
from efftam_ros.images.stillness import StillWatch
from efftam_ros.images.stills.exif import exif_note, orientation_of
from efftam_ros.images.stills.jpeg import START, jpeg_end

NANOSECONDS = 1_000_000_000
# A stamp is too far ahead if two conditions are met. It exceeds the largest stamp that is possible at this
# arrival by more than AHEAD_NS, ns. The step from the last stamp is more than STEPS times the longest step
# of the last images.
AHEAD_NS, STEPS = 250_000_000, 3
# A stamp is compared with those of the last KEPT images. Before there are FEWEST images, none is withheld.
KEPT, FEWEST = 30, 5


def stamp_ns(stamp: Any) -> int:
    """Convert a builtin_interfaces/Time message to integer nanoseconds."""
    return int(stamp.sec) * NANOSECONDS + int(stamp.nanosec)


def stamp_like(stamp: Any, ns: int) -> Any:
    """Convert nanoseconds to a Time message of the same class as ``stamp``."""
    return type(stamp)(sec=ns // NANOSECONDS, nanosec=ns % NANOSECONDS)


class StampGuard:
    """Withholds an image if its stamp is before the previous stamp, or too far ahead of the image's arrival.

    If the stamp of the next image is later than that of the withheld image, the clock was set or a bag was
    played again. The new stamps are accepted from then on.
    """

    def __init__(self) -> None:
        self._offsets: deque[int] = deque(maxlen=KEPT)  # stamp minus arrival of the last images, ns
        self._steps: deque[int] = deque(maxlen=KEPT)  # steps between consecutive stamps, ns
        self._last_ns = 0  # stamp of the last image that was not withheld
        self._withheld_ns: int | None = None  # stamp of the previous image if it was withheld, ns

    def check(self, stamp_ns: int, arrived_ns: int) -> None:
        """Check the next image's stamp, ns. Raises InputError if the image is withheld.

        ``arrived_ns``: arrival on a steady clock, or the recording time in a bag, ns.
        """
        offset_ns = stamp_ns - arrived_ns
        wrong_ns = self._wrong_ns(stamp_ns, offset_ns)
        if wrong_ns:
            before, self._withheld_ns = self._withheld_ns, stamp_ns
            if before is None or stamp_ns <= before:
                where = "ahead of the arrival of its image" if wrong_ns > 0 else "before the last stamp"
                raise InputError(
                    f"the stamp {stamp_ns * 1e-9:.3f} s is {abs(wrong_ns) * 1e-9:.3f} s {where}: the image is"
                    " not used; correct the driver's stamps"
                )
            # Two images in a row have wrong stamps, and the second stamp is later than the first: the clock
            # was set.
            self._offsets.clear()
            self._steps.clear()
        elif self._offsets:
            self._steps.append(stamp_ns - self._last_ns)
        self._withheld_ns, self._last_ns = None, stamp_ns
        self._offsets.append(offset_ns)

    def _wrong_ns(self, stamp_ns: int, offset_ns: int) -> int:
        """Return the error of a stamp, ns: positive if the stamp is too late, negative if it is before the
        previous stamp, and 0 if it may be right.

        ``offset_ns``: the stamp minus the arrival, ns.
        """
        if len(self._offsets) < FEWEST:
            return 0
        step_ns = stamp_ns - self._last_ns
        if step_ns < 0:
            return step_ns
        # Images may arrive late, but never early. So the largest difference of stamp and arrival, that of the
        # least delayed image, is the offset of the two clocks.
        ahead_ns = offset_ns - max(self._offsets)
        return ahead_ns if ahead_ns > AHEAD_NS and step_ns > STEPS * max(self._steps) else 0


MAX_FRAME_ID = 256
"""Most characters of an image's frame_id, which is copied into every result message and stored with every
kept image."""


def check_header(header: Any) -> None:
    """Raise InputError if the frame_id of an image's header is too long for the result messages."""
    if len(header.frame_id) > MAX_FRAME_ID:
        raise InputError(
            f"image frame_id {shown(header.frame_id)} has {len(header.frame_id)} characters; give at most"
            f" {MAX_FRAME_ID}"
        )


def image_from_message(msg: Any, most_pixels: int = MAX_PIXELS, levels: Levels | None = None) -> Image:
    """Return a sensor_msgs/Image as a checked `Image`.

    The result is a view of ``msg.data``. Only 16-bit pixels, and encodings that cv_bridge converts, are
    copied. If cv_bridge is installed, it converts the encodings that `ENCODINGS` lacks.

    ``most_pixels``: largest number of pixels; ``levels``: reduces 16-bit pixels, with a range that follows
    the stream; None: the range is computed from this image alone.

    Raises:
        InputError: Unknown encoding, zero size, too many pixels, a step shorter than a row, too little data.
    """
    width, height, step = int(msg.width), int(msg.height), int(msg.step)
    name = NARROWED.get(msg.encoding, msg.encoding)
    encoding = ENCODINGS.get(name)
    data = np.frombuffer(msg.data, np.uint8)
    check_size(width, height, most_pixels)
    if encoding is None:
        return _converted(msg)
    is_wide = name != msg.encoding
    row = width * encoding.bytes_per_pixel * (2 if is_wide else 1)
    if step < row:
        raise InputError(
            f"image step is {step} bytes; {width} px in {msg.encoding} need {row}: correct the step or the"
            " width"
        )
    rows = height * encoding.rows_per_pair // 2
    # Some drivers send the last row without its padding.
    need = (rows - 1) * step + row
    if data.size < need:
        raise InputError(
            f"image data has {data.size} bytes; {width} x {height} px in {msg.encoding} with step {step} need"
            f" {need}: the image is truncated"
        )
    # A view of the message's bytes that leaves out the padding at the end of each row. Nothing is copied.
    view = np.lib.stride_tricks.as_strided(data, (rows, row), (step, 1), writeable=False)
    if is_wide:
        wide = np.ascontiguousarray(view).view(">u2" if msg.is_bigendian else "<u2")
        view = (levels or Levels()).reduced(wide.astype(np.uint16, copy=False), stamp_ns(msg.header.stamp))
    image = Image(view, width, height, name)
    check_image(image)
    return image


def _converted(msg: Any) -> Image:
    """Convert an image to bgr8 by cv_bridge, because `ENCODINGS` lacks its encoding.

    Raises InputError if cv_bridge is not installed or can't convert it.
    """
    known = ", ".join([*ENCODINGS, *NARROWED])
    try:
        # Imported only when an image needs cv_bridge, which may not be installed.
        from cv_bridge import CvBridge

        pixels = CvBridge().imgmsg_to_cv2(msg, "bgr8")
    except ImportError:
        raise InputError(
            f"image encoding {shown(msg.encoding)} is not supported; publish one of {known}, or install"
            " cv_bridge (ros-$ROS_DISTRO-cv-bridge), which may convert it"
        ) from None
    except Exception as error:  # CvBridgeError, or any error of numpy or OpenCV
        raise InputError(
            f"image encoding {shown(msg.encoding)} is not supported, and cv_bridge can't convert it"
            f" ({shown(error)}); publish one of {known}"
        ) from None
    return Image.from_array(np.ascontiguousarray(pixels, np.uint8))


def compressed_size(msg: Any, most_pixels: int = MAX_PIXELS) -> tuple[int, int]:
    """Return width and height of a sensor_msgs/CompressedImage, px, from its first bytes.

    Raises InputError if it has more than ``most_pixels`` pixels, or a format that `coded_size` can't read.
    """
    width, height = coded_size(msg.data, f"compressed image ({shown(msg.format)})")
    check_size(width, height, most_pixels)
    return width, height


def image_from_compressed(msg: Any, most_pixels: int = MAX_PIXELS, levels: Levels | None = None) -> Image:
    """Decode a sensor_msgs/CompressedImage in one of the formats that `coded_size` reads.

    The result is bgr8, mono8, or the Bayer encoding that the message's ``format`` names. The EXIF orientation
    is not applied, see `compressed_note`. ``levels``: see `image_from_message`. Raises InputError if the
    image can't be decoded or has more than ``most_pixels`` pixels.
    """
    # The size is checked before decoding, because a small file may unpack to gigabytes.
    compressed_size(msg, most_pixels)
    data = np.frombuffer(msg.data, np.uint8)
    # OpenCV may fill the missing part of a truncated JPEG with grey, without an error.
    if data[:2].tobytes() == START and jpeg_end(data.tobytes()) is None:
        raise InputError(f"compressed image of {data.size} bytes has no end marker: the JPEG is truncated")
    mosaic = _mosaic_of(msg.format)
    wanted = cv2.IMREAD_UNCHANGED if mosaic else cv2.IMREAD_COLOR | cv2.IMREAD_ANYDEPTH
    flags = wanted | cv2.IMREAD_IGNORE_ORIENTATION
    try:
        pixels = cv2.imdecode(data, flags) if data.size else None
    except cv2.error:
        pixels = None
    if pixels is None or pixels.dtype not in (np.uint8, np.uint16):
        raise InputError(
            f"compressed image ({shown(msg.format)}, {data.size} bytes) can't be decoded: use jpeg or png"
        )
    if pixels.dtype == np.uint16:
        pixels = (levels or Levels()).reduced(pixels, stamp_ns(msg.header.stamp))
    if pixels.ndim == 2:
        image = Image.from_array(np.asarray(pixels, np.uint8), mosaic)
        check_image(image)
        return image
    return Image.from_array(np.ascontiguousarray(pixels[..., :3], np.uint8))


def _mosaic_of(form: str) -> str:
    """Return the Bayer encoding of a CompressedImage's pixels; empty if they are colours or grey.

    ``form``: the message's field ``format``. image_transport writes ``bayer_rggb8; png compressed`` if the
    pixels are a Bayer pattern. A name behind "compressed" (``bayer_rggb8; jpeg compressed bgr8``) means that
    they were converted to colours.
    """
    before, _, target = form.partition(" compressed")
    name = before.partition(";")[0].strip()
    is_mosaic = name.startswith("bayer_") and not target.strip()
    return NARROWED.get(name, name) if is_mosaic and NARROWED.get(name, name) in ENCODINGS else ""


def compressed_note(msg: Any) -> str:
    """Return a line to log once if a CompressedImage has an EXIF orientation, which is not applied; else
    empty.

    It is not applied because the camera_info describes the image as it is stored.
    """
    return exif_note(orientation_of(msg.data))


@dataclass(eq=False)
class ReceivedImage:
    """The content of one image message.

    Attributes:
        header: The message's std_msgs/Header, copied unchanged into the result messages.
        stamp_ns: The header's stamp, ns.
        arrived_s: Arrival on a steady clock, or the recording time in a bag, s.
        nbytes: Bytes of memory that are needed to keep the image.
        size: Width and height, px.
        pixels: The image, or a function that decodes it and raises InputError.
        note: A line to log once, or empty.
        number: Counts the received images; set by the code that stores them.
        still_s: For how long all images of the stream have been identical, s.
    """

    header: Any
    stamp_ns: int
    arrived_s: float
    nbytes: int
    size: tuple[int, int]
    pixels: Image | Callable[[], Image] = field(repr=False)
    note: str = ""
    number: int = 0
    still_s: float = 0.0

    def image(self) -> Image:
        """Return the image, decoding it if necessary. Raises InputError if it can't be decoded."""
        return self.pixels if isinstance(self.pixels, Image) else self.pixels()


class ImageReader:
    """Reads the image messages of one topic, in order.

    ``transport``: ``raw``, ``compressed``, or any other name for a topic of compressed video; ``header``: the
    class of std_msgs/Header, for messages without a header; ``levels``: see `image_from_message`.
    """

    def __init__(self, transport: str, header: Callable[..., Any], levels: Levels | None = None) -> None:
        self._is_compressed = transport == "compressed"
        self._is_raw, self._header, self.levels = transport == "raw", header, levels
        self._still = StillWatch()
        self._decoder: Any = None
        if transport not in ("raw", "compressed"):
            # Imported only for videos, because the import loads PyAV's modules.
            from efftam_ros.images.coded_video import VideoDecoder

            self._decoder = VideoDecoder()

    def read(self, message: Any, arrived_ns: int, most_pixels: int = MAX_PIXELS) -> ReceivedImage:
        """Check the next message and return its content.

        A compressed image is decoded later, by the thread that calls `ReceivedImage.image`. A video packet is
        decoded at once, because the following packets depend on it. ``arrived_ns``: arrival on a steady
        clock, or the recording time in a bag, ns; ``most_pixels``: largest number of pixels. Raises
        InputError if the message is no usable image.
        """
        pixels: Image | Callable[[], Image]
        if self._is_raw:
            pixels = image_from_message(message, most_pixels, self.levels)
            size, nbytes = (pixels.width, pixels.height), pixels.rows.nbytes
        elif self._decoder is not None:
            width, height, pixels = self._decoder.decode(message, arrived_ns, most_pixels)
            # The decoded image is kept. Video has 1.5 bytes per pixel (YUV 4:2:0).
            size, nbytes = (width, height), width * height * 3 // 2
        else:
            size, nbytes = compressed_size(message, most_pixels), len(message.data)
            pixels = partial(image_from_compressed, message, most_pixels, self.levels)
        # To find identical images of a video, the decoded pixels are compared, because even packets of
        # identical images differ.
        same = np.frombuffer(message.data, np.uint8) if self._decoder is None else self._decoder.luma
        arrived_s = arrived_ns * 1e-9
        still_s = self._still.look(same, arrived_s)
        note = compressed_note(message) if self._is_compressed else ""
        header = header_of(message, self._header)
        stamp = stamp_ns(header.stamp)
        return ReceivedImage(header, stamp, arrived_s, nbytes, size, pixels, note, still_s=still_s)


def header_of(message: Any, make: Callable[..., Any]) -> Any:
    """Return the header of an image message. For a message without one, make it from stamp and frame_id.

    ``make``: the class of std_msgs/Header.
    """
    if hasattr(message, "header"):
        return message.header
    return make(stamp=message.timestamp, frame_id=message.frame_id)


def image_fields(pixels: NDArray[np.uint8], encoding: str, header: Any) -> dict[str, Any]:
    """Return the fields of a sensor_msgs/Image, except ``data``, by name.

    ``pixels``: C-contiguous uint8 [H, W] or [H, W, C]. The caller sets ``data``, because the fast way
    differs: an ``array.array`` filled by ``frombytes`` for rclpy, and ``pixels.reshape(-1)`` for rosbags.
    """
    height, width = pixels.shape[:2]
    return {
        "header": header,
        "height": height,
        "width": width,
        "encoding": encoding,
        "is_bigendian": 0,
        "step": pixels.strides[0],
    }


def fill_image(message: Any, pixels: NDArray[np.uint8], encoding: str, header: Any = None) -> Any:
    """Store pixels in an rclpy Image message and return the message.

    ``pixels``: C-contiguous uint8 [H, W] or [H, W, C]; ``header``: None keeps the message's own header.
    """
    for name, value in image_fields(pixels, encoding, message.header if header is None else header).items():
        setattr(message, name, value)
    # rclpy accepts an array.array at once. It would check values of any other type pixel by pixel.
    data = array("B")
    data.frombytes(pixels.data.cast("B"))
    message.data = data
    return message
