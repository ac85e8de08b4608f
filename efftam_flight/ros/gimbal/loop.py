"""The loop of the active gimbal node. At 50 Hz it passes the messages that have arrived to the controller,
and publishes the controller's command."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from efftam_ros.msg import GimbalManager, GimbalStatus, TargetVelocity, VehicleHeading
from geometry_msgs.msg import QuaternionStamped, TwistStamped
from rclpy.node import Node
from sensor_msgs.msg import CameraInfo
from std_msgs.msg import Bool

from efftam_flight.control_config import ControlConfig, GimbalCommand, Instant, Phase
from efftam_flight.gimbal_control import GimbalControl
from efftam_flight.ros import conversions
from efftam_flight.values import STOPPED, AttitudeSample, Control, Rates
from efftam_flight.waits import BRIDGE_SILENT_S, TICK_S
from efftam_ros.core.errors import InputError
from efftam_ros.core.reasons import NO_REASON, Reason, ReasonCode
from efftam_ros.core.types import TrackState
from efftam_ros.images.message import stamp_like
from efftam_ros.messages.reports import motion_report
from efftam_ros.ros.common.conversions import camera_of
from efftam_ros.ros.common.nodes import (
    Throttle,
    latched,
    optional_messages,
    other_publishers,
    reliable,
    sampled,
    wait_until_acknowledged,
)
from efftam_ros.ros.common.polling import Polled

# Time between two reads of the calibration, s. A calibration arrives with each image, and hardly ever
# changes.
CALIBRATION_S = 0.2
# Length of the queue of answers. The tracker publishes up to eight answers for an image.
ANSWERS = 40
# How long the status reports that another target is steered now, s.
SWITCH_S = 1.0


# Longest wait until the last messages are acknowledged before the publishers are destroyed, s.
ACKNOWLEDGED_S = 0.5
STATUS_S = 0.2


class GimbalPublishers:
    """The publishers of a configured gimbal node."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._rates = node.create_publisher(TwistStamped, "rates", reliable())
        self._status = node.create_publisher(GimbalStatus, "gimbal_status", reliable())
        self._steering = node.create_publisher(Bool, "steering_enabled", latched())
        self._sent: tuple[object, ...] = ()
        self._next_status_s = 0.0
        self._wanted: bool | None = None
        self.want_gimbal(False)

    def send_rates(self, rates: Rates, stamp_ns: int) -> None:
        """Publish rates in forward-left-up axes (REP 103), in which pitch down and yaw left are positive."""
        message = TwistStamped()
        message.header.stamp = stamp_like(message.header.stamp, stamp_ns)
        angular = message.twist.angular
        angular.y, angular.z = -rates.pitch, -rates.yaw
        self._rates.publish(message)

    def want_gimbal(self, wanted: bool) -> None:
        """Publish whether the bridge shall take control of the gimbal, if that has changed."""
        if wanted != self._wanted:
            self._wanted = wanted
            self._steering.publish(Bool(data=wanted))

    def send_status(self, command: GimbalCommand, enabled: bool, now: Instant) -> None:
        """Publish the status when it changes, and five times a second. A reason with another number but the
        same code is no change."""
        code = command.reason.code
        status = (enabled, command.phase, command.law, command.send, code, command.at_stop)
        if status == self._sent and now.steady_s < self._next_status_s:
            return
        self._sent, self._next_status_s = status, now.steady_s + STATUS_S
        message = conversions.status_message(command, enabled)
        message.header.stamp = stamp_like(message.header.stamp, now.stamp_ns)
        self._status.publish(message)

    @property
    def others(self) -> str:
        """A text for the user that names other publishers of rates; empty if there are none."""
        return other_publishers(
            self._node, ("rates",), "the gimbal would receive the rates of all of them; end the others first"
        )

    def stop(self) -> None:
        """Publish zero rates, then the release of the gimbal and the last status. Wait until the subscribers
        have acknowledged them."""
        now = Instant(self._node.get_clock().now().nanoseconds, time.monotonic())
        self.send_rates(STOPPED, now.stamp_ns)
        wait_until_acknowledged([self._rates], ACKNOWLEDGED_S)
        self.want_gimbal(False)
        self.send_status(GimbalCommand(STOPPED, False, Phase.OFF), False, now)
        wait_until_acknowledged([self._steering, self._status], ACKNOWLEDGED_S)

    def close(self) -> None:
        for publisher in (self._rates, self._status, self._steering):
            self._node.destroy_publisher(publisher)


