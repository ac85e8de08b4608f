"""Draws the tracker's result into an image, for the overlay topic and for videos."""

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
"""Colour of each state in BGR order, as OpenCV needs it."""
EDGE = (EDGE_RGB[2], EDGE_RGB[1], EDGE_RGB[0])
# Lengths of dash and gap for each line style, in line widths.
DASHES = {"dashed": (8.0, 8.0), "dotted": (1.0, 6.0)}
CORNER = 0.25  # length of the line at each corner in the style "corners", as a share of the side
# Most dashes of one side. Limits the drawing time for a box far larger than the image.
MAX_MARKS = 1000
TINT = 0.35  # opacity of the colour on the mask
ARROW_SECONDS = 0.5  # the arrow shows the distance that the target moves in this time, s
WINDOW_COLOUR = (160, 160, 160)
MAX_HYPOTHESES = 5  # largest number of possible positions that are drawn for a missed target
FONT = cv2.FONT_HERSHEY_SIMPLEX


def draw_overlay(
    bgr: NDArray[np.uint8],
    track: Track,
    mask: NDArray[np.uint8] | None = None,
    target_id: int | None = None,
    is_steered: bool = True,
) -> None:
    """Draw mask, box, velocity, state and scores of a target into ``bgr`` (uint8 [H, W, 3], C-contiguous), in
    place.

    The box has the colour and line style of its state (`images.palette`). The arrow ends where the target is
    expected in half a second. While a target is missed, the searched windows are thin grey boxes, and its
    possible positions are dashed boxes with their scores.

    ``mask``: uint8 [H, W], non-zero on the target, or None. ``target_id``: None for a single target. If
    several targets are drawn, by one call each, the id sets the colour and is written at the box.
    ``is_steered``: whether the lines of text are drawn; of several targets only the steered one has them.

    Raises ValueError if ``bgr`` can't be drawn into, or the mask has another size.
    """
    if bgr.dtype != np.uint8 or bgr.ndim != 3 or bgr.shape[2] != 3 or not bgr.flags.c_contiguous:
        raise ValueError(f"overlay needs a contiguous uint8 [H, W, 3] image, got {bgr.dtype} {bgr.shape}")
    if not bgr.flags.writeable:
        raise ValueError("overlay needs a writable image; draw into a copy")
    style, colour = STATE_STYLES[track.state], STATE_COLOURS[track.state]
    if target_id is not None:
        red, green, blue = TARGET_RGB[target_id % len(TARGET_RGB)]
        colour = blue, green, red
    # Line width, px: lines and letters are larger in larger images.
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
            # The id is drawn twice, first wide and dark: the dark edge makes it readable on a bright
            # background.
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
    # Only the mask's bounding rectangle is processed: most targets are small, and this saves time.
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
    """Yield the line segments that draw the four sides of a box, each by its two end points, px.

    ``line``: the line style, see `StateStyle`; ``unit``: line width, px.
    """
    x0, y0, x1, y1 = box.edges()
    corners = [(x0, y0), (x1, y0), (x1, y1), (x0, y1)]
    for (ax, ay), (bx, by) in zip(corners, corners[1:] + corners[:1], strict=True):
        for a, b in _shares(line, math.hypot(bx - ax, by - ay) / unit):
            yield ((ax + (bx - ax) * a, ay + (by - ay) * a), (ax + (bx - ax) * b, ay + (by - ay) * b))


def _shares(line: str, length: float) -> list[tuple[float, float]]:
    """Return start and end of each segment that draws one side of a box, as shares of the side (0 to 1).

    ``line``: the line style; ``length``: the side's length, in line widths. Both ends of the side are drawn.
    """
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
        # putText draws only ASCII characters.
        text = text.encode("ascii", "replace").decode()
        (w, h), below = cv2.getTextSize(text, FONT, scale, weight)
        # Reduce the letters of a line that is too long for the image.
        size = min(1.0, (width - 4 * margin) / max(w, 1)) * scale
        (w, h), below = cv2.getTextSize(text, FONT, size, weight)
        bgr[top : top + h + below + margin, margin : w + 3 * margin] //= 3
        at = (2 * margin, top + margin // 2 + h)
        cv2.putText(bgr, text, at, FONT, size, colour if i == 0 else (230, 230, 230), weight, cv2.LINE_AA)
        top += h + below + margin


def _pixel(x: float, y: float) -> tuple[int, int]:
    """Round image coordinates to a pixel, clamped to the range in which OpenCV draws lines correctly (16
    bits)."""
    return (round(min(max(x, -8000.0), 24000.0)), round(min(max(y, -8000.0), 24000.0)))
