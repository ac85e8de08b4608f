"""What becomes of the last answers when images or answers stop, and when they come again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from node_bench import Bench, following

from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.errors import InputError
from efftam_ros.core.reasons import ReasonCode
from efftam_ros.core.types import Track, TrackState
from efftam_ros.ros.tracker.session import state_after

TRACKING, COASTING, LOST = TrackState.TRACKING, TrackState.COASTING, TrackState.LOST


@pytest.fixture
def bench(monkeypatch) -> Bench:
    """Two targets are followed; image_timeout is 0.25 s, max_gap 1 s."""
    bench = Bench(monkeypatch)
    bench.image()
    following(bench, 2)
    for _ in range(6):
        boxes = bench.image()
    assert [box.valid for box in boxes] == [True, True]
    return bench


def refuse(bench) -> None:
    """The camera sends what can't be used."""

    def unreadable():
        raise InputError("the JPEG is cut off")

    bench.put(unreadable)
    bench.work()


def hang(bench) -> None:
    """The camera sends, and the network does not answer."""
    bench.put()


@pytest.mark.parametrize(
    ("camera", "reason"),
    [
        (None, "no image for 0."),
        (refuse, "no image could be used for 0."),
        (hang, "the network has not answered for 0."),
    ],
    ids=["nothing", "refused images", "a network that hangs"],
)
def test_the_last_answers_are_taken_back_and_say_why_until_one_comes(bench, camera, reason):
    stamp = bench.outputs.sent("bbox")[-1].header.stamp
    for _ in range(2):
        assert bench.wait(0.2) == []
        told = []
        for _ in range(3):
            if camera is not None:
                camera(bench)
            told += bench.wait(0.1 if camera else 0.2)
        assert {(v.target_id, v.steered) for v in told} == {(0, True), (1, False)}
        assert all(v.reason.startswith(reason) and not v.valid and v.header.stamp == stamp for v in told)
        assert all(np.isnan([v.center_x, v.velocity_x, v.predicted_x, *v.covariance]).all() for v in told)
        assert {v.state for v in told} == {COASTING}
        assert 2 <= len(told) <= 4  # once, and again every 0.5 s
        status = bench.verdict()
        assert status.message.startswith(
            {
                None: "target 0: COASTING",
                refuse: "the JPEG is cut off",
                hang: "the network has not answered for",
            }[camera]
        )
        boxes = bench.image()
        stamp = boxes[-1].header.stamp
        assert [box.state for box in boxes] == [TRACKING, TRACKING]
        assert bench.verdict().message.startswith("target 0: TRACKING")
    assert any("the network hangs" in line for line in bench.logged) == (camera is hang)


def test_of_a_camera_that_dies_while_the_network_hangs_the_camera_is_told(bench):
    hang(bench)
    assert bench.wait(0.9)[-1].reason.startswith("no image for 0.")
    assert not any("the network hangs" in line for line in bench.logged)


def test_a_target_that_has_no_turn_is_taken_back_and_the_others_are_not(bench):
    step, told = bench.targets.step, []
    bench.targets.step = lambda frame, prompts, limit, ids, answered: step(
        frame, prompts, limit, {0}, answered
    )
    for _ in range(8):
        bench.image()
        told += bench.wait(0.05)
    assert {velocity.target_id for velocity in told} == {1}
    assert all(v.reason_code == ReasonCode.NO_TURN and not v.valid for v in told)


def test_a_target_of_a_camera_that_died_is_coasting_and_then_lost_by_the_settings_of_now(bench):
    bench.watch.reconfigure(bench.config, TrackerConfig(max_gap=1.3))
    told = [velocity for velocity in bench.wait(4.0) if velocity.target_id == 0]
    by_reason = {float(velocity.reason.split()[3]): velocity.state for velocity in told}
    assert list(by_reason.values()) == sorted(by_reason.values())
    assert {silence_s > 1.3 for silence_s, state in by_reason.items() if state == LOST} == {True}
    assert {silence_s <= 1.3 for silence_s, state in by_reason.items() if state == COASTING} == {True}
    changes = [line for line in bench.logged if line.startswith("target 0: ") and "->" in line]
    assert [line.split(": ")[1] for line in changes[-2:]] == ["TRACKING -> COASTING", "COASTING -> LOST"]
    assert bench.verdict().values["state"] == "LOST"


def test_the_age_of_a_missed_target_goes_on_while_no_image_comes(bench):
    bench.plan.is_absent = True
    boxes = [bench.image()[0] for _ in range(3)]
    assert (boxes[-1].state, boxes[-1].age) == (COASTING, pytest.approx(0.3))
    told = bench.wait(0.4)[0]
    assert told.age == pytest.approx(0.3 + float(told.reason.split()[3]), abs=0.01)


