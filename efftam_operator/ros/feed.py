"""The page's `Feed` over ROS: topics and services of one tracker."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from builtin_interfaces.msg import Time
from efftam_ros.msg import BoundingBox, SelectionResult, TargetSelection, TargetVelocity
from efftam_ros.srv import ClearTarget, SelectTarget, SteerTarget
from lifecycle_msgs.msg import State
from lifecycle_msgs.srv import GetState
from rcl_interfaces.msg import ParameterType
from rcl_interfaces.srv import GetParameters
from rclpy.node import Node
from rclpy.qos import QoSProfile
from rclpy.qos_overriding_options import QoSOverridingOptions
from std_msgs.msg import Header

from efftam_operator.feed import (
    CommandAnswer,
    Lifecycle,
    Limits,
    NoImages,
    Picture,
    Proposal,
    Reply,
    Sink,
    Trackers,
    Unreadable,
)
from efftam_operator.ros.calls import Calls
from efftam_operator.ros.parameters import OperatorConfig
from efftam_ros.core.errors import InputError
from efftam_ros.core.types import TrackState
from efftam_ros.images.levels import AUTO, Levels
from efftam_ros.images.message import ImageReader, ReceivedImage, header_of, stamp_like, stamp_ns
from efftam_ros.images.pixels import to_bgr
from efftam_ros.messages.reports import Selection, box_report, motion_report, result_of
from efftam_ros.ros.common.conversions import MAX_STAMP_NS, selection_message
from efftam_ros.ros.common.image_input import DEAF_S, LONGEST_DEAF_S, ImageInput, message_class
from efftam_ros.ros.common.nodes import Throttle, latched, sampled, steady_timer
from efftam_ros.ros.common.publishing_nodes import PublishingNodes, identities

JPEG_START = b"\xff\xd8"
REPORT_DEPTH = 40  # up to eight targets each have a report for an image
# Interval at which publishers and the tracker's state are checked, s.
LOOK_S = 0.5
# Boxes stay subscribed for this time after the last page was hidden or closed, s: the page may be reloaded.
LINGER_S = 30.0
TRACKER = "the tracker"
ASKED = ["selection_buffer", "max_targets", "image_range"]
"""The tracker's parameters that the page needs."""


def image_stamp(message: Any) -> int:
    """Return the stamp of the image to which a message belongs, ns. Raises ValueError if it is negative."""
    stamp = stamp_ns(header_of(message, Header).stamp)
    if stamp < 0:
        raise ValueError(f"the stamp is {stamp} ns; it must not be negative")
    return stamp


def picture_of(message: Any, received: ReceivedImage) -> Picture:
    """Return an image message as a picture. A JPEG is kept as it is; other pixels are converted on demand."""
    start = bytes(message.data[:2])
    if start == JPEG_START and hasattr(message, "format"):
        return Picture(image_stamp(message), bytes(message.data), None, received.nbytes, received.still_s)
    bgr = lambda: to_bgr(received.image())  # noqa: E731
    return Picture(image_stamp(message), None, bgr, received.nbytes, received.still_s)


def proposal_of(message: Any) -> Proposal:
    report = box_report(message)
    is_lost = report.state is TrackState.LOST
    return Proposal(report.stamp_ns, report.box, report.reason, report.target_id, is_lost)


