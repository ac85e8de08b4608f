"""Memory attention: the current frame's tokens attend to themselves and to the remembered maps and
pointers."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from efftam_ros.model.common.layers import dot_product_attention
from efftam_ros.model.common.position import rotary_table, sine_table
from efftam_ros.model.efficienttam.configurations import Pooling
from efftam_ros.model.efficienttam.pooled_keys import PooledKeys

LAYERS = 4
FEEDFORWARD = 2048


class MemoryAttention(nn.Module):
    """Conditions features on the memory; see `forward`. Maps keep their place by axial rotary position, their
    age by the positions added to them; pointers have neither."""

    sine: Tensor
    cosines: Tensor
    sines: Tensor

    def __init__(self, grid: int, pooling: Pooling, channels: int = 256, memory_channels: int = 64) -> None:
        super().__init__()
        self.grid, self.channels, self.memory_channels = grid, channels, memory_channels
        self.layers = nn.ModuleList(Layer(channels, memory_channels) for _ in range(LAYERS))
        self.norm = nn.LayerNorm(channels)
        self.pooling = pooling
        self.register_buffer(
            "sine", sine_table(channels, grid).flatten(2).transpose(1, 2).contiguous(), persistent=False
        )
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
        """Features [1,C,G,G], maps [T,N,M] with their positions [T,N,M], pointers [P,C] -> conditioned
        [1,C,G,G].

        Without ``key_bias`` all maps and pointers are attended to, T and P are free and a pooled network
        pools from T = 2. With it [1,1,1,K], added to the logits of every key, the number of keys is fixed:
        those of T maps and P pointers, in a pooled network headed by the unpooled keys of the last map.
        """
        chunks = pointers.reshape(-1, self.memory_channels)
        key_tokens = torch.cat([(maps + positions).reshape(-1, self.memory_channels), chunks])
        value_tokens = torch.cat([maps.reshape(-1, self.memory_channels), chunks])
        pooled = None
        if self.pooling is not Pooling.PLAIN:
            pooled = PooledKeys(maps, self.grid, self.pooling, choose=key_bias is None)
            value_tokens = pooled.merge(value_tokens, pooled.average(value_tokens))
            key_bias = pooled.bias(key_tokens, key_bias)

        turn = self.cosines, self.sines
        key_turn = self._key_rotation(maps, chunks)
        x = features.flatten(2).transpose(1, 2) + 0.1 * self.sine
        for layer in self.layers:
            x = layer(x, turn, key_tokens[None], value_tokens[None], key_turn, key_bias, pooled)
        conditioned: Tensor = self.norm(x)
        return conditioned.transpose(1, 2).reshape(1, self.channels, self.grid, self.grid)

    def _key_rotation(self, maps: Tensor, chunks: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines of every key: the grid's once per map, then the identity for the pointers'
        chunks."""
        still = torch.zeros_like(chunks[:, :1]).expand(-1, self.channels // 2)
        size = (maps.shape[0], -1, -1)
        cosines = self.cosines.expand(size).reshape(-1, self.channels // 2)
        sines = self.sines.expand(size).reshape(-1, self.channels // 2)
        return torch.cat([cosines, still + 1]), torch.cat([sines, still])


class Layer(nn.Module):
    """Pre-norm self-attention, cross-attention to the memory, feed-forward."""

    def __init__(self, channels: int, memory_channels: int) -> None:
        super().__init__()
        self.self_attn = RotaryAttention(channels, channels)
        self.cross_attn_image = RotaryAttention(channels, memory_channels)
        self.linear1 = nn.Linear(channels, FEEDFORWARD)
        self.linear2 = nn.Linear(FEEDFORWARD, channels)
        self.norm1 = nn.LayerNorm(channels)
        self.norm2 = nn.LayerNorm(channels)
        self.norm3 = nn.LayerNorm(channels)

    def forward(
        self,
        x: Tensor,
        turn: tuple[Tensor, Tensor],
        key_tokens: Tensor,
        value_tokens: Tensor,
        key_turn: tuple[Tensor, Tensor],
        key_bias: Tensor | None,
        pooled: PooledKeys | None,
    ) -> Tensor:
        y = self.norm1(x)
        x = x + self.self_attn(y, turn, y, y, turn)
        x = x + self.cross_attn_image(
            self.norm2(x), turn, key_tokens, value_tokens, key_turn, key_bias, pooled
        )
        out: Tensor = x + self.linear2(F.relu(self.linear1(self.norm3(x))))
        return out


class RotaryAttention(nn.Module):
    """Attention of one head whose queries and keys are turned by their positions (RoPE, Su et al. 2021)."""

    def __init__(self, channels: int, key_channels: int) -> None:
        super().__init__()
        self.channels = channels
        self.q_proj = nn.Linear(channels, channels)
        self.k_proj = nn.Linear(key_channels, channels)
        self.v_proj = nn.Linear(key_channels, channels)
        self.out_proj = nn.Linear(channels, channels)

    def forward(
        self,
        query: Tensor,
        query_turn: tuple[Tensor, Tensor],
        key: Tensor,
        value: Tensor,
        key_turn: tuple[Tensor, Tensor],
        key_bias: Tensor | None = None,
        pooled: PooledKeys | None = None,
    ) -> Tensor:
        q = project_and_rotate(self.q_proj, query, *query_turn)
        k = project_and_rotate(self.k_proj, key, *key_turn)
        if pooled is not None:
            k = pooled.keys(k[0])[None]
        v = self.v_proj(value)
        q, k, v = q.unsqueeze(1), k.unsqueeze(1), v.unsqueeze(1)
        attended = dot_product_attention(q, k, v, self.channels, key_bias)
        out: Tensor = self.out_proj(attended.reshape(1, -1, self.channels))
        return out


def project_and_rotate(projection: nn.Linear, x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Project tokens [1,n,.] and turn channel pair (2j, 2j+1) by angle j of each token's row in the tables
    [n, C/2].

    The result holds all even channels, then all odd ones: q and k are permuted alike, which leaves their
    product as it was, and taking the pairs apart in the weights spares a strided pass over the tokens.
    """
    even = F.linear(x, projection.weight[0::2], projection.bias[0::2])
    odd = F.linear(x, projection.weight[1::2], projection.bias[1::2])
    return torch.cat([even * cosines - odd * sines, even * sines + odd * cosines], dim=-1)
