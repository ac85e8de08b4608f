"""The memory of the fake GPU: real bytes at true addresses, watched for misuse."""

from __future__ import annotations

import bisect
import mmap
from dataclasses import dataclass, field

import numpy as np

MARGIN = 256
"""Bytes before and after a block that nobody may write; also the alignment of blocks."""

UNDEFINED = 0xFF
"""What undefined bytes hold: NaN as floating point, -1 as whole numbers."""


class MisuseError(AssertionError):
    """What a real GPU would punish with wrong numbers or a lost process, or not at all until it matters."""


class RaceError(MisuseError):
    """Two pieces of work use the same bytes, one of them writing, and nothing sets their order."""


class UseAfterFreeError(MisuseError):
    """Work uses memory that was given back."""


class OutOfBoundsError(MisuseError):
    """Work uses bytes outside any block."""


class PageableMemoryError(MisuseError):
    """A copy from or to host memory that is not pinned: it would wait."""


class DefaultStreamError(MisuseError):
    """Work on the default stream, which waits for all others."""


MAX_FILLED = 256 << 20
"""Bytes of a block that are filled when it is made: what takes a whole card stays unfilled behind them, and
the host need not hold it."""


@dataclass(frozen=True)
class Range:
    """Bytes from address ``start`` to before ``stop``; of a part of a matrix the first ``width`` of every
    ``pitch`` are written or read. Two overlap where those between do, too."""

    start: int
    stop: int
    width: int = 0
    pitch: int = 0

    @classmethod
    def part(cls, start: int, width: int, pitch: int, height: int) -> Range:
        """Of ``height`` rows the first ``width`` bytes."""
        return cls(start, start + (height - 1) * pitch + width, width, pitch)

    def overlaps(self, other: Range) -> bool:
        return self.start < other.stop and other.start < self.stop


@dataclass
class Block:
    """One allocation: ``kind`` "device" or "pinned", at address ``start``."""

    kind: str
    start: int
    nbytes: int
    storage: mmap.mmap
    alive: bool = True
    parts: list[Range] = field(default_factory=list)

    @property
    def range(self) -> Range:
        return Range(self.start, self.start + self.nbytes)

    @property
    def everything(self) -> np.ndarray:
        return np.frombuffer(self.storage, np.uint8)

    def bytes_of(self, wanted: Range) -> np.ndarray:
        """Of a part of a matrix one row for each of its own."""
        first = wanted.start - self.start + MARGIN
        plain = self.everything[first : first + wanted.stop - wanted.start]
        if wanted.width == 0:
            return plain
        rows = -(-(wanted.stop - wanted.start) // wanted.pitch)
        return np.lib.stride_tricks.as_strided(plain, (rows, wanted.width), (wanted.pitch, 1))

    def describe(self) -> str:
        return f"{self.kind} block of {self.nbytes} bytes at {self.start:#x}"


class Memory:
    """All blocks, freed ones too: an address is never used twice, so that late use is seen for sure."""

    def __init__(self, total_bytes: int, pinned_bytes: int) -> None:
        """``pinned_bytes``: as many the system can pin."""
        self._bytes = {"device": total_bytes, "pinned": pinned_bytes}
        self._blocks: list[Block] = []
        self._starts: list[int] = []

    @property
    def total_bytes(self) -> int:
        return self._bytes["device"]

    def free(self, kind: str) -> int:
        """Bytes that can be allocated."""
        return self._bytes[kind] - sum(b.nbytes for b in self._blocks if b.alive and b.kind == kind)

    @property
    def free_bytes(self) -> int:
        return self.free("device")

    @property
    def alive(self) -> list[Block]:
        return [block for block in self._blocks if block.alive]

    def allocate(self, kind: str, nbytes: int) -> Block:
        storage = mmap.mmap(-1, nbytes + 2 * MARGIN, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        everything = np.frombuffer(storage, np.uint8)
        everything[:MAX_FILLED] = UNDEFINED
        everything[-MARGIN:] = UNDEFINED
        block = Block(kind, int(everything.ctypes.data) + MARGIN, nbytes, storage)
        at = bisect.bisect(self._starts, block.start)
        self._starts.insert(at, block.start)
        self._blocks.insert(at, block)
        return block

    def release(self, block: Block) -> None:
        self.check_margins(block)
        block.alive = False
        block.storage.madvise(mmap.MADV_DONTNEED)  # the address stays taken, the memory goes back

    def find(self, pointer: int) -> Block | None:
        """The block, alive or freed, that has this address."""
        at = bisect.bisect(self._starts, pointer) - 1
        if at >= 0 and pointer < self._starts[at] + self._blocks[at].nbytes:
            return self._blocks[at]
        return None

    def block(self, wanted: Range) -> Block:
        """The block that holds all these bytes."""
        block = self.find(wanted.start)
        if block is None:
            raise OutOfBoundsError(f"no block has the address {wanted.start:#x}")
        if not block.alive:
            raise UseAfterFreeError(f"{wanted.start:#x} is in a freed {block.describe()}")
        if wanted.stop > block.range.stop:
            raise OutOfBoundsError(
                f"{wanted.stop - wanted.start} bytes at {wanted.start:#x} leave the {block.describe()}"
            )
        return block

    def divide(self, pointer: int, nbytes: int) -> None:
        """Let a kernel's pointer to these bytes stand for them, not for their whole block."""
        part = Range(pointer, pointer + nbytes)
        self.block(part).parts.append(part)

    def reach(self, pointer: int) -> Range:
        """What a kernel may touch through a pointer: a part of a divided block, else the whole block."""
        block = self.block(Range(pointer, pointer + 1))
        return next((part for part in block.parts if part.start <= pointer < part.stop), block.range)

    def check_margins(self, block: Block) -> None:
        everything = block.everything
        if (everything[:MARGIN] != UNDEFINED).any() or (
            everything[MARGIN + block.nbytes :] != UNDEFINED
        ).any():
            raise OutOfBoundsError(f"something wrote beside the {block.describe()}")
