"""Counts what the tracker's node does, and assesses its health for /diagnostics.

This module does not import ROS, so the assessment can be tested with plain numbers. The node converts the
result to a message.
"""

from __future__ import annotations

import math
import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import pairwise
from statistics import median
from typing import Any

from efftam_ros.images.stillness import frozen_text
from efftam_ros.ros.tracker.table import TargetTable

# Length of the window over which rates, latencies and losses are computed, s.
WINDOW_S = 10.0
# Time without an image after which the camera counts as stopped, s. Images lost in transport then no longer
# explain the silence.
STOPPED_S = 2.0
# Images above this size do not fit the default shared memory of Fast DDS, bytes.
LARGE_BYTES = 500_000
# Diagnostics warn if more than the share LOSS_LIMIT (0..1) of the images is lost in transport. The share is
# computed only if there are at least FEWEST_IMAGES images.
LOSS_LIMIT, FEWEST_IMAGES = 0.2, 10
# Whether a camera is slow is decided from at least FEWEST_OF_SLOW images. A slow camera counts as stopped
# after MAX_MISSED periods without an image.
FEWEST_OF_SLOW, MAX_MISSED = 4, 3.0


def forget(samples: deque[tuple[float, Any]], now_s: float) -> None:
    """Remove the samples that are older than `WINDOW_S`. A sample begins with its time, s."""
    while samples and samples[0][0] < now_s - WINDOW_S:
        samples.popleft()


def rate_hz(moments_s: Sequence[float], now_s: float) -> float | None:
    """Return the mean rate, Hz, of events at these times, oldest first; None if there are fewer than two.

    Once nothing has happened for two periods, the time since the last event counts too, so the rate falls.
    """
    if len(moments_s) < 2 or moments_s[-1] <= moments_s[0]:
        return None
    span = moments_s[-1] - moments_s[0]
    period = span / (len(moments_s) - 1)
    silence = now_s - moments_s[-1]
    return (len(moments_s) - 1) / (span + (silence if silence > 2 * period else 0.0))


# The values of diagnostics that contain a counter: name of the value, key of the counter.
COUNTED = {
    "images received": "received",
    "images processed": "processed",
    "images processed again (late selection)": "again",
    "images dropped (newer came)": "dropped",
    "images refused": "image",
    "selections refused": "selection",
}
# Kinds of faults after which the tracker still works: diagnostics warn of them once.
MINOR = ("image", "selection", "bearing", "levels")
# Kinds of faults that are logged as "... refused".
REFUSED = ("image", "selection")
# The values of diagnostics that contain the last fault of a kind: name of the value, kind of the fault.
SHOWN = {
    "last refused image": "image",
    "last refused selection": "selection",
    "incompatible QoS": "qos",
    "last internal error": "failure",
}


class Level(IntEnum):
    """The levels of diagnostic_msgs/DiagnosticStatus."""

    OK = 0
    WARN = 1
    ERROR = 2
    STALE = 3


# The levels from the least to the most important. ERROR comes after STALE, because a fault may be the cause
# of missing images.
SEVERITY = (Level.OK, Level.WARN, Level.STALE, Level.ERROR)


@dataclass(frozen=True)
class Health:
    """The content of a DiagnosticStatus: level, message in one line, and values by name."""

    level: Level
    message: str
    values: dict[str, str]


@dataclass(frozen=True)
class Setup:
    """The node's configuration for diagnostics. It is constant between two lifecycle transitions.

    ``lifecycle``: the lifecycle state. ``values``: reported values by name. ``fault``: why the last
    transition failed; empty if it succeeded.
    """

    lifecycle: str = "unconfigured"
    values: dict[str, str] = field(default_factory=dict)
    fault: str = ""


