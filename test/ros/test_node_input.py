"""The node at first contact with a camera: what is published, how it is asked for, and what is said of it."""

from __future__ import annotations

import math
import sys
from contextlib import ExitStack

import cv2
import pytest
from efftam_ros.msg import BoundingBox
from level_node import Tracker
from level_pipeline import HEIGHT, WIDTH, bright_box, scene
from rclpy.qos import QoSProfile, ReliabilityPolicy
from ros_helpers import box_selection, new_namespace, stamp_of, tracker_command
from sensor_msgs.msg import CameraInfo, CompressedImage, Image

RELIABLE, BEST_EFFORT = ReliabilityPolicy.RELIABLE, ReliabilityPolicy.BEST_EFFORT
QUICK = ("-p", "diagnostics_period:=0.1", "-p", "image_timeout:=20.0")


def asked(peer, topic="image"):
    """The reliabilities with which the tracker subscribes."""
    name = peer.node.resolve_topic_name(topic)
    return [i.qos_profile.reliability for i in peer.node.get_subscriptions_info_by_topic(name)]


def camera(peer, reliability, topic="image", kind=Image):
    return peer.node.create_publisher(kind, topic, QoSProfile(depth=10, reliability=reliability))


def test_reliable_is_asked_for_when_every_publisher_offers_it(tracker):
    peer = tracker(*QUICK)
    peer.wait(lambda: asked(peer) == [RELIABLE], "a reliable subscription alone")
    _, values = peer.diagnosis(lambda s, v: "reliable" in v.get("image reliability", ""), "the reliability")
    assert values["image reliability"] == "reliable (requested: auto)"
    assert values["image publishers"] == "peer: reliable"

    # The driver restarts with sensor-data QoS: a reliable subscription would hear nothing from it.
    peer.node.destroy_publisher(peer.images)
    peer.images = camera(peer, BEST_EFFORT)
    peer.wait(lambda: asked(peer) == [BEST_EFFORT], "a best-effort subscription alone")
    peer.warm_up()
    assert peer.show(0).state == BoundingBox.IDLE


def test_an_override_of_one_topics_qos_leaves_the_others_alone(tracker, ros):
    namespace = new_namespace()
    override = f"qos_overrides./{namespace}"
    peer = tracker(
        *QUICK,
        *("-p", f"{override}/image.subscription.reliability:=reliable"),
        *("-p", f"{override}/bbox.publisher.reliability:=best_effort"),
        namespace=namespace,
        peer={"best_effort_boxes": True},
    )
    assert asked(peer) == [RELIABLE]
    assert asked(peer, "camera_info") == [BEST_EFFORT]

    def offered(topic):
        name = peer.node.resolve_topic_name(topic)
        return [i.qos_profile.reliability for i in peer.node.get_publishers_info_by_topic(name)]

    assert offered("bbox") == [BEST_EFFORT]
    assert offered("velocity") == offered("mask") == offered("selection_result") == [RELIABLE]


@pytest.fixture
def alone(peers):
    """A tracker that hears no image: ``alone(*arguments)`` gives a peer that publishes none."""
    with ExitStack() as made:

        def start(*arguments):
            peer = peers(new_namespace())
            peer.node.destroy_publisher(peer.images)
            peer.process = Tracker(peer.namespace, "-p", "diagnostics_period:=0.1", *arguments)
            made.callback(peer.process.end)
            peer.wait(peer.select_client.service_is_ready, "the service select_target")
            return peer

        yield start


def says(peer, *words):
    """Wait until the headline holds all words; then the service must answer with them too."""
    status, _ = peer.diagnosis(lambda s, v: all(w in s.message for w in words), f"the words {words}")
    answer = peer.select(box_selection(bright_box(0)))
    assert not answer.success
    assert all(word in answer.message for word in words), answer.message
    return status


