"""The table of targets: one row for each, with its last answer and the state that it has by now.

The loop's thread publishes answers, the executor's thread takes them back and shows them in diagnostics, both
under the table's lock: what is published, taken back and shown is always of one answer.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from efftam_ros.core.types import Track, TrackState

if TYPE_CHECKING:
    from efftam_ros.core.reasons import Reason
    from efftam_ros.messages.fields import About

IDLE = TrackState.IDLE


@dataclass(frozen=True)
class PublishedAnswer:
    """When its image arrived and when it was published, s on the steady clock."""

    about: About
    track: Track
    arrived_s: float
    published_s: float


@dataclass
class TargetRow:
    """What the node knows of a target.

    ``selection``: the number of the last one that was accepted, 0 for none; ``answer``: the last one,
    None before the first; ``track``: that of the answer, or what has become of the target since, because
    images stopped; ``logged``: the state that was logged last; ``seconds``: that the answer took;
    ``taken_back_s``: when the answer was taken back last, None while it holds; ``box``: the last BoundingBox.
    """

    selection: int = 0
    answer: PublishedAnswer | None = None
    track: Track | None = None
    logged: TrackState = IDLE
    seconds: float | None = None
    taken_back_s: float | None = None
    box: Any = None


class TargetTable:
    """The targets of one activation. Thread-safe; `lock` is for several steps that belong together.

    A target that was cleared stays, IDLE, until the next answer for another one.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.rows: dict[int, TargetRow] = {}
        self.steered: int | None = 0
        """The target that is steered by."""
        self.turns = ""
        """Why not all targets are processed in each image; empty when they are."""

    @property
    def answers(self) -> dict[int, PublishedAnswer]:
        """The last answer for each target; empty before the first."""
        with self.lock:
            return {one: row.answer for one, row in sorted(self.rows.items()) if row.answer is not None}

    def select(self, target_id: int, number: int) -> None:
        """Note that a selection was accepted."""
        with self.lock:
            self.rows.setdefault(target_id, TargetRow()).selection = number

    def keep(self, target_id: int, answer: PublishedAnswer) -> TargetRow:
        """Store an answer."""
        with self.lock:
            for other, row in list(self.rows.items()):
                is_idle = row.answer is not None and row.answer.track.state is IDLE
                if other != target_id and is_idle:
                    del self.rows[other]
            row = self.rows.setdefault(target_id, TargetRow())
            row.answer, row.taken_back_s = answer, None
            return row

    def clear(self, target_id: int, reason: Reason) -> PublishedAnswer | None:
        """Make the target IDLE; return its IDLE answer, None when nothing was answered yet."""
        with self.lock:
            row = self.rows.get(target_id)
            if row is None or row.answer is None:
                return None
            last = row.answer
            track = Track(last.track.stamp_ns, IDLE, image_size=last.track.image_size, reason=reason)
            row.answer = replace(last, track=track, about=last.about._replace(selection=0))
            return row.answer

    def steer(self, target_id: int) -> None:
        """Steer by this target from now on, also by answers that are taken back."""
        with self.lock:
            self.steered = target_id
            for one, row in self.rows.items():
                if row.answer is not None:
                    about = row.answer.about._replace(steered=one == target_id)
                    row.answer = replace(row.answer, about=about)

    def change(self, target_id: int, track: Track) -> str:
        """Store a target's present state, also without an image. Returns how it differs from what was
        logged last, for the log; empty when it does not."""
        with self.lock:
            row = self.rows.get(target_id)
            if row is None:
                return ""  # another target was answered since it was cleared
            row.track, before, row.logged = track, row.logged, track.state
            name = self._name(target_id)
        return "" if track.state is before else f"{name}{before.name} -> {_state_of(track)}"

    # For diagnostics

    @property
    def shown(self) -> tuple[str, Track] | None:
        """State and track of the target that is steered by, or of the first; None before the first answer."""
        with self.lock:
            tracks = self._tracks
            if not tracks:
                return None
            target_id = self._first
            return self._name(target_id) + _state_of(tracks[target_id]), tracks[target_id]

    def findings(self) -> list[str]:
        """Return why some are not followed well, the one that is steered by first."""
        with self.lock:
            tracks = self._tracks
            ids = sorted(tracks, key=lambda one: (one != self._first, one))
            lost = [
                self._name(one) + _state_of(tracks[one])
                for one in ids
                if tracks[one].state is TrackState.LOST
            ]
            return [*lost, self.turns] if self.turns else lost

    def values(self) -> dict[str, str]:
        """Return the values of each target, where there are several."""
        with self.lock:
            tracks = self._tracks
            if len(tracks) < 2:
                return {}
            values = {
                "steered target": str(self.steered) if self.steered in tracks else "none",
                "targets per image": self.turns or "all",
            }
            for one, track in sorted(tracks.items()):
                seconds = self.rows[one].seconds
                values[f"target {one}"] = _state_of(track)
                values[f"target {one} (ms)"] = "" if seconds is None else f"{1e3 * seconds:.1f}"
            return values

    @property
    def _tracks(self) -> dict[int, Track]:
        return {one: row.track for one, row in self.rows.items() if row.track is not None}

    @property
    def _first(self) -> int:
        first, steered = min(self._tracks), self.steered
        return first if steered is None or steered not in self._tracks else steered

    def _name(self, target_id: int) -> str:
        return f"target {target_id}: " if len(self._tracks) > 1 else ""


def _state_of(track: Track) -> str:
    return f"{track.state.name}: {track.reason}" if track.reason else track.state.name
