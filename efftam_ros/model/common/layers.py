"""Layers shared by the modules of EfficientTAM."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class LayerNorm2d(nn.LayerNorm):
    """LayerNorm over the channels of every pixel of [B,C,H,W].

    Exported as one LayerNormalization between two Transposes, which sums squares in FP32 in any precision.
    """

    def __init__(self, channels: int, eps: float = 1e-6) -> None:
        super().__init__(channels, eps=eps)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class MLP(nn.Module):
    """Linear layers ``widths[0] -> widths[1] -> ...`` with an activation between them and none at the end."""

    def __init__(self, widths: Sequence[int], activation: Callable[[Tensor], Tensor] = F.relu) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        *hidden, last = self.layers
        for layer in hidden:
            x = self.activation(layer(x))
        out: Tensor = last(x)
        return out


def dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, head_size: int, bias: Tensor | None = None
) -> Tensor:
    """softmax(q k^T / sqrt(head size) + bias) v over [B, heads, tokens, head size]; ``bias`` broadcasts to
    the logits.

    The query is scaled before the product, because unscaled logits would overflow in FP16. In export the two
    products and the softmax are separate operators (the exporter of the fused operator would also scale the
    keys, and precision is set per operator); eager execution uses PyTorch's fused kernel.
    """
    query = query * head_size**-0.5
    if not torch.onnx.is_in_onnx_export():
        return F.scaled_dot_product_attention(query, key, value, attn_mask=bias, scale=1.0)
    logits = query @ key.transpose(-2, -1)
    if bias is not None:
        logits = logits + bias
    return logits.softmax(dim=-1) @ value


class MultiHeadAttention(nn.Module):
    """Multi-head attention [B,n,width] x [B,m,width] -> [B,n,width] with a separate inner width."""

    def __init__(self, width: int, heads: int, inner: int | None = None) -> None:
        super().__init__()
        inner = inner or width
        self.heads = heads
        self.head_size = inner // heads
        self.q_proj = nn.Linear(width, inner)
        self.k_proj = nn.Linear(width, inner)
        self.v_proj = nn.Linear(width, inner)
        self.out_proj = nn.Linear(inner, width)

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        q, k, v = (
            self._split(self.q_proj(query)),
            self._split(self.k_proj(key)),
            self._split(self.v_proj(value)),
        )
        attended = dot_product_attention(q, k, v, self.head_size).transpose(1, 2)
        out: Tensor = self.out_proj(attended.reshape(1, -1, self.heads * self.head_size))
        return out

    def _split(self, x: Tensor) -> Tensor:
        return x.reshape(1, -1, self.heads, self.head_size).transpose(1, 2)
