"""Reads images from messages: with cv_bridge if it is installed, else with an equivalent conversion of this
package.

Both read the message's bytes in place. cv_bridge is used only for encodings that it represents without
converting; planar YUV, which it does not support, is always read by this package.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.types import Image
from efftam_ros.interop.messages import image_from_message
from efftam_ros.runtime.image.encodings import ENCODINGS

# Encodings that cv_bridge's Python and C++ parts name alike in every distribution.
BRIDGED = frozenset(
    {"bgr8", "rgb8", "bgra8", "rgba8", "mono8", "mono16", "8UC1", "8UC3"}
    | {f"bayer_{order}8" for order in ("rggb", "bggr", "gbrg", "grbg")}
)


def image_reader() -> tuple[Callable[[Any, int], Image], str]:
    """Return a function that reads a sensor_msgs/Image of at most so many pixels as an `Image`, and its name
    for the log."""
    try:
        from cv_bridge import CvBridge

        bridge = CvBridge()
        bridge.encoding_to_cvtype2("bgr8")  # loads the C++ part: fails with another numpy major
    except ImportError as error:
        return image_from_message, f"own zero-copy conversion (cv_bridge: {error})"
    except Exception as error:
        return image_from_message, f"own zero-copy conversion (cv_bridge is installed but broken: {error})"

    def read(msg: Any, most_pixels: int) -> Image:
        image = image_from_message(msg, most_pixels)  # checks the message, which cv_bridge does not
        whole_pixels = msg.step % ENCODINGS[msg.encoding].bytes_per_pixel == 0
        whole_rows = len(msg.data) >= msg.height * msg.step  # the last may come without its padding
        if msg.encoding not in BRIDGED or msg.is_bigendian or not (whole_pixels and whole_rows):
            return image
        pixels = bridge.imgmsg_to_cv2(msg, desired_encoding="passthrough")
        return Image(_rows(pixels), image.width, image.height, image.encoding)

    return read, "cv_bridge"


def _rows(pixels: NDArray[Any]) -> NDArray[np.uint8]:
    """View [H, W] or [H, W, C] pixels of any depth, rows possibly padded, as bytes [H, B]."""
    flat = pixels.reshape(pixels.shape[0], -1)
    return flat.view(np.uint8)