class Loop:
    """The subscriptions and the controller of an active node. Its ticks are timed by the steady clock alone,
    so that neither messages nor their absence can delay them."""

    def __init__(self, node: Node, config: ControlConfig, outputs: GimbalPublishers) -> None:
        self._node, self._config, self._outputs = node, config, outputs
        self._control = GimbalControl(config)
        self._manager: GimbalManager | None = None
        self._manager_s = 0.0
        self._phase = Phase.OFF
        self._target: int | None = None  # id of the steered target; None: there was none yet
        self._switched_s = -math.inf  # steady time at which the steered target last changed
        self._warn = Throttle(lambda text: node.get_logger().warning(text))
        self._topics = [
            self._subscribe(CameraInfo, "camera_info", self._on_camera_info, sampled(1), CALIBRATION_S),
            # Best effort: until a lost answer had been sent again, the next answer would have arrived.
            self._subscribe(TargetVelocity, "velocity", self._on_velocity, sampled(ANSWERS)),
            self._subscribe(QuaternionStamped, "gimbal_attitude", self._on_attitude, sampled()),
            self._subscribe(VehicleHeading, "vehicle_heading", self._on_heading, sampled()),
            self._subscribe(GimbalManager, "gimbal_manager", self._on_manager, latched()),
        ]
        mavros = getattr(optional_messages("mavros_msgs"), "GimbalDeviceAttitudeStatus", None)
        if mavros is not None:
            self._topics.append(self._subscribe(mavros, "mavros_gimbal_attitude", self._on_mavros, sampled()))
        # Ticks are timed by the steady clock, so that the controller does not stop with the images' clock.
        self._due_s = time.monotonic()

    @property
    def _now(self) -> Instant:
        """The present time. It is read anew for each message. Otherwise a message that arrives during a slow
        tick would seem to lie in the future."""
        return Instant(self._node.get_clock().now().nanoseconds, time.monotonic())

    def _subscribe(
        self, kind: Any, topic: str, take: Callable[[Any], None], qos: Any, period_s: float = 0.0
    ) -> Polled:
        return Polled(self._node, kind, topic, take, qos, self._warn, period_s)

    def turn(self) -> float:
        """Read the topics and do the tick, if it is due. Return the time until the next tick, s."""
        now_s = time.monotonic()
        if now_s >= self._due_s:
            self._due_s = self._due_s + TICK_S if now_s < self._due_s + TICK_S else now_s + TICK_S
            for topic in self._topics:
                topic.read(now_s)
            self._tick(self._now)
        return self._due_s - time.monotonic()

    def close(self) -> None:
        self._outputs.stop()  # before the subscriptions are closed, because that may take a while
        for topic in self._topics:
            topic.close()

    def set_enabled(self, enabled: bool) -> Reason:
        """Enable or disable steering. Return what steering waits for; empty if it waits for nothing.

        Raise InputError if the bridge's `yaw_lock` differs from this node's, or if another node publishes
        rates.
        """
        if enabled:
            self._check_yaw_lock()
        if enabled and self._outputs.others:
            raise InputError(self._outputs.others)
        self._control.set_enabled(enabled)
        if enabled:
            self._outputs.want_gimbal(True)
        return self._control.waits_for if enabled else NO_REASON

    def _check_yaw_lock(self) -> None:
        ours, manager = self._config.yaw_lock, self._manager
        if manager is not None and manager.yaw_lock != ours:
            raise InputError(
                f"yaw_lock is {ours} in efftam_gimbal and {manager.yaw_lock} in efftam_mavlink; set the same"
                " value in both"
            )

    def _tick(self, now: Instant) -> None:
        if self._manager is not None and now.steady_s - self._manager_s > BRIDGE_SILENT_S:
            self._control.on_control(Control.SILENT, ReasonCode.BRIDGE_SILENT.reason())
        command = self._control.tick(now)
        if not command.reason and now.steady_s < self._switched_s + SWITCH_S:
            switched = ReasonCode.STEERING_SWITCHED.reason(target=self._target)
            command = replace(command, reason=switched)
        if command.send:
            self._outputs.send_rates(command.rates, now.stamp_ns)
        # Control is released after the zero rates that follow the last motion have been sent.
        self._outputs.want_gimbal(self._control.enabled or command.send)
        self._outputs.send_status(command, self._control.enabled, now)
        # Changes between FOLLOWING and PREDICTING are not logged. They may occur many times a second,
        # whenever an answer is a little late.
        phase = Phase.FOLLOWING if command.phase is Phase.PREDICTING else command.phase
        if phase is not self._phase:
            self._phase = phase
            because = f": {command.reason}" if command.reason else ""
            self._node.get_logger().info(f"{command.phase.value}{because}")

    def _on_velocity(self, message: Any) -> None:
        """Pass an answer to the controller, if it is of the steered target. When the steered target changes,
        the answers carry the number of another selection, and the controller starts again with cautious
        rates."""
        if not message.steered:
            return
        estimate = motion_report(message)
        if estimate.state is not TrackState.IDLE and message.target_id != self._target:
            if self._target is not None:
                self._switched_s = self._now.steady_s
                self._node.get_logger().info(
                    f"now steering by target {message.target_id} (before: target {self._target})"
                )
            self._target = message.target_id
        self._control.on_estimate(estimate, self._now)

    def _on_camera_info(self, message: Any) -> None:
        self._control.on_camera(camera_of(message))

    def _on_attitude(self, message: Any) -> None:
        manager = self._manager
        at_pitch, at_yaw = (
            (False, False) if manager is None else (manager.at_pitch_limit, manager.at_yaw_limit)
        )
        self._take_attitude(conversions.attitude_of(message, at_pitch, at_yaw))

    def _on_mavros(self, message: Any) -> None:
        self._take_attitude(conversions.attitude_of_mavros(message))

    def _take_attitude(self, sample: AttitudeSample) -> None:
        if not self._control.on_attitude(sample, self._now):
            raise InputError(
                "attitude ignored: its quaternion is no rotation, or its stamp lies in the future; correct"
                " the quaternion or the publisher's clock"
            )

    def _on_heading(self, message: Any) -> None:
        if not self._control.on_vehicle(conversions.vehicle_of(message)):
            raise InputError(
                f"heading ignored: yaw {message.yaw} rad or rate {message.yaw_rate} rad/s is not finite;"
                " correct its publisher"
            )

    def _on_manager(self, message: Any) -> None:
        control = conversions.control_of(message)
        if self._manager is None or conversions.limits_of(message) != conversions.limits_of(self._manager):
            self._control.on_limits(conversions.limits_of(message))
        self._manager, self._manager_s = message, self._now.steady_s
        self._control.on_control(control, Reason.read(message.reason_code, message.reason))
        self._control.on_gimbal_alive(message.alive)
        # `set_enabled` can't compare yaw_lock if the bridge has published nothing yet, so it is compared
        # here.
        if self._control.enabled:
            try:
                self._check_yaw_lock()
            except InputError as error:
                self._control.set_enabled(False)
                self._node.get_logger().error(f"steering is disabled: {error}")
