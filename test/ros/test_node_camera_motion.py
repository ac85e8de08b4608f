"""camera_motion topic: the tracker node takes the camera's motion from an attitude, or says why it can't."""

from __future__ import annotations

import math

import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed")
pytest.importorskip("efftam_ros.msg", reason="the messages are not built")

from geometry_msgs.msg import QuaternionStamped
from level_pipeline import HEIGHT, WIDTH, bright_box
from rclpy.qos import qos_profile_sensor_data
from ros_helpers import stamp_of
from sensor_msgs.msg import CameraInfo

from efftam_ros.flight.angles import from_yaw_pitch

pytestmark = pytest.mark.ros

WARN = b"\x01"


class AttitudePeer:
    """The tracker's peer with a gimbal: sends an attitude with each image."""

    def __init__(self, peer, calibrated: bool = True) -> None:
        self.peer = peer
        self.next = 1
        node = peer.node
        self.attitudes = node.create_publisher(QuaternionStamped, "attitude", qos_profile_sensor_data)
        peer.wait(lambda: self.attitudes.get_subscription_count() > 0, "the tracker at attitude")
        if calibrated:
            info = CameraInfo(width=WIDTH, height=HEIGHT)
            info.k = [300.0, 0.0, WIDTH / 2 - 0.5, 0.0, 300.0, HEIGHT / 2 - 0.5, 0.0, 0.0, 1.0]
            peer.camera_infos.publish(info)
        peer.show(0)
        peer.follow(0, bright_box(0))

    def say(self, stamp_ns: int, yaw: float, frame_id: str = "earth", scale: float = 1.0) -> None:
        message = QuaternionStamped()
        message.header.frame_id = frame_id
        message.header.stamp.sec, message.header.stamp.nanosec = divmod(stamp_ns, 10**9)
        q = message.quaternion
        q.w, q.x, q.y, q.z = (scale * value for value in from_yaw_pitch(yaw, 0.0))
        self.attitudes.publish(message)

    def diagnosis_while_it_goes_on(self, wanted, what: str, say=None):
        """The first diagnostics that are ``wanted(status, values)`` while images come; ``say`` is called with
        each image's number before it."""
        peer = self.peer
        for _ in range(40):
            if say is not None:
                say(self.next)
            peer.spin_for(0.02)
            del peer.diagnostics[:]
            # The scene ends after some images: the last one is shown again.
            peer.show(self.next)
            self.next += 1
            peer.spin_for(0.12)
            for status in peer.diagnostics:
                if wanted(status, {v.key: v.value for v in status.values}):
                    return status
        pytest.fail(f"no diagnostics: {what}; the last: {peer.diagnostics[-1:]}")


def start(tracker, **options):
    peer = tracker("-p", "camera_motion:=topic", "-p", "diagnostics_period:=0.1", "-p", "image_timeout:=60.0")
    return AttitudePeer(peer, **options)


def test_an_attitude_at_the_images_stamps_tells_the_motion(tracker):
    gimbal = start(tracker)
    gimbal.diagnosis_while_it_goes_on(
        lambda status, values: values.get("camera motion") == "known",
        "camera motion known",
        lambda i: gimbal.say(stamp_of(i), 0.001 * i),
    )


@pytest.mark.parametrize(
    ("say", "word"),
    [
        (lambda gimbal, i: None, "no attitude was received"),
        (lambda gimbal, i: gimbal.say(stamp_of(i) - 5 * 10**9, 0.0), "one clock"),
        (lambda gimbal, i: gimbal.say(stamp_of(i), 0.0, frame_id="odom"), "'odom'"),
        (lambda gimbal, i: gimbal.say(stamp_of(i), 0.0, frame_id="vehicle"), "vehicle_heading"),
        (lambda gimbal, i: gimbal.say(stamp_of(i), 0.0, scale=2.0), "no rotation"),
        (lambda gimbal, i: gimbal.say(stamp_of(i), math.nan), "no rotation"),
    ],
    ids=["silent", "clock", "frame_id", "no heading", "length", "NaN"],
)
def test_what_is_wrong_is_said_in_log_and_diagnostics(tracker, say, word):
    gimbal = start(tracker)
    gimbal.diagnosis_while_it_goes_on(
        lambda status, values: status.level == WARN and word in status.message,
        f"a warning with {word}",
        lambda i: say(gimbal, i),
    )
    assert word in gimbal.peer.process.output
    # The target is tracked all the same.
    assert gimbal.peer.boxes[-1].measured


def test_without_a_calibration_the_attitude_is_of_no_use_and_camera_info_is_named(tracker):
    gimbal = start(tracker, calibrated=False)
    gimbal.diagnosis_while_it_goes_on(
        lambda status, values: status.level == WARN and "camera_info" in status.message,
        "a warning that names camera_info",
        lambda i: gimbal.say(stamp_of(i), 0.0),
    )


def test_without_the_parameter_nobody_listens(tracker):
    peer = tracker()
    attitudes = peer.node.create_publisher(QuaternionStamped, "attitude", qos_profile_sensor_data)
    peer.show(0)
    assert attitudes.get_subscription_count() == 0
