"""The memory bank: which frames are kept in the ring, and which of them a frame attends to.

It handles indices only, never tensors. Frames are counted from the prompt (0). A rule derives from the
records the plan for a frame and the set of frames that later plans may need; the bank evicts only the others.
This bounds the ring: SAMURAI's rule needs at most 1 prompt + 15 pointers + 6 older valid frames = 22 slots.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from efftam_ros.core.types import MemoryPlan

SPACING_NS = 150_000_000
"""Least interval between the frames that `RankedFrames` attends to, except the newest: otherwise an object
that covers the target within a few images would soon be all that is remembered."""


@dataclass(frozen=True)
class Record:
    """One remembered frame.

    ``quality``: predicted IoU; ``motion_iou``: overlap with the predicted box, None if the policy has none;
    ``is_spaced``: whether enough time (`SPACING_NS`) has passed since the previous spaced frame.
    """

    frame: int
    prompted: bool
    quality: float
    presence_logit: float
    motion_iou: float | None = None
    is_spaced: bool = True


@dataclass(frozen=True)
class AttendedFrames:
    """What a frame attends to: ``maps`` as (frame, temporal row) in order, ``pointers`` as frames."""

    maps: tuple[tuple[int, int], ...]
    pointers: tuple[int, ...]


class Rule(Protocol):
    """Decides which remembered frames a frame attends to."""

    def attention(self, records: Sequence[Record], frame: int) -> AttendedFrames: ...

    def needed(self, records: Sequence[Record], frame: int) -> set[int]:
        """Frames to which frame ``frame`` or any later one may attend."""
        ...


@dataclass(frozen=True)
class RankedFrames:
    """The default policy's rule: the prompt on the last row, then recent frames by rank (newest on row 0).

    Recent frames are the newest frame and the last spaced ones before it, except the latest spaced one; while
    there are too few of them, the last frames fill up. The policy stores only frames that it wants to
    remember, so they are not filtered again. ``recent``: number of recent maps that the network was trained
    with; ``max_maps``: limit on the prompt and recent maps together."""

    temporal_rows: int
    recent: int
    max_maps: int
    max_pointers: int

    def attention(self, records: Sequence[Record], frame: int) -> AttendedFrames:
        prompted: list[int] = []
        others: list[int] = []
        spaced: list[int] = []
        for record in records:
            (prompted if record.prompted else others).append(record.frame)
            if record.is_spaced and not record.prompted:
                spaced.append(record.frame)
        room = min(self.recent, self.max_maps - len(prompted), self.temporal_rows - 1)
        recent = _newest_and_spaced(others, spaced[:-1], room)
        rows = [self.temporal_rows - 1] * len(prompted) + list(range(len(recent) - 1, -1, -1))
        maps = tuple(zip(prompted + recent, rows, strict=True))
        return AttendedFrames(maps, tuple((prompted + others[::-1])[: self.max_pointers]))

    def needed(self, records: Sequence[Record], frame: int) -> set[int]:
        prompted = [r.frame for r in records if r.prompted]
        others = [r.frame for r in records if not r.prompted]
        spaced = [r.frame for r in records if r.is_spaced and not r.prompted]
        latest = max(self.max_pointers - len(prompted), self.recent, 1)
        return {*prompted, *others[-latest:], *spaced[-self.recent - 1 :]}


def _newest_and_spaced(frames: list[int], spaced: list[int], count: int) -> list[int]:
    """Return the last of ``frames`` and the last ones of ``spaced``, ``count`` together, in order; where
    ``spaced`` has too few, further ones from the end of ``frames``."""
    if count <= 0:
        return []
    chosen = frames[-1:] + spaced[len(spaced) - min(count - 1, len(spaced)) :]
    if len(chosen) < count:
        chosen += [frame for frame in reversed(frames) if frame not in chosen][: count - len(chosen)]
    return sorted(chosen)


class MemoryBank:
    """The records of a target and their ring slots. Counts the frames since the prompt; per frame either
    `store` or `skip`, then `make_plan`. Raises ValueError when a rule needs more frames than there are
    slots."""

    def __init__(self, rule: Rule, slots: int) -> None:
        self.rule = rule
        self.size = slots
        self._free = list(range(slots - 1, -1, -1))
        self._slots: dict[int, int] = {}
        self.records: list[Record] = []
        self.count = 0
        """Frames that are closed."""
        self.plan = MemoryPlan()
        """The memory that the next frame attends to."""
        self._spaced_ns: int | None = None  # stamp of the last spaced frame

    def store(
        self,
        stamp_ns: int,
        quality: float,
        presence_logit: float,
        motion_iou: float | None = None,
        prompted: bool = False,
    ) -> int:
        """Close the frame and keep it; returns its slot. For the arguments see `Record`."""
        spaced_ns = self._spaced_ns
        # Earlier than the last one: the stamps went back.
        is_spaced = spaced_ns is None or not 0 <= stamp_ns - spaced_ns < SPACING_NS
        if is_spaced:
            self._spaced_ns = stamp_ns
        slot = self.add(Record(self.count, prompted, quality, presence_logit, motion_iou, is_spaced))
        self.count += 1
        return slot

    def skip(self) -> None:
        """Close the frame without keeping it."""
        self.count += 1

    def make_plan(self) -> None:
        """Choose what the next frame attends to."""
        self.plan = self.plan_of(self.count)

    def plan_of(self, frame: int) -> MemoryPlan:
        """Return what frame ``frame`` attends to."""
        attention, slot = self.rule.attention(self.records, frame), self._slots.__getitem__
        frames, rows = zip(*attention.maps, strict=True) if attention.maps else ((), ())
        return MemoryPlan(tuple(map(slot, frames)), tuple(rows), tuple(map(slot, attention.pointers)))

    def add(self, record: Record) -> int:
        """Keep a frame and return its slot, evicting frames that no later frame will attend to."""
        if not self._free:
            needed = self.rule.needed([*self.records, record], record.frame + 1)
            self._evict([old for old in self.records if old.frame not in needed])
        if not self._free:
            raise ValueError(f"all {len(self._slots)} memory slots hold frames that are still needed")
        slot = self._free.pop()
        self._slots[record.frame] = slot
        self.records.append(record)
        return slot

    def forget_from(self, frame: int) -> None:
        """Forget the frames from this one on, but prompts."""
        self._evict([old for old in self.records if old.frame >= frame and not old.prompted])

    def _evict(self, records: Iterable[Record]) -> None:
        for old in records:
            self._free.append(self._slots.pop(old.frame))
            self.records.remove(old)
