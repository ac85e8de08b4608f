"""Images from messages and back, and their stamps: raw, compressed and coded as a video.

Nothing here imports ROS: messages are read by attribute, so that the same functions serve rclpy's classes
and those of the rosbags library.
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
# A stamp is ahead when it lies this far beyond what the arrivals allow, ns, and its step is this many times
# the longest of the last ones.
AHEAD_NS, STEPS = 250_000_000, 3
# Images that the judgement is based on, and the fewest that make a stream.
KEPT, FEWEST = 30, 5


def stamp_ns(stamp: Any) -> int:
    """Convert a builtin_interfaces/Time to integer nanoseconds."""
    return int(stamp.sec) * NANOSECONDS + int(stamp.nanosec)


def stamp_like(stamp: Any, ns: int) -> Any:
    """Convert nanoseconds to a message of the same class as ``stamp``."""
    return type(stamp)(sec=ns // NANOSECONDS, nanosec=ns % NANOSECONDS)


class StampGuard:
    """Withholds an image whose stamp goes back, or ahead of its arrival, in a steady stream.

    When the next image goes on from the withheld one, the clock was set, or a bag began again: its stamps are
    taken from then on.
    """

    def __init__(self) -> None:
        self._offsets: deque[int] = deque(maxlen=KEPT)  # stamp - arrival
        self._steps: deque[int] = deque(maxlen=KEPT)
        self._last_ns = 0
        self._withheld_ns: int | None = None  # stamp of the image before, if that was withheld

    def check(self, stamp_ns: int, arrived_ns: int) -> None:
        """Take the next image; raises InputError when it is withheld. ``arrived_ns``: arrival on a steady
        clock, or the recording time in a bag."""
        offset_ns = stamp_ns - arrived_ns
        wrong_ns = self._wrong_ns(stamp_ns, offset_ns)
        if wrong_ns:
            before, self._withheld_ns = self._withheld_ns, stamp_ns
            if before is None or stamp_ns <= before:
                where = "ahead of the arrival of its image" if wrong_ns > 0 else "before that of the last one"
                raise InputError(
                    f"the stamp {stamp_ns * 1e-9:.3f} s is {abs(wrong_ns) * 1e-9:.3f} s {where}: the image is"
                    " not used; correct the driver's stamps"
                )
            # The second image in a row that goes on like this: the clock was set.
            self._offsets.clear()
            self._steps.clear()
        elif self._offsets:
            self._steps.append(stamp_ns - self._last_ns)
        self._withheld_ns, self._last_ns = None, stamp_ns
        self._offsets.append(offset_ns)

    def _wrong_ns(self, stamp_ns: int, offset_ns: int) -> int:
        """Return how far the stamp is ahead, or back if negative; 0 when it can be."""
        if len(self._offsets) < FEWEST:
            return 0
        step_ns = stamp_ns - self._last_ns
        if step_ns < 0:
            return step_ns
        # Images may arrive late, never early: the least delayed one shows the clocks' offset.
        ahead_ns = offset_ns - max(self._offsets)
        return ahead_ns if ahead_ns > AHEAD_NS and step_ns > STEPS * max(self._steps) else 0


MAX_FRAME_ID = 256
"""Most characters of a frame_id: it is copied into every answer and stored with every kept image."""


def check_header(header: Any) -> None:
    """Raise InputError when an image's header is too large to be copied into answers."""
    if len(header.frame_id) > MAX_FRAME_ID:
        raise InputError(
            f"image frame_id {shown(header.frame_id)} has {len(header.frame_id)} characters; give at most"
            f" {MAX_FRAME_ID}"
        )


