"""The memory of past frames on the GPU: a ring of slots that kernels gather from and write to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.types import MemoryPlan
from efftam_ros.runtime.bundle import Bundle

UNUSED = -1
UNUSED_KEY = -1e4
"""Added to an unused key's logit: its probability becomes exactly zero, and the value still fits float16."""
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

    def write_plan(self, plan: MemoryPlan, out: NDArray[np.int32]) -> None:
        """The ring slot of every temporal row, then of every pointer slot, into int32 [R + P]; -1 where none.

        Raises IndexError (a slot, a row or more pointers than there are) and ValueError (a row named twice:
        the fixed form has one place for it).
        """
        named = (*plan.slots, *plan.pointer_slots)
        if max(named) >= self.slots or min(named) < 0:
            raise IndexError(f"{plan} names a slot beyond the {self.slots} there are")
        if min(plan.rows) < 0 or max(plan.rows) >= self.rows or len(plan.pointer_slots) > self.pointers:
            raise IndexError(f"{plan} asks for more than {self.rows} rows and {self.pointers} pointers")
        if len(set(plan.rows)) < len(plan.rows):
            raise ValueError(f"{plan} names a temporal row twice; the fixed form has one place for it")
        out[:] = UNUSED
        out[list(plan.rows)] = plan.slots
        out[self.rows : self.rows + len(plan.pointer_slots)] = plan.pointer_slots


def key_bias(layout: MemoryLayout, rows: Sequence[int], pointers: int) -> NDArray[np.float32]:
    """[1,1,1,K]: 0 for the keys of these temporal rows and the first ``pointers`` slots, else `UNUSED_KEY`.

    Keys in order: the maps by row, then the pointers' tokens. In the pooled layout the maps' pooled keys (a
    quarter as many) are headed by the unpooled keys of one map, which are used when there is that map alone.
    """
    used_rows = np.isin(np.arange(layout.rows), rows)
    used_pointers = (np.arange(layout.pointers) < pointers).repeat(layout.pointer_tokens)
    if layout.pooled:
        alone = len(rows) == 1
        pooled = (used_rows & (not alone)).repeat(layout.tokens // 4)
        parts = [np.full(layout.tokens, alone), pooled, used_pointers]
    else:
        parts = [used_rows.repeat(layout.tokens), used_pointers]
    return np.where(np.concatenate(parts), 0.0, UNUSED_KEY).astype(np.float32).reshape(1, 1, 1, -1)


def laid_out(
    layout: MemoryLayout, rows: Sequence[int], maps: NDArray[np.float32], pointers: NDArray[np.float32]
) -> dict[str, NDArray[np.float32]]:
    """Maps [T,N,M] of these temporal rows and pointers [P,C] as the inputs ``maps``, ``pointers`` and
    ``key_bias`` of the fixed memory attention; zeros where nothing is."""
    placed_maps = np.zeros((layout.rows, layout.tokens, layout.channels), np.float32)
    placed_maps[list(rows)] = maps
    placed_pointers = np.zeros((layout.pointers, layout.pointer_channels), np.float32)
    placed_pointers[: len(pointers)] = pointers
    return {
        "maps": placed_maps,
        "pointers": placed_pointers,
        "key_bias": key_bias(layout, rows, len(pointers)),
    }
