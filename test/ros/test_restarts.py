"""A tracker that was killed and started again: no number of a dead participant, images again, one tracker."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from level_pipeline import bright_box, scene
from ros_helpers import image_message, new_namespace, stamp_of, tracker_command

from efftam_ros.package_files import FAST_DDS, middleware
from efftam_ros.ros.common import participants
from efftam_ros.ros.common.dead_ports import dead_participants, domain

pytestmark = pytest.mark.skipif(
    not middleware().startswith(FAST_DDS), reason="numbers of participants are those of Fast DDS"
)

NODE = """
import os, sys, time
import rclpy
from efftam_ros.ros.common.participants import apart_from_the_dead
rclpy.init(args=[])
with apart_from_the_dead("apart"):
    node = rclpy.create_node("apart", namespace=sys.argv[1])
maps = open("/proc/self/maps").read()
print("ports", *sorted({word for word in maps.split() if "fastrtps_port" in word}), flush=True)
time.sleep(60)
"""


def ports_of(process) -> set[str]:
    lines = [line for line in process.output.splitlines() if line.startswith("ports ")]
    return {Path(port).name for port in lines[0].split()[1:]} if lines else set()


def start(processes, peer):
    process = processes([sys.executable, "-c", NODE, new_namespace()])
    peer.wait(lambda: ports_of(process), "the node to be made")
    return process, ports_of(process)


def test_a_node_does_not_take_the_number_of_a_participant_that_was_killed(processes, peers):
    peer = peers(new_namespace())
    killed, ports = start(processes, peer)
    before = set(dead_participants(domain()))  # of other runs
    killed.send(signal.SIGKILL)
    killed.wait()
    (number,) = set(dead_participants(domain())) - before
    own = f"fastrtps_port{7400 + 250 * domain() + 11 + 2 * number}"
    assert own in ports
    _, others = start(processes, peer)
    assert own not in others
    assert number not in dead_participants(domain())  # what was left of it is removed


def test_a_tracker_that_is_killed_while_it_follows_gets_images_again_at_once(processes, peers):
    peer = peers(new_namespace())
    for _ in range(3):
        peer.process = processes(tracker_command(peer.namespace, "-p", "image_timeout:=60.0"))
        peer.wait_until_active()
        peer.warm_up()
        peer.show(0)
        peer.follow(0, bright_box(0))
        peer.process.send(signal.SIGKILL)
        peer.process.wait()
        peer.wait(lambda: peer.images.get_subscription_count() <= 1, "the end")


def test_a_node_that_nothing_reaches_starts_again_once_as_another_participant(processes, peers, monkeypatch):
    """A publisher that is there and sends nothing looks like one whose images do not arrive."""
    namespace = new_namespace()
    peer = peers(namespace)
    environment = {"TEST_RENEWAL_S": "1.0"}
    process = processes(tracker_command(namespace), **environment)
    peer.wait(lambda: "starts again as another DDS participant" in process.output, "the renewal", 40.0)
    peer.wait(lambda: process.output.count("active: images from") == 2, "the node to be active again", 40.0)
    assert process.alive
    peer.warm_up()
    peer.images.publish(image_message(scene(1), stamp_of(1)))
    peer.spin_for(1.0)
    process.send(signal.SIGINT)
    assert process.wait() == 0
    assert process.output.count("starts again as another DDS participant") == 1
    assert participants.RENEWED not in os.environ
