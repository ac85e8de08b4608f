"""Recordings of the tracker, and their replay with the policy as it is now.

The replay goes through the images of a recording as the tracker did: the policy learns the same usual values,
the gallery the same looks. What the policy answers can so be tried on hundreds of clips in seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.errors import InputError
from efftam_ros.core.gallery import Gallery, Looks
from efftam_ros.core.geometry import Box, View, iou
from efftam_ros.core.policies.base import Choice, FrameContext
from efftam_ros.core.policies.default import DefaultPolicy
from efftam_ros.core.policies.search import Reacquisition
from efftam_ros.core.types import Candidates, Frame, Image, PipelineSpec, TrackState
from training.judge.record import OWN_VIEW

RIGHT_IOU, SMALL_RIGHT_IOU, SMALL_PX, WRONG_IOU = 0.5, 0.3, 16.0, 0.1
SPEC = PipelineSpec("recorded", 192, 7, None, 16, 24)
BLANK = Image.from_array(np.zeros((1, 1, 3), np.uint8))


@dataclass(frozen=True)
class Recording:
    """One file of `record`. ``columns``: its arrays, by name."""

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
        """The sequence that the clip was made of."""
        return self.name.rpartition(".")[0]


def read_recordings(folder: Path) -> list[Recording]:
    """Read all recordings of a folder, by name. Raises InputError when there is none."""
    found = []
    for path in sorted(folder.glob("*.npz")):
        with np.load(path) as content:
            found.append(Recording(path, {name: content[name] for name in content.files}))
    if not found:
        raise InputError(f"{folder} has no recordings; make them with `training judge record`")
    return found


def box_of(row: NDArray[np.float64]) -> Box:
    return Box(*(float(value) for value in row))


@dataclass
class Shown:
    """What the network showed in an image: view and candidates by window, and vectors by box."""

    windows: dict[int, tuple[View, Candidates]] = field(default_factory=dict)
    vectors: dict[Box, NDArray[np.float32]] = field(default_factory=dict)

    def describe(self, image: Image, boxes: Sequence[Box]) -> NDArray[np.float32]:
        """Return the recorded vectors of boxes; the image is not used."""
        return np.stack([self.vectors[box] for box in boxes])


class Replay:
    """Policy and gallery, as they were in the images of a recording."""

    def __init__(self, recording: Recording) -> None:
        self.recording, self.columns = recording, recording.columns
        self.config = TrackerConfig()
        self.policy, self.gallery, self.search = DefaultPolicy(SPEC, self.config), Gallery(), Reacquisition()
        width, height = (int(side) for side in self.columns["frame_size"][0])
        self.size = width, height
        self.confirmed_ns: int | None = None
        prompt = self.columns["frame_prompt"][0].astype(np.float32)
        self.gallery.add_prompt(prompt, int(self.columns["frame_stamp_ns"][0]))

    def shown(self, row: int) -> Shown:
        """Return what the network showed in the image of this row."""
        columns, shown = self.columns, Shown()
        if "candidate_frame" not in columns:
            return shown
        rows = np.flatnonzero(columns["candidate_frame"] == row)
        for window in sorted(set(columns["candidate_window"][rows].tolist())):
            at = rows[columns["candidate_window"][rows] == window]
            x, y, width, height = (float(value) for value in columns["candidate_view"][at[0]])
            boxes = columns["candidate_box"][at]
            edges = np.concatenate([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], axis=1).astype(np.float32)
            areas, ious = (
                columns[f"candidate_{name}"][at].astype(np.float32) for name in ("area", "quality")
            )
            candidates = Candidates(edges, areas, ious, float(columns["candidate_logit"][at[0]]))
            shown.windows[window] = View(x, y, 1.0 / width, 1.0 / height, 1), candidates
            for number, box in candidates.visible:
                shown.vectors[box] = columns["candidate_vector"][at[number]].astype(np.float32)
        return shown

    def claimed(self, row: int, shown: Shown) -> tuple[int, Box]:
        """Return number and box of the candidate in the own view that the recorded tracker claimed."""
        _, own = shown.windows[OWN_VIEW]
        box = box_of(self.columns["frame_box"][row])
        return max(own.visible, key=lambda one: iou(one[1], box))

    def context(self, row: int, before: TrackState, view: View, looks: Looks) -> FrameContext:
        """Return what the policy knows of the image. ``before``: the target's state before it."""
        predicted = box_of(self.columns["frame_estimate"][row])
        motion: Any = None if predicted.is_empty else SimpleNamespace(box=predicted)
        return FrameContext(
            Frame(BLANK, int(self.columns["frame_stamp_ns"][row])),
            self.size,
            before,
            self.search,
            looks,
            motion=motion,
            view=view,
            is_confirmed=False,
            confirmed_ns=self.confirmed_ns,
        )

    def confirm(self, row: int, shown: Shown) -> None:
        """Learn from an image in which the state of the recorded tracker claims the target."""
        stamp = int(self.columns["frame_stamp_ns"][row])
        self.confirmed_ns = stamp
        view, own = shown.windows[OWN_VIEW]
        index, box = self.claimed(row, shown)
        looks = Looks(self.gallery, BLANK, shown.describe)
        context = self.context(row, TrackState.TRACKING, view, looks)
        keeps = self.policy.keeps(own, Choice(index, True, box), context, True)
        if self.gallery.is_due(stamp):
            self.gallery.look(shown.vectors[box], stamp, keeps)
