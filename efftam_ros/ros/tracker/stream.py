"""Statistics of an image stream from its stamps and arrival times: rate, and images lost in transport."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median, quantiles

# Fewest gaps between images from which loss can be estimated.
FEWEST_GAPS = 9
# Two gaps count as equal when they differ by less than this share of the period (jitter of the stamps).
SAME = 0.25
# A gap of up to this many periods is loss; a longer one may be a pause of the camera or a jump of its clock.
MOST_PERIODS = 8
# A stream is steady when this share of its gaps are whole multiples of the period, and this share (at least
# this many) equal one period.
STEADY_SHARE, PERIOD_SHARE, FEWEST_PERIODS = 0.6, 0.1, 3
# Below this rate, in Hz, a stream with uneven gaps is taken for the remainder of a faster one.
SPARSE_HZ = 5.0


def lost_share(stamps_ns: Sequence[int]) -> float | None:
    """Share of the images of a steady stream that were stamped but never arrived, 0..1.

    The period is the shortest gap of which the others are whole multiples; each missing multiple between two
    images a few periods apart is one lost image. Longer gaps are not counted: a restarting camera, a clock
    adjustment or irregular images at driver start-up are not loss in transport.

    Returns None where the stream is too short or too uneven to tell.
    """
    gaps = [b - a for a, b in pairwise(stamps_ns) if b > a]
    if len(gaps) < FEWEST_GAPS:
        return None
    for candidate in sorted(gaps):
        period = float(candidate)
        for _ in range(3):  # from the edge of a cluster widened by jitter to its middle
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
    """True when images are few and unevenly spaced: what remains of a stream after heavy loss, too little for
    `lost_share`.

    A camera that is slow by itself has even gaps.
    """
    gaps = [b - a for a, b in pairwise(stamps_ns) if b > a]
    if len(gaps) < 2:
        return True
    lower, middle, upper = quantiles(gaps, n=4, method="inclusive")
    return sum(gaps) / len(gaps) > 1e9 / SPARSE_HZ and upper - lower > SAME * middle


def rate_hz(moments_s: Sequence[float], now_s: float) -> float | None:
    """Mean rate over the given times, decreasing once nothing has come for two periods; None before the
    second."""
    if len(moments_s) < 2 or moments_s[-1] <= moments_s[0]:
        return None
    span = moments_s[-1] - moments_s[0]
    period = span / (len(moments_s) - 1)
    silence = now_s - moments_s[-1]
    return (len(moments_s) - 1) / (span + (silence if silence > 2 * period else 0.0))


def quantile(ordered: Sequence[float], share: float) -> float:
    """The smallest of the ordered values that is not below a share ``share`` of them."""
    rank = -(-len(ordered) * share // 1)  # rounded up
    return ordered[max(0, int(rank) - 1)]
