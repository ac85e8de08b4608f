"""Pairs images, boxes and motions by stamp."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from efftam_ros.operator.feed import BoxReport, MotionReport, Picture

# Pictures are large and a tracker answers within a few periods; boxes are small.
MOST_PICTURES = 8
MOST_TRACKS = 64
# Box and motion of an image are published together; the box waits at most this long for a lost motion.
MOTION_WAIT_S = 0.02


@dataclass
class TrackedImage:
    """The targets' reports for one image."""

    stamp_ns: int
    boxes: dict[int, BoxReport] = field(default_factory=dict)
    motions: dict[int, MotionReport] = field(default_factory=dict)
    arrived_s: float = 0.0

    @property
    def image_size(self) -> tuple[int, int]:
        return next(iter(self.boxes.values())).image_size

    @property
    def is_complete(self) -> bool:
        return bool(self.boxes) and self.boxes.keys() <= self.motions.keys()


class Pairing:
    """Collects reports and pictures until they can be shown. ``now_s``: a monotonic clock.

    A picture is shown only once the box of its stamp is there: what is drawn then belongs to what is seen,
    and the tracker has surely had that image.
    """

    def __init__(self) -> None:
        self._pictures: OrderedDict[int, Picture] = OrderedDict()
        self._open: OrderedDict[int, TrackedImage] = OrderedDict()
        self._told: OrderedDict[int, None] = OrderedDict()

    def add_picture(self, picture: Picture) -> None:
        self._pictures[picture.stamp_ns] = picture
        while len(self._pictures) > MOST_PICTURES:
            self._pictures.popitem(last=False)

    def add_box(self, report: BoxReport, now_s: float) -> None:
        self._image(report.stamp_ns, now_s).boxes[report.target_id] = report

    def add_motion(self, report: MotionReport, now_s: float) -> None:
        # A report that arrives after its image was sent is dropped.
        if report.stamp_ns not in self._told:
            self._image(report.stamp_ns, now_s).motions[report.target_id] = report

    def finished(self, now_s: float) -> list[TrackedImage]:
        """Images whose reports are all there, or that have waited long enough, in order of stamp."""
        done = [
            image
            for image in self._open.values()
            if image.is_complete or (image.boxes and now_s - image.arrived_s >= MOTION_WAIT_S)
        ]
        for image in done:
            del self._open[image.stamp_ns]
            self._told[image.stamp_ns] = None
        while len(self._told) > MOST_TRACKS:
            self._told.popitem(last=False)
        return sorted(done, key=lambda image: image.stamp_ns)

    def newest_picture(self) -> Picture | None:
        """The newest picture whose track has been told; it and all older ones are given out or dropped by
        this."""
        told = [stamp for stamp in self._pictures if stamp in self._told]
        if not told:
            return None
        # In order of arrival, not by stamp: stamps restart when a bag is played in a loop.
        chosen = self._pictures[told[-1]]
        for stamp in list(self._pictures):
            del self._pictures[stamp]
            if stamp == chosen.stamp_ns:
                break
        return chosen

    @property
    def is_waiting(self) -> bool:
        """Whether a box waits for its motion."""
        return any(image.boxes for image in self._open.values())

    def _image(self, stamp_ns: int, now_s: float) -> TrackedImage:
        image = self._open.setdefault(stamp_ns, TrackedImage(stamp_ns, arrived_s=now_s))
        while len(self._open) > MOST_TRACKS:
            self._open.popitem(last=False)
        return image
