"""Converts a click on the image in another tool (RViz, Foxglove) to a selection of one point."""

from __future__ import annotations

from typing import Any

from geometry_msgs.msg import Point, PointStamped

from efftam_ros.core.errors import InputError, shown
from efftam_ros.interop.messages import stamp_ns
from efftam_ros.msg import TargetSelection

# By the parameter `clicks`.
CLICK_TYPES: dict[str, Any] = {"point_stamped": PointStamped, "point": Point}


def click_selection(click: Any, newest: Any) -> TargetSelection:
    """The TargetSelection of a geometry_msgs Point or PointStamped in image px. ``newest``: header of the
    newest image, None while there is none.

    Some tools stamp a click with the current time, which is later than the newest image: then the newest
    image is used. Raises InputError for a point in another frame than the images'."""
    selection = TargetSelection(kind=TargetSelection.POINTS, labels=[1])
    point = click
    if isinstance(click, PointStamped):
        point = click.point
        frame = click.header.frame_id
        if newest is not None and frame and frame != newest.frame_id:
            raise InputError(
                f"the click is in the frame {shown(frame)}, the images in {shown(newest.frame_id)}; publish"
                " pixels of the image, with its frame_id or none"
            )
        if newest is not None and stamp_ns(click.header.stamp) <= stamp_ns(newest.stamp):
            selection.header.stamp = click.header.stamp
    selection.points = [Point(x=point.x, y=point.y)]
    return selection
