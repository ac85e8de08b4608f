"""The bridge's way to the tracker: selections go out on a topic, answers come as messages."""

from __future__ import annotations

from typing import Any

from geometry_msgs.msg import Point
from rclpy.node import Node

from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box
from efftam_ros.core.types import TrackState
from efftam_ros.flight.mavlink.selection import SelectionOutcome, SelectionRequest
from efftam_ros.flight.mavlink.tracking_status import TrackStatus
from efftam_ros.interop.messages import Outcome, stamp_like, stamp_ns
from efftam_ros.msg import TargetSelection
from efftam_ros.ros.common.qos import reliable
from efftam_ros.ros.gimbal.conversions import track_state


class TrackerTopics:
    """Publishes the operator's selections; implements the bridge's `TrackerPort`. ``steered``: `target_id` of
    the target that is steered by, which a request to stop means; 0: none."""

    def __init__(self, node: Node) -> None:
        self.steered = 0
        self._selections = node.create_publisher(TargetSelection, "select", reliable())

    def select(self, request: SelectionRequest) -> str | None:
        """Hand a request on without waiting; a text when nobody would get it."""
        if not self._selections.get_subscription_count():
            return "no tracker listens; start efftam_tracker"
        message = selection_message(request)
        if message.kind == TargetSelection.CLEAR:
            message.target_id = self.steered
        self._selections.publish(message)
        return None


def selection_message(request: SelectionRequest) -> TargetSelection:
    """The request as a TargetSelection in 0..1 of the image of its stamp."""
    message = TargetSelection(units=TargetSelection.NORMALIZED)
    message.header.stamp = stamp_like(message.header.stamp, max(request.stamp_ns, 0))
    if request.box is not None:
        message.kind = TargetSelection.BOX
        message.x, message.y, message.width, message.height = request.box.xywh()
    elif request.point is not None:
        message.kind = TargetSelection.POINTS
        message.points = [Point(x=request.point[0], y=request.point[1])]
        message.labels = [1]
    else:
        message.kind = TargetSelection.CLEAR
    return message


def status_of(message: Any) -> TrackStatus:
    """From a BoundingBox. Raises InputError for a state that does not exist."""
    state = track_state(message.state)
    return TrackStatus(
        stamp_ns=stamp_ns(message.header.stamp),
        state=state,
        # The operator sees what is acquired or catching up, although nobody may steer by it yet.
        valid=message.valid or state not in (TrackState.IDLE, TrackState.LOST),
        selection=message.selection,
        box=Box(message.x, message.y, message.width, message.height),
        image_size=(message.image_width, message.image_height),
    )


def outcome_of(message: Any) -> SelectionOutcome:
    """From a SelectionResult. Raises InputError for an outcome that does not exist."""
    try:
        outcome = Outcome(message.outcome)
    except ValueError:
        raise InputError(f"outcome is {message.outcome}; known are 0 to {max(Outcome)}") from None
    return SelectionOutcome(stamp_ns(message.header.stamp), outcome, message.message)
