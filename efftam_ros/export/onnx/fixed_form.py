"""Fixed form of the memory inputs: one place per temporal row and pointer slot, a key bias marks unused
ones."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from efftam_ros.model.common.network import NetworkSpec
from efftam_ros.runtime.device.memory import UNUSED_KEY


def key_count(spec: NetworkSpec) -> int:
    """K, the number of keys of the fixed memory attention, which is the length of its ``key_bias``."""
    tokens = spec.grid * spec.grid
    pointers = spec.max_pointers * spec.pointer_tokens
    if spec.key_layout == "plain":
        return spec.temporal_rows * tokens + pointers
    return tokens + spec.temporal_rows * tokens // 4 + pointers


def key_bias(spec: NetworkSpec, rows: Sequence[int], pointers: int) -> Tensor:
    """Bias [1,1,1,K] for maps in these temporal rows and the first ``pointers`` pointer slots.

    Order of the keys: maps by row, then the tokens of the pointers. In the pooled layout the pooled keys of
    the maps (a quarter as many) are preceded by the unpooled keys of the last row, which are used when that
    row holds the only map.
    """
    tokens = spec.grid * spec.grid
    used_rows = torch.zeros(spec.temporal_rows, dtype=torch.bool)
    used_rows[list(rows)] = True
    used_pointers = torch.arange(spec.max_pointers) < pointers
    parts = [used_pointers.repeat_interleave(spec.pointer_tokens)]
    if spec.key_layout == "plain":
        parts.insert(0, used_rows.repeat_interleave(tokens))
    else:
        pooled = len(rows) > 1
        parts.insert(0, (used_rows & pooled).repeat_interleave(tokens // 4))
        parts.insert(0, torch.full((tokens,), not pooled))
    return torch.where(torch.cat(parts), 0.0, UNUSED_KEY).reshape(1, 1, 1, -1)


def fixed_maps(spec: NetworkSpec, maps: Tensor, rows: Sequence[int]) -> Tensor:
    """Maps [T,N,M] laid out by temporal row [R,N,M], zeros elsewhere."""
    laid_out = torch.zeros(spec.temporal_rows, *maps.shape[1:])
    laid_out[list(rows)] = maps
    return laid_out


def fixed_pointers(spec: NetworkSpec, pointers: Tensor) -> Tensor:
    """Pointers [P,C] in the first slots of [max_pointers,C], zeros behind them."""
    laid_out = torch.zeros(spec.max_pointers, pointers.shape[1])
    laid_out[: len(pointers)] = pointers
    return laid_out
