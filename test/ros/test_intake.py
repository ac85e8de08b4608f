"""What waits for the worker: newest first, in order after a late selection, bounded in time and bytes."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from efftam_ros.core.contract import InputRefused
from efftam_ros.core.types import Image, Prompt
from efftam_ros.ros.tracker.frame_buffer import Arrival, Intake

MS = 1_000_000
PIXELS = Image.from_array(np.zeros((4, 4, 3), np.uint8))
PROMPT = Prompt(points=((1.0, 1.0),), labels=(1,))


def arrival(stamp_ms: int, nbytes: int = 100) -> Arrival:
    return Arrival(header=None, stamp_ns=stamp_ms * MS, arrived_s=0.0, nbytes=nbytes, read=lambda: PIXELS)


def filled(*stamps_ms: int, keep_s: float = 10.0, keep_bytes: int = 10**9) -> Intake:
    intake = Intake(keep_s, keep_bytes)
    for stamp in stamps_ms:
        intake.put(arrival(stamp))
    return intake


def taken(intake: Intake, frame_s: float = 0.0) -> int:
    """The stamp of the next image, ms; fails when there is none instead of waiting for it."""
    impatience = threading.Timer(5.0, intake.close)
    impatience.start()
    work = intake.take(frame_s)
    impatience.cancel()
    assert work is not None, "nothing to take"
    return work.arrival.stamp_ns // MS


def test_the_newest_image_is_taken_and_the_passed_over_ones_are_counted():
    intake = filled(10, 20, 30)
    work = intake.take()
    assert work.arrival.stamp_ns == 30 * MS
    assert work.skipped == 2
    intake.put(arrival(40))
    assert intake.take().skipped == 0


def test_taking_waits_for_an_image_and_ends_when_closed():
    intake, seen, came = filled(), [], threading.Event()

    def work():
        while (item := intake.take()) is not None:
            seen.append(item.arrival.stamp_ns // MS)
            came.set()

    thread = threading.Thread(target=work)
    thread.start()
    intake.put(arrival(5))
    assert came.wait(5)
    intake.close()
    thread.join(5)
    assert not thread.is_alive()
    assert seen == [5]


def test_a_selection_on_the_newest_image_runs_on_it_again():
    intake = filled(10, 20)
    assert taken(intake) == 20
    intake.select(0, lambda a: PROMPT)
    work = intake.take()
    assert (work.arrival.stamp_ns, work.prompt) == (20 * MS, PROMPT)
    intake.put(arrival(30))
    assert taken(intake) == 30


def test_a_late_selection_goes_through_every_image_since_when_there_is_time():
    intake = filled(*range(10, 100, 10))
    assert taken(intake) == 90
    intake.select(30 * MS, lambda a: PROMPT)
    assert [taken(intake) for _ in range(7)] == [30, 40, 50, 60, 70, 80, 90]
    intake.put(arrival(100))
    intake.put(arrival(110))
    assert taken(intake) == 110  # level with the camera: newest first again


def test_images_passed_over_again_are_not_counted_twice():
    intake = filled(*range(10, 100, 10))
    assert intake.take().skipped == 8
    intake.select(10 * MS, lambda a: PROMPT)
    assert intake.take().skipped == 0
    assert intake.take(frame_s=0.05).skipped == 0


@settings(max_examples=100, deadline=None)
@given(
    period_ms=st.integers(5, 100),
    frame_ms=st.integers(0, 300),
    behind=st.integers(1, 60),
)
def test_a_worker_of_any_speed_gets_level_with_the_camera(period_ms, frame_ms, behind):
    """A simulated worker: each frame takes its time, in which the camera goes on."""
    intake = filled(*range(period_ms, (behind + 2) * period_ms, period_ms), keep_s=1e6)
    newest = (behind + 1) * period_ms
    intake.take()
    intake.select(period_ms * MS, lambda a: PROMPT)
    clock = float(newest)
    at, lags = 0, []
    for _ in range(200):
        at = taken(intake, frame_ms * 1e-3)
        clock += frame_ms
        lags.append(newest - at)
        if at == newest:
            break
        while newest + period_ms <= clock:
            newest += period_ms
            intake.put(arrival(newest))
    assert lags[-1] == 0
    # Gone through in order, and within some multiples of the time aimed at.
    assert len(lags) * frame_ms <= 5000 + 2 * frame_ms


def test_clear_takes_a_waiting_selection_back():
    intake = filled(10)
    intake.select(0, lambda a: PROMPT)
    assert intake.has_selection
    intake.clear()
    assert not intake.has_selection
    work = intake.take()
    assert work.arrival is None
    assert work.prompt is None


def test_the_last_selection_counts():
    intake = filled(10, 20)
    other = Prompt(points=((2.0, 2.0),), labels=(1,))
    intake.select(10 * MS, lambda a: PROMPT)
    intake.select(20 * MS, lambda a: other)
    assert intake.take().prompt == other
    intake.put(arrival(30))
    assert intake.take().prompt is None


def test_a_refused_prompt_changes_nothing():
    intake = filled(10, 20)
    assert taken(intake) == 20

    def refuse(a):
        raise InputRefused("no")

    with pytest.raises(InputRefused):
        intake.select(10 * MS, refuse)
    intake.put(arrival(30))
    assert taken(intake) == 30


def test_after_a_selection_that_came_to_nothing_the_stream_goes_on_where_it_was():
    intake = filled(*range(10, 60, 10))
    assert taken(intake) == 50
    intake.select(20 * MS, lambda a: PROMPT)
    assert taken(intake) == 20
    intake.resume()
    intake.put(arrival(60))
    assert taken(intake) == 60


def test_equal_stamps_are_refused():
    with pytest.raises(InputRefused, match=r"two images in a row have the stamp 0\.020000000"):
        filled(10, 20, 20)


def test_when_time_goes_back_stamps_of_before_are_forgotten():
    intake = filled(100, 200, 300)
    intake.put(arrival(50))
    with pytest.raises(InputRefused, match="ahead of the newest"):
        intake.find(300 * MS)
    assert taken(intake) == 50


def test_no_more_than_the_span_is_kept():
    intake = filled(*range(0, 2000, 100), keep_s=0.5)
    assert intake.find(1400 * MS).stamp_ns == 1400 * MS
    with pytest.raises(InputRefused, match=r"is 0\.60 s old and only 0\.50 s of images are kept"):
        intake.find(1300 * MS)


def test_no_more_than_the_bytes_are_kept_but_always_the_newest():
    intake = filled(*range(0, 1000, 100), keep_bytes=350)
    assert intake.find(700 * MS)
    with pytest.raises(InputRefused, match="selection_buffer_bytes 350"):
        intake.find(600 * MS)
    intake.put(arrival(2000, nbytes=10**6))
    assert intake.find(0).stamp_ns == 2000 * MS


def test_limits_apply_at_once():
    intake = filled(*range(0, 1000, 100))
    intake.limit(0.1, 10**9)
    with pytest.raises(InputRefused, match=r"only 0\.10 s of images are kept"):
        intake.find(700 * MS)


@pytest.mark.parametrize(
    ("stamp_ms", "words"),
    [
        (150, "no image with the stamp 0.150000000 was received"),
        (900, "0.600 s ahead of the newest image"),
        (5, "is 0.30 s old and only 0.20 s"),
    ],
)
def test_a_stamp_that_is_not_kept_is_refused_with_its_distance(stamp_ms, words):
    with pytest.raises(InputRefused, match=words.replace(".", r"\.")):
        filled(100, 200, 300).find(stamp_ms * MS)


def test_before_any_image_nothing_can_be_selected():
    with pytest.raises(InputRefused, match="no image has arrived yet"):
        filled().find(0)
