"""Draws a track into an image, for the overlay topic and for video."""

from __future__ import annotations

import math
from collections.abc import Iterator

import cv2
import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.geometry import Box
from efftam_ros.core.types import Track, TrackState
from efftam_ros.images.palette import EDGE_RGB, STATE_STYLES, TARGET_RGB

STATE_COLOURS: dict[TrackState, tuple[int, int, int]] = {
    state: (style.rgb[2], style.rgb[1], style.rgb[0]) for state, style in STATE_STYLES.items()
}
"""The palette's colours in BGR order."""
EDGE = (EDGE_RGB[2], EDGE_RGB[1], EDGE_RGB[0])
# Lengths of dashes and gaps, in line widths.
DASHES = {"dashed": (8.0, 8.0), "dotted": (1.0, 6.0)}
CORNER = 0.25
# Limits the drawing time for a box far larger than the image.
MAX_MARKS = 1000
TINT = 0.35
ARROW_SECONDS = 0.5
WINDOW_COLOUR = (160, 160, 160)
MAX_HYPOTHESES = 5  # most hypotheses drawn
FONT = cv2.FONT_HERSHEY_SIMPLEX


def draw_overlay(
    bgr: NDArray[np.uint8],
    track: Track,
    mask: NDArray[np.uint8] | None = None,
    target_id: int | None = None,
    is_steered: bool = True,
) -> None:
    """Draw mask, box, velocity, state and scores into ``bgr`` (uint8 [H, W, 3], C-contiguous), in place.

    Colour and line of the box are those of the state (`images.palette`); the arrow ends at the target's
    predicted position in half a second. While a target is missed, searched windows are thin and grey and its
    possible positions dashed, with their scores. ``mask``: uint8 [H, W], non-zero on the target.

    ``target_id``: of one among several, drawn one after the other: the colour is its own and the box bears
    its id; the text lines are those of the steered target. Raises ValueError for an image that can't be
    drawn into.
    """
    if bgr.dtype != np.uint8 or bgr.ndim != 3 or bgr.shape[2] != 3 or not bgr.flags.c_contiguous:
        raise ValueError(f"overlay needs a contiguous uint8 [H, W, 3] image, got {bgr.dtype} {bgr.shape}")
    if not bgr.flags.writeable:
        raise ValueError("overlay needs a writable image; draw into a copy")
    style, colour = STATE_STYLES[track.state], STATE_COLOURS[track.state]
    if target_id is not None:
        red, green, blue = TARGET_RGB[target_id % len(TARGET_RGB)]
        colour = blue, green, red
    # Lines and letters keep their share of the picture whatever its size.
    unit = max(1, round(max(bgr.shape[:2]) / 640))
    if mask is not None:
        _tint(bgr, mask, colour, unit)
    if not track.measured:
        _draw_search(bgr, track, colour, unit)
    if track.box is not None and track.box.is_finite:
        _draw_box(bgr, track.box, colour, unit, style.line)
        if track.motion is not None:
            _draw_arrow(bgr, track.box, track.motion.velocity, colour, unit)
        if target_id is not None:
            at = _pixel(track.box.x, track.box.y - 2 * unit)
            # A dark edge below the colour: readable on bright ground too.
            for edge, width in ((EDGE, 3 * unit), (colour, unit)):
                cv2.putText(bgr, str(target_id), at, FONT, 0.45 * unit, edge, width, cv2.LINE_AA)
    if not is_steered:
        return
    if style.frame:
        height, width = bgr.shape[:2]
        cv2.rectangle(bgr, (0, 0), (width - 1, height - 1), colour, 2 * unit)
    _draw_caption(bgr, track, colour, "" if target_id is None else f"{target_id}  ")


