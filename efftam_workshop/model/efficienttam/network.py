"""EfficientTAM (Xiong et al., "Efficient Track Anything", 2024) with the interface `Network`.

The reference is yformer/EfficientTAM. Parameters have the reference's names, so that its checkpoints load
unchanged.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from efftam_workshop.model.common.layers import MLP, sine_rows
from efftam_workshop.model.common.network import Network
from efftam_workshop.model.efficienttam.configurations import Configuration
from efftam_workshop.model.efficienttam.image_encoder import ImageEncoder
from efftam_workshop.model.efficienttam.mask_decoder import MaskDecoder, single_answer
from efftam_workshop.model.efficienttam.memory_attention import MemoryAttention
from efftam_workshop.model.efficienttam.memory_encoder import MemoryEncoder
from efftam_workshop.model.efficienttam.prompt_encoder import PromptEncoder

MASK_SCALE, MASK_SHIFT = 20.0, -10.0


class EfficientTAM(Network):
    """An official configuration. Loading a state dict also recomputes the tables derived from parameters."""

    image_position: Tensor
    map_position: Tensor

    def __init__(self, configuration: Configuration) -> None:
        super().__init__()
        self.configuration = configuration
        self.spec = spec = configuration.spec
        channels, grid = spec.channels, spec.grid
        self.image_encoder = ImageEncoder(grid, configuration.width, configuration.heads, channels)
        self.memory_attention = MemoryAttention(grid, configuration.pooling, channels, spec.memory_channels)
        self.memory_encoder = MemoryEncoder(channels, spec.memory_channels)
        self.sam_prompt_encoder = PromptEncoder(spec.side, channels)
        self.sam_mask_decoder = MaskDecoder(grid, channels)
        self.obj_ptr_proj = MLP((channels, channels, channels, channels))
        self.mask_downsample = nn.Conv2d(1, 1, 4, stride=4)
        self.maskmem_tpos_enc = nn.Parameter(torch.zeros(spec.temporal_rows, 1, 1, spec.memory_channels))
        self.no_mem_embed = nn.Parameter(torch.zeros(1, 1, channels))
        self.no_mem_pos_enc = nn.Parameter(torch.zeros(1, 1, channels))  # part of checkpoints, not used
        self.no_obj_ptr = nn.Parameter(torch.zeros(1, channels))
        map_position = sine_rows(spec.memory_channels, grid)
        self.register_buffer("map_position", map_position, persistent=False)
        self.register_buffer("image_position", torch.zeros(1, channels, grid, grid), persistent=False)
        self.register_load_state_dict_post_hook(lambda module, _: module.refresh())
        self.refresh()

    def refresh(self) -> None:
        """Recompute the tables derived from parameters; called after a state dict is loaded."""
        self.image_encoder.trunk.refresh()
        self.image_position.copy_(self.sam_prompt_encoder.pe_layer.dense(self.spec.grid))

    def encode_image(self, image: Tensor) -> dict[str, Tensor]:
        return {"features": self.image_encoder(image)}

    def encode_prompt(
        self, features: Tensor, points: Tensor, labels: Tensor, mask: Tensor, has_mask: Tensor
    ) -> dict[str, Tensor]:
        masked = has_mask.reshape(1, 1, 1, 1) > 0.5
        no_memory = features + self.no_mem_embed.reshape(1, -1, 1, 1)
        dense = self.sam_prompt_encoder.dense(self.mask_downsample(mask))
        return {
            "conditioned": torch.where(masked, features, no_memory),
            "sparse": self.sam_prompt_encoder.sparse(points, labels),
            "dense": torch.where(masked, dense, self.sam_prompt_encoder.no_mask(self.spec.grid)),
        }

    def attend(
        self, features: Tensor, maps: Tensor, rows: Tensor, pointers: Tensor, key_bias: Tensor | None = None
    ) -> Tensor:
        positions = self.map_position + self.maskmem_tpos_enc[:, 0][rows]
        return self.memory_attention(features, maps, positions, pointers, key_bias)

    def decode(
        self, conditioned: Tensor, sparse: Tensor, dense: Tensor, skips: dict[str, Tensor]
    ) -> dict[str, Tensor]:
        raw = self.sam_mask_decoder(conditioned, sparse, dense, self.image_position)
        masks, ious = single_answer(raw.masks, raw.ious[0])
        return {
            "masks": masks,
            "ious": ious,
            "presence": raw.presence[0],
            "pointers": self.obj_ptr_proj(raw.tokens[0]),
        }

    def encode_map(
        self, features: Tensor, logits: Tensor, is_prompted: Tensor, prompt_raster: Tensor | None
    ) -> Tensor:
        logits = F.interpolate(logits, scale_factor=4.0, mode="bilinear", align_corners=False)
        mask = torch.where(is_prompted, (logits > 0).to(logits), logits.sigmoid()) * MASK_SCALE + MASK_SHIFT
        memory: Tensor = self.memory_encoder(features, mask)
        return memory.flatten(2).transpose(1, 2)

    @property
    def absent_pointer(self) -> Tensor:
        return self.no_obj_ptr
