"""What export and the eager back end ask of a network, whatever its family.

Tensor names, shapes and rules are those of docs/bundle.md.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from torch import Tensor, nn


@dataclass(frozen=True)
class NetworkSpec:
    """Constants of one configuration. Sides in network px; ``skips`` maps a skip feature's name to (channels,
    stride); ``window_factor`` is the window's side in target sizes that the network was trained for;
    ``image_mean`` and ``image_std`` normalise RGB 0..1."""

    name: str
    family: str
    side: int
    channels: int = 256
    memory_channels: int = 64
    temporal_rows: int = 7
    max_maps: int | None = 7
    max_pointers: int = 16
    recent_maps: int = 6
    memory_dtype: str = "bfloat16"
    default_view: str = "full"
    window_factor: float = 5.0
    key_layout: str = "plain"
    skips: tuple[tuple[str, int, int], ...] = ()
    prompt_raster: bool = False
    image_mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    image_std: tuple[float, float, float] = (0.229, 0.224, 0.225)

    @property
    def grid(self) -> int:
        """G, the feature side at stride 16."""
        return self.side // 16

    @property
    def low_side(self) -> int:
        """4G, the side of the mask logits."""
        return self.side // 4

    @property
    def pointer_tokens(self) -> int:
        """Memory tokens that one pointer is cut into."""
        return self.channels // self.memory_channels


class Network(nn.Module):
    """A tracker network of four modules and a prompt encoder. Batch 1; all methods are traceable for
    export."""

    spec: NetworkSpec

    @abstractmethod
    def encode_image(self, image: Tensor) -> dict[str, Tensor]:
        """[1,3,S,S] -> ``features`` [1,C,G,G] and the skip features by name."""

    @abstractmethod
    def encode_prompt(
        self, features: Tensor, points: Tensor, labels: Tensor, mask: Tensor, has_mask: Tensor
    ) -> dict[str, Tensor]:
        """Prompt (points [1,n,2] network px, labels [1,n], mask [1,1,S,S], has_mask [1]) -> ``conditioned``
        features of a frame without history, ``sparse``, ``dense``, and ``prompt_raster`` where
        ``spec.prompt_raster``."""

    @abstractmethod
    def attend(
        self, features: Tensor, maps: Tensor, rows: Tensor, pointers: Tensor, key_bias: Tensor | None = None
    ) -> Tensor:
        """Memory attention: maps [T,N,M], temporal rows [T], pointers [P,C] -> conditioned [1,C,G,G]."""

    @abstractmethod
    def decode(
        self, conditioned: Tensor, sparse: Tensor, dense: Tensor, skips: dict[str, Tensor]
    ) -> dict[str, Tensor]:
        """-> ``masks`` [1,4,4G,4G] logits (row 0 after the stability fallback), ``ious`` [4] 0..1,
        ``presence`` [1] logit, ``pointers`` [4,C] of a present object."""

    @abstractmethod
    def encode_memory(
        self,
        features: Tensor,
        mask_logits: Tensor,
        present: Tensor,
        binarize: Tensor,
        pointer: Tensor,
        prompt_raster: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """-> memory map [1,N,M] (not rounded) and the pointer to store [1,C]."""
