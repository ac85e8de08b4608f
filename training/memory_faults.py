"""Faults in what a clip's network remembers, so that it learns to come back from them.

In a clip of a few frames the network's own masks are nearly right, whereas in tracking they go wrong and stay
wrong for a while: the whole instead of the part, a neighbour taken in, a piece lost. Some clips therefore
store, for a few frames in a row, another candidate or a mask that was grown or shrunk; what the frames after
it should show does not change.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

LONGEST = 4  # frames in a row
REACH = (3, 5, 7)  # cells of the masks, sides of the square by which one grows or shrinks


class Kind(Enum):
    """What is stored in place of the chosen candidate."""

    ANOTHER = "another candidate, with its pointer"
    GROWN = "the mask and what lies around it"
    SHRUNK = "the middle of the mask"


class _Fault(NamedTuple):
    kind: Kind
    frames: range
    reach: int


class MemoryFaults:
    """The faults of a batch of clips, drawn once."""

    def __init__(self, clips: int, frames: int, share: float, rng: np.random.Generator | None) -> None:
        """``share`` (0..1) of the clips has a fault, never in the prompted frame; none without ``rng``."""
        self._of: dict[int, _Fault] = {}
        if rng is None or share == 0 or frames < 3:
            return
        for clip in range(clips):
            if rng.random() < share:
                first = int(rng.integers(1, frames - 1))
                length = int(rng.integers(1, LONGEST + 1))
                kind = list(Kind)[int(rng.integers(len(Kind)))]
                self._of[clip] = _Fault(kind, range(first, first + length), int(rng.choice(REACH)))

    def stored(
        self, frame: int, logits: Tensor, candidates: Tensor, choice: Tensor, mask: Tensor, pointer: Tensor
    ) -> tuple[Tensor, Tensor]:
        """What is remembered of a frame.

        Args:
            frame: its index in the clip.
            logits: [B,4,h,w], all candidates.
            candidates: [B,4,C], their pointers.
            choice: [B], the chosen candidate.
            mask: [B,1,h,w] logits, the chosen one's.
            pointer: [B,C], the chosen one's.

        Returns:
            Mask logits [B,1,h,w] and pointers [B,C].
        """
        now = {clip: fault for clip, fault in self._of.items() if frame in fault.frames}
        if not now:
            return mask, pointer
        masks, pointers = list(mask.unbind()), list(pointer.unbind())
        for clip, fault in now.items():
            if fault.kind is Kind.ANOTHER:
                other = 1 + int(choice[clip]) % 3
                masks[clip], pointers[clip] = logits[clip, other].unsqueeze(0), candidates[clip, other]
            elif fault.kind is Kind.GROWN:
                masks[clip] = _widest(masks[clip], fault.reach)
            else:
                masks[clip] = -_widest(-masks[clip], fault.reach)
        return torch.stack(masks), torch.stack(pointers)


def _widest(logits: Tensor, reach: int) -> Tensor:
    return F.max_pool2d(logits.unsqueeze(0), reach, 1, reach // 2)[0]
