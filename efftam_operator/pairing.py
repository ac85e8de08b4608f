"""Brings images and the tracker's reports on them together, by their stamps."""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import Any

from efftam_operator import wire
from efftam_operator.feed import Picture
from efftam_ros.core.geometry import Box
from efftam_ros.core.types import TrackState
from efftam_ros.messages.reports import BoxReport, MotionReport

MAX_TRACKS = 64
# The tracker publishes box and motion of an image together. A box waits for its motion at most this long, s:
# the motion may be lost.
MOTION_WAIT_S = 0.02
# A target without a report for this time is no longer shown, s.
FORGOTTEN_S = 5.0
# A picture waits for its box at most LEVEL_S seconds. It waits only while the tracker answers within LEVEL_S,
# and while the last answer is at most ANSWERED_S seconds old.
LEVEL_S, ANSWERED_S = 0.15, 0.5
MAX_WAITING_BYTES = 64 * 2**20


class WaitingPictures:
    """Holds pictures back for a short time until the tracker's box for them arrives.

    The page then draws a box on the image in which it was measured. A tracker that answers late, or not at
    all, delays no picture. Pictures are kept in order of arrival, not of their stamps, because stamps restart
    when a bag is played in a loop. ``now_s`` of every method comes from one monotonic clock.
    """

    def __init__(self) -> None:
        self._waiting: deque[tuple[float, Picture]] = deque()
        self._arrived: OrderedDict[int, float] = OrderedDict()
        self._answered: OrderedDict[int, None] = OrderedDict()
        self.forget(float("-inf"))

    def forget(self, now_s: float) -> None:
        """Drop all pictures, and assume from ``now_s`` on that the tracker answers in time."""
        self._waiting.clear()
        self._is_level, self._answered_s = True, now_s

    def add(self, picture: Picture, now_s: float) -> None:
        self._waiting.append((now_s, picture))
        self._arrived[picture.stamp_ns] = now_s
        _forget_oldest(self._arrived)
        while len(self._waiting) > 1 and sum(p.nbytes for _, p in self._waiting) > MAX_WAITING_BYTES:
            self._waiting.popleft()

    def answered(self, stamp_ns: int, now_s: float) -> None:
        """Note that the tracker's answer to the image of this stamp has arrived."""
        arrived_s = self._arrived.get(stamp_ns)
        if arrived_s is not None:
            self._is_level = now_s - arrived_s <= LEVEL_S
        else:  # the answer arrived before its picture, or long after it
            self._is_level = stamp_ns > next(reversed(self._arrived), 0)
        self._answered_s = now_s
        self._answered[stamp_ns] = None
        _forget_oldest(self._answered)

    def hold_s(self, now_s: float) -> float:
        """Return how long a picture waits for its box now, s; 0 while the tracker does not answer in time."""
        return LEVEL_S if self._is_level and now_s - self._answered_s <= ANSWERED_S else 0.0

    def newest(self, now_s: float) -> Picture | None:
        """Return the newest picture that need not wait any longer; None if there is none.

        This picture and all older ones are removed.
        """
        hold_s, chosen = self.hold_s(now_s), None
        for arrived_s, picture in self._waiting:
            if picture.stamp_ns in self._answered or now_s - arrived_s >= hold_s:
                chosen = picture
        while chosen is not None and self._waiting.popleft()[1] is not chosen:
            pass
        return chosen


@dataclass
class _TrackedImage:
    """The reports on one image, by target id."""

    arrived_s: float
    boxes: dict[int, BoxReport] = field(default_factory=dict)
    motions: dict[int, MotionReport] = field(default_factory=dict)


