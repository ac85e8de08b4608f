"""Convolutional trunks of the compact networks' image encoder: sequences of inverted bottlenecks.

The last features at strides 4, 8, 16 and 32 are the outputs. EfficientNet-Lite0 starts from published
ImageNet weights. The narrow trunk was designed for this package and takes about half the time: channels and
depths follow searched mobile networks (Wu et al., FBNet, 2019; the tracker FEAR of Borsuk et al., 2022, uses
one), with a small branch at stride 32 for targets that fill the window.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class CompactStage:
    """A sequence of ``blocks`` inverted bottlenecks with the same ``kernel``.

    The first block changes channels and ``stride`` and expands by ``expansion``; the others expand by
    ``later_expansion``, by default the same.
    """

    channels: int
    blocks: int
    kernel: int
    stride: int
    expansion: int
    later_expansion: int | None = None

    def expansions(self) -> Iterator[int]:
        yield self.expansion
        for _ in range(self.blocks - 1):
            yield self.expansion if self.later_expansion is None else self.later_expansion


@dataclass(frozen=True)
class TrunkConfig:
    """Sizes of a trunk.

    ``stem``: channels at stride 2; ``stages``: follow the stem; ``taken``: index of the last stage at strides
    4, 8, 16 and 32; ``ceiling``: upper limit of activations, None for no limit.
    """

    stem: int
    stages: tuple[CompactStage, ...]
    taken: tuple[int, int, int, int]
    ceiling: float | None = None

    def channels(self, stride: int) -> int:
        """Number of channels of the features taken at this stride."""
        return self.stages[self.taken[(4, 8, 16, 32).index(stride)]].channels


LITE0 = TrunkConfig(
    stem=32,
    stages=(
        CompactStage(16, 1, 3, 1, 1),
        CompactStage(24, 2, 3, 2, 6),
        CompactStage(40, 2, 5, 2, 6),
        CompactStage(80, 3, 3, 2, 6),
        CompactStage(112, 3, 5, 1, 6),
        CompactStage(192, 4, 5, 2, 6),
        CompactStage(320, 1, 3, 1, 6),
    ),
    taken=(1, 2, 4, 6),
    ceiling=6.0,
)
"""EfficientNet-Lite0 (Tan and Le, 2019; the Lite variants drop squeeze-and-excitation and use ReLU6)."""

SHORT = replace(
    LITE0,
    stages=(*LITE0.stages[:4], CompactStage(112, 2, 5, 1, 6), CompactStage(192, 1, 5, 2, 6)),
    taken=(1, 2, 4, 5),
)
"""EfficientNet-Lite0 without five of its last blocks, which take a third of its time: one less at stride 16,
and one in place of five at stride 32."""

NARROW = TrunkConfig(
    stem=16,
    stages=(
        CompactStage(16, 1, 3, 1, 1),
        CompactStage(24, 3, 3, 2, 4, 1),
        CompactStage(32, 4, 5, 2, 4, 3),
        CompactStage(64, 4, 5, 2, 6, 4),
        CompactStage(112, 4, 5, 1, 6, 5),
        CompactStage(160, 2, 5, 2, 4, 3),
    ),
    taken=(1, 2, 4, 5),
)


class Activation(nn.Module):
    """ReLU, clipped at ``ceiling`` if given (clipping costs time in onnxruntime)."""

    def __init__(self, ceiling: float | None) -> None:
        super().__init__()
        self.ceiling = ceiling

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x) if self.ceiling is None else F.hardtanh(x, 0.0, self.ceiling)


class InvertedBottleneck(nn.Module):
    """Pointwise expansion, depthwise convolution, linear projection (Sandler et al., MobileNetV2, 2018).

    Batch norms are already merged into the convolutions.
    """

    def __init__(
        self, inputs: int, stage: CompactStage, stride: int, expansion: int, activation: Activation
    ) -> None:
        super().__init__()
        inner, kernel = inputs * expansion, stage.kernel
        self.expand = nn.Conv2d(inputs, inner, 1) if expansion > 1 else None
        self.depthwise = nn.Conv2d(inner, inner, kernel, stride, kernel // 2, groups=inner)
        self.project = nn.Conv2d(inner, stage.channels, 1)
        self.activation = activation
        self.has_shortcut = inputs == stage.channels and stride == 1

    def forward(self, x: Tensor) -> Tensor:
        inner = x if self.expand is None else self.activation(self.expand(x))
        out: Tensor = self.project(self.activation(self.depthwise(inner)))
        return x + out if self.has_shortcut else out


def stages_of(config: TrunkConfig) -> nn.ModuleList:
    """The stages of a trunk, each a sequence of inverted bottlenecks."""
    stages, inputs = nn.ModuleList(), config.stem
    activation = Activation(config.ceiling)
    for stage in config.stages:
        blocks = []
        for index, expansion in enumerate(stage.expansions()):
            stride = stage.stride if index == 0 else 1
            blocks.append(InvertedBottleneck(inputs, stage, stride, expansion, activation))
            inputs = stage.channels
        stages.append(nn.Sequential(*blocks))
    return stages
