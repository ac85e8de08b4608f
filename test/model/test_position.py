"""Position tables against their formulas, and what they are for."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="the network needs torch: scripts/setup_env --with-tests")

import math

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from efftam_workshop.model.common.layers import fourier_features, rotary_table, sine_table
from efftam_workshop.model.efficienttam.memory_attention import Rotation, project_and_rotate
from efftam_workshop.model.efficienttam.prompt_encoder import GaussianPosition


def test_sine_table_puts_rows_first_and_interleaves_sine_and_cosine():
    grid, half = 5, 8
    table = sine_table(2 * half, grid).numpy()
    for y in range(grid):
        for x in range(grid):
            for k in range(half):
                period = 10000 ** (2 * (k // 2) / half)
                wave = math.cos if k % 2 else math.sin
                for place, channel in ((y, k), (x, half + k)):
                    expected = wave((place + 1) / (grid + 1e-6) * 2 * math.pi / period)
                    assert abs(table[0, channel, y, x] - expected) < 1e-6


def test_rotary_table_turns_the_first_half_by_x_and_the_second_by_y():
    grid, channels = 6, 16
    cosines, sines = (t.numpy() for t in rotary_table(channels, grid))
    for token in range(grid * grid):
        y, x = divmod(token, grid)
        angle = [p * 10000 ** (-4 * i / channels) for p in (x, y) for i in range(channels // 4)]
        np.testing.assert_allclose(cosines[token], np.cos(angle), atol=1e-6)
        np.testing.assert_allclose(sines[token], np.sin(angle), atol=1e-6)


def identity(channels: int) -> nn.Linear:
    projection = nn.Linear(channels, channels)
    projection.weight.copy_(torch.eye(channels))
    projection.bias.zero_()
    return projection


def test_rotation_is_a_complex_product_on_neighbouring_channels():
    grid, channels = 4, 8
    tokens = torch.randn(1, grid * grid, channels)
    cosines, sines = rotary_table(channels, grid)
    turned = project_and_rotate(identity(channels), tokens, Rotation(cosines, sines))
    pairs = torch.view_as_complex(tokens.reshape(1, -1, channels // 2, 2))
    product = pairs * torch.complex(cosines, sines)
    torch.testing.assert_close(turned, torch.cat([product.real, product.imag], dim=-1))


@given(
    x=st.integers(0, 3),
    y=st.integers(0, 3),
    dx=st.integers(0, 3),
    dy=st.integers(0, 3),
    seed=st.integers(0, 99),
)
def test_rotated_products_depend_on_the_distance_alone(x, y, dx, dy, seed):
    grid, channels = 8, 16
    with torch.inference_mode():
        q, k = torch.randn(2, 1, 1, channels, generator=torch.Generator().manual_seed(seed))
        tables = [t.reshape(grid, grid, -1) for t in rotary_table(channels, grid)]

        def at(vector: torch.Tensor, column: int, row: int) -> torch.Tensor:
            return project_and_rotate(identity(channels), vector, Rotation(*(t[row, column] for t in tables)))

        here = (at(q, 0, 0) * at(k, dx, dy)).sum()
        there = (at(q, x, y) * at(k, x + dx, y + dy)).sum()
    torch.testing.assert_close(here, there, atol=1e-4, rtol=1e-4)


def test_dense_position_is_the_code_of_cell_centres():
    layer = GaussianPosition(16)
    dense = layer.dense(4)
    point = torch.tensor([[(2 + 0.5) / 4, (1 + 0.5) / 4]])  # x, y
    code = fourier_features(point, layer.positional_encoding_gaussian_matrix)
    torch.testing.assert_close(dense[0, :, 1, 2], code[0])
