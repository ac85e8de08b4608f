"""Converts decoded frames to BGR pixels, and rotates them as the container's display matrix requires."""

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
    """Rotate and mirror an image as the metadata of its frame require.

    ``frame``: the decoded frame; ``pixels``: its pixels, uint8 [h, w, 3]; ``name``: the video's name in
    errors. Returns uint8 [H, W, 3], C-contiguous. Raises InputError for a rotation that is no multiple of 90
    degrees.
    """
    transposed, rows_back, columns_back = orientation(frame, name)
    if transposed:
        pixels = pixels.transpose(1, 0, 2)
    pixels = pixels[:: -1 if rows_back else 1, :: -1 if columns_back else 1]
    return np.ascontiguousarray(pixels)


def _side_data(frame: av.VideoFrame) -> Any:
    """Return the frame's side data by kind.

    Without `_admit_other_kinds`, PyAV raises an error if FFmpeg returns a kind of side data that PyAV lacks.
    """
    _admit_other_kinds()
    return frame.side_data


@cache
def _admit_other_kinds() -> None:
    """Change PyAV's enumeration of side data, so that unknown kinds get a name instead of a ValueError."""
    from av.sidedata.sidedata import Type

    def other(kinds: Any, value: object) -> Any:
        kind = object.__new__(kinds)
        kind._name_, kind._value_ = f"OTHER_{value}", value
        return kind

    kinds: Any = Type
    kinds._missing_ = classmethod(other)


def orientation(frame: av.VideoFrame, name: str) -> tuple[bool, bool, bool]:
    """Return how an image must be rotated and mirrored, as the metadata of its frame require.

    The three flags mean: exchange rows and columns; then reverse the order of the rows; then reverse the
    order of the columns. ``name``: the video's name in errors. Raises InputError for a rotation that is no
    multiple of 90 degrees.
    """
    found: Any = _side_data(frame).get("DISPLAYMATRIX")
    if found is None:
        return False, False, False
    # FFmpeg's display matrix: x' = a x + c y, y' = b x + d y.
    a, b, _, c, d = struct.unpack("=9i", bytes(found)[:36])[:5]
    straight, crossed = max(abs(a), abs(d)), max(abs(b), abs(c))
    if min(straight, crossed) > 0.01 * max(straight, crossed):
        raise InputError(
            f"{name} has a rotation of {frame.rotation:g} degrees; only multiples of 90 are supported: rotate"
            " it with ffmpeg"
        )
    return (True, b < 0, c < 0) if crossed > straight else (False, d < 0, a < 0)


def orientation_note(transposed: bool, rows_back: bool, columns_back: bool) -> str:
    """Return a note for the user on the rotation and mirroring that `oriented` applies; empty for none.

    The arguments are the three results of `orientation`.
    """
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

    PyAV's `VideoFrame.to_ndarray` would start a converter with two threads for each frame. This function
    keeps one converter per calling thread, because two threads must not use one converter at the same time.
    """
    if not hasattr(_of_thread, "converter"):
        from av.video.reformatter import VideoReformatter

        _of_thread.converter = VideoReformatter()
    return np.asarray(_of_thread.converter.reformat(frame, format=form).to_ndarray())


def bgr_of(frame: av.VideoFrame, levels: Levels, stamp_ns: int) -> NDArray[np.uint8]:
    """Return the pixels of a decoded frame as BGR, uint8 [H, W, 3].

    ``levels``: reduces grey and RGB pixels of more than 8 bits; ``stamp_ns``: the image's stamp, ns, for
    ``levels``. YUV pixels of 10 and 12 bits use their whole range, so they only lose their lowest bits.
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
