"""Stores wrong masks in the memory of some clips, so that the network learns to recover from them.

In a clip of a few frames the network's own masks are nearly right. In long tracking they may become wrong and
stay wrong for a while: the whole object instead of a part, a neighbour included, a piece missing. Therefore
some clips store another candidate, or an enlarged or reduced mask, in a few successive frames. The masks that
later frames should show do not change.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

LONGEST = 4  # largest number of successive frames with a fault
REACH = (3, 5, 7)  # side of the square that enlarges or reduces a mask, mask pixels


class Kind(Enum):
    """What is stored instead of the chosen candidate."""

    ANOTHER = "another candidate, with its pointer"
    GROWN = "the mask and what lies around it"
    SHRUNK = "the middle of the mask"


class _Fault(NamedTuple):
    kind: Kind
    frames: range
    reach: int


class MemoryFaults:
    """Draws and applies the faults of one batch of clips."""

    def __init__(self, clips: int, frames: int, share: float, rng: np.random.Generator | None) -> None:
        """Draw the faults: a share ``share`` (0..1) of the clips has one, never in the prompted frame.

        Without ``rng`` there are no faults.
        """
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
        """Return the mask logits [B,1,h,w] and pointers [B,C] to store in memory for one frame.

        Args:
            frame: Its index in the clip.
            logits: [B,4,h,w], of all candidates.
            candidates: [B,4,C], pointers of all candidates.
            choice: [B], index of the chosen candidate.
            mask: [B,1,h,w], logits of the chosen candidate.
            pointer: [B,C], pointer of the chosen candidate.
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
