"""Image messages as BGR pixels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from efftam_ros.interop.messages import image_from_compressed, image_from_message
from efftam_ros.runtime.image.encodings import to_bgr
from efftam_ros.runtime.image.limits import MOST_PIXELS


def raw_bgr(message: Any, most_pixels: int = MOST_PIXELS) -> NDArray[np.uint8]:
    """A sensor_msgs/Image as uint8 [H, W, 3]. Raises InputError for what is no image of a known encoding."""
    return to_bgr(image_from_message(message, most_pixels))


def compressed_bgr(message: Any, most_pixels: int = MOST_PIXELS) -> NDArray[np.uint8]:
    """A sensor_msgs/CompressedImage as uint8 [H, W, 3]. Raises InputError where it can't be decoded."""
    return to_bgr(image_from_compressed(message, most_pixels))
