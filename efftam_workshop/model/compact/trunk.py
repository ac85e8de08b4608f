"""The convolutional trunk of CompactTAM's image encoder: sequences of inverted bottlenecks.

Its outputs are the last features at strides 4, 8, 16 and 32. It is EfficientNet-Lite0, so that training can
start from published ImageNet weights.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn


@dataclass(frozen=True)
class CompactStage:
    """A sequence of ``blocks`` inverted bottlenecks with the same ``kernel``.

    Each block expands its channels by the factor ``expansion``. The first block has the stride ``stride`` and
    changes the number of channels to ``channels``.
    """

    channels: int
    blocks: int
    kernel: int
    stride: int
    expansion: int


STEM = 32
"""Number of channels at stride 2."""
STAGES = (
    CompactStage(16, 1, 3, 1, 1),
    CompactStage(24, 2, 3, 2, 6),
    CompactStage(40, 2, 5, 2, 6),
    CompactStage(80, 3, 3, 2, 6),
    CompactStage(112, 3, 5, 1, 6),
    CompactStage(192, 4, 5, 2, 6),
    CompactStage(320, 1, 3, 1, 6),
)
"""EfficientNet-Lite0 (Tan and Le, 2019). The Lite variants have no squeeze-and-excitation and use ReLU6."""
TAKEN = {4: 1, 8: 2, 16: 4, 32: 6}
"""By stride, the index of the last stage with this stride."""


def activation() -> nn.Module:
    """Return a ReLU6, as the module that is exported to one operator."""
    return nn.Hardtanh(0.0, 6.0)


class InvertedBottleneck(nn.Module):
    """Pointwise expansion, depthwise convolution, linear projection (Sandler et al., MobileNetV2, 2018).

    It has no batch norms, because they are merged into the convolutions.
    """

    def __init__(self, inputs: int, stage: CompactStage, stride: int) -> None:
        super().__init__()
        inner, kernel = inputs * stage.expansion, stage.kernel
        self.expand = nn.Conv2d(inputs, inner, 1) if stage.expansion > 1 else None
        self.depthwise = nn.Conv2d(inner, inner, kernel, stride, kernel // 2, groups=inner)
        self.project = nn.Conv2d(inner, stage.channels, 1)
        self.activation = activation()
        self.has_shortcut = inputs == stage.channels and stride == 1

    def forward(self, x: Tensor) -> Tensor:
        inner = x if self.expand is None else self.activation(self.expand(x))
        out: Tensor = self.project(self.activation(self.depthwise(inner)))
        return x + out if self.has_shortcut else out


def make_stages() -> nn.ModuleList:
    """Return one sequence of inverted bottlenecks for each entry of `STAGES`."""
    stages, inputs = nn.ModuleList(), STEM
    for stage in STAGES:
        blocks = []
        for index in range(stage.blocks):
            blocks.append(InvertedBottleneck(inputs, stage, 1 if index else stage.stride))
            inputs = stage.channels
        stages.append(nn.Sequential(*blocks))
    return stages
