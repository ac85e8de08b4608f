"""The node `efftam_position` between real topics: by the autopilot's messages, by poses, and by TF."""

from __future__ import annotations

import math
import sys
import time
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import rclpy
from efftam_ros.msg import TargetPosition, TargetVelocity, VehicleHeading, VehiclePosition
from geometry_msgs.msg import PoseStamped, QuaternionStamped
from rclpy.qos import qos_profile_sensor_data
from ros_helpers import PATIENCE_S, new_namespace
from support.reasons import numbered

from efftam_flight.angles import from_angles
from efftam_flight.position.geodesy import GeoPoint
from efftam_flight.position.poses import PlaceSample
from efftam_flight.ros.conversions import local_sample, place_message, place_of
from efftam_flight.ros.position import PositionNode
from efftam_flight.values import NS
from efftam_ros.core.reasons import ReasonCode
from efftam_ros.images.message import stamp_like
from efftam_ros.messages.positions import HeightSource, position_report

T0 = 1_700_000_000 * NS
DOWN_30 = from_angles(0.0, math.radians(-30.0), 0.0)


class Desk:
    """Publishes what the node reads, and keeps what it says."""

    def __init__(self, *parameters: str) -> None:
        namespace = new_namespace()
        given = [word for text in parameters for word in ("-p", text)]
        self.node = PositionNode(namespace=namespace, cli_args=["--ros-args", *given])
        self.peer = rclpy.create_node("peer", namespace=namespace)
        self.positions: list[TargetPosition] = []
        self.peer.create_subscription(TargetPosition, "position", numbered(self.positions), 10)
        self._publishers: dict[str, Any] = {}

    def send(self, topic: str, message: Any, stamp: int = T0) -> None:
        message.header.stamp = stamp_like(message.header.stamp, stamp)
        if topic not in self._publishers:
            publisher = self.peer.create_publisher(type(message), topic, 10)
            self._publishers[topic] = publisher
            end_s = time.monotonic() + PATIENCE_S
            while not publisher.get_subscription_count():
                assert time.monotonic() < end_s, topic
                time.sleep(0.02)
        self._publishers[topic].publish(message)
        self.turn(0.1)

    def turn(self, seconds: float = 0.5) -> None:
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            self.node.tick()
            rclpy.spin_once(self.peer, timeout_sec=0.02)

    def answer(self, stamp: int = T0, frame_id: str = "camera", **fields: Any) -> TargetPosition:
        """A velocity, and the position that it gave."""
        plain = {
            "target_id": 2,
            "selection": 5,
            "state": TargetVelocity.TRACKING,
            "valid": True,
            "measured": True,
            "has_bearing": True,
            "steered": True,
        }
        message = TargetVelocity(**{**plain, **fields})
        message.header.frame_id = frame_id
        before = len(self.positions)
        self.send("velocity", message, stamp)
        end_s = time.monotonic() + PATIENCE_S
        while len(self.positions) == before:
            assert time.monotonic() < end_s, "no position came"
            self.turn(0.05)
        return self.positions[-1]

    def close(self) -> None:
        self.node.close()
        self.peer.destroy_node()


@pytest.fixture
def desk(ros):
    desks: list[Desk] = []

    def make(*parameters: str) -> Desk:
        desks.append(Desk(*parameters))
        return desks[-1]

    yield make
    for one in desks:
        one.close()


def attitude(q=DOWN_30, frame: str = "earth") -> QuaternionStamped:
    message = QuaternionStamped()
    message.header.frame_id = frame
    message.quaternion.w, message.quaternion.x, message.quaternion.y, message.quaternion.z = q
    return message


def place(**changes: float) -> VehiclePosition:
    plain = {"latitude": 47.4, "longitude": 8.55, "altitude": 460.0, "height_above_home": 30.0}
    unknown = dict.fromkeys(("height_above_terrain", "range"), math.nan)
    return VehiclePosition(**{**plain, **unknown, **changes})


