"""The node `efftam_mavlink`: a MAVLink camera for ground stations, and a client of the autopilot's gimbal
manager."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

from efftam_ros.msg import (
    BoundingBox,
    FollowStatus,
    GimbalManager,
    SelectionResult,
    TargetPosition,
    TargetSelection,
    TargetVelocity,
    VehicleHeading,
    VehiclePosition,
)
from geometry_msgs.msg import QuaternionStamped, TwistStamped
from rclpy.node import Node
from rclpy.qos import QoSProfile
from sensor_msgs.msg import CameraInfo
from std_msgs.msg import Bool
from std_srvs.srv import SetBool

from efftam_flight.bridge_config import BridgeConfig
from efftam_flight.control_config import Instant
from efftam_flight.mavlink.bridge import Bridge
from efftam_flight.mavlink.dialect import Severity
from efftam_flight.mavlink.ground.follow import Following
from efftam_flight.mavlink.links.connection import Connection
from efftam_flight.mavlink.links.opening import connect
from efftam_flight.mavlink.signing import Signer
from efftam_flight.position.poses import PlaceSample
from efftam_flight.ros.conversions import CONTROLS, place_message
from efftam_flight.ros.parameters import MAVLINK
from efftam_flight.values import AttitudeSample, Control, GimbalLimits, Rates, VehicleSample
from efftam_flight.waits import BRIDGE_STATUS_S
from efftam_ros.core.config import expanded
from efftam_ros.core.errors import InputError
from efftam_ros.core.reasons import Reason, ReasonCode
from efftam_ros.core.types import TrackState
from efftam_ros.images.message import stamp_like
from efftam_ros.messages.fields import reason_fields
from efftam_ros.messages.positions import position_report
from efftam_ros.messages.reports import Selection, box_report, motion_report, result_of
from efftam_ros.ros.common.conversions import camera_of, selection_message
from efftam_ros.ros.common.nodes import Throttle, latched, reliable, sampled
from efftam_ros.ros.common.parameters import read_parameters
from efftam_ros.ros.common.polling import Polled

NODE_NAME = "efftam_mavlink"
NUMBERS = {control: number for number, control in CONTROLS.items()}
# Length of the queue of answers. The tracker publishes up to eight answers for an image.
ANSWERS = 40
# Longest wait for MAVLink messages, s. The controller's rates are not read during this wait.
POLL_S = 0.01
# Time between two reads of boxes and decisions, and of the calibration, s.
READ_S, CALIBRATION_S = 0.02, 0.5
# Longest time that a service call, such as `enable_follow`, waits until it is handled, s. With simulated
# time, calls are handled at each tick.
SERVED_S = 0.4


def open_links(addresses: list[str]) -> list[Connection]:
    """Open the links with these addresses. Raise InputError, with all links closed, if one can't be
    opened."""
    links: list[Connection] = []
    try:
        links.extend(map(connect, addresses))
    except (ValueError, OSError, ModuleNotFoundError) as error:
        for link in links:
            link.close()
        raise InputError(f"links: {error}") from error
    return links


class GimbalTopics:
    """Publishes the gimbal's data that the bridge receives. Implements `GimbalPort`. Not thread-safe: only
    one thread may call it at a time."""

    def __init__(self, node: Node, yaw_lock: bool) -> None:
        self._clock = node.get_clock()
        self._attitude = node.create_publisher(QuaternionStamped, "gimbal_attitude", sampled())
        self._heading = node.create_publisher(VehicleHeading, "vehicle_heading", sampled())
        self._manager = node.create_publisher(GimbalManager, "gimbal_manager", latched())
        self._known = GimbalManager(
            control=GimbalManager.SILENT,
            **reason_fields(ReasonCode.NO_AUTOPILOT.reason()),
            alive=True,
            yaw_lock=yaw_lock,
            pitch_min=-math.inf,
            pitch_max=math.inf,
            yaw_min=-math.inf,
            yaw_max=math.inf,
        )
        self._next_s = -math.inf

    def attitude(self, sample: AttitudeSample) -> None:
        at_limits = (sample.at_pitch_limit, sample.at_yaw_limit)
        if at_limits != (self._known.at_pitch_limit, self._known.at_yaw_limit):
            self._known.at_pitch_limit, self._known.at_yaw_limit = at_limits
            self._publish_known()
        message = QuaternionStamped()
        _stamp(message, sample.stamp_ns)
        message.header.frame_id = sample.yaw_frame.value
        q = message.quaternion
        q.w, q.x, q.y, q.z = map(float, sample.q)
        self._attitude.publish(message)

    def vehicle(self, sample: VehicleSample) -> None:
        message = VehicleHeading(
            yaw=float(sample.yaw),
            yaw_rate=float(sample.yaw_rate),
            roll=float(sample.roll),
            pitch=float(sample.pitch),
        )
        _stamp(message, sample.stamp_ns)
        self._heading.publish(message)

    def control(self, control: Control, reason: Reason) -> None:
        self._known.control = NUMBERS[control]
        self._known.reason, self._known.reason_code = str(reason), int(reason.code)
        self._publish_known()

    def gimbal_alive(self, alive: bool) -> None:
        self._known.alive = alive
        self._publish_known()

    def limits(self, limits: GimbalLimits) -> None:
        known = self._known
        known.pitch_min, known.pitch_max = limits.pitch_min, limits.pitch_max
        known.yaw_min, known.yaw_max = limits.yaw_min, limits.yaw_max
        self._publish_known()

    def repeat(self, now_s: float) -> None:
        """Publish `gimbal_manager` once a second. Without it the controller assumes that the bridge has
        ended."""
        if now_s >= self._next_s:
            self._next_s = now_s + BRIDGE_STATUS_S
            self._publish_known()

    def _publish_known(self) -> None:
        self._known.header.stamp = self._clock.now().to_msg()
        self._manager.publish(self._known)


def _stamp(message: Any, ns: int) -> None:
    message.header.stamp = stamp_like(message.header.stamp, max(ns, 0))


class FollowTopics:
    """The service that enables FOLLOW_TARGET, and the topic with the status."""

    def __init__(self, node: Node, bridge: Bridge) -> None:
        self._clock, self._bridge = node.get_clock(), bridge
        self._service = node.create_service(SetBool, "~/enable_follow", self._on_enable)
        self._status = node.create_publisher(FollowStatus, "follow_status", latched())
        self._published: Following | None = None
        self._next_s = -math.inf

    def publish(self, now_s: float) -> None:
        """Publish the status when it changes, and once a second."""
        state = self._bridge.follow.state
        if state == self._published and now_s < self._next_s:
            return
        self._published, self._next_s = state, now_s + BRIDGE_STATUS_S
        message = FollowStatus(**state._asdict() | reason_fields(state.reason))
        message.header.stamp = self._clock.now().to_msg()
        self._status.publish(message)

    def _on_enable(self, request: Any, response: Any) -> Any:
        try:
            waits_for = self._bridge.enable_follow(request.data)
        except InputError as refusal:
            response.message = str(refusal)
            return response
        response.success = True
        response.message = "the position is sent" if request.data else "nothing is sent any more"
        if waits_for:
            response.message = f"enabled; sending begins later: {waits_for}"
        return response


class TrackerTopics:
    """Publishes the selections of ground stations. Implements `TrackerPort`. ``steered``: id of the steered
    target, which a command to stop tracking clears; 0 if there is none."""

    def __init__(self, node: Node) -> None:
        self.steered = 0
        self._selections = node.create_publisher(TargetSelection, "select", reliable())

    def select(self, request: Selection) -> str | None:
        """Publish a request without waiting. Return None, or a text for the log if no tracker would receive
        it."""
        if not self._selections.get_subscription_count():
            return "no tracker subscribes to selections; start efftam_tracker"
        message = selection_message(request)
        if message.kind == TargetSelection.CLEAR:
            message.target_id = self.steered
        self._selections.publish(message)
        return None


class MavlinkNode(Node):
    """The node of the bridge. Each tick handles the MAVLink messages that have arrived, then the topics."""

    served_s = SERVED_S

    def __init__(self, **kwargs: Any) -> None:
        """Open the links. Raise InputError if a link can't be opened, or if a parameter or the key is
        refused."""
        super().__init__(NODE_NAME, **kwargs)
        MAVLINK.declare(self)
        config = read_parameters(self, BridgeConfig)
        self._warn = Throttle(lambda text: self.get_logger().warning(text))
        self._tracker, self._gimbal = TrackerTopics(self), GimbalTopics(self, config.yaw_lock)
        self._knows_steering = False
        self._target: int | None = None  # id of the target that ground stations show; None: none yet
        signer = Signer(expanded(config.signing_key)) if config.signing_key else None
        self._links = open_links(config.addresses)
        ends = (self._tracker, self._gimbal, self._now, self._report)
        self._place = self.create_publisher(VehiclePosition, "vehicle_position", sampled())
        self._bridge = Bridge(config, self._links, *ends, signer, self._publish_place)
        self._follow = FollowTopics(self, self._bridge)
        # (time between two reads in s, type, topic, callback, QoS). The QoS is best effort if the next
        # message replaces a lost one.
        topics: list[tuple[float, Any, str, Callable[[Any], None], QoSProfile]] = [
            (0.0, TwistStamped, "rates", self._on_rates, sampled()),
            (READ_S, Bool, "steering_enabled", self._on_steering, latched()),
            (READ_S, SelectionResult, "selection_result", self._on_result, latched()),
            (READ_S, BoundingBox, "bbox", self._on_box, sampled(ANSWERS)),
            (READ_S, TargetPosition, "position", self._on_position, sampled(ANSWERS)),
            (CALIBRATION_S, CameraInfo, "camera_info", self._on_camera_info, sampled(1)),
        ]
        if config.landing_target:
            topics.append((READ_S, TargetVelocity, "velocity", self._on_velocity, sampled(ANSWERS)))
        self._topics = [
            Polled(self, kind, topic, take, qos, self._warn, period_s)
            for period_s, kind, topic, take, qos in topics
        ]

    def start(self) -> None:
        # Only usable links are logged here. For the other links, the bridge logs the fault, and later that
        # the link is open.
        usable = [link.address for link in self._links if not link.fault]
        if usable:
            self.get_logger().info(f"MAVLink on {', '.join(usable)}")

    def tick(self) -> float | None:
        """Wait briefly for MAVLink messages and do the work that is due. Return 0, so that `run_node` calls
        again at once. Raise InputError if another bridge has the same ids."""
        self._bridge.poll(POLL_S)
        if self._bridge.refusal:
            raise InputError(self._bridge.refusal)
        now_s = time.monotonic()
        for topic in self._topics:
            topic.read(now_s)
        self._gimbal.repeat(now_s)
        self._follow.publish(now_s)
        return 0.0

    def close(self) -> None:
        """Stop and release the gimbal, close the links and destroy the node, which can't be used
        afterwards."""
        self._bridge.close()
        self.destroy_node()

    def _on_result(self, message: Any) -> None:
        self._bridge.selection_result(result_of(message))

    def _on_camera_info(self, message: Any) -> None:
        self._bridge.set_camera(camera_of(message))

    def _on_box(self, message: Any) -> None:
        """Pass an answer to the bridge, if it is of the steered target: ground stations show only one
        target."""
        if not message.steered:
            return
        report = box_report(message)
        self._tracker.steered = 0 if report.state is TrackState.IDLE else report.target_id
        if report.state is not TrackState.IDLE and report.target_id != self._target:
            if self._target is not None:
                self.get_logger().info(
                    f"ground stations now show target {report.target_id} (before: target {self._target})"
                )
            self._target = report.target_id
        self._bridge.track(report)

    def _on_velocity(self, message: Any) -> None:
        if message.steered:
            self._bridge.estimate(motion_report(message))

    def _publish_place(self, sample: PlaceSample) -> None:
        self._place.publish(place_message(sample))

    def _on_position(self, message: Any) -> None:
        if message.steered:
            self._bridge.locate(position_report(message))

    def _on_rates(self, message: Any) -> None:
        angular = message.twist.angular
        self._bridge.set_rates(Rates(pitch=-angular.y, yaw=-angular.z))

    def _on_steering(self, message: Any) -> None:
        # The controller publishes False first. So if the first message is True, it was stored by the
        # publisher before this node started, and steering was enabled earlier.
        self._bridge.take_control(message.data, fresh=self._knows_steering)
        self._knows_steering = True

    def _now(self) -> Instant:
        return Instant(self.get_clock().now().nanoseconds, time.monotonic())

    def _report(self, severity: Severity, text: str) -> None:
        # Each severity needs a call of its own: rclpy raises if one line of code logs with two severities.
        logger = self.get_logger()
        if severity is Severity.ERROR:
            logger.error(text)
        elif severity is Severity.WARNING:
            logger.warning(text)
        else:
            logger.info(text)
