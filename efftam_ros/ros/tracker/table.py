"""The table of targets: one row for each target, with its last answer and its present state.

The loop's thread publishes answers. The executor's thread publishes that they are not valid any more, and
reports the targets in diagnostics. Both hold the table's lock, so a message never mixes two answers.
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
    """The last answer for a target.

    ``arrived_s``: when its image arrived; ``published_s``: when it was published; both in s on the steady
    clock.
    """

    about: About
    track: Track
    arrived_s: float
    published_s: float


@dataclass
class TargetRow:
    """One target of the table.

    ``selection``: number of the last accepted selection of this target, 0 before the first. ``answer``: the
    last answer, None before the first. ``track``: the present state, which differs from that of the answer
    after images stopped. ``logged``: the state that was logged last. ``seconds``: computing time of the last
    answer, s. ``taken_back_s``: when the answer was last published with valid = false because answers
    stopped, s on the steady clock; None if it was not. ``box``: the last published BoundingBox.
    """

    selection: int = 0
    answer: PublishedAnswer | None = None
    track: Track | None = None
    logged: TrackState = IDLE
    seconds: float | None = None
    taken_back_s: float | None = None
    box: Any = None


class TargetTable:
    """The targets of one activation. Thread-safe; hold `lock` during several steps that belong together.

    A cleared target stays in the table as IDLE until another target is answered.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.rows: dict[int, TargetRow] = {}
        self.steered: int | None = 0
        """Id of the steered target; None: no target is steered."""
        self.turns = ""
        """Why not all targets are processed in each image; empty if all are."""

    @property
    def answers(self) -> dict[int, PublishedAnswer]:
        """The last answer for each target, by target id; empty before the first answer."""
        with self.lock:
            return {one: row.answer for one, row in sorted(self.rows.items()) if row.answer is not None}

    def select(self, target_id: int, number: int) -> None:
        """Store the number of a target's accepted selection."""
        with self.lock:
            self.rows.setdefault(target_id, TargetRow()).selection = number

    def keep(self, target_id: int, answer: PublishedAnswer) -> TargetRow:
        """Store an answer, remove all other targets that are IDLE, and return the target's row."""
        with self.lock:
            for other, row in list(self.rows.items()):
                is_idle = row.answer is not None and row.answer.track.state is IDLE
                if other != target_id and is_idle:
                    del self.rows[other]
            row = self.rows.setdefault(target_id, TargetRow())
            row.answer, row.taken_back_s = answer, None
            return row

    def clear(self, target_id: int, reason: Reason) -> PublishedAnswer | None:
        """Make a target IDLE and return its IDLE answer; None if the target never had an answer."""
        with self.lock:
            row = self.rows.get(target_id)
            if row is None or row.answer is None:
                return None
            last = row.answer
            track = Track(last.track.stamp_ns, IDLE, image_size=last.track.image_size, reason=reason)
            row.answer = replace(last, track=track, about=last.about._replace(selection=0))
            return row.answer

    def steer(self, target_id: int) -> None:
        """Make this target the steered one, also in the stored answers, which may be published again."""
        with self.lock:
            self.steered = target_id
            for one, row in self.rows.items():
                if row.answer is not None:
                    about = row.answer.about._replace(steered=one == target_id)
                    row.answer = replace(row.answer, about=about)

    def change(self, target_id: int, track: Track) -> str:
        """Store a target's present state.

        Returns a line for the log if the state differs from the one logged last, else an empty string.
        """
        with self.lock:
            row = self.rows.get(target_id)
            if row is None:
                return ""  # the target was cleared, and removed when another target was answered
            row.track, before, row.logged = track, row.logged, track.state
            name = self._name(target_id)
        return "" if track.state is before else f"{name}{before.name} -> {_state_of(track)}"

    # Methods for diagnostics

    @property
    def shown(self) -> tuple[str, Track] | None:
        """State and track of the steered target, or of the first target if none is steered.

        None before the first answer.
        """
        with self.lock:
            tracks = self._tracks
            if not tracks:
                return None
            target_id = self._first
            return self._name(target_id) + _state_of(tracks[target_id]), tracks[target_id]

    def findings(self) -> list[str]:
        """Return one line for each LOST target, the steered one first, then `turns` if it is not empty."""
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
        """Return the values of each target by name, for diagnostics; empty if fewer than two exist."""
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
