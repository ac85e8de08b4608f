"""Counters and health assessment of the tracker node, published on /diagnostics.

This module does not import ROS, so the assessment can be tested with plain numbers; the node converts the
result to a message.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import pairwise
from statistics import median, quantiles
from typing import Any

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.types import Track, TrackState

_Array = NDArray[Any]

# Length of the window over which rates, latencies and losses are computed, s.
WINDOW_S = 10.0
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


class Level(IntEnum):
    """diagnostic_msgs/DiagnosticStatus.level."""

    OK = 0
    WARN = 1
    ERROR = 2
    STALE = 3


@dataclass(frozen=True)
class Health:
    """One DiagnosticStatus: level, one-line message and named values."""

    level: Level
    message: str
    values: dict[str, str]


@dataclass(frozen=True)
class Setup:
    """The node's configuration as reported in diagnostics; constant between two lifecycle transitions."""

    lifecycle: str = "unconfigured"
    values: dict[str, str] = field(default_factory=dict)
    fault: str = ""


class Statistics:
    """Thread-safe counters of the tracker node. Times are read from the steady clock, in s; image stamps are
    in ns."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._arrivals: deque[tuple[float, int]] = deque()
        self._answers: deque[tuple[float, float]] = deque()
        self._counts = {
            "received": 0,
            "processed": 0,
            "again": 0,
            "dropped": 0,
            "refused": 0,
            "selections_refused": 0,
        }
        self._last = dict.fromkeys((*_MINOR, "qos", "failure"), "")
        self._fresh: set[str] = set()  # faults since the last assessment
        self._track: Track | None = None
        self._lost = False
        self._stall = ""
        self._refused_now = False  # the most recently received image was refused
        self._image_bytes = 0
        self._input: Mapping[str, str] = {}
        self._explanation = "is the topic image right?"
        self._are_several = False
        self._mixed_until_s = -math.inf
        self._shared: tuple[str, ...] = ()

    def image_received(self, now_s: float, stamp_ns: int, nbytes: int = 0) -> None:
        with self._lock:
            self._counts["received"] += 1
            self._refused_now, self._image_bytes = False, nbytes
            if self._arrivals and stamp_ns < self._arrivals[-1][1]:
                self._arrivals.clear()
            self._arrivals.append((now_s, stamp_ns))
            _forget(self._arrivals, now_s)

    def input_seen(self, facts: Mapping[str, str], explanation: str, are_several: bool = False) -> None:
        """Store what is known of the image publishers (as named values), and why no image arrives if none
        does.

        ``are_several``: more than one may send; then no loss is told, as mixed stamps look as if some were
        lost.
        """
        with self._lock:
            if self._are_several and self._arrivals:
                self._mixed_until_s = self._arrivals[-1][0]
            self._input, self._explanation, self._are_several = facts, explanation, are_several

    def answered(self, now_s: float, latency_s: float, track: Track, again: bool = False) -> None:
        """Record that a box was published ``latency_s`` after its image arrived.

        ``again`` is set for an image that had been answered before: after a selection on an older image the
        worker processes the images since then a second time.
        """
        with self._lock:
            self._counts["again" if again else "processed"] += 1
            self._answers.append((now_s, latency_s))
            self._track, self._stall = track, ""
            _forget(self._answers, now_s)

    def state(self, track: Track) -> None:
        """Store a change of the target's state that happened without an image."""
        with self._lock:
            self._track = track

    def stalled(self, reason: str) -> None:
        """Record that images arrive but no answer is published; cleared by the next answer."""
        with self._lock:
            self._stall = reason

    def dropped(self, images: int) -> None:
        """Count images that were skipped because newer ones had arrived."""
        with self._lock:
            self._counts["dropped"] += images

    def image_refused(self, reason: str) -> None:
        self._refused_now = True
        self._fault("image", reason, "refused")

    def selection_refused(self, reason: str) -> None:
        self._fault("selection", reason, "selections_refused")

    def topics_shared(self, reasons: Sequence[str]) -> None:
        """Store which topics are shared now, one line each: an output topic on which another node publishes
        too, or several publishers of images. They are told until the next call."""
        with self._lock:
            self._shared = tuple(reasons)

    def incompatible_qos(self, reason: str) -> None:
        self._fault("qos", reason)

    def no_bearing(self, reason: str) -> None:
        self._fault("bearing", reason)

    def no_camera_motion(self, fault: str) -> None:
        """Record that the topics of the parameter camera_motion "topic" give no motion."""
        self._fault("camera", fault)

    def failed(self, reason: str, for_good: bool = False) -> None:
        """Record that the tracker raised. ``for_good``: it will keep failing until the process is
        restarted."""
        self._lost = self._lost or for_good
        self._fault("failure", reason)

    def _fault(self, kind: str, reason: str, count: str = "") -> None:
        with self._lock:
            if count:
                self._counts[count] += 1
            self._last[kind] = reason
            self._fresh.add(kind)

    def verdict(self, now_s: float, setup: Setup, image_timeout_s: float) -> Health:
        """Assess the time since the last call; the most severe finding sets the level and the message."""
        with self._lock:
            _forget(self._arrivals, now_s)
            _forget(self._answers, now_s)
            track = self._track
            findings = self._findings(now_s, setup, image_timeout_s)
            self._fresh.clear()
            values = self._values(now_s) | setup.values | dict(self._input) | {"lifecycle": setup.lifecycle}
        level, message = max(findings, key=lambda finding: _WEIGHT[finding[0]])
        if level is Level.OK and track is not None and setup.lifecycle == "active":
            message = f"{track.state.name}: {track.reason}" if track.reason else track.state.name
        return Health(level, message, values)

    def loss(self, now_s: float) -> str:
        """Describe images lost in transport, with the remedy; empty when none are lost or there are too few
        to tell."""
        with self._lock:
            _forget(self._arrivals, now_s)
            return self._loss(now_s)

    def slow(self, now_s: float, image_timeout_s: float) -> str:
        """Say that the camera is slower than ``image_timeout``, with the remedy; empty when it is not, or has
        stopped."""
        with self._lock:
            _forget(self._arrivals, now_s)
            return self._slow(now_s, image_timeout_s)

    def _slow(self, now_s: float, image_timeout_s: float) -> str:
        moments = [moment for moment, _ in self._arrivals]
        if len(moments) < FEWEST_OF_SLOW:
            return ""
        period_s = median(b - a for a, b in pairwise(moments))
        if not image_timeout_s < period_s or now_s - moments[-1] > MOST_MISSED * period_s:
            return ""
        return f"images come every {period_s:.2g} s: set image_timeout above twice that"

    def _unmixed(self) -> list[tuple[float, int]]:
        """Moment and stamp of the images since one publisher alone sends."""
        if self._are_several:
            return []
        return [arrival for arrival in self._arrivals if arrival[0] > self._mixed_until_s]

    def _loss(self, now_s: float) -> str:
        arrivals = self._unmixed()
        stamps = [stamp for _, stamp in arrivals]
        share = lost_share(stamps)
        if share is not None:
            said = f"{share:.0%} of the images are lost on the way" if share > LOSS_LIMIT else ""
        elif arrivals and now_s - arrivals[0][0] > SPARSE_S and is_sparse(stamps):
            span_s = now_s - arrivals[0][0]
            said = f"only {len(stamps)} images came in {span_s:.0f} s, unevenly: most are lost on the way"
        else:
            said = ""
        if said and self._image_bytes > LARGE_BYTES:
            # Only where images are lost.
            from efftam_ros.ros.common.large_images import large_image_remedy

            is_reliable = self._input.get("image reliability", "").startswith("reliable")
            return f"{said} ({self._image_bytes / 1e6:.1f} MB each); {large_image_remedy(is_reliable)}"
        return f"{said}; the link or the machine can't keep up with the camera" if said else ""

    def _findings(self, now_s: float, setup: Setup, image_timeout_s: float) -> list[tuple[Level, str]]:
        found = [(Level.OK, setup.lifecycle)]
        if setup.fault:
            found.append((Level.ERROR, setup.fault))
        if self._lost or "failure" in self._fresh:
            found.append((Level.ERROR, self._last["failure"]))
        if setup.lifecycle != "active":
            return found
        if self._stall:
            found.append((Level.ERROR, self._stall))
        if self._last["qos"] and not self._arrivals:
            found.append((Level.ERROR, self._last["qos"]))
        elif "qos" in self._fresh:
            found.append((Level.WARN, self._last["qos"]))
        found += [(Level.WARN, reason) for reason in self._shared]
        found += [(Level.WARN, self._last[kind]) for kind in _MINOR if kind in self._fresh]
        silent = not self._arrivals or now_s - self._arrivals[-1][0] > image_timeout_s
        loss = self._loss(now_s)
        if silent and self._refused_now:
            found.append((Level.ERROR, f"every image is refused: {self._last['image']}"))
        elif self._counts["received"] == 0:
            found.append((Level.STALE, f"no image has arrived yet: {self._explanation}"))
        elif silent:
            silence = f"no image for more than {image_timeout_s:g} s (image_timeout)"
            found.append(
                (Level.STALE, f"{silence}: {loss or self._slow(now_s, image_timeout_s) or self._explanation}")
            )
        elif loss:
            found.append((Level.WARN, loss))
        if self._track is not None and self._track.state is TrackState.LOST:
            found.append((Level.WARN, f"LOST: {self._track.reason}" if self._track.reason else "LOST"))
        return found

    def _values(self, now_s: float) -> dict[str, str]:
        latencies = sorted(latency for _, latency in self._answers)
        share = lost_share([stamp for _, stamp in self._unmixed()])
        track = self._track
        values = {
            "state": track.state.name if track is not None else "",
            "reason": track.reason if track is not None else "",
            "image rate (Hz)": _number(rate_hz([moment for moment, _ in self._arrivals], now_s)),
            "answer rate (Hz)": _number(rate_hz([moment for moment, _ in self._answers], now_s)),
            "latency p50 (ms)": _number(1e3 * quantile(latencies, 0.5) if latencies else None),
            "latency p99 (ms)": _number(1e3 * quantile(latencies, 0.99) if latencies else None),
            "images received": str(self._counts["received"]),
            "images processed": str(self._counts["processed"]),
            "images processed again (late selection)": str(self._counts["again"]),
            "images dropped (newer came)": str(self._counts["dropped"]),
            "images refused": str(self._counts["refused"]),
            "images lost on the way": "" if share is None else f"{share:.0%}",
            "selections refused": str(self._counts["selections_refused"]),
            "last refused image": self._last["image"],
            "last refused selection": self._last["selection"],
            "incompatible QoS": self._last["qos"],
            "last internal error": self._last["failure"],
        }
        if track is not None:
            values["windows searched"] = str(len(track.windows))
            values["places where it may be"] = str(len(track.hypotheses))
            if track.camera is not None:
                values["camera motion"] = track.camera.reason or "known"
            values |= {f"stage {name} (ms)": f"{1e3 * s:.1f}" for name, s in track.stage_seconds.items()}
        return values


