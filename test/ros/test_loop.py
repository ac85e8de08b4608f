"""The loop that tracks, with its buffer, outputs and statistics: what is published and kept after what."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from node_bench import PERIOD_NS, PROMPTS, Bench, following
from sensor_msgs.msg import CameraInfo

from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.errors import InputError, PipelineLostError
from efftam_ros.core.geometry import Box, iou
from efftam_ros.core.types import Image, TrackState
from efftam_ros.images.message import ReceivedImage, stamp_ns
from efftam_ros.messages.bearing import camera_model
from efftam_ros.messages.fields import Outcome
from efftam_ros.ros.tracker.diagnostics import Level
from efftam_ros.ros.tracker.frame_buffer import ALL, Command

IDLE, ACQUIRING, TRACKING = TrackState.IDLE, TrackState.ACQUIRING, TrackState.TRACKING
LOST = "cudaMemcpyAsync failed: CUDA_ERROR_UNKNOWN (999); restart it"


@pytest.fixture
def bench(monkeypatch) -> Bench:
    bench = Bench(monkeypatch)
    bench.image()
    return bench


def states(boxes) -> dict[int, int]:
    """By target, in the order of their boxes."""
    return {box.target_id: box.state for box in boxes}


# Commands

IDS = st.integers(0, 2)
EVENTS = st.one_of(
    st.tuples(st.sampled_from(["select", "steer", "clear", "fail"]), IDS),
    st.sampled_from([("clear", ALL), ("refuse", 1)]),
)


@settings(max_examples=100)
@given(st.lists(EVENTS, max_size=12))
@example([("select", 0), ("select", 1), ("select", 2), ("steer", 1), ("clear", 1)])
@example([("select", 0), ("select", 1), ("fail", 0), ("select", 0)])
@example([("select", 1), ("select", 2), ("refuse", 1), ("clear", ALL), ("select", 2)])
def test_targets_and_the_steered_one_are_as_the_commands_left_them(events):
    """The model: the selection's number by target, and the target that is steered by."""
    with pytest.MonkeyPatch.context() as patch:
        bench = Bench(patch)
        bench.image()
        known, steered = dict[int, int](), None
        for number, (what, one) in enumerate(events, 1):
            count, outcome = len(bench.outputs.sent("selection_result")), None
            gone = [other for other in known if one in (other, ALL)] if what in ("clear", "fail") else []
            if what == "select":
                bench.select(one, number=number)
                known[one], outcome = number, Outcome.ACCEPTED
                steered = one if steered is None else steered
            elif what == "refuse":
                bench.plan.refusal = InputError("the network finds nothing there")
                bench.select(one, number=number)
                bench.plan.refusal, outcome = None, Outcome.REFUSED
            elif what == "steer":
                bench.command(one, steers=True)
                steered, outcome = (one, None) if one in known else (steered, Outcome.REFUSED)
            elif what == "clear" and gone:
                assert states(bench.command(one)) == dict.fromkeys(gone, IDLE)
                outcome = Outcome.CLEARED
            elif what == "fail":
                bench.plan.bad_target = one
                bench.image()
                bench.plan.bad_target = None
            known = {other: selection for other, selection in known.items() if other not in gone}
            steered = steered if steered in known else None
            told = bench.outputs.sent("selection_result")[count:]
            assert [result.outcome for result in told] == ([] if outcome is None else [outcome])
            named = "none" if steered is None else str(steered)
            assert bench.verdict().values.get("steered target", named) == named
            boxes = bench.image()
            assert {box.target_id: box.selection for box in boxes} == (known or {0: 0})
            lone = [] if known else [0]
            assert [box.target_id for box in boxes if box.steered] == (lone if steered is None else [steered])


@pytest.mark.parametrize(
    ("steered", "order"),
    [(0, "v0 b0 v1 b1 v2 b2"), (1, "v1 b1 v0 b0 v2 b2"), (2, "v2 b2 v0 b0 v1 b1")],
)
def test_velocity_and_box_of_the_steered_target_come_first(bench, steered, order):
    following(bench, 3)
    bench.command(steered, steers=True)
    count = len(bench.published)
    boxes = bench.image()
    told = [
        f"{topic[0]}{m.target_id}" for topic, m in bench.published[count:] if topic in ("bbox", "velocity")
    ]
    assert " ".join(told) == order
    (tracks,) = [message for topic, message in bench.published[count:] if topic == "tracks"]
    boxes.sort(key=lambda box: box.target_id)
    assert (tracks.steered, list(tracks.targets)) == (steered, boxes)
    labels = np.frombuffer(bench.outputs.sent("mask_labels")[-1].data, np.uint8).reshape(48, 64)
    for prompt, box in zip(PROMPTS, boxes, strict=True):
        assert labels[int(prompt.box.cy), int(prompt.box.cx)] == box.target_id + 1
    assert labels[47, 63] == 0


