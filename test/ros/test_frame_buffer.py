"""What waits for the loop: newest first, in order after a late selection, bounded in time and bytes."""

from __future__ import annotations

import re
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.errors import InputError
from efftam_ros.core.types import Image, Prompt
from efftam_ros.images.message import ReceivedImage
from efftam_ros.ros.tracker.frame_buffer import (
    ALL,
    MAX_IMAGES,
    NOBODY,
    Command,
    Followed,
    FrameBuffer,
    Propose,
    Reconfigure,
)

MS = 1_000_000
PIXELS = Image.from_array(np.zeros((4, 4, 3), np.uint8))
PROMPT = Prompt(points=((1.0, 1.0),), labels=(1,))
COMMAND, OTHER = Command(None, 0, 1), Command(None, 0, 2)


def frame(stamp_ms: float, nbytes: int = 100) -> ReceivedImage:
    return ReceivedImage(
        header=None,
        stamp_ns=round(stamp_ms * MS),
        arrived_s=0.0,
        nbytes=nbytes,
        size=(4, 4),
        pixels=PIXELS,
    )


def filled(*stamps_ms: float, keep_s: float = 10.0, keep_bytes: int = 10**9) -> FrameBuffer:
    frame_buffer = FrameBuffer(keep_s, keep_bytes)
    for stamp in stamps_ms:
        frame_buffer.put(frame(stamp))
    return frame_buffer


def select(frame_buffer: FrameBuffer, stamp_ns: int, prompt: Prompt = PROMPT, command=COMMAND):
    return frame_buffer.select(command, frame_buffer.find(stamp_ns), prompt)


def taken(frame_buffer: FrameBuffer, frame_s: float = 0.0) -> int:
    """The stamp of the next image, ms; fails when there is none instead of waiting for it."""
    impatience = threading.Timer(5.0, frame_buffer.close)
    impatience.start()
    work = frame_buffer.take(frame_s)
    impatience.cancel()
    assert work is not None, "nothing to take"
    return work.frame.stamp_ns // MS