class RosFeed:
    """Reports images, boxes and velocities while a page is visible; sends commands to the tracker's services.

    All methods run in the executor's thread. Raises InputError if the messages of the image transport are not
    installed.
    """

    def __init__(self, node: Node, config: OperatorConfig, calls: Calls) -> None:
        self._node, self._config, self._calls = node, config, calls
        message_class(config.image_transport)
        self._warn = Throttle(lambda text: node.get_logger().warning(text))
        self._sink: Sink | None = None
        self._images: ImageInput | None = None
        self._reader: ImageReader | None = None
        self._reports: list[Any] = []
        self._unwatched_s = float("-inf")  # monotonic time since which no page is visible
        # Monotonic time of the last box, and time without a box after which `_subscribe_anew` acts.
        self._received_s, self._patience_s = float("-inf"), DEAF_S
        name = config.tracker
        self._hold_publisher = node.create_publisher(Header, "keep_image", REPORT_DEPTH)
        self._propose_publisher = node.create_publisher(TargetSelection, "propose", REPORT_DEPTH)
        self._select_client = node.create_client(SelectTarget, f"{name}/select_target")
        self._clear_client = node.create_client(ClearTarget, f"{name}/clear_target")
        self._steer_client = node.create_client(SteerTarget, f"{name}/steer_target")
        self._tracker = _TrackerWatch(node, name, calls, self._report, self._set_range)
        # The tracker's parameter `image_range`: the page shows 16-bit images as the tracker sees them.
        self._image_range = AUTO
        # Monotonic time of the last image (before the first: of the subscription); whether an image arrived.
        self._image_s, self._have_come = 0.0, False
        self._trackers, self._answering = PublishingNodes(), tuple[str, ...]()

    def explain(self) -> str:
        """Return why no image arrives, as far as the publishers show it; empty while no page is visible."""
        return "" if self._images is None else self._images.explain()

    @property
    def renewal(self) -> str:
        """Why this process should become another DDS participant (see `ImageInput.renewal`), or ""."""
        return "" if self._images is None else self._images.renewal

    def start(self, sink: Sink) -> None:
        self._sink = sink
        self._subscribe(SelectionResult, "selection_result", lambda m: sink(result_of(m)), latched())
        steady_timer(self._node, LOOK_S, self._look)

    def _subscribe(
        self, message_type: Any, topic: str, use: Callable[[Any], None], qos: QoSProfile | None = None
    ) -> Any:
        return self._node.create_subscription(
            message_type,
            topic,
            lambda message: self._use(topic, use, message),
            qos or sampled(REPORT_DEPTH),
            qos_overriding_options=QoSOverridingOptions.with_default_policies(),
        )

    def _use(self, topic: str, use: Callable[[Any], None], message: Any) -> None:
        try:
            image_stamp(message)
            use(message)
        except ValueError as error:
            self._warn(topic, f"a message on {topic} is ignored: {error}")

    def _on_box(self, message: Any) -> None:
        self._received_s, self._patience_s = time.monotonic(), DEAF_S
        if self._sink is not None:
            self._sink(box_report(message))

    def _hear(self, sink: Sink) -> None:
        """Subscribe to boxes, proposals and velocities.

        This is done only while a page is visible, because receiving these messages takes as much CPU time as
        the rest of the node.
        """
        self._received_s = time.monotonic()
        # Best effort matches every publisher, and the tracker need not wait for this node's acknowledgements.
        self._reports = [
            self._subscribe(BoundingBox, "bbox", self._on_box),
            self._subscribe(BoundingBox, "proposal", lambda m: sink(proposal_of(m))),
            self._subscribe(TargetVelocity, "velocity", lambda m: sink(motion_report(m))),
        ]

    def watch(self, watched: bool) -> None:
        if watched and not self._reports and self._sink is not None:
            self._hear(self._sink)
        if watched and self._images is None:
            self._image_s = time.monotonic()
            self._reader = ImageReader(self._config.image_transport, Header, Levels(self._image_range))
            self._images = ImageInput(
                self._node,
                self._config.image_transport,
                self._config.image_reliability,
                self._on_image,
                lambda topic: None,
            )
        elif not watched and self._images is not None:
            self._images.close()
            self._images = None
            self._unwatched_s = time.monotonic()

    def _set_range(self, image_range: str) -> None:
        if image_range == self._image_range:
            return
        levels, self._image_range = Levels(image_range), image_range
        if self._reader is not None:
            self._reader.levels = levels

    def _on_image(self, message: Any) -> None:
        if self._sink is None or self._reader is None:
            return
        self._image_s, self._have_come = time.monotonic(), True
        try:
            got = self._reader.read(message, time.monotonic_ns(), self._config.max_image_pixels)
            self._sink(picture_of(message, got))
        except InputError as refusal:
            self._sink(Unreadable(str(refusal)))
        except ValueError as error:
            self._warn("image", f"an image is ignored: {error}")

    def hold(self, stamp_ns: int) -> None:
        if stamp_ns <= MAX_STAMP_NS:
            self._hold_publisher.publish(Header(stamp=stamp_like(Time(), stamp_ns)))

    def clear(self, target_id: int, reply: Reply) -> None:
        self._calls.command(self._clear_client, ClearTarget.Request(target_id=target_id), reply, TRACKER)

    def steer_by(self, target_id: int, reply: Reply) -> None:
        self._calls.command(self._steer_client, SteerTarget.Request(target_id=target_id), reply, TRACKER)

    def propose(self, selection: Selection) -> None:
        try:
            self._propose_publisher.publish(selection_message(selection))
        except InputError as refusal:
            if self._sink is not None:
                self._sink(Proposal(selection.stamp_ns, reason=str(refusal)))

    def select(self, selection: Selection, reply: Reply) -> None:
        try:
            message = selection_message(selection)
        except InputError as refusal:
            reply(CommandAnswer(False, str(refusal)))
            return
        self._calls.command(self._select_client, SelectTarget.Request(selection=message), reply, TRACKER)

    def _look(self) -> None:
        if self._images is not None:
            self._images.look()
            if time.monotonic() - self._image_s > self._config.silent_s:
                self._report(NoImages(self._images.explain(self._have_come)))
        elif self._reports and time.monotonic() - self._unwatched_s > LINGER_S:
            self._end_reports()
        self._tracker.look(self._images is not None)
        # A tracker is a node that publishes to the first subscription's topic, `bbox`. Without a subscription
        # no tracker is known.
        found = [
            one
            for topic in self._reports[:1]
            for one in self._node.get_publishers_info_by_topic(topic.topic_name)
        ]
        if found and self._images is not None and self._images.is_receiving:
            self._subscribe_anew()
        names, has_restarted = self._trackers.look(identities(found), time.monotonic())
        if names != self._answering or has_restarted:
            self._answering = names
            self._report(Trackers(names, has_restarted))

    def _subscribe_anew(self) -> None:
        """Subscribe to boxes anew if none has arrived for `_patience_s`, and double that time.

        This is called only while images arrive and boxes have a publisher. If no box arrives then, the
        subscription may have failed.
        """
        if time.monotonic() - self._received_s < self._patience_s or self._sink is None:
            return
        self._patience_s = min(2 * self._patience_s, LONGEST_DEAF_S)
        self._end_reports()
        self._hear(self._sink)

    def _end_reports(self) -> None:
        for subscription in self._reports:
            self._node.destroy_subscription(subscription)
        self._reports = []

    def _report(self, state: Lifecycle | Limits | NoImages | Trackers) -> None:
        if self._sink is not None:
            self._sink(state)