def image_from_message(msg: Any, most_pixels: int = MAX_PIXELS, levels: Levels | None = None) -> Image:
    """View a sensor_msgs/Image as a checked `Image`, without copying ``msg.data`` unless it has 16 bits.

    ``levels``: reduces 16-bit pixels; None: each image has a range of its own. An encoding that only
    cv_bridge knows is converted by it where it is installed.

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
            f"image step is {step} bytes; {width} px in {msg.encoding} have {row}: correct step or width"
        )
    rows = height * encoding.rows_per_pair // 2
    # The last row may come without its padding.
    need = (rows - 1) * step + row
    if data.size < need:
        raise InputError(
            f"image data has {data.size} bytes; {width} x {height} px in {msg.encoding} with step {step} need"
            f" {need}: the image is truncated"
        )
    # No copy: the rows are a view into the message, without the padding that its step may have.
    view = np.lib.stride_tricks.as_strided(data, (rows, row), (step, 1), writeable=False)
    if is_wide:
        wide = np.ascontiguousarray(view).view(">u2" if msg.is_bigendian else "<u2")
        view = (levels or Levels()).reduced(wide.astype(np.uint16, copy=False), stamp_ns(msg.header.stamp))
    image = Image(view, width, height, name)
    check_image(image)
    return image


def _converted(msg: Any) -> Image:
    """Return an image in an encoding that `ENCODINGS` lacks, converted to bgr8 by cv_bridge. Raises
    InputError."""
    known = ", ".join([*ENCODINGS, *NARROWED])
    try:
        # Imported only when such an image arrives.
        from cv_bridge import CvBridge

        pixels = CvBridge().imgmsg_to_cv2(msg, "bgr8")
    except ImportError:
        raise InputError(
            f"image encoding {shown(msg.encoding)} is not supported; publish one of {known}, or install"
            " cv_bridge (ros-$ROS_DISTRO-cv-bridge), which may convert it"
        ) from None
    except Exception as error:  # CvBridgeError, and what numpy and OpenCV raise
        raise InputError(
            f"image encoding {shown(msg.encoding)} is not supported, and cv_bridge can't convert it"
            f" ({shown(error)}); publish one of {known}"
        ) from None
    return Image.from_array(np.ascontiguousarray(pixels, np.uint8))


def compressed_size(msg: Any, most_pixels: int = MAX_PIXELS) -> tuple[int, int]:
    """Read width and height of a sensor_msgs/CompressedImage from its first bytes.

    Raises InputError when it has too many pixels or none of the formats of `coded_size`.
    """
    width, height = coded_size(msg.data, f"compressed image ({shown(msg.format)})")
    check_size(width, height, most_pixels)
    return width, height


def image_from_compressed(msg: Any, most_pixels: int = MAX_PIXELS, levels: Levels | None = None) -> Image:
    """Decode a sensor_msgs/CompressedImage in a format of `coded_size` to a bgr8 `Image`, or one of the Bayer
    encoding that its format names.

    ``levels``: see `image_from_message`. The EXIF orientation is not applied, see `compressed_note`. Raises
    InputError when it can't be decoded or has too many pixels, which is checked before decoding.
    """
    # Before decoding: a small file may unpack to gigabytes.
    compressed_size(msg, most_pixels)
    data = np.frombuffer(msg.data, np.uint8)
    # OpenCV may fill the missing part of a truncated JPEG with grey without an error.
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
    """Return the Bayer encoding in the format of a CompressedImage, as image_transport writes it
    (``bayer_rggb8; png compressed``); empty where the pixels are colours or grey.

    Colours are named as the target of the compression (``... jpeg compressed bgr8``).
    """
    before, _, target = form.partition(" compressed")
    name = before.partition(";")[0].strip()
    is_mosaic = name.startswith("bayer_") and not target.strip()
    return NARROWED.get(name, name) if is_mosaic and NARROWED.get(name, name) in ENCODINGS else ""


def compressed_note(msg: Any) -> str:
    """Return what a sender should know of a CompressedImage: that its EXIF orientation is not applied; empty
    for nothing. Its camera_info is for the image as stored."""
    return exif_note(orientation_of(msg.data))


@dataclass(eq=False)
class ReceivedImage:
    """What an image message holds.

    ``header`` is copied unchanged into the answers; ``arrived_s``: on a steady clock, or when it was
    recorded; ``nbytes``: memory that keeping it costs; ``size``: width and height, px; ``pixels``: the image,
    or what decodes it and raises InputError; ``note``: a line to log once, or empty; ``number``:
    its place among all, given by who keeps them; ``still_s``: for how long not one pixel of the stream has
    changed, s.
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
        """Raises InputError where it can't be decoded."""
        return self.pixels if isinstance(self.pixels, Image) else self.pixels()


