"""The size of a page's pictures on simulated links: what is sent, how old it is, how soon all is back."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from itertools import pairwise
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from efftam_operator.pace import FLOOR, LEVELS, WHOLE, Pace

MBIT = 1e6 / 8
STEP_S = 0.001


@dataclasses.dataclass
class Sent:
    at_s: float
    level: int
    width: int
    nbytes: int
    seen_s: float  # when the page has it


USUAL = {100: 1.0, 50: 0.72, 35: 0.57}  # as cameras over land give it
NOISY = {100: 3.0, 50: 1.0, 35: 0.6}  # of a dark scene


def length(width: int, level: int, shares: dict[int, float] = USUAL) -> int:
    """Bytes of a JPEG of 16:9. ``shares``: how they depend on its quality."""
    return round(0.1 * shares[LEVELS[level][0]] * width * width * 9 / 16)


def simulate(
    rate: Callable[[float], float],
    *,
    seconds: float = 20.0,
    delay_s: float = 0.02,
    camera_hz: float = 30.0,
    width: int = 1280,
    page_stands: tuple[float, float] = (0.0, 0.0),
    greeted_s: float | None = None,
    shares: Callable[[float], dict[int, float]] = lambda t: USUAL,
) -> list[Sent]:
    """A link that takes ``rate(t)`` bytes per second, in order, and needs ``delay_s`` there and back; the
    page does nothing from ``page_stands[0]`` to ``[1]``; its greeting took ``greeted_s``. Always the newest
    picture is sent."""
    pace, sent, under_way, free_s, newest = Pace(), [], [], 0.0, -1
    pace.greeted(delay_s if greeted_s is None else greeted_s)
    for step in range(int(seconds / STEP_S)):
        now = step * STEP_S
        while under_way and under_way[0][1] <= now:
            pace.acknowledged(*under_way.pop(0))
        image = int(now * camera_hz)
        if image == newest or not pace.is_ready:
            continue
        newest, level = image, pace.level
        shown = min(width, LEVELS[level][1])
        nbytes = length(shown, level, shares(now))
        free_s, left = max(free_s, now), nbytes
        while left > 0:
            left -= rate(free_s) * STEP_S
            free_s += STEP_S
        seen_s = free_s + delay_s
        if page_stands[0] <= seen_s < page_stands[1]:
            seen_s = page_stands[1]
        pace.sent(len(sent), nbytes, width, now)
        under_way.append((len(sent), seen_s))
        sent.append(Sent(now, level, shown, nbytes, seen_s))
        assert len(under_way) <= 2
    return sent


def within(sent: list[Sent], from_s: float, to_s: float) -> list[Sent]:
    return [one for one in sent if from_s <= one.at_s < to_s]


def hz(sent: list[Sent]) -> float:
    return (len(sent) - 1) / (sent[-1].at_s - sent[0].at_s)


@pytest.mark.parametrize("delay_s", [0.005, 0.02, 0.3])
@pytest.mark.parametrize("camera_hz", [5.0, 30.0])
def test_on_a_free_link_pictures_are_whole_within_a_second_and_stay_so(delay_s, camera_hz):
    sent = simulate(lambda t: 100 * MBIT, delay_s=delay_s, camera_hz=camera_hz)
    assert sent[0].level == FLOOR
    assert {one.level for one in within(sent, 1.1, 20)} == {0}


@pytest.mark.parametrize("width", [640, 1280, 1920])
@pytest.mark.parametrize("mbit", [1, 2, 4, 10])
def test_on_a_steady_link_ten_fresh_pictures_a_second_of_one_size(width, mbit):
    sent = within(simulate(lambda t: mbit * MBIT, width=width), 3, 20)
    assert hz(sent) >= 9.5
    assert median(one.seen_s - one.at_s for one in sent) <= 0.25
    levels = {one.level for one in sent}
    assert len(levels) == 1
    level = levels.pop()
    larger = next(i for i in range(level - 1, -2, -1) if i <= WHOLE or LEVELS[i][1] < width)
    # Half a step more would be too much.
    assert level == 0 or 10 * length(min(width, LEVELS[larger][1]), larger) > 0.7 * mbit * MBIT


def test_on_300_kbit_a_second_the_link_is_used_and_pictures_are_at_least_320_px_wide():
    sent = simulate(lambda t: 0.3 * MBIT)
    assert min(one.width for one in sent) == 320
    assert sum(one.nbytes for one in sent) / 20 > 0.8 * 0.3 * MBIT
    assert max(one.seen_s - one.at_s for one in within(sent, 1, 20)) < 0.4


def test_below_320_px_only_where_a_picture_takes_longer_than_seven_tenths_of_a_second():
    carried = simulate(lambda t: 5_000, seconds=40)  # 3.3 kB at 320 px: 0.66 s
    assert {one.width for one in carried} == {320}
    thinner = simulate(lambda t: 3_000, seconds=40)
    assert min(one.width for one in thinner) == 226


def test_a_page_whose_greeting_took_long_has_the_same_pictures():
    greeted = (simulate(lambda t: 2 * MBIT, greeted_s=greeted_s) for greeted_s in (None, 3.0))
    assert len({tuple({one.level for one in within(sent, 3, 20)}) for sent in greeted}) == 1


def test_how_much_longer_better_pictures_are_is_learnt_and_a_simpler_scene_has_the_best_ones_again():
    """By the usual ratio there would be room for the best ones: they would come and go."""
    rate = length(1280, 1, NOISY) / 0.055
    simple = {quality: share / 10 for quality, share in NOISY.items()}
    sent = simulate(lambda t: rate, shares=lambda t: NOISY if t < 10 else simple)
    assert {one.level for one in within(sent, 3, 10)} == {1}
    assert {one.level for one in within(sent, 13, 20)} == {0}


def test_after_slow_pictures_at_the_start_quick_answers_are_one_step_no_more():
    pace, now_s = Pace(), 0.0
    pace.greeted(0.0)
    for seq, way_s in enumerate((2.0, 2.0, 0.001, 0.001)):
        lowest = max(FLOOR, pace.level)
        pace.sent(seq, 3000, 1280, now_s)
        pace.acknowledged(seq, now_s + way_s)
        now_s += way_s + 0.2
    assert pace.level == lowest - 1 == FLOOR


@pytest.mark.parametrize("stands_s", [0.5, 2.0, 5.0])
def test_one_stall_of_the_page_makes_no_picture_smaller(stands_s):
    sent = simulate(lambda t: 50 * MBIT, page_stands=(10, 10 + stands_s))
    assert max(one.seen_s - one.at_s for one in sent) > 0.9 * stands_s
    assert {one.level for one in within(sent, 2, 20)} == {0}


@pytest.mark.parametrize(("period_s", "out_s"), [(1, 0.3), (10, 2)])
def test_outages_leave_whole_pictures(period_s, out_s):
    sent = simulate(lambda t: 0.0 if t % period_s < out_s else 50 * MBIT, seconds=40)
    assert {one.level for one in within(sent, 5, 40)} == {0}


def test_a_link_that_becomes_thin_gets_smaller_pictures_by_half_a_step_quality_first():
    sent = simulate(lambda t: 50 * MBIT if t < 5 else 0.3 * MBIT, seconds=25)
    # Each further slow picture is a step: the first two of 1280 px take two seconds each.
    assert {one.level for one in within(sent, 15, 25)} == {FLOOR}
    levels = [one.level for one in within(sent, 4, 25)]
    changes = [(a, b) for a, b in pairwise(levels) if a != b]
    assert levels[0] == 0
    assert levels[-1] == FLOOR
    assert changes[:2] == [(0, 1), (1, WHOLE)]
    widths = [min(1280, LEVELS[level][1]) for level in dict.fromkeys(levels)]
    assert all(1 <= a / b < 1.5 for a, b in pairwise(widths))


@pytest.mark.parametrize("width", [640, 1280, 1920, 3840])
def test_all_is_back_within_three_seconds_of_quick_answers(width):
    sent = simulate(lambda t: 0.3 * MBIT if t < 10 else 1000 * MBIT, width=width)
    assert within(sent, 9, 10)[-1].level == FLOOR
    assert {one.level for one in within(sent, 13, 20)} == {0}
    rise = list(dict.fromkeys(one.level for one in within(sent, 9.9, 14)))
    assert rise == [i for i in range(FLOOR, -1, -1) if i <= WHOLE or LEVELS[i][1] < width]


def test_what_was_sent_before_a_step_says_nothing_of_the_pictures_after_it():
    pace = Pace()
    pace.greeted(0.0)
    pace.sent(1, 3000, 1280, 0.0)
    pace.sent(2, 3000, 1280, 0.0)
    pace.acknowledged(1, 0.001)  # at the start: up as far as the link has room
    level = pace.level
    assert level < FLOOR
    pace.acknowledged(2, 2.0)
    pace.sent(3, 30000, 1280, 2.0)
    pace.acknowledged(3, 4.0)
    assert pace.level == level  # one slow picture of this level so far


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 3)), max_size=60))
def test_whatever_comes_when_two_at_most_are_under_way_and_the_level_is_one(steps):
    """``steps``: an acknowledgement of the newest or of none that was sent, and the time before it."""
    pace, now, seq = Pace(), 0.0, 0
    for is_known, wait_s in steps:
        count = 0
        while pace.is_ready:
            seq, count = seq + 1, count + 1
            pace.sent(seq, 1000, 1280, now)
        assert count <= 2
        now += wait_s
        before = pace.level
        pace.acknowledged(seq if is_known else seq + 1, now)
        assert pace.is_ready == is_known
        assert 0 <= pace.level < len(LEVELS)
        assert is_known or pace.level == before
