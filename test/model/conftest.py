"""Networks with the golden weights, one per configuration and session."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

torch = pytest.importorskip("torch", reason="the network needs torch: pip install efftam_ros[export]")

from golden.clip import clip  # noqa: E402
from golden.weights import weights  # noqa: E402
from PIL import Image as PillowImage  # noqa: E402

from efftam_ros.model.configurations import configuration  # noqa: E402
from efftam_ros.model.efficienttam import EfficientTAM  # noqa: E402


@pytest.fixture(autouse=True)
def _inference() -> Iterator[None]:
    with torch.inference_mode():
        yield


@pytest.fixture(scope="session")
def golden_state() -> Callable[[str], dict]:
    """The artificial state dict of ``ti`` or ``s`` as tensors."""

    @cache
    def state(size: str) -> dict:
        return {name: torch.from_numpy(values) for name, values in weights(size).items()}

    return state


@pytest.fixture(scope="session")
def golden_network(golden_state) -> Callable[[str], EfficientTAM]:
    """The network ``efficienttam_<name>`` with the golden weights."""

    @cache
    def network(name: str) -> EfficientTAM:
        built = EfficientTAM(configuration(f"efficienttam_{name}")).eval()
        built.load_state_dict(golden_state(name.split("_")[0]), strict=True)
        return built

    return network


@pytest.fixture(scope="session")
def golden_clip() -> Callable[[bool], tuple[np.ndarray, np.ndarray]]:
    """Frames and masks of the golden clip, plain or dark."""
    return cache(clip)


@pytest.fixture(scope="session")
def pillow_input() -> Callable[[np.ndarray, int], torch.Tensor]:
    """The reference's own preprocessing of an RGB frame: Pillow's bicubic, rounded to uint8, then
    normalised."""

    def prepare(frame: np.ndarray, side: int) -> torch.Tensor:
        small = np.asarray(PillowImage.fromarray(frame).resize((side, side)))
        mean, std = (np.array(v, np.float32) for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
        scaled = (small.astype(np.float32) / np.float32(255) - mean) / std
        return torch.from_numpy(np.ascontiguousarray(scaled.transpose(2, 0, 1)))[None]

    return prepare
