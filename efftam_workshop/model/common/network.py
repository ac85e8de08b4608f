"""Interface of the networks, for export and for execution in PyTorch.

docs/bundle.md describes the names and shapes of the tensors and the rules of the protocol.
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

    ``side`` is in network px. ``skips``: name, channels and stride of each skip feature. ``window_factor``:
    side of the training windows in target sizes. ``image_mean``, ``image_std``: normalisation of RGB values
    in 0..1. ``box_head``: see `PipelineSpec`.
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
        """G, the side of the feature map at stride 16."""
        return self.side // 16

    @property
    def low_side(self) -> int:
        """4G, the side of the mask logits in mask pixels."""
        return self.side // 4

    @property
    def pointer_tokens(self) -> int:
        """Number of memory tokens into which one object pointer is split."""
        return self.channels // self.memory_channels


class Network(nn.Module):
    """A tracking network: image encoder, prompt encoder, memory attention, mask decoder and memory encoder.

    The methods take a batch of 1 and can be traced for export.
    """

    spec: NetworkSpec

    @abstractmethod
    def encode_image(self, image: Tensor) -> dict[str, Tensor]:
        """Encode an image [1,3,S,S]; returns ``features`` [1,C,G,G] and the skip features by name."""

    @abstractmethod
    def encode_prompt(
        self, features: Tensor, points: Tensor, labels: Tensor, mask: Tensor, has_mask: Tensor
    ) -> dict[str, Tensor]:
        """Encode a prompt for a frame without memory.

        ``points`` [1,n,2] are in network px; ``labels`` [1,n]; ``mask`` [1,1,S,S]; ``has_mask`` [1]. Returns
        the features as ``conditioned``, the prompt's tokens as ``sparse``, its map as ``dense``, and
        ``prompt_raster`` if ``spec.prompt_raster``.
        """

    @abstractmethod
    def attend(
        self, features: Tensor, maps: Tensor, rows: Tensor, pointers: Tensor, key_bias: Tensor | None = None
    ) -> Tensor:
        """Condition the features on the memory; returns [1,C,G,G].

        ``maps`` [T,N,M] with their temporal ``rows`` [T], ``pointers`` [P,C]. ``key_bias`` [1,1,1,K] is added
        to the logits of the K keys.
        """

    @abstractmethod
    def decode(
        self, conditioned: Tensor, sparse: Tensor, dense: Tensor, skips: dict[str, Tensor]
    ) -> dict[str, Tensor]:
        """Decode the masks of the four candidates.

        Returns ``masks`` [1,4,4G,4G], logits, row 0 after the stability fallback; ``ious`` [4], predicted IoU
        0..1; ``presence`` [1], logit; ``pointers`` [4,C], valid if the object is present.
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
        """Encode a frame for the memory; returns its map [1,N,M], not rounded, and its pointer [1,C].

        ``features`` [1,C,G,G]. ``mask_logits`` [1,1,4G,4G] and ``pointer`` [1,C] of the chosen candidate.
        ``present`` [1]: 1 if the target is in the image, else 0. ``binarize`` [1]: 1 for a prompted frame,
        whose mask is thresholded, else 0. ``prompt_raster`` [1,1,4G,4G] of `encode_prompt`; None means zeros.
        """
        is_present, is_prompted = (flag.reshape(-1, 1, 1, 1) > 0.5 for flag in (present, binarize))
        logits = torch.where(is_present, mask_logits, ABSENT_LOGIT)
        memory = self.encode_map(features, logits, is_prompted, prompt_raster)
        return memory, torch.where(is_present.reshape(-1, 1), pointer, self.absent_pointer)

    @abstractmethod
    def encode_map(
        self, features: Tensor, logits: Tensor, is_prompted: Tensor, prompt_raster: Tensor | None
    ) -> Tensor:
        """Return the memory map [1,N,M] of mask logits [1,1,4G,4G]; an absent target has `ABSENT_LOGIT`."""

    @property
    @abstractmethod
    def absent_pointer(self) -> Tensor:
        """Learned pointer [1,C] that is stored for a frame without the target."""