def test_nobody_publishes_images(alone):
    peer = alone()
    topic = peer.node.resolve_topic_name("image")
    status = says(peer, f"nothing publishes {topic}")  # what to do depends on who else is on the graph
    assert status.level == b"\x03"
    peer.wait(lambda: f"nothing publishes {topic}" in peer.process.output, "the same in the log")


def compressed(i, stamp=None):
    message = CompressedImage(format="jpeg", data=cv2.imencode(".jpg", scene(i))[1].tobytes())
    message.header.stamp.sec, message.header.stamp.nanosec = divmod(stamp or stamp_of(i), 10**9)
    return message


@pytest.mark.parametrize("given", ["camera/image_raw", "camera/image_raw/compressed"])
def test_a_compressed_topic_is_found_by_its_base_and_its_calibration_beside_that(tracker, given):
    """As image_transport has it; the calibration makes the bearing."""
    peer = tracker(
        *QUICK,
        *("-p", "image_transport:=compressed", "-r", f"image:={given}"),
        peer={"image_type": CompressedImage, "image_topic": "camera/image_raw/compressed"},
        warm_up=lambda stamp: compressed(0, stamp),
    )
    peer.send(compressed(0))
    peer.follow(0, bright_box(0))
    topic = f"/{peer.namespace}/camera/camera_info"
    peer.node.destroy_publisher(peer.camera_infos)  # of the same name in the tracker's own namespace
    peer.diagnosis(lambda s, v: v.get("camera_info") == f"none on {topic}", "that there is none beside")
    infos = peer.node.create_publisher(CameraInfo, topic, 10)
    peer.wait(lambda: infos.get_subscription_count() > 0, "the subscription to camera_info")
    info = CameraInfo(width=WIDTH, height=HEIGHT, distortion_model="plumb_bob", d=[0.0] * 5)
    info.k = [300.0, 0.0, WIDTH / 2 - 0.5, 0.0, 300.0, HEIGHT / 2 - 0.5, 0.0, 0.0, 1.0]
    for i in range(1, 40):
        infos.publish(info)
        peer.send(compressed(i))
        velocity = peer.velocity_of(stamp_of(i))
        if velocity.has_bearing:
            break
    assert velocity.azimuth == pytest.approx(math.atan((velocity.center_x - WIDTH / 2) / 300.0))
    assert velocity.predicted_azimuth > velocity.azimuth  # it moves to the right
    for covariance in (velocity.bearing_covariance, velocity.predicted_bearing_covariance):
        assert covariance[0] > 0
    peer.diagnosis(
        lambda s, v: v["camera_info"].startswith(f"calibrated, {WIDTH} x {HEIGHT} px"), "its arrival"
    )


CAMERA = """
from efftam_workshop.bench.latency import feed
feed((1280, 720), 13.0, "best_effort", select=False)
"""


def test_images_lost_for_want_of_the_profile_are_told_with_the_profile(processes, peers):
    """A camera in a process of its own, as drivers are: best effort, 1280 x 720, Fast DDS as it comes."""
    namespace = new_namespace()
    peer = peers(namespace)
    peer.node.destroy_publisher(peer.images)
    defaults = {"FASTRTPS_DEFAULT_PROFILES_FILE": "", "FASTDDS_DEFAULT_PROFILES_FILE": ""}
    tracker = processes(tracker_command(namespace, "-p", "diagnostics_period:=0.1"), **defaults)
    sender = [sys.executable, "-c", CAMERA, "--ros-args", "-r", f"__ns:=/{namespace}"]
    processes(sender, **defaults)
    found = []

    def told():
        found.extend(s for s in peer.diagnostics if "lost on the way" in s.message)
        return [s for s in found if "fastdds_images.xml" in s.message and "BOTH" in s.message]

    peer.wait(told, "the loss and the profile in diagnostics", seconds=40.0)
    peer.wait(lambda: "fastdds_images.xml" in tracker.output, "the same in the log")
