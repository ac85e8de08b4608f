"""The memory of past frames on the GPU: a ring of slots that kernels gather from and write to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.types import MemoryPlan
from efftam_ros.runtime.bundle import Bundle

UNUSED = -1
RINGS = ("ring_maps", "ring_pointers")
"""Tensors that hold the slots of all lanes."""
ATTENTION = "memory_attention_fixed"
GRAPHS = ("image_encoder", "prompt_encoder", ATTENTION, "mask_decoder", "memory_encoder")
"""Of a bundle, those that a GPU runs."""


@dataclass(frozen=True)
class MemoryLayout:
    """Sizes of the fixed form of memory attention.

    ``slots`` of the rings of all lanes; ``rows`` R temporal rows; ``tokens`` N and ``channels`` M of a map;
    ``pointers`` P slots of ``pointer_channels`` C, each ``pointer_tokens`` keys; ``keys`` K; ``pooled``: the
    layout of the keys (docs/bundle.md, key_bias); ``rounds``: maps are rounded to bfloat16 when stored.
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
        """Elements of one map."""
        return self.tokens * self.channels

    @property
    def gathered(self) -> int:
        """Elements that the gathering kernel writes."""
        return self.rows * self.map_size + self.pointers * self.pointer_channels + self.keys

    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the device tensors of the memory."""
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
        """Write the ring slot of every temporal row, then of every pointer slot, into int32 [R + P]; -1 where
        none.

        ``first``: slot of the ring that a plan calls 0. Raises IndexError (a row or more pointers than there
        are) and ValueError (a row named twice: the fixed form has one place for it).
        """
        if min(plan.rows) < 0 or max(plan.rows) >= self.rows or len(plan.pointer_slots) > self.pointers:
            raise IndexError(f"{plan} asks for more than {self.rows} rows and {self.pointers} pointers")
        if len(set(plan.rows)) < len(plan.rows):
            raise ValueError(f"{plan} names a temporal row twice; the fixed form has one place for it")
        out[:] = UNUSED
        out[list(plan.rows)] = plan.slots
        out[self.rows : self.rows + len(plan.pointer_slots)] = plan.pointer_slots
        out[out != UNUSED] += first
