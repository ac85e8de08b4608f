"""How the node is doing: counters fed by the threads, and the verdict that goes to /diagnostics.

Free of ROS, so that the verdict can be tested by numbers; the node puts it into a message.
"""

from __future__ import annotations

import statistics
import threading
from collections import deque
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import pairwise

from efftam_ros.core.types import Track, TrackState

# Times over which rates, latencies and losses are judged, s.
WINDOW_S = 10.0
# Fewer images than this say nothing about a rate.
FEWEST_IMAGES = 8
# Share of images lost on the way from which on it is a fault: jitter in the stamps alone can look like a
# third.
LOSS_LIMIT = 0.5
PROFILE_REMEDY = (
    "the sender's shared memory is too small for images: start the camera driver with"
    " FASTRTPS_DEFAULT_PROFILES_FILE and FASTDDS_DEFAULT_PROFILES_FILE set to efftam_ros's"
    " config/fastdds_images.xml, or subscribe reliably by qos_overrides"
)


class Level(IntEnum):
    """diagnostic_msgs/DiagnosticStatus.level."""

    OK = 0
    WARN = 1
    ERROR = 2
    STALE = 3


@dataclass(frozen=True)
class Health:
    """One DiagnosticStatus: level, one line, and values by name."""

    level: Level
    message: str
    values: dict[str, str]


@dataclass(frozen=True)
class Setup:
    """What the node runs with: constant between two configurations."""

    lifecycle: str = "unconfigured"
    values: dict[str, str] = field(default_factory=dict)
    fault: str = ""