@pytest.mark.parametrize(("timeout", "quiet_s", "silent_s"), [(0.6, 0.55, 0.7), (0.1, 0.05, 0.7)])
def test_a_changed_timeout_counts_at_once(bench, timeout, quiet_s, silent_s):
    bench.buffer.limit(8.0, 10**9, timeout)
    bench.watch.reconfigure(replace(bench.config, image_timeout=timeout), TrackerConfig())
    for camera in (lambda: bench.image(), lambda: hang(bench)):
        camera()
        assert bench.wait(quiet_s) == []
        assert bench.wait(silent_s) != []
    bench.watch.close()
    assert bench.wait(5.0) == []


@pytest.mark.parametrize(("timeout", "patience_s"), [(0.25, 2.0), (5.0, 5.0)])
def test_a_network_without_a_target_to_steer_by_is_waited_for_longer(monkeypatch, timeout, patience_s):
    bench = Bench(monkeypatch)
    bench.image()
    bench.buffer.limit(8.0, 10**9, timeout)
    bench.watch.reconfigure(replace(bench.config, image_timeout=timeout), TrackerConfig())
    begin_s = bench.clock.now_s
    for wait_s, is_told in ((patience_s - 0.3, False), (patience_s + 0.7, True)):
        while bench.clock.now_s < begin_s + wait_s:
            hang(bench)
            bench.wait(0.05)
        assert any("the network hangs" in line for line in bench.logged) is is_told


def test_a_camera_slower_than_the_timeout_is_told_to_raise_it_and_one_that_stopped_what_is_published(bench):
    bench.wait(0.5)
    assert bench.logged[-1].endswith("the publisher is there, and nothing arrives from it")
    for _ in range(40):
        bench.wait(0.4)
        bench.image()
    assert any(
        "an image arrives only every 0.5 s: set image_timeout to more than twice" in line
        for line in bench.logged
    )


def test_an_answer_that_comes_after_images_have_stopped_is_not_to_be_steered_by(bench):
    bench.buffer.limit(8.0, 10**9, 0.25)
    bench.plan.seconds = 0.4
    box, _ = bench.image()
    velocity = bench.outputs.sent("velocity")[-2]
    for message in (box, velocity):
        assert not message.valid
        assert message.reason.startswith(
            "this answer came 0.40 s after its image, and no newer image has arrived: no image for"
        )
    assert np.isnan(velocity.velocity_x)
    assert not np.isnan(box.x)


@pytest.mark.parametrize(
    ("state", "age_s", "silence_s", "after"),
    [
        (TRACKING, 0.0, 2.0, COASTING),
        (TRACKING, 0.0, 2.1, LOST),
        (COASTING, 0.8, 0.1, COASTING),
        (COASTING, 0.75, 0.25, COASTING),
        (COASTING, 0.8, 0.3, LOST),
        (LOST, 9.0, 0.1, LOST),
        (TrackState.IDLE, 0.0, 9.0, TrackState.IDLE),
    ],
)
def test_without_images_a_missed_target_is_lost_after_lost_after_one_that_was_seen_after_max_gap(
    state, age_s, silence_s, after
):
    config = TrackerConfig(lost_after=1.0, max_gap=2.0)
    assert state_after(Track(0, state, age_s=age_s), silence_s, config) is after


def test_what_is_found_at_the_input_is_told_until_it_is_mended(bench):
    assert bench.wait(0.2) == []
    assert bench.camera.looks > 0
    values = bench.verdict().values
    assert (values["image publishers"], values["camera_info"]) == ("camera: reliable", "none")
    assert "range of 16-bit images" not in values
    bench.camera.mixed, bench.camera.image_range = "2 publishers on /image", "7000 to 9000"
    bench.wait(0.6)
    assert bench.logged.count("2 publishers on /image") == 1  # once in a while
    verdict = bench.verdict()
    assert (verdict.message, verdict.values["range of 16-bit images"]) == (
        "2 publishers on /image",
        "7000 to 9000",
    )
    bench.camera.mixed = ""
    bench.image()
    bench.wait(0.2)
    assert bench.verdict().message == "target 0: TRACKING"
    bench.statistics.images_lost(bench.clock.now_s, 90)
    bench.image()  # the camera goes on
    bench.wait(0.2)
    assert any("of the images are lost on the way" in line for line in bench.logged)


def test_that_no_first_image_comes_is_said_after_two_seconds_and_never_later(monkeypatch):
    bench = Bench(monkeypatch)
    bench.wait(1.9)
    assert bench.logged == []
    bench.wait(0.4)
    assert bench.logged == ["no image has arrived yet"]
    bench = Bench(monkeypatch)
    bench.image()
    bench.wait(60.0)
    assert not any("no image has arrived yet" in line for line in bench.logged)
