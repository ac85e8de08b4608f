"""Pooled cross-attention keys: from two maps on, 2x2 tokens of a map share one averaged key and value."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from efftam_ros.model.efficienttam.configurations import Pooling

POOLED_WEIGHT = 2 * math.log(2)
"""ln 4: a pooled key stands for four."""


class PooledKeys:
    """Makes the keys of one call from the tokens of T maps (N each) followed by pointer tokens.

    The order of the result is: the last map's tokens unpooled, all maps' tokens pooled, pointer tokens. A
    single map is attended to unpooled, several are attended to pooled. With ``choose`` the set that T does
    not ask for is left out, by slices of computed length, so that a traced graph with a free T does the same;
    without it both sets are there and the caller's key bias decides.
    """

    def __init__(self, maps: Tensor, grid: int, pooling: Pooling, choose: bool) -> None:
        self.grid, self.pooling = grid, pooling
        tokens = grid * grid
        maps_count = maps.shape[0]
        self.map_tokens = maps_count * tokens
        self.last_map = self.map_tokens - tokens
        self.unpooled, self.pooled = tokens, self.map_tokens // 4
        if choose:
            self.unpooled, self.pooled = tokens * (maps_count == 1), self.pooled * (maps_count > 1)

    def average(self, tokens: Tensor) -> Tensor:
        """Means over 2x2 tokens of each map: [T N + pointers, C] -> [T N / 4, C]."""
        grid, channels = self.grid, tokens.shape[-1]
        rows = tokens[: self.map_tokens].reshape(-1, 2, grid * channels).mean(dim=1)
        return rows.reshape(-1, 2, channels).mean(dim=1)

    def merge(self, tokens: Tensor, pooled: Tensor) -> Tensor:
        """The tokens attended to, in this class's order, of all tokens and the pooled ones."""
        unpooled = tokens[self.last_map : self.last_map + self.unpooled]
        return torch.cat([unpooled, pooled[: self.pooled], tokens[self.map_tokens :]])

    def keys(self, keys: Tensor) -> Tensor:
        """Projected and rotated keys [T N + pointers, C] -> keys attended to."""
        pooled = self.average(keys)
        if self.pooling is Pooling.POOLED_2:
            pooled = pooled + POOLED_WEIGHT
        return self.merge(keys, pooled)

    def bias(self, tokens: Tensor, key_bias: Tensor | None) -> Tensor | None:
        """What is added to the logits: the caller's bias and, in the first form, ln 4 for pooled keys;
        [1,1,1,K]."""
        if self.pooling is Pooling.POOLED_2:
            return key_bias
        none = torch.zeros_like(tokens[:, :1])
        weight = self.merge(none, self.average(none) + POOLED_WEIGHT).reshape(1, 1, 1, -1)
        return weight if key_bias is None else weight + key_bias
