"""Draws a track into a picture, for people: overlay topic, overlay video."""

from __future__ import annotations

import math
from collections.abc import Iterator

import cv2
import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.geometry import Box
from efftam_ros.core.types import Track, TrackState

# BGR, told apart by people with any colour vision and on any footage: every line gets a dark edge as well.
STATE_COLOURS: dict[TrackState, tuple[int, int, int]] = {
    TrackState.IDLE: (200, 200, 200),
    TrackState.ACQUIRING: (255, 200, 60),
    TrackState.TRACKING: (80, 230, 60),
    TrackState.COASTING: (40, 170, 255),
    TrackState.LOST: (70, 70, 255),
}
EDGE = (20, 20, 20)
TINT = 0.35
ARROW_SECONDS = 0.5
WINDOW_COLOUR = (160, 160, 160)
MOST_HYPOTHESES = 5  # drawn
FONT = cv2.FONT_HERSHEY_SIMPLEX


def draw_overlay(bgr: NDArray[np.uint8], track: Track, mask: NDArray[np.uint8] | None = None) -> None:
    """Draw mask, box, velocity, state and scores into ``bgr``, in place.

    ``bgr``: uint8 [H, W, 3], C-contiguous, writable; ``mask``: uint8 [H, W], non-zero on the target, or None.
    A measured box is solid, a predicted one dashed; the arrow ends where the target will be in half a second.
    While a target is missed the searched windows are thin and grey, places where it may be thin and dashed
    with their scores.
    Lines and text grow with the picture. Raises ValueError for a picture that can't be drawn into.
    """
    if bgr.dtype != np.uint8 or bgr.ndim != 3 or bgr.shape[2] != 3 or not bgr.flags.c_contiguous:
        raise ValueError(f"overlay needs a contiguous uint8 [H, W, 3] picture, got {bgr.dtype} {bgr.shape}")
    if not bgr.flags.writeable:
        raise ValueError("overlay needs a writable picture; draw into a copy")
    colour = STATE_COLOURS[track.state]
    unit = max(1, round(max(bgr.shape[:2]) / 640))
    if mask is not None:
        _tint(bgr, mask, colour, unit)
    if not track.measured:
        _draw_search(bgr, track, colour, unit)
    if track.box is not None and track.box.is_finite:
        _draw_box(bgr, track.box, colour, unit, dashed=not track.measured)
        if track.motion is not None:
            _draw_arrow(bgr, track.box, track.motion.velocity, colour, unit)
    if track.state is TrackState.LOST:
        height, width = bgr.shape[:2]
        cv2.rectangle(bgr, (0, 0), (width - 1, height - 1), colour, 2 * unit)
    _draw_caption(bgr, track, colour)


def _tint(bgr: NDArray[np.uint8], mask: NDArray[np.uint8], colour: tuple[int, int, int], unit: int) -> None:
    if mask.shape != bgr.shape[:2]:
        raise ValueError(f"mask is {mask.shape}, picture is {bgr.shape[:2]}; they must agree")
    x, y, w, h = cv2.boundingRect(np.ascontiguousarray(mask))
    if w == 0 or h == 0:
        return
    # Only the target's rectangle is touched: small targets in large pictures cost nothing.
    part, inside = bgr[y : y + h, x : x + w], mask[y : y + h, x : x + w] != 0
    part[inside] = (part[inside] * (1 - TINT) + np.array(colour) * TINT).astype(np.uint8)
    contours = cv2.findContours(inside.astype(np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)[-2]
    cv2.drawContours(bgr, contours, -1, colour, unit, cv2.LINE_AA, offset=(x, y))


def _draw_search(bgr: NDArray[np.uint8], track: Track, colour: tuple[int, int, int], unit: int) -> None:
    for view in track.windows:
        width, height = view.extent
        corner = _pixel(view.x, view.y), _pixel(view.x + width, view.y + height)
        cv2.rectangle(bgr, *corner, WINDOW_COLOUR, 1)
    for place in track.hypotheses[:MOST_HYPOTHESES]:
        for start, end in _sides(place.box, dash=4.0 * unit):
            cv2.line(bgr, _pixel(*start), _pixel(*end), colour, unit)
        at = _pixel(place.box.x, place.box.y - 2 * unit)
        cv2.putText(bgr, f"{place.score:.1f}", at, FONT, 0.35 * unit, colour, 1, cv2.LINE_AA)


def _draw_box(
    bgr: NDArray[np.uint8], box: Box, colour: tuple[int, int, int], unit: int, *, dashed: bool
) -> None:
    for line_colour, width in ((EDGE, unit + 2), (colour, unit)):
        for start, end in _sides(box, dash=8.0 * unit if dashed else math.inf):
            cv2.line(bgr, _pixel(*start), _pixel(*end), line_colour, width)


def _sides(box: Box, dash: float) -> Iterator[tuple[tuple[float, float], tuple[float, float]]]:
    """The box's four sides as line segments, cut into dashes of length ``dash`` with equal gaps."""
    x0, y0, x1, y1 = box.edges()
    corners = [(x0, y0), (x1, y0), (x1, y1), (x0, y1)]
    for (ax, ay), (bx, by) in zip(corners, corners[1:] + corners[:1], strict=True):
        length = math.hypot(bx - ax, by - ay)
        if length <= dash:
            yield (ax, ay), (bx, by)
            continue
        pieces = 2 * round(length / (2 * dash)) + 1
        for i in range(0, pieces, 2):
            a, b = i / pieces, (i + 1) / pieces
            yield (
                (ax + (bx - ax) * a, ay + (by - ay) * a),
                (ax + (bx - ax) * b, ay + (by - ay) * b),
            )


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


def _draw_caption(bgr: NDArray[np.uint8], track: Track, colour: tuple[int, int, int]) -> None:
    lines = [track.state.name]
    if track.state is not TrackState.IDLE:
        lines[0] += f"  presence {track.presence:.2f}"
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
        # putText knows ASCII only, and a long reason must not run out of a small picture.
        text = text.encode("ascii", "replace").decode()
        (w, h), below = cv2.getTextSize(text, FONT, scale, weight)
        size = min(1.0, (width - 4 * margin) / max(w, 1)) * scale
        (w, h), below = cv2.getTextSize(text, FONT, size, weight)
        _darken(bgr, margin, top, w + 2 * margin, h + below + margin)
        at = (2 * margin, top + margin // 2 + h)
        cv2.putText(bgr, text, at, FONT, size, colour if i == 0 else (230, 230, 230), weight, cv2.LINE_AA)
        top += h + below + margin


def _darken(bgr: NDArray[np.uint8], x: int, y: int, width: int, height: int) -> None:
    part = bgr[y : y + height, x : x + width]
    part //= 3


def _pixel(x: float, y: float) -> tuple[int, int]:
    """An edge coordinate as the nearest pixel, kept where OpenCV's 16-bit line drawing is exact."""
    return (round(min(max(x, -8000.0), 24000.0)), round(min(max(y, -8000.0), 24000.0)))