def _tint(bgr: NDArray[np.uint8], mask: NDArray[np.uint8], colour: tuple[int, int, int], unit: int) -> None:
    if mask.shape != bgr.shape[:2]:
        raise ValueError(f"mask is {mask.shape}, image is {bgr.shape[:2]}; give a mask of the image's size")
    x, y, w, h = cv2.boundingRect(np.ascontiguousarray(mask))
    if w == 0 or h == 0:
        return
    # Restricted to the target's rectangle, because most targets are small.
    part, inside = bgr[y : y + h, x : x + w], mask[y : y + h, x : x + w] != 0
    part[inside] = (part[inside] * (1 - TINT) + np.array(colour) * TINT).astype(np.uint8)
    contours = cv2.findContours(inside.astype(np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)[-2]
    cv2.drawContours(bgr, contours, -1, colour, unit, cv2.LINE_AA, offset=(x, y))


def _draw_search(bgr: NDArray[np.uint8], track: Track, colour: tuple[int, int, int], unit: int) -> None:
    for view in track.windows:
        width, height = view.extent
        corner = _pixel(view.x, view.y), _pixel(view.x + width, view.y + height)
        cv2.rectangle(bgr, *corner, WINDOW_COLOUR, 1)
    for place in track.hypotheses[:MAX_HYPOTHESES]:
        for start, end in _marks(place.box, "dashed", 1):
            cv2.line(bgr, _pixel(*start), _pixel(*end), colour, unit)
        at = _pixel(place.box.x, place.box.y - 2 * unit)
        cv2.putText(bgr, f"{place.score:.1f}", at, FONT, 0.35 * unit, colour, 1, cv2.LINE_AA)


def _draw_box(bgr: NDArray[np.uint8], box: Box, colour: tuple[int, int, int], unit: int, line: str) -> None:
    for line_colour, width in ((EDGE, unit + 2), (colour, unit)):
        for start, end in _marks(box, line, unit):
            cv2.line(bgr, _pixel(*start), _pixel(*end), line_colour, width)


def _marks(box: Box, line: str, unit: int) -> Iterator[tuple[tuple[float, float], tuple[float, float]]]:
    """Line segments to draw for the box's four sides; ``line`` as in `StateStyle`."""
    x0, y0, x1, y1 = box.edges()
    corners = [(x0, y0), (x1, y0), (x1, y1), (x0, y1)]
    for (ax, ay), (bx, by) in zip(corners, corners[1:] + corners[:1], strict=True):
        for a, b in _shares(line, math.hypot(bx - ax, by - ay) / unit):
            yield ((ax + (bx - ax) * a, ay + (by - ay) * a), (ax + (bx - ax) * b, ay + (by - ay) * b))


def _shares(line: str, length: float) -> list[tuple[float, float]]:
    """Segments of one side as shares of its ``length`` (in line widths); both ends of a side are drawn."""
    if line == "none":
        return []
    if line == "corners":
        return [(0.0, CORNER), (1.0 - CORNER, 1.0)]
    mark, gap = DASHES.get(line, (math.inf, 0.0))
    if length <= mark:
        return [(0.0, 1.0)]
    count = min(round((length + gap) / (mark + gap)), MAX_MARKS)
    if count < 2:
        return [(0.0, mark / length), (1.0 - mark / length, 1.0)]
    step = (1.0 - mark / length) / (count - 1)
    return [(i * step, i * step + mark / length) for i in range(count)]


def _draw_arrow(
    bgr: NDArray[np.uint8], box: Box, velocity: tuple[float, float], colour: tuple[int, int, int], unit: int
) -> None:
    dx, dy = velocity[0] * ARROW_SECONDS, velocity[1] * ARROW_SECONDS
    if not (math.isfinite(dx) and math.isfinite(dy)) or math.hypot(dx, dy) < 3 * unit:
        return
    start, end = _pixel(box.cx, box.cy), _pixel(box.cx + dx, box.cy + dy)
    tip = min(0.3, 8 * unit / math.hypot(dx, dy))
    for line_colour, width in ((EDGE, unit + 2), (colour, unit)):
        cv2.arrowedLine(bgr, start, end, line_colour, width, cv2.LINE_AA, 0, tip)


def _draw_caption(bgr: NDArray[np.uint8], track: Track, colour: tuple[int, int, int], first: str) -> None:
    lines = [first + track.state.name]
    if track.state is not TrackState.IDLE:
        if math.isfinite(track.confidence):
            lines[0] += f"  confidence {track.confidence:.2f}"
        lines[0] += f"  presence {track.presence:.2f}"
        if math.isfinite(track.likeness):
            lines[0] += f"  like {track.likeness:.2f}"
        if track.measured:
            lines[0] += f"  quality {track.quality:.2f}"
        elif math.isfinite(track.age_s):
            lines[0] += f"  unseen {track.age_s:.1f} s"
    if track.reason:
        lines.append(track.reason)
    height, width = bgr.shape[:2]
    scale = min(max(max(height, width) / 1600, 0.45), 2.5)
    weight = max(1, round(scale * 1.4))
    margin = round(10 * scale)
    top = margin
    for i, text in enumerate(lines):
        # putText draws ASCII only, and a long reason must fit a small image.
        text = text.encode("ascii", "replace").decode()
        (w, h), below = cv2.getTextSize(text, FONT, scale, weight)
        size = min(1.0, (width - 4 * margin) / max(w, 1)) * scale
        (w, h), below = cv2.getTextSize(text, FONT, size, weight)
        bgr[top : top + h + below + margin, margin : w + 3 * margin] //= 3
        at = (2 * margin, top + margin // 2 + h)
        cv2.putText(bgr, text, at, FONT, size, colour if i == 0 else (230, 230, 230), weight, cv2.LINE_AA)
        top += h + below + margin


def _pixel(x: float, y: float) -> tuple[int, int]:
    """Return the pixel nearest to an edge coordinate, clamped to the range of OpenCV's 16-bit line
    drawing."""
    return (round(min(max(x, -8000.0), 24000.0)), round(min(max(y, -8000.0), 24000.0)))