# Faults that leave the tracker working; a shared topic comes first, as it causes others.
_MINOR = ("image", "selection", "bearing", "camera")
# Order of reporting: a fault comes before the missing images that it causes.
_WEIGHT = {Level.OK: 0, Level.WARN: 1, Level.STALE: 2, Level.ERROR: 3}


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def _forget(samples: deque[tuple[float, int]] | deque[tuple[float, float]], now_s: float) -> None:
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
    period = gaps  # tried one after the other, here all at once
    for _ in range(3):  # from the edge of a cluster widened by jitter to its middle, the median
        first, end = _between(gaps, (1 - JITTER) * period, (1 + JITTER) * period)
        period = (gaps[(first + end - 1) // 2] + gaps[(first + end) // 2]) / 2
    multiples = np.arange(1, MOST_PERIODS + 1)
    below, above = _between(gaps, np.outer(multiples - JITTER, period), np.outer(multiples + JITTER, period))
    arrived = (above - below).sum(axis=0)
    sent = multiples @ (above - below)
    frequent = end - first >= max(FEWEST_PERIODS, PERIOD_SHARE * len(gaps))
    steady = np.flatnonzero(frequent & (arrived >= STEADY_SHARE * len(gaps)))
    return float(1.0 - arrived[steady[0]] / sent[steady[0]]) if len(steady) else None


def _between(ordered: _Array, low: _Array, high: _Array) -> tuple[_Array, _Array]:
    """First index and end of the values from ``low`` to ``high``."""
    return np.searchsorted(ordered, low, "left"), np.searchsorted(ordered, high, "right")


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


def quantile(ordered: Sequence[float], share: float) -> float:
    """The smallest of the ordered values that is not below a share ``share`` of them."""
    rank = -(-len(ordered) * share // 1)  # rounded up
    return ordered[max(0, int(rank) - 1)]