class Statistics:
    """Counts of images, answers and faults since the node was activated. Thread-safe.

    Times are in s on the steady clock. Old samples are removed only when rates or losses are read, so these
    must be read regularly. ``warn``: called with the kind and the text of every fault that the user can mend.
    """

    def __init__(self, warn: Callable[[str, str], object] = lambda kind, text: None) -> None:
        self._warn = warn
        self._lock = threading.RLock()
        self._arrivals: deque[tuple[float, int]] = deque()  # arrival, s, and bytes of each image
        self._losses: deque[tuple[float, int]] = deque()  # when images were reported lost, s, and how many
        self._answers: deque[tuple[float, float]] = deque()  # when answers were published, s; latencies, s
        self._counts: Counter[str] = Counter()
        self._last: dict[str, str] = {}  # text of the last fault, by kind
        self._fresh: set[str] = set()  # kinds of the faults since the last assessment
        self.targets = TargetTable()
        self.lost = ""  # why the GPU can't be used by this process any more; empty while it can
        self._stall = ""
        self._refusal = ""
        self._incompatible = ""  # why a publisher's QoS does not match; empty once an image arrives
        self._input: Mapping[str, str] = {}
        self._explanation = "check the topic of the images (remap image)"
        self._shared: Sequence[str] = ()
        self._still_s = 0.0

    def image_received(self, now_s: float, nbytes: int = 0, still_s: float = 0.0) -> None:
        """Count an image.

        ``nbytes``: size of the message, bytes. ``still_s``: time since a pixel of the images last changed, s.
        """
        with self._lock:
            self._still_s = still_s
            self._counts["received"] += 1
            self._arrivals.append((now_s, nbytes))
            self._incompatible = ""

    def images_lost(self, now_s: float, images: int) -> None:
        """Count images that the middleware reports as lost in transport."""
        with self._lock:
            self._losses.append((now_s, images))

    def answered(self, now_s: float, latency_s: float, again: bool = False) -> None:
        """Record that the first box of an image was published, ``latency_s`` after the image arrived.

        ``again``: the image had been answered before. After a selection on an older image, the images since
        then are processed a second time.
        """
        with self._lock:
            self._counts["again" if again else "processed"] += 1
            self._answers.append((now_s, latency_s))
            forget(self._answers, now_s)
            self._stall = self._refusal = ""

    def image_rate_hz(self, now_s: float) -> float | None:
        """Return the rate of arriving images over the last `WINDOW_S`; None before the second image."""
        with self._lock:
            forget(self._arrivals, now_s)
            return rate_hz([moment_s for moment_s, _ in self._arrivals], now_s)

    def image_interval_s(self, now_s: float) -> float | None:
        """Return the mean time between two images in the last `WINDOW_S`, s; None before the second image."""
        rate = self.image_rate_hz(now_s)
        return 1.0 / rate if rate else None

    def dropped(self, images: int) -> None:
        """Count images that were not processed because newer images had arrived."""
        with self._lock:
            self._counts["dropped"] += images

    def input_seen(self, facts: Mapping[str, str], explanation: str) -> None:
        """Store facts about the image publishers (values by name), and why no image arrives, if none does."""
        with self._lock:
            self._input, self._explanation = facts, explanation

    def topics_shared(self, reasons: Sequence[str]) -> None:
        """Store one line for each topic that several nodes publish now: an output of this node or the images.

        Diagnostics report these lines until the next call.
        """
        with self._lock:
            self._shared = reasons

    # Methods that record faults

    def fault(self, kind: str, reason: str) -> None:
        """Record a fault after which the tracker still works, and warn of it.

        ``kind``: one of `MINOR`, or ``qos`` for a publisher of images whose QoS does not match.
        """
        with self._lock:
            if kind == "image":
                self._refusal = reason
            elif kind == "qos":
                self._incompatible = reason
        self._record(kind, reason)
        self._warn(kind, f"{kind} refused: {reason}" if kind in REFUSED else reason)

    def stalled(self, reason: str) -> None:
        """Record that images arrive but no answer is published. The next answer removes the record."""
        with self._lock:
            self._stall = reason
        self._warn("stalled", f"{reason}; the network hangs or takes much longer than usual")

    def failed(self, reason: str, for_good: bool = False) -> None:
        """Record an exception of the tracker. ``for_good``: this process can't use the GPU any more."""
        with self._lock:
            self.lost = self.lost or (reason if for_good else "")
        self._record("failure", reason)

    def _record(self, kind: str, reason: str) -> None:
        with self._lock:
            self._counts[kind] += 1
            self._last[kind] = reason
            self._fresh.add(kind)

    # Methods that assess the counts and faults

    @property
    def frozen(self) -> str:
        """A warning that the newest images are all the same picture; empty while some pixel changes."""
        with self._lock:
            return frozen_text(self._still_s)

    @property
    def refusal(self) -> str:
        """Why the last image was refused; empty once a later image was answered."""
        with self._lock:
            return self._refusal

    def silence_s(self, now_s: float) -> float:
        """Return the time since the last image, s; infinite if none arrived in the last `WINDOW_S`."""
        with self._lock:
            forget(self._arrivals, now_s)
            return now_s - self._arrivals[-1][0] if self._arrivals else math.inf

    def lost_share(self, now_s: float) -> float | None:
        """Return the share of the images that the middleware lost in transport, 0..1.

        None if there were fewer than `FEWEST_IMAGES` images in the last `WINDOW_S`.
        """
        with self._lock:
            forget(self._arrivals, now_s)
            forget(self._losses, now_s)
            lost = sum(images for _, images in self._losses)
            count = lost + len(self._arrivals)
            return lost / count if count >= FEWEST_IMAGES else None

    def loss(self, now_s: float) -> str:
        """Return one line on images lost in transport, with the remedy.

        Empty if the share is at most `LOSS_LIMIT` or not known, or the camera has stopped.
        """
        with self._lock:
            share = self.lost_share(now_s)
            if share is None or share <= LOSS_LIMIT or self.silence_s(now_s) > STOPPED_S:
                return ""
            if self._input.get("image publishers") == "":
                return ""
            # Imported here, because it is needed only when images are lost.
            from efftam_ros.ros.common.large_images import large_image_remedy

            loss, nbytes = f"{share:.0%} of the images are lost on the way", self._arrivals[-1][1]
            if nbytes > LARGE_BYTES:
                is_reliable = self._input.get("image reliability", "").startswith("reliable")
                return f"{loss} ({nbytes / 1e6:.1f} MB each); {large_image_remedy(is_reliable)}"
            return f"{loss}; the link or the machine can't keep up with the camera"

    def slow(self, now_s: float, image_timeout_s: float) -> str:
        """Return a warning that the camera's period is longer than ``image_timeout_s``, with the remedy.

        Empty if the camera is fast enough or has stopped.
        """
        with self._lock:
            silence_s, moments_s = self.silence_s(now_s), [moment_s for moment_s, _ in self._arrivals]
        if len(moments_s) < FEWEST_OF_SLOW:
            return ""
        period_s = median(b - a for a, b in pairwise(moments_s))
        if period_s <= image_timeout_s or silence_s > MAX_MISSED * period_s:
            return ""
        return f"an image arrives only every {period_s:.2g} s: set image_timeout to more than twice this time"

    def verdict(self, now_s: float, setup: Setup, image_timeout_s: float) -> Health:
        """Return the health since the last call. The most severe finding gives its level and its message."""
        with self._lock:
            findings = self._findings(now_s, setup, image_timeout_s)
            self._fresh.clear()
            values = self._values(now_s) | setup.values | dict(self._input) | {"lifecycle": setup.lifecycle}
        level, message = max(findings, key=lambda finding: SEVERITY.index(finding[0]))
        shown = self.targets.shown
        if level is Level.OK and shown is not None and setup.lifecycle == "active":
            message, _ = shown
        return Health(level, message, values)

    def _findings(self, now_s: float, setup: Setup, image_timeout_s: float) -> list[tuple[Level, str]]:
        found = [(Level.OK, setup.lifecycle)]
        if setup.fault:
            found.append((Level.ERROR, setup.fault))
        if self.lost or "failure" in self._fresh:
            found.append((Level.ERROR, self._last["failure"]))
        if setup.lifecycle != "active":
            return found
        if self._stall:
            found.append((Level.ERROR, self._stall))
        silence_s, loss = self.silence_s(now_s), self.loss(now_s)
        if self._incompatible and silence_s == math.inf:
            found.append((Level.ERROR, self._incompatible))
        elif "qos" in self._fresh:
            found.append((Level.WARN, self._last["qos"]))
        # A shared topic comes before other warnings, because it may cause them.
        found += [(Level.WARN, reason) for reason in self._shared]
        found += [(Level.WARN, self._last[kind]) for kind in MINOR if kind in self._fresh]
        if silence_s > image_timeout_s:
            found.append(self._explain_silence(now_s, loss, image_timeout_s))
        elif loss:
            found.append((Level.WARN, loss))
        elif self.frozen:
            found.append((Level.WARN, self.frozen))
        found += [(Level.WARN, reason) for reason in self.targets.findings()]
        return found

    def _explain_silence(self, now_s: float, loss: str, image_timeout_s: float) -> tuple[Level, str]:
        if self._refusal:
            return Level.ERROR, f"every image is refused: {self._refusal}"
        if self._counts["received"] == 0:
            return Level.STALE, f"no image has arrived yet: {self._explanation}"
        why = loss or self.slow(now_s, image_timeout_s) or self._explanation
        return Level.STALE, f"no image for more than {image_timeout_s:g} s (image_timeout): {why}"

    def _values(self, now_s: float) -> dict[str, str]:
        forget(self._answers, now_s)
        latencies_s = sorted(latency_s for _, latency_s in self._answers)
        image_rate_hz, share = self.image_rate_hz(now_s), self.lost_share(now_s)
        _, track = self.targets.shown or ("", None)
        values = {
            "state": track.state.name if track is not None else "",
            "reason": track.reason if track is not None else "",
            "image rate (Hz)": _number(image_rate_hz),
            "answer rate (Hz)": _number(rate_hz([moment_s for moment_s, _ in self._answers], now_s)),
            "latency p50 (ms)": _quantile_ms(latencies_s, 0.5),
            "latency p99 (ms)": _quantile_ms(latencies_s, 0.99),
            "images lost on the way": "" if share is None else f"{share:.0%}",
        }
        values |= {name: str(self._counts[counter]) for name, counter in COUNTED.items()}
        values |= {name: self._last.get(kind, "") for name, kind in SHOWN.items()}
        values |= self.targets.values()
        if track is not None:
            values["windows searched"] = str(len(track.windows))
            values["places where it may be"] = str(len(track.hypotheses))
            values["score of the best place"] = f"{track.hypotheses[0].score:.1f}" if track.hypotheses else ""
            if track.camera is not None:
                values["camera motion"] = track.camera.reason or "known"
            values |= {f"stage {name} (ms)": f"{1e3 * s:.1f}" for name, s in track.stage_seconds.items()}
        return values


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def _quantile_ms(ordered_s: Sequence[float], share: float) -> str:
    """Return a quantile of durations as text, in ms; empty if there are no durations.

    ``ordered_s``: the durations in ascending order, s. ``share``: share of the durations that are not longer
    than the quantile, 0..1; 0.5 gives the median.
    """
    if not ordered_s:
        return ""
    rank = -(-len(ordered_s) * share // 1)  # rounded up
    return _number(1e3 * ordered_s[max(0, int(rank) - 1)])