class Tracks:
    """Collects the reports on each image, which arrive in any order, and makes track messages of them.

    The tracker reports on the targets of an image one after the other, and may leave some targets out. Each
    message nevertheless contains all followed targets, the others with their last report. If further reports
    on an image arrive after its message was made, another message is made for this image.

    ``sent``: the last message for each stamp, the newest message last. ``steered``: id of the steered target;
    None if there is none.
    """

    def __init__(self) -> None:
        self.sent: OrderedDict[int, str] = OrderedDict()
        self.steered: int | None = None
        self._open: OrderedDict[int, _TrackedImage] = OrderedDict()
        self._last_seen: dict[int, tuple[int, Box]] = {}
        # For each followed target, by id: the time of its last report, and the last box and motion.
        self._followed: dict[int, tuple[float, BoxReport, MotionReport | None]] = {}

    def add_box(self, report: BoxReport, now_s: float) -> None:
        self._image(report.stamp_ns, now_s).boxes[report.target_id] = report
        if report.steered:
            self.steered = None if report.state is TrackState.IDLE else report.target_id
        elif self.steered == report.target_id:
            self.steered = None

    def add_motion(self, report: MotionReport, now_s: float) -> None:
        self._image(report.stamp_ns, now_s).motions[report.target_id] = report

    def finished(self, now_s: float, latency_ms: float) -> list[tuple[int, str]]:
        """Return (stamp, message) of each image whose reports can be sent, in order of stamp.

        Reports can be sent when those of all followed targets are there, or after `MOTION_WAIT_S`. The
        returned images are forgotten. ``latency_ms``: the latency that the messages contain.
        """
        done = sorted(
            (stamp_ns, image)
            for stamp_ns, image in self._open.items()
            if image.boxes
            and (
                self._followed.keys() | image.boxes.keys() <= image.boxes.keys() & image.motions.keys()
                or now_s - image.arrived_s >= MOTION_WAIT_S
            )
        )
        messages = []
        for stamp_ns, image in done:
            del self._open[stamp_ns]
            self.sent[stamp_ns] = text = self._message(stamp_ns, image, latency_ms, now_s)
            messages.append((stamp_ns, text))
        _forget_oldest(self.sent)
        return messages

    @property
    def is_waiting(self) -> bool:
        """Whether an image has a box, and its message was not made yet."""
        return any(image.boxes for image in self._open.values())

    def _image(self, stamp_ns: int, now_s: float) -> _TrackedImage:
        image = self._open.setdefault(stamp_ns, _TrackedImage(now_s))
        _forget_oldest(self._open)
        return image

    def _message(self, stamp_ns: int, image: _TrackedImage, latency_ms: float, now_s: float) -> str:
        for id, box in image.boxes.items():
            self._followed[id] = now_s, box, image.motions.get(id)
        # The report of a target's end may have been lost: without reports a target is forgotten.
        shown = {id: one for id, one in self._followed.items() if now_s - one[0] < FORGOTTEN_S}
        self._followed = {id: one for id, one in shown.items() if one[1].state is not TrackState.IDLE}
        message = {
            "op": "track",
            "stamp": str(stamp_ns),
            "image": list(next(iter(image.boxes.values())).image_size),
            # A latency of 1e7 ms or more shows that the stamps are of another clock: the latency is unknown.
            "latency_ms": round(latency_ms, 1) if abs(latency_ms) < 1e7 else None,
            "targets": [
                wire.target(box, motion, self._seen(box), max(0, stamp_ns - box.stamp_ns) / 1e9)
                for _, (_, box, motion) in sorted((self._followed or shown).items())
            ],
        }
        return wire.dumps(message)

    def _seen(self, report: BoxReport) -> Box | None:
        """Return the last reported box of this selection; None if there is none, or the target is IDLE."""
        if report.box is not None:
            self._last_seen[report.target_id] = report.selection, report.box
        selection, box = self._last_seen.get(report.target_id, (None, None))
        return box if selection == report.selection and report.state is not TrackState.IDLE else None


def _forget_oldest(entries: OrderedDict[int, Any]) -> None:
    while len(entries) > MAX_TRACKS:
        entries.popitem(last=False)