class Statistics:
    """Counts what happens, from any thread. Times are those of the steady clock, s, except image stamps,
    ns."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._arrivals: deque[tuple[float, int]] = deque()
        self._answers: deque[tuple[float, float]] = deque()
        self._counts = {"received": 0, "processed": 0, "dropped": 0, "refused": 0, "selections_refused": 0}
        self._last = {"image": "", "selection": "", "qos": "", "bearing": "", "failure": ""}
        self._fresh: set[str] = set()  # faults since the last verdict
        self._track: Track | None = None
        self._lost = False
        self._stall = ""

    def image_received(self, now_s: float, stamp_ns: int) -> None:
        with self._lock:
            self._counts["received"] += 1
            if self._arrivals and stamp_ns < self._arrivals[-1][1]:
                self._arrivals.clear()
            self._arrivals.append((now_s, stamp_ns))
            _forget(self._arrivals, now_s)

    def answered(self, now_s: float, latency_s: float, track: Track) -> None:
        """A box was published ``latency_s`` after its image had arrived."""
        with self._lock:
            self._counts["processed"] += 1
            self._answers.append((now_s, latency_s))
            self._track, self._stall = track, ""
            _forget(self._answers, now_s)

    def state(self, track: Track) -> None:
        """The target's state changed without an image."""
        with self._lock:
            self._track = track

    def stalled(self, reason: str) -> None:
        """Images come and no answer does; until the next answer."""
        with self._lock:
            self._stall = reason

    def dropped(self, images: int) -> None:
        """Images that were passed over because newer ones had come."""
        with self._lock:
            self._counts["dropped"] += images

    def image_refused(self, reason: str) -> None:
        self._fault("image", reason, "refused")

    def selection_refused(self, reason: str) -> None:
        self._fault("selection", reason, "selections_refused")

    def incompatible_qos(self, reason: str) -> None:
        self._fault("qos", reason)

    def no_bearing(self, reason: str) -> None:
        self._fault("bearing", reason)

    def failed(self, reason: str, for_good: bool = False) -> None:
        """The tracker raised; ``for_good``: and will go on doing so until the process is restarted."""
        self._lost = self._lost or for_good
        self._fault("failure", reason)

    def _fault(self, kind: str, reason: str, count: str = "") -> None:
        with self._lock:
            if count:
                self._counts[count] += 1
            self._last[kind] = reason
            self._fresh.add(kind)

    def verdict(self, now_s: float, setup: Setup, image_timeout_s: float) -> Health:
        """Judge the time since the last verdict; the worst finding gives the level and the line."""
        with self._lock:
            _forget(self._arrivals, now_s)
            _forget(self._answers, now_s)
            loss, track = lost_share([stamp for _, stamp in self._arrivals]), self._track
            findings = self._findings(now_s, setup, image_timeout_s, loss)
            self._fresh.clear()
            values = self._values(loss) | setup.values | {"lifecycle": setup.lifecycle}
        level, message = max(findings, key=lambda finding: _WEIGHT[finding[0]])
        if level is Level.OK and track is not None and setup.lifecycle == "active":
            message = f"{track.state.name}: {track.reason}" if track.reason else track.state.name
        return Health(level, message, values)

    def _findings(
        self, now_s: float, setup: Setup, image_timeout_s: float, loss: float | None
    ) -> list[tuple[Level, str]]:
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
        minor = [kind for kind in ("image", "selection", "bearing") if kind in self._fresh]
        found += [(Level.WARN, self._last[kind]) for kind in minor]
        if self._counts["received"] == 0:
            found.append((Level.STALE, "no image has arrived yet; is the topic image right?"))
        elif not self._arrivals or now_s - self._arrivals[-1][0] > image_timeout_s:
            found.append((Level.STALE, f"no image for more than {image_timeout_s:g} s (image_timeout)"))
        elif loss is not None and loss > LOSS_LIMIT:
            found.append((Level.WARN, f"{loss:.0%} of the images are lost on the way: {PROFILE_REMEDY}"))
        if self._track is not None and self._track.state is TrackState.LOST:
            found.append((Level.WARN, f"LOST: {self._track.reason}" if self._track.reason else "LOST"))
        return found

    def _values(self, loss: float | None) -> dict[str, str]:
        latencies = sorted(latency for _, latency in self._answers)
        track = self._track
        values = {
            "state": track.state.name if track is not None else "",
            "reason": track.reason if track is not None else "",
            "image rate (Hz)": _rate([moment for moment, _ in self._arrivals]),
            "answer rate (Hz)": _rate([moment for moment, _ in self._answers]),
            "latency p50 (ms)": f"{1e3 * statistics.median(latencies):.1f}" if latencies else "",
            "latency p99 (ms)": f"{1e3 * latencies[int(0.99 * (len(latencies) - 1))]:.1f}"
            if latencies
            else "",
            "images received": str(self._counts["received"]),
            "images processed": str(self._counts["processed"]),
            "images dropped (newer came)": str(self._counts["dropped"]),
            "images refused": str(self._counts["refused"]),
            "images lost on the way": "" if loss is None else f"{loss:.0%}",
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


# What is worth telling first: a fault explains the silence that follows from it.
_WEIGHT = {Level.OK: 0, Level.WARN: 1, Level.STALE: 2, Level.ERROR: 3}


def lost_share(stamps_ns: list[int]) -> float | None:
    """Share of images that were stamped but never arrived, 0..1; None when too few came to say.

    Judged from the stamps alone: the camera's period is taken as a short one of the gaps seen, and what is
    missing between the first and the last stamp at that period was lost.
    """
    if len(stamps_ns) < FEWEST_IMAGES:
        return None
    gaps = sorted(b - a for a, b in pairwise(stamps_ns))
    period = gaps[len(gaps) // 10]
    if period <= 0:
        return None
    sent = (stamps_ns[-1] - stamps_ns[0]) / period + 1
    return max(0.0, 1.0 - len(stamps_ns) / sent)


def _rate(moments: list[float]) -> str:
    if len(moments) < 2 or moments[-1] <= moments[0]:
        return ""
    return f"{(len(moments) - 1) / (moments[-1] - moments[0]):.1f}"


def _forget(samples: deque[tuple[float, int]] | deque[tuple[float, float]], now_s: float) -> None:
    while samples and samples[0][0] < now_s - WINDOW_S:
        samples.popleft()
