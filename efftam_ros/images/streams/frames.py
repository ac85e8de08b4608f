"""A decoded frame as BGR pixels, turned as the display matrix of its container requires."""

from __future__ import annotations

import struct
import threading
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.errors import InputError
from efftam_ros.images.levels import Levels

if TYPE_CHECKING:
    import av


def oriented(frame: av.VideoFrame, pixels: NDArray[np.uint8], name: str) -> NDArray[np.uint8]:
    """Return the image as its metadata want it shown, [H, W, 3], C-contiguous. Raises InputError for other
    angles than quarter turns."""
    transposed, rows_back, columns_back = orientation(frame, name)
    if transposed:
        pixels = pixels.transpose(1, 0, 2)
    pixels = pixels[:: -1 if rows_back else 1, :: -1 if columns_back else 1]
    return np.ascontiguousarray(pixels)


def _side_data(frame: av.VideoFrame) -> Any:
    """Return the frame's side data; PyAV knows not all kinds that FFmpeg has, and gives none then."""
    _admit_other_kinds()
    return frame.side_data


@cache
def _admit_other_kinds() -> None:
    """Have PyAV take kinds of side data that it does not know, instead of a ValueError for them all."""
    from av.sidedata.sidedata import Type

    def other(kinds: Any, value: object) -> Any:
        kind = object.__new__(kinds)
        kind._name_, kind._value_ = f"OTHER_{value}", value
        return kind

    kinds: Any = Type
    kinds._missing_ = classmethod(other)


def orientation(frame: av.VideoFrame, name: str) -> tuple[bool, bool, bool]:
    """Return whether rows and columns are exchanged, and then run back; see `oriented`."""
    found: Any = _side_data(frame).get("DISPLAYMATRIX")
    if found is None:
        return False, False, False
    # FFmpeg's display matrix: x' = a x + c y, y' = b x + d y.
    a, b, _, c, d = struct.unpack("=9i", bytes(found)[:36])[:5]
    straight, crossed = max(abs(a), abs(d)), max(abs(b), abs(c))
    if min(straight, crossed) > 0.01 * max(straight, crossed):
        raise InputError(
            f"{name} has a rotation of {frame.rotation:g} degrees; only multiples of 90 are supported"
        )
    return (True, b < 0, c < 0) if crossed > straight else (False, d < 0, a < 0)


def orientation_note(transposed: bool, rows_back: bool, columns_back: bool) -> str:
    """Describe what `oriented` does; empty for nothing."""
    is_mirrored = transposed ^ rows_back ^ columns_back
    turns = (1 if rows_back else 3) if transposed else 2 if rows_back else 0
    changes = ["mirrored"] if is_mirrored else []
    if is_mirrored and transposed:
        turns = 3 if rows_back else 1
    if turns:
        changes.append(f"rotated by {90 * turns} degrees counter-clockwise")
    return f"{' and '.join(changes)}, as its metadata requires" if changes else ""


_of_thread = threading.local()


def pixels_as(form: str, frame: av.VideoFrame) -> NDArray[Any]:
    """Return the pixels of a decoded frame in one of FFmpeg's formats, such as bgr24: [H, W] or [H, W, 3].

    A frame's own `to_ndarray` makes a converter with two threads for each frame, which ends when the frame is
    collected. One converter serves a whole thread; it must not be used by two at a time.
    """
    if not hasattr(_of_thread, "converter"):
        from av.video.reformatter import VideoReformatter

        _of_thread.converter = VideoReformatter()
    return np.asarray(_of_thread.converter.reformat(frame, format=form).to_ndarray())


def bgr_of(frame: av.VideoFrame, levels: Levels, stamp_ns: int) -> NDArray[np.uint8]:
    """Return a decoded frame as uint8 [H, W, 3] BGR; grey and RGB of more than 8 bits have the range
    ``levels``.

    YUV of 10 and 12 bits uses its whole range, and loses only the lowest bits.
    """
    import cv2

    if max(part.bits for part in frame.format.components) > 8:
        if frame.format.name.startswith("gray"):
            grey = levels.reduced(pixels_as("gray16le", frame), stamp_ns)
            return np.asarray(cv2.cvtColor(grey, cv2.COLOR_GRAY2BGR), np.uint8)
        if frame.format.is_rgb:
            rgb = levels.reduced(pixels_as("rgb48le", frame), stamp_ns)
            return np.asarray(cv2.cvtColor(rgb, cv2.COLOR_RGB2BGR), np.uint8)
    return np.asarray(pixels_as("bgr24", frame), np.uint8)