def test_by_the_autopilots_messages_the_target_has_latitude_and_longitude(desk):
    one = desk()
    one.send("vehicle_position", place())
    one.send("gimbal_attitude", attitude())
    found = one.answer()
    assert (found.valid, found.reason_code, found.reason) == (True, 0, "")
    assert (found.target_id, found.selection, found.steered) == (2, 5, True)
    assert (found.x, found.y) == pytest.approx((0.0, 51.96), abs=0.01)
    assert found.latitude == pytest.approx(47.4 + 51.96 / 111_195, abs=1e-6)
    assert found.altitude == pytest.approx(430.0)
    assert found.height_source == TargetPosition.HEIGHT_HOME
    assert (found.camera_x, found.camera_y, found.camera_z) == pytest.approx((0.0, 0.0, 30.0))
    assert found.header.frame_id == "map"
    assert found.header.stamp == stamp_like(found.header.stamp, T0)
    back = position_report(found)
    assert (back.reason, back.height_source) == ("", HeightSource.HOME)
    assert back.accuracy == pytest.approx(math.sqrt(found.covariance[0] + found.covariance[5]))


def test_what_is_missing_is_said_and_the_node_lives_on(desk):
    one = desk()
    found = one.answer()
    assert (found.valid, found.reason_code) == (False, ReasonCode.POSITION_NO_ATTITUDE)
    assert found.reason
    assert math.isnan(found.latitude)
    assert math.isnan(found.x)
    one.send("gimbal_attitude", attitude((0.0, 0.0, 0.0, 0.0)))
    one.send("gimbal_attitude", attitude(frame="moon"))
    one.send("gimbal_attitude", attitude())
    assert one.answer().reason_code == ReasonCode.POSITION_NO_PLACE
    one.send("vehicle_position", place(latitude=math.nan))
    one.send("vehicle_position", place(height_above_home=math.nan))
    assert one.answer(T0 + 1).reason_code == ReasonCode.POSITION_NO_HEIGHT
    one.send("vehicle_position", place(), T0 + NS // 5)
    one.send("gimbal_attitude", attitude(), T0 + NS // 5)
    assert one.answer(T0 + NS // 5).valid
    lost = one.answer(T0 + NS // 5, state=TargetVelocity.LOST, valid=False)
    assert lost.reason_code == ReasonCode.POSITION_NO_TARGET


def test_a_fixed_camera_needs_no_gimbal(desk):
    one = desk("camera:=fixed", f"mount_pitch:={math.radians(-30.0)}")
    one.send("vehicle_position", place())
    one.send("vehicle_heading", VehicleHeading(yaw=math.pi / 2))
    found = one.answer()
    assert (found.x, found.y) == pytest.approx((51.96, 0.0), abs=0.01)


# The optical axis (z) to the north and 45 degrees down, x to the east.
OPTICAL = (math.cos(math.radians(67.5)), -math.sin(math.radians(67.5)), 0.0, 0.0)
# Forward (x) along the same axis, left (y) to the west.
BODY_YAW, BODY_TILT = math.pi / 4, math.radians(22.5)
BODY = (
    math.cos(BODY_YAW) * math.cos(BODY_TILT),
    -math.sin(BODY_YAW) * math.sin(BODY_TILT),
    math.cos(BODY_YAW) * math.sin(BODY_TILT),
    math.sin(BODY_YAW) * math.cos(BODY_TILT),
)


def xyzw(q) -> SimpleNamespace:
    return SimpleNamespace(w=q[0], x=q[1], y=q[2], z=q[3])


@pytest.mark.parametrize(("q", "is_optical"), [(OPTICAL, True), (BODY, False)])
def test_both_conventions_of_a_cameras_axes_mean_the_same_view(q, is_optical):
    sample = local_sample(T0, SimpleNamespace(x=3.0, y=4.0, z=5.0), xyzw(q), is_optical)
    assert sample.place == (4.0, 3.0, -5.0)
    expected = from_angles(0.0, math.radians(-45.0), 0.0)
    assert abs(sum(a * b for a, b in zip(sample.q, expected, strict=True))) == pytest.approx(1.0, abs=1e-9)


def test_by_poses_of_the_camera_there_is_a_place_in_the_local_frame(desk):
    one = desk("camera:=pose", "frame_id:=odom")
    pose = PoseStamped()
    pose.pose.position.x, pose.pose.position.y, pose.pose.position.z = 3.0, 4.0, 20.0
    (pose.pose.orientation.w, pose.pose.orientation.x, *_) = OPTICAL
    one.send("camera_pose", pose, T0 - NS // 10)
    one.send("camera_pose", pose, T0)
    found = one.answer()
    assert (found.valid, found.height_source) == (True, TargetPosition.HEIGHT_LOCAL)
    assert (found.x, found.y) == pytest.approx((3.0, 24.0), abs=1e-6)
    assert math.isnan(found.latitude)
    assert found.header.frame_id == "odom"


def test_with_a_known_origin_poses_give_latitude_and_longitude_too(desk):
    one = desk("camera:=pose", "origin_latitude:=47.4", "origin_longitude:=8.55", "origin_altitude:=430.0")
    pose = PoseStamped()
    pose.pose.position.z = 20.0
    (pose.pose.orientation.w, pose.pose.orientation.x, *_) = OPTICAL
    one.send("camera_pose", pose, T0 - NS // 10)
    one.send("camera_pose", pose, T0)
    found = one.answer()
    assert found.latitude == pytest.approx(47.4 + 20.0 / 111_195, abs=1e-6)
    assert found.altitude == pytest.approx(430.0)


class StandInBuffer:
    """tf2_ros.Buffer of a camera that stands still; knows one frame."""

    asked: list[tuple[str, str, int]] = []  # noqa: RUF012

    def lookup_transform(self, target: str, source: str, stamp: Any) -> Any:
        self.asked.append((target, source, stamp.nanoseconds))
        if source != "camera_optical":
            raise TransformError
        place = SimpleNamespace(x=0.0, y=0.0, z=10.0)
        return SimpleNamespace(transform=SimpleNamespace(translation=place, rotation=xyzw(OPTICAL)))


class TransformError(Exception):
    pass


def test_by_tf_the_frame_of_the_images_is_looked_up_at_their_stamps(desk, monkeypatch):
    """With a stand-in of tf2_ros, which is not installed everywhere."""
    stand_in = ModuleType("tf2_ros")
    stand_in.Buffer, stand_in.TransformException = StandInBuffer, TransformError  # type: ignore[attr-defined]
    stand_in.TransformListener = lambda buffer, node: None  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tf2_ros", stand_in)
    one = desk("camera:=tf", "ground_height:=2.0")
    found = one.answer(frame_id="camera_optical")
    assert (found.x, found.y) == pytest.approx((0.0, 8.0), abs=1e-6)
    assert ("map", "camera_optical", T0) in StandInBuffer.asked
    assert one.answer(T0 + NS, frame_id="elsewhere").reason_code == ReasonCode.POSITION_NO_PLACE


def test_the_vehicles_position_goes_through_its_message():
    sample = PlaceSample(T0, GeoPoint(47.4, 8.55, 460.0), (1.0, -2.0, 0.5), 30.0, 28.0, 55.0)
    assert place_of(place_message(sample)) == sample


def test_positions_do_not_wait_for_a_reader(desk):
    """A subscriber that is best effort gets them too."""
    one = desk()
    heard: list[TargetPosition] = []
    one.peer.create_subscription(TargetPosition, "position", heard.append, qos_profile_sensor_data)
    one.send("gimbal_attitude", attitude())
    one.send("vehicle_position", place())
    one.answer()
    one.turn(0.5)
    assert heard
