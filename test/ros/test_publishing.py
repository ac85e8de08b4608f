"""What is published of each answer, between the thread that tracks and the one that watches."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
from builtin_interfaces.msg import Time
from hypothesis import example, given
from hypothesis import strategies as st
from recorded_outputs import RecordedOutputs
from sensor_msgs.msg import CameraInfo
from std_msgs.msg import Header
from support.reasons import because

from efftam_ros.core.geometry import Box
from efftam_ros.core.reasons import NO_REASON, ReasonCode
from efftam_ros.core.targets import Step
from efftam_ros.core.types import Motion, Track, TrackState
from efftam_ros.images.message import ReceivedImage
from efftam_ros.messages.bearing import camera_model
from efftam_ros.messages.fields import About, Outcome
from efftam_ros.ros.tracker import publishing
from efftam_ros.ros.tracker.frame_buffer import Command
from efftam_ros.ros.tracker.table import PublishedAnswer, TargetTable

IDLE, TRACKING = TrackState.IDLE, TrackState.TRACKING
CAMERA = CameraInfo(width=64, height=48, k=[50.0, 0.0, 31.5, 0.0, 50.0, 23.5, 0.0, 0.0, 1.0])


@pytest.fixture
def outputs(monkeypatch) -> RecordedOutputs:
    return RecordedOutputs(monkeypatch)


def publish(
    outputs, stamp_ns: int, target_id: int = 0, state=TRACKING, steered=True, stale=NO_REASON
) -> PublishedAnswer:
    """The answer to an image, of a target with the selection 1 more than its id."""
    box = Box(10.0, 10.0, 20.0, 20.0)
    motion = Motion(stamp_ns, box, (0.0, 0.0), np.eye(4))
    track = Track(stamp_ns, state, box, True, motion=motion, image_size=(64, 48))
    header = Header(stamp=Time(nanosec=stamp_ns))
    frame = ReceivedImage(header, stamp_ns, time.monotonic(), 100, (64, 48), lambda: None)
    predictions = SimpleNamespace(motion_at=lambda stamp_ns: motion)
    outputs.table.select(target_id, target_id + 1)
    about = About(header, 0, target_id, steered)
    step = Step(target_id, track, predictions, 1e-3 * stamp_ns)
    return outputs.publish(frame, step, about, stale)[0]


def last(outputs, topic: str) -> dict[int, tuple]:
    """By target, what was said last: stamp, state, selection, and why it is not to be steered by."""
    return {
        m.target_id: (m.header.stamp.nanosec, m.state, m.selection, m.valid, m.reason)
        for m in outputs.sent(topic)
    }


IDS = st.integers(0, 2)
EVENTS = st.one_of(
    st.tuples(st.just("answer"), IDS, st.sampled_from([IDLE, TRACKING])),
    st.tuples(st.sampled_from(["take back", "clear"]), IDS),
    st.sampled_from([("end",), ("begin",)]),
)


@given(st.lists(EVENTS, max_size=12))
@example([("answer", 1, IDLE), ("answer", 0, IDLE)])
@example([("answer", 0, TRACKING), ("end",), ("answer", 0, TRACKING)])
@example([("answer", 1, TRACKING), ("take back", 1), ("answer", 0, TRACKING), ("end",)])
def test_box_and_velocity_of_each_target_say_the_same(events):
    with pytest.MonkeyPatch.context() as patch:
        outputs, said, ending = RecordedOutputs(patch), dict[int, tuple](), ""
        for now, (what, *how) in enumerate(events, 1):
            answers = outputs.table.answers
            if what == "answer":
                one, state = how
                answer = publish(outputs, now, one, state)
                assert outputs.table.answers[one] == answer
                assert outputs.table.rows[one].seconds == 1e-3 * now
                reason = ending or (ReasonCode.NO_TARGET.reason() if state is IDLE else "")
                said[one] = (now, state, 0 if state is IDLE else one + 1, not reason, reason)
            elif what == "end":
                outputs.end(ending := ReasonCode.NODE_DEACTIVATED.reason())
                said |= {one: (*said[one][:3], False, ending) for one in answers}
            elif what == "begin":
                outputs.begin(TargetTable())
                outputs.published.clear()
                said, ending = {}, ""
            elif how[0] in answers and what == "take back":
                outputs.table.rows[how[0]].taken_back_s = None  # long ago
                assert outputs.take_back(answers[how[0]], because("no image"), now)
                said[how[0]] = (*said[how[0]][:3], False, "no image")
            elif how[0] in answers:
                outputs.clear(how[0], because("cleared"))
                said[how[0]] = (said[how[0]][0], IDLE, 0, False, "cleared")
        assert last(outputs, "velocity") == last(outputs, "bbox") == said
        for message in outputs.sent("velocity"):
            assert np.isnan(message.center_x) or message.valid or message.state == IDLE or ending


def test_an_answer_is_taken_back_now_and_then_while_it_is_the_last_and_there_is_a_target(outputs):
    """The loop may publish while the executor's thread decides that answers are missing."""
    answer = publish(outputs, 1000)
    taken = [
        outputs.take_back(answer, because("no image"), now_s) for now_s in (1.0, 1.2, 1.4, 1.5, 1.9, 2.0)
    ]
    assert taken == [True, False, False, True, False, True]
    publish(outputs, 2000)
    assert not outputs.take_back(answer, because("no image"), 9.0)
    outputs.clear(0, ReasonCode.CLEARED.reason())
    (cleared,) = outputs.table.answers.values()
    assert [outputs.take_back(cleared, because("no image"), now_s) for now_s in (9.0, 19.0)] == [True, False]


