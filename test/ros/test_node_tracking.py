"""The node on the real middleware, in a process of its own: select, track, select again, clear, select
late."""

from __future__ import annotations

import math
import re
from itertools import islice

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed")
pytest.importorskip("efftam_ros.msg", reason="the messages are not built")

from efftam_ros.msg import BoundingBox, SelectionResult, TargetSelection
from level_pipeline import FRAME_NS, HEIGHT, WIDTH, bright_box, grey_box, scene
from ros_helpers import box_of, box_selection, image_message, stamp_of
from sensor_msgs.msg import CameraInfo

from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.geometry import Box, iou
from efftam_ros.core.types import Track, TrackState
from efftam_ros.images.message import stamp_ns
from efftam_ros.ros.tracker.session import state_after

pytestmark = pytest.mark.ros


def test_every_image_gets_one_box_under_its_own_header(peer):
    for i in range(4):
        box = peer.show(i)
        assert box.state == BoundingBox.IDLE
        assert not box.valid
        assert math.isnan(box.x)
        assert box.header.frame_id == "camera_optical_frame"
        assert (box.image_width, box.image_height) == (WIDTH, HEIGHT)
    assert [stamp_ns(b.header.stamp) for b in peer.boxes] == [stamp_of(i) for i in range(4)]
    assert [stamp_ns(v.header.stamp) for v in peer.velocities] == [stamp_of(i) for i in range(4)]


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


def test_a_target_that_leaves_is_coasted_then_lost_and_found_again(tracker):
    peer = tracker("-p", "image_timeout:=20.0", "-p", "lost_after:=0.3")
    peer.show(0)
    peer.follow(0, bright_box(0))
    for i in range(1, 8):
        peer.show(i)
    empty = np.full((HEIGHT, WIDTH, 3), 20, np.uint8)
    first = peer.show(8, empty)
    assert first.state == BoundingBox.COASTING
    assert first.valid
    assert not first.measured
    assert iou(box_of(first), bright_box(8)) > 0.5
    assert peer.velocity_of(stamp_of(8)).valid
    for i in range(9, 24):
        last = peer.show(i, empty)
    assert last.state == BoundingBox.LOST
    assert not last.valid
    assert math.isnan(last.x)
    assert last.age == pytest.approx(16 * FRAME_NS * 1e-9)
    velocity = peer.velocity_of(stamp_of(23))
    assert not velocity.valid
    assert velocity.reason
    assert math.isnan(velocity.velocity_x)
    # A return is believed after several looks, announced, and only then called TRACKING.
    states = [peer.show(i).state for i in range(24, 44)]
    assert states[-1] == BoundingBox.TRACKING
    assert BoundingBox.ACQUIRING in states[: states.index(BoundingBox.TRACKING)]


def test_late_selection_starts_on_the_image_it_was_drawn_on(peer):
    for i in range(20):
        peer.show(i)
    del peer.boxes[:]
    # At the place of the bright square in image 3, the newest image shows background.
    answer = peer.select(box_selection(bright_box(3), stamp_of(3)))
    assert answer.success, answer.message
    peer.wait(
        lambda: peer.boxes and stamp_ns(peer.boxes[-1].header.stamp) == stamp_of(19), "the newest image"
    )
    stamps = [stamp_ns(b.header.stamp) for b in peer.boxes]
    assert stamps[0] == stamp_of(3)
    assert stamps == sorted(set(stamps))
    # Pictures of before are answered for those who look on; who steers was told of the newest already.
    assert not any(b.valid for b in peer.boxes)
    assert all("behind the camera" in b.reason for b in peer.boxes)
    for box in peer.boxes:
        i = (stamp_ns(box.header.stamp) - stamp_of(0)) // FRAME_NS
        assert iou(box_of(box), bright_box(i)) > 0.9
    assert iou(box_of(peer.show(20)), bright_box(20)) > 0.9


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


def test_each_answer_tells_which_selection_it_is_for(peer):
    peer.show(0)
    assert peer.boxes[-1].selection == 0
    first = peer.select(box_selection(bright_box(0), stamp_of(0)))
    peer.box_of_selection(first.selection)
    second = peer.select(box_selection(grey_box(0), stamp_of(0)))
    assert second.selection == first.selection + 1
    peer.box_of_selection(second.selection)
    refused = peer.select(box_selection(Box(500, 10, 20, 20)))
    assert (refused.success, refused.selection) == (False, 0)
    assert peer.show(1).selection == second.selection
    assert peer.velocity_of(stamp_of(1)).selection == second.selection
    peer.clear()
    assert peer.show(2).selection == 0
    for box in peer.boxes:
        truth = {first.selection: bright_box(0), second.selection: grey_box(0)}.get(box.selection)
        assert truth is None or iou(box_of(box), truth) > 0.7


