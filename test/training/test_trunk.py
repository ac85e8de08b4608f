"""The compact networks' trunks: what is taken at which stride, how large they are, how activations end."""

from __future__ import annotations

import pytest
import torch

from efftam_workshop.model.compact.network import COMPACT_CONFIGS, CompactImageEncoder
from efftam_workshop.model.compact.trunk import (
    LITE0,
    SHORT,
    Activation,
    stages_of,
)

NAMES = sorted(COMPACT_CONFIGS)


@pytest.mark.parametrize("name", NAMES)
def test_features_are_taken_at_strides_4_to_32(name):
    config = COMPACT_CONFIGS[name]
    with torch.inference_mode():
        taken = CompactImageEncoder(config).eval().trunk(torch.zeros(1, 3, 192, 192))
    assert [x.shape[2] for x in taken] == [48, 24, 12, 6]
    assert [x.shape[1] for x in taken] == [config.trunk.channels(stride) for stride in (4, 8, 16, 32)]


@pytest.mark.parametrize("name", NAMES)
def test_all_compact_networks_give_the_same_outputs_for_the_same_heads(name):
    with torch.inference_mode():
        outputs = CompactImageEncoder(COMPACT_CONFIGS[name]).eval()(torch.zeros(2, 3, 192, 192))
    assert [tuple(x.shape) for x in outputs] == [(2, 128, 12, 12), (2, 64, 24, 24), (2, 32, 48, 48)]


def multiplications(trunk, side: int = 192) -> int:
    """Of the stages on a square image."""
    counted = 0

    def count(module: torch.nn.Module, _inputs: object, out: torch.Tensor) -> None:
        nonlocal counted
        counted += module.weight[0].numel() * out[0].numel()

    stages = torch.nn.Sequential(*stages_of(trunk))
    for part in stages.modules():
        if isinstance(part, torch.nn.Conv2d):
            part.register_forward_hook(count)
    with torch.inference_mode():
        stages(torch.zeros(1, trunk.stem, side // 2, side // 2))
    return counted


def test_the_short_trunk_is_lite0_without_its_last_blocks():
    assert multiplications(SHORT) < multiplications(LITE0) * 0.8
    blocks = dict(stages_of(LITE0).named_parameters())
    for name, value in stages_of(SHORT).named_parameters():
        assert value.shape == blocks[name].shape, name


@pytest.mark.parametrize(("ceiling", "of_nine"), [(6.0, 6.0), (None, 9.0)])
def test_activations_are_cut_where_there_is_a_ceiling(ceiling, of_nine):
    found = Activation(ceiling)(torch.tensor([-2.0, 0.0, 3.0, 9.0]))
    assert found.tolist() == [0.0, 0.0, 3.0, of_nine]
