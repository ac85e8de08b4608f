"""What files and streams have in common: which track is read, which images are whole, how they are turned."""

from __future__ import annotations

import struct
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.errors import InputError
from efftam_ros.images.levels import Levels
from efftam_ros.images.streams.h264 import PictureNumbers

if TYPE_CHECKING:
    import av

DEFAULT_TRACK = -1
# So long images that need a lost one are left out where no key frame comes: a stream that is refreshed piece
# by piece has none.
LONGEST_DAMAGE_S = 2.0


def choose_track(container: Any, track: int, name: str) -> tuple[Any, str]:
    """The video stream of this number among the container's, `DEFAULT_TRACK`: the default one, no cover
    picture; and a note where there is a choice. Raises InputError where there is none of the number."""
    from av.stream import Disposition

    found = list(container.streams.video)
    if not found:
        raise InputError(f"{name} holds no video stream; give a video file, a stream or a folder of images")
    listed = "; ".join(
        f"{i}: {s.codec_context.name} {s.codec_context.width}x{s.codec_context.height}"
        + (", cover picture" if s.disposition & Disposition.attached_pic else "")
        + (", default" if s.disposition & Disposition.default else "")
        for i, s in enumerate(found)
    )
    if track != DEFAULT_TRACK:
        if not 0 <= track < len(found):
            raise InputError(f"{name} has no video track {track}; it has {listed}")
        return found[track], ""
    films = [s for s in found if not s.disposition & Disposition.attached_pic]
    chosen = next((s for s in films if s.disposition & Disposition.default), [*films, *found][0])
    if len(films) < 2:
        return chosen, ""
    return chosen, (
        f"holds several video tracks ({listed}): {found.index(chosen)} is read, another one by --track N"
        " (node: track:=N, Python: video_track=N)"
    )


class ImageDecoder:
    """Decodes the packets of one track and tells which images are whole.

    Decoders show images that need a lost one torn, with an error at most for the first. Here those are left
    out, until the next key frame, at most for `LONGEST_DAMAGE_S`.
    """

    def __init__(self, stream: Any) -> None:
        context = stream.codec_context
        self._is_hevc = context.name == "hevc"
        self._numbers = PictureNumbers(context.extradata) if context.name == "h264" else None
        self._rate = float(stream.guessed_rate or 25)
        self._base: Fraction | None = stream.time_base
        self._from: float | None = None  # when the damage began, s of the stream
        self._bad: set[int] = set()  # pts of damaged packets
        self._tolerates = self._has_begun = self._was_marked = False
        self._images = 0
        self.damaged = 0
        """Packets that are damaged, can't be decoded, or before which one is missing."""
        self.left_out = 0
        """Images that need them."""
        self.packets = 0
        """Packets of images, whole or not."""

    def decode(self, packet: Any) -> list[tuple[av.VideoFrame, bool]]:
        """The images that this packet completes, and whether they are whole."""
        import av

        self.packets += packet.size > 0
        # FFmpeg's parsers hold back an image, so that of MPEG-TS it may be the one before that is marked.
        is_lost, self._was_marked = packet.is_corrupt or self._was_marked, packet.is_corrupt
        if self._numbers is not None and packet.size:
            is_lost |= self._numbers.lacks(bytes(packet))
        try:
            frames: list[av.VideoFrame] = packet.decode()
        except av.error.InvalidDataError:
            frames, is_lost = [], True
        if is_lost:
            self._note(packet)
        elif self._is_hevc and self._has_begun and packet.size and not frames:
            # Each packet of H.265 gives an image; one that needs what was lost gives none.
            self.damaged += 1
            self.left_out += 1
        self._has_begun |= bool(frames)
        return [(frame, self._is_whole(frame)) for frame in frames]

    def _note(self, packet: Any) -> None:
        self.damaged += 1
        if packet.pts is not None:
            self._bad.add(packet.pts)
        began = packet.pts if packet.dts is None else packet.dts  # images are decoded in this order
        if self._from is None:
            self._from = self._seconds(began)

    def _is_whole(self, frame: av.VideoFrame) -> bool:
        now_s, is_corrupt = self._seconds(frame.pts), frame.is_corrupt or frame.pts in self._bad
        self._images += 1
        if is_corrupt and self._from is None and not self._tolerates:
            self._from = now_s
        if frame.key_frame and not is_corrupt and now_s >= (self._from or now_s):
            self._from, self._tolerates = None, False
            self._bad.clear()
        elif self._from is not None and now_s - self._from > LONGEST_DAMAGE_S:
            self._from, self._tolerates = None, True
        whole = self._from is None or now_s < self._from
        self.left_out += not whole
        return whole

    def _seconds(self, pts: int | None) -> float:
        if pts is None or self._base is None:
            return self._images / self._rate
        return float(pts * self._base)


def oriented(frame: av.VideoFrame, pixels: NDArray[np.uint8], name: str) -> NDArray[np.uint8]:
    """The image as its metadata want it shown, [H, W, 3], C-contiguous. Raises InputError for other angles
    than quarter turns."""
    transposed, rows_back, columns_back = orientation(frame, name)
    if transposed:
        pixels = pixels.transpose(1, 0, 2)
    pixels = pixels[:: -1 if rows_back else 1, :: -1 if columns_back else 1]
    return np.ascontiguousarray(pixels)


def orientation(frame: av.VideoFrame, name: str) -> tuple[bool, bool, bool]:
    """Whether rows and columns are exchanged, and then run back; see `oriented`."""
    found: Any = frame.side_data.get("DISPLAYMATRIX")
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
    """What `oriented` does, for people; empty for nothing."""
    is_mirrored = transposed ^ rows_back ^ columns_back
    turns = (1 if rows_back else 3) if transposed else 2 if rows_back else 0
    words = ["mirrored"] if is_mirrored else []
    if is_mirrored and transposed:
        turns = 3 if rows_back else 1
    if turns:
        words.append(f"rotated by {90 * turns} degrees counter-clockwise")
    return f"{' and '.join(words)}, as its metadata requires" if words else ""


def bgr_of(frame: av.VideoFrame, levels: Levels, stamp_ns: int) -> NDArray[np.uint8]:
    """A decoded frame as uint8 [H, W, 3] BGR; grey and RGB of more than 8 bits have the range ``levels``.

    YUV of 10 and 12 bits uses its whole range, and loses only the lowest bits.
    """
    import cv2

    if max(part.bits for part in frame.format.components) > 8:
        if frame.format.name.startswith("gray"):
            grey = levels.reduced(frame.to_ndarray(format="gray16le"), stamp_ns)
            return np.asarray(cv2.cvtColor(grey, cv2.COLOR_GRAY2BGR), np.uint8)
        if frame.format.is_rgb:
            rgb = levels.reduced(frame.to_ndarray(format="rgb48le"), stamp_ns)
            return np.asarray(cv2.cvtColor(rgb, cv2.COLOR_RGB2BGR), np.uint8)
    return np.asarray(frame.to_ndarray(format="bgr24"), np.uint8)