def test_taking_waits_for_an_image_and_ends_when_closed():
    frame_buffer, seen, came = filled(), [], threading.Event()

    def work():
        while (item := frame_buffer.take()) is not None:
            seen.append(item.frame.stamp_ns // MS)
            came.set()

    thread = threading.Thread(target=work)
    thread.start()
    frame_buffer.put(frame(5))
    assert came.wait(5)
    frame_buffer.close()
    thread.join(5)
    assert not thread.is_alive()
    assert seen == [5]


@settings(max_examples=100, deadline=None)
@given(
    period_ms=st.integers(5, 100),
    frame_ms=st.integers(0, 300),
    behind=st.integers(1, 60),
)
def test_a_loop_of_any_speed_gets_level_with_the_camera(period_ms, frame_ms, behind):
    """A simulated loop: each frame takes its time, in which the camera goes on."""
    frame_buffer = filled(*range(period_ms, (behind + 2) * period_ms, period_ms), keep_s=1e6)
    newest = (behind + 1) * period_ms
    frame_buffer.take()
    select(frame_buffer, period_ms * MS, PROMPT, COMMAND)
    clock = float(newest)
    at, lags = 0, []
    for _ in range(200):
        at = taken(frame_buffer, frame_ms * 1e-3)
        clock += frame_ms
        lags.append(newest - at)
        if at == newest:
            break
        while newest + period_ms <= clock:
            newest += period_ms
            frame_buffer.put(frame(newest))
    assert lags[-1] == 0
    # Gone through in order, and within some multiples of the time aimed at.
    assert len(lags) * frame_ms <= 5000 + 2 * frame_ms


@pytest.mark.parametrize(("lag_ms", "ahead_ms"), [(500, 40), (250, 30), (1000, 60)])
def test_while_behind_the_steps_are_so_wide_that_the_lag_halves_in_half_a_second(lag_ms, ahead_ms):
    """Frames of 20 ms, images of every 10 ms: 20 ms to keep up, and as much again per 0.5 s of lag."""
    frame_buffer = filled(*range(1000, 1000 + lag_ms + 10, 10))
    frame_buffer.take()
    select(frame_buffer, 1000 * MS)
    assert taken(frame_buffer) == 1000
    assert taken(frame_buffer, frame_s=0.02) == 1000 + ahead_ms


def test_a_slow_network_far_behind_takes_steps_of_a_second_at_most():
    """0.4 s per frame, 7 s behind: a step of 6 s would exceed max_gap."""
    frame_buffer = filled(*range(1000, 8100, 100))
    frame_buffer.take()
    select(frame_buffer, 1000 * MS)
    steps = [taken(frame_buffer)] + [taken(frame_buffer, frame_s=0.4) for _ in range(3)]
    assert steps == [1000, 2000, 3000, 4000]


def test_a_target_is_gone_once_the_loop_has_taken_its_clear():
    """So that a second clear, which comes when the first one was told, is refused."""
    frame_buffer = filled(10)
    frame_buffer.clear(Command(None, 1))
    frame_buffer.take(followed=Followed((0, 1), 1))
    assert frame_buffer.followed == Followed((0,), None)


def test_a_selection_in_work_counts_until_the_next_task_is_taken():
    """So that a clear that comes meanwhile is not refused for want of a target."""
    frame_buffer = filled(10)
    select(frame_buffer, 0)
    frame_buffer.take(followed=NOBODY)
    assert frame_buffer.followed == ((0,), 0)
    frame_buffer.put(frame(20))
    frame_buffer.take(followed=NOBODY)
    assert frame_buffer.followed == NOBODY


def test_how_long_an_image_waits_is_from_its_arrival_or_from_the_end_of_the_one_before():
    frame_buffer = filled()
    assert frame_buffer.waiting_s(1.0) == 0.0
    for stamp_ms, arrived_s in ((10, 1.0), (20, 2.0), (30, 3.0)):
        image = replace(frame(stamp_ms), arrived_s=arrived_s)
        frame_buffer.put(image)
        if stamp_ms == 20:
            first = image
    assert frame_buffer.waiting_s(4.0) == 3.0
    frame_buffer.done(first, 3.5)
    assert frame_buffer.waiting_s(4.0) == 0.5
    frame_buffer.done(image, 4.5)
    assert frame_buffer.waiting_s(5.0) == 0.0


def test_a_command_that_waits_when_all_ends_is_given_back():
    frame_buffer = filled(10)
    select(frame_buffer, 0, PROMPT, COMMAND)
    assert frame_buffer.close() == [COMMAND]
    assert frame_buffer.take() is None
    assert frame_buffer.close() == []


def test_new_settings_come_before_all_else_that_waits():
    frame_buffer, config = filled(10), TrackerConfig(lost_after=3.0)
    select(frame_buffer, 0)
    frame_buffer.reconfigure(config)
    assert frame_buffer.take() == Reconfigure(config)
    assert taken(frame_buffer) == 10


def test_equal_stamps_are_refused():
    with pytest.raises(InputError, match=r"two images in a row have the stamp 0\.020000000"):
        filled(10, 20, 20)


def test_when_time_goes_back_stamps_of_before_are_forgotten():
    frame_buffer = filled(100, 200, 300)
    frame_buffer.put(frame(50))
    for stamp_ms in (200, 300):
        with pytest.raises(InputError, match=r"\(0\.\d+\) is from before the images' stamps went back"):
            frame_buffer.find(stamp_ms * MS)
    with pytest.raises(InputError, match="ahead of the newest"):
        frame_buffer.find(400 * MS)
    assert taken(frame_buffer) == 50
    frame_buffer.put(frame(500))
    with pytest.raises(InputError, match="ahead of the newest"):
        frame_buffer.find(800 * MS)


@pytest.mark.parametrize(
    ("kept", "found_ms", "gone_ms", "words"),
    [
        (filled(*range(0, 2000, 100), keep_s=0.5), 1400, 1300, r"is 0\.60 s old and only 0\.50 s of images"),
        (filled(1000, 1100, 1200, 6000, 6100, keep_s=2.0), 6000, 1200, r"is 4\.90 s old and only 0\.10 s"),
        (filled(*range(0, 1000, 100), keep_bytes=350), 700, 600, "selection_buffer_bytes 350"),
        (
            filled(*(i / 20 for i in range(1, MAX_IMAGES + 11)), keep_s=1e6),
            11 / 20,
            10 / 20,
            f"at most {MAX_IMAGES} images",
        ),
    ],
    ids=["span", "span with a gap", "bytes", "number"],
)
def test_no_more_than_the_limits_are_kept(kept, found_ms, gone_ms, words):
    assert kept.find(round(found_ms * MS)).stamp_ns == found_ms * MS
    with pytest.raises(InputError, match=words):
        kept.find(round(gone_ms * MS))


def test_the_newest_image_is_kept_however_large_it_is():
    frame_buffer = filled(*range(0, 1000, 100), keep_bytes=350)
    frame_buffer.put(frame(2000, nbytes=10**6))
    assert frame_buffer.find(0).stamp_ns == 2000 * MS


def test_after_time_went_back_as_many_bytes_are_kept_as_before():
    frame_buffer = filled(1000, 1100, 1200, keep_bytes=350)
    for stamp in (100, 200, 300):
        frame_buffer.put(frame(stamp))
    assert [frame_buffer.find(stamp * MS).stamp_ns // MS for stamp in (100, 200, 300)] == [100, 200, 300]


def test_limits_apply_at_once():
    frame_buffer = filled(*range(0, 1000, 100))
    frame_buffer.limit(0.1, 10**9)
    with pytest.raises(InputError, match=r"only 0\.10 s of images are kept"):
        frame_buffer.find(700 * MS)


@pytest.mark.parametrize(
    ("stamp_ms", "words"),
    [
        (2500, "no image near the stamp 2.500000000 was received (the nearest is 1.200 s off)"),
        (4600, "0.600 s ahead of the newest image"),
        (5, "is 4.00 s old and only 2.90 s"),
    ],
)
def test_a_stamp_that_is_not_kept_is_refused_with_its_distance(stamp_ms, words):
    with pytest.raises(InputError, match=re.escape(words)):
        filled(1100, 1200, 1300, 1400, 3900, 4000).find(stamp_ms * MS)


@pytest.mark.parametrize(("stamp_ms", "found_ms"), [(1130, 1100), (1170, 1200), (1265, 1200), (1297, 1330)])
def test_an_image_that_was_lost_on_its_way_is_stood_in_for_by_the_nearest(stamp_ms, found_ms):
    """The page shows what the tracker did not get: the operator drew on a real image."""
    times = (1000, 1033, 1067, 1100, 1200, 1330, 1363, 1397, 1430)
    assert filled(*times).find(stamp_ms * MS).stamp_ns == found_ms * MS


def test_before_any_image_nothing_can_be_selected():
    with pytest.raises(InputError, match="no image has arrived yet"):
        filled().find(0)


def camera(seconds: float, fps: float = 30.0, **limits) -> FrameBuffer:
    return filled(*(1000 + i * 1000 / fps for i in range(round(seconds * fps) + 1)), **limits)


def kept(frame_buffer: FrameBuffer) -> np.ndarray:
    """The stamps that are kept, s before the newest."""
    stamps = np.array([k.stamp_ns for k in frame_buffer._kept]) * 1e-9
    return stamps[-1] - stamps


def test_older_images_are_thinned_so_that_a_drag_of_seconds_finds_its_picture():
    ages = kept(camera(12.0, keep_s=8.0))
    assert ages[0] == pytest.approx(8.0, abs=0.25)
    gaps = -np.diff(ages)
    whole, thinned = gaps[ages[:-1] <= 1.4], gaps[ages[:-1] > 1.6]
    assert whole == pytest.approx(1 / 30, abs=1e-6)
    assert ((thinned > 0.199) & (thinned < 0.24)).all()
    assert len(ages) < 85


def test_short_of_bytes_the_reach_back_is_kept_and_the_full_rate_shortened():
    ages = kept(camera(12.0, keep_s=8.0, keep_bytes=40 * 100))
    assert len(ages) <= 40
    assert ages[0] > 4.5
    assert -np.diff(ages)[ages[:-1] <= 0.45] == pytest.approx(1 / 30, abs=1e-6)


@settings(max_examples=100, deadline=None)
@example(450.0)  # half-way between two images
@given(age_ms=st.floats(0, 7700))
def test_every_stamp_within_the_span_of_a_steady_camera_finds_an_image_near(age_ms):
    frame_buffer = camera(12.0, keep_s=8.0)
    stamp_ns = round((13_000 - age_ms) * MS)
    off_ms = abs(frame_buffer.find(stamp_ns).stamp_ns - stamp_ns) / MS
    assert off_ms <= (17 if age_ms < 1400 else 120)


def test_the_way_to_the_newest_leads_over_the_thinned_images():
    frame_buffer = camera(8.0)
    assert taken(frame_buffer) == 9000
    select(frame_buffer, 2000 * MS)
    stamps = []
    while not stamps or stamps[-1] != 9000:
        stamps.append(taken(frame_buffer))
    gaps = np.diff(stamps)
    assert abs(stamps[0] - 2000) <= 117
    assert gaps.max() <= 240
    assert len(stamps) > 70


# An image held for a selection


def test_a_held_image_is_the_one_selected_on_however_long_it_takes():
    """30 Hz, held from 0.1 s to 7.9 s: without the hold only every sixth image is left."""
    stamps = [1000 + i * 100 / 3 for i in range(240)]
    for index in range(3, 14):
        frame_buffer = filled(*stamps[: index + 3], keep_s=8.0)
        named = round(stamps[index] * MS)
        frame_buffer.hold(named)
        for stamp in stamps[index + 3 :]:
            frame_buffer.put(frame(stamp))
        assert frame_buffer.find(named).stamp_ns == named


def test_a_held_image_counts_in_the_byte_limit_and_outlives_it():
    frame_buffer = filled(*range(1000, 1400, 33), keep_s=8.0, keep_bytes=2000)
    frame_buffer.hold(1066 * MS)
    for stamp in range(1400, 8000, 33):
        frame_buffer.put(frame(stamp))
    assert frame_buffer.find(1066 * MS).stamp_ns == 1066 * MS
    assert sum(kept.nbytes for kept in frame_buffer._kept) <= 1900


@pytest.mark.parametrize("end", ["release", "age", "stamps go back"])
def test_a_held_image_is_let_go(end):
    frame_buffer = filled(*range(1000, 1400, 33), keep_s=8.0)
    frame_buffer.hold(1033 * MS)
    frame_buffer.put(frame(2900))
    for stamp in {"release": (8900,), "age": (9100,), "stamps go back": (5,)}[end]:
        if end == "release":
            frame_buffer.hold(0)
        frame_buffer.put(frame(stamp))
    if end == "release":
        assert frame_buffer.find(1033 * MS).stamp_ns != 1033 * MS
    else:
        with pytest.raises(InputError):
            frame_buffer.find(1033 * MS)


# Several targets


def selected(*targets: tuple[int, float]) -> FrameBuffer:
    """A buffer of ten images, taken up to the newest, with a selection for each (target, stamp in ms)."""
    frame_buffer = filled(*range(10, 110, 10))
    frame_buffer.take(followed=Followed((0,), 0))
    for number, (target_id, stamp_ms) in enumerate(targets, 2):
        select(frame_buffer, round(stamp_ms * MS), command=Command(None, target_id, number))
    return frame_buffer


def tasks(frame_buffer: FrameBuffer, ids: tuple[int, ...], count: int, new=()) -> list:
    """Stamp in ms and targets (None: all) of the next tasks; before some of them a new image comes."""
    found = []
    for index in range(count):
        if index < len(new):
            frame_buffer.put(frame(new[index]))
        task = frame_buffer.take(0.0, Followed(ids, 0))
        only = None if task.ids is None else set(task.ids)
        if task.selection is not None:
            only = only and only | {task.selection.command.target_id}
        found.append((task.frame.stamp_ns // MS, only))
    return found


def test_a_target_catches_up_by_turns_with_the_newest_image_for_those_that_are_level():
    frame_buffer = selected((1, 60))
    assert tasks(frame_buffer, (0,), 1) == [(60, set())]  # the selection: for target 1 alone
    level, late = {0}, {1}
    assert tasks(frame_buffer, (0, 1), 4, new=(110, 120, 130, 140)) == [
        (70, late),
        (120, level),
        (80, late),
        (140, level),
    ]
    assert tasks(frame_buffer, (0, 1), 6) == [(stamp, late) for stamp in (90, 100, 110, 120, 130, 140)]


def test_level_again_a_target_takes_part_in_the_newest_image_with_the_others():
    frame_buffer = selected((1, 80))
    tasks(frame_buffer, (0,), 1)
    images = tasks(frame_buffer, (0, 1), 2)
    assert images == [(90, {1}), (100, {1})]
    assert tasks(frame_buffer, (0, 1), 1, new=(110,)) == [(110, None)]


def test_a_command_replaces_only_what_waits_for_the_same_target():
    frame_buffer = selected((1, 80), (2, 70))
    assert frame_buffer.followed == ((0, 1, 2), 0)
    assert [c.target_id for c in frame_buffer.clear(Command(None, 2))] == [2]
    assert frame_buffer.followed.ids == (0, 1)
    assert [c.target_id for c in frame_buffer.clear(Command(None, ALL))] == [1, 2]
    assert frame_buffer.followed == NOBODY


def test_a_target_that_is_gone_does_not_catch_up_any_more():
    frame_buffer = selected((1, 50))
    tasks(frame_buffer, (0, 1), 2)
    assert tasks(frame_buffer, (0,), 1, new=(110,)) == [(110, None)]


def test_whom_to_steer_by_counts_as_soon_as_it_is_asked_for():
    frame_buffer = selected((1, 80))
    frame_buffer.steer(Command(None, 1))
    assert frame_buffer.followed == ((0, 1), 1)
    frame_buffer.clear(Command(None, 1))
    assert frame_buffer.followed == ((0,), None)


# Proposals: not at the cost of the targets that are followed


def proposed(frame_buffer: FrameBuffer, now_s: float, monkeypatch) -> bool:
    """Whether the task at this time is a proposal, not an image; a new one is requested."""
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    frame_buffer.propose(COMMAND, frame_buffer.find(0), PROMPT)
    return isinstance(frame_buffer.take(followed=frame_buffer._followed), Propose)


def test_while_a_target_is_followed_a_proposal_comes_once_in_a_second(monkeypatch):
    frame_buffer = filled(10)
    frame_buffer._followed = Followed((0,), 0)
    for number, (now_s, is_proposal) in enumerate([(10.0, True), (10.9, False), (11.0, True), (11.9, False)]):
        frame_buffer.put(frame(20 + 10 * number))
        assert proposed(frame_buffer, now_s, monkeypatch) is is_proposal


def test_without_a_target_proposals_and_images_take_turns(monkeypatch):
    frame_buffer = filled(10, 20)
    assert [proposed(frame_buffer, 10.0, monkeypatch) for _ in range(4)] == [True, False, True, True]


@pytest.mark.parametrize("was_taken", [False, True])
def test_an_image_that_the_others_have_been_through_is_for_the_selected_target_alone(was_taken):
    frame_buffer = filled(10)
    if was_taken:
        assert taken(frame_buffer) == 10
    select(frame_buffer, 10 * MS)
    assert frame_buffer.take(followed=Followed((0, 1), 1)).ids == (frozenset() if was_taken else None)