def test_a_target_that_is_cleared_while_its_first_image_is_in_work_is_gone_after_that(bench):
    following(bench)
    for _ in range(4):
        bench.image()
    step = bench.targets.step

    def cleared_meanwhile(frame, prompts, *how):
        if prompts:
            bench.commands.clear(Command(None, 1))
        return step(frame, prompts, *how)

    bench.targets.step = cleared_meanwhile
    boxes = bench.select(1, ago=3, number=2)
    assert [(box.target_id, box.state) for box in boxes] == [(1, ACQUIRING), (1, IDLE)]
    assert boxes[0].header == boxes[1].header
    assert list(states(bench.image())) == [0]
    assert [r.outcome for r in bench.outputs.sent("selection_result")[-2:]] == [
        Outcome.ACCEPTED,
        Outcome.CLEARED,
    ]


def test_a_change_of_the_steered_target_or_of_a_state_is_logged_once(bench):
    following(bench, 2)
    for _ in range(2):
        bench.command(1, steers=True)
    assert bench.logged.count("now steering by target 1 (was 0)") == 1
    bench.command(0)
    assert bench.logged[-1] == "target 0: ACQUIRING -> IDLE: the target was cleared"
    for _ in range(5):
        bench.image()
    assert bench.logged[-1] == "ACQUIRING -> TRACKING"


def test_settings_apply_from_the_next_task_on(bench):
    config = TrackerConfig(lost_after=0.7)
    following(bench).buffer.reconfigure(config)
    bench.image()
    assert bench.targets.config is config


# A late selection


def test_while_a_target_catches_up_its_answers_are_not_to_be_steered_by(bench):
    for _ in range(4):
        bench.image()
    boxes = bench.select(ago=3)
    behind = ["processing the images since the selected one: 0.30 s behind the camera"]
    assert [box.header.stamp.nanosec for box in boxes] == [PERIOD_NS * k for k in (2, 3, 4, 5)]
    assert [box.reason for box in boxes[:1]] == behind
    assert not any(box.valid for box in boxes)
    assert bench.image()[0].valid
    values = bench.verdict().values
    assert (values["images processed"], values["images processed again (late selection)"]) == ("6", "4")


def test_targets_selected_on_different_images_at_once_each_catch_up_beside_the_one_that_is_level(bench):
    following(bench, 1)
    for _ in range(12):
        bench.image()
    for target_id, ago in ((1, 9), (2, 4)):
        frame = bench.buffer.find(bench.now_ns - ago * PERIOD_NS)
        bench.buffer.select(Command(frame.header, target_id, target_id + 1), frame, PROMPTS[target_id])
    bench.put()
    boxes, first_ns = bench.work(), bench.now_ns - PERIOD_NS
    stamps = {one: [stamp_ns(b.header.stamp) for b in boxes if b.target_id == one] for one in range(3)}
    for one, ago in ((0, -1), (1, 9), (2, 4)):
        assert stamps[one] == list(range(first_ns - ago * PERIOD_NS, bench.now_ns + 1, PERIOD_NS))
    assert {box.selection for box in boxes if box.target_id == 2} == {3}
    is_late = {box.target_id: "behind the camera" in box.reason for box in reversed(boxes)}
    assert is_late == {0: False, 1: True, 2: True}
    assert not any(box.valid for box in boxes if "behind the camera" in box.reason)


def test_how_far_behind_the_camera_an_answer_is_does_not_depend_on_its_clock(bench):
    for _ in range(3):
        bench.image()
    frame = bench.buffer.find(bench.now_ns - PERIOD_NS)
    bench.now_ns -= 3 * PERIOD_NS
    bench.put()
    bench.buffer.select(Command(frame.header, 0, 1), frame, PROMPTS[0])
    assert bench.work()[0].reason == "processing the images since the selected one: 0.20 s behind the camera"


@pytest.mark.parametrize("count", [0, 1])
def test_after_a_refused_selection_on_an_older_image_the_newest_image_is_next(bench, count):
    """The images since the one it was drawn on are not gone through: nothing is to be followed in them."""
    following(bench, count)
    for _ in range(4):
        bench.image()
    bench.plan.refusal = InputError("the network finds nothing at the selected point")
    assert bench.select(ago=3) == []
    assert bench.results(Outcome.REFUSED) == [(0, str(bench.plan.refusal))]
    assert [box.header.stamp.nanosec for box in bench.image()] == [PERIOD_NS * 6]


# Images


