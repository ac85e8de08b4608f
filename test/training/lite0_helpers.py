"""EfficientNet-Lite0 as it is published: its blocks, and random weights under its names."""

from __future__ import annotations

import torch

BLOCKS = [
    # inputs, outputs, kernel, stride, expansion: EfficientNet-Lite0, block by block
    (32, 16, 3, 1, 1),
    (16, 24, 3, 2, 6), (24, 24, 3, 1, 6),
    (24, 40, 5, 2, 6), (40, 40, 5, 1, 6),
    (40, 80, 3, 2, 6), (80, 80, 3, 1, 6), (80, 80, 3, 1, 6),
    (80, 112, 5, 1, 6), (112, 112, 5, 1, 6), (112, 112, 5, 1, 6),
    (112, 192, 5, 2, 6), (192, 192, 5, 1, 6), (192, 192, 5, 1, 6), (192, 192, 5, 1, 6),
    (192, 320, 3, 1, 6),
]  # fmt: skip
TAKEN_AFTER = (2, 4, 10, 15)
"""Blocks whose output is the last one at strides 4, 8, 16 and 32."""
NORM_EPS = 1e-3
State = dict[str, torch.Tensor]


def published_state() -> State:
    """Random weights under the published names, with batch norms that matter."""
    generator = torch.Generator().manual_seed(3)
    state: State = {}

    def conv(name: str, inputs: int, outputs: int, kernel: int, groups: int = 1) -> None:
        fan_in = inputs // groups * kernel**2
        shape = (outputs, inputs // groups, kernel, kernel)
        state[f"{name}.weight"] = torch.randn(shape, generator=generator) * (2 / fan_in) ** 0.5

    def norm(name: str, channels: int) -> None:
        state[f"{name}.weight"] = torch.rand(channels, generator=generator) + 0.5
        state[f"{name}.bias"] = torch.randn(channels, generator=generator) * 0.2
        state[f"{name}.running_mean"] = torch.randn(channels, generator=generator) * 0.2
        # Small ones too: there the epsilon shows.
        state[f"{name}.running_var"] = torch.rand(channels, generator=generator) * 1.5 + 0.002
        state[f"{name}.num_batches_tracked"] = torch.tensor(1)

    conv("_conv_stem", 3, 32, 3)
    norm("_bn0", 32)
    for index, (inputs, outputs, kernel, _, expansion) in enumerate(BLOCKS):
        name, inner = f"_blocks.{index}.", inputs * expansion
        if expansion > 1:
            conv(name + "_expand_conv", inputs, inner, 1)
            norm(name + "_bn0", inner)
        conv(name + "_depthwise_conv", inner, inner, kernel, groups=inner)
        norm(name + "_bn1", inner)
        conv(name + "_project_conv", inner, outputs, 1)
        norm(name + "_bn2", outputs)
    conv("_conv_head", 320, 1280, 1)
    norm("_bn1", 1280)
    return state
