"""The verdict on how the node is doing, by numbers."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from efftam_ros.core.geometry import Box, View
from efftam_ros.core.types import CameraMotion, ScoredBox, Track, TrackState
from efftam_ros.messages.fields import About
from efftam_ros.package_files import PROFILE_VARIABLES
from efftam_ros.ros.common.large_images import large_image_remedy
from efftam_ros.ros.common.nodes import Throttle
from efftam_ros.ros.tracker.diagnostics import WINDOW_S, Level, Setup, Statistics, rate_hz
from efftam_ros.ros.tracker.table import PublishedAnswer

ACTIVE = Setup("active", {"bundle": "test"})
PERIOD_NS = 33_333_333


def track(state=TrackState.TRACKING, reason=""):
    return Track(0, state, reason=reason, stage_seconds={"image_encoder": 0.012})


def answered(statistics: Statistics, track: Track, target_id: int = 0) -> str:
    """Publish an answer; the change of state for the log."""
    answer = PublishedAnswer(About(None, target_id=target_id), track, 0.0, 0.0)
    statistics.targets.keep(target_id, answer)
    return statistics.targets.change(target_id, track)


def running(count=30, keep=lambda i: True) -> Statistics:
    """Statistics at 100 s after ``count`` images at 30 Hz; those without ``keep(i)`` were lost on the way."""
    statistics = Statistics()
    for i in range(count):
        now = 100.0 + (i - count + 1) * PERIOD_NS * 1e-9
        if not keep(i):
            statistics.images_lost(now, 1)
            continue
        statistics.image_received(now, 2_764_800)
        statistics.answered(now, 0.02)
        answered(statistics, track())
    return statistics


def test_all_is_well():
    verdict = running().verdict(100.0, ACTIVE, 0.25)
    assert (verdict.level, verdict.message) == (Level.OK, "TRACKING")
    values = verdict.values
    assert values["image rate (Hz)"] == "30.0"
    assert values["latency p50 (ms)"] == "20.0"
    assert values["images processed"] == "30"
    assert values["stage image_encoder (ms)"] == "12.0"
    assert values["bundle"] == "test"
    assert values["images lost on the way"] == "0%"


def test_latency_quantiles():
    statistics = Statistics()
    for i in range(1, 101):
        statistics.answered(100.0, i * 1e-3, again=i > 80)
    values = statistics.verdict(100.0, ACTIVE, 0.25).values
    assert values["latency p50 (ms)"] == "50.0"
    assert values["latency p99 (ms)"] == "99.0"
    assert values["images processed"] == "80"
    assert values["images processed again (late selection)"] == "20"


def test_the_rate_falls_once_the_camera_is_silent():
    statistics = running(300)
    rates = [float(statistics.verdict(100.0 + s, ACTIVE, 0.25).values["image rate (Hz)"]) for s in (0, 3, 9)]
    assert rates == pytest.approx([30.0, 21.0, 3.0], abs=1.0)


NEWS = st.sampled_from(["image", "answer", "image refused", "stall", "selection refused", "qos"])


@given(st.lists(NEWS, max_size=8))
@example(["qos", "image"])  # it was mended
@example(["image", "qos"])
@example(["image", "image refused", "answer"])
@example(["image", "stall", "answer", "image refused"])
def test_in_silence_what_came_since_the_last_answer_is_the_reason(events):
    warned = []
    statistics = Statistics(lambda kind, text: warned.append(f"{kind}: {text}"))
    statistics.input_seen({}, "the camera sends nothing")
    refusal = stall = qos = ""
    for number, event in enumerate(events):
        if event == "image":
            statistics.image_received(0.0)
            qos = ""
        elif event == "answer":
            statistics.answered(0.0, 0.01)
            refusal = stall = ""
        elif event == "stall":
            statistics.stalled(stall := f"no answer for {number} s")
            assert warned[-1].startswith(f"stalled: {stall}")
        elif event == "qos":
            statistics.fault("qos", qos := f"a publisher offers another QoS ({number})")
            assert warned[-1] == f"qos: {qos}"
        else:
            kind, said = event.split()[0], f"reason {number}"
            statistics.fault(kind, said)
            refusal = said if kind == "image" else refusal
            assert warned[-1] == f"{kind}: {event}: {said}"
    assert statistics.refusal == refusal
    is_first = "image" not in events
    told = f"no image {'has arrived yet' if is_first else 'for more than 0.25 s (image_timeout)'}"
    told += ": the camera sends nothing"
    for now_s in (9.0, 9.0 + WINDOW_S, 60.0):  # as long as it lasts
        verdict = statistics.verdict(now_s, ACTIVE, 0.25)
        of_qos = qos if is_first or now_s > WINDOW_S else ""
        wanted = stall or of_qos or (refusal and f"every image is refused: {refusal}")
        assert verdict.message == (wanted or told)
        assert verdict.level is (Level.ERROR if wanted else Level.STALE)


@pytest.fixture(autouse=True)
def without_profile(monkeypatch):
    monkeypatch.delenv("RMW_IMPLEMENTATION", raising=False)
    for name in PROFILE_VARIABLES:
        monkeypatch.delenv(name, raising=False)


def test_a_node_that_has_the_profile_asks_for_it_in_the_camera_alone(monkeypatch):
    assert "BOTH" in large_image_remedy(False)
    monkeypatch.setenv(PROFILE_VARIABLES[0], "/etc/images.xml")
    remedy = large_image_remedy(False)
    assert "BOTH" not in remedy
    assert "/etc/images.xml" in remedy
    assert "camera driver" in remedy


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("rmw_fastrtps_cpp", "fastdds_images.xml"),
        ("rmw_fastrtps_dynamic_cpp", "fastdds_images.xml"),
        ("rmw_cyclonedds_cpp", "SocketReceiveBufferSize"),
        ("rmw_zenoh_cpp", "publish them compressed"),
        ("rmw_connextdds", "documentation of rmw_connextdds"),
    ],
)
def test_the_remedy_for_lost_images_is_that_of_the_middleware_in_use(monkeypatch, name, words):
    monkeypatch.setenv("RMW_IMPLEMENTATION", name)
    said = running(30, keep=lambda i: i % 3 == 2).loss(100.0)
    assert words in said
    assert ("FASTRTPS" in said) == ("Fast DDS" in said) == name.startswith("rmw_fastrtps")
    assert ("publish reliably" in said) is (name != "rmw_zenoh_cpp")


@pytest.mark.parametrize(("load", "said"), [(2.0, False), (12.0, True)])
def test_an_overloaded_machine_is_named_beside_the_profile(monkeypatch, load, said):
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    assert ("overloaded" in large_image_remedy(False)) is said


@pytest.mark.parametrize("profile", ["", "/etc/images.xml"])
def test_a_camera_that_publishes_reliably_is_not_told_to(monkeypatch, profile):
    monkeypatch.setenv(PROFILE_VARIABLES[0], profile)
    assert "publish reliably" in large_image_remedy(False)
    assert "reliabl" not in large_image_remedy(True)
    for reliability, told in (("best effort (requested: auto)", True), ("reliable (requested: auto)", False)):
        statistics = running(30, keep=lambda i: i % 3 == 2)
        statistics.input_seen({"image reliability": reliability}, "")
        said = statistics.loss(100.0)
        assert "lost on the way" in said
        assert ("publish reliably" in said) is told


def test_a_handful_of_large_images_names_the_profile_although_the_stream_is_stale():
    statistics = Statistics()
    for now in (0.0, 1.7, 2.3, 6.0):
        statistics.image_received(now, 691_200)
        statistics.images_lost(now + 0.1, 40)
    verdict = statistics.verdict(6.5, ACTIVE, 0.25)
    assert verdict.level is Level.STALE
    for words in (
        "98% of the images",
        "0.7 MB",
        "BOTH the camera driver and this node",
        "fastdds_images.xml",
    ):
        assert words in verdict.message


@pytest.mark.parametrize(
    ("period_s", "images", "silence_s", "is_slow"),
    [
        (0.5, 10, 0.3, True),
        (0.5, 4, 1.4, True),
        (0.5, 4, 1.6, False),  # stopped
        (0.5, 3, 0.3, False),  # too few to tell
        (0.2, 10, 0.3, False),
    ],
)
def test_a_camera_slower_than_the_timeout_is_told_from_one_that_stopped(period_s, images, silence_s, is_slow):
    statistics = Statistics()
    statistics.input_seen({}, "the camera sends nothing")
    for i in range(images):
        statistics.image_received(100.0 + i * period_s)
    now_s = 100.0 + (images - 1) * period_s + silence_s
    message = statistics.verdict(now_s, ACTIVE, 0.25).message
    said = f"an image arrives only every {period_s:g} s: set image_timeout to more than twice this time"
    assert message.endswith(said if is_slow else "the camera sends nothing")
    assert statistics.slow(now_s, 0.25) == (said if is_slow else "")


def test_beyond_the_timeout_silence_is_stale():
    assert running().verdict(100.25, ACTIVE, 0.25).level is Level.OK
    verdict = running().verdict(100.3, ACTIVE, 0.25)
    assert verdict.level is Level.STALE
    assert "no image for more than 0.25 s" in verdict.message


@pytest.mark.parametrize(("publishers", "silence_s"), [("", 0.3), ("camera: reliable", 2.5)])
def test_loss_of_before_does_not_explain_a_camera_that_has_stopped(publishers, silence_s):
    statistics = running(90, keep=lambda i: i % 3)
    statistics.input_seen({"image publishers": "camera: reliable"}, "")
    assert "lost on the way" in statistics.verdict(100.0, ACTIVE, 0.25).message
    statistics.input_seen({"image publishers": publishers}, "nothing publishes /image any more")
    verdict = statistics.verdict(100.0 + silence_s, ACTIVE, 0.25)
    assert verdict.message.endswith("(image_timeout): nothing publishes /image any more")
    assert statistics.loss(100.0 + silence_s) == ""


def test_a_shared_topic_is_told_until_it_is_not_shared_any_more():
    """Publishers are looked at once a second, and diagnostics may be published ten times as often."""
    statistics = running()
    statistics.topics_shared(["2 publishers on /image"])
    for _ in range(3):
        verdict = statistics.verdict(100.0, ACTIVE, 0.25)
        assert (verdict.level, verdict.message) == (Level.WARN, "2 publishers on /image")
    statistics.topics_shared([])
    assert statistics.verdict(100.0, ACTIVE, 0.25).level is Level.OK


@pytest.mark.parametrize(
    ("camera", "shown"),
    [
        (CameraMotion(np.eye(3)), "known"),
        (CameraMotion(None, "no corners"), "no corners"),
        (None, None),
    ],
)
def test_the_camera_motion_of_the_last_image_is_known_or_has_a_reason(camera, shown):
    statistics = running()
    statistics.answered(100.0, 0.02)
    answered(statistics, Track(0, TrackState.TRACKING, camera=camera))
    assert statistics.verdict(100.0, ACTIVE, 0.25).values.get("camera motion") == shown


def test_a_search_is_told_by_its_windows_and_places():
    statistics = running()
    found = ScoredBox(Box(10, 10, 20, 20), 0.5)
    views = tuple(View.window(x, 100, 80, 192) for x in (100, 200, 300))
    statistics.answered(100.0, 0.02)
    answered(statistics, Track(0, TrackState.LOST, windows=views, hypotheses=(found, found)))
    values = statistics.verdict(100.0, ACTIVE, 0.25).values
    assert (values["windows searched"], values["places where it may be"]) == ("3", "2")


def test_a_refusal_warns_once_and_stays_readable():
    statistics = running()
    statistics.fault("image", "image step is 900 bytes")
    first, second = (statistics.verdict(100.0, ACTIVE, 0.25) for _ in range(2))
    assert (first.level, first.message) == (Level.WARN, "image step is 900 bytes")
    assert second.level is Level.OK
    assert second.values["last refused image"] == "image step is 900 bytes"
    assert second.values["images refused"] == "1"


def test_a_failed_transition_is_an_error_while_nothing_runs():
    verdict = Statistics().verdict(1.0, Setup(fault="bundle /x has no bundle.json"), 0.25)
    assert (verdict.level, verdict.message) == (Level.ERROR, "bundle /x has no bundle.json")


def test_in_any_period_as_many_pass_as_the_burst_has(monkeypatch):
    lines, times = [], iter([0.0, 9.0, 9.5, 11.0])
    monkeypatch.setattr("time.monotonic", lambda: next(times))
    warn = Throttle(lines.append, burst=2, period_s=10.0)
    for text in ("0", "9", "9.5", "11"):
        warn("image", text)
    monkeypatch.undo()
    assert lines == ["0", "9", "11 (1 similar lines left out)"]


def test_a_failure_is_an_error_once_and_one_for_good_stays_one():
    statistics = Statistics()
    statistics.failed("ZeroDivisionError: by zero")
    assert statistics.verdict(1.0, ACTIVE, 0.25).level is Level.ERROR
    assert statistics.verdict(2.0, ACTIVE, 0.25).level is not Level.ERROR
    statistics.failed("DeviceLostError: restart", for_good=True)
    statistics.failed("ZeroDivisionError: by zero")  # does not end it
    for now in (3.0, 4.0):
        verdict = statistics.verdict(now, ACTIVE, 0.25)
        assert verdict.level is Level.ERROR
    assert statistics.lost == "DeviceLostError: restart"


@pytest.mark.parametrize(
    ("arrived", "lost", "share"), [(10, 0, 0.0), (3, 7, 0.7), (0, 20, 1.0), (4, 5, None)]
)
def test_the_share_of_lost_images_is_that_of_all_that_were_sent_of_late(arrived, lost, share):
    statistics = Statistics()
    statistics.images_lost(9.0 - WINDOW_S, 30)  # forgotten
    for i in range(arrived):
        statistics.image_received(10.0 - i / 30, 100)
    statistics.images_lost(10.0, lost)
    assert statistics.lost_share(10.0) == share


def test_the_rate_is_over_the_time_until_now():
    moments = [i / 10 for i in range(101)]
    assert rate_hz([], 0.0) is None
    assert rate_hz(moments, 10.05) == pytest.approx(10.0)
    assert rate_hz(moments, 20.0) == pytest.approx(5.0)


# Several targets


def following(*states: TrackState) -> Statistics:
    statistics = running()
    for target_id, state in enumerate(states):
        answered(statistics, track(state, "hidden" if state is not TrackState.TRACKING else ""), target_id)
    return statistics


def test_each_target_has_a_value_and_the_steered_one_the_message():
    statistics = following(TrackState.TRACKING, TrackState.COASTING)
    assert statistics.verdict(100.0, ACTIVE, 0.25).message == "target 0: TRACKING"
    statistics.targets.steered = 1
    verdict = statistics.verdict(100.0, ACTIVE, 0.25)
    assert verdict.message == "target 1: COASTING: hidden"
    assert (verdict.values["state"], verdict.values["steered target"]) == ("COASTING", "1")
    assert (verdict.values["target 0"], verdict.values["target 1"]) == ("TRACKING", "COASTING: hidden")
    statistics.targets.rows[1].seconds = 0.0123
    values = statistics.verdict(100.0, ACTIVE, 0.25).values
    assert (values["target 0 (ms)"], values["target 1 (ms)"]) == ("", "12.3")


def test_one_target_is_shown_without_its_id():
    verdict = following(TrackState.TRACKING).verdict(100.0, ACTIVE, 0.25)
    assert verdict.message == "TRACKING"
    assert not [name for name in verdict.values if "target" in name]


def test_a_target_that_is_lost_warns_although_another_one_is_steered_by():
    statistics = following(TrackState.TRACKING, TrackState.LOST)
    verdict = statistics.verdict(100.0, ACTIVE, 0.25)
    assert (verdict.level, verdict.message) == (Level.WARN, "target 1: LOST: hidden")


def test_images_that_stand_still_for_a_second_are_a_warning_while_they_arrive():
    for still_s, silence_s, level in (
        (0.9, 0.0, Level.OK),
        (1.0, 0.0, Level.WARN),
        (7.0, 0.0, Level.WARN),
        (7.0, 1.0, Level.STALE),  # they stopped as well: that is said
    ):
        statistics = Statistics()
        statistics.image_received(100.0, still_s=still_s)
        verdict = statistics.verdict(100.0 + silence_s, ACTIVE, 0.25)
        assert verdict.level is level
        assert ("not one pixel" in verdict.message) == (level is Level.WARN)