def test_what_became_of_every_command_is_told_on_a_topic(peer):
    def result():
        peer.wait(lambda: peer.results, "the result")
        return peer.results.pop()

    peer.show(0)
    answer = peer.select(box_selection(bright_box(0), stamp_of(0)))
    accepted = result()
    assert (accepted.outcome, accepted.selection) == (SelectionResult.ACCEPTED, answer.selection)
    assert stamp_ns(accepted.header.stamp) == stamp_of(0)
    peer.selections.publish(box_selection(Box(500, 10, 20, 20), stamp_of(0)))
    refused = result()
    assert (refused.outcome, refused.selection) == (SelectionResult.REFUSED, 0)
    assert "lies outside the image" in refused.message
    assert stamp_ns(refused.header.stamp) == stamp_of(0)
    peer.selections.publish(TargetSelection(kind=TargetSelection.CLEAR))
    cleared = result()
    assert (cleared.outcome, cleared.selection) == (SelectionResult.CLEARED, 0)
    assert not peer.clear().success
    assert "no target to clear" in result().message


def test_a_late_subscriber_hears_what_became_of_the_last_command(peer, peers):
    peer.show(0)
    answer = peer.select(box_selection(bright_box(0), stamp_of(0)))
    peer.wait(lambda: peer.results, "the result")
    late = peers(peer.namespace)
    late.wait(lambda: late.results, "the kept result")
    assert late.results[-1].selection == answer.selection


@pytest.fixture
def held_peer(tracker, tmp_path):
    """A tracker that follows the bright square and has image 1 in work, and the file that holds it there."""
    stall = tmp_path / "stall"
    peer = tracker("-p", "image_timeout:=60.0", "-p", "diagnostics_period:=0.1", stall=stall)
    peer.show(0)
    peer.follow(0, bright_box(0))
    stall.touch()
    peer.images.publish(image_message(scene(1), stamp_of(1)))
    peer.wait(stall.with_suffix(".reached").exists, "image 1 to be in work")
    return peer, stall


def test_a_selection_that_is_overtaken_is_refused(held_peer):
    peer, stall = held_peer
    peer.results.clear()
    for box in (bright_box(0), grey_box(0)):
        assert peer.select(box_selection(box, stamp_of(0))).success
    stall.unlink()
    refused = SelectionResult.REFUSED
    peer.wait(lambda: any(r.outcome == refused for r in peer.results), "the refusal of the one overtaken")
    (found,) = [r for r in peer.results if r.outcome == refused]
    assert found.message == "a newer command took its place"


def test_clear_is_announced_at_once_also_while_no_image_comes(peer):
    peer.show(0)
    peer.follow(0, bright_box(0))
    for i in range(1, 6):
        peer.show(i)
    peer.forget()
    assert peer.clear().success
    peer.wait(lambda: peer.boxes and peer.velocities, "the announcement")
    for message in (peer.boxes[0], peer.velocities[0]):
        assert (message.state, message.valid, message.selection) == (BoundingBox.IDLE, False, 0)
    peer.diagnosis(lambda s, v: v["state"] == "IDLE", "IDLE")


