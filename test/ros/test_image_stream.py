"""What stamps say of a stream: loss is told from pauses, jumps, jitter and slow cameras."""

from __future__ import annotations

import sys
from itertools import accumulate
from statistics import median

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from efftam_ros.ros.tracker.diagnostics import (
    FEWEST_GAPS,
    FEWEST_PERIODS,
    JITTER,
    MOST_GAPS,
    MOST_PERIODS,
    PERIOD_SHARE,
    STEADY_SHARE,
    is_sparse,
    lost_share,
    rate_hz,
)

PERIOD_NS = 33_333_333
SECOND = 1_000_000_000


def steady(count: int, start_ns: int = 0) -> list[int]:
    return [start_ns + i * PERIOD_NS for i in range(count)]


def arrived(share: float, count: int = 600, seed: int = 1, jitter: float = 0.0) -> list[int]:
    rng = np.random.default_rng(seed)
    return [
        i * PERIOD_NS + int(rng.normal(0, jitter) * PERIOD_NS) for i in range(count) if rng.random() < share
    ]


@pytest.mark.parametrize("jitter", [0.0, 0.06])
@pytest.mark.parametrize(("share", "least", "most"), [(0.2, 0.6, 0.85), (0.5, 0.4, 0.6), (0.9, 0.05, 0.15)])
def test_loss_of_a_steady_stream_is_counted(share, least, most, jitter):
    for seed in range(10):
        assert least <= lost_share(arrived(share, seed=seed, jitter=jitter)) <= most


@pytest.mark.parametrize("share", [0.02, 0.06, 0.1])
def test_what_heavy_loss_leaves_is_called_sparse(share):
    for seed in range(20):
        stamps = arrived(share, 300, seed)
        assert is_sparse(stamps) or (lost_share(stamps) or 0) > 0.5


NOT_LOSS = {
    "a camera that restarts": steady(60) + steady(60, 9 * SECOND),
    "a camera that restarts often": [stamp for i in range(5) for stamp in steady(12, i * 2 * SECOND)],
    "a clock that jumps ahead": steady(100) + steady(100, 3600 * SECOND),
    "a driver that stutters at its start": [0, 2_000_000, 3_000_000, 9_000_000, 14_000_000]
    + steady(40, 2 * PERIOD_NS),
    "a burst, then few": [i * 1_500_000 for i in range(6)] + steady(6, SECOND),
    "jitter of 8 %": arrived(1.0, 300, jitter=0.08),
    "a slow camera": [i * SECOND // 2 for i in range(20)],
    "exposure that halves the rate": steady(100) + [4 * SECOND + i * 2 * PERIOD_NS for i in range(50)],
    "a time-lapse": [i * 3 * SECOND for i in range(4)],
}


@pytest.mark.parametrize("case", NOT_LOSS)
@pytest.mark.parametrize("count", [6, 10, 15, 10**6])
def test_no_loss_is_seen_in(case, count):
    stamps = NOT_LOSS[case][:count]
    # Half the rate looks like every other image lost; it can't be told apart by stamps.
    most = 0.35 if case.startswith("exposure") else 0.05
    assert (lost_share(stamps) or 0.0) <= most
    assert len(stamps) < 3 or not is_sparse(stamps)


def test_few_images_say_nothing():
    assert lost_share(steady(9)) is None
    assert lost_share(steady(10)) == 0.0
    assert lost_share([]) is None
    assert rate_hz([], 0.0) is None


def test_the_rate_is_over_the_time_until_now():
    moments = [i / 10 for i in range(101)]
    assert rate_hz(moments, 10.05) == pytest.approx(10.0)
    assert rate_hz(moments, 20.0) == pytest.approx(5.0)


def lost_share_gap_by_gap(gaps: list[int]) -> float | None:
    """`lost_share` of these gaps, by comparing every gap with every other."""
    gaps = gaps[-MOST_GAPS:]
    if len(gaps) < FEWEST_GAPS:
        return None
    for candidate in sorted(gaps):
        period = float(candidate)
        for _ in range(3):
            alike = [gap for gap in gaps if abs(gap - period) <= JITTER * period]
            period = median(alike)
        if len(alike) < max(FEWEST_PERIODS, PERIOD_SHARE * len(gaps)):
            continue
        near = [(gap / period, round(gap / period)) for gap in gaps]
        periods = [n for exact, n in near if 1 <= n <= MOST_PERIODS and abs(exact - n) <= JITTER]
        if len(periods) >= STEADY_SHARE * len(gaps):
            return 1.0 - len(periods) / sum(periods)
    return None


# Small gaps are often exactly on a limit; multiples of a period, with jitter, are what loss leaves.
GAPS = st.one_of(
    st.lists(st.integers(1, 40), max_size=MOST_GAPS + 20),
    st.lists(st.integers(1, 10**11), max_size=200),
    st.lists(
        st.builds(lambda n, jitter: n * PERIOD_NS + jitter, st.integers(1, 9), st.integers(-(10**7), 10**7)),
        max_size=200,
    ),
)


@given(GAPS)
def test_the_loss_is_the_one_that_comparing_all_gaps_with_all_gives(gaps):
    assert lost_share(list(accumulate(gaps, initial=10**18))) == lost_share_gap_by_gap(gaps)


@pytest.mark.parametrize("seed", range(3))
def test_a_stream_of_uneven_stamps_is_judged_with_little_work(seed):
    """Measured: 30 calls of functions; 2 500 000 if every gap is compared with every other."""
    gaps = np.random.default_rng(seed).lognormal(0.0, 0.6, 600) * 1e9 / 60
    stamps = list(accumulate(map(int, gaps), initial=10**18))
    calls = 0

    def count(frame, event, argument):
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        assert lost_share(stamps) is None
    finally:
        sys.setprofile(before)
    assert calls < 1000
