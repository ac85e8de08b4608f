"""A track as foxglove_msgs/ImageAnnotations: vectors, which a viewer draws on the image of the same stamp."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from efftam_ros.core.geometry import Box
from efftam_ros.core.palette import EDGE_RGB, STATE_STYLES
from efftam_ros.core.types import Track

Point = tuple[float, float]
Segment = tuple[Point, Point]

THICKNESS_PX = 3.0
FONT_PX = 20.0
# Annotations have whole lines only: others are pieces, so many to a side; the share of each that is drawn.
PIECES = {"dashed": (6, 0.6), "dotted": (12, 0.3)}
CORNER = 0.3


def annotations_message(foxglove: Any, tracks: Mapping[int, Track], header: Any) -> Any:
    """Box and word of each target, by id. ``foxglove`` is the module ``foxglove_msgs.msg``."""
    message = foxglove.ImageAnnotations()
    for target_id, track in sorted(tracks.items()):
        _annotate(message, foxglove, track, header, f"{target_id} " if len(tracks) > 1 else "")
    return message


def _annotate(message: Any, foxglove: Any, track: Track, header: Any, name: str) -> None:
    style = STATE_STYLES[track.state]
    if style.line == "none":
        return
    colour = _colour(foxglove, style.rgb)

    def lines(kind: int, points: list[Point]) -> Any:
        return foxglove.PointsAnnotation(
            timestamp=header.stamp,
            type=kind,
            points=[foxglove.Point2(x=x, y=y) for x, y in points],
            outline_color=colour,
            outline_colors=[],
            fill_color=foxglove.Color(r=0.0, g=0.0, b=0.0, a=0.0),
            thickness=THICKNESS_PX,
        )

    loop, pieces = foxglove.PointsAnnotation.LINE_LOOP, foxglove.PointsAnnotation.LINE_LIST
    width, height = (float(side) for side in track.image_size)
    at = (4.0, FONT_PX + 4.0)
    if style.frame:
        message.points.append(lines(loop, _corners(Box(0.0, 0.0, width, height))))
    if track.box is not None:
        at = (float(track.box.x), max(FONT_PX, float(track.box.y) - 4.0))
        if style.line == "solid":
            message.points.append(lines(loop, _corners(track.box)))
        else:
            segments = _segments(track.box, style.line)
            message.points.append(lines(pieces, [point for segment in segments for point in segment]))
    text = f"{name}{track.state.name}"
    if track.age_s > 0:
        text += f" unseen {track.age_s:.1f} s"
    message.texts.append(
        foxglove.TextAnnotation(
            timestamp=header.stamp,
            position=foxglove.Point2(x=at[0], y=at[1]),
            text=text,
            font_size=FONT_PX,
            text_color=_colour(foxglove, EDGE_RGB),
            background_color=colour,
        )
    )


def _corners(box: Box) -> list[Point]:
    x0, y0, x1, y1 = (float(v) for v in box.edges())
    return [(x0, y0), (x1, y0), (x1, y1), (x0, y1)]


def _segments(box: Box, line: str) -> Iterator[Segment]:
    corners = _corners(box)
    for (ax, ay), (bx, by) in zip(corners, corners[1:] + corners[:1], strict=True):
        if line == "corners":
            parts = [(0.0, CORNER), (1.0 - CORNER, 1.0)]
        else:
            count, share = PIECES[line]
            parts = [(i / count, (i + share) / count) for i in range(count)]
        for begin, end in parts:
            yield (
                (ax + begin * (bx - ax), ay + begin * (by - ay)),
                (ax + end * (bx - ax), ay + end * (by - ay)),
            )


def _colour(foxglove: Any, rgb: tuple[int, int, int]) -> Any:
    r, g, b = (value / 255 for value in rgb)
    return foxglove.Color(r=r, g=g, b=b, a=1.0)
