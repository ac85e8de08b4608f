"""Attention in its two writings, and windows whose padding takes part."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="the network needs torch: scripts/setup_env --with-tests")

import math

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from efftam_workshop.model.common.layers import dot_product_attention
from efftam_workshop.model.efficienttam.configurations import Pooling
from efftam_workshop.model.efficienttam.image_encoder import SelfAttention, Windows
from efftam_workshop.model.efficienttam.memory_attention import PooledKeys


@pytest.mark.parametrize("with_bias", [False, True])
def test_exported_and_eager_attention_agree(with_bias, monkeypatch):
    q, k, v = torch.randn(1, 2, 5, 16), torch.randn(1, 2, 9, 16), torch.randn(1, 2, 9, 16)
    bias = (torch.randn(1, 1, 1, 9),) if with_bias else ()
    eager = dot_product_attention(q, k, v, 16, *bias)
    monkeypatch.setattr(torch.onnx, "is_in_onnx_export", lambda: True)
    monkeypatch.delattr(torch.nn.functional, "scaled_dot_product_attention")
    exported = dot_product_attention(q, k, v, 16, *bias)
    torch.testing.assert_close(exported, eager, atol=1e-6, rtol=0)


def test_a_key_with_the_unused_bias_has_no_weight_at_all():
    q, k, v = torch.randn(1, 1, 4, 8), torch.randn(1, 1, 6, 8), torch.randn(1, 1, 6, 8)
    bias = torch.zeros(1, 1, 1, 6)
    bias[..., 4:] = -1e4
    only_used = dot_product_attention(q, k[:, :, :4], v[:, :, :4], 8)
    torch.testing.assert_close(dot_product_attention(q, k, v, 8, bias), only_used, atol=1e-6, rtol=0)


@given(grid=st.integers(1, 40), side=st.integers(1, 14))
def test_windows_put_back_are_the_map(grid, side):
    x = torch.randn(1, grid, grid, 3)
    windows = Windows(grid, side, 3)
    cut = windows.split(x)
    assert cut.shape[0] * side * side >= grid * grid
    assert torch.equal(windows.join(cut), x)


def test_windows_are_contiguous_squares_padded_at_the_bottom_and_right():
    x = torch.arange(1.0, 26.0).reshape(1, 5, 5, 1)
    cut = Windows(5, 3, 1).split(x)[..., 0]
    assert cut.shape == (4, 3, 3)
    assert cut[0].tolist() == [[1, 2, 3], [6, 7, 8], [11, 12, 13]]
    assert cut[3].tolist() == [[19, 20, 0], [24, 25, 0], [0, 0, 0]]


def test_padding_of_a_window_is_attended_to_as_the_bias():
    """A padded token's key and value are the biases; leaving it out gives another answer."""
    width, heads, side = 8, 2, 3
    attention = SelfAttention(side, width, heads)
    windows = Windows(2, side, width)
    x = torch.randn(1, 2, 2, width)
    out = windows.join(attention(windows.split(x)))

    q, k, v = attention.qkv(x.reshape(1, 4, width)).split(width, dim=-1)
    bias = attention.qkv.bias.split(width)
    padded = [
        torch.cat([t, b.expand(1, side * side - 4, width)], dim=1) for t, b in ((k, bias[1]), (v, bias[2]))
    ]

    def attend(key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        split = [t.reshape(1, -1, heads, width // heads).transpose(1, 2) for t in (q, key, value)]
        mixed = torch.softmax(split[0] @ split[1].mT / (width // heads) ** 0.5, dim=-1) @ split[2]
        return attention.proj(mixed.transpose(1, 2).reshape(1, 2, 2, width))

    torch.testing.assert_close(out, attend(*padded), atol=1e-6, rtol=0)
    assert (out - attend(k, v)).abs().max() > 1e-3


@pytest.mark.parametrize("pooling", [Pooling.POOLED_1, Pooling.POOLED_2])
def test_pooled_attention_is_the_published_formula(pooling):
    """Four keys of a square become their mean; ln 4 goes to its logit (form 1) or to each of its channels
    (form 2)."""
    grid, channels, maps, pointers = 4, 8, 3, 5
    tokens = maps * grid * grid
    q, keys, values = torch.randn(6, channels), *torch.randn(2, tokens + pointers, channels)
    squares = torch.nn.functional.avg_pool2d

    def pool(x: Tensor) -> Tensor:
        image = x[:tokens].reshape(maps, grid, grid, channels).permute(0, 3, 1, 2)
        return squares(image, 2).permute(0, 2, 3, 1).reshape(-1, channels)

    weight = 2 * math.log(2)
    if pooling is Pooling.POOLED_1:
        logits = torch.cat(
            [q @ pool(keys).T / math.sqrt(channels) + weight, q @ keys[tokens:].T / math.sqrt(channels)], 1
        )
    else:
        logits = q @ torch.cat([pool(keys) + weight, keys[tokens:]]).T / math.sqrt(channels)
    expected = logits.softmax(-1) @ torch.cat([pool(values), values[tokens:]])

    pooled = PooledKeys(torch.zeros(maps, grid * grid, channels), grid, pooling, choose=True)
    merged = pooled.merge(values, pooled.average(values))
    bias = pooled.bias(values, None)
    scores = q @ pooled.keys(keys).T / math.sqrt(channels) + (0 if bias is None else bias[0, 0])
    torch.testing.assert_close(scores.softmax(-1) @ merged, expected, atol=2e-5, rtol=0)
