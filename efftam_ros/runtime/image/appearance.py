"""Colour appearance of a box: histograms of lightness and of two colour axes."""

from __future__ import annotations

from functools import cache

import cv2
import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box
from efftam_ros.core.policies.target_model import Descriptor
from efftam_ros.core.types import Image
from efftam_ros.runtime.image.encodings import Region, to_bgr

INNER_SHARE = 0.8  # share of the box's sides that is used: near its edges the box shows background
SIDE = 16  # side to which the box is resized, px
LEAST_PIXELS = 9
# Number of bins, lowest and highest value of OpenCV's 8-bit Lab; colours of real scenes lie mid-axis.
CHANNELS = ((12, 0, 256), (16, 96, 160), (16, 96, 160))


class ColourAppearance:
    """An `AppearanceSource` that computes colour histograms."""

    def describe(self, image: Image, box: Box) -> Descriptor | None:
        region = Region.inside(box, INNER_SHARE, image)
        if (region.x1 - region.x0) * (region.y1 - region.y0) < LEAST_PIXELS:
            return None
        try:
            pixels = to_bgr(image, region)
        except InputError:
            return None
        small = cv2.resize(pixels, (SIDE, SIDE), interpolation=cv2.INTER_AREA)
        lab = np.asarray(cv2.cvtColor(small, cv2.COLOR_BGR2LAB), np.uint8)
        # One count of all channels, each in a range of its own.
        counts = np.bincount((lab.reshape(-1, 3) + _OFFSETS).ravel(), minlength=3 * 256).reshape(3, 256)
        # Square roots of the bin shares, scaled so that three channels sum to 1. Each value is split between
        # the two nearest bins, so that a small change of light changes the result little.
        histograms = []
        for count, channel in zip(counts, CHANNELS, strict=True):
            shared = count @ _shares(*channel)
            histograms.append(np.sqrt(shared / shared.sum() / len(CHANNELS)))
        return np.asarray(np.concatenate(histograms), np.float64)


_OFFSETS = np.array([0, 256, 512])


@cache
def _shares(bins: int, low: int, high: int) -> NDArray[np.float64]:
    """Weights [256, bins] that split each of the 256 values between the bins."""
    place = (np.clip(np.arange(256.0), low, high - 1) - low) / (high - low) * bins - 0.5
    lower = np.floor(place).astype(int)
    shares = np.zeros((256, bins))
    np.add.at(shares, (np.arange(256), np.clip(lower, 0, bins - 1)), 1 - (place - lower))
    np.add.at(shares, (np.arange(256), np.clip(lower + 1, 0, bins - 1)), place - lower)
    return shares
