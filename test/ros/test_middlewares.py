"""Fast DDS, Cyclone DDS and Zenoh: what is one's alone is not said of another, and hurts none."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
import rclpy
from ament_index_python import get_resources
from rclpy.qos import QoSProfile, ReliabilityPolicy
from ros_helpers import new_namespace
from sensor_msgs.msg import Image

from efftam_ros.package_files import PROFILE_VARIABLES, middleware
from efftam_ros.ros.common import nodes
from efftam_ros.ros.common.image_input import ImageInput

ROOT = Path(__file__).parents[2]
MIDDLEWARES = ("rmw_fastrtps_cpp", "rmw_cyclonedds_cpp", "rmw_zenoh_cpp")

# One process: Zenoh needs no router then.
DELIVERS = """
import rclpy
from rclpy.qos import QoSProfile
from sensor_msgs.msg import Image
from efftam_ros.package_files import middleware
from efftam_ros.ros.common.image_input import ImageInput
from efftam_ros.ros.common.nodes import Subscriptions

rclpy.init()
node, got = rclpy.create_node("alone"), []
callbacks = Subscriptions(node, print).callbacks
images = ImageInput(node, "raw", "auto", got.append, lambda topic: callbacks(topic, print))
camera = node.create_publisher(Image, "image", QoSProfile(depth=1))
message = Image(height=720, width=1280, step=3840, encoding="bgr8", data=bytes(1280 * 720 * 3))
while not got:
    camera.publish(message)
    rclpy.spin_once(node, timeout_sec=0.1)
    images.look()
print(middleware(), len(got[0].data))
rclpy.try_shutdown()
"""


@pytest.fixture
def made(ros):
    """A node whose image is a topic of its own, and its subscription as ``made(reliability)``."""
    node = ros.create_node("input", namespace=new_namespace())
    inputs, reports = [], []

    def make(reliability="auto"):
        callbacks = partial(nodes.Subscriptions(node, reports.append).callbacks, lost=print)
        inputs.append(ImageInput(node, "raw", reliability, print, callbacks))
        return node, inputs[-1], reports

    yield make
    for made in inputs:
        made.close()
    node.destroy_node()


@pytest.mark.parametrize("name", MIDDLEWARES)
def test_a_large_image_arrives_with_the_settings_of_every_middleware_there(name):
    if name not in get_resources("rmw_typesupport"):
        pytest.skip(f"{name} is not installed")
    profile = str(ROOT / "config" / "fastdds_images.xml")
    settings = dict.fromkeys(PROFILE_VARIABLES, profile) | {"RMW_IMPLEMENTATION": name}
    settings["ZENOH_ROUTER_CHECK_ATTEMPTS"] = "-1"
    done = subprocess.run(
        [sys.executable, "-c", DELIVERS],
        env=os.environ | settings,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.stdout.splitlines()[-1:] == [f"{name} {1280 * 720 * 3}"], done.stderr


def test_without_the_variable_rclpy_says_which_middleware_is_in_use(ros, monkeypatch):
    monkeypatch.delenv("RMW_IMPLEMENTATION", raising=False)
    assert middleware() == ros.get_rmw_implementation_identifier()
    monkeypatch.setattr("rclpy.utilities.get_rmw_implementation_identifier", lambda: "rmw_other")
    assert middleware() == "rmw_other"


@pytest.mark.parametrize(("name", "refused"), [(MIDDLEWARES[1], True), (MIDDLEWARES[2], False)])
def test_reliabilities_that_do_not_match_keep_nothing_back_under_zenoh(made, monkeypatch, name, refused):
    node, images, _ = made("reliable")
    node.create_publisher(Image, "image", QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT))
    monkeypatch.setenv("RMW_IMPLEMENTATION", name)
    assert ("published best effort" in images.explain()) is refused


@pytest.mark.parametrize("name", MIDDLEWARES)
def test_where_nobody_is_found_zenohs_router_is_named_and_only_there(made, monkeypatch, name):
    monkeypatch.setattr(ImageInput, "_is_camera", lambda self, topic: False)
    _, images, _ = made()
    monkeypatch.setenv("RMW_IMPLEMENTATION", name)
    said = images.explain()
    assert said.startswith("nothing publishes")
    assert ("rmw_zenohd" in said) is (name == "rmw_zenoh_cpp")


def test_a_middleware_that_does_not_count_losses_delivers_all_the_same(made, monkeypatch):
    module = sys.modules[nodes.SubscriptionEventCallbacks.__module__]
    whole = module.EventHandler

    def uncounted(**given):
        if "MESSAGE_LOST" in str(given["event_type"]):
            raise nodes.UnsupportedEventTypeError("not supported")
        return whole(**given)

    monkeypatch.setattr(module, "EventHandler", uncounted)
    _, images, reports = made()
    assert reports == [f"{middleware()} can't count the lost messages of {images.topic}"]


def test_a_publisher_that_offers_less_than_is_asked_for_is_said_with_the_remedy(made):
    node, images, reports = made("reliable")
    node.create_publisher(Image, images.topic, QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT))
    end_s = time.monotonic() + 10
    while not reports and time.monotonic() < end_s:
        rclpy.spin_once(node, timeout_sec=0.1)
    (report,) = reports
    assert f"{images.topic} offers a QoS" in report
    assert report.endswith(f"set qos_overrides.{images.topic}.subscription.reliability")
