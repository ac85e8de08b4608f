"""Parameters that change while the node is active, and what that does to its answers."""

from __future__ import annotations

import math

import pytest
from level_pipeline import HEIGHT, WIDTH, bright_box
from rcl_interfaces.srv import SetParameters
from rclpy.parameter import Parameter
from ros_helpers import stamp_of
from sensor_msgs.msg import CameraInfo

from efftam_ros.images.message import stamp_ns

FOCAL_PX, RECTIFIED_FOCAL_PX = 300.0, 150.0


def set_parameter(peer, name, value) -> None:
    client = peer.node.create_client(SetParameters, "efftam_tracker/set_parameters")
    peer.wait(client.service_is_ready, "the service set_parameters")
    request = SetParameters.Request(parameters=[Parameter(name, value=value).to_parameter_msg()])
    (result,) = peer.call(client, request).results
    assert result.successful, result.reason


def calibrated() -> CameraInfo:
    """A camera whose rectified images have half its focal length."""
    cx, cy = WIDTH / 2 - 0.5, HEIGHT / 2 - 0.5
    info = CameraInfo(width=WIDTH, height=HEIGHT, distortion_model="plumb_bob", d=[0.0] * 5)
    info.k = [FOCAL_PX, 0.0, cx, 0.0, FOCAL_PX, cy, 0.0, 0.0, 1.0]
    info.p = [RECTIFIED_FOCAL_PX, 0.0, cx, 0.0, 0.0, RECTIFIED_FOCAL_PX, cy, 0.0, 0.0, 0.0, 1.0, 0.0]
    return info


def test_settings_of_input_and_tracker_count_from_the_next_image_on(tracker):
    """One camera_info for all of it: a driver's repetitions of the same one change nothing."""
    peer = tracker("-p", "image_timeout:=60.0")
    peer.wait(lambda: peer.camera_infos.get_subscription_count() > 0, "the subscription to camera_info")
    peer.camera_infos.publish(calibrated())
    peer.show(0)
    peer.follow(0, bright_box(0))
    i = 0
    while i == 0 or not (peer.velocity_of(stamp_of(i)).has_bearing or i == 20):
        i += 1
        peer.show(i)

    def azimuth(velocity, focal_px):
        return pytest.approx(math.atan((velocity.center_x - WIDTH / 2) / focal_px))

    velocity = peer.velocity_of(stamp_of(i))
    assert velocity.azimuth == azimuth(velocity, FOCAL_PX)
    for rectified, focal_px in ((True, RECTIFIED_FOCAL_PX), (False, FOCAL_PX)):
        set_parameter(peer, "rectified", rectified)
        i += 1
        peer.show(i)
        velocity = peer.velocity_of(stamp_of(i))
        assert velocity.azimuth == azimuth(velocity, focal_px)

    for threshold, measured in ((0.9999, False), (0.5, True)):
        set_parameter(peer, "presence_threshold", threshold)
        i += 1
        assert peer.show(i).measured is measured

    # The watch that was started with 60 s would look every 12 s.
    del peer.velocities[:]
    set_parameter(peer, "image_timeout", 0.2)
    peer.wait(lambda: peer.velocities, "the velocity that is not valid", seconds=8.0)
    stale = peer.velocities[0]
    assert (stale.valid, stamp_ns(stale.header.stamp)) == (False, stamp_of(i))
    assert "image_timeout is 0.2 s" in stale.reason
