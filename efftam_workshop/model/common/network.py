"""Interface of the networks for export and PyTorch execution.

Tensor names, shapes and rules are those of docs/bundle.md.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from efftam_ros.core.types import BoxHead

ABSENT_LOGIT = -1024.0
"""Mask logit of every pixel of a frame in which the target is absent."""


@dataclass(frozen=True)
class NetworkSpec:
    """Constants of one configuration.

    Sides are in network px. ``skips``: name, channels and stride of each skip feature; ``window_factor``:
    side of the training windows in target sizes; ``image_mean``, ``image_std``: normalisation of RGB in 0..1;
    ``box_head``: see `PipelineSpec`.
    """

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
    default_view: str = "auto"
    window_factor: float = 5.0
    key_layout: str = "plain"
    skips: tuple[tuple[str, int, int], ...] = ()
    prompt_raster: bool = False
    image_mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    image_std: tuple[float, float, float] = (0.229, 0.224, 0.225)
    box_head: BoxHead | None = None

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
        """Number of memory tokens that one object pointer is split into."""
        return self.channels // self.memory_channels


class Network(nn.Module):
    """A tracking network of four modules and a prompt encoder; batch size 1, traceable for export."""

    spec: NetworkSpec

    @abstractmethod
    def encode_image(self, image: Tensor) -> dict[str, Tensor]:
        """Image [1,3,S,S] -> ``features`` [1,C,G,G] and the skip features by name."""

    @abstractmethod
    def encode_prompt(
        self, features: Tensor, points: Tensor, labels: Tensor, mask: Tensor, has_mask: Tensor
    ) -> dict[str, Tensor]:
        """Encode a prompt for a frame without history: points [1,n,2] in network px, labels [1,n], mask
        [1,1,S,S], has_mask [1] -> ``conditioned`` features, ``sparse``, ``dense``, and ``prompt_raster`` if
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
        """Decode masks.

        Returns ``masks`` [1,4,4G,4G] logits (row 0 after the stability fallback), ``ious`` [4] 0..1,
        ``presence`` [1] logit, ``pointers`` [4,C] of a present object.
        """

    def encode_memory(
        self,
        features: Tensor,
        mask_logits: Tensor,
        present: Tensor,
        binarize: Tensor,
        pointer: Tensor,
        prompt_raster: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Encode a frame for the memory: its features [1,C,G,G], the chosen candidate's logits [1,1,4G,4G]
        and pointer [1,C], ``present`` [1] (1 where the target is in the image), ``binarize`` [1] (1 for a
        prompted frame, whose mask is thresholded), ``prompt_raster`` [1,1,4G,4G] of `encode_prompt`, None for
        zeros. Returns the memory map [1,N,M], not rounded, and the object pointer to store [1,C]."""
        is_present, is_prompted = (flag.reshape(-1, 1, 1, 1) > 0.5 for flag in (present, binarize))
        logits = torch.where(is_present, mask_logits, ABSENT_LOGIT)
        memory = self.encode_map(features, logits, is_prompted, prompt_raster)
        return memory, torch.where(is_present.reshape(-1, 1), pointer, self.absent_pointer)

    @abstractmethod
    def encode_map(
        self, features: Tensor, logits: Tensor, is_prompted: Tensor, prompt_raster: Tensor | None
    ) -> Tensor:
        """Return the memory map [1,N,M] of mask logits in which an absent target is already blanked."""

    @property
    @abstractmethod
    def absent_pointer(self) -> Tensor:
        """The learned pointer [1,C] stored for a frame without the target."""