def test_images_that_were_passed_over_and_one_that_can_t_be_read_are_counted(bench):
    def unreadable():
        raise InputError("the JPEG is cut off")

    for _ in range(3):
        bench.put()
    bench.work()
    assert bench.buffer.waiting_s(bench.clock.now_s + 9.0) == 0.0
    assert bench.image(unreadable) == []
    assert bench.buffer.waiting_s(bench.clock.now_s + 9.0) == 0.0
    assert bench.select() == []
    verdict = bench.verdict()
    assert (verdict.level, verdict.message) == (Level.WARN, "the JPEG is cut off")
    assert verdict.values["images dropped (newer came)"] == "2"
    assert (verdict.values["images refused"], verdict.values["selections refused"]) == ("2", "1")
    assert bench.results(Outcome.REFUSED) == [(0, "the JPEG is cut off")]
    assert bench.select(ago=1) != []


def test_an_image_that_the_targets_can_t_use_is_refused_once_and_costs_none(bench):
    following(bench, 2)
    bench.plan.error = InputError("rows of another form")
    assert bench.image() == []
    assert bench.buffer.waiting_s(bench.clock.now_s + 9.0) == 0.0
    verdict = bench.verdict()
    assert (verdict.message, verdict.values["images refused"]) == ("rows of another form", "1")
    bench.plan.error = None
    assert [box.measured for box in bench.image()] == [True, True]


