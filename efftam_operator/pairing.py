"""Pairs images and the reports on them by stamp."""

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
# Box and motion of an image are published together; the box waits at most this long for a lost motion.
MOTION_WAIT_S = 0.02
# A target without a report for so long is gone.
FORGOTTEN_S = 5.0
# A picture waits for its answer so long at most, and only while the tracker answers so quickly and answered
# lately.
LEVEL_S, ANSWERED_S = 0.15, 0.5
MAX_WAITING_BYTES = 64 * 2**20


class WaitingPictures:
    """Pictures that may still get their answer before they are shown, in order of arrival: stamps restart
    when a bag is played in a loop. ``now_s``: a monotonic clock.

    What is drawn then belongs to what is seen. A tracker that is behind, searches or is dead keeps no picture
    back.
    """

    def __init__(self) -> None:
        self._waiting: deque[tuple[float, Picture]] = deque()
        self._arrived: OrderedDict[int, float] = OrderedDict()
        self._answered: OrderedDict[int, None] = OrderedDict()
        self.forget(float("-inf"))

    def forget(self, now_s: float) -> None:
        """Start again; the tracker may answer from now on."""
        self._waiting.clear()
        self._is_level, self._answered_s = True, now_s

    def add(self, picture: Picture, now_s: float) -> None:
        self._waiting.append((now_s, picture))
        self._arrived[picture.stamp_ns] = now_s
        _forget_oldest(self._arrived)
        while len(self._waiting) > 1 and sum(p.nbytes for _, p in self._waiting) > MAX_WAITING_BYTES:
            self._waiting.popleft()

    def answered(self, stamp_ns: int, now_s: float) -> None:
        """Note that the tracker has answered this image."""
        arrived_s = self._arrived.get(stamp_ns)
        if arrived_s is not None:
            self._is_level = now_s - arrived_s <= LEVEL_S
        else:  # the answer came before its picture, or long after it
            self._is_level = stamp_ns > next(reversed(self._arrived), 0)
        self._answered_s = now_s
        self._answered[stamp_ns] = None
        _forget_oldest(self._answered)

    def hold_s(self, now_s: float) -> float:
        return LEVEL_S if self._is_level and now_s - self._answered_s <= ANSWERED_S else 0.0

    def newest(self, now_s: float) -> Picture | None:
        """Return the newest picture that waits no more; it and all older ones leave by this."""
        hold_s, chosen = self.hold_s(now_s), None
        for arrived_s, picture in self._waiting:
            if picture.stamp_ns in self._answered or now_s - arrived_s >= hold_s:
                chosen = picture
        while chosen is not None and self._waiting.popleft()[1] is not chosen:
            pass
        return chosen


@dataclass
class _TrackedImage:
    """The targets' reports for one image."""

    arrived_s: float
    boxes: dict[int, BoxReport] = field(default_factory=dict)
    motions: dict[int, MotionReport] = field(default_factory=dict)


class Tracks:
    """Collects the reports of each image, which come in any order, until they can be sent.

    ``sent``: what was sent on each stamp, the newest last; ``steered``: id of the steered target, None where
    there is none.

    Targets are answered one after the other and not each in every image: a message has all that are followed,
    and an image is sent again when more of its reports have come.
    """

    def __init__(self) -> None:
        self.sent: OrderedDict[int, str] = OrderedDict()
        self.steered: int | None = None
        self._open: OrderedDict[int, _TrackedImage] = OrderedDict()
        self._last_seen: dict[int, tuple[int, Box]] = {}
        # By target, as long as it is followed: what was sent last, and when.
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
        """Stamp and message of the images whose reports are all there, or have waited long enough, in order
        of stamp."""
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
        return any(image.boxes for image in self._open.values())

    def _image(self, stamp_ns: int, now_s: float) -> _TrackedImage:
        image = self._open.setdefault(stamp_ns, _TrackedImage(now_s))
        _forget_oldest(self._open)
        return image

    def _message(self, stamp_ns: int, image: _TrackedImage, latency_ms: float, now_s: float) -> str:
        for id, box in image.boxes.items():
            self._followed[id] = now_s, box, image.motions.get(id)
        # Targets whose end was not received here are forgotten.
        shown = {id: one for id, one in self._followed.items() if now_s - one[0] < FORGOTTEN_S}
        self._followed = {id: one for id, one in shown.items() if one[1].state is not TrackState.IDLE}
        message = {
            "op": "track",
            "stamp": str(stamp_ns),
            "image": list(next(iter(image.boxes.values())).image_size),
            # Stamps of another clock give no latency.
            "latency_ms": round(latency_ms, 1) if abs(latency_ms) < 1e7 else None,
            "targets": [
                wire.target(box, motion, self._seen(box), max(0, stamp_ns - box.stamp_ns) / 1e9)
                for _, (_, box, motion) in sorted((self._followed or shown).items())
            ],
        }
        return wire.dumps(message)

    def _seen(self, report: BoxReport) -> Box | None:
        """Return where the target was last seen before this report, until its selection ends."""
        if report.box is not None:
            self._last_seen[report.target_id] = report.selection, report.box
        selection, box = self._last_seen.get(report.target_id, (None, None))
        return box if selection == report.selection and report.state is not TrackState.IDLE else None


def _forget_oldest(entries: OrderedDict[int, Any]) -> None:
    while len(entries) > MAX_TRACKS:
        entries.popitem(last=False)