class ImageReader:
    """Reads the image messages of one topic, in order.

    ``transport``: raw, compressed, or that of a video; ``header``: the class of std_msgs/Header; ``levels``:
    see `image_from_message`.
    """

    def __init__(self, transport: str, header: Callable[..., Any], levels: Levels | None = None) -> None:
        self._is_compressed = transport == "compressed"
        self._is_raw, self._header, self.levels = transport == "raw", header, levels
        self._still = StillWatch()
        self._decoder: Any = None
        if transport not in ("raw", "compressed"):
            # Imported only for videos.
            from efftam_ros.images.coded_video import VideoDecoder

            self._decoder = VideoDecoder()

    def read(self, message: Any, arrived_ns: int, most_pixels: int = MAX_PIXELS) -> ReceivedImage:
        """Check a message and describe what it holds. A compressed image is decoded later, by the thread that
        uses it; a packet of a video at once, as the next ones need it. ``arrived_ns``: arrival on a steady
        clock, or the recording time. Raises InputError."""
        pixels: Image | Callable[[], Image]
        if self._is_raw:
            pixels = image_from_message(message, most_pixels, self.levels)
            size, nbytes = (pixels.width, pixels.height), pixels.rows.nbytes
        elif self._decoder is not None:
            width, height, pixels = self._decoder.decode(message, arrived_ns, most_pixels)
            # The decoded image is kept, of 1.5 bytes per pixel.
            size, nbytes = (width, height), width * height * 3 // 2
        else:
            size, nbytes = compressed_size(message, most_pixels), len(message.data)
            pixels = partial(image_from_compressed, message, most_pixels, self.levels)
        # The packets of a video differ even where its images do not.
        same = np.frombuffer(message.data, np.uint8) if self._decoder is None else self._decoder.luma
        arrived_s = arrived_ns * 1e-9
        still_s = self._still.look(same, arrived_s)
        note = compressed_note(message) if self._is_compressed else ""
        header = header_of(message, self._header)
        stamp = stamp_ns(header.stamp)
        return ReceivedImage(header, stamp, arrived_s, nbytes, size, pixels, note, still_s=still_s)


def header_of(message: Any, make: Callable[..., Any]) -> Any:
    """Return the header of an image message; ``make`` is the class of std_msgs/Header, for those that have
    none."""
    if hasattr(message, "header"):
        return message.header
    return make(stamp=message.timestamp, frame_id=message.frame_id)


def image_fields(pixels: NDArray[np.uint8], encoding: str, header: Any) -> dict[str, Any]:
    """Return all fields of a sensor_msgs/Image except ``data``, for C-contiguous uint8 pixels [H, W] or [H,
    W, C].

    ``data`` is left to the caller because the fast way to set it differs: an ``array.array`` filled by
    ``frombytes`` for rclpy, ``pixels.reshape(-1)`` for rosbags.
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
    """Store C-contiguous uint8 pixels [H, W] or [H, W, C] in an rclpy Image message and return it."""
    for name, value in image_fields(pixels, encoding, message.header if header is None else header).items():
        setattr(message, name, value)
    # Fast with and without rclpy's field checks; other types are checked pixel by pixel.
    data = array("B")
    data.frombytes(pixels.data.cast("B"))
    message.data = data
    return message
