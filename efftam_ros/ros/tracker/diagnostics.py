"""What the tracker's node counts, and the health that it shows on /diagnostics.

This module does not import ROS, so the assessment can be tested with plain numbers; the node converts the
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
# Silence after which the camera counts as stopped, s; images lost before it are not the reason.
STOPPED_S = 2.0
# Above this size images do not fit the default shared memory of Fast DDS, bytes.
LARGE_BYTES = 500_000
# Share of images lost in transport above which a warning is raised, and the fewest images for a judgement.
LOSS_LIMIT, FEWEST_IMAGES = 0.2, 10
# Fewest images that show a slow camera, and the silence after which it counts as stopped, in its periods.
FEWEST_OF_SLOW, MAX_MISSED = 4, 3.0


def forget(samples: deque[tuple[float, Any]], now_s: float) -> None:
    """Drop the samples whose first value, a time, is before the window."""
    while samples and samples[0][0] < now_s - WINDOW_S:
        samples.popleft()


def rate_hz(moments_s: Sequence[float], now_s: float) -> float | None:
    """Mean rate over these times, falling once nothing comes for two periods; None before the second."""
    if len(moments_s) < 2 or moments_s[-1] <= moments_s[0]:
        return None
    span = moments_s[-1] - moments_s[0]
    period = span / (len(moments_s) - 1)
    silence = now_s - moments_s[-1]
    return (len(moments_s) - 1) / (span + (silence if silence > 2 * period else 0.0))


# Value by counter.
COUNTED = {
    "images received": "received",
    "images processed": "processed",
    "images processed again (late selection)": "again",
    "images dropped (newer came)": "dropped",
    "images refused": "image",
    "selections refused": "selection",
}
# Faults that leave the tracker working, and the values that show the last of them.
MINOR = ("image", "selection", "bearing", "levels")
REFUSED = ("image", "selection")
SHOWN = {
    "last refused image": "image",
    "last refused selection": "selection",
    "incompatible QoS": "qos",
    "last internal error": "failure",
}


class Level(IntEnum):
    """diagnostic_msgs/DiagnosticStatus.level."""

    OK = 0
    WARN = 1
    ERROR = 2
    STALE = 3


# Order of reporting: a fault comes before the missing images that it causes.
SEVERITY = (Level.OK, Level.WARN, Level.STALE, Level.ERROR)


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
    """What arrived, was answered and failed since the node was activated. Thread-safe. Times are read from
    the steady clock, in s; image stamps are in ns. What is older than `WINDOW_S` is forgotten when it is
    asked for, which must happen now and then.

    ``warn``: called with every fault that the user can mend, and its kind.
    """

    def __init__(self, warn: Callable[[str, str], object] = lambda kind, text: None) -> None:
        self._warn = warn
        self._lock = threading.RLock()
        self._arrivals: deque[tuple[float, int]] = deque()  # of images, and their bytes
        self._losses: deque[tuple[float, int]] = deque()  # and how many images
        self._answers: deque[tuple[float, float]] = deque()  # and their latency
        self._counts: Counter[str] = Counter()
        self._last: dict[str, str] = {}  # last fault of each kind
        self._fresh: set[str] = set()  # kinds of the faults since the last assessment
        self.targets = TargetTable()
        self.lost = ""  # why the network has failed for good
        self._stall = ""
        self._refusal = ""
        self._incompatible = ""  # the QoS of a publisher, while no image came since
        self._input: Mapping[str, str] = {}
        self._explanation = "is the topic image right?"
        self._shared: Sequence[str] = ()
        self._still_s = 0.0

    def image_received(self, now_s: float, nbytes: int = 0, still_s: float = 0.0) -> None:
        """Count an image. ``nbytes``: of the message; ``still_s``: for how long not one pixel of images has
        changed, s."""
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
        """Record that the first box of an image was published ``latency_s`` after the image arrived.

        ``again`` is set for an image that had been answered before: after a selection on an older image the
        images since then are processed a second time.
        """
        with self._lock:
            self._counts["again" if again else "processed"] += 1
            self._answers.append((now_s, latency_s))
            forget(self._answers, now_s)
            self._stall = self._refusal = ""

    def image_rate_hz(self, now_s: float) -> float | None:
        with self._lock:
            forget(self._arrivals, now_s)
            return rate_hz([moment_s for moment_s, _ in self._arrivals], now_s)

    def image_interval_s(self, now_s: float) -> float | None:
        """Return the time between two images of late; None before there are enough."""
        rate = self.image_rate_hz(now_s)
        return 1.0 / rate if rate else None

    def dropped(self, images: int) -> None:
        """Count images that were skipped because newer ones had arrived."""
        with self._lock:
            self._counts["dropped"] += images

    def input_seen(self, facts: Mapping[str, str], explanation: str) -> None:
        """Store what is known of the image publishers, as named values, and why no image arrives."""
        with self._lock:
            self._input, self._explanation = facts, explanation

    def topics_shared(self, reasons: Sequence[str]) -> None:
        """Store which topics are shared now, one line each: an output topic on which another node publishes
        too, or several publishers of images. They are reported until the next call."""
        with self._lock:
            self._shared = reasons

    # Faults

    def fault(self, kind: str, reason: str) -> None:
        """Record and warn of one that leaves the tracker working; ``kind``: of `MINOR`, or qos."""
        with self._lock:
            if kind == "image":
                self._refusal = reason
            elif kind == "qos":
                self._incompatible = reason
        self._record(kind, reason)
        self._warn(kind, f"{kind} refused: {reason}" if kind in REFUSED else reason)

    def stalled(self, reason: str) -> None:
        """Record that images arrive but no answer is published; cleared by the next answer."""
        with self._lock:
            self._stall = reason
        self._warn("stalled", f"{reason}; the network hangs or takes much longer than usual")

    def failed(self, reason: str, for_good: bool = False) -> None:
        """Record that the tracker raised. ``for_good``: until the process is restarted."""
        with self._lock:
            self.lost = self.lost or (reason if for_good else "")
        self._record("failure", reason)

    def _record(self, kind: str, reason: str) -> None:
        with self._lock:
            self._counts[kind] += 1
            self._last[kind] = reason
            self._fresh.add(kind)

    # Assessment

    @property
    def frozen(self) -> str:
        """That not one pixel of the images changes although they arrive; empty while some do."""
        with self._lock:
            return frozen_text(self._still_s)

    @property
    def refusal(self) -> str:
        """Why the last image was refused; empty once another was answered."""
        with self._lock:
            return self._refusal

    def silence_s(self, now_s: float) -> float:
        """Time since the last image; infinite when none is left."""
        with self._lock:
            forget(self._arrivals, now_s)
            return now_s - self._arrivals[-1][0] if self._arrivals else math.inf

    def lost_share(self, now_s: float) -> float | None:
        """Share of the images that the middleware lost on the way, 0..1; None: too few for a judgement."""
        with self._lock:
            forget(self._arrivals, now_s)
            forget(self._losses, now_s)
            lost = sum(images for _, images in self._losses)
            count = lost + len(self._arrivals)
            return lost / count if count >= FEWEST_IMAGES else None

    def loss(self, now_s: float) -> str:
        """Describe images lost in transport, with the remedy; empty when none are lost, they are too few for
        a judgement, or the camera was stopped."""
        with self._lock:
            share = self.lost_share(now_s)
            if share is None or share <= LOSS_LIMIT or self.silence_s(now_s) > STOPPED_S:
                return ""
            if self._input.get("image publishers") == "":
                return ""
            # Only where images are lost.
            from efftam_ros.ros.common.large_images import large_image_remedy

            loss, nbytes = f"{share:.0%} of the images are lost on the way", self._arrivals[-1][1]
            if nbytes > LARGE_BYTES:
                is_reliable = self._input.get("image reliability", "").startswith("reliable")
                return f"{loss} ({nbytes / 1e6:.1f} MB each); {large_image_remedy(is_reliable)}"
            return f"{loss}; the link or the machine can't keep up with the camera"

    def slow(self, now_s: float, image_timeout_s: float) -> str:
        """Warn of a camera slower than ``image_timeout``, with the remedy; empty if the camera is fast
        enough or has stopped."""
        with self._lock:
            silence_s, moments_s = self.silence_s(now_s), [moment_s for moment_s, _ in self._arrivals]
        if len(moments_s) < FEWEST_OF_SLOW:
            return ""
        period_s = median(b - a for a, b in pairwise(moments_s))
        if period_s <= image_timeout_s or silence_s > MAX_MISSED * period_s:
            return ""
        return f"images come every {period_s:.2g} s: set image_timeout above twice that"

    def verdict(self, now_s: float, setup: Setup, image_timeout_s: float) -> Health:
        """Assess the time since the last call; the most severe finding sets the level and the message."""
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
        # A shared topic comes first, as it causes other faults.
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
    """Return the smallest of the ordered values that is not below a share ``share`` of them, in ms."""
    if not ordered_s:
        return ""
    rank = -(-len(ordered_s) * share // 1)  # rounded up
    return _number(1e3 * ordered_s[max(0, int(rank) - 1)])
