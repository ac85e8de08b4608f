"""Memory attention: self-attention of the frame's tokens and cross-attention to memory maps and pointers."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from efftam_workshop.model.common.layers import dot_product_attention, rotary_table, sine_rows
from efftam_workshop.model.efficienttam.configurations import Pooling

LAYERS = 4
FEEDFORWARD = 2048
POOLED_WEIGHT = 2 * math.log(2)
"""ln 4: the logit of a pooled key gets this addition because the key represents four keys."""


class Rotation(NamedTuple):
    """Rotary positions of n tokens: cosines and sines, each [n, C/2]."""

    cosines: Tensor
    sines: Tensor


class Attended(NamedTuple):
    """The memory that queries attend to.

    ``keys`` [1,n,.] and ``values`` [1,K,.] before their projection; ``rotation`` of the keys; ``bias``
    [1,1,1,K] on the logits; ``pooled``: pools the keys after projection, None for no pooling.
    """

    keys: Tensor
    values: Tensor
    rotation: Rotation
    bias: Tensor | None = None
    pooled: PooledKeys | None = None


class MemoryAttention(nn.Module):
    """Conditions features on the memory.

    Maps have axial rotary positions, and temporal positions are added to them. Pointers have neither.
    """

    sine: Tensor
    cosines: Tensor
    sines: Tensor

    def __init__(self, grid: int, pooling: Pooling, channels: int = 256, memory_channels: int = 64) -> None:
        super().__init__()
        self.grid, self.channels, self.memory_channels = grid, channels, memory_channels
        self.layers = nn.ModuleList(Layer(channels, memory_channels) for _ in range(LAYERS))
        self.norm = nn.LayerNorm(channels)
        self.pooling = pooling
        self.register_buffer("sine", sine_rows(channels, grid)[None], persistent=False)
        cosines, sines = rotary_table(channels, grid)
        self.register_buffer("cosines", cosines, persistent=False)
        self.register_buffer("sines", sines, persistent=False)

    def forward(
        self,
        features: Tensor,
        maps: Tensor,
        positions: Tensor,
        pointers: Tensor,
        key_bias: Tensor | None = None,
    ) -> Tensor:
        """Condition features [1,C,G,G] on the memory; returns [1,C,G,G].

        ``maps`` and their ``positions`` [T,N,M], ``pointers`` [P,C]. Without ``key_bias`` all maps and
        pointers are used, T and P are dynamic, and a pooled network pools if T is at least 2. With
        ``key_bias`` [1,1,1,K], which is added to the logits, the number of keys K is fixed. These are the
        keys of T maps and P pointers; in a pooled network the unpooled keys of the last map precede them.
        """
        chunks = pointers.reshape(-1, self.memory_channels)
        key_tokens = torch.cat([(maps + positions).reshape(-1, self.memory_channels), chunks])
        value_tokens = torch.cat([maps.reshape(-1, self.memory_channels), chunks])
        pooled = None
        if self.pooling is not Pooling.PLAIN:
            pooled = PooledKeys(maps, self.grid, self.pooling, choose=key_bias is None)
            value_tokens = pooled.merge(value_tokens, pooled.average(value_tokens))
            key_bias = pooled.bias(key_tokens, key_bias)

        rotation = Rotation(self.cosines, self.sines)
        memory = Attended(
            key_tokens[None], value_tokens[None], self._key_rotation(maps, chunks), key_bias, pooled
        )
        x = features.flatten(2).transpose(1, 2) + 0.1 * self.sine
        for layer in self.layers:
            x = layer(x, rotation, memory)
        conditioned: Tensor = self.norm(x)
        return conditioned.transpose(1, 2).reshape(1, self.channels, self.grid, self.grid)

    def _key_rotation(self, maps: Tensor, chunks: Tensor) -> Rotation:
        """Return the grid's rotation once per map, then the identity for each token of the pointers."""
        still = torch.zeros_like(chunks[:, :1]).expand(-1, self.channels // 2)
        size = (maps.shape[0], -1, -1)
        cosines = self.cosines.expand(size).reshape(-1, self.channels // 2)
        sines = self.sines.expand(size).reshape(-1, self.channels // 2)
        return Rotation(torch.cat([cosines, still + 1]), torch.cat([sines, still]))


class Layer(nn.Module):
    """Self-attention, cross-attention to the memory and feed-forward, each with a norm before it."""

    def __init__(self, channels: int, memory_channels: int) -> None:
        super().__init__()
        self.self_attn = RotaryAttention(channels, channels)
        self.cross_attn_image = RotaryAttention(channels, memory_channels)
        self.linear1 = nn.Linear(channels, FEEDFORWARD)
        self.linear2 = nn.Linear(FEEDFORWARD, channels)
        self.norm1 = nn.LayerNorm(channels)
        self.norm2 = nn.LayerNorm(channels)
        self.norm3 = nn.LayerNorm(channels)

    def forward(self, x: Tensor, rotation: Rotation, memory: Attended) -> Tensor:
        y = self.norm1(x)
        x = x + self.self_attn(y, rotation, Attended(y, y, rotation))
        x = x + self.cross_attn_image(self.norm2(x), rotation, memory)
        return x + self.linear2(F.relu(self.linear1(self.norm3(x))))


class RotaryAttention(nn.Module):
    """Single-head attention with rotary positions of queries and keys (RoPE, Su et al. 2021)."""

    def __init__(self, channels: int, key_channels: int) -> None:
        super().__init__()
        self.channels = channels
        self.q_proj = nn.Linear(channels, channels)
        self.k_proj = nn.Linear(key_channels, channels)
        self.v_proj = nn.Linear(key_channels, channels)
        self.out_proj = nn.Linear(channels, channels)

    def forward(self, query: Tensor, rotation: Rotation, attended: Attended) -> Tensor:
        q = project_and_rotate(self.q_proj, query, rotation)
        k = project_and_rotate(self.k_proj, attended.keys, attended.rotation)
        if attended.pooled is not None:
            k = attended.pooled.keys(k[0])[None]
        v = self.v_proj(attended.values)
        q, k, v = q.unsqueeze(1), k.unsqueeze(1), v.unsqueeze(1)
        result = dot_product_attention(q, k, v, self.channels, attended.bias)
        return self.out_proj(result.reshape(1, -1, self.channels))


def project_and_rotate(projection: nn.Linear, x: Tensor, rotation: Rotation) -> Tensor:
    """Project tokens [1,n,.] and rotate channel pair (2j, 2j+1) of each token by angle j of the token's row.

    The result has all even channels first, then all odd ones. q and k have the same order, so their product
    does not change. Splitting the weights avoids a strided pass over the tokens.
    """
    even = F.linear(x, projection.weight[0::2], projection.bias[0::2])
    odd = F.linear(x, projection.weight[1::2], projection.bias[1::2])
    cosines, sines = rotation
    return torch.cat([even * cosines - odd * sines, even * sines + odd * cosines], dim=-1)


class PooledKeys:
    """Makes the keys of one call from the tokens of T maps (N tokens each), followed by pointer tokens.

    The result contains, in this order: the unpooled tokens of the last map, the pooled tokens of all maps,
    and the pointer tokens. If there are two maps or more, 2x2 tokens of a map share one averaged key and
    value; a single map is used unpooled. With ``choose`` the set that is not used is left out, by slices of
    computed length, which also work in a traced graph with dynamic T. Without ``choose`` both sets stay, and
    the caller's key bias selects one.
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
        """Return the means over 2x2 tokens of each map: [T N + pointers, C] -> [T N / 4, C]."""
        grid, channels = self.grid, tokens.shape[-1]
        rows = tokens[: self.map_tokens].reshape(-1, 2, grid * channels).mean(dim=1)
        return rows.reshape(-1, 2, channels).mean(dim=1)

    def merge(self, tokens: Tensor, pooled: Tensor) -> Tensor:
        """Return the tokens that are attended to, in the order of `PooledKeys`.

        ``tokens``: all tokens of maps and pointers. ``pooled``: means over 2x2 tokens of the maps.
        """
        unpooled = tokens[self.last_map : self.last_map + self.unpooled]
        return torch.cat([unpooled, pooled[: self.pooled], tokens[self.map_tokens :]])

    def keys(self, keys: Tensor) -> Tensor:
        """Return the keys that are attended to. ``keys``: all, projected and rotated, [T N + pointers, C]."""
        pooled = self.average(keys)
        if self.pooling is Pooling.POOLED_2:
            pooled = pooled + POOLED_WEIGHT
        return self.merge(keys, pooled)

    def bias(self, tokens: Tensor, key_bias: Tensor | None) -> Tensor | None:
        """Return the bias of the logits [1,1,1,K]: ``key_bias`` plus, for POOLED_1, ln 4 for pooled keys."""
        if self.pooling is Pooling.POOLED_2:
            return key_bias
        none = torch.zeros_like(tokens[:, :1])
        weight = self.merge(none, self.average(none) + POOLED_WEIGHT).reshape(1, 1, 1, -1)
        return weight if key_bias is None else weight + key_bias
