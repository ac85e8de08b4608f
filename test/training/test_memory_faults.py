"""What a clip's network remembers is wrong for a few frames in some clips, and never in the prompted one."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from training.memory_faults import Kind, MemoryFaults

CLIPS, FRAMES, CELLS = 24, 8, 48


def tensors() -> tuple[torch.Tensor, ...]:
    """Four candidates of which number 2 is chosen: squares that grow with their number."""
    logits = torch.full((CLIPS, 4, CELLS, CELLS), -5.0)
    for number in range(4):
        logits[:, number, 10 : 24 + number, 10 : 24 + number] = 5.0
    pointers = torch.arange(4.0).reshape(1, 4, 1).expand(CLIPS, 4, 3).clone()
    choice = torch.full((CLIPS,), 2)
    return logits, pointers, choice, logits[:, 2:3].clone(), pointers[:, 2].clone()


def stored_of(faults: MemoryFaults) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    pairs = [faults.stored(frame, *tensors()) for frame in range(1, FRAMES)]
    return [mask for mask, _ in pairs], [pointer for _, pointer in pairs]


def wrong_frames(faults: MemoryFaults) -> list[list[int]]:
    """Per clip the frames whose mask is not the chosen one."""
    right = tensors()[3]
    masks, _ = stored_of(faults)
    return [
        [frame for frame, mask in enumerate(masks, 1) if not torch.equal(mask[clip], right[clip])]
        for clip in range(CLIPS)
    ]


@pytest.mark.parametrize(
    "faults",
    [
        MemoryFaults(CLIPS, FRAMES, 0.0, np.random.default_rng(1)),
        MemoryFaults(CLIPS, FRAMES, 1.0, None),
        MemoryFaults(CLIPS, 2, 1.0, np.random.default_rng(1)),
    ],
    ids=["no share", "not in training", "no frame after it"],
)
def test_without_faults_the_chosen_mask_is_remembered(faults):
    assert wrong_frames(faults) == [[]] * CLIPS


def test_every_kind_occurs_and_only_another_candidate_brings_another_pointer():
    logits, pointers, _, right, right_pointer = tensors()
    kinds = set()
    for seed in range(10):
        faults = MemoryFaults(CLIPS, FRAMES, 1.0, np.random.default_rng(seed))
        for masks, pointer in zip(*stored_of(faults), strict=True):
            for clip in range(CLIPS):
                area, own = int((masks[clip] > 0).sum()), int((right[clip] > 0).sum())
                if not torch.equal(pointer[clip], right_pointer[clip]):
                    number = int(pointer[clip, 0])
                    assert number in (1, 3)
                    assert torch.equal(masks[clip, 0], logits[clip, number])
                    assert torch.equal(pointer[clip], pointers[clip, number])
                    kinds.add(Kind.ANOTHER)
                elif area != own:
                    kinds.add(Kind.GROWN if area > own else Kind.SHRUNK)
    assert kinds == set(Kind)


def test_gradients_reach_the_masks_that_are_remembered():
    logits, pointers, choice, mask, pointer = tensors()
    mask.requires_grad_()
    faults = MemoryFaults(CLIPS, FRAMES, 1.0, np.random.default_rng(2))
    sum(
        faults.stored(frame, logits, pointers, choice, mask, pointer)[0].sum() for frame in range(1, 8)
    ).backward()
    assert mask.grad is not None
    assert (mask.grad != 0).any((1, 2, 3)).all()
