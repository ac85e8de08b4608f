"""One wrong stamp in a steady stream is withheld; a clock that was set, a pause and late images are not."""

from __future__ import annotations

import pytest

from efftam_ros.core.errors import InputError
from efftam_ros.images.message import StampGuard

MS = 1_000_000
PERIOD = 33 * MS
START = 10**12


def taken(guard: StampGuard, images: list[tuple[int, int]]) -> list[bool]:
    """Which of the images (stamp, arrival) are used."""
    used = []
    for stamp, arrived in images:
        try:
            guard.check(stamp, arrived)
            used.append(True)
        except InputError:
            used.append(False)
    return used


def steady(count: int, first: int = 0, late: int = 0) -> list[tuple[int, int]]:
    return [(START + i * PERIOD, i * PERIOD + late) for i in range(first, first + count)]


@pytest.mark.parametrize(
    ("off", "words"), [(3000 * MS, r"is 3\.000 s ahead"), (-300 * MS, r"is 0\.2\d\d s before")]
)
def test_one_wrong_stamp_is_withheld_and_the_next_images_are_used(off: int, words: str) -> None:
    guard = StampGuard()
    assert all(taken(guard, steady(20)))
    stamp, arrived = steady(1, 20)[0]
    with pytest.raises(InputError, match=words):
        guard.check(stamp + off, arrived)
    assert all(taken(guard, steady(20, 21)))


def test_a_stamp_less_than_a_quarter_of_a_second_ahead_is_used() -> None:
    ahead = [(stamp + 200 * MS, arrived) for stamp, arrived in steady(1, 20)]
    assert all(taken(StampGuard(), steady(20) + ahead + steady(20, 30)))


@pytest.mark.parametrize("off", [3600_000 * MS, -600 * MS, -14_000 * MS])
def test_a_clock_that_was_set_is_followed_from_the_second_image_on(off: int) -> None:
    guard = StampGuard()
    taken(guard, steady(20))
    assert taken(guard, [(stamp + off, at) for stamp, at in steady(20, 20)]) == [False] + 19 * [True]


def test_a_pause_of_the_camera_is_none() -> None:
    assert all(taken(StampGuard(), steady(20) + steady(20, 200)))


def test_images_that_come_late_and_then_in_time_are_used() -> None:
    late = [(stamp, 50 * PERIOD) for stamp, _ in steady(30, 20)]
    assert all(taken(StampGuard(), steady(20) + late + steady(20, 50)))


@pytest.mark.parametrize("rate", [0.1, 1.0, 10.0, 100.0])
@pytest.mark.parametrize("period", [PERIOD, 1000 * MS])
def test_a_bag_played_fast_or_slowly_is_used_whole(rate: float, period: int) -> None:
    assert all(taken(StampGuard(), [(START + i * period, int(i * period / rate)) for i in range(60)]))


def test_stamps_that_run_backwards_are_withheld_until_they_go_on() -> None:
    back = [(START - i * PERIOD, (20 + i) * PERIOD) for i in range(1, 6)]
    on = [(back[-1][0] + i * PERIOD, (25 + i) * PERIOD) for i in range(1, 4)]
    assert taken(StampGuard(), steady(20) + back + on) == 20 * [True] + 5 * [False] + 3 * [True]


def test_what_was_late_or_far_apart_before_does_not_make_a_stamp_wrong() -> None:
    late, at = [(stamp, arrived + 1000 * MS) for stamp, arrived in steady(1, 20)], steady(20, 60)
    assert all(taken(StampGuard(), steady(20) + late + at))  # a pause after an image that was held up
    ahead = [(stamp + 300 * MS, arrived) for stamp, arrived in steady(1, 80)]
    assert taken(StampGuard(), steady(20) + at + ahead) == 41 * [True]  # of a camera with such steps
    assert taken(StampGuard(), steady(80) + ahead) == 80 * [True] + [False]


def test_after_a_withheld_stamp_the_next_wrong_one_is_withheld_too() -> None:
    def ahead(number: int) -> list[tuple[int, int]]:
        return [(stamp + 3000 * MS, arrived) for stamp, arrived in steady(1, number)]

    images = steady(20) + ahead(20) + steady(20, 21) + ahead(41) + steady(5, 42)
    assert taken(StampGuard(), images) == 20 * [True] + [False] + 20 * [True] + [False] + 5 * [True]


def test_after_a_clock_was_set_a_stamp_is_judged_by_what_came_since() -> None:
    slow = [(START + i * 1000 * MS, i * 1000 * MS) for i in range(20)]
    later = [(START - 14_000 * MS + i * PERIOD, 20_000 * MS + i * PERIOD) for i in range(14)]
    later[12] = later[12][0] + 1000 * MS, later[12][1]
    assert taken(StampGuard(), slow + later) == 20 * [True] + [False] + 11 * [True] + [False, True]
