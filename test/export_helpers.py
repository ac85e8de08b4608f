"""Small networks of both families with deterministic weights."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import torch
from golden.weights import weights

from efftam_ros.runtime.bundle import default_bundle
from efftam_workshop.model.compact.network import CompactTAM
from efftam_workshop.model.efficienttam.configurations import Configuration, Pooling
from efftam_workshop.model.efficienttam.network import EfficientTAM

OFFICIAL_SIDE = 128
"""Smaller than the official 512, so that a test takes seconds; the weights fit any side."""


def compact_network() -> CompactTAM:
    """compact_192 with seeded weights."""
    torch.manual_seed(20240712)
    network = CompactTAM().eval()
    network.spec = replace(network.spec, box_head=default_bundle().spec.box_head)
    with torch.no_grad():
        network.memory_attention.row_embedding.mul_(20.0)  # rows must matter before training made them
        for neck in (network.image_encoder.neck16, network.image_encoder.neck8, network.image_encoder.neck4):
            neck.weight.mul_(4.0)  # features about as large as a trained encoder's
    return network


def official_network(pooling: Pooling = Pooling.PLAIN) -> EfficientTAM:
    """EfficientTAM-Ti with the golden weights on a small input."""
    network = EfficientTAM(Configuration("efficienttam_ti_small", OFFICIAL_SIDE, 192, 3, pooling)).eval()
    network.load_state_dict(golden_state())
    return network


@cache
def golden_state() -> dict[str, torch.Tensor]:
    """The artificial state dict of EfficientTAM-Ti."""
    return {name: torch.from_numpy(value) for name, value in weights("ti").items()}
