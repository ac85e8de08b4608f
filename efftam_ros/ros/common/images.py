"""Images from messages: by cv_bridge where it is installed, else by our own conversion with the same
pixels.

Both read the message's bytes in place. cv_bridge is asked only for what it can represent without converting;
what it does not know (planar YUV) is read by our own conversion in either case.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.types import Image
from efftam_ros.interop.messages import image_from_message
from efftam_ros.runtime.image.encodings import ENCODINGS

# Encodings that cv_bridge and its C++ half name alike in every distribution.
BRIDGED = frozenset(
    {"bgr8", "rgb8", "bgra8", "rgba8", "mono8", "mono16", "8UC1", "8UC3"}
    | {f"bayer_{order}8" for order in ("rggb", "bggr", "gbrg", "grbg")}
)


def image_reader() -> tuple[Callable[[Any, int], Image], str]:
    """The function that turns a sensor_msgs/Image of at most so many pixels into an `Image`, and one line
    that names it for the log."""
    try:
        from cv_bridge import CvBridge

        bridge = CvBridge()
        bridge.encoding_to_cvtype2("bgr8")  # loads the C++ half, where a numpy of another generation shows
    except ImportError as error:
        return image_from_message, f"own zero-copy conversion (cv_bridge: {error})"
    except Exception as error:
        return image_from_message, f"own zero-copy conversion (cv_bridge is installed but broken: {error})"

    def read(msg: Any, most_pixels: int) -> Image:
        image = image_from_message(msg, most_pixels)  # checks the message: cv_bridge trusts it
        whole_pixels = msg.step % ENCODINGS[msg.encoding].bytes_per_pixel == 0
        if msg.encoding not in BRIDGED or msg.is_bigendian or not whole_pixels:
            return image
        pixels = bridge.imgmsg_to_cv2(msg, desired_encoding="passthrough")
        return Image(_rows(pixels), image.width, image.height, image.encoding)

    return read, "cv_bridge"


def _rows(pixels: NDArray[Any]) -> NDArray[np.uint8]:
    """[H, W] or [H, W, C] of any depth, rows possibly padded, as bytes [H, B]; a view."""
    flat = pixels.reshape(pixels.shape[0], -1)
    return flat.view(np.uint8)
