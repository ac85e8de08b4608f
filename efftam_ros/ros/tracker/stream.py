"""What the stamps and arrivals of a stream say about it: its rate, and what was lost on the way."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median, quantiles

# Fewer gaps between images than this say nothing.
FEWEST_GAPS = 9
# Two gaps are the same when they differ by less than this share of the period: jitter in the stamps.
SAME = 0.25
# A gap of up to so many periods is loss; a longer one may be a pause of the camera or a jump of its clock.
MOST_PERIODS = 8
# A stream is steady when so many of its gaps are whole numbers of periods, and so many gaps are one period.
STEADY_SHARE, PERIOD_SHARE, FEWEST_PERIODS = 0.6, 0.1, 3
# Below this rate, Hz, a stream whose gaps spread is taken for the rest of a faster one.
SPARSE_HZ = 5.0


def lost_share(stamps_ns: Sequence[int]) -> float | None:
    """Share of the images of a steady stream that were stamped but never arrived, 0..1; None where the stream
    is too short or too uneven to say.

    The period is the shortest gap of which the others are whole multiples; every period between two images
    within a few periods of each other is one lost image. What lies in longer gaps is not counted: a camera
    that restarts, a clock that is set and a driver that stutters at its start lose nothing on the way.
    """
    gaps = [b - a for a, b in pairwise(stamps_ns) if b > a]
    if len(gaps) < FEWEST_GAPS:
        return None
    for candidate in sorted(gaps):
        period = float(candidate)
        for _ in range(3):  # from the edge of a cluster that jitter makes wide to its middle
            alike = [gap for gap in gaps if abs(gap - period) <= SAME * period]
            period = median(alike)
        if len(alike) < max(FEWEST_PERIODS, PERIOD_SHARE * len(gaps)):
            continue
        periods = [round(gap / period) for gap in gaps if _is_whole(gap / period)]
        if len(periods) >= STEADY_SHARE * len(gaps):
            return 1.0 - len(periods) / sum(periods)
    return None


def _is_whole(periods: float) -> bool:
    return 1 <= round(periods) <= MOST_PERIODS and abs(periods - round(periods)) <= SAME


def is_sparse(stamps_ns: Sequence[int]) -> bool:
    """True when few images come and at uneven times: what heavy loss leaves of a stream, too little for
    `lost_share`. A camera that is slow by itself is even."""
    gaps = [b - a for a, b in pairwise(stamps_ns) if b > a]
    if len(gaps) < 2:
        return True
    lower, middle, upper = quantiles(gaps, n=4, method="inclusive")
    return sum(gaps) / len(gaps) > 1e9 / SPARSE_HZ and upper - lower > SAME * middle


def rate_hz(moments_s: Sequence[float], now_s: float) -> float | None:
    """Rate over the moments given, falling once nothing has come for two periods; None before the second."""
    if len(moments_s) < 2 or moments_s[-1] <= moments_s[0]:
        return None
    span = moments_s[-1] - moments_s[0]
    period = span / (len(moments_s) - 1)
    silence = now_s - moments_s[-1]
    return (len(moments_s) - 1) / (span + (silence if silence > 2 * period else 0.0))


def quantile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of the ordered ones do not exceed."""
    rank = -(-len(ordered) * share // 1)  # rounded up
    return ordered[max(0, int(rank) - 1)]