@pytest.mark.parametrize("event", ["image", "selection"])
def test_an_image_whose_decoding_fails_in_an_unforeseen_way_costs_no_target(bench, monkeypatch, event):
    following(bench, 2)
    if event == "selection":
        bench.put(None)
        monkeypatch.setattr(ReceivedImage, "image", lambda frame: 1 // 0)
        bench.select(2, number=7)
        ((_, message),) = bench.results(Outcome.REFUSED)
        assert "ZeroDivisionError" in message
    else:
        monkeypatch.setattr(ReceivedImage, "image", lambda frame: 1 // 0)
        assert bench.image(None) == []
    assert bench.buffer.waiting_s(bench.clock.now_s + 9.0) == 0.0
    assert any("Traceback" in line for line in bench.logged)
    verdict = bench.verdict()
    assert "ZeroDivisionError" in verdict.values["images refused"] + verdict.message + str(verdict.values)
    monkeypatch.undo()
    assert [box.measured for box in bench.image()] == [True, True]


def test_an_image_of_few_levels_is_told_when_a_target_is_selected_on_it(bench):
    bench.image(Image.from_array(np.zeros((48, 64, 3), np.uint8)))
    following(bench)
    assert bench.verdict().level is Level.WARN


def test_a_calibration_of_another_camera_is_told_with_the_answer_that_has_no_bearing_by_it(bench):
    info = CameraInfo(width=100, height=100, k=[50.0, 0.0, 49.5, 0.0, 50.0, 49.5, 0.0, 0.0, 1.0])
    bench.outputs.camera = camera_model(info, rectified=False)
    following(bench)
    verdict = bench.verdict()
    assert (verdict.level, "100 x 100" in verdict.message) == (Level.WARN, True)


@pytest.mark.parametrize(("seconds", "ids"), [(0.03, [0, 1, 2]), (0.04, [0, 2]), (0.2, [0, 2])])
def test_as_many_targets_are_processed_in_an_image_as_there_is_time_for(bench, seconds, ids):
    """Images come every 0.1 s, and one target takes so many seconds of it: at least two are processed."""
    following(bench, 3)
    bench.plan.seconds = seconds
    for _ in range(30):
        bench.image()
        bench.clock.now_s = 100.0 + 1e-9 * bench.now_ns  # nothing is late
    answered = [{box.target_id for box in bench.image()} for _ in range(2)]
    assert set.union(*answered) == {0, 1, 2}
    assert all(0 in one and len(one) == len(ids) for one in answered)
    assert bench.buffer.frame_s == pytest.approx(seconds * len(ids))
    verdict = bench.verdict()
    assert (verdict.values["targets per image"] == "all") == (len(ids) == 3)
    if len(ids) < 3:
        assert "2 of 3 targets" in verdict.message
        bench.command(1)
        bench.image()
        assert bench.verdict().values["targets per image"] == "all"


def test_an_answer_is_published_before_its_frame_is_remembered_the_velocity_first(bench):
    """Control waits for it."""
    order = []
    for name in ("velocity", "bbox"):
        bench.topics[name].publish = lambda message, name=name: order.append((name, bench.plan.remembered))
    following(bench)
    bench.image()
    assert order == [("velocity", 0), ("bbox", 0), ("velocity", 1), ("bbox", 1)]
    assert bench.plan.remembered == 2


# What raises


def test_an_internal_error_costs_the_target_and_no_more(bench):
    following(bench)
    bench.plan.error = ZeroDivisionError("by zero")
    (box,) = bench.image()
    assert box.state == IDLE
    assert "ZeroDivisionError" in box.reason
    assert "select it again" in box.reason
    assert any("Traceback" in line for line in bench.logged)
    bench.plan.error, calls = None, bench.plan.calls
    assert states(bench.image()) == {0: IDLE}  # the tracker itself has no target any more
    assert bench.plan.calls == calls
    bench.plan.error = ZeroDivisionError("by zero")
    reason = box.reason
    assert states(bench.select()) == {0: IDLE}  # the error is in the selected image itself
    assert bench.results(Outcome.REFUSED) == [(0, reason)]
    bench.plan.error = None
    assert states(bench.select(number=2)) == {0: ACQUIRING}
    assert bench.results(Outcome.ACCEPTED) == [(1, ""), (2, "")]


def test_an_internal_error_in_one_target_costs_that_one_alone(bench):
    following(bench, 3)
    bench.plan.bad_target = 1
    boxes = bench.image()
    assert (boxes[0].measured, states(boxes)[1]) == (True, IDLE)
    bench.plan.bad_target = None
    assert [(box.target_id, box.measured) for box in bench.image()] == [(0, True), (2, True)]


@pytest.mark.parametrize("at", ["image", "proposal", "publishing", "remembering"])
def test_a_lost_gpu_costs_all_targets_and_is_asked_for_nothing_again(bench, at):
    following(bench, 3)
    bench.command(1, steers=True)
    count, lost = len(bench.published), PipelineLostError(LOST)
    if at == "publishing":
        bench.topics["mask"].fault = lost
    else:
        setattr(bench.plan, "late_error" if at == "remembering" else "error", lost)
    if at == "proposal":
        assert bench.propose() == (False, LOST)
    else:
        bench.image()
        bench.image()
    said = [(m.target_id, m.state, m.reason) for name, m in bench.published[count:] if name == "velocity"]
    told = {box.target_id: (box.state, box.reason) for box in bench.outputs.sent("bbox")}
    assert told == dict.fromkeys(range(3), (IDLE, LOST))
    assert at != "image" or said[:3] == [(k, IDLE, LOST) for k in (1, 0, 2)]  # control hears of it first
    bench.plan.error, bench.topics["mask"].fault, calls = None, None, bench.plan.calls
    assert states(bench.select()) == {0: IDLE}
    assert [(box.target_id, box.state, box.reason) for box in bench.image()] == [(0, IDLE, LOST)]
    assert bench.results(Outcome.REFUSED) == [(0, LOST)]
    assert bench.propose() == (False, LOST)
    assert bench.plan.calls == calls
    for _ in range(2):  # as long as the process runs
        verdict = bench.verdict()
        assert (verdict.level, verdict.message) == (Level.ERROR, f"PipelineLostError: {LOST}")
    assert not any("Traceback" in line for line in bench.logged)


def test_a_proposal_that_fails_costs_no_target(bench):
    following(bench)
    assert bench.propose() == (True, "")
    bench.plan.error = ZeroDivisionError("by zero")
    assert bench.propose() == (False, "internal error (ZeroDivisionError: by zero)")
    assert bench.verdict().values["last internal error"] == "ZeroDivisionError: by zero"
    bench.plan.error, bench.plan.refusal = None, InputError("the prompt can't be used")
    assert bench.propose() == (False, "the prompt can't be used")
    assert bench.image()[0].measured


def test_a_place_where_a_lost_target_may_be_is_proposed_until_it_is_found(bench):
    following(bench)
    bench.plan.is_absent = True
    boxes = [bench.image()[0] for _ in range(30)]
    assert boxes[-1].state == TrackState.LOST
    assert bench.outputs.sent("proposal") == []
    bench.plan.is_absent = False
    boxes = [bench.image()[0] for _ in range(30)]
    assert boxes[-1].state == TRACKING
    proposals = bench.outputs.sent("proposal")
    lost = [one for one in boxes if one.state == TrackState.LOST]
    assert lost
    assert [one.header.stamp for one in proposals] == [one.header.stamp for one in lost]
    for one in proposals:
        assert (one.state, one.valid, one.target_id) == (TrackState.LOST, False, 0)
        assert iou(Box(one.x, one.y, one.width, one.height), PROMPTS[0].box) > 0.9


@pytest.mark.parametrize("topic", ["mask", "mask_labels", "overlay"])
def test_a_fault_while_publishing_costs_neither_the_target_nor_the_loop(bench, topic):
    following(bench)
    bench.topics[topic].fault = MemoryError("no room for the mask")
    assert [bench.image()[0].measured for _ in range(2)] == [True, True]
    bench.topics[topic].fault = None
    assert bench.image()[0].measured
    assert bench.verdict().message == "MemoryError: no room for the mask"
    assert bench.plan.remembered == 4
