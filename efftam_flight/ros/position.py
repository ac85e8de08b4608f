"""The node `efftam_position`, which publishes the positions of targets on the ground.

It receives the same attitudes as the gimbal controller. It is a node of its own, so that it works without a
gimbal and can't delay the controller's rates.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

from efftam_ros.msg import TargetPosition, TargetVelocity, VehicleHeading, VehiclePosition
from geometry_msgs.msg import PoseStamped, QuaternionStamped
from rclpy.node import Node

from efftam_flight.angles import Vector
from efftam_flight.position.estimator import PositionEstimator
from efftam_flight.position.geodesy import LocalFrame
from efftam_flight.position.poses import CameraPose, CameraPoses, LocalPoses, LocalSample, VehiclePoses
from efftam_flight.ros import conversions
from efftam_flight.ros.parameters import POSITION, PositionNodeConfig
from efftam_flight.values import NS
from efftam_ros.core.errors import InputError
from efftam_ros.core.reasons import Reason, ReasonCode
from efftam_ros.images.message import stamp_like, stamp_ns
from efftam_ros.messages.fields import reason_fields
from efftam_ros.messages.positions import PositionReport
from efftam_ros.messages.reports import motion_report
from efftam_ros.ros.common.nodes import Throttle, optional_messages, reliable, sampled
from efftam_ros.ros.common.parameters import read_parameters
from efftam_ros.ros.common.polling import Polled

NODE_NAME = "efftam_position"
TICK_S = 0.02
# Length of the queue of answers. The tracker publishes up to eight answers for an image.
ANSWERS = 40
SERVED_S = 0.4
# Time between the two transforms from which the camera's motion is computed, ns.
MOTION_NS = NS // 10


class TransformPoses:
    """Camera poses from TF: the transform from ``camera_frame``, the images' frame, to the local frame
    (parameter `frame_id`). Raises InputError if tf2_ros is not installed."""

    def __init__(self, node: Node, config: PositionNodeConfig) -> None:
        try:
            from tf2_ros import Buffer, TransformListener
        except ModuleNotFoundError as error:
            raise InputError(
                f"camera is tf, and the Python package {error.name} is not installed; install tf2_ros, or set"
                " camera to pose"
            ) from None
        self._buffer = Buffer()
        self._listener = TransformListener(self._buffer, node)
        self._config = config
        self.camera_frame = ""

    @property
    def frame(self) -> LocalFrame | None:
        return None if self._config.origin is None else LocalFrame(self._config.origin)

    def at(self, stamp: int, ray: Vector) -> CameraPose | Reason:
        poses = LocalPoses(self._config, self._config.origin, self._config.ground_height)
        for each in (stamp - MOTION_NS, stamp):
            sample = self._sample(each)
            if sample is None or not poses.add(sample):
                return ReasonCode.POSITION_NO_PLACE.reason()
        return poses.at(stamp, ray)

    def _sample(self, stamp: int) -> LocalSample | None:
        from rclpy.time import Time
        from tf2_ros import TransformException

        try:
            found = self._buffer.lookup_transform(
                self._config.frame_id, self.camera_frame, Time(nanoseconds=stamp)
            )
        except TransformException:
            return None
        return conversions.local_sample(
            stamp, found.transform.translation, found.transform.rotation, self._config.pose_is_optical
        )


class PositionNode(Node):
    """The node that computes the topic `position` from the topic `velocity` and the camera's poses."""

    served_s = SERVED_S

    def __init__(self, **kwargs: Any) -> None:
        """Create publishers and subscriptions. Raise InputError if a parameter is refused."""
        super().__init__(NODE_NAME, **kwargs)
        POSITION.declare(self)
        config = self._config = read_parameters(self, PositionNodeConfig)
        self._warn = Throttle(lambda text: self.get_logger().warning(text))
        self._offset_ns = round(config.attitude_offset * NS)
        self._transforms: TransformPoses | None = None
        kinds: list[tuple[Any, str, Callable[[Any], None]]] = []
        poses: CameraPoses
        if config.camera == "pose":
            poses = self._local = LocalPoses(config, config.origin, config.ground_height)
            kinds.append((PoseStamped, "camera_pose", self._on_pose))
        elif config.camera == "tf":
            poses = self._transforms = TransformPoses(self, config)
        else:
            poses = self._vehicle = VehiclePoses(config, config.mount)
            kinds += [
                (VehiclePosition, "vehicle_position", self._on_place),
                (VehicleHeading, "vehicle_heading", self._on_heading),
            ]
            if config.mount is None:
                kinds.append((QuaternionStamped, "gimbal_attitude", self._on_attitude))
        self._estimator = PositionEstimator(config, poses)
        self._position = self.create_publisher(TargetPosition, "position", reliable())
        geographic = optional_messages("geographic_msgs")
        self._geo_kind: Any = None if geographic is None else geographic.GeoPointStamped
        self._geo = (
            None
            if self._geo_kind is None
            else self.create_publisher(self._geo_kind, "position_geo", reliable())
        )
        # Poses are read before answers, so that an answer is computed with the poses that arrived before it.
        self._topics = [
            *(Polled(self, kind, topic, take, sampled(), self._warn) for kind, topic, take in kinds),
            Polled(self, TargetVelocity, "velocity", self._on_velocity, sampled(ANSWERS), self._warn),
        ]
        self._due_s = time.monotonic()
        self._reason = ReasonCode.NONE  # reason code of the steered target's last position

    def start(self) -> None:
        self.get_logger().info(f"the camera's pose is taken from: {self._config.camera}")

    def tick(self) -> float | None:
        """Read the topics 50 times a second. Return the time until the next call, s; see `run_node`."""
        now_s = time.monotonic()
        if now_s >= self._due_s:
            self._due_s = max(self._due_s + TICK_S, now_s)
            for topic in self._topics:
                topic.read(now_s)
        return self._due_s - time.monotonic()

    def close(self) -> None:
        self.destroy_node()

    def _on_velocity(self, message: Any) -> None:
        if self._transforms is not None:
            self._transforms.camera_frame = message.header.frame_id
        report = self._estimator.answer(motion_report(message))
        self._position.publish(self._message(report))
        if self._geo is not None and report.steered and report.valid and report.is_geographic:
            self._geo.publish(self._geo_message(report))
        # The tracker's own reasons may change with each image. They count as one reason, so that only the
        # first of them is logged.
        code = report.reason.code
        if code and code < ReasonCode.POSITION_NO_TARGET:
            code = ReasonCode.POSITION_NO_TARGET
        if report.steered and code is not self._reason:
            self._reason = code
            if code:
                self._warn(code.name, f"no position: {report.reason}")

    def _message(self, report: PositionReport) -> TargetPosition:
        own = {"stamp_ns", "age_s", "reason", "height_source", "state"}
        message = TargetPosition(
            **{f.name: getattr(report, f.name) for f in fields(report) if f.name not in own},
            age=report.age_s,
            **reason_fields(report.reason),
            height_source=int(report.height_source),
            state=int(report.state),
        )
        message.header.stamp = stamp_like(message.header.stamp, max(report.stamp_ns, 0))
        message.header.frame_id = self._config.frame_id
        return message

    def _geo_message(self, report: PositionReport) -> Any:
        message = self._geo_kind()
        message.header.stamp = stamp_like(message.header.stamp, max(report.stamp_ns, 0))
        point = message.position
        point.latitude, point.longitude, point.altitude = report.latitude, report.longitude, report.altitude
        return message

    def _on_place(self, message: Any) -> None:
        if not self._vehicle.add_place(conversions.place_of(message)):
            raise InputError(
                f"position ignored: {message.latitude}, {message.longitude} degrees, {message.altitude} m is"
                " no place on the earth; correct its publisher"
            )

    def _on_heading(self, message: Any) -> None:
        sample = conversions.vehicle_of(message)
        if not self._vehicle.add_vehicle(sample._replace(stamp_ns=sample.stamp_ns + self._offset_ns)):
            raise InputError(
                f"heading ignored: yaw {message.yaw}, roll {message.roll} or pitch {message.pitch} rad is not"
                " finite; correct its publisher"
            )

    def _on_attitude(self, message: Any) -> None:
        sample = conversions.attitude_of(message, False, False)
        if not self._vehicle.add_gimbal(replace(sample, stamp_ns=sample.stamp_ns + self._offset_ns)):
            raise InputError("attitude ignored: its quaternion is no rotation; correct its publisher")

    def _on_pose(self, message: Any) -> None:
        pose = message.pose
        sample = conversions.local_sample(
            stamp_ns(message.header.stamp) + self._offset_ns,
            pose.position,
            pose.orientation,
            self._config.pose_is_optical,
        )
        if not self._local.add(sample):
            raise InputError(
                "pose ignored: its position is not finite, or its quaternion is no rotation; correct its"
                " publisher"
            )
