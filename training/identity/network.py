"""The identity network turns a crop of a target's box into a vector; an individual's are similar."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SIDE = 96  # px; crops are squeezed to a square, because vehicles are wide and people tall
SIZE = 128  # number of elements of a vector
MEAN, DEVIATION = 127.5, 64.0  # mean and deviation by which pixels 0..255 are normalised
# Input of a teacher: height and width in px, and mean and deviation of RGB values 0..1 as for ImageNet.
TEACHER_SIZE = (256, 128)
TEACHER_MEAN, TEACHER_DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class _Unit(nn.Sequential):
    def __init__(self, inputs: int, outputs: int, stride: int = 1, kernel: int = 3) -> None:
        super().__init__(
            nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
        )


class _Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            _Unit(channels, channels),
            nn.Conv2d(channels, channels, 3, 1, 1, bias=False),
            nn.BatchNorm2d(channels),
        )

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x + self.body(x))


class IdentityNetwork(nn.Module):
    """Describes crops by plain 3 x 3 convolutions: on a CPU they take a twelfth of depthwise ones' time."""

    def __init__(self, width: int = 16) -> None:
        """``width``: channels of the first convolution; the shipped network has 16."""
        super().__init__()
        a, b, c, d = (width * factor for factor in (1, 2, 4, 8))
        self.body = nn.Sequential(
            _Unit(3, a, 2, 5),
            _Unit(a, b, 2),
            _Residual(b),
            _Unit(b, c, 2),
            _Residual(c),
            _Unit(c, d, 2),
            _Residual(d),
            _Residual(d),
        )
        self.head = nn.Linear(2 * d, SIZE)

    def start_from(self, weights: Mapping[str, Tensor]) -> None:
        """Copy the weights of a network with the same or a smaller width, so that the vectors stay the same.

        The additional channels keep their initial weights and do not influence the vectors yet.
        """
        for name, own in self.state_dict().items():
            given = weights[name]
            if own.dim() == 4:  # a convolution: [outputs, inputs, height, width]
                own[: len(given), given.shape[1] :] = 0
                own[: len(given), : given.shape[1]] = given
            elif own.dim() == 2:  # the head, whose inputs are means and then maxima
                few, many = given.shape[1] // 2, own.shape[1] // 2
                own.zero_()
                own[:, :few], own[:, many : many + few] = given[:, :few], given[:, few:]
            elif own.dim() == 1:
                own[: len(given)] = given

    def forward(self, pixels: Tensor) -> Tensor:
        """Describe crops ``pixels`` [n,3,SIDE,SIDE] BGR, 0..255, by unit vectors float32 [n,SIZE]."""
        y = self.body((pixels - MEAN) / DEVIATION)
        pooled = torch.cat([y.mean((2, 3)), y.amax((2, 3))], 1)
        return F.normalize(self.head(pooled).float(), dim=1)
