"""What the judge is asked, replayed from recordings: features with truth.

The recorded images are gone through as the tracker went through them: the same looks are learnt, the same
candidate tracks are followed. Features can so be changed without recording anew.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box, View, iou
from efftam_ros.core.policies.search import Detection, Reacquisition
from efftam_ros.core.types import MISSED, Motion, TrackState
from training.judge.looks import Gallery
from training.judge.model import FEATURES, UNKNOWN, Evidence, Judge, Known, Place, features, track_features

RIGHT_IOU, SMALL_RIGHT_IOU, SMALL_PX, WRONG_IOU = 0.5, 0.3, 16.0, 0.1
SAME_IOU = 0.1  # of candidates of one window that show one object
USUAL_FRAMES = 60
MIN_POINTS = 6  # fewest points whose end is evidence
SURE = 0.8  # confidence from which a look is learnt
ALIKE = 0.58  # likeness from which a look is learnt before there is a judge
FOLLOWED_OVERLAP = 0.8  # usual IoU of what is followed with its prediction
FOLLOWED = -1  # run of the questions to `seen` about what is followed
EDGE_PX = 1.5  # distance of a box from the image's edge at which it is cut


@dataclass
class Asked:
    """Questions of one kind: numbers [n, f], whether right (1), wrong (0) or neither (NaN) [n], and of each
    the recording, the image, and whether the tracker claimed it."""

    numbers: list[NDArray[np.float64]] = field(default_factory=list)
    right: list[float] = field(default_factory=list)
    source: list[int] = field(default_factory=list)
    stamp: list[float] = field(default_factory=list)
    run: list[int] = field(default_factory=list)

    def add(self, numbers: NDArray[np.float64], right: float, source: int, stamp_s: float, run: int) -> None:
        self.numbers.append(numbers)
        self.right.append(right)
        self.source.append(source)
        self.stamp.append(stamp_s)
        self.run.append(run)


@dataclass(frozen=True)
class Recording:
    path: Path
    columns: dict[str, NDArray[Any]]

    @property
    def name(self) -> str:
        return str(self.columns["name"])

    @property
    def half(self) -> str:
        return str(self.columns["half"])

    @property
    def kind(self) -> str:
        return str(self.columns["kind"])

    @property
    def footage(self) -> str:
        """The sequence: what is left out at once."""
        return self.name.rpartition(".")[0]


def read_recordings(folder: Path) -> list[Recording]:
    """All recordings of a folder, by name. Raises InputError when there is none."""
    found = []
    for path in sorted(folder.glob("*.npz")):
        with np.load(path) as content:
            found.append(Recording(path, {name: content[name] for name in content.files}))
    if not found:
        raise InputError(f"{folder} has no recordings; make them with `training judge record`")
    return found


def ask(
    recordings: Sequence[Recording], judge: Judge | None = None, learns: bool = False
) -> dict[str, Asked]:
    """All questions that the recordings contain, by kind.

    ``judge``: weighs the detections of candidate tracks; without one there are no tracks. ``learns``: it also
    decides which looks are learnt; else those are which are like the target.
    """
    asked = {kind: Asked() for kind in FEATURES}
    for number, recording in enumerate(recordings):
        _Replay(recording, judge, number, asked, learns).run()
    return asked


@dataclass(frozen=True)
class _Seen:
    box: Box
    area: float
    quality: float
    logit: float
    overlap: float
    vector: NDArray[np.float32]
    points: int
    window: int
    view: View

    @property
    def size(self) -> float:
        return self.box.size


class _Replay:
    def __init__(
        self,
        recording: Recording,
        judge: Judge | None,
        number: int,
        asked: dict[str, Asked],
        learns: bool,
    ) -> None:
        self.columns, self.judge, self.number, self.asked = recording.columns, judge, number, asked
        self.learns = learns
        self.gallery, self.search = Gallery(), Reacquisition()
        self.qualities: list[float] = []
        self.evidence: float | None = None
        self.confidence = 1.0
        self.last_size, self.runs, self.impostors = UNKNOWN, 0, 0
        self.size = tuple(int(v) for v in self.columns["frame_size"][0])

    def run(self) -> None:
        columns = self.columns
        stamps, states = columns["frame_stamp_ns"], columns["frame_state"]
        self.gallery.add_prompt(columns["frame_prompt"][0].astype(np.float32), int(stamps[0]))
        selected = True  # since the selection, without a miss
        self.last_size = box_of(columns["frame_truth"][0]).size
        for row in range(1, len(stamps)):
            stamp, missed = int(stamps[row]), TrackState(int(states[row - 1])) in MISSED
            camera = columns["frame_camera"][row]
            matrix = camera if np.isfinite(camera).all() else None
            self.search.is_camera_known = matrix is not None
            if self.search.is_running:
                self.search.follow_camera(matrix)
            seen = list(self._candidates(row))
            own = [one for one in seen if one.window < 0]
            truth = columns["frame_truth"][row]
            if missed:
                self._missed(row, stamp, seen, truth)
                self.evidence = None
            else:
                self._followed(row, stamp, own, truth, stamp - int(stamps[row - 1]))
            state, measured = TrackState(int(states[row])), bool(columns["frame_measured"][row])
            selected = selected and state is TrackState.ACQUIRING
            if measured and (state is TrackState.TRACKING or selected):
                self._confirm(row, stamp, own)
            elif not measured:
                self.gallery.miss()
                self.runs += 1
                if not missed:
                    self._begin(row - 1, stamp)

    def _candidates(self, row: int) -> Iterator[_Seen]:
        columns = self.columns
        if "candidate_frame" not in columns:
            return
        for at in np.flatnonzero(columns["candidate_frame"] == row):
            x, y, width, height = (float(v) for v in columns["candidate_view"][at])
            yield _Seen(
                box_of(columns["candidate_box"][at]),
                float(columns["candidate_area"][at]),
                float(columns["candidate_quality"][at]),
                float(columns["candidate_logit"][at]),
                float(columns["candidate_overlap"][at]),
                columns["candidate_vector"][at].astype(np.float32),
                int(columns["candidate_points"][at]),
                int(columns["candidate_window"][at]),
                View(x, y, 1.0 / width, 1.0 / height, 1),
            )

    def _known(self, size: float) -> Known:
        quality = median(self.qualities[-USUAL_FRAMES:]) if self.qualities else UNKNOWN
        gallery = self.gallery
        return Known(quality, size, gallery.usual, gallery.spread, gallery.around)

    def _evidence(self, seen: _Seen, **more: float) -> Evidence:
        likeness = self.gallery.likeness(seen.vector)
        left, top, right, bottom = seen.box.edges()
        cut = min(left, top, self.size[0] - right, self.size[1] - bottom) < EDGE_PX
        return Evidence(seen.logit, seen.quality, seen.size, likeness, cut, **more)

    def _followed(
        self, row: int, stamp: int, own: list[_Seen], truth: NDArray[np.float64], dt_ns: int
    ) -> None:
        expected = box_of(self.columns["frame_expected"][row])
        if expected.is_empty or not own:
            return
        ranked = sorted(own, key=lambda one: -one.quality - 0.2 * iou(one.box, expected))
        top = ranked[0]
        earlier = int(self.columns["frame_points"][row])
        share = top.points / earlier if earlier >= MIN_POINTS else UNKNOWN
        evidence = self._evidence(
            top,
            overlap=iou(top.box, expected),
            points=min(share, 1.0) if share == share else UNKNOWN,
            continuity=self.gallery.continuity(top.vector),
        )
        known = self._known(expected.size)
        right = _right(top, truth)
        self.asked["seen"].add(features("seen", evidence, known), right, self.number, stamp * 1e-9, FOLLOWED)
        if self.judge is not None:
            # The evidence of this image alone: `fit` averages it.
            now = self.judge.of_candidate(evidence, known)
            weighed = features("followed", evidence, known, now)
            self.asked["followed"].add(weighed, right, self.number, stamp * 1e-9, self.runs)
            self.evidence = self.judge.continued(self.evidence, now, dt_ns * 1e-9)
            self.confidence = self.judge.of_followed(self.evidence, evidence, known)

    def _begin(self, row: int, stamp: int) -> None:
        """The search begins: the target was last estimated in the image of this row."""
        columns = self.columns
        box = box_of(columns["frame_estimate"][row])
        if box.is_empty:
            return
        velocity = columns["frame_velocity"][row]
        vx, vy = (0.0, 0.0) if not np.isfinite(velocity).all() else (float(velocity[0]), float(velocity[1]))
        motion = Motion(int(columns["frame_stamp_ns"][row]), box, (vx, vy), np.eye(4))
        self.search.begin(self.size, SimpleNamespace(ground=motion))  # type: ignore[arg-type]
        self.last_size = box.size

    def _missed(self, row: int, stamp: int, seen: list[_Seen], truth: NDArray[np.float64]) -> None:
        prior = self.search.prior
        known = self._known(prior.size if prior is not None else self.last_size)
        objects: list[_Seen] = []  # one for each object of each window
        for one in sorted(seen, key=lambda one: -one.quality):
            if all(other.window != one.window or iou(one.box, other.box) < SAME_IOU for other in objects):
                objects.append(one)
        likenesses = [self.gallery.likeness(one.vector) for one in objects]
        shown: dict[int, tuple[View, list[Detection]]] = {}
        for one in objects:
            others = [
                like
                for other, like in zip(objects, likenesses, strict=True)
                if iou(one.box, other.box) < SAME_IOU and not math.isnan(like)
            ]
            evidence = self._evidence(one, rival=max(others, default=UNKNOWN))
            numbers = features("seen", evidence, known)
            self.asked["seen"].add(numbers, _right(one, truth), self.number, stamp * 1e-9, self.runs)
            if self.judge is not None:
                llr = self.judge.of_candidate(evidence, known)
                self._impostor(one, evidence, known, llr, truth, stamp)
                shown.setdefault(one.window, (one.view, []))[1].append(Detection(one.box, one.quality, llr))
        if self.judge is None or not shown:
            return
        if not self.search.is_running:
            self._begin(row - 1, stamp)
        self.search.observe(stamp, list(shown.values()))
        self._tracks(stamp, truth)

    def _impostor(
        self,
        seen: _Seen,
        evidence: Evidence,
        known: Known,
        llr: float,
        truth: NDArray[np.float64],
        stamp: int,
    ) -> None:
        """What the network takes for the target while that is missed could be followed in its place: a
        question that is seldom recorded."""
        if seen.logit > 0 and _right(seen, truth) == 0:
            self.impostors += 1
            taken = replace(evidence, overlap=FOLLOWED_OVERLAP, rival=UNKNOWN)
            numbers = features("followed", taken, known, llr)
            self.asked["followed"].add(numbers, 0.0, self.number, stamp * 1e-9, -self.impostors)

    def _tracks(self, stamp: int, truth: NDArray[np.float64]) -> None:
        tracks = self.search.tracks
        weighed = track_features([Place(track.llr, track.prior) for track in tracks])
        for track, numbers in zip(tracks, weighed, strict=True):
            if track.seen_ns != stamp:
                continue
            overlap = 0.0 if not np.isfinite(truth).all() else iou(track.box, box_of(truth))
            right = 1.0 if overlap >= 0.3 else 0.0 if overlap < WRONG_IOU else math.nan
            self.asked["track"].add(numbers, right, self.number, stamp * 1e-9, self.runs)

    def _confirm(self, row: int, stamp: int, own: list[_Seen]) -> None:
        """The tracker claims what is seen in this image."""
        box = box_of(self.columns["frame_box"][row])
        if not own or box.is_empty:
            return
        chosen = max(own, key=lambda one: iou(one.box, box))
        self.qualities.append(chosen.quality)
        self.search.stop()
        if self.judge is not None and self.learns:
            is_sure = self.confidence >= SURE
        else:
            is_sure = self.gallery.likeness(chosen.vector) >= ALIKE
        if self.gallery.is_due(stamp):
            self.gallery.look(chosen.vector, stamp, is_sure)
        if "beside_frame" in self.columns:
            at = np.flatnonzero(self.columns["beside_frame"] == row)
            self.gallery.look_beside(self.columns["beside_vector"][at].astype(np.float32))


def box_of(row: NDArray[np.float64]) -> Box:
    return Box(*(float(value) for value in row))


def _right(seen: _Seen, truth: NDArray[np.float64]) -> float:
    """1: it is the target, 0: it is not, NaN: it is a part of it or more than it."""
    if not np.isfinite(truth).all():
        return 0.0
    least = SMALL_RIGHT_IOU if math.sqrt(truth[2] * truth[3]) < SMALL_PX else RIGHT_IOU
    return 1.0 if seen.overlap >= least else 0.0 if seen.overlap < WRONG_IOU else math.nan
