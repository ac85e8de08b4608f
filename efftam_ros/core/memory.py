"""The memory bank: which frames are kept in the ring of slots, and which of them the network attends to.

The bank handles indices only; the tensors stay in the back end. Frames are counted from the prompted frame,
which is frame 0. From the records of the kept frames a rule derives two things: which frames the next frame
attends to, and which ones later frames may still need. The bank evicts only frames that are not needed. So
the ring can be small: SAMURAI's rule needs at most 1 prompt + 15 pointers + 6 older valid frames = 22 slots.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from efftam_ros.core.types import MemoryPlan

SPACING_NS = 150_000_000
"""Least interval, ns, between the frames that `RankedFrames` attends to; the newest frame is exempt. Without
it, an object that covers the target would after a few images be all that the network remembers."""


@dataclass(frozen=True)
class Record:
    """One remembered frame.

    Attributes:
        frame: Number of the frame, counted from the prompted frame (0).
        prompted: Whether the target was selected on it.
        quality: Predicted IoU of the chosen candidate, 0..1.
        presence_logit: The network's presence, as a logit.
        motion_iou: IoU of the chosen box with the predicted one; None if the policy does not compute it.
        is_spaced: Whether at least `SPACING_NS` have passed since the previous spaced frame.
    """

    frame: int
    prompted: bool
    quality: float
    presence_logit: float
    motion_iou: float | None = None
    is_spaced: bool = True


@dataclass(frozen=True)
class AttendedFrames:
    """The frames that a frame attends to. ``maps``: (frame, temporal row) of each memory map, in order;
    ``pointers``: the frames whose object pointers are used."""

    maps: tuple[tuple[int, int], ...]
    pointers: tuple[int, ...]


class Rule(Protocol):
    """Decides which remembered frames a frame attends to. ``records``: the records of all kept frames, oldest
    first; ``frame``: number of the frame that attends."""

    def attention(self, records: Sequence[Record], frame: int) -> AttendedFrames: ...

    def needed(self, records: Sequence[Record], frame: int) -> set[int]:
        """Return the kept frames to which ``frame`` or any later frame may attend."""
        ...


@dataclass(frozen=True)
class RankedFrames:
    """The default policy's rule: the prompted frame on the last temporal row, recent frames on the others.

    The newest frame is on row 0. The recent frames are the newest frame and the spaced frames, the newest
    ones first, but without the newest spaced frame. If these are too few, the newest of the other frames are
    added. The rule may use every stored frame, because the policy stores only frames that show the target
    clearly.

    Attributes:
        temporal_rows: Number of temporal rows of the network.
        recent: Number of recent maps that the network was trained with.
        max_maps: Largest number of maps, of prompted and recent frames together.
        max_pointers: Largest number of object pointers.
    """

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
    """Return ``count`` frames in increasing order: the last of ``frames``, and the last ones of ``spaced``.
    If ``spaced`` has too few, further frames are taken from the end of ``frames``."""
    if count <= 0:
        return []
    chosen = frames[-1:] + spaced[len(spaced) - min(count - 1, len(spaced)) :]
    if len(chosen) < count:
        chosen += [frame for frame in reversed(frames) if frame not in chosen][: count - len(chosen)]
    return sorted(chosen)


class MemoryBank:
    """The remembered frames of one target, and the ring slot of each.

    For each frame since the prompted one the caller calls either `store` or `skip`, then `make_plan`.
    """

    def __init__(self, rule: Rule, slots: int) -> None:
        self.rule = rule
        self.size = slots
        self._free = list(range(slots - 1, -1, -1))
        self._slots: dict[int, int] = {}
        self.records: list[Record] = []
        self.count = 0
        """Number of frames so far, and so the number of the next frame."""
        self.plan = MemoryPlan()
        """The slots that the next frame attends to."""
        self._spaced_ns: int | None = None  # stamp of the last spaced frame, ns; None before the first

    def store(
        self,
        stamp_ns: int,
        quality: float,
        presence_logit: float,
        motion_iou: float | None = None,
        prompted: bool = False,
    ) -> int:
        """Keep the present frame, and return its slot. For the arguments see `Record`. Raises ValueError as
        `add` does."""
        spaced_ns = self._spaced_ns
        # The difference is negative if the stamps went back.
        is_spaced = spaced_ns is None or not 0 <= stamp_ns - spaced_ns < SPACING_NS
        if is_spaced:
            self._spaced_ns = stamp_ns
        slot = self.add(Record(self.count, prompted, quality, presence_logit, motion_iou, is_spaced))
        self.count += 1
        return slot

    def skip(self) -> None:
        """Count the present frame without keeping it."""
        self.count += 1

    def make_plan(self) -> None:
        """Set `plan`, the slots that the next frame attends to."""
        self.plan = self.plan_of(self.count)

    def plan_of(self, frame: int) -> MemoryPlan:
        """Return the slots that frame ``frame`` attends to."""
        attention, slot = self.rule.attention(self.records, frame), self._slots.__getitem__
        frames, rows = zip(*attention.maps, strict=True) if attention.maps else ((), ())
        return MemoryPlan(tuple(map(slot, frames)), tuple(rows), tuple(map(slot, attention.pointers)))

    def add(self, record: Record) -> int:
        """Keep a frame, and return its slot. If no slot is free, frames that no later frame needs are
        evicted. Raises ValueError when all are needed."""
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
        """Forget the frames from number ``frame`` on, except prompted ones."""
        self._evict([old for old in self.records if old.frame >= frame and not old.prompted])

    def _evict(self, records: Iterable[Record]) -> None:
        for old in records:
            self._free.append(self._slots.pop(old.frame))
            self.records.remove(old)