class _TrackerWatch:
    """Reads the lifecycle state and the limits of the tracker's node through its services.

    ``report`` receives state and limits. ``set_range`` receives the tracker's parameter `image_range`.
    """

    def __init__(
        self,
        node: Node,
        name: str,
        calls: Calls,
        report: Callable[[Lifecycle | Limits], None],
        set_range: Callable[[str], None],
    ) -> None:
        self._calls, self._report, self._set_range = calls, report, set_range
        self._knows_limits = False
        self._state_client = node.create_client(GetState, f"{name}/get_state")
        self._parameter_client = node.create_client(GetParameters, f"{name}/get_parameters")

    def look(self, is_watched: bool) -> None:
        """Request the tracker's lifecycle state and limits.

        Limits that are already known are requested again only while a page is visible.
        """
        if self._state_client in self._calls.give_up():
            self._report(Lifecycle.UNKNOWN)
        for client, request, use in (
            (self._state_client, GetState.Request(), self._on_state),
            (self._parameter_client, GetParameters.Request(names=ASKED), self._on_parameters),
        ):
            is_known = client is self._parameter_client and self._knows_limits
            if self._calls.waits_for(client) or (is_known and not is_watched):
                continue
            if client.service_is_ready():
                self._calls.ask(client, request, use)
            elif client is self._state_client:
                self._report(Lifecycle.UNKNOWN)  # the tracker has ended; its last state is no longer true

    def _on_state(self, response: Any) -> None:
        inactive = (State.PRIMARY_STATE_UNCONFIGURED, State.PRIMARY_STATE_INACTIVE)
        if response.current_state.id in inactive:
            self._report(Lifecycle.INACTIVE)
        else:
            is_active = response.current_state.id == State.PRIMARY_STATE_ACTIVE
            self._report(Lifecycle.ACTIVE if is_active else Lifecycle.UNKNOWN)

    def _on_parameters(self, response: Any) -> None:
        if len(response.values) != len(ASKED):
            return  # a parameter is not declared: the node with this name is no tracker
        buffer, most, image_range = response.values
        if buffer.type == ParameterType.PARAMETER_DOUBLE and most.type == ParameterType.PARAMETER_INTEGER:
            self._knows_limits = True
            self._report(Limits(buffer.double_value, most.integer_value))
        if image_range.type == ParameterType.PARAMETER_STRING:
            self._set_range(image_range.string_value)
