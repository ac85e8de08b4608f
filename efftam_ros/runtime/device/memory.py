"""Sizes of the GPU memory that stores what the network remembers of earlier frames.

The memory has slots, and each slot has a map and a pointer. The maps of all slots of all targets are in one
tensor, and the pointers in another. These two tensors are called rings. A lane is the part of the pipeline
that one target uses.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.types import MemoryPlan
from efftam_ros.runtime.bundle import Bundle

UNUSED = -1
RINGS = ("ring_maps", "ring_pointers")
"""Names of the tensors that contain the slots of all targets."""
ATTENTION = "memory_attention_fixed"
GRAPHS = ("image_encoder", "prompt_encoder", ATTENTION, "mask_decoder", "memory_encoder")
"""Names of the graphs of a bundle that back ends on a GPU run."""


@dataclass(frozen=True)
class MemoryLayout:
    """Sizes of the graph ``memory_attention_fixed``, whose inputs have fixed sizes, and of the memory.

    Attributes:
        slots: Number of slots of all lanes together.
        rows: Number R of temporal rows.
        tokens: Number N of tokens of a map.
        channels: Number M of channels of a token.
        pointers: Number of pointers that the graph receives.
        pointer_channels: Number C of channels of a pointer.
        pointer_tokens: Number of keys that are made of a pointer.
        keys: Number K of keys.
        pooled: Whether the order of the keys is ``pooled``; if not, it is ``plain`` (docs/bundle.md).
        rounds: Whether maps are rounded to bfloat16 when they are stored.
    """

    slots: int
    rows: int
    tokens: int
    channels: int
    pointers: int
    pointer_channels: int
    pointer_tokens: int
    keys: int
    pooled: bool
    rounds: bool

    @classmethod
    def of(cls, bundle: Bundle, lanes: int = 1) -> MemoryLayout:
        inputs = bundle.graphs[ATTENTION].inputs
        rows, tokens, channels = (int(axis) for axis in inputs["maps"].shape)
        pointers, pointer_channels = (int(axis) for axis in inputs["pointers"].shape)
        keys = int(inputs["key_bias"].shape[-1])
        pooled = bundle.key_layout == "pooled"
        of_maps = tokens + rows * tokens // 4 if pooled else rows * tokens
        return cls(
            slots=lanes * bundle.spec.slots,
            rows=rows,
            tokens=tokens,
            channels=channels,
            pointers=pointers,
            pointer_channels=pointer_channels,
            pointer_tokens=(keys - of_maps) // pointers,
            keys=keys,
            pooled=pooled,
            rounds=bundle.memory_dtype == "bfloat16",
        )

    @property
    def map_size(self) -> int:
        """Number of values of one map."""
        return self.tokens * self.channels

    @property
    def gathered(self) -> int:
        """Number of values that the kernel ``gather_memory`` writes: maps, pointers and key bias."""
        return self.rows * self.map_size + self.pointers * self.pointer_channels + self.keys

    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the memory's tensors and of the attention's inputs, by name."""
        return {
            "ring_maps": (self.slots, self.tokens, self.channels),
            "ring_pointers": (self.slots, self.pointer_channels),
            "maps": (self.rows, self.tokens, self.channels),
            "pointers": (self.pointers, self.pointer_channels),
            "key_bias": (1, 1, 1, self.keys),
            "map": (1, self.tokens, self.channels),
            "stored_pointer": (1, self.pointer_channels),
        }

    def write_plan(self, plan: MemoryPlan, out: NDArray[np.int32], first: int = 0) -> None:
        """Write a plan as the kernel ``gather_memory`` reads it.

        ``out``, int32 [rows + pointers], gets the slot of each temporal row, and then the slot of each
        pointer; -1 means none. ``first`` is added to the plan's slots: it is the first slot of the target's
        part of the rings.

        Raises IndexError if the plan has a row that does not exist or too many pointers, and ValueError if it
        names a row twice, because the graph's input has one place for each row.
        """
        if min(plan.rows) < 0 or max(plan.rows) >= self.rows or len(plan.pointer_slots) > self.pointers:
            raise IndexError(
                f"{plan} does not fit into {self.rows} temporal rows and {self.pointers} pointers"
            )
        if len(set(plan.rows)) < len(plan.rows):
            raise ValueError(f"{plan} names a temporal row twice; the graph has one place for each row")
        out[:] = UNUSED
        out[list(plan.rows)] = plan.slots
        out[self.rows : self.rows + len(plan.pointer_slots)] = plan.pointer_slots
        out[out != UNUSED] += first
