"""The node on the real middleware, in a process of its own: select, track, select again, clear, select
late."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
from efftam_ros.msg import BoundingBox
from level_pipeline import FRAME_NS, bright_box, grey_box, scene
from ros_helpers import box_of, box_selection, image_message, stamp_of

from efftam_ros.core.geometry import iou
from efftam_ros.images.message import stamp_ns


def test_select_track_select_again_and_clear(peer):
    peer.show(0)
    selected = peer.follow(0, bright_box(0))
    assert selected.state == BoundingBox.ACQUIRING
    assert stamp_ns(selected.header.stamp) == stamp_of(0)
    for i in range(1, 16):
        box = peer.show(i)
        assert box.valid == (box.state == BoundingBox.TRACKING)
        assert box.measured
        assert iou(box_of(box), bright_box(i)) > 0.95
    assert box.state == BoundingBox.TRACKING
    assert box.presence > 0.99
    assert box.age == 0.0

    velocity = peer.velocity_of(stamp_of(15))
    truth = (4 / (FRAME_NS * 1e-9), 2 / (FRAME_NS * 1e-9))
    assert velocity.valid
    assert (velocity.velocity_x, velocity.velocity_y) == pytest.approx(truth, rel=0.1)
    assert (velocity.center_x, velocity.center_y) == pytest.approx(
        (bright_box(15).cx, bright_box(15).cy), abs=1
    )
    covariance = np.reshape(velocity.covariance, (4, 4))
    assert np.linalg.eigvalsh(covariance).min() > 0

    again = peer.follow(15, grey_box(15))
    assert again.state == BoundingBox.ACQUIRING
    assert iou(box_of(again), grey_box(15)) > 0.9
    assert iou(box_of(peer.show(16)), grey_box(16)) > 0.9

    assert peer.clear().success
    assert peer.show(17).state == BoundingBox.IDLE
    refused = peer.clear()
    assert not refused.success
    assert "no target" in refused.message


def test_stamps_of_what_may_be_steered_by_rise_strictly(tracker):
    """Selections on old images, a stop of the camera and a clear between them."""
    peer = tracker("-p", "image_timeout:=0.8")
    peer.show(0)
    peer.follow(0, bright_box(0))
    images = iter(range(1, 40))
    for i in islice(images, 19):
        peer.show(i)
    for back in (15, 19, 4):
        assert peer.select(box_selection(bright_box(back), stamp_of(back))).success
        peer.spin_for(1.0)  # longer than image_timeout
        for i in islice(images, 4):
            peer.show(i)
    assert peer.clear().success
    peer.show(next(images))
    for messages in (peer.boxes, peer.velocities):
        stamps = [stamp_ns(m.header.stamp) for m in messages]
        assert stamps != sorted(stamps)  # they did go back
        valid = [stamp_ns(m.header.stamp) for m in messages if m.valid]
        assert len(valid) > 20
        assert valid == sorted(set(valid))
    assert [b.valid for b in peer.boxes] == [v.valid for v in peer.velocities]


def test_a_late_subscriber_hears_what_became_of_the_last_command(peer, peers):
    peer.show(0)
    answer = peer.select(box_selection(bright_box(0), stamp_of(0)))
    peer.wait(lambda: peer.results, "the result")
    late = peers(peer.namespace)
    late.wait(lambda: late.results, "the kept result")
    assert late.results[-1].selection == answer.selection


def test_stamps_that_go_back_reset_and_the_state_says_so(peer):
    peer.show(50)
    peer.follow(50, bright_box(0))
    for i in range(51, 58):
        peer.show(i, scene(i - 50))
    # The first such image is withheld: one wrong stamp costs no target.
    peer.images.publish(image_message(scene(8), stamp_of(-1)))
    words = f"the stamp {stamp_of(-1) * 1e-9:.3f} s is"
    peer.diagnosis(lambda s, v: words in v["last refused image"], words)
    box = peer.show(0, scene(8))
    assert "went back" in box.reason
    assert box.state not in (BoundingBox.TRACKING, BoundingBox.IDLE)
    assert stamp_ns(box.header.stamp) == stamp_of(0)
    boxes = [box] + [peer.show(i, scene(8 + i)) for i in range(1, 8)]
    assert boxes[-1].state == BoundingBox.TRACKING
    assert not boxes[0].valid  # control hears of the new stamps by a message that is not valid
    valid = [stamp_ns(b.header.stamp) for b in boxes if b.valid]
    assert len(valid) >= 4
    assert valid == sorted(set(valid))