def test_a_drag_of_seconds_starts_on_the_nearest_picture_that_is_kept_and_says_so(tracker):
    # A tracker that is slow for a moment skips seconds of images to catch up.
    peer = tracker("-p", "image_timeout:=60.0", "-p", "max_gap:=60.0")
    count, slowly = 180, 4  # six seconds in which the scene moves on with every fourth image
    for i in range(count):
        peer.images.publish(image_message(scene(i // slowly), stamp_of(i)))
        peer.spin_for(0.01)
    peer.wait(
        lambda: peer.boxes and stamp_ns(peer.boxes[-1].header.stamp) == stamp_of(count - 1), "the newest"
    )
    peer.forget()
    named = stamp_of(21) + FRAME_NS // 3
    answer = peer.select(box_selection(bright_box(21 // slowly), named))
    assert answer.success, answer.message
    assert "is taken" in answer.message
    first = peer.box_of_selection(answer.selection)
    assert 0 < abs(stamp_ns(first.header.stamp) - named) < 0.12e9
    assert f"the image of {first.header.stamp.sec}.{first.header.stamp.nanosec:09d}" in answer.message
    peer.wait(lambda: peer.results and peer.results[-1].message == answer.message, "the same on the topic")
    peer.wait(lambda: stamp_ns(peer.boxes[-1].header.stamp) == stamp_of(count - 1), "the newest image")
    for box in peer.boxes:
        i = (stamp_ns(box.header.stamp) - stamp_of(0)) // FRAME_NS
        assert iou(box_of(box), bright_box(i // slowly)) > 0.8 or not box.measured


def test_when_images_stop_the_velocity_says_so_under_the_last_stamp(tracker):
    peer = tracker("-p", "image_timeout:=0.3")
    peer.show(0)
    peer.follow(0, bright_box(0))
    for i in range(1, 10):
        peer.images.publish(image_message(scene(i), stamp_of(i)))
        peer.spin_for(0.033)

    def last(messages):
        return [m for m in messages if stamp_ns(m.header.stamp) == stamp_of(9)]

    peer.wait(lambda: len(last(peer.velocities)) > 1, "the velocity that is not valid")
    peer.wait(lambda: len(last(peer.boxes)) > 1, "the box that is not valid")
    stale, box = last(peer.velocities)[1], last(peer.boxes)[1]
    assert (box.valid, box.reason) == (False, stale.reason)
    assert math.isnan(box.x)
    assert not stale.valid
    assert "no image for" in stale.reason
    assert "image_timeout" in stale.reason
    assert np.isnan([stale.center_x, stale.velocity_x, stale.predicted_x, *stale.covariance]).all()
    peer.diagnosis(lambda s, v: s.level == b"\x03" and "no image" in s.message, "STALE")


def test_the_states_of_a_camera_that_died_follow_the_clock(tracker):
    peer = tracker("-p", "max_gap:=1.0", "-p", "diagnostics_period:=0.1")
    peer.show(0)
    peer.follow(0, bright_box(0))
    assert [peer.show(i) for i in range(1, 8)][-1].state == BoundingBox.TRACKING
    peer.forget()
    peer.wait(lambda: [v for v in peer.velocities if v.state == BoundingBox.LOST], "LOST without an image")
    peer.diagnosis(lambda s, v: v["state"] == "LOST", "LOST in diagnostics")
    count = len(peer.velocities)
    peer.wait(lambda: len(peer.velocities) >= count + 2, "repeated messages")
    told = [v.state for v in peer.velocities]
    assert told == sorted(told)
    assert set(told) == {BoundingBox.COASTING, BoundingBox.LOST}
    assert not any(v.valid for v in peer.velocities)
    assert "TRACKING -> COASTING: no image for" in peer.process.output
    assert "COASTING -> LOST: no image for" in peer.process.output


@pytest.mark.parametrize(
    ("state", "age_s", "silence_s", "after"),
    [
        (TrackState.TRACKING, 0.0, 0.3, TrackState.COASTING),
        (TrackState.TRACKING, 0.0, 1.9, TrackState.COASTING),
        (TrackState.TRACKING, 0.0, 2.0, TrackState.COASTING),
        (TrackState.TRACKING, 0.0, 2.1, TrackState.LOST),
        (TrackState.COASTING, 0.8, 0.1, TrackState.COASTING),
        (TrackState.COASTING, 0.75, 0.25, TrackState.COASTING),
        (TrackState.COASTING, 0.8, 0.3, TrackState.LOST),
        (TrackState.LOST, 9.0, 0.1, TrackState.LOST),
        (TrackState.IDLE, 0.0, 9.0, TrackState.IDLE),
    ],
)
def test_without_images_a_missed_target_is_lost_after_lost_after_one_that_was_seen_after_max_gap(
    state, age_s, silence_s, after
):
    config = TrackerConfig(lost_after=1.0, max_gap=2.0)
    assert state_after(Track(0, state, age_s=age_s), silence_s, config) is after


def test_images_that_are_all_refused_are_not_said_to_be_missing(tracker):
    peer = tracker("-p", "image_timeout:=1.0")
    peer.show(0)
    peer.follow(0, bright_box(0))
    peer.show(1)
    del peer.velocities[:]
    said = len(peer.process.output)
    for i in range(2, 120):
        peer.images.publish(image_message(scene(i), stamp_of(i), encoding="no_such_encoding"))
        peer.spin_for(0.033)
        if peer.velocities:
            break
    stale = peer.velocities[0]
    assert not stale.valid
    assert "no image could be used for" in stale.reason
    assert "no_such_encoding" in stale.reason
    assert "nothing arrives from it" not in peer.process.output[said:]


def test_an_answer_that_comes_after_images_have_stopped_is_not_to_be_steered_by(tracker):
    peer = tracker("-p", "image_timeout:=0.1", delay_s=0.4)
    peer.show(0)
    peer.follow(0, bright_box(0))
    for i in range(1, 6):
        peer.show(i)
    box = next(
        b for b in peer.boxes if stamp_ns(b.header.stamp) == stamp_of(5)
    )  # a later one has no position
    assert box.state == BoundingBox.TRACKING

    # The frame takes 0.4 s, of which no image comes for longer than 0.1 s.
    for message in (box, peer.velocity_of(stamp_of(5))):
        assert not message.valid
        assert re.match(r"answered \d\.\d\d s after this image came.*no image for", message.reason)
    assert math.isnan(peer.velocity_of(stamp_of(5)).velocity_x)
    assert not math.isnan(box.x)
    assert not any(m.valid for m in peer.velocities)


def test_a_network_that_hangs_takes_the_last_answer_back_while_images_come(tracker, tmp_path):
    stall = tmp_path / "stall"
    peer = tracker("-p", "image_timeout:=1.0", "-p", "diagnostics_period:=0.1", stall=stall)
    images = iter(range(10_000))

    def camera(condition):
        """Images at 30 Hz until the condition holds."""

        def sent():
            i = next(images)
            peer.images.publish(image_message(scene(0), stamp_of(i)))
            peer.spin_for(0.033)
            return condition()

        return sent

    peer.wait(camera(lambda: peer.boxes), "the first answer")
    assert peer.select(box_selection(bright_box(0))).success
    peer.wait(camera(lambda: peer.velocities and peer.velocities[-1].valid), "a valid velocity")
    stall.touch()
    peer.wait(camera(lambda: not peer.velocities[-1].valid), "the answer to be taken back")
    for message in (peer.velocities[-1], peer.boxes[-1]):
        assert not message.valid
        # An answer that is only on its way is not taken back: the last one holds for image_timeout at least.
        (silence_s,) = map(float, re.findall(r"no answer for ([\d.]+) s", message.reason))
        assert silence_s >= 1.0
    assert math.isnan(peer.velocities[-1].velocity_x)
    peer.diagnostics.clear()
    said = "no answer for"
    peer.wait(
        camera(lambda: any(said in s.message and s.level == b"\x02" for s in peer.diagnostics)), "the ERROR"
    )
    assert said in peer.process.output
    stall.unlink()
    peer.wait(camera(lambda: peer.velocities[-1].valid), "a valid velocity again")
    peer.diagnostics.clear()
    peer.wait(camera(lambda: any(s.message == "TRACKING" for s in peer.diagnostics)), "the end of the ERROR")


def test_the_predicted_box_is_for_the_images_stamp_plus_the_time_it_took(slow_peer):
    peer = slow_peer
    peer.show(0)
    peer.follow(0, bright_box(0))
    for i in range(1, 8):
        peer.show(i)
    velocity = peer.velocity_of(stamp_of(7))
    ahead_s = (stamp_ns(velocity.predicted_stamp) - stamp_of(7)) * 1e-9
    assert ahead_s > 0.2
    moved = velocity.predicted_x + velocity.predicted_width / 2 - velocity.center_x
    assert moved == pytest.approx(velocity.velocity_x * ahead_s, rel=1e-6)


def camera_info(width=WIDTH, height=HEIGHT, focal=300.0) -> CameraInfo:
    info = CameraInfo(width=width, height=height, distortion_model="plumb_bob", d=[0.0] * 5)
    info.k = [focal, 0.0, width / 2 - 0.5, 0.0, focal, height / 2 - 0.5, 0.0, 0.0, 1.0]
    return info


def test_camera_info_turns_pixels_into_bearing(peer):
    peer.wait(lambda: peer.camera_infos.get_subscription_count() > 0, "the subscription to camera_info")
    peer.show(0)
    peer.follow(0, bright_box(0))
    for i in range(1, 6):
        peer.show(i)
    assert not peer.velocity_of(stamp_of(5)).has_bearing

    peer.camera_infos.publish(camera_info())
    peer.show(6)
    i = 6
    while not peer.velocity_of(stamp_of(i)).has_bearing and i < 20:
        i += 1
        peer.show(i)
    velocity = peer.velocity_of(stamp_of(i))
    x = (velocity.center_x - WIDTH / 2) / 300.0
    assert velocity.azimuth == pytest.approx(math.atan(x))
    assert velocity.azimuth_rate == pytest.approx(velocity.velocity_x / 300.0 / (1 + x * x))
    assert np.linalg.eigvalsh(np.reshape(velocity.rate_covariance, (2, 2))).min() > 0

    peer.camera_infos.publish(camera_info(focal=0.0))  # not calibrated
    while peer.velocity_of(stamp_of(i)).has_bearing and i < 40:
        i += 1
        peer.show(i)
    assert math.isnan(peer.velocity_of(stamp_of(i)).azimuth)

    peer.camera_infos.publish(camera_info(width=2 * WIDTH))
    peer.spin_for(0.2)
    peer.show(i + 1)
    status, _ = peer.diagnosis(lambda s, v: "no bearing" in s.message, "no bearing")
    assert f"camera_info is for {2 * WIDTH} x {HEIGHT} px, the image has {WIDTH} x {HEIGHT}" in status.message
