"""Bad images and bad selections: each is refused in one line with value and remedy, and the stream goes
on."""

from __future__ import annotations

import pytest
from efftam_ros.msg import BoundingBox
from level_pipeline import FRAME_NS, bright_box, grey_box, scene
from ros_helpers import box_of, box_selection, image_message, stamp_of

from efftam_ros.core.geometry import Box, iou
from efftam_ros.images.message import stamp_ns


def test_a_bad_image_is_refused_and_the_target_is_followed_on(peer):
    peer.show(0)
    peer.follow(0, bright_box(0))
    for i in range(1, 8):
        peer.show(i)
    answered, words = len(peer.boxes), "image data has 1000 bytes; 320 x 240 px in bgr8"
    message = image_message(scene(8), stamp_of(8))
    message.data = bytes(1000)
    peer.images.publish(message)
    _, values = peer.diagnosis(lambda s, v: words in v["last refused image"], words)
    assert len(peer.boxes) == answered
    box = peer.show(9)
    assert box.state == BoundingBox.TRACKING
    assert iou(box_of(box), bright_box(9)) > 0.9
    assert int(values["images refused"]) > 0
    assert "\n" not in values["last refused image"]


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


@pytest.fixture(scope="module")
def following(_quick):
    """A peer whose tracker follows the grey square in a scene that stands still."""
    peer = _quick
    peer.begin_anew()
    peer.show(0)
    peer.follow(0, grey_box(0))
    for i in range(1, 8):
        peer.show(i, scene(0))
    return peer


def test_a_bad_selection_is_refused_by_the_service_and_changes_nothing(following):
    answer = following.select(box_selection(Box(10, 10, 20, 20), stamp_of(-1000)))
    assert not answer.success
    assert "the selection's image is 33." in answer.message
    assert "\n" not in answer.message
    last = (stamp_ns(following.boxes[-1].header.stamp) - stamp_of(0)) // FRAME_NS
    box = following.show(last + 1, scene(0))
    assert box.state == BoundingBox.TRACKING
    assert iou(box_of(box), grey_box(0)) > 0.9


def test_a_bad_selection_by_topic_goes_to_log_and_diagnostics(following):
    following.selections.publish(box_selection(Box(500, 10, 20, 20)))
    _, values = following.diagnosis(
        lambda s, v: "x=500" in v["last refused selection"], "the refused selection"
    )
    assert "lies outside the image" in values["last refused selection"]

    def told():
        following.selections.publish(box_selection(Box(500, 10, 20, 20)))
        return "x=500" in following.process.output

    following.wait(told, "the refusal in the log, which tells such lines once in a while")
