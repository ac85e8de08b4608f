"""Networks with the golden weights, one per configuration and session."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np
import pytest
from golden.clip import clip
from golden.weights import weights

if TYPE_CHECKING:
    from torch import Tensor

    from efftam_workshop.model.efficienttam.network import EfficientTAM


@pytest.fixture(autouse=True)
def _inference() -> Iterator[None]:
    if find_spec("torch") is None:
        context = nullcontext()
    else:
        import torch

        context = torch.inference_mode()
    with context:
        yield


@pytest.fixture(scope="session")
def golden_state() -> Callable[[str], dict[str, Tensor]]:
    """The artificial state dict of ``ti`` or ``s`` as tensors."""
    import torch

    @cache
    def state(size: str) -> dict[str, Tensor]:
        return {name: torch.from_numpy(values) for name, values in weights(size).items()}

    return state


@pytest.fixture(scope="session")
def golden_network(golden_state) -> Callable[[str], EfficientTAM]:
    """The network ``efficienttam_<name>`` with the golden weights."""
    from efftam_workshop.model.efficienttam.configurations import CONFIGURATIONS
    from efftam_workshop.model.efficienttam.network import EfficientTAM

    @cache
    def network(name: str) -> EfficientTAM:
        built = EfficientTAM(CONFIGURATIONS[f"efficienttam_{name}"]).eval()
        built.load_state_dict(golden_state(name.split("_")[0]), strict=True)
        return built

    return network


@pytest.fixture(scope="session")
def golden_clip() -> Callable[[bool], tuple[np.ndarray, np.ndarray]]:
    """Frames and masks of the golden clip, plain or dark."""
    return clip


@pytest.fixture(scope="session")
def pillow_input() -> Callable[[np.ndarray, int], Tensor]:
    """The reference's own preprocessing of an RGB frame: Pillow's bicubic, rounded to uint8, normalised."""
    import torch
    from PIL import Image as PillowImage

    def prepare(frame: np.ndarray, side: int) -> Tensor:
        small = np.asarray(PillowImage.fromarray(frame).resize((side, side)))
        mean, std = (np.array(v, np.float32) for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
        scaled = (small.astype(np.float32) / np.float32(255) - mean) / std
        return torch.from_numpy(np.ascontiguousarray(scaled.transpose(2, 0, 1)))[None]

    return prepare
