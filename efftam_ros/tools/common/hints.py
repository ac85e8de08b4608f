"""Finds the probable cause if a target is lost directly after its selection, and what to draw instead."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

import cv2
import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.geometry import Box
from efftam_ros.core.types import Prompt, Track, TrackState
from efftam_ros.images.video import NS

# A box that covers more than LARGE_SHARE of the image seldom contains only one object. A box with a side
# below SMALL_PX, px, seldom contains a whole object.
LARGE_SHARE, SMALL_PX = 0.25, 8.0
# If the standard deviation of the grey levels (0..255) is below this, the box shows nothing that can be
# tracked.
PLAIN_LEVELS = 8.0
MISSED = (TrackState.COASTING, TrackState.LOST)


class LossCause(Enum):
    """The probable cause of a loss. Each value is a line for the user: the cause and the remedy."""

    TOO_LARGE = "the box is too large: it holds more than one object; draw the box close around one object"
    TOO_SMALL = "the box is too small; draw the box around the whole object, or use images of more pixels"
    PLAIN = "the box shows only a uniform background; draw the box around an object"
    OTHER = "draw the box close around one whole object, in an image in which nothing hides it"


def lost_after_s(tracks: Sequence[Track]) -> float | None:
    """Return the time from a target's selection to its loss, s.

    None if the target was never lost, or was in the state TRACKING at any time. ``tracks``: all tracks of one
    target, from its selection on.
    """
    if any(track.state is TrackState.TRACKING for track in tracks):
        return None
    missed = next((track for track in tracks if track.state in MISSED), None)
    return None if missed is None else (missed.stamp_ns - tracks[0].stamp_ns) / NS


def cause_of(bgr: NDArray[np.uint8], prompt: Prompt) -> LossCause:
    """Return what is probably wrong with a selection. ``bgr``: the image of the selection, uint8 [H, W,
    3]."""
    height, width = bgr.shape[:2]
    box = prompt.box
    if box is None:
        return LossCause.OTHER
    if box.width * box.height > LARGE_SHARE * width * height:
        return LossCause.TOO_LARGE
    if min(box.width, box.height) < SMALL_PX:
        return LossCause.TOO_SMALL
    return LossCause.PLAIN if _is_plain(bgr, box) else LossCause.OTHER


def _is_plain(bgr: NDArray[np.uint8], box: Box) -> bool:
    """Return whether a box and its surroundings, half its size on each side, show one uniform grey."""
    height, width = bgr.shape[:2]
    left, top = max(0, int(box.x - box.width / 2)), max(0, int(box.y - box.height / 2))
    right, bottom = min(width, int(box.x1 + box.width / 2)), min(height, int(box.y1 + box.height / 2))
    grey = cv2.cvtColor(bgr[top:bottom, left:right], cv2.COLOR_BGR2GRAY)
    return float(cv2.meanStdDev(grey)[1][0, 0]) < PLAIN_LEVELS