def test_the_list_of_all_has_the_boxes_of_those_that_there_are_in_order_of_id(outputs):
    publish(outputs, 1000, 2)
    for target_id in (0, 1, 3):
        publish(outputs, 1000, target_id, IDLE if target_id == 1 else TRACKING, steered=False)
    steered = [(box.target_id, box.steered) for box in outputs.sent("bbox")]
    assert steered == [(2, True), (0, False), (1, False), (3, False)]
    header = Header(stamp=Time(nanosec=1000))
    for named in (2, None):
        outputs.publish_tracks(header, named)
    lists = outputs.sent("tracks")
    assert [(one.steered, [box.target_id for box in one.targets]) for one in lists] == [
        (2, [0, 2, 3]),
        (255, [0, 2, 3]),
    ]
    assert lists[0].header == header


def test_what_is_taken_back_after_a_switch_is_of_the_target_that_is_steered_by_now(outputs):
    for target_id in (0, 1):
        publish(outputs, 1000, target_id, steered=target_id == 0)
    outputs.table.steer(1)
    for answer in outputs.table.answers.values():
        outputs.take_back(answer, because("no image for 0.3 s"), 0.0)
    assert [(box.target_id, box.steered) for box in outputs.sent("bbox")[2:]] == [(0, False), (1, True)]


def test_the_camera_of_an_activation_is_not_that_of_the_next(outputs):
    """Its images may be of another camera, and come before their calibration."""
    bearings = []
    for camera in (None, camera_model(CAMERA, rectified=False), None):
        outputs.begin(TargetTable())
        if camera is not None:
            outputs.camera = camera
        publish(outputs, 1000)
        bearings.append(outputs.sent("velocity")[-1].has_bearing)
    assert bearings == [False, True, False]


def test_the_predicted_box_is_for_the_images_stamp_plus_the_time_since_it_arrived(outputs, monkeypatch):
    """Only the image's own clock is used."""
    monkeypatch.setattr(publishing, "time", SimpleNamespace(monotonic=lambda: 7.25))
    box = Box(10.0, 10.0, 20.0, 20.0)
    track = Track(1000, TRACKING, box, True, motion=Motion(1000, box, (0.0, 0.0), np.eye(4)))
    frame = ReceivedImage(Header(), 1000, 7.0, 100, (64, 48), lambda: None)
    moved = SimpleNamespace(
        motion_at=lambda ns: Motion(ns, Box(11.0, 10.0, 20.0, 20.0), (0.0, 0.0), np.eye(4))
    )
    outputs.publish(frame, Step(0, track, moved), About(Header()), NO_REASON)
    (velocity,) = outputs.sent("velocity")
    assert velocity.predicted_stamp == Time(nanosec=250_001_000)
    assert (velocity.center_x, velocity.predicted_x) == (20.0, 11.0)


# The end


def test_once_closed_nothing_is_published(outputs):
    answer = publish(outputs, 1000)
    outputs.close()
    count = len(outputs.published)
    outputs.take_back(answer, because("no image for 0.3 s"), 0.0)
    outputs.publish_result(Command(None, 0, 1), Outcome.ACCEPTED)
    outputs.propose(Header(), 0, None, "no image")
    outputs.clear(0, because("cleared"))
    outputs.end(ReasonCode.NODE_DEACTIVATED.reason())
    assert len(outputs.published) == count


def test_closing_waits_for_a_message_that_is_being_published(outputs, monkeypatch):
    """A publisher that goes while it publishes raises in the other thread."""
    making, closed = threading.Event(), threading.Event()
    make_fields, answer = publishing.velocity_fields, publish(outputs, 1000)

    def slow_fields(*args, **kwargs):
        making.set()
        closed.wait(0.5)
        return make_fields(*args, **kwargs)

    monkeypatch.setattr(publishing, "velocity_fields", slow_fields)

    def close():
        making.wait(5.0)
        outputs.close()
        closed.set()

    closing = threading.Thread(target=close)
    closing.start()
    outputs.take_back(answer, because("no image for 0.3 s"), 0.0)
    closing.join()
    assert closed.is_set()
