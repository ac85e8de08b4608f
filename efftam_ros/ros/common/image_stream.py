"""What the stamps and arrivals of images say of their stream: rate, loss on the way, a slow camera."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from statistics import median, quantiles
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Length of the window over which rates, latencies and losses are computed, s.
WINDOW_S = 10.0
# Silence after which the camera has stopped: what was lost before is not the reason, s.
STOPPED_S = 2.0
# Above this size images do not fit the default shared memory of Fast DDS, bytes.
LARGE_BYTES = 500_000
# Share of images lost in transport above which a warning is raised.
LOSS_LIMIT = 0.2
# A stream older than this with only a few unevenly spaced images is judged to have lost the others, s.
SPARSE_S = 3.0
# Fewest gaps between images from which loss can be estimated.
FEWEST_GAPS = 9
# Most gaps that loss is estimated from, the newest: all of the window up to 60 Hz.
MOST_GAPS = 600
# Two gaps count as equal when they differ by less than this share of the period.
JITTER = 0.25
# A gap of up to this many periods is loss; a longer one may be a pause of the camera or a jump of its clock.
MOST_PERIODS = 8
# A stream is steady when this share of its gaps are whole multiples of the period, and this share (at least
# this many) equal one period.
STEADY_SHARE, PERIOD_SHARE, FEWEST_PERIODS = 0.6, 0.1, 3
# Below this rate, in Hz, a stream with uneven gaps is taken for the remainder of a faster one.
SPARSE_HZ = 5.0
# Fewest images that show a slow camera, and the silence after which it counts as stopped, in its periods.
FEWEST_OF_SLOW, MOST_MISSED = 4, 3.0


class ImageStream:
    """The images of the last `WINDOW_S`. Times in s on the steady clock, stamps in ns. Not thread-safe.

    Older ones are dropped when it is asked with a time, which must happen now and then.
    ``has_several``: several publishers may send; then no loss is told, as mixed stamps look as if some were
    lost.
    """

    def __init__(self) -> None:
        self._arrivals: deque[tuple[float, int]] = deque()
        self._image_bytes = 0
        self.has_several = False
        self._mixed_until_s = -math.inf

    def received(self, now_s: float, stamp_ns: int, nbytes: int) -> None:
        self._image_bytes = nbytes
        if self._arrivals and stamp_ns < self._arrivals[-1][1]:
            self._arrivals.clear()
        self._arrivals.append((now_s, stamp_ns))

    def published_by(self, has_several: bool) -> None:
        if self.has_several and self._arrivals:
            self._mixed_until_s = self._arrivals[-1][0]
        self.has_several = has_several

    def silence_s(self, now_s: float) -> float:
        """Time since the last image; infinite when none is left."""
        forget(self._arrivals, now_s)
        return now_s - self._arrivals[-1][0] if self._arrivals else math.inf

    def rate_hz(self, now_s: float) -> float | None:
        forget(self._arrivals, now_s)
        return rate_hz([moment_s for moment_s, _ in self._arrivals], now_s)

    def lost_share(self) -> float | None:
        return lost_share([stamp_ns for _, stamp_ns in self._unmixed()])

    def _unmixed(self) -> list[tuple[float, int]]:
        """The images since one publisher alone sends."""
        if self.has_several:
            return []
        return [arrival for arrival in self._arrivals if arrival[0] > self._mixed_until_s]

    def loss(self, now_s: float, is_reliable: bool) -> str:
        """Describe images lost in transport, with the remedy; empty when none are lost or there are too few
        to tell. ``is_reliable``: they are received reliably already."""
        if self.silence_s(now_s) > STOPPED_S:
            return ""
        arrivals, share, said = self._unmixed(), self.lost_share(), ""
        if share is not None and share > LOSS_LIMIT:
            said = f"{share:.0%} of the images are lost on the way"
        span_s = now_s - arrivals[0][0] if arrivals else 0.0
        if share is None and span_s > SPARSE_S and is_sparse([stamp_ns for _, stamp_ns in arrivals]):
            count = len(arrivals)
            said = f"only {count} images came in {span_s:.0f} s, unevenly: most are lost on the way"
        if said and self._image_bytes > LARGE_BYTES:
            # Only where images are lost.
            from efftam_ros.ros.common.large_images import large_image_remedy

            return f"{said} ({self._image_bytes / 1e6:.1f} MB each); {large_image_remedy(is_reliable)}"
        return f"{said}; the link or the machine can't keep up with the camera" if said else ""

    def slow(self, now_s: float, image_timeout_s: float) -> str:
        """Say that the camera is slower than ``image_timeout``, with the remedy; empty when it is not, or has
        stopped."""
        silence_s = self.silence_s(now_s)
        moments_s = [moment_s for moment_s, _ in self._arrivals]
        if len(moments_s) < FEWEST_OF_SLOW:
            return ""
        period_s = median(b - a for a, b in pairwise(moments_s))
        if period_s <= image_timeout_s or silence_s > MOST_MISSED * period_s:
            return ""
        return f"images come every {period_s:.2g} s: set image_timeout above twice that"


def forget(samples: deque[tuple[float, Any]], now_s: float) -> None:
    """Drop the samples whose first value, a time, is before the window."""
    while samples and samples[0][0] < now_s - WINDOW_S:
        samples.popleft()


def lost_share(stamps_ns: Sequence[int]) -> float | None:
    """Share of the images of a steady stream that were stamped but never arrived, 0..1.

    The period is the shortest gap of which the others are whole multiples; each missing multiple between two
    images a few periods apart is one lost image. Longer gaps are not counted: a restarting camera, a clock
    adjustment or irregular images at driver start-up are not loss in transport. Only the newest `MOST_GAPS`
    gaps are used.

    Returns None where the stream is too short or too uneven to tell.
    """
    gaps = np.sort(np.array([b - a for a, b in pairwise(stamps_ns) if b > a][-MOST_GAPS:], float))
    if len(gaps) < FEWEST_GAPS:
        return None
    # Every gap may be the period. One column each, shortest first: a period, the number of gaps like it, and
    # the numbers of gaps that are 1, 2, ... times as long.
    periods, alike = _around(gaps)
    multiples = np.arange(1, MOST_PERIODS + 1)
    counts = _between(gaps, np.outer(multiples - JITTER, periods), np.outer(multiples + JITTER, periods))
    fewest = max(FEWEST_PERIODS, PERIOD_SHARE * len(gaps))
    is_steady = (alike >= fewest) & (counts.sum(axis=0) >= STEADY_SHARE * len(gaps))
    if not is_steady.any():
        return None
    found = counts[:, is_steady.argmax()]
    return 1.0 - float(found.sum() / (multiples @ found))


def _around(gaps: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """For each of the ordered gaps, the median of those like it, and their number.

    Repeated, which leads from the edge of a cluster that jitter widened to its middle.
    """
    middle = gaps
    for _ in range(3):
        first = np.searchsorted(gaps, (1 - JITTER) * middle, "left")
        end = np.searchsorted(gaps, (1 + JITTER) * middle, "right")
        middle = (gaps[(first + end - 1) // 2] + gaps[(first + end) // 2]) / 2
    return middle, end - first


def _between(ordered: NDArray[Any], low: NDArray[Any], high: NDArray[Any]) -> NDArray[Any]:
    """How many of the ordered values are from ``low`` to ``high``."""
    return np.searchsorted(ordered, high, "right") - np.searchsorted(ordered, low, "left")


def is_sparse(stamps_ns: Sequence[int]) -> bool:
    """True when images are few and unevenly spaced: what remains of a stream after heavy loss, too little for
    `lost_share`.

    A camera that is slow by itself has even gaps.
    """
    gaps = [b - a for a, b in pairwise(stamps_ns) if b > a]
    if len(gaps) < 2:
        return True
    lower, middle, upper = quantiles(gaps, n=4, method="inclusive")
    return sum(gaps) / len(gaps) > 1e9 / SPARSE_HZ and upper - lower > JITTER * middle


def rate_hz(moments_s: Sequence[float], now_s: float) -> float | None:
    """Mean rate over the given times, decreasing once nothing has come for two periods; None before the
    second."""
    if len(moments_s) < 2 or moments_s[-1] <= moments_s[0]:
        return None
    span = moments_s[-1] - moments_s[0]
    period = span / (len(moments_s) - 1)
    silence = now_s - moments_s[-1]
    return (len(moments_s) - 1) / (span + (silence if silence > 2 * period else 0.0))
